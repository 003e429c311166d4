"""`tokenmill inspect`: shows a folder of tokens as numbers and as text, and searches it."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from tokenmill.cli.foreign_options import add_foreign_options, looked_into, readable
from tokenmill.cli.moving_line import MovingLine
from tokenmill.cli.run_options import add_option
from tokenmill.cli.screen import (
    coloured,
    is_coloured,
    marked,
    parsed_count,
    plain,
    printable,
    shown_bytes,
)
from tokenmill.cli.summary import note_lines
from tokenmill.cli.usage import CommandParser
from tokenmill.errors import ConfigError
from tokenmill.wording.plural import counted, noun_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokenmill.dataset.inspect import Glance, Hit, LookedInto, Searched, View


MAX_TOKENS = 2000
LIMIT = 10
MAX_SHOWN_VALUE = 200  # characters of a kept column
_IDS_PER_LINE = 16
_VIEWS, _SEARCHES = ("doc", "token_offset", "random"), ("grep", "grep_ids")
# Options that need one of several others, and what to type.
_NEEDS = {
    "limit": (_SEARCHES, "--grep 'the miller'"),
    "max_tokens": (_VIEWS, "--doc 0"),
    "boundaries": (_VIEWS, "--doc 0"),
    "ids": ((*_VIEWS, *_SEARCHES), "--doc 0"),
    "pattern": (("tokenizer",), "--tokenizer FILE"),
    "eot_token": (("tokenizer",), "--tokenizer FILE"),
}
# Searches that take less time show no progress.
QUICK_SECONDS = 1.0


DESCRIPTION = """\
Show what is in a folder of tokens, tokenmill's or not: an overview, documents as text
with their token boundaries, or the documents that contain a text. Reads only what it
shows. Control characters are escaped; --json has the raw text."""
EXAMPLES = """\
examples:
  tokenmill inspect data/mine
  tokenmill inspect data/mine --random
  tokenmill inspect data/mine --split val --doc 0 --doc 1
  tokenmill inspect data/mine --grep 'the miller'
  tokenmill inspect s3://bucket/mine --random
  tokenmill inspect data/mine --config > tokenmill.toml
  tokenmill inspect llmc-shards/ --tokenizer gpt2 --token-offset 1_000_000"""


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument("folder", metavar="OUT", help="folder that holds the shards, or its URL")
    shown = parser.add_argument_group("what is shown (default: numbers)")
    what = shown.add_mutually_exclusive_group()
    what.add_argument(
        "--config", action="store_true", help="the tokenmill.toml that makes this dataset again"
    )
    what.add_argument("--doc", action="append", metavar="K", help="document K, from 0; repeatable")
    what.add_argument("--token-offset", metavar="N", help="the document that holds token N")
    what.add_argument("--random", action="store_true", help="a random document")
    what.add_argument("--grep", metavar="TEXT", help="find documents by their text")
    what.add_argument("--grep-ids", metavar="IDS", help="find documents by ids: '464 3290'")
    shown.add_argument("--split", metavar="NAME", help="train (default) or val; --grep: both")

    how = parser.add_argument_group("how it is shown")
    how.add_argument("--ids", action="store_true", help="token ids instead of text")
    how.add_argument("--boundaries", action="store_true", help="│ between tokens, without colour")
    how.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="colour tokens (default: auto, on a terminal)",
    )
    how.add_argument(
        "--max-tokens", metavar="N", help=f"shown of a document (default: {MAX_TOKENS}; 0: all)"
    )
    how.add_argument("--limit", metavar="N", help=f"hits of a search (default: {LIMIT})")
    add_option(how, "seed", "for --random and samples")
    how.add_argument("--json", action="store_true", help="as JSON on stdout")
    how.add_argument("-v", "--verbose", action="store_true", help="tracebacks with errors")

    add_foreign_options(parser)


def run(arguments: argparse.Namespace) -> int:
    from tokenmill.cli.signals import Interrupted, SignalStop

    require_effect(arguments)
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # if the locale is not UTF-8
    stop = SignalStop()
    stop.install()
    try:
        with readable():
            show(arguments)
    except Interrupted as interrupted:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        stop.die_by(interrupted.signum)
        raise
    return 0


def require_effect(arguments: argparse.Namespace) -> None:
    """Raise ConfigError for an option that would have no effect."""

    def is_given(option: str) -> bool:
        return getattr(arguments, option) not in (None, False)

    for option, (others, example) in _NEEDS.items():
        if is_given(option) and not any(map(is_given, others)):
            name, *names = (f"--{one.replace('_', '-')}" for one in (option, *others))
            raise ConfigError(
                f"{name} does nothing without {' or '.join(names)}",
                hint=f"tokenmill inspect {arguments.folder} {example}, or leave {name} out",
            )


def show(arguments: argparse.Namespace) -> None:
    looked = looked_into(arguments.folder, arguments)
    if arguments.config:
        show_config(looked)
    elif arguments.grep is not None or arguments.grep_ids is not None:
        show_search(looked, arguments)
    elif arguments.doc or arguments.random or arguments.token_offset is not None:
        show_views(looked, arguments)
    else:
        show_glance(looked, arguments)


def show_config(looked: LookedInto) -> None:
    from tokenmill.dataset.recipe import config_text

    if looked.dataset.manifest is None:
        raise ConfigError(f"{looked.dataset.name} has no manifest: how it was made is unknown")
    print(config_text(looked.dataset.manifest), end="")


# Overview


def show_glance(looked: LookedInto, arguments: argparse.Namespace) -> None:
    from tokenmill.dataset.inspect import glance

    found = glance(looked, arguments.split, arguments.seed or 0)
    if arguments.json:
        print(json.dumps(found.to_plain(), indent=2))
        return
    for line in glance_lines(found):
        print(printable(line).rstrip())
    if sys.stdout.isatty():
        hint = printable(f"tokenmill inspect {found.folder} --random")
        print(f"\nto look at a document: {hint}", file=sys.stderr)


# Documents


def show_views(looked: LookedInto, arguments: argparse.Namespace) -> None:
    if arguments.json:
        documents = [view.to_plain(looked) for view in views(looked, arguments)]
        found = {"folder": looked.dataset.name, "missing": looked.missing, "documents": documents}
        print(json.dumps(found, indent=2))
        return
    if arguments.doc and has_to_count(looked, arguments.split):
        print("no manifest: documents are counted from the beginning", file=sys.stderr, flush=True)
    for view in views(looked, arguments):
        show_view(looked, view, arguments)


def has_to_count(looked: LookedInto, split: str | None) -> bool:
    """Whether finding a document by its number takes long."""
    from tokenmill.dataset.inspect import COUNT_TOKENS

    stream = looked.stream(split)
    return looked.dataset.manifest is None and stream.num_tokens > COUNT_TOKENS


def views(looked: LookedInto, arguments: argparse.Namespace) -> Iterator[View]:
    from tokenmill.dataset.inspect import WINDOW_TOKENS, document, random_document, token_offset

    asked = None if arguments.max_tokens is None else parsed_count(arguments.max_tokens)
    max_tokens = (asked or sys.maxsize) if asked is not None else MAX_TOKENS
    if arguments.random:
        yield random_document(looked, arguments.split, arguments.seed, max_tokens)
    elif arguments.token_offset is not None:
        token = parsed_number("--token-offset", arguments.token_offset)
        yield token_offset(looked, arguments.split, token, max_tokens, asked or WINDOW_TOKENS)
    else:
        for text in arguments.doc:
            number = parsed_number("--doc", text)
            yield document(looked, arguments.split, number, max_tokens)


def parsed_number(option: str, text: str) -> int:
    """A count; or a negative number, which the caller refuses with its own message."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return parsed_count(text)
    except ConfigError as error:
        raise ConfigError(f"{option}: {error.message}", hint=f"{option} 0") from None


