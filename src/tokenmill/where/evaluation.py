"""Decides which rows pass an expression, with Arrow's compute functions.

A test of a row is true, false or null. If a value cannot be read as what it is tested as, or the
row cannot be read at all, it may be any of the three, and only an outcome that depends on it is
undecided. The same holds for a row group of which only a minimum and a maximum are known.

Numbers are compared exactly: 3.5 with integers, 2^53 + 1 with floating-point numbers, 0.1 with
decimals. Text is compared as bytes, which is the order of code points, so that the minimum and
maximum in a footer agree with the rows.
"""

from __future__ import annotations

import functools
import math
import operator
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.arrays import (
    binary_array_of,
    binary_scalar,
    decimal_scalar,
    null_scalar,
    nulls_of,
    scalar,
)
from tokenmill.where import tree

if TYPE_CHECKING:
    Number = int | float | Fraction

Flags = npt.NDArray[np.bool_] | bool  # of rows, or of one row group


class Truth(NamedTuple):
    """Which of the three a test may be; of a row group: for any of its rows."""

    true: Flags
    false: Flags
    null: Flags

    def __invert__(self) -> Truth:
        return Truth(self.false, self.true, self.null)

    def __and__(self, other: Truth) -> Truth:
        return Truth(
            self.true & other.true,
            self.false | other.false,
            (self.null & (other.true | other.null)) | (self.true & other.null),
        )

    def __or__(self, other: Truth) -> Truth:
        return ~(~self & ~other)


def outcome(node: tree.Node, of_test: Callable[[tree.Test], Truth]) -> Truth:
    """What an expression may be, from what each of its tests may be."""
    if isinstance(node, tree.Not):
        return ~outcome(node.node, of_test)
    if isinstance(node, tree.All):
        return functools.reduce(operator.and_, (outcome(n, of_test) for n in node.nodes))
    if isinstance(node, tree.Any):
        return functools.reduce(operator.or_, (outcome(n, of_test) for n in node.nodes))
    return of_test(node)


class Values(NamedTuple):
    """A column as a test needs it: text as large_binary, which for `matches` and a length is valid
    UTF-8. A struct has the values of one column by their types, of which each row has one: JSON has
    integers and other numbers in one column."""

    array: pa.Array
    unreadable: npt.NDArray[np.bool_] | None = None  # rows with a value that is not such a thing


def outcome_of_rows(expression: tree.Expression, values_of: Callable[[tree.Test], Values]) -> Truth:
    return outcome(expression.root, lambda test: _of_rows(test, values_of(test)))


def _of_rows(test: tree.Test, values: Values) -> Truth:
    array, unreadable = values
    if isinstance(test, tree.IsNull):
        is_null = _flags_of(pc.is_null(array))
        if unreadable is not None:  # a value is there
            is_null = is_null & ~unreadable
        return Truth(is_null, ~is_null, np.zeros(len(is_null), np.bool_))
    layers = array.flatten() if pa.types.is_struct(array.type) else [array]
    tested = [_tested(test, layer) for layer in layers]
    array = tested[0] if len(tested) == 1 else pc.coalesce(*tested)
    null = nulls_of(array)
    true = _flags_of(array) & ~null
    false = ~true & ~null
    if unreadable is not None:
        return Truth(true | unreadable, false | unreadable, null | unreadable)
    return Truth(true, false, null)


def _flags_of(array: pa.BooleanArray) -> npt.NDArray[np.bool_]:
    """The values; those beneath a null are unspecified."""
    if not len(array):
        return np.zeros(0, np.bool_)
    bits = np.unpackbits(np.frombuffer(array.buffers()[1], np.uint8), bitorder="little")
    return bits[array.offset : array.offset + len(array)].astype(np.bool_)


_COMPARE = {
    "==": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def _tested(test: tree.Test, array: pa.Array) -> pa.BooleanArray:
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), pa.bool_())
    if isinstance(test, tree.Flag):
        return array
    if isinstance(test, tree.Match):
        return pc.match_substring_regex(array.view(pa.large_string()), test.pattern)
    assert isinstance(test, (tree.Relation, tree.Membership))
    if test.of_length:
        array = _lengths(array)
    if isinstance(test, tree.Relation):
        return _compared(array, test.operator, test.value)
    equal = (_compared(array, "==", value) for value in test.values)
    if pa.types.is_large_binary(array.type):
        values = binary_array_of([str(value).encode() for value in test.values])
        return _where_valid(array, pc.is_in(array, values))
    return functools.reduce(pc.or_kleene, equal)


