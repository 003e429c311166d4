"""Applies --where to JSON lines.

Each line is parsed by Python on its own, at 330 MB/s: types differ from line to line, so there is
no schema for pyarrow's parser. A missing field is null. A value of the wrong type for the
expression is there, but cannot be read: if the outcome depends on what it is, the line is
quarantined. The first lines of a file are checked when the plan is made.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.arrays import binary_array_of, boolean_array_of, number_array_of, validity
from tokenmill.corpus.readers.choice import Chosen, chosen_of
from tokenmill.corpus.readers.jsonrows import (
    EXACT_DECODER,
    MISSING,
    BadLine,
    decoded_line,
    field_of,
    kind_of,
    object_of,
    paths_of,
    valid_text,
)
from tokenmill.where.columns import kinds_for, misspelled, require_patterns
from tokenmill.where.tree import Expression, Test

_INT64 = range(-(1 << 63), 1 << 63)
_TYPES: dict[str, tuple[type, ...]] = {
    "a boolean": (bool,),
    "a number": (int, float),
    "a time": (),  # JSON has none
    "text": (str,),
    "a list": (list,),
}
Names = tuple[str, ...]


class LineChoice:
    """An expression over the fields of JSON lines. Raises ConfigError if a field is tested as two
    different types."""

    def __init__(self, expression: Expression, replace: bool) -> None:
        self._expression = expression
        self._replace = replace
        self._types = _types_of(expression)
        require_patterns(expression)

    def require_fields(self, objects: Sequence[dict[str, Any]], path: str, lines: str) -> None:
        """Raise ConfigError if no object has a field, or if all that have it have it with the wrong
        type. (A single odd line is quarantined later.)"""
        for test in self._expression.tests:
            column = test.column
            found = [field_of(one, column.names) for one in objects]
            if all(value is MISSING for value in found):
                what = f"{path}: no field {column.shown!r} in {lines}"
                known = dict.fromkeys(key for one in objects for key in paths_of(one))
                raise misspelled(self._expression, column, known, what)
            given = [value for value in found if value is not MISSING and value is not None]
            problems = [self._problem(column.names, value) for value in given]
            if problems and all(problems):
                raise self._expression.mistake(f"{path}: {problems[0]}", column)

    def types_of(self, name: str) -> tuple[type, ...] | None:
        """The types that a field is tested as; None: any."""
        return next(types for names, types in self._types.items() if ".".join(names) == name)

    def among(self, lines: Sequence[bytes]) -> Chosen:
        """Which lines go in; those that are not JSON objects are bad."""
        objects: list[dict[str, Any]] = []
        bad: dict[int, str] = {}
        for line in lines:
            try:
                objects.append(object_of(decoded_line(line, self._replace)[0], EXACT_DECODER))
            except BadLine as reason:
                bad[len(objects)] = str(reason)
                objects.append({})
            except RecursionError:
                bad[len(objects)] = "not JSON: nested too deeply"
                objects.append({})
        return self.among_objects(objects, bad)

    def among_objects(self, objects: Sequence[dict[str, Any]], bad: Mapping[int, str]) -> Chosen:
        """The same for parsed lines; `bad` ones are undecided."""
        from tokenmill.where.evaluation import Truth, Values, outcome_of_rows

        reasons = dict(bad)
        found: dict[tuple[Names, bool], Values] = {}

        def values_of(test: Test) -> Values:
            key = test.column.names, test.needs_utf8
            if key not in found:
                found[key] = Values(*self._values(*key, objects, reasons))
            return found[key]

        truth = outcome_of_rows(self._expression, values_of)
        if bad:
            is_bad = np.zeros(len(objects), np.bool_)
            is_bad[list(bad)] = True
            truth = Truth(*(flags | is_bad for flags in truth))
        return chosen_of(truth, reasons)

    def _values(
        self,
        names: Names,
        needs_utf8: bool,
        objects: Sequence[dict[str, Any]],
        reasons: dict[int, str],
    ) -> tuple[list[pa.Array], npt.NDArray[np.bool_]]:
        """A field of all lines as arrays by type, and which lines have it with another type."""
        values = []
        unreadable = np.zeros(len(objects), np.bool_)
        for row, one in enumerate(objects):
            value = field_of(one, names)
            if value is MISSING:
                value = None
            elif isinstance(value, bytes) and needs_utf8 and self._replace:
                value = value.decode(errors="replace")
            if problem := self._problem(names, value, needs_utf8):
                reasons.setdefault(row, problem)
                unreadable[row] = True
                value = None
            values.append(value)
        types = self._types[names]
        if types is None:
            layers = [boolean_array_of([None if value is None else True for value in values])]
        else:
            layers = [layer for type_ in types for layer in _ARRAYS[type_](values)]
        return layers, unreadable

    def _problem(self, names: Names, value: Any, needs_utf8: bool = False) -> str | None:
        types = self._types[names]
        if types is None or value is None:
            return None
        if isinstance(value, bytes) and str in types and not needs_utf8:  # of a CSV file
            return None
        if isinstance(value, types) and (not isinstance(value, bool) or bool in types):
            return None
        shown = " or ".join(_SHOWN[type_] for type_ in types if type_ is not float)
        return f"field {'.'.join(names)!r} is {kind_of(value)}, and is tested as {shown}"


def _types_of(expression: Expression) -> dict[Names, tuple[type, ...] | None]:
    """The types that each field is tested as; None: any."""
    found: dict[Names, tuple[type, ...] | None] = {}
    for test in expression.tests:
        names, kinds = test.column.names, kinds_for(test)
        types = tuple(type_ for kind in kinds for type_ in _TYPES.get(kind, ())) if kinds else None
        before = found.get(names)
        if before is not None and types is not None:
            types = tuple(type_ for type_ in before if type_ in types)
        elif types is None:
            types = before
        if types == ():
            what = f"{test.column} is tested as two different types"
            raise expression.mistake(what, test.column)
        found[names] = types
    return found


def _texts(values: list[Any]) -> list[pa.Array]:
    texts = [valid_text(value)[0].encode() if isinstance(value, str) else value for value in values]
    return [binary_array_of([text if isinstance(text, bytes) else None for text in texts])]


def _integers(values: list[Any]) -> list[pa.Array]:
    own = [value if type(value) is int and value in _INT64 else None for value in values]
    return [number_array_of(own, pa.int64())]


def _floats(values: list[Any]) -> list[pa.Array]:
    """The other numbers; an integer beyond int64 becomes the nearest float."""
    others = (
        type(value) is float or (type(value) is int and value not in _INT64) for value in values
    )
    own = [_float(value) if is_own else None for value, is_own in zip(values, others, strict=True)]
    return [number_array_of(own, pa.float64())]


def _float(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _booleans(values: list[Any]) -> list[pa.Array]:
    return [boolean_array_of([v if isinstance(v, bool) else None for v in values])]


def _lists(values: list[Any]) -> list[pa.Array]:
    """The lists' lengths are all that is asked about: their elements are nulls."""
    own = [value if isinstance(value, list) else None for value in values]
    ends = np.cumsum([0, *(len(value or ()) for value in own)], dtype=np.int64)
    type_, elements = pa.large_list(pa.null()), pa.nulls(int(ends[-1]))
    buffers = [validity(own), pa.py_buffer(ends)]
    return [pa.Array.from_buffers(type_, len(own), buffers, children=[elements])]


_ARRAYS = {str: _texts, int: _integers, float: _floats, bool: _booleans, list: _lists}
_SHOWN = {str: "text", int: "a number", bool: "a boolean", list: "a list"}


choice_of = functools.lru_cache(maxsize=16)(LineChoice)
