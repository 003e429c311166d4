"""Fields of JSON objects that are kept beside the tokens (--keep), as in kept_columns.py."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from tokenmill.arrays import boolean_array_of, number_array_of, text_array_of
from tokenmill.corpus.readers.jsonrows import MISSING, field_of, paths_of, valid_text
from tokenmill.corpus.readers.kept_columns import (
    Kept,
    Names,
    misspelled,
    schema_of,
    shown,
    struct_of,
)

Objects = Sequence[dict[str, Any]]


def lines_schema(objects: Objects, columns: Names, path: str, lines: str) -> pa.Schema:
    """The types of fields in the first lines of a file. Raises ConfigError for a field that none of
    them has."""
    fields = []
    for column in columns:
        values = _values(objects, column)
        if objects and all(value is MISSING for value in values):
            known = dict.fromkeys(key for one in objects for key in paths_of(one))
            what = f"{path}: no field {column!r} in {lines}"
            raise misspelled(column, what, known, columns)
        fields.append(pa.field(column, _type_of(values)))
    return pa.schema(fields)


def kept_of_objects(objects: Objects, columns: Names, text: str) -> Kept:
    """The kept fields of JSON lines, in the plan's types. A missing field is null."""
    bad: dict[int, str] = {}
    target = schema_of(text)
    arrays = []
    for column, field in zip(columns, target, strict=True):
        values = [None if value is MISSING else value for value in _values(objects, column)]
        if field.type == pa.large_string():
            arrays.append(text_array_of([_text_of(value) for value in values]))
        else:
            arrays.append(_typed(values, field, bad))
    return Kept(struct_of(arrays, target), bad)


def _values(objects: Objects, column: str) -> list[Any]:
    names = tuple(column.split("."))
    return [field_of(one, names) for one in objects]


def _type_of(values: Iterable[Any]) -> pa.DataType:
    kinds = {type(value) for value in values if value is not None and value is not MISSING}
    if not kinds:
        return pa.null()
    if kinds == {bool}:
        return pa.bool_()
    if kinds == {int}:
        return pa.int64()
    return pa.float64() if kinds <= {int, float} else pa.large_string()


def _text_of(value: Any) -> str | None:
    if value is None:
        return None
    return valid_text(value if isinstance(value, str) else json.dumps(value))[0]


def _typed(values: list[Any], field: pa.Field, bad: dict[int, str]) -> pa.Array:
    try:
        found = _as_they_are(values, field.type)
        return pa.array(values, field.type) if found is None else found
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        pass
    for row, value in enumerate(values):
        try:
            pa.array([value], field.type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            what = f"field {field.name!r} is {json.dumps(value)[:40]}, and is kept as "
            bad[row] = what + shown(field.type)
            values[row] = None
    return pa.array(values, field.type)


def _as_they_are(values: list[Any], type_: pa.DataType) -> pa.Array | None:
    """The values if each is of the column's own type, which needs no pandas (arrays.py)."""
    kinds = set(map(type, values)) - {type(None)}
    if type_ == pa.bool_() and kinds <= {bool}:
        return boolean_array_of(values)
    if (type_ == pa.int64() and kinds <= {int}) or (type_ == pa.float64() and kinds <= {float}):
        return number_array_of(values, type_)
    return None