def _lengths(array: pa.Array) -> pa.Array:
    if pa.types.is_large_binary(array.type):
        return pc.utf8_length(array.view(pa.large_string()))
    return pc.list_value_length(array)


def _compared(array: pa.Array, operator: str, value: tree.Value) -> pa.BooleanArray:
    kind = array.type
    if isinstance(value, str) and (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
        bits = pa.int32() if pa.types.is_date32(kind) else pa.int64()
        return _integers_compared(array.cast(bits), operator, moment_of(value, kind))
    if isinstance(value, str):
        return _COMPARE[operator](array, binary_scalar(value.encode()))
    if isinstance(value, bool):
        return _COMPARE[operator](array, scalar(value, kind))
    if pa.types.is_integer(kind):
        return _integers_compared(array, operator, value)
    if pa.types.is_decimal(kind):
        return _decimals_compared(array, operator, value)
    return _floats_compared(array.cast(pa.float64()), operator, value)


def _decimals_compared(array: pa.Array, operator: str, value: Number) -> pa.BooleanArray:
    exact = Fraction(value.digits if isinstance(value, tree.ExactNumber) else value)
    kind, most = array.type, 10**array.type.precision - 1
    if kind.bit_width < 128:  # pyarrow does not compare these
        array = array.cast(pa.decimal128(kind.precision, kind.scale))
    return _steps_compared(array, operator, exact * Fraction(10) ** kind.scale, -most, most)


def _integers_compared(array: pa.Array, operator: str, value: Number) -> pa.BooleanArray:
    bits = array.type.bit_width
    is_signed = pa.types.is_signed_integer(array.type)
    least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)
    return _steps_compared(array, operator, value, least, most)


def _steps_compared(
    array: pa.Array, operator: str, value: Number, least: int, most: int
) -> pa.BooleanArray:
    """Of integers, or decimals in units of their last digit, from `least` to `most`."""
    floor = math.floor(value)
    if floor != value:
        if operator in ("==", "!="):
            return _constant(array, operator == "!=")
        operator, floor = ("<=", floor) if operator in ("<", "<=") else (">=", floor + 1)
    if floor < least:
        return _constant(array, operator in (">", ">=", "!="))
    if floor > most:
        return _constant(array, operator in ("<", "<=", "!="))
    limit = decimal_scalar if pa.types.is_decimal(array.type) else scalar
    return _COMPARE[operator](array, limit(floor, array.type))


def _floats_compared(array: pa.Array, operator: str, value: Number) -> pa.BooleanArray:
    try:
        near = float(value)
    except OverflowError:
        near = math.copysign(math.inf, value)
    if near != value:  # no floating-point number is equal to it, and `near` is its neighbour
        if operator in ("==", "!="):
            return _constant(array, operator == "!=")
        is_below = near < value
        if operator in ("<", "<="):
            operator = "<=" if is_below else "<"
        else:
            operator = ">" if is_below else ">="
    return _COMPARE[operator](array, scalar(near, pa.float64()))


def _constant(array: pa.Array, value: bool) -> pa.BooleanArray:
    return _where_valid(array, scalar(value, pa.bool_()))


def _where_valid(array: pa.Array, values: pa.BooleanArray | pa.BooleanScalar) -> pa.BooleanArray:
    return pc.if_else(pc.is_valid(array), values, null_scalar(pa.bool_()))


# Dates and times in quotes, as numbers in the column's own unit.

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_MICROSECOND = timedelta(microseconds=1)
_FRACTION = re.compile(r"[.,]\d{6}(\d+)")  # the digits after the sixth, which datetime drops


def moment_of(text: str, type_: pa.DataType) -> Fraction:
    """The number that a date or timestamp column would hold. Without a time zone, a time is UTC if
    the column has a zone. Raises ValueError with a readable message."""
    fraction = _FRACTION.search(text)
    rest = fraction[1] if fraction else ""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a date or a time") from None
    has_zone = pa.types.is_timestamp(type_) and type_.tz is not None
    if moment.tzinfo is not None and not has_zone:
        raise ValueError(f"{text!r} has a time zone, and the column has none")
    zone = moment.tzinfo or UTC
    since = moment.replace(tzinfo=zone) - datetime(1970, 1, 1, tzinfo=UTC)
    seconds = Fraction(since // _MICROSECOND, 10**6)
    seconds += Fraction(int(rest or 0), 10 ** (6 + len(rest)))
    if pa.types.is_timestamp(type_):
        return seconds * _PER_SECOND[type_.unit]
    return seconds / 86_400 if pa.types.is_date32(type_) else seconds * 1000
