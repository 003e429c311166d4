"""A block of JSON lines as rows: pyarrow's parser for whole blocks, Python's for blocks it refuses.

pyarrow.json reads one column of a block at 700 MB/s, json.loads per line at 330. A block takes the
fast path only if the result cannot differ from the slow path: every line looks like `{...}` (then
there are as many objects as lines only if each line is one object), the block is valid UTF-8
without NULs, and pyarrow raises no error and finds as many rows as lines. Every other block is
parsed line by line: bad lines get a reason, and good ones stay.

A line is a row if json.loads or pyarrow accepts it (pyarrow knows `Inf`, and nesting deeper than
Python's stack), so that a row never depends on the rest of its block. Of duplicate keys the last
wins.

A dotted name is a field of exactly that name, or else of an object within the object. Such fields
and lists of strings are read line by line.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json

from tokenmill.arrays import text_array_of
from tokenmill.corpus.readers import ReadOptions
from tokenmill.corpus.readers.choice import Chosen
from tokenmill.corpus.readers.lists import DEFAULT_SEPARATOR
from tokenmill.corpus.readers.rows import Rows
from tokenmill.where.template import template_of

WHITESPACE = b" \t\r\n"
# The text is never a number, so floats will do: int has a limit of 4,300 digits.
DECODER = json.JSONDecoder(parse_int=float)
_MAX_DIGITS = 400  # far beyond int64


def _number(digits: str) -> int | float:
    return int(digits) if len(digits) <= _MAX_DIGITS else float(digits)


EXACT_DECODER = json.JSONDecoder(parse_int=_number)  # if numbers matter: --where, --keep


class _Digits(str):
    """A whole number as it is written, which a template takes as text."""

    __slots__ = ()


_TEMPLATE_DECODER = json.JSONDecoder(
    parse_int=lambda text: _Digits("0" if text == "-0" else text)  # as Arrow writes it
)
_KIND_NAMES: dict[type, str] = {
    dict: "an object",
    list: "an array",
    str: "a string",
    float: "a number",
    int: "a number",
    bool: "a boolean",
    bytes: "not UTF-8",  # of a CSV file
}
_NEWLINE, _RETURN, _OPEN, _CLOSE = b"\n\r{}"


NO_FLOATS = "it can be written in more than one way, so a template takes text and whole numbers"


class BadLine(Exception):
    """Why a line is not a row."""


def text_names(options: ReadOptions) -> list[str]:
    """The fields that make a row's text."""
    if options.template is None:
        return [options.text_column]
    return [slot.name for slot in template_of(options.template).slots]


def rows_of(block: bytes, options: ReadOptions) -> Rows:
    """The rows of a block of whole lines; blank lines are not rows."""
    texts = _parsed_block(block, options)
    return Rows(texts) if texts is not None else _rows_by_line(block, options)


def chosen_rows(
    lines: Sequence[bytes], chosen: Chosen, options: ReadOptions
) -> tuple[Rows, list[int] | None]:
    """The rows of the chosen lines, and the number of each row's line among these; None: each line
    is one row."""
    positions = np.flatnonzero(chosen.is_in)
    found = _LineRows(options)
    for line in positions.tolist():
        found.add(lines[line], chosen.bad.get(line))
    rows, own, num_rows = found.rows, positions, len(lines)
    if found.line_of is not None:  # a list has as many rows as documents
        line_of = np.array(found.line_of, np.int64)
        own = (positions - np.arange(len(positions)))[line_of] + np.arange(len(line_of))
        num_rows += len(line_of) - len(positions)
    return Rows(rows.texts, rows.bad, rows.replaced, own, num_rows), found.line_of


def line_rows(lines: Iterable[bytes], options: ReadOptions) -> Rows:
    """The rows of these lines."""
    found = _LineRows(options)
    for line in lines:
        found.add(line)
    return found.rows


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


def _parsed_block(block: bytes, options: ReadOptions) -> pa.LargeStringArray | None:
    """The block's texts by pyarrow alone; None if the slow path is needed."""
    names = text_names(options)
    if options.lists is not None or any("." in name for name in names):
        return None
    num_rows = _num_object_lines(block)
    if not num_rows or b"\0" in block or not _is_utf8(block):
        return None
    try:
        table = pyarrow.json.read_json(
            pa.BufferReader(block),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(block) + 1),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=pa.schema([(name, pa.large_string()) for name in names]),
                newlines_in_values=False,
                unexpected_field_behavior="ignore",
            ),
        )
        if table.num_rows != num_rows:
            return None
        columns = (table.column(name).combine_chunks() for name in names)
        raw = [column.view(pa.large_binary()) for column in columns]
        text = raw[0] if options.template is None else template_of(options.template).joined(raw)
        # A cast from binary checks the UTF-8 that escapes such as \ud83d produced.
        return text.cast(pa.large_string())
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


