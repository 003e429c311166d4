"""The options for folders that do not say what their tokens are: `inspect`, `report` and `view`."""

from __future__ import annotations

import argparse


def add_foreign_options(parser: argparse.ArgumentParser) -> None:
    tokens = parser.add_argument_group("what the folder does not say about itself")
    tokens.add_argument(
        "--tokenizer", metavar="NAME|FILE", help="what made the tokens, if it was a file of yours"
    )
    tokens.add_argument("--pattern", metavar="NAME|REGEX", help="for a .tiktoken file")
    tokens.add_argument("--eot-token", metavar="TEXT", help="the special token between documents")
    tokens.add_argument(
        "--eot", choices=("append", "prepend", "both", "none"), help="where that token is"
    )
    tokens.add_argument("--format", metavar="NAME", help="if it is not recognised")
    tokens.add_argument("--dtype", choices=("uint16", "uint32"), help="of files without a header")
