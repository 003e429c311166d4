"""JSON lines: byte ranges cut at line ends, parsed in blocks of whole lines (jsonrows.py).

395-430 MB/s of text per thread; a block with a bad line, blank lines or odd spacing takes the slow
path of jsonrows.py. A line may be up to 1 GiB. At plan time the first lines show whether this is
JSON lines at all (an array or a pretty-printed object is not) and whether the text field exists.
"""

from __future__ import annotations

import difflib
import itertools
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from tokenmill.corpus.readers import ReadOptions, TextBatch
from tokenmill.corpus.readers.byte_cuts import cut_spans
from tokenmill.corpus.readers.bytestream import (
    MAX_DOCUMENT_BYTES,
    chunks_of,
    head_of,
    is_counted_from_start,
    too_long,
)
from tokenmill.corpus.readers.json_choice import EXACT_DECODER, LineChoice, choice_of
from tokenmill.corpus.readers.jsonrows import (
    WHITESPACE,
    BadLine,
    chosen_rows,
    lines_in,
    object_of,
    rows_of,
)
from tokenmill.corpus.readers.kept import kept_of_objects, lines_schema
from tokenmill.corpus.readers.rows import Rows, numbered, without_bad
from tokenmill.corpus.readers.sample import sampled, sampler_of
from tokenmill.corpus.spans import Input, Span
from tokenmill.errors import ConfigError, InputError
from tokenmill.where.parser import parsed

COMPRESSED_TEXT_RATIO = 3  # text : compressed bytes, for estimates
MAX_COUNTED_BYTES = 1 << 30  # before a span: a second of counting, for a line number
_FIRST_LINES = 100
_FIRST_BYTES = 1 << 20


