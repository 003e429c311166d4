"""`tokenmill help [COMMAND]`: the same as `tokenmill [COMMAND] --help`."""

from __future__ import annotations

import argparse
from typing import Any

from tokenmill.cli.usage import commands_of, unknown_command


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "help",
        help="explain a command and its options",
        description="Explain a command and its options; without one, list the commands.",
        epilog="example: tokenmill help prepare",
    )
    parser.add_argument("topic", nargs="?", metavar="COMMAND", help="prepare, verify, ...")
    parser.set_defaults(run=run, verbose=False)


def run(arguments: argparse.Namespace) -> int:
    from tokenmill.cli import parser

    top = parser()
    commands = commands_of(top)
    if arguments.topic is None:
        top.print_help()
    elif arguments.topic in commands:
        commands[arguments.topic].print_help()
    else:
        raise unknown_command(arguments.topic, commands)
    return 0