def show_view(looked: LookedInto, view: View, arguments: argparse.Namespace) -> None:
    from tokenmill.dataset.inspect import pieces

    sys.stdout.flush()
    print(printable(header(view)), file=sys.stderr, flush=True)
    for line in kept_lines(view.kept or {}):
        print(printable(line), file=sys.stderr, flush=True)
    asked_for = None if view.token_offset is None else view.token_offset - view.shown_start
    if looked.token_bytes is None or arguments.ids:
        for start in range(0, len(view.ids), _IDS_PER_LINE):
            print(*view.ids[start : start + _IDS_PER_LINE])
    else:
        found = pieces(looked.token_bytes, view.ids)
        if is_coloured(arguments.color, sys.stdout, os.environ):
            text = coloured(found, asked_for)
        else:
            text = plain(found, arguments.boundaries)
        print(text, end="" if text.endswith("\n") else "\n")
    sys.stdout.flush()
    if looked.token_bytes is None and not arguments.ids:
        print(printable(f"as ids: {looked.missing}"), file=sys.stderr)
    if (num_more := view.stop - view.shown_stop) > 0:
        print(
            f"... {num_more:,} more {noun_for(num_more, 'token')}: --max-tokens {view.num_tokens}",
            file=sys.stderr,
        )


def kept_lines(kept: dict[str, Any]) -> list[str]:
    """What was kept of a document (--keep), one column per line."""
    width = max(map(len, kept), default=0)
    return [f"    {name:<{width}}  {shown_value(value)}" for name, value in kept.items()]


