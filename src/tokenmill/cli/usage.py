"""Explains a wrong command line with one line and a hint: what is wrong, and what to type instead.

argparse alone would print the whole usage first, and report missing arguments before misspelt ones.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from tokenmill.config.kinds import Kind, nearest
from tokenmill.config.names import option_called, option_meant
from tokenmill.errors import ConfigError

_MAX_WORDS = 8  # a longer command is not repeated in a hint
_NEGATIVE_NUMBER = re.compile(r"-\d+|-\d*\.\d+")
_RESUME = ("resume", "continue", "resume_from_checkpoint", "skip_existing")


class Checked(argparse.Action):
    """A value of a `Kind`, checked where it is typed."""

    def __init__(self, option_strings: Sequence[str], dest: str, kind: Kind, **more: Any) -> None:
        super().__init__(option_strings, dest, **{"metavar": kind.metavar, **more})
        self.kind = kind

    def __call__(self, parser: Any, namespace: Any, values: Any, flag: str | None = None) -> None:
        value = self.kind.typed(values) if self.kind.typed else values
        setattr(namespace, self.dest, self.kind.checked(flag or self.dest, value))


class CommandParser(argparse.ArgumentParser):
    """An ArgumentParser that raises ConfigError, with a suggestion."""

    _words: Sequence[str] = ()
    other_names = ""  # of a command, in other tools

    def __init__(self, **options: Any) -> None:
        # No abbreviations: --shard 8 would mean --shard-tokens 8, and --input X --input-format X.
        super().__init__(**{"allow_abbrev": False, **options})

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        arguments, more = self.parse_known_args(args, namespace)
        if "--" in more:
            more.remove("--")
        if more and isinstance(getattr(arguments, "sources", None), list):
            arguments.sources += more  # SOURCE -o OUT SOURCE
        elif more:
            command = commands_of(self).get(arguments.command, self)
            hint = command._repeated_before(more[0]) or command.example()
            raise ConfigError(f"unexpected argument {more[0]!r}", hint=hint)
        return arguments

    def _repeated_before(self, word: str) -> str | None:
        """For another value of an option that is repeated for each: `--doc 1 2`."""
        before = self._words[: self._words.index(word)] if word in self._words else []
        option = next((one for one in reversed(before) if _is_option(one)), None)
        action = self.options().get(option or "")
        if option is None or not isinstance(action, argparse._AppendAction):
            return None
        return f"repeat the option for each: {option} {shlex.quote(word)}"

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self._words = sys.argv[1:] if args is None else list(args)
        self._require_known_options()
        return super().parse_known_args(self._words, namespace)

    def error(self, message: str) -> NoReturn:
        """Called by argparse, with its own message."""
        for pattern, explain in _EXPLANATIONS.items():
            if match := re.fullmatch(pattern, message, re.DOTALL):
                raise explain(self, *match.groups())
        raise ConfigError(message, hint=self.help_command())

    def help_command(self) -> str:
        return f"{self.prog} --help"

    def example(self) -> str:
        """A working command, from the help text."""
        lines = (self.epilog or "").removeprefix("example: ").splitlines()
        examples = [line.strip() for line in lines if line.strip().startswith(self.prog)]
        # A remark may follow after four or more spaces.
        return examples[0].partition("    ")[0] if examples else self.help_command()

    def action_of(self, name: str) -> argparse.Action:
        """The action by its name in argparse's messages: `--eot`, `-o/--out`, `COMMAND`."""
        for action in self._actions:
            names = ("/".join(action.option_strings), action.metavar, action.dest)
            if name in (*action.option_strings, *names):
                return action
        raise KeyError(name)

    def options(self) -> dict[str, argparse.Action]:
        return {name: action for action in self._actions for name in action.option_strings}

    def _require_known_options(self) -> None:
        has_rest = any(
            action.nargs in (argparse.REMAINDER, argparse.PARSER) for action in self._actions
        )
        options, before = self.options(), ""
        for word in self._words:
            if word == "--":
                return
            if _is_option(word):
                self._require_known(word, before, options)
            elif has_rest and not _takes_value(options.get(before)):
                return  # the rest is not ours
            before = word

    def _require_known(self, word: str, before: str, options: dict[str, argparse.Action]) -> None:
        name = word.partition("=")[0]
        if name in options:
            return
        if _takes_value(options.get(before)):
            raise ConfigError(
                f"{before} needs a value, got {word!r}",
                hint=f"for a value that begins with -, write {shlex.quote(f'{before}={word}')}",
            )
        # A value may follow -o directly, but -out means --out.
        dests = [action.dest for action in options.values()]
        if name[:2] not in options or option_called(name[1:].replace("-", "_"), dests):
            raise ConfigError(f"unknown option {name}", hint=self._advice(name, options))

    def _advice(self, name: str, options: dict[str, argparse.Action]) -> str:
        said = name.lstrip("-").replace("-", "_")
        if said in _RESUME:
            return "leave it out: the same command resumes an interrupted run"
        if commands_of(self):
            called = f"{self.prog} COMMAND {name}"
            return f"options follow the command: {called}; see {self.help_command()}"
        by_name = {option[2:].replace("-", "_"): option for option in options if option[1] == "-"}
        positional = {a.dest: str(a.metavar) for a in self._actions if not a.option_strings}
        known = [*by_name, *positional]
        is_short = not name.startswith("--")  # -j4
        meant = option_meant(said, known) or (option_called(said[0], known) if is_short else None)
        longer = [option for option in options if option.startswith(name)]
        if meant in by_name:
            return f"did you mean `{by_name[meant]}`?"
        if meant is None and longer:
            return f"did you mean {' or '.join(f'`{option}`' for option in longer)}?"
        if meant is not None:
            return f"{positional[meant]} is given without an option: {self.example()}"
        return f"{self.help_command()} lists the options"


