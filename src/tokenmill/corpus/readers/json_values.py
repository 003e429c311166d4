"""A block of JSON lines, or of elements of an array, as typed columns: pyarrow's parser for whole
blocks, Python's for blocks that it refuses.

pyarrow.json reads a block at 700 MB/s, json.loads per line at 330. A block takes the fast path only
if the result cannot differ from the slow path: every line looks like `{...}` (then there are as
many objects as lines only if each line is one object), the block is valid UTF-8 without NULs, each
column has one plain type that all values have, and pyarrow raises no error and finds as many rows
as lines. Every other block is parsed line by line, each line once: bad lines get a reason, and good
ones stay.

A line is a row if json.loads or pyarrow accepts it (pyarrow knows `Inf`, and nesting deeper than
Python's stack), so that a row never depends on the rest of its block. Of duplicate keys the last
wins. A value of another type than a column asks for is null in it, and `unreadable`; a missing
field is null.

A dotted name is a field of exactly that name, or else of an object within the object. Such fields
and lists are read line by line.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json

from tokenmill.arrays import (
    binary_array_of,
    boolean_array_of,
    mask,
    number_array_of,
    numbers_of,
    text_array_of,
    validity,
)
from tokenmill.corpus.columns import AskedColumn, Names, asked, shown, unfit
from tokenmill.corpus.readers import ReadOptions
from tokenmill.corpus.rows import Rows
from tokenmill.where.tree import ExactNumber

WHITESPACE = b" \t\r\n"
# If only the text counts, which is never a number, floats will do: int has a limit of 4,300 digits.
DECODER = json.JSONDecoder(parse_int=float)
_MAX_DIGITS = 400  # far beyond int64
MAX_DEPTH = 400  # of arrays and objects in a line, where Arrow does not read it
_NESTING = re.compile(r'"(?:[^"\\]|\\.)*+"|[][{}]', re.DOTALL)


def _number(digits: str) -> int | float:
    return int(digits) if len(digits) <= _MAX_DIGITS else ExactNumber(digits)


def _real(digits: str) -> float:
    number = float(digits)
    return ExactNumber(digits) if math.isinf(number) else number


EXACT_DECODER = json.JSONDecoder(parse_int=_number, parse_float=_real)
_KIND_NAMES: dict[type, str] = {
    dict: "an object",
    list: "an array",
    str: "a string",
    float: "a number",
    ExactNumber: "a number",
    int: "a number",
    bool: "a boolean",
    bytes: "not UTF-8",  # of a CSV file
}
_NEWLINE, _RETURN, _OPEN, _CLOSE = b"\n\r{}"
_INT64 = range(-(1 << 63), 1 << 63)
_EXACT_FLOATS = float(1 << 53)  # below this, a float64 holds every whole number
_NO_FLOATS = "it can be written in more than one way, so a template takes text and whole numbers"

Block = bytes | list[bytes]  # whole lines, or an array's elements


class BadLine(Exception):
    """Why a line is not a row, or a value not what it was asked for as."""


def block_rows(block: Block, first_row: int, options: ReadOptions) -> Rows:
    """The rows of a block, with the columns that are asked for; blank lines are not rows."""
    if isinstance(block, list):
        return _line_rows(block, first_row, options)
    arrays = _parsed_block(block, options)
    if arrays is not None:
        return Rows.of(arrays, first_row)
    lines = []
    if block.translate(None, WHITESPACE):  # 2.7 GB/s; gigabytes of line ends, 25 MB/s by line
        lines = [line for line in block.split(b"\n") if line.strip(WHITESPACE)]
    return _line_rows(lines, first_row, options)


# Whole blocks


def _parsed_block(block: bytes, options: ReadOptions) -> dict[str, pa.Array] | None:
    """The block's columns by pyarrow alone; None if the slow path is needed."""
    types = _plain_types(options)
    num_rows = _num_object_lines(block) if types else 0
    if not num_rows or b"\0" in block or not _is_utf8(block):
        return None
    try:
        table = pyarrow.json.read_json(
            pa.BufferReader(block),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(block) + 1),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=pa.schema(list(types.items())),
                newlines_in_values=False,
                unexpected_field_behavior="ignore",
            ),
        )
        if table.num_rows != num_rows:
            return None
        columns = {name: _exact(table.column(name).combine_chunks()) for name in types}
    except pa.ArrowException:
        return None
    found = {}
    for column in asked(options):
        array = columns[column.name]
        is_tested_text = column.role == "where" and pa.types.is_large_string(array.type)
        found[column.key] = array.view(pa.large_binary()) if is_tested_text else array
    return found


