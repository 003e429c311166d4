"""`tokenmill completion bash|zsh|fish`: shell completion, which shtab generates from the parser."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from tokenmill.cli.commands import parser
from tokenmill.cli.usage import Checked, CommandParser, commands_of

SHELLS = ("bash", "zsh", "fish")
# Options whose values are files or folders; so are arguments without known values.
_FILES = ("config", "out", "local_dir", "source", "corpus", "plan")


DESCRIPTION = "Print a script that completes commands, options and their values."
EXAMPLES = """\
examples:
  tokenmill completion bash > ~/.local/share/bash-completion/completions/tokenmill
  tokenmill completion zsh > ~/.zfunc/_tokenmill       with fpath+=~/.zfunc before compinit
  tokenmill completion fish > ~/.config/fish/completions/tokenmill.fish
  eval "$(tokenmill completion bash)"                  only for this shell; also in zsh"""


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))


def run(arguments: argparse.Namespace) -> int:
    import shtab

    top = parser()
    commands = commands_of(top)
    known = {**_known_values(), "topic": tuple(commands)}
    for command in commands.values():
        _offer(command, known)
    print(shtab.complete(top, arguments.shell))
    return 0


def _offer(command: argparse.ArgumentParser, known: Mapping[str, tuple[str, ...]]) -> None:
    """Give the arguments what they are completed with: known values, or files."""
    import shtab

    for action in command._actions:
        if action.nargs == 0 or action.choices:
            continue
        values = known.get(action.dest, ())
        if isinstance(action, Checked):
            values = action.kind.choices or values
        if values:
            action.choices = values
        elif action.dest in _FILES or not action.option_strings:
            action.complete = shtab.FILE  # type: ignore[attr-defined]


def _known_values() -> dict[str, tuple[str, ...]]:
    """Known values by option, including options that also take other values."""
    from tokenmill.corpus.fineweb import VERSIONS
    from tokenmill.corpus.readers import kinds
    from tokenmill.encode.record import SPLITS
    from tokenmill.encodings.patterns import PATTERNS
    from tokenmill.encodings.published import ENCODING_NAMES
    from tokenmill.formats import format_names

    formats = tuple(sorted(format_names()))
    return {
        "tokenizer": ENCODING_NAMES,
        "pattern": tuple(PATTERNS),
        "format": formats,
        "from_format": formats,
        "input_format": kinds(),
        "split": SPLITS,
        "version": tuple(VERSIONS),
    }
