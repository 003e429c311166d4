"""Decides which rows pass an expression, with Arrow's compute functions.

A number is compared exactly: 3.5 with integers, 2^53 + 1 with floating-point numbers. Decimals are
compared as floating-point numbers.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.arrays import binary_array_of, null_scalar, scalar
from tokenmill.where import tree
from tokenmill.where.moments import moment_of

if TYPE_CHECKING:
    Number = int | float | Fraction

# The values of a column. If there are several arrays, each is null where another has the value:
# JSON has integers and other numbers in one column.
Layers = Sequence[pa.Array]
LayersOf = Callable[[tuple[str, ...]], Layers]

_COMPARE = {
    "==": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def outcomes(expression: tree.Expression, layers_of: LayersOf) -> pa.BooleanArray:
    """True, false or null for each row; a row passes if it is true."""
    return _evaluated(expression.root, layers_of)


def _evaluated(node: tree.Node, layers_of: LayersOf) -> pa.BooleanArray:
    if isinstance(node, tree.Not):
        return pc.invert(_evaluated(node.node, layers_of))
    if isinstance(node, tree.All):
        return functools.reduce(pc.and_kleene, (_evaluated(n, layers_of) for n in node.nodes))
    if isinstance(node, tree.Any):
        return functools.reduce(pc.or_kleene, (_evaluated(n, layers_of) for n in node.nodes))
    layers = layers_of(node.column.names)
    if isinstance(node, tree.IsNull):
        return functools.reduce(pc.and_, (pc.is_null(layer) for layer in layers))
    tested = [_tested(node, layer) for layer in layers]
    return tested[0] if len(tested) == 1 else pc.coalesce(*tested)


def _tested(test: tree.Test, array: pa.Array) -> pa.BooleanArray:
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), pa.bool_())
    if isinstance(test, tree.Flag):
        return array
    if isinstance(test, tree.Match):
        return pc.match_substring_regex(array, test.pattern)
    assert isinstance(test, (tree.Relation, tree.Membership))
    if test.of_length:
        array = _lengths(array)
    if isinstance(test, tree.Relation):
        return _compared(array, test.operator, test.value)
    equal = (_compared(array, "==", value) for value in test.values)
    if pa.types.is_large_string(array.type):
        values = binary_array_of([str(value).encode() for value in test.values])
        among = pc.is_in(array, values.view(pa.large_string()))
        return _where_valid(array, among)
    return functools.reduce(pc.or_kleene, equal)


def _lengths(array: pa.Array) -> pa.Array:
    is_text = pa.types.is_large_string(array.type)
    return pc.utf8_length(array) if is_text else pc.list_value_length(array)


def _compared(array: pa.Array, operator: str, value: tree.Value) -> pa.BooleanArray:
    kind = array.type
    if isinstance(value, str) and (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
        bits = pa.int32() if pa.types.is_date32(kind) else pa.int64()
        return _integers_compared(array.cast(bits), operator, moment_of(value, kind))
    if isinstance(value, (str, bool)):
        return _COMPARE[operator](array, scalar(value, kind))
    if pa.types.is_integer(kind):
        return _integers_compared(array, operator, value)
    return _floats_compared(array.cast(pa.float64()), operator, value)


def _integers_compared(array: pa.Array, operator: str, value: Number) -> pa.BooleanArray:
    floor = math.floor(value)
    if floor != value:
        if operator in ("==", "!="):
            return _constant(array, operator == "!=")
        operator, floor = ("<=", floor) if operator in ("<", "<=") else (">=", floor + 1)
    bits = array.type.bit_width
    is_signed = pa.types.is_signed_integer(array.type)
    least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)
    if floor < least:
        return _constant(array, operator in (">", ">=", "!="))
    if floor > most:
        return _constant(array, operator in ("<", "<=", "!="))
    return _COMPARE[operator](array, scalar(floor, array.type))


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