def _plain_types(options: ReadOptions) -> dict[str, pa.DataType]:
    """The type that each field must have in a block for pyarrow; empty if there is none."""
    found: dict[str, pa.DataType] = {}
    for column in asked(options):
        type_ = column.type or pa.large_string()
        if column.role == "where":
            type_ = _ARROW_TYPES.get(column.kinds[0]) if column.kinds else None
        is_plain = type_ in _ARROW_TYPES.values() or type_ == pa.int64()
        if len(column.names) > 1 or not is_plain or found.get(column.name, type_) != type_:
            return {}
        found[column.name] = type_
    return {} if options.lists is not None else found


_ARROW_TYPES = {"text": pa.large_string(), "a number": pa.float64(), "a boolean": pa.bool_()}


def _exact(array: pa.Array) -> pa.Array:
    """The array, as the slow path makes it. Raises ArrowInvalid if that is another."""
    if pa.types.is_large_string(array.type):
        # A cast from binary checks the UTF-8 that escapes such as \ud83d produced.
        return array.view(pa.large_binary()).cast(pa.large_string())
    if pa.types.is_float64(array.type):
        values = numbers_of(array)
        is_odd = ~(np.abs(values) < _EXACT_FLOATS) | (np.signbit(values) & (values == 0))
        if is_odd.any():
            raise pa.ArrowInvalid("a number that a float64 does not hold")
    return array


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


# Line by line


def _line_rows(lines: Sequence[bytes], first_row: int, options: ReadOptions) -> Rows:
    columns = asked(options)
    decoder = DECODER if all(column.role == "text" for column in columns) else EXACT_DECODER
    values: dict[str, list[Any]] = {column.key: [] for column in columns}
    unreadable: dict[str, dict[int, str]] = {column.key: {} for column in columns}
    rejected: dict[int, str] = {}
    replaced: set[int] = set()
    for row, line in enumerate(lines, first_row):
        found: dict[str, Any] = {}
        try:
            found, bad, is_replaced = _values_of(line, columns, decoder, options)
        except BadLine as why:
            rejected[row] = str(why)
        else:
            for key, reason in bad.items():
                unreadable[key][row] = reason
            if is_replaced:
                replaced.add(row)
        for key, own in values.items():
            own.append(found.get(key))
    arrays = {
        column.key: _array_of(values[column.key], column, options, unreadable, first_row)
        for column in columns
    }
    return Rows.of(arrays, first_row, rejected, unreadable, replaced)


def _values_of(
    line: bytes, columns: Sequence[AskedColumn], decoder: json.JSONDecoder, options: ReadOptions
) -> tuple[dict[str, Any], dict[str, str], bool]:
    """The columns' values on a line, by key; why others cannot be read; whether something was
    replaced. Raises BadLine."""
    decoded, is_replaced = _decoded(line, options.replace_bad_text)
    try:
        one = object_of(decoded, decoder)
    except (BadLine, RecursionError) as error:
        arrays = _parsed_block(decoded.strip().encode(), options)
        if arrays is None:
            is_deep = isinstance(error, RecursionError)
            raise BadLine("not JSON: nested too deeply" if is_deep else str(error)) from None
        return {key: array[0].as_py() for key, array in arrays.items()}, {}, is_replaced
    values, bad = {}, {}
    for column in columns:
        try:
            values[column.key], is_odd = _READ[column.role](one, column, options)
            is_replaced |= is_odd
        except BadLine as why:
            bad[column.key] = str(why)
    return values, bad, is_replaced


def _decoded(line: bytes, replace_bad_text: bool) -> tuple[str, bool]:
    """(text of the line, was something replaced)."""
    try:
        return line.decode(), False
    except UnicodeDecodeError as error:
        if not replace_bad_text:
            raise BadLine(f"invalid UTF-8 at byte {error.start} of the line") from None
        return line.decode(errors="replace"), True


