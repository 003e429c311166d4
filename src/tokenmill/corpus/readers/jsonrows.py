"""A block of JSON lines as rows: pyarrow's parser for whole blocks, Python's for blocks it refuses.

pyarrow.json reads one column of a block at 700 MB/s, json.loads per line does 330. A block takes
the fast path only if the result cannot differ from the slow path: every line looks like `{...}`
(then the number of objects equals the number of lines only if each line is one object), the block
is valid UTF-8 without NULs, and pyarrow raises no error and finds as many rows as lines. Every
other block is parsed line by line: bad lines get a reason and good ones are kept.

A line is a row if json.loads accepts it, else if pyarrow does (it knows `Inf`, and nesting deeper
than Python's stack), so that a row never depends on the rest of its block. Of duplicate keys the
last wins.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json

from tokenmill.corpus.readers.choice import Chosen
from tokenmill.corpus.readers.rows import Rows, without_bad

WHITESPACE = b" \t\r\n"
# Numbers are never the text. float has no limit of 4,300 digits, which int has since Python 3.11.
DECODER = json.JSONDecoder(parse_int=float)

_KIND_NAMES: dict[type, str] = {
    dict: "an object",
    list: "an array",
    str: "a string",
    float: "a number",
    int: "a number",
    bool: "a boolean",
}
_NEWLINE, _RETURN, _OPEN, _CLOSE = b"\n\r{}"


class BadLine(Exception):
    """Why a line is not a row."""


def rows_of(block: bytes, name: str, replace: bool) -> Rows:
    """The rows of a block of whole lines; blank lines are not rows."""
    texts = _parsed_block(block, name)
    return Rows(texts) if texts is not None else _rows_by_line(block, name, replace)


def chosen_rows(lines: Sequence[bytes], chosen: Chosen, name: str, replace: bool) -> Rows:
    """The rows of these lines that go in."""
    positions = np.flatnonzero(chosen.is_in)
    rows = _rows_of_lines((lines[i] for i in positions.tolist()), name, replace)
    bad = {int(np.searchsorted(positions, row)): why for row, why in chosen.bad.items()}
    rows = Rows(rows.texts, rows.bad, rows.replaced, positions, len(lines))
    return without_bad(rows, bad)


def lines_in(block: bytes) -> list[bytes]:
    """The lines of a block that are rows."""
    return [line for line in block.split(b"\n") if line.strip(WHITESPACE)]


def object_of(line: str, decoder: json.JSONDecoder = DECODER) -> dict[str, Any]:
    """The object on a line. Raises BadLine; RecursionError if it is nested too deeply."""
    try:
        value = decoder.decode(line)
    except json.JSONDecodeError as error:
        raise BadLine(f"not JSON: {error.msg} at column {error.colno}") from None
    if not isinstance(value, dict):
        raise BadLine(f"the line is {kind_of(value)}, not an object")
    return value


def _parsed_block(block: bytes, name: str) -> pa.LargeStringArray | None:
    """The block's texts by pyarrow alone; None if the slow path is needed."""
    num_rows = _num_object_lines(block)
    if not num_rows or b"\0" in block or not _is_utf8(block):
        return None
    try:
        table = pyarrow.json.read_json(
            pa.BufferReader(block),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(block) + 1),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=pa.schema([(name, pa.large_string())]),
                newlines_in_values=False,
                unexpected_field_behavior="ignore",
            ),
        )
        if table.num_rows != num_rows:
            return None
        # A cast from binary checks the UTF-8 that escapes such as \ud83d produced.
        return table.column(0).combine_chunks().view(pa.large_binary()).cast(pa.large_string())
    except pa.ArrowException:
        return None


def _num_object_lines(block: bytes) -> int:
    """The number of lines if each begins with { and ends with }, else 0."""
    if block[:1] != b"{" or not block.endswith((b"}", b"}\n", b"}\r\n")):
        return 0
    data = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(data == _NEWLINE)
    if len(ends) and ends[-1] == len(data) - 1:
        ends = ends[:-1]
    if not len(ends):
        return 1
    before = np.where(data[ends - 1] == _RETURN, data[ends - 2], data[ends - 1])
    if (before == _CLOSE).all() and (data[ends + 1] == _OPEN).all():
        return len(ends) + 1
    return 0


def _is_utf8(block: bytes) -> bool:
    offsets = pa.py_buffer(np.array([0, len(block)], np.int64))
    array = pa.Array.from_buffers(pa.large_string(), 1, [None, offsets, pa.py_buffer(block)])
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _rows_by_line(block: bytes, name: str, replace: bool) -> Rows:
    if not block.translate(None, WHITESPACE):  # 2.7 GB/s; gigabytes of line ends, 25 MB/s by line
        return Rows(pa.nulls(0, pa.large_string()))
    return _rows_of_lines(lines_in(block), name, replace)


def _rows_of_lines(lines: Iterable[bytes], name: str, replace: bool) -> Rows:
    texts: list[str | None] = []
    bad: dict[int, str] = {}
    replaced: list[int] = []
    for line in lines:
        try:
            text, is_replaced = _text_of(line, name, replace)
        except BadLine as reason:
            bad[len(texts)] = str(reason)
            text, is_replaced = None, False
        if is_replaced:
            replaced.append(len(texts))
        texts.append(text)
    return Rows(pa.array(texts, pa.large_string()), bad, tuple(replaced))


def decoded_line(line: bytes, replace: bool) -> tuple[str, bool]:
    """(text of the line, was something replaced)."""
    try:
        return line.decode(), False
    except UnicodeDecodeError as error:
        if not replace:
            raise BadLine(f"invalid UTF-8 at byte {error.start} of the line") from None
        return line.decode(errors="replace"), True


def _text_of(line: bytes, name: str, replace: bool) -> tuple[str | None, bool]:
    """(text, was something replaced) of one line."""
    decoded, is_replaced = decoded_line(line, replace)
    try:
        text = object_of(decoded).get(name)
    except (BadLine, RecursionError) as error:
        texts = _parsed_block(decoded.strip().encode(), name)
        if texts is None:
            deep = isinstance(error, RecursionError)
            raise BadLine("not JSON: nested too deeply" if deep else str(error)) from None
        text = texts[0].as_py()
    if text is None:
        return None, is_replaced
    if not isinstance(text, str):
        raise BadLine(f"field {name!r} is {kind_of(text)}, not a string")
    text, has_surrogate = valid_text(text)
    return text, is_replaced or has_surrogate


def valid_text(text: str) -> tuple[str, bool]:
    """(text, was something replaced): a lone surrogate is replaced exactly as tiktoken does."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"), True
    return text, False


def kind_of(value: object) -> str:
    return _KIND_NAMES.get(type(value), "null")
