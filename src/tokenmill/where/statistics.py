"""Whether any row of a parquet row group can pass, by the minimum, maximum and number of nulls that
its footer states.

Every answer errs on the side of passing: what the footer does not state may be anything. Minimum
and maximum ignore NaN, so a column of floating-point numbers may always hold one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any as AnyValue
from typing import NamedTuple

import pyarrow.parquet as pq

from tokenmill.where.tree import (
    All,
    Any,
    Expression,
    IsNull,
    Membership,
    Node,
    Not,
    Relation,
    Test,
    Value,
)

_LOGICAL = ("NONE", "INT", "STRING")  # types whose minimum and maximum are compared as they are
_FLOATS = ("FLOAT", "DOUBLE")
_EXACT = ("INT32", "INT64", "BOOLEAN")
_TEXT = "BYTE_ARRAY"


class Bounds(NamedTuple):
    """What is known of a column in a row group."""

    num_rows: int
    num_nulls: int | None = None
    least: AnyValue = None  # None: unknown
    most: AnyValue = None
    may_be_nan: bool = False


class _Outcomes(NamedTuple):
    """Whether a test can be true, and whether it can be false, for some row."""

    true: bool
    false: bool


Chunks = Mapping[tuple[str, ...], pq.ColumnChunkMetaData]  # by the names in the expression
_UNKNOWN = _Outcomes(True, True)


def may_pass(expression: Expression, num_rows: int, chunks: Chunks) -> bool:
    """Whether any row of the group can pass."""
    bounds = {names: bounds_of(num_rows, chunk) for names, chunk in chunks.items()}
    return _outcomes(expression.root, bounds).true


def bounds_of(num_rows: int, chunk: pq.ColumnChunkMetaData) -> Bounds:
    statistics = chunk.statistics
    if statistics is None:
        return Bounds(num_rows)
    num_nulls = statistics.null_count if statistics.has_null_count else None
    type_, logical = chunk.physical_type, statistics.logical_type.type
    known = Bounds(num_rows, num_nulls)
    if not statistics.has_min_max or logical not in _LOGICAL:
        return known
    is_raw = type_ == _TEXT
    if not is_raw and type_ not in (*_EXACT, *_FLOATS):
        return known
    try:
        least = statistics.min_raw if is_raw else statistics.min
        most = statistics.max_raw if is_raw else statistics.max
    except (ValueError, ArithmeticError):
        return known
    if least is None or most is None or not least <= most:  # so that NaN is unknown too
        return known
    return Bounds(num_rows, num_nulls, least, most, type_ in _FLOATS)


def _outcomes(node: Node, bounds: Mapping[tuple[str, ...], Bounds]) -> _Outcomes:
    if isinstance(node, Not):
        inner = _outcomes(node.node, bounds)
        return _Outcomes(inner.false, inner.true)
    if isinstance(node, (All, Any)):
        inners = [_outcomes(inner, bounds) for inner in node.nodes]
        true, false = ([inner[i] for inner in inners] for i in range(2))
        if isinstance(node, All):
            return _Outcomes(all(true), any(false))
        return _Outcomes(any(true), all(false))
    found = bounds.get(node.column.names)
    return _UNKNOWN if found is None else _of_test(node, found)


def _of_test(test: Test, found: Bounds) -> _Outcomes:
    num_nulls = found.num_nulls
    if isinstance(test, IsNull) and num_nulls is not None:
        return _Outcomes(num_nulls > 0, num_nulls < found.num_rows)
    if num_nulls == found.num_rows:
        return _Outcomes(False, False)
    if found.least is None or getattr(test, "of_length", False):
        return _UNKNOWN
    if isinstance(test, Relation):
        return _of_comparison(test.operator, test.value, found)
    if isinstance(test, Membership):
        each = [_of_comparison("==", value, found) for value in test.values]
        return _Outcomes(any(one.true for one in each), all(one.false for one in each))
    return _UNKNOWN


def _of_comparison(operator: str, value: Value, found: Bounds) -> _Outcomes:
    limit: AnyValue = value.encode() if isinstance(value, str) else value
    least, most = found.least, found.most
    if isinstance(limit, bytes) != isinstance(least, bytes):
        return _UNKNOWN
    if operator in ("!=", ">", ">="):
        opposite = {"!=": "==", ">": "<=", ">=": "<"}[operator]
        inner = _within(opposite, limit, least, most)
        true, false = inner.false, inner.true
    else:
        true, false = _within(operator, limit, least, most)
    if found.may_be_nan:
        true, false = (True, false) if operator == "!=" else (true, True)
    return _Outcomes(true, false)


def _within(operator: str, limit: AnyValue, least: AnyValue, most: AnyValue) -> _Outcomes:
    """Of ==, < and <=, for values between `least` and `most`."""
    if operator == "==":
        return _Outcomes(least <= limit <= most, not least == limit == most)
    if operator == "<":
        return _Outcomes(least < limit, most >= limit)
    return _Outcomes(least <= limit, most > limit)