def object_of(line: str, decoder: json.JSONDecoder = EXACT_DECODER) -> dict[str, Any]:
    """The object on a line. Raises BadLine; RecursionError if it is nested too deeply."""
    if _is_deep(line):
        raise RecursionError
    try:
        value = decoder.decode(line)
    except json.JSONDecodeError as error:
        raise BadLine(f"not JSON: {error.msg} at column {error.colno}") from None
    if not isinstance(value, dict):
        raise BadLine(f"{_KIND_NAMES.get(type(value), 'null')}, not an object")
    return value


def _is_deep(line: str) -> bool:
    """Whether it is nested over MAX_DEPTH: what Python's decoder takes depends on who calls it."""
    if line.count("[") + line.count("{") <= MAX_DEPTH:
        return False
    depth = most = 0
    for found in _NESTING.finditer(line):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(found[0], 0)
        most = max(most, depth)
    return most > MAX_DEPTH


def _value(one: Mapping[str, Any], names: Names) -> Any:
    """A field of exactly that dotted name, or else of nested objects; None if there is none."""
    if len(names) == 1:
        return one.get(names[0])
    whole = ".".join(names)
    if whole in one:
        return one[whole]
    value: Any = one
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def valid_text(text: str) -> tuple[str, bool]:
    """(text, was something replaced): a lone surrogate is replaced exactly as tiktoken does."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"), True
    return text, False


def _text(one: Mapping[str, Any], column: AskedColumn, options: ReadOptions) -> tuple[Any, bool]:
    value = _value(one, column.names)
    if options.lists is None:
        return _string(value, "field", column.name)
    if value is None:
        return None, False
    if not isinstance(value, list):
        value, is_odd = _string(value, "field", column.name)
        return [value], is_odd
    found = [
        _string(element, f"element {number} of field", column.name)
        for number, element in enumerate(value, 1)
    ]
    return [text for text, _ in found], any(is_odd for _, is_odd in found)


def _string(value: Any, what: str, name: str) -> tuple[str | None, bool]:
    if value is None:
        return None, False
    if not isinstance(value, str):
        raise BadLine(f"{what} {name!r} is {_KIND_NAMES[type(value)]}, not a string")
    return valid_text(value)


def _slot(one: Mapping[str, Any], column: AskedColumn, options: ReadOptions) -> tuple[Any, bool]:
    value = _value(one, column.names)
    if isinstance(value, ExactNumber) and value.digits.removeprefix("-").isdecimal():
        return value.digits, False
    if isinstance(value, float):
        raise BadLine(f"field {column.name!r} is a number that is not whole: {_NO_FLOATS}")
    if type(value) is int:
        return str(value), False
    return _string(value, "field", column.name)


def _tested(one: Mapping[str, Any], column: AskedColumn, options: ReadOptions) -> tuple[Any, bool]:
    value = _value(one, column.names)
    if value is not None and column.kinds:
        require_kind(value, column)
    return value, False


def require_kind(value: Any, column: AskedColumn) -> None:
    """Raise BadLine if a value is not what its column is tested as."""
    if _KINDS.get(type(value)) not in column.kinds:
        raise BadLine(unfit(column.name, _KIND_NAMES[type(value)], column.kinds))


_KINDS: dict[type, str] = {
    **{str: "text", list: "a list", bool: "a boolean"},
    **{int: "a number", float: "a number", ExactNumber: "a number"},
}


def _kept(one: Mapping[str, Any], column: AskedColumn, options: ReadOptions) -> tuple[Any, bool]:
    value = _value(one, column.names)
    if value is None or column.type != pa.large_string():
        return value, False
    if isinstance(value, str):
        return valid_text(value)[0], False
    try:
        return json.dumps(value, allow_nan=False), False
    except ValueError:
        what = f"field {column.name!r} has a number beyond a double, and is kept as "
        raise BadLine(what + shown(column.type)) from None


_Read = Callable[[Mapping[str, Any], AskedColumn, ReadOptions], tuple[Any, bool]]
_READ: dict[str, _Read] = {"text": _text, "template": _slot, "where": _tested, "keep": _kept}


# Arrays of values


def _array_of(
    values: list[Any],
    column: AskedColumn,
    options: ReadOptions,
    unreadable: dict[str, dict[int, str]],
    first_row: int,
) -> pa.Array:
    if column.role == "where":
        return tested_array(values, column)
    if column.role == "keep" and column.type != pa.large_string():
        return _typed(values, column, unreadable[column.key], first_row)
    if column.role == "text" and options.lists is not None:
        return _list_array(
            values,
            binary_array_of(
                [
                    None if text is None else text.encode()
                    for texts in values
                    for text in texts or ()
                ]
            ),
        )
    return text_array_of(values)


def tested_array(values: Sequence[Any], column: AskedColumn) -> pa.Array:
    """What --where tests; of values of several types, a struct with an array of each."""
    if not column.kinds:
        return boolean_array_of([None if value is None else True for value in values])
    arrays = [make(values) for kind in column.kinds for make in _MAKERS[kind]]
    arrays = [array for array in arrays if array.null_count < len(array)] or arrays[:1]
    if len(arrays) == 1:
        return arrays[0]
    names = [str(number) for number in range(len(arrays))]
    is_null = mask(np.array([value is None for value in values], np.bool_))
    return pa.StructArray.from_arrays(arrays, names, mask=is_null)


def _texts(values: Sequence[Any]) -> pa.Array:
    texts = (value if isinstance(value, (str, bytes)) else None for value in values)
    return binary_array_of(
        [valid_text(text)[0].encode() if isinstance(text, str) else text for text in texts]
    )


def _integers(values: Sequence[Any]) -> pa.Array:
    own = [value if type(value) is int and value in _INT64 else None for value in values]
    return number_array_of(own, pa.int64())


def _floats(values: Sequence[Any]) -> pa.Array:
    """The other numbers; an integer beyond int64 becomes the nearest float."""
    own = [
        _float(value)
        if isinstance(value, float) or (type(value) is int and value not in _INT64)
        else None
        for value in values
    ]
    return number_array_of(own, pa.float64())


def _float(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _booleans(values: Sequence[Any]) -> pa.Array:
    return boolean_array_of([value if isinstance(value, bool) else None for value in values])


def _lists(values: Sequence[Any]) -> pa.Array:
    """The lists' lengths are all that is asked about: their elements are nulls."""
    own = [value if isinstance(value, list) else None for value in values]
    return _list_array(own, pa.nulls(sum(len(value or ()) for value in own)))


