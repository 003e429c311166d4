"""`tokenmill help [COMMAND]`: the same as `tokenmill [COMMAND] --help`."""

from __future__ import annotations

import argparse

from tokenmill.cli.commands import COMMANDS, parser
from tokenmill.cli.usage import CommandParser, commands_of, unknown_command

DESCRIPTION = "Explain a command and its options; without one, list the commands."
EXAMPLES = "example: tokenmill help prepare"


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument("topic", nargs="?", metavar="COMMAND", help="prepare, verify, ...")


def run(arguments: argparse.Namespace) -> int:
    top = parser({arguments.topic})
    if arguments.topic is None:
        top.print_help()
    elif arguments.topic in COMMANDS:
        commands_of(top)[arguments.topic].print_help()
    else:
        raise unknown_command(arguments.topic, COMMANDS)
    return 0
