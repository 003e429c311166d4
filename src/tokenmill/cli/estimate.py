"""`tokenmill estimate`: tokens, size and time of a run, within seconds and before any work.

The estimate is the result, so it goes to stdout: lines for people, --json for programs, and with -q
only the number of tokens.
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from tokenmill.cli import run_options
from tokenmill.cli.screen import printable, shown_bytes, shown_count, shown_seconds
from tokenmill.cli.usage import CommandParser
from tokenmill.config.options import ESTIMATE
from tokenmill.wording.plural import counted

if TYPE_CHECKING:
    from tokenmill.estimate import Estimate


DESCRIPTION = """\
Estimate the result of `tokenmill prepare` from a sample of the text: tokens and their
spread (two standard errors), bytes per token, size, time on this machine, disk. A
corpus of up to 64 MB is counted. Writes nothing."""
EXAMPLES = """\
examples:
  tokenmill estimate corpus/*.parquet
  tokenmill estimate corpus/ --tokenizer o200k_base -o data/mine
  tokenmill estimate corpus/ -q                  the number of tokens, for a script"""


def add_arguments(parser: CommandParser) -> None:
    run_options.add_sources(parser)
    parser.add_argument("-o", "--out", help="where the output would go: also checks the free space")
    run_options.add_options(parser, ESTIMATE)
    parser.add_argument("--json", action="store_true", help="the estimate as JSON")
    parser.add_argument("-q", "--quiet", action="store_true", help="only the number of tokens")
    parser.add_argument("-v", "--verbose", action="store_true", help="tracebacks with errors")


def run(arguments: argparse.Namespace) -> int:
    from tokenmill.estimate import estimate

    found = estimate(run_options.typed_config(arguments, ESTIMATE))
    if arguments.json:
        print(json.dumps(found.to_plain()))
    elif arguments.quiet:
        print(found.num_tokens)
    else:
        for line in report(found):
            print(printable(line))
    return 0


def report(found: Estimate) -> list[str]:
    """The estimate in a few lines worth pasting."""
    about = "" if found.method == "counted" else "about "
    documents = "" if found.num_documents is None else counted(found.num_documents, "document")
    lines = [
        f"corpus  {counted(found.num_inputs, 'file')}, {shown_bytes(found.input_bytes)}: "
        f"{about}{documents}{', ' if documents else ''}{shown_bytes(found.text_bytes)} of text",
        f"tokens  {shown_tokens(found)}; {found.tokenizer}, EOT {found.eot}, "
        f"{found.bytes_per_token:.2f} bytes per token",
        f"time    {_shown_time(found)}",
        f"output  about {shown_bytes(found.output_bytes)} as {found.format} ({found.dtype})",
        f"disk    {shown_disk(found)}",
    ]
    return lines + [f"note: {note}" for note in found.notes]


def shown_tokens(found: Estimate) -> str:
    if found.method == "counted":
        return f"{found.num_tokens:,}, counted"
    return f"about {shown_count(found.num_tokens)}{shown_spread(found)}"


def shown_spread(found: Estimate) -> str:
    """Two standard errors of the sample, if there is one."""
    if found.num_tokens_high in (None, found.num_tokens):
        return ""
    return f" ± {found.num_tokens_high / found.num_tokens - 1:.1%}"


def _shown_time(found: Estimate) -> str:
    if found.seconds is None:
        return "unknown: nothing was encoded"
    workers = counted(found.num_proc, "worker")
    return f"about {shown_seconds(found.seconds)} with {workers}, at the speed of the sample"


def shown_disk(found: Estimate) -> str:
    """The space that a run needs and the space that is free, if that is known."""
    if found.free_bytes is None:
        text = "name the output with -o for the space that it needs"
    else:
        text = (
            f"about {shown_bytes(found.needed_bytes)} needed while it runs, "
            f"{shown_bytes(found.free_bytes)} free"
        )
    if found.download_bytes:
        text += f"; {shown_bytes(found.download_bytes)} to download"
    return text + ("" if found.fits else ": THIS MAY NOT FIT")