class JsonlReader:
    """Span unit: bytes of the file."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self._counted: tuple[Span, int, Iterator[int]] | None = None

    def spans(self, source: Input) -> list[Span]:
        if source.num_bytes == 0 and not source.compression:
            return []
        self._check_first_lines(source)
        if not source.compression:
            return cut_spans(source, b"\n", self.options.span_bytes)
        text_bytes = source.num_bytes * COMPRESSED_TEXT_RATIO
        return [Span(source, 0, source.num_bytes, text_bytes)]

    def kept_schema(self, source: Input) -> pa.Schema:
        """By the first lines."""
        objects, num_lines = self._first_objects(source)
        which = f"its first {num_lines} lines"
        return lines_schema(objects, self.options.keep or (), source.name, which)

    def batches(self, span: Span) -> Iterator[TextBatch]:
        rows = (rows_in(block, self.options) for block in _blocks(span, self.options.batch_bytes))
        return numbered(span, sampled(rows, sampler_of(span, self.options)))

    def place(self, span: Span, row: int) -> str:
        # Rows are requested in order, so the lines are scanned once, not once per bad row.
        if self._counted is None or self._counted[0] != span or self._counted[1] > row:
            self._counted = (span, 0, _lines_of_rows(span, self.options.batch_bytes))
        _, first, lines = self._counted
        line = next(itertools.islice(lines, row - first, None))
        self._counted = (span, row + 1, lines)
        if span.start and not is_counted_from_start(span, MAX_COUNTED_BYTES):
            return f"line {line} from byte {span.start} on"
        return f"line {line}"

    def _first_objects(self, source: Input) -> tuple[list[dict[str, Any]], int]:
        """The objects on the first lines, and how many lines these are."""
        if source.num_bytes == 0 and not source.compression:
            return [], 0
        head = head_of(source, _FIRST_BYTES)
        lines = head.split(b"\n")
        if len(head) >= _FIRST_BYTES:
            lines.pop()  # may be cut short
        lines = [line for line in lines if line.strip(WHITESPACE)][:_FIRST_LINES]
        _check_is_lines(source, head, lines)
        objects = []
        for line in lines:
            try:
                objects.append(object_of(line.decode(errors="replace"), EXACT_DECODER))
            except (BadLine, RecursionError):
                continue
        return objects, len(lines)

    def _check_first_lines(self, source: Input) -> None:
        objects, num_lines = self._first_objects(source)
        keys = dict.fromkeys(key for one in objects for key in one)
        name = self.options.text_column
        if keys and name not in keys:
            near = difflib.get_close_matches(name, keys, n=1)
            raise ConfigError(
                f"{source.name}: no field {name!r} in its first {num_lines} lines; "
                f"they have {', '.join(list(keys)[:50])}",
                hint=f"--text-column {near[0] if near else 'NAME'}",
            )
        if objects and self.options.where is not None:
            which = f"its first {num_lines} lines"
            line_choice(self.options).require_fields(objects, source.name, which)


def _check_is_lines(source: Input, head: bytes, lines: list[bytes]) -> None:
    """Raise InputError for JSON that is not lines: an array begins with [, a pretty-printed object
    breaks after {."""
    path = shlex.quote(source.name)
    if head.lstrip(WHITESPACE)[:1] == b"[":
        raise InputError(
            f"{source.name}: one JSON array, not one JSON object per line",
            hint=f"jq -c '.[]' {path} > lines.jsonl",
        )
    if len(lines) > 1 and lines[0].strip(WHITESPACE) == b"{":
        raise InputError(
            f"{source.name}: a JSON object over several lines, not one JSON object per line",
            hint=f"jq -c . {path} > lines.jsonl",
        )


# Functions, not methods: a reader that keeps an unfinished generator must not be referenced by it,
# or the file stays open until the garbage collector runs.


def line_choice(options: ReadOptions) -> LineChoice:
    assert options.where is not None
    return choice_of(parsed(options.where), options.replace_bad_text)


def rows_in(block: bytes, options: ReadOptions) -> Rows:
    """The rows of a block of whole lines that pass --where, if there is one."""
    name, replace = options.text_column, options.replace_bad_text
    if options.where is None:
        rows = rows_of(block, name, replace)
        return rows if options.kept_types is None else _with_kept(rows, lines_in(block), options)
    lines = lines_in(block)
    rows = chosen_rows(lines, line_choice(options).among(lines), name, replace)
    return rows if options.kept_types is None else _with_kept(rows, lines, options)


def _with_kept(rows: Rows, lines: Sequence[bytes], options: ReadOptions) -> Rows:
    """The rows with what is kept of their lines, which are parsed once more."""
    assert options.keep is not None and options.kept_types is not None
    chosen = lines if rows.positions is None else [lines[at] for at in rows.positions.tolist()]
    objects = [_object_or_nothing(line) for line in chosen]
    kept = kept_of_objects(objects, options.keep, options.kept_types)
    bad = {at: why for at, why in kept.bad.items() if at not in rows.bad}
    found = Rows(rows.texts, rows.bad, rows.replaced, rows.positions, rows.num_covered, kept.array)
    return without_bad(found, bad)


def _object_or_nothing(line: bytes) -> dict[str, Any]:
    try:
        return object_of(line.decode(errors="replace"), EXACT_DECODER)
    except (BadLine, RecursionError):
        return {}


def _lines_of_rows(span: Span, batch_bytes: int) -> Iterator[int]:
    """The line number of each row of the span, counted from the start of the file unless that takes
    too long."""
    line = 1
    if span.start and is_counted_from_start(span, MAX_COUNTED_BYTES):
        before = chunks_of(span.input, 0, span.start, batch_bytes)
        line += sum(chunk.count(b"\n") for chunk in before)
    for block in _blocks(span, batch_bytes):
        for text in block.removesuffix(b"\n").split(b"\n"):
            if text.strip(WHITESPACE):
                yield line
            line += 1
    yield line


def _blocks(span: Span, batch_bytes: int) -> Iterator[bytes]:
    """Whole lines, in blocks of about `batch_bytes`."""
    parts: list[bytes] = []  # an unfinished line
    num_bytes = 0
    begin = span.start
    for chunk in chunks_of(span.input, span.start, span.stop, batch_bytes):
        end = chunk.rfind(b"\n") + 1
        if end:
            block = b"".join([*parts, chunk[:end]])
            yield block
            begin += len(block)
            parts, num_bytes = [], 0
        parts.append(chunk[end:])
        num_bytes += len(parts[-1])
        if num_bytes > MAX_DOCUMENT_BYTES:
            raise too_long(span.input, "the line", begin)
    if num_bytes:
        yield b"".join(parts)