def _rows_by_line(block: bytes, options: ReadOptions) -> Rows:
    if not block.translate(None, WHITESPACE):  # 2.7 GB/s; gigabytes of line ends, 25 MB/s by line
        return Rows(pa.nulls(0, pa.large_string()))
    return line_rows(lines_in(block), options)


class _LineRows:
    """Rows, collected line by line."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        is_simple = options.template is None and options.lists is None
        is_simple = is_simple and "." not in options.text_column
        self._name = options.text_column if is_simple else None
        self._texts: list[str | None] = []
        # The line of each text; None: each line has one text.
        self.line_of: list[int] | None = [] if options.lists == "documents" else None
        self._bad: dict[int, str] = {}
        self._replaced: list[int] = []
        self._num_lines = 0

    def add(self, line: bytes, why_bad: str | None = None) -> None:
        """Add a line. With `why_bad` it will be quarantined, whatever its text."""
        try:
            texts, is_replaced = _texts_of(line, self._options, self._name)
        except BadLine as reason:
            self._bad[len(self._texts)] = str(reason)
            texts, is_replaced = [None], False
        else:
            if why_bad is not None:
                self._bad[len(self._texts)] = why_bad
                texts, is_replaced = [None], False
        if is_replaced:
            self._replaced.append(len(self._texts))
        self._texts += texts
        if self.line_of is not None:
            self.line_of += [self._num_lines] * len(texts)
        self._num_lines += 1

    @property
    def rows(self) -> Rows:
        return Rows(text_array_of(self._texts), self._bad, tuple(self._replaced))


def decoded_line(line: bytes, replace: bool) -> tuple[str, bool]:
    """(text of the line, was something replaced)."""
    try:
        return line.decode(), False
    except UnicodeDecodeError as error:
        if not replace:
            raise BadLine(f"invalid UTF-8 at byte {error.start} of the line") from None
        return line.decode(errors="replace"), True


def _texts_of(line: bytes, options: ReadOptions, name: str | None) -> tuple[list[str | None], bool]:
    """(texts, was something replaced) of one line; several texts only with --lists. With `name`,
    the text is the field of exactly that name."""
    decoded, is_replaced = decoded_line(line, options.replace_bad_text)
    try:
        one = object_of(decoded, DECODER if options.template is None else _TEMPLATE_DECODER)
    except (BadLine, RecursionError) as error:
        texts = _parsed_block(decoded.strip().encode(), options)
        if texts is None:
            deep = isinstance(error, RecursionError)
            raise BadLine("not JSON: nested too deeply" if deep else str(error)) from None
        return [texts[0].as_py()], is_replaced
    if name is not None:
        text = one.get(name)
        if text is None:
            return [None], is_replaced
        _require_string(text, "field", name)
        text, has_surrogate = valid_text(text)
        return [text], is_replaced or has_surrogate
    found = [None if text is None else valid_text(text) for text in _texts_in(one, options)]
    is_replaced |= any(text is not None and text[1] for text in found)
    return [None if text is None else text[0] for text in found], is_replaced


def _texts_in(one: dict[str, Any], options: ReadOptions) -> list[str | None]:
    names = text_names(options)
    values = [field_of(one, tuple(name.split("."))) for name in names]
    values = [None if value is MISSING else value for value in values]
    if options.template is not None:
        for name, value in zip(names, values, strict=True):
            if isinstance(value, float):
                raise BadLine(f"field {name!r} is a number that is not whole: {NO_FLOATS}")
            _require_string(value, "field", name)
        return [template_of(options.template).filled(values)]
    [name], [value] = names, values
    if options.lists is None or not isinstance(value, list):
        _require_string(value, "field", name)
        return [value]
    for number, element in enumerate(value, 1):
        _require_string(element, f"element {number} of field", name)
    if options.lists == "documents":
        return value or [""]
    separator = DEFAULT_SEPARATOR if options.separator is None else options.separator
    return [separator.join(element for element in value if element is not None)]


def _require_string(value: object, what: str, name: str) -> None:
    if value is not None and not isinstance(value, str):
        raise BadLine(f"{what} {name!r} is {kind_of(value)}, not a string")


class _Missing:
    pass


MISSING = _Missing()


def field_of(one: dict[str, Any], names: tuple[str, ...]) -> Any:
    """A field of exactly that dotted name, or else of nested objects; MISSING if there is none."""
    whole = ".".join(names)
    if whole in one:
        return one[whole]
    value: Any = one
    for name in names:
        value = value.get(name, MISSING) if isinstance(value, dict) else MISSING
    return value


def paths_of(one: dict[str, Any], prefix: str = "") -> list[str]:
    """The names of fields, and of fields one level below them."""
    found = [f"{prefix}{key}" for key in one]
    if not prefix:
        for key, value in one.items():
            found += paths_of(value, f"{key}.") if isinstance(value, dict) else []
    return found


def valid_text(text: str) -> tuple[str, bool]:
    """(text, was something replaced): a lone surrogate is replaced exactly as tiktoken does."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"), True
    return text, False


def kind_of(value: object) -> str:
    return _KIND_NAMES.get(type(value), "null")