def shown_value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_SHOWN_VALUE else f"{text[:MAX_SHOWN_VALUE]}..."


def header(view: View) -> str:
    """Where a view is in the dataset, on one line."""
    if not view.is_document:
        what = f"{view.split}, around token {view.token_offset:,}"
    elif view.document is None:
        what = f"{view.split}, a document at token {view.token_offset:,} (--token-offset)"
    else:
        what = f"{view.split}, document {view.document:,} (--doc {view.document})"
        if view.token_offset is not None:
            what += f", token {view.token_offset - view.start:,} of it"
    shards = view.shard if view.shard == view.last_shard else f"{view.shard} to {view.last_shard}"
    size = counted(view.num_tokens, "token")
    if view.num_bytes is not None:
        size += f", {counted(view.num_bytes, 'byte')}"
    skipped = view.shown_start - view.start
    cut = f"; shown from token {skipped:,}" if skipped else ""
    return (
        f"--- {what}: {size}; {shards} from token {view.shard_start:,}; "
        f"{view.split} {view.start:,} to {view.stop:,}{cut}"
    )


# Search


def show_search(looked: LookedInto, arguments: argparse.Namespace) -> None:
    from tokenmill.dataset.inspect import search_ids, search_text

    limit = LIMIT if arguments.limit is None else parsed_count(arguments.limit)
    if not limit:
        raise ConfigError("--limit 0 finds nothing", hint=f"--limit {LIMIT}")
    splits = list(looked.dataset.streams) if arguments.split is None else [arguments.split]
    total = sum(looked.stream(split).num_tokens for split in splits)
    if arguments.grep is not None:
        steps = search_text(looked, splits, arguments.grep, limit)
    else:
        steps = search_ids(looked, splits, parsed_ids(arguments.grep_ids), limit)
    with_colour = is_coloured(arguments.color, sys.stdout, os.environ)
    moving, hits = MovingLine(sys.stderr, quick_seconds=QUICK_SECONDS), list[Any]()
    searched: Searched | None = None
    try:
        for searched in steps:
            hits += searched.hits
            if searched.hits and not arguments.json:
                moving.end()
                for hit in searched.hits:
                    print(hit_line(hit, with_colour, arguments.ids), flush=True)
            moving.show_tokens(searched.num_tokens, total)
    finally:
        moving.end()
    num_tokens = searched.num_tokens if searched else 0
    num_documents = searched.num_documents if searched else 0
    is_complete = len(hits) < limit
    if arguments.json:
        plain_hits = {
            "hits": [hit.to_plain() for hit in hits],
            "is_complete": is_complete,
            "num_documents_searched": num_documents,
            "num_tokens_searched": num_tokens,
        }
        print(json.dumps(plain_hits, indent=2))
        return
    sys.stdout.flush()
    if num_documents is None:
        found = f"{counted(len(hits), 'place')} in {counted(num_tokens, 'token')}"
    else:
        found = f"{len(hits):,} of {counted(num_documents, 'document')}"
    more = "" if is_complete else f", then stopped: --limit {10 * limit} for more"
    print(f"{found}{more}", file=sys.stderr)


def hit_line(hit: Hit, with_colour: bool, with_ids: bool) -> str:
    where = f"token {hit.token:,}" if hit.document is None else f"document {hit.document:,}"
    times = f", {hit.num_times:,} times" if hit.num_times > 1 else ""
    ids = f" ids {' '.join(map(str, hit.ids))}" if with_ids else ""
    place = printable(f"{hit.split} {where} ({hit.shard} token {hit.shard_token:,}{times}){ids}")
    if hit.kept is not None:
        found = (f"{n}={shown_value(v)}" for n, v in hit.kept.items() if v is not None)
        place += printable(f" [{' '.join(found)}]")
    return f"{place}: {marked(hit.before, hit.match, hit.after, with_colour)}"


def parsed_ids(text: str) -> list[int]:
    words = text.replace(",", " ").strip("[] ").split()
    if not all(word.isdecimal() for word in words):
        raise ConfigError(f"--grep-ids takes token ids, got {text!r}", hint="--grep-ids '464 3290'")
    return [int(word) for word in words]


_EOT_WORDS = {
    "append": "appended to each document",
    "prepend": "prepended to each document",
    "both": "around each document",
    "none": "none",
}