def commands_of(parser: argparse.ArgumentParser) -> dict[str, CommandParser]:
    """A parser's commands by name; none if it is itself a command."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def command_meant(name: str, known: Mapping[str, Any]) -> str | None:
    """The command that a user who types `name` probably means."""
    for command, said in known.items():
        if name.lower() in said.other_names.split():
            return command
    return nearest(name.lower(), known)


def unknown_command(
    name: str, known: Mapping[str, Any], words: Sequence[str] = (), prog: str = "tokenmill"
) -> ConfigError:
    meant = command_meant(name, known)
    if meant is not None:
        return ConfigError(f"unknown command {name!r}", hint=f"did you mean `{prog} {meant}`?")
    hint = f"{prog} --help lists the commands"
    if prog == "tokenmill" and set(name) & set("./*~"):  # a file, a folder, a glob or a URL
        shown = shlex.join(words) if 0 < len(words) <= _MAX_WORDS else f"{shlex.quote(name)} ..."
        hint = f"did you mean `tokenmill prepare {shown}`?"
    return ConfigError(f"unknown command {name!r}", hint=hint)


def _is_option(word: str) -> bool:
    """Whether argparse takes it for an option, known or not."""
    return (
        word.startswith("-")
        and word != "-"
        and " " not in word.partition("=")[0]
        and not _NEGATIVE_NUMBER.fullmatch(word)
    )


def _takes_value(action: argparse.Action | None) -> bool:
    return action is not None and action.nargs is None


# From argparse's messages to ours


def _missing(parser: CommandParser, names: str) -> ConfigError:
    missing = names.split(", ")
    if missing != ["-o/--out"]:
        return ConfigError(f"missing: {', '.join(missing)}", hint=parser.example())
    is_file = parser.options()["-o"].metavar == "FILE.json"
    what, example = ("file", "my.json") if is_file else ("folder", "data/mine")
    words = [*shlex.split(parser.prog), *parser._words]
    if all(action.option_strings for action in parser._actions) and parser._words:
        before, last = words[-2:]
        if not _is_option(last) and not _takes_value(parser.options().get(before)):
            words, example = words[:-1], last  # it takes no other: the folder is meant
    shown = f": {shlex.join([*words, '-o', example])}" if len(words) <= _MAX_WORDS else ""
    return ConfigError(f"missing: -o, the output {what}", hint=f"add `-o {example}`{shown}")


def _invalid_choice(parser: CommandParser, name: str, got: str) -> ConfigError:
    action = parser.action_of(name)
    got = got.strip("'\"")
    known = [str(choice) for choice in action.choices or ()]
    if commands_of(parser):
        return unknown_command(got, commands_of(parser), parser._words, parser.prog)
    meant = option_meant(got, known)
    if not action.option_strings:
        hint = parser.example()
    else:
        hint = f"did you mean `{name} {meant}`?" if meant else f"{name} {known[0]}"
    return ConfigError(f"{name} is one of {', '.join(known)}; got {got!r}", hint=hint)


def _no_value(parser: CommandParser, name: str) -> ConfigError:
    action, name = parser.action_of(name), _short(name)
    names = getattr(action, "kind", action).choices
    value = "|".join(map(str, names or ())) or action.metavar or action.dest.upper()
    return ConfigError(f"{name} needs a value", hint=f"{name} {value}")


def _takes_none(parser: CommandParser, name: str, got: str) -> ConfigError:
    name = _short(name)
    return ConfigError(f"{name} takes no value, got {got}", hint=f"write {name} alone")


def _exclusive(parser: CommandParser, name: str, other: str) -> ConfigError:
    name, other = _short(name), _short(other)
    return ConfigError(f"{name} and {other} exclude each other", hint="leave one of them out")


def _short(name: str) -> str:
    """The first name of an option that argparse calls `-o/--out`."""
    return name.partition("/")[0]


_EXPLANATIONS: dict[str, Any] = {
    r"the following arguments are required: (.*)": _missing,
    r"argument (\S+): invalid choice: (.*?) \(choose from .*\)": _invalid_choice,
    r"argument (\S+): expected (?:one|\d+|at least one) arguments?": _no_value,
    r"argument (\S+): ignored explicit argument (.*)": _takes_none,
    r"argument (\S+): not allowed with argument (.*)": _exclusive,
}
