"""`tokenmill formats`: lists the formats, their files, defaults and trainers."""

from __future__ import annotations

import argparse
import json

from tokenmill.cli.screen import printable
from tokenmill.cli.usage import CommandParser

DESCRIPTION = "List the formats: tokenmill's own and those of installed plugins."


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument("-v", "--verbose", action="store_true", help="tracebacks with errors")


def run(arguments: argparse.Namespace) -> int:
    from tokenmill.formats import format_names

    rows = [_row(name) for name in sorted(format_names())]
    if arguments.json:
        print(json.dumps(rows, indent=1))
        return 0
    width = max(len(row["format"]) for row in rows)
    for row in rows:
        print(printable(f"{row['format']:<{width}}  {row['read by']}"))
        print(printable(f"{'':<{width}}    {row['files']}"))
        print(printable(f"{'':<{width}}    {row['by default']}"))
    return 0


def _row(name: str) -> dict[str, str]:
    from tokenmill.formats import get_format

    format_ = get_format(name)
    return {
        "format": name,
        "files": format_.files,
        "read by": format_.trainers,
        "by default": ", ".join(defaults_of(name)),
    }


def defaults_of(name: str) -> list[str]:
    """The format's defaults in words."""
    from tokenmill.cli.screen import shown_count
    from tokenmill.formats import get_format

    format_ = get_format(name)
    defaults, traits = format_.defaults, format_.traits
    said = [{"append": "EOT appended", "prepend": "EOT prepended"}.get(defaults.eot, defaults.eot)]
    if defaults.seq_len:
        said.append(f"samples of {defaults.seq_len:,} tokens")
    elif traits.boundaries:
        said.append("documents kept apart")
    if defaults.shard_tokens is not None:
        said.append(f"{shown_count(defaults.shard_tokens)} tokens per shard")
    val = {
        "fraction": f"{defaults.val_fraction:.2%} of documents held out",
        "first-shard": "shard 0 is val",
        "none": "nothing held out",
    }
    return [*said, val[defaults.val]]
