"""`tokenmill fineweb`: downloads and prepares FineWeb or FineWeb-Edu with one command."""

from __future__ import annotations

import argparse

from tokenmill.cli import prepare, run_options
from tokenmill.cli.usage import CommandParser

DESCRIPTION = """\
Download a sample of FineWeb-Edu (or FineWeb) and prepare it; files are encoded while
they arrive. Takes the options of `tokenmill prepare`, except --config."""
EXAMPLES = """\
examples:
  tokenmill fineweb --version 10B -o data/fineweb
  tokenmill fineweb --version 10B --no-edu --format llmc --shuffle -o data/fineweb10B
  tokenmill fineweb --version 10B --local-dir DIR -o data/fineweb     files fetched elsewhere"""


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument(
        "--version", default="10B", metavar="V", help="10B (default), 100B or 350B tokens"
    )
    parser.add_argument(
        "--edu",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="FineWeb-Edu (default) or FineWeb",
    )
    parser.add_argument(
        "--revision", help="commit or branch of the dataset (default: a pinned one)"
    )
    parser.add_argument("--local-dir", metavar="DIR", help="read the files from here, offline")
    run_options.add_run_options(parser)


def run(arguments: argparse.Namespace) -> int:
    from tokenmill.corpus.fineweb import SHARD_NAMES, fineweb_source, local_fineweb_source

    source = fineweb_source(arguments.version, arguments.edu, arguments.revision)
    if arguments.local_dir is not None:
        source = local_fineweb_source(arguments.local_dir, arguments.version)
    arguments.sources = [source]
    if "name" not in arguments:
        arguments.name = SHARD_NAMES.get((getattr(arguments, "format", ""), arguments.edu))
    return prepare.run(arguments)
