"""The commands by name, with a line each. Only the module of the one that is called is imported.

A command is a module of its name here: `DESCRIPTION`, perhaps `EXAMPLES`, `add_arguments(parser)`
and `run(arguments)`.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Container
from typing import NamedTuple

from tokenmill import __version__
from tokenmill.cli.usage import CommandParser


class Command(NamedTuple):
    help: str
    other_names: str = ""  # what other tools call it, or people type


COMMANDS = {
    "prepare": Command(
        "turn text into training-ready token shards",
        "tokenize tokenise encode build preprocess process run make create start map resume "
        "continue tok",
    ),
    "finish": Command(
        "assemble the work of `prepare --partition` tasks", "merge assemble combine join"
    ),
    "fineweb": Command("download FineWeb and prepare it", "download fetch fineweb-edu fineweb_edu"),
    "estimate": Command(
        "how many tokens, how large, how long? an answer within seconds", "count size wc"
    ),
    "verify": Command(
        "check every file and token of a dataset, or compare it with its sources",
        "check validate test audit",
    ),
    "inspect": Command(
        "look into a folder of tokens: numbers, documents as text, search",
        "show view cat head info look peek print decode list ls grep search",
    ),
    "report": Command(
        "one page with plots: lengths, tokens, sources, outliers, documents in colour",
        "stats statistics summary plot profile describe html dashboard compare diff",
    ),
    "view": Command(
        "look into a dataset in the browser: any document or token, in colour, with search"
    ),
    "convert": Command(
        "write a finished dataset in another format", "export transform translate to"
    ),
    "pack": Command("plan rows of whole documents for training"),
    "push": Command("upload a finished dataset to the Hugging Face Hub"),
    "formats": Command("list the formats and the trainers that read them", "format"),
    "tokenizers": Command("list the known tokenizers and how to name them"),
    "tokenizer": Command("train a tokenizer, or compare tokenizers on your text"),
    "doctor": Command(
        "why does my script die? run it, and hear which process died, and of what",
        "diagnose debug watch",
    ),
    "demo": Command(
        "prepare Python's standard library and look at the result", "example try quickstart"
    ),
    "completion": Command(
        "a script that completes tokenmill's commands and options in a shell",
        "completions autocomplete",
    ),
    "help": Command("explain a command and its options", "usage man"),
}


def parser(loaded: Container[str] = COMMANDS) -> CommandParser:
    """The command line. It knows the arguments of the `loaded` commands, and the others by name."""
    top = CommandParser(
        prog="tokenmill",
        description="Raw text in, training-ready token shards out.",
        epilog="exit codes: 0 complete, 1 our bug, 2 usage, 3 input, 4 output storage, "
        "5 verification, 6 conflict, 7 workers, 8 network, 9 could not be checked; "
        "on SIGINT/SIGTERM, by that signal",
    )
    top.add_argument("--version", action="version", version=f"tokenmill {__version__}")
    commands = top.add_subparsers(title="commands", dest="command", metavar="COMMAND")
    for name, listed in COMMANDS.items():
        command = commands.add_parser(
            name, help=listed.help, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        command.other_names = listed.other_names
        if name in loaded:
            module = importlib.import_module(f"tokenmill.cli.{name}")
            command.description = module.DESCRIPTION
            command.epilog = getattr(module, "EXAMPLES", None)
            command.set_defaults(run=module.run, verbose=False, quiet=False, json=False)
            module.add_arguments(command)
    return top
