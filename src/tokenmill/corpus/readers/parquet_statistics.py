"""Whether any row of a parquet row group can pass, by the minimum, maximum and number of nulls that
its footer states.

Every answer errs on the side of passing: what the footer does not state may be anything. Minimum
and maximum ignore NaN, so a column of floating-point numbers may always hold one.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping
from typing import Any as AnyValue
from typing import NamedTuple

import pyarrow.parquet as pq

from tokenmill.where.evaluation import Truth, outcome
from tokenmill.where.tree import Expression, IsNull, Membership, Relation, Test, Value

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


Chunks = Mapping[tuple[str, ...], pq.ColumnChunkMetaData]  # by the names in the expression
_UNKNOWN = Truth(True, True, True)


def may_pass(expression: Expression, num_rows: int, chunks: Chunks) -> bool:
    """Whether any row of the group can pass."""
    bounds = {names: bounds_of(num_rows, chunk) for names, chunk in chunks.items()}

    def of_test(test: Test) -> Truth:
        found = bounds.get(test.column.names)
        return _UNKNOWN if found is None else _of_test(test, found)

    return bool(outcome(expression.root, of_test).true)


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


def _of_test(test: Test, found: Bounds) -> Truth:
    num_nulls = found.num_nulls
    if isinstance(test, IsNull):
        if num_nulls is None:
            return _UNKNOWN
        return Truth(num_nulls > 0, num_nulls < found.num_rows, False)
    if num_nulls == found.num_rows:
        return Truth(False, False, True)
    if not isinstance(test, (Relation, Membership)) or test.of_length or found.least is None:
        return _UNKNOWN
    if isinstance(test, Relation):
        return _of_comparison(test.operator, test.value, found)
    return functools.reduce(operator.or_, (_of_comparison("==", v, found) for v in test.values))


def _of_comparison(sign: str, value: Value, found: Bounds) -> Truth:
    limit: AnyValue = value.encode() if isinstance(value, str) else value
    least, most = found.least, found.most
    if isinstance(limit, bytes) != isinstance(least, bytes):
        return _UNKNOWN
    if opposite := {"!=": "==", ">": "<=", ">=": "<"}.get(sign):
        false, true = _within(opposite, limit, least, most)
    else:
        true, false = _within(sign, limit, least, most)
    if found.may_be_nan:
        true, false = (True, false) if sign == "!=" else (True, True)
    return Truth(true, false, found.num_nulls != 0)


def _within(sign: str, limit: AnyValue, least: AnyValue, most: AnyValue) -> tuple[bool, bool]:
    """Whether a value between `least` and `most` may be ==, < or <= the limit, and whether one may
    not."""
    if sign == "==":
        return least <= limit <= most, not least == limit == most
    if sign == "<":
        return least < limit, most >= limit
    return least <= limit, most > limit
