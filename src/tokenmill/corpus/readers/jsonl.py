"""JSON lines: byte ranges cut at line ends, parsed in blocks of whole lines (json_values.py). A
file that begins with [ is one array of objects (json_array.py).

395-430 MB/s of text per thread; a block with a bad line, blank lines or odd spacing takes the slow
path of json_values.py. A line may be up to 1 GiB. At plan time the first lines show whether this is
JSON lines at all (a pretty-printed object is not), and which fields there are.
"""

from __future__ import annotations

import functools
import itertools
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from tokenmill.corpus.columns import SourceSchema, require_columns
from tokenmill.corpus.readers import COMPRESSED_TEXT_RATIO, ReadOptions
from tokenmill.corpus.readers.byte_cuts import cut_spans
from tokenmill.corpus.readers.bytestream import (
    HEAD_BYTES,
    MAX_DOCUMENT_BYTES,
    RowLines,
    chunks_of,
    head_of,
    too_long,
)
from tokenmill.corpus.readers.json_array import (
    begins_array,
    element_blocks,
    first_elements,
    is_array,
)
from tokenmill.corpus.readers.json_values import (
    DECODER,
    WHITESPACE,
    BadLine,
    Block,
    block_rows,
    object_of,
    valid_text,
)
from tokenmill.corpus.rows import Rows
from tokenmill.corpus.spans import Input, Span
from tokenmill.errors import InputError

_FIRST_LINES = 100
_FIRST_BYTES = 1 << 20


class JsonlReader:
    """Span unit: bytes of the file."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self._lines = RowLines(functools.partial(_lines_of_rows, batch_bytes=options.batch_bytes))

    def spans(self, source: Input) -> list[Span]:
        if source.num_bytes == 0 and not source.compression:
            return []
        head = _first_objects(source)
        require_columns(head.schema, self.options, source.name)
        is_found_array = head.is_array
        if is_found_array and _is_empty_array(source):
            return []
        if not source.compression and not is_found_array:
            return cut_spans(source, b"\n", self.options.span_bytes)
        text_bytes = source.num_bytes * (COMPRESSED_TEXT_RATIO if source.compression else 1)
        return [Span(source, 0, source.num_bytes, text_bytes)]

    def schema(self, source: Input) -> SourceSchema:
        """The fields of the first objects."""
        return _first_objects(source).schema

    def rows(self, span: Span) -> Iterator[Rows]:
        first_row = 0
        for block in _blocks(span, self.options.batch_bytes):
            rows = block_rows(block, first_row, self.options)
            yield rows
            first_row = rows.stop

    def place(self, span: Span, row: int) -> str:
        if self.options.lists == "documents":
            where = f" from byte {span.start} on" if span.start else ""
            return f"document {row + 1}{where}"
        if span.start == 0 and is_array(span.input):
            return f"element {row + 1}"
        return self._lines.place(span, row)


class _Head(NamedTuple):
    """The objects at the beginning of a file."""

    schema: SourceSchema
    is_array: bool


def _first_objects(source: Input) -> _Head:
    head = head_of(source, _FIRST_BYTES)
    is_found_array = begins_array(head)
    if is_found_array:
        lines = first_elements(head, _FIRST_LINES)
    else:
        lines = head.split(b"\n")
        if len(head) >= _FIRST_BYTES:
            lines.pop()  # it may be incomplete
        lines = [line for line in lines if line.strip(WHITESPACE)][:_FIRST_LINES]
        _check_is_lines(source, lines, head)
    objects = []
    for line in lines:
        try:
            objects.append(object_of(line.decode(errors="replace")))
        except (BadLine, RecursionError):
            continue
    what = "element" if is_found_array else "line"
    which = f"its first {what}" if len(lines) == 1 else f"its first {len(lines)} {what}s"
    return _Head(SourceSchema(pa.schema(_fields_of(objects)), which), is_found_array)


_MAX_DEPTH = 16  # of objects and lists whose fields are known


def _fields_of(objects: Sequence[dict[str, Any]], depth: int = 0) -> list[pa.Field]:
    values: dict[str, list[Any]] = {}
    for one in objects:
        for key, value in one.items():
            values.setdefault(key, []).append(value)
    return [pa.field(valid_text(key)[0], _type_of(own, depth)) for key, own in values.items()]


def _type_of(values: Sequence[Any], depth: int) -> pa.DataType:
    """The type of a field's values; of several types, a union."""
    plain = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}
    found: list[pa.DataType] = []
    for kind in dict.fromkeys(map(type, values)):
        own: list[Any] = [value for value in values if type(value) is kind]
        if kind is dict:
            inner = _fields_of(own, depth + 1) if depth < _MAX_DEPTH else []
            found.append(pa.struct(inner))
        elif kind is list:
            elements = [element for one in own for element in one] if depth < _MAX_DEPTH else []
            found.append(pa.list_(_type_of(elements, depth + 1)))
        elif kind is not type(None):
            found.append(plain.get(kind, pa.float64()))
    if len(found) > 1:
        return pa.dense_union([pa.field(str(at), type_) for at, type_ in enumerate(found)])
    return found[0] if found else pa.null()


def _is_empty_array(source: Input) -> bool:
    head = head_of(source)
    is_whole = len(head) < HEAD_BYTES and not source.compression
    return is_whole and head.translate(None, WHITESPACE) == b"[]"


def _check_is_lines(source: Input, lines: list[bytes], head: bytes) -> None:
    """Raise InputError for an object that spans several lines."""
    if len(lines) > 1 and _is_cut_off(lines[0], head):
        raise InputError(
            f"{source.name}: a JSON object over several lines, not one JSON object per line",
            hint=f"jq -c . {shlex.quote(source.name)} > lines.jsonl",
        )


def _is_cut_off(line: bytes, head: bytes) -> bool:
    """Whether the first line begins an object that continues on the next line."""
    if line.strip(WHITESPACE) == b"{":
        return True
    text = head.decode(errors="replace").lstrip(WHITESPACE.decode())
    try:
        _, end = DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        return False
    return "\n" in text[:end]


# Functions, not methods: a reader that keeps an unfinished generator must not be referenced by it,
# or the file stays open until the garbage collector runs.


def _lines_of_rows(span: Span, batch_bytes: int) -> Iterator[int]:
    """The line number of each row of the span, and one more."""
    line = 1
    for block in _line_blocks(chunks_of(span.input, span.start, span.stop, batch_bytes), span):
        for text in block.removesuffix(b"\n").split(b"\n"):
            if text.strip(WHITESPACE):
                yield line
            line += 1
    yield line


def _blocks(span: Span, batch_bytes: int) -> Iterator[Block]:
    """Whole lines, or elements, in blocks of about `batch_bytes`."""
    chunks = chunks_of(span.input, span.start, span.stop, batch_bytes)
    if span.start:
        return _line_blocks(chunks, span)
    num_lines = num_bytes = 0  # of blank chunks: there may be gigabytes of them
    for chunk in chunks:
        if chunk.lstrip(WHITESPACE):
            chunks = itertools.chain([chunk], chunks)
            if begins_array(chunk):
                return element_blocks(chunks, span.input, batch_bytes, num_lines)
            break
        num_lines += chunk.count(b"\n")
        num_bytes += len(chunk)
    return _line_blocks(chunks, span, num_bytes)


def _line_blocks(chunks: Iterable[bytes], span: Span, num_before: int = 0) -> Iterator[bytes]:
    """`num_before`: bytes of the span that come before these chunks."""
    parts: list[bytes] = []  # an unfinished line
    num_bytes = 0
    begin = span.start + num_before
    for chunk in chunks:
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
