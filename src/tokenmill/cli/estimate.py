"""`tokenmill estimate`: tokens, size and time of a run, within seconds and before any work.

The estimate is the result, so it goes to stdout: lines for people, --json for programs, and with -q
only the number of tokens.
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from tokenmill.cli import run_options
from tokenmill.cli.screen import (
    printable,
    shown_bytes,
    shown_count,
    shown_rate,
    shown_seconds,
)
from tokenmill.cli.summary import MIN_RATED_BYTES
from tokenmill.cli.usage import CommandParser
from tokenmill.config import Config
from tokenmill.wording.plural import counted

if TYPE_CHECKING:
    from tokenmill.estimate import Estimate


DESCRIPTION = """\
Estimate the result of `tokenmill prepare`, from footers and a sample of the text:
tokens with a 95% interval, bytes per token, the size in every format, time on this
machine, disk. Writes nothing."""
EXAMPLES = """\
examples:
  tokenmill estimate corpus/*.parquet
  tokenmill estimate corpus/ --tokenizer o200k_base -o data/mine
  tokenmill estimate corpus/ -q                  the number of tokens, for a script"""


def add_arguments(parser: CommandParser) -> None:
    run_options.add_sources(parser)
    parser.add_argument("-o", "--out", help="where the output would go: also checks the free space")
    run_options.add_choosing_options(run_options.add_reading_options(parser))
    run_options.add_encoding_options(parser)
    parser.add_argument(
        "--format",
        metavar="NAME",
        help=f"the format whose defaults apply (default: {Config.format})",
    )
    parser.add_argument("--num-proc", type=int, metavar="N", help="workers (default: one per CPU)")
    parser.add_argument("--json", action="store_true", help="the estimate as JSON")
    parser.add_argument("-q", "--quiet", action="store_true", help="only the number of tokens")
    parser.add_argument("-v", "--verbose", action="store_true", help="tracebacks with errors")


def run(arguments: argparse.Namespace) -> int:
    from tokenmill.estimate import estimate

    found = estimate(run_options.typed_config(arguments))
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
    documents = f"{about}{counted(found.num_documents, 'document')}"
    lines = [
        f"corpus  {counted(found.num_inputs, 'file')}, {shown_bytes(found.input_bytes)}: "
        f"{documents}, {shown_bytes(found.text_bytes)} of text",
        f"tokens  {shown_tokens(found)}; {found.tokenizer}, EOT {found.eot}, "
        f"{found.bytes_per_token:.2f} bytes per token",
        f"time    {_shown_time(found)}",
    ]
    for number, (size, names) in enumerate(_sizes(found)):
        lines.append(f"{'' if number else 'output':6}  {size}: {', '.join(names)}")
    lines.append(f"disk    {_shown_disk(found)}")
    if found.sampled_cells:
        lines.append(
            f"sample  {shown_bytes(found.sampled_bytes)} of text in "
            f"{counted(found.sampled_cells, 'piece')}; took {shown_seconds(found.estimate_seconds)}"
        )
    return lines + [f"note: {note}" for note in found.notes]


def shown_tokens(found: Estimate) -> str:
    if found.num_tokens_low is None or found.num_tokens_high is None:
        return f"roughly {shown_count(found.num_tokens)}"
    if found.num_tokens_low == found.num_tokens_high:
        return f"{found.num_tokens:,}, counted"
    reach = (found.num_tokens_high - found.num_tokens_low) / 2 / found.num_tokens
    return (
        f"{found.num_tokens:,} ± {reach:.2%} "
        f"({found.confidence:.0%}: {found.num_tokens_low:,} to {found.num_tokens_high:,})"
    )


def _shown_time(found: Estimate) -> str:
    if found.seconds is None or found.text_bytes_per_second is None:
        return "unknown: nothing was encoded"
    rate = ""
    if found.sampled_bytes >= MIN_RATED_BYTES:
        rate = f" ({shown_rate(found.text_bytes_per_second)} a worker)"
    return (
        f"about {shown_seconds(found.seconds)} with {counted(found.num_proc, 'worker')}, at the "
        f"speed of the sample{rate}"
    )


def _sizes(found: Estimate) -> list[tuple[str, list[str]]]:
    """Formats by the size of their output, smallest first; last those that are not possible."""
    names: dict[str, list[str]] = {}
    known = [(size, name) for name, size in found.output_bytes.items() if size is not None]
    for size, name in sorted(known):
        names.setdefault(shown_bytes(size), []).append(name)
    refused = [name for name, size in found.output_bytes.items() if size is None]
    if refused:
        names["not possible with these options"] = refused
    return list(names.items())


def _shown_disk(found: Estimate) -> str:
    text = (
        f"{shown_room(found)} ({found.format}), "
        f"{shown_bytes(found.shuffled_disk_bytes)} with --shuffle"
    )
    if found.download_bytes:
        text += f", and {shown_bytes(found.download_bytes)} of downloads"
    return text + shown_free(found)


def shown_room(found: Estimate) -> str:
    """How much disk space a run needs while it runs."""
    about = shown_bytes(found.disk_bytes)
    if found.max_disk_bytes is None:
        return f"about {about} while it runs"
    most = shown_bytes(found.max_disk_bytes)
    return f"{most} at most while it runs" + (f", about {about}" if most != about else "")


def shown_free(found: Estimate) -> str:
    """How much disk space is free, if that is known."""
    if found.free_bytes is None:
        return ""
    text = f"; {shown_bytes(found.free_bytes)} free"
    if found.held_bytes:
        text += f", {shown_bytes(found.held_bytes)} held by the unfinished run"
    return text + ("" if found.fits else ": THIS MAY NOT FIT")