def glance_lines(found: Glance) -> list[str]:
    made = "" if found.has_manifest else "; not written by tokenmill: inferred from the files"
    lines = [f"{found.folder}: format {found.format} ({found.trainers}){made}"]
    if found.tokenizer is None:
        lines.append("  tokenizer  unknown; name it with --tokenizer")
    else:
        name, sha256 = found.tokenizer["name"], found.tokenizer["sha256"]
        lines.append(
            f"  tokenizer  {name}, {counted(found.tokenizer['n_vocab'], 'id')}, "
            f"sha256 {sha256[:12]}"
        )
    eot = "unknown" if found.eot is None else _EOT_WORDS[found.eot]
    if found.eot_token is not None and found.eot != "none":
        eot += f": {found.eot_token}, {found.eot_id}"
    if "eot" in found.inferred:
        eot += f" ({'inferred: ' if found.eot else ''}{found.inferred['eot']})"
    order = {None: "", True: "; shuffled", False: "; in the order of the corpus"}[found.is_shuffled]
    dtype = found.dtype
    if "dtype" in found.inferred:
        dtype += f" (inferred: {found.inferred['dtype']})"
    lines.append(f"  tokens     {found.num_tokens:,} as {dtype}, {shown_bytes(found.num_bytes)}")
    lines.append(f"  EOT        {eot}{order}")
    if "order" in found.inferred:
        lines.append(f"  order      by the numbers in the names: {found.inferred['order']}")
    if found.bos_token is not None:
        lines.append(f"  BOS        prepended to each document: {found.bos_token}, {found.bos_id}")
    if found.bytes_per_token is not None and found.tokens_per_byte is not None:
        text = "about " if found.text_bytes is None else f"{shown_bytes(found.text_bytes)}, "
        lines.append(
            f"  text       {text}{found.bytes_per_token:.2f} bytes per token, "
            f"{found.tokens_per_byte:.3f} tokens per byte"
        )
    if found.split_rule is not None:
        lines.append(f"  val        {found.split_rule}")
    rows: list[tuple[str, ...]] = [("split", "tokens", "documents", "shards", "bytes")]
    rows += [
        (
            split.split,
            f"{split.num_tokens:,}",
            "not counted" if split.num_documents is None else f"{split.num_documents:,}",
            f"{split.num_shards:,}",
            shown_bytes(split.num_bytes),
        )
        for split in found.splits
    ]
    notes = note_lines(found.notes)
    tables = [*table(rows), *source_lines(found), *lengths_lines(found)]
    return [*lines, "", *tables, *([""] if notes else []), *notes]


def source_lines(found: Glance) -> list[str]:
    """The counts of each named source, and its tokens in each split."""
    if not found.sources:
        return []
    reasons = ["filtered", "empty", "null", "quarantined"]
    if any(one.counts.num_duplicates for one in found.sources.values()):
        reasons.append("duplicates")
    splits = list(dict.fromkeys(split for one in found.sources.values() for split in one.splits))
    rows = [("source", "rows", "documents", *reasons, "text", "tokens", *splits)]
    for name, one in found.sources.items():
        left_out = (getattr(one.counts, f"num_{reason}") for reason in reasons)
        tokens = (one.splits[s].num_tokens if s in one.splits else 0 for s in splits)
        counts = (one.counts.num_rows, one.counts.num_written, *left_out)
        text = shown_bytes(one.counts.text_bytes)
        numbers = (f"{number:,}" for number in (one.num_tokens, *tokens))
        rows.append((name, *(f"{count:,}" for count in counts), text, *numbers))
    return ["", *table(rows)]


def lengths_lines(found: Glance) -> list[str]:
    measured = [(split.split, split.lengths) for split in found.splits if split.lengths]
    if not measured:
        return []
    names = list(measured[0][1].percentiles)
    rows = [("tokens per document", "mean", *names, "longest", "measured")]
    for split, lengths in measured:
        of = "all" if lengths.is_exact else "a sample of"
        rows.append(
            (
                split,
                f"{lengths.mean:,.1f}",
                *(f"{lengths.percentiles[name]:,}" for name in names),
                f"{lengths.max:,}" if lengths.is_exact else f">= {lengths.max:,}",
                f"{of} {lengths.num_documents:,}",
            )
        )
    return ["", *table(rows)]


def table(rows: list[tuple[str, ...]]) -> list[str]:
    """Rows as lines: the first column aligned left, the others right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            f"{cell:<{width}}" if number == 0 else f"{cell:>{width}}"
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
