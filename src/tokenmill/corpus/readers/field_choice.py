"""Applies --where to the records of a CSV or TSV file.

Fields have no types: each is read as the type that it is compared with, by the rules of JSON lines
(json_choice.py). An empty field is null.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tokenmill.corpus.readers import ReadOptions
from tokenmill.corpus.readers.choice import Chosen
from tokenmill.corpus.readers.json_choice import choice_of
from tokenmill.where.columns import misspelled
from tokenmill.where.parser import parsed


def chosen_records(batch: pa.RecordBatch, bad: dict[int, str], options: ReadOptions) -> Chosen:
    """The records that satisfy --where, if it is given; the outcome of `bad` ones is unknown."""
    if options.where is None:
        return Chosen(np.ones(len(batch), np.bool_), bad)
    choice = choice_of(parsed(options.where), options.replace_bad_text)
    names = [".".join(one) for one in parsed(options.where).columns]
    columns = [
        [_value(field, types, options.replace_bad_text) for field in column.to_pylist()]
        for column, types in ((batch.column(n), choice.types_of(n)) for n in names)
    ]
    rows = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
    return choice.among_objects(rows, bad)


def _value(field: bytes | None, types: tuple[type, ...] | None, replace: bool) -> Any:
    """A field as the type it is tested as; as text or bytes if that fails."""
    if not field:
        return None
    try:
        text = field.decode()
    except UnicodeDecodeError:
        if not replace or types is None or str in types:
            return field
        text = field.decode(errors="replace")
    if types is not None and int in types:
        return _number(text)
    if types is not None and bool in types:
        return {"true": True, "false": False}.get(text.strip().lower(), text)
    return text


def _number(text: str) -> int | float | str:
    try:
        return int(text) if text.lstrip("+-").isdigit() and len(text) < 400 else float(text)
    except ValueError:
        return text


def require_columns(where: str, names: Sequence[str], path: str) -> None:
    """Raise ConfigError for a column that the header does not name, or tested as two types."""
    expression = parsed(where)
    for test in expression.tests:
        if str(test.column) not in names:
            what = f"{path}: no column {test.column.shown!r}"
            raise misspelled(expression, test.column, names, what)
    choice_of(expression, replace=False)  # refuses a column that is tested as two types
