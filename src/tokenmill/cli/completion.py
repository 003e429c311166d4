"""`tokenmill completion bash|zsh|fish`: shell completion of commands, options and their values.

Generated from the parser, so that it stays up to date. (shtab 1.13 could do this, but would be one
more dependency for every user.)
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tokenmill.cli.usage import commands_of

SHELLS = ("bash", "zsh", "fish")


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "completion",
        help="a script that completes tokenmill's commands and options in a shell",
        description="Print a script that completes commands, options and their values.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="""\
examples:
  tokenmill completion bash > ~/.local/share/bash-completion/completions/tokenmill
  tokenmill completion zsh > ~/.zfunc/_tokenmill       with fpath+=~/.zfunc before compinit
  tokenmill completion fish > ~/.config/fish/completions/tokenmill.fish
  source <(tokenmill completion bash)                  only for this shell; also in zsh""",
    )
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))
    parser.set_defaults(run=run, verbose=False)


def run(arguments: argparse.Namespace) -> int:
    from tokenmill.cli import parser, shells

    script = {"bash": shells.bash, "zsh": shells.zsh, "fish": shells.fish}[arguments.shell]
    print(script(list(completions(parser()))), end="")
    return 0


@dataclass(frozen=True, slots=True)
class OptionCompletion:
    names: tuple[str, ...]
    help: str
    value: str | None  # the name of its value; None: it takes none
    values: tuple[str, ...]  # known values to choose from
    takes_files: bool
    is_repeatable: bool


@dataclass(frozen=True, slots=True)
class CommandCompletion:
    name: str
    help: str
    options: tuple[OptionCompletion, ...]
    values: tuple[str, ...]  # known values of its arguments; if empty, they are files


def completions(top: argparse.ArgumentParser) -> Iterator[CommandCompletion]:
    commands = commands_of(top)
    known = {**_known_values(), "topic": tuple(commands)}
    helps = {
        choice.dest: choice.help or ""
        for action in top._actions
        if isinstance(action, argparse._SubParsersAction)
        for choice in action._choices_actions
    }
    for name, parser in commands.items():
        shown = [action for action in parser._actions if action.help != argparse.SUPPRESS]
        arguments = [action for action in shown if not action.option_strings]
        yield CommandCompletion(
            name,
            helps[name],
            tuple(_option(action, known) for action in shown if action.option_strings),
            tuple(value for action in arguments for value in _values(action, known)),
        )


def _option(action: argparse.Action, known: dict[str, tuple[str, ...]]) -> OptionCompletion:
    takes_value = action.nargs is None
    metavar = str(action.metavar or action.dest)
    values = _values(action, known) if takes_value else ()
    return OptionCompletion(
        tuple(action.option_strings),
        action.help or "",
        metavar if takes_value else None,
        values,
        takes_value and (not values or action.dest == "tokenizer"),
        isinstance(action, argparse._AppendAction),
    )


def _values(action: argparse.Action, known: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(map(str, action.choices or ())) or known.get(action.dest, ())


def _known_values() -> dict[str, tuple[str, ...]]:
    """Known values by option, including options that also take other values."""
    from tokenmill.config.options import RUNNERS
    from tokenmill.corpus.fineweb import VERSIONS
    from tokenmill.corpus.readers import kinds
    from tokenmill.encode.record import SPLITS
    from tokenmill.encodings.builtin import ENCODING_NAMES
    from tokenmill.encodings.patterns import PATTERNS
    from tokenmill.formats import format_names

    formats = tuple(sorted(format_names()))
    return {
        "tokenizer": ENCODING_NAMES,
        "pattern": tuple(PATTERNS),
        "format": formats,
        "from_format": formats,
        "input_format": kinds(),
        "runner": RUNNERS,
        "split": SPLITS,
        "version": tuple(VERSIONS),
    }
