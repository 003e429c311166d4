"""Options that describe a folder which tokenmill did not write, for every command that takes one,
and how commands open a folder to look into it."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tokenmill.cli.run_options import add_option
from tokenmill.cli.screen import report_retries
from tokenmill.errors import ConfigError, InputError, TokenmillError

if TYPE_CHECKING:
    from tokenmill.dataset.inspect import LookedInto
    from tokenmill.look.report.places import Commands

_NAMES = ("tokenizer", "pattern", "eot_token", "eot", "format", "dtype")


def add_foreign_options(parser: argparse.ArgumentParser, of: str = "") -> None:
    """`of` goes before the names of options that the command has for its output, too."""
    tokens = parser.add_argument_group("what the folder does not say about itself")
    tokens.add_argument("--tokenizer", metavar="NAME|FILE", help="the tokenizer of its tokens")
    tokens.add_argument("--pattern", metavar="NAME|REGEX", help="for a .tiktoken file")
    tokens.add_argument("--eot-token", metavar="TEXT", help="the special token between documents")
    add_option(tokens, "eot", "where that token is")
    tokens.add_argument(f"--{of}format", metavar="NAME", help="if it is not recognised")
    help_ = "of files without a header"
    tokens.add_argument(f"--{of}dtype", choices=("uint16", "uint32"), help=help_)


def require_tokenizer_with(arguments: argparse.Namespace) -> None:
    """Raise ConfigError for options of a tokenizer that is not named."""
    for option in ("pattern", "eot_token"):
        if getattr(arguments, option) is not None and arguments.tokenizer is None:
            name = option.replace("_", "-")
            raise ConfigError(f"--{name} needs --tokenizer", hint="--tokenizer FILE")


def looked_into(folder: str, arguments: argparse.Namespace) -> LookedInto:
    from tokenmill.dataset.inspect import look_into

    report_retries()
    given = _given(arguments)
    return look_into(folder, format_name=given.pop("format", None), **given)


@contextlib.contextmanager
def readable() -> Iterator[None]:
    """Turn an OSError about a file into an InputError."""
    try:
        yield
    except OSError as error:
        if isinstance(error, (BrokenPipeError, TokenmillError)) or error.filename is None:
            raise
        raise InputError(f"cannot read {error.filename}: {error.strerror}") from error


def commands_of(looked: LookedInto, arguments: argparse.Namespace) -> Commands:
    """Suggested commands, which repeat these options."""
    from tokenmill.look.report.places import Commands

    options = [(f"--{name.replace('_', '-')}", text) for name, text in _given(arguments).items()]
    return Commands(looked, [word for option in options for word in option])


def _given(arguments: argparse.Namespace) -> dict[str, str]:
    found = {name: getattr(arguments, name) for name in _NAMES}
    return {name: text for name, text in found.items() if text is not None}
