"""The commands by name, with a line each. Only the module of the one that is called is imported.

A command is a module of its name here: `DESCRIPTION`, perhaps `EXAMPLES`, `add_arguments(parser)`
and `run(arguments)`.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Container

from tokenmill import __version__
from tokenmill.cli.usage import CommandParser

COMMANDS = {
    "prepare": "turn text into training-ready token shards",
    "finish": "assemble the work of `prepare --partition` tasks",
    "fineweb": "download FineWeb and prepare it",
    "estimate": "how many tokens, how large, how long? an answer within seconds",
    "verify": "check every file and token of a dataset, or compare it with its sources",
    "inspect": "look into a folder of tokens: numbers, documents as text, search",
    "report": "one page with plots: lengths, tokens, sources, outliers, documents in colour",
    "view": "look into a dataset in the browser: any document or token, in colour, with search",
    "convert": "write a finished dataset in another format",
    "pack": "plan rows of whole documents for training",
    "push": "upload a finished dataset to the Hugging Face Hub",
    "formats": "list the formats and the trainers that read them",
    "tokenizers": "list the known tokenizers and how to name them",
    "tokenizer": "train a tokenizer, or compare tokenizers on your text",
    "doctor": "why does my script die? run it, and hear which process died, and of what",
    "demo": "prepare Python's standard library and look at the result",
    "completion": "a script that completes tokenmill's commands and options in a shell",
    "help": "explain a command and its options",
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
    for name, help_line in COMMANDS.items():
        command = commands.add_parser(
            name, help=help_line, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        if name in loaded:
            module = importlib.import_module(f"tokenmill.cli.{name}")
            command.description = module.DESCRIPTION
            command.epilog = getattr(module, "EXAMPLES", None)
            command.set_defaults(run=module.run, verbose=False, quiet=False, json=False)
            module.add_arguments(command)
    return top