def _list_array(values: Sequence[list[Any] | None], elements: pa.Array) -> pa.Array:
    ends = np.cumsum([0, *(len(value or ()) for value in values)], dtype=np.int64)
    buffers = [validity(values), pa.py_buffer(ends)]
    type_ = pa.large_list(elements.type)
    return pa.Array.from_buffers(type_, len(values), buffers, children=[elements])


_MAKERS: dict[str, list[Callable[[Sequence[Any]], pa.Array]]] = {
    "a boolean": [_booleans],
    "a number": [_integers, _floats],
    "text": [_texts],
    "a list": [_lists],
}


def _typed(values: list[Any], column: AskedColumn, bad: dict[int, str], first_row: int) -> pa.Array:
    """Kept values in the plan's type; those that it does not hold are null, and `bad`."""
    if (found := _as_they_are(values, column.type)) is not None:
        return found
    for at, value in enumerate(values):
        try:
            if value is not None and not _is_held(value, column.type):
                raise ValueError
            pa.array([value], column.type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            what = f"field {column.name!r} is {json.dumps(value)[:40]}, and is kept as "
            bad[first_row + at] = what + shown(column.type)
            values[at] = None
    return pa.array(values, column.type)


def _is_held(value: Any, type_: pa.DataType) -> bool:
    """Whether Arrow would keep the value and not change it: 4.7 becomes 4, and true 1.0."""
    if pa.types.is_floating(type_):
        return type(value) in (int, float)
    return type(value) is int if pa.types.is_integer(type_) else True


def _as_they_are(values: Sequence[Any], type_: pa.DataType) -> pa.Array | None:
    """The values if each is of the column's own type, which needs no pandas (arrays.py)."""
    kinds = set(map(type, values)) - {type(None)}
    if type_ == pa.bool_() and kinds <= {bool}:
        return boolean_array_of(values)
    is_whole = kinds <= {int} and all(value is None or value in _INT64 for value in values)
    if (type_ == pa.int64() and is_whole) or (type_ == pa.float64() and kinds <= {float}):
        return number_array_of(values, type_)
    return None
