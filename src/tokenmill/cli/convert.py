"""`tokenmill convert`: writes a finished dataset in another format, without tokenizing again."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING

from tokenmill.cli.foreign_options import add_foreign_options, require_tokenizer_with
from tokenmill.cli.moving_line import MovingLine
from tokenmill.cli.run_options import add_option
from tokenmill.cli.screen import (
    printable,
    report_retries,
    shown_bytes,
    shown_seconds,
)
from tokenmill.cli.summary import address_lines, note_lines
from tokenmill.cli.usage import CommandParser
from tokenmill.wording.plural import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokenmill.dataset.dataset import Dataset
    from tokenmill.dataset.manifest import Manifest


DESCRIPTION = """\
Write a finished dataset in another format without tokenizing again: the token streams
do not change. The same command resumes an interrupted conversion."""
EXAMPLES = """\
examples:
  tokenmill convert data/nano data/megatron --format megatron
  tokenmill convert data/nano data/mds --format mds --seq-len 2048 --drop tail
  tokenmill convert s3://bucket/nano data/parquet --format parquet
  tokenmill convert data/nano s3://bucket/npy --format npy
  tokenmill convert llmc-shards/ data/nano --format nanogpt --tokenizer gpt2"""


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument(
        "source", metavar="IN", help="folder or URL of a dataset, tokenmill's or not"
    )
    parser.add_argument("out", metavar="OUT", help="output folder, or URL: s3://bucket/folder")
    parser.add_argument(
        "--format", required=True, metavar="NAME", help="`tokenmill formats` lists them"
    )
    parser.add_argument("--name", help="stem of shard names (default: the format's)")
    add_option(parser, "shard_tokens", "tokens per shard")
    add_option(
        parser,
        "seq_len",
        "tokens per sample, if the format holds samples; `document` for one per document",
    )
    parser.add_argument(
        "--dtype",
        choices=("auto", "uint16", "uint32"),
        default="auto",
        help="of the output (default: auto, the smallest that holds every id)",
    )
    parser.add_argument(
        "--drop",
        action="append",
        choices=("boundaries", "tail"),
        default=[],
        help="leave out what the format cannot hold: where documents end, or the last tokens that "
        "do not fill a sample",
    )
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="replace the dataset in OUT once the new one is complete",
    )
    add_option(parser, "num_proc", "threads (default: one per CPU)")
    add_foreign_options(parser, of="from-")
    parser.add_argument("--json", action="store_true", help="print the manifest on stdout")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress, no summary")
    parser.add_argument("-v", "--verbose", action="store_true", help="tracebacks with errors")


def run(arguments: argparse.Namespace) -> int:
    from tokenmill.cli.signals import Interrupted, SignalStop
    from tokenmill.storage.address import require_lasting, require_output

    require_output(arguments.out)
    require_lasting(arguments.out)
    stop = SignalStop()
    stop.install()
    report_retries()
    try:
        convert_source(arguments)
    except Interrupted:
        print(
            "stopped; what was converted is kept. To continue, run the same command again.",
            file=sys.stderr,
        )
        stop.die_by(stop.signum)
        raise
    return 0


def convert_source(arguments: argparse.Namespace) -> None:
    from tokenmill.dataset.convert import Target, convert
    from tokenmill.dataset.dataset import open_dataset
    from tokenmill.encodings import get_encoding

    encoding = None
    require_tokenizer_with(arguments)
    if arguments.tokenizer is not None:
        named = get_encoding(
            arguments.tokenizer, pattern=arguments.pattern, eot=arguments.eot_token
        )
        encoding = named.identity
    source = open_dataset(
        arguments.source,
        format_name=arguments.from_format,
        dtype=arguments.from_dtype,
        encoding=encoding,
        eot=arguments.eot,
    )
    if not arguments.quiet:
        for text in _inferred(source):
            print(printable(text), file=sys.stderr)
    target = Target(
        out=arguments.out,
        format=arguments.format,
        name=arguments.name,
        shard_tokens=arguments.shard_tokens,
        seq_len=arguments.seq_len,
        dtype=arguments.dtype,
        drop=tuple(arguments.drop),
        overwrite=arguments.overwrite,
        num_proc=arguments.num_proc,
    )
    line = MovingLine(sys.stderr, arguments.quiet, is_logged=False)

    def watch(num_tokens: int) -> bool:
        line.show_tokens(num_tokens, source.num_tokens)
        return False  # a signal stops at once: hashing may delay the next call for long

    began = time.monotonic()
    try:
        manifest = convert(source, target, encoding, watch)
        line.end()
        _report(manifest, arguments, source.format.name, time.monotonic() - began)
    finally:
        line.end()


def _report(
    manifest: Manifest, arguments: argparse.Namespace, from_format: str, seconds: float
) -> None:
    if arguments.json:
        found = {"out": arguments.out, "notes": manifest.notes, **manifest.to_plain()}
        print(json.dumps(found))
    elif not arguments.quiet:
        for text in _summary(manifest, arguments.out, from_format, seconds):
            print(printable(text), file=sys.stderr)


def _inferred(source: Dataset) -> Iterator[str]:
    """What was inferred about the source, and is relied on."""
    words = {"dtype": "tokens are", "eot": "EOT policy is", "order": "shards are ordered"}
    options = {"dtype": " (--from-dtype overrides)", "eot": " (--eot overrides)"}
    for name, found in source.inferred.items():
        if found.value is not None:
            yield f"inferred: {words[name]} {found.value}: {found.why}{options.get(name, '')}"


def _summary(manifest: Manifest, out: str, from_format: str, seconds: float) -> list[str]:
    lines = [
        f"{from_format} -> {manifest.identity['options']['format']}: "
        f"{counted(manifest.num_tokens, 'token')} in {counted(len(manifest.shards), 'shard')}, "
        f"{shown_bytes(manifest.num_bytes)}, in {shown_seconds(seconds)}"
    ]
    for split, totals in manifest.splits.items():
        # If no document ends in a split, it is the beginning of one.
        documents = f", {counted(totals.num_documents, 'document')}"
        if not totals.num_documents:
            documents = " of one document"
        lines.append(f"  {split}: {counted(totals.num_tokens, 'token')}{documents}")
    return lines + address_lines(out) + note_lines(manifest.notes)
