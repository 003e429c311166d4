"""Finds an expression's columns in a schema, and checks their names and types before anything is
read."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

import pyarrow as pa

from tokenmill.errors import ConfigError
from tokenmill.where.fields import Field, Fields, field_at, kind_of, paths_in
from tokenmill.where.moments import moment_of
from tokenmill.where.tree import (
    Column,
    Expression,
    Flag,
    IsNull,
    Match,
    Membership,
    Relation,
    Test,
    Value,
)
from tokenmill.wording.name_list import name_list


def fields_of(expression: Expression, schema: pa.Schema, path: str) -> Fields:
    """The expression's columns in the schema of `path`. Raises ConfigError for a column that is
    missing, or whose type does not support the test."""
    found: dict[tuple[str, ...], Field] = {}
    for test in expression.tests:
        column = test.column
        field = _field(expression, schema, column, path)
        found[column.names] = field
        if problem := _problem(test, field.type):
            what = f"{path}: {column} is {field.type}{problem}"
            raise expression.mistake(what, column, _way_out(test, kind_of(field.type)))
    require_patterns(expression)
    return found


def require_patterns(expression: Expression) -> None:
    """Raise ConfigError for a regular expression that RE2 does not accept."""
    import pyarrow.compute as pc

    for test in expression.tests:
        if isinstance(test, Match):
            try:
                pc.match_substring_regex(pa.nulls(1, pa.large_string()), test.pattern)
            except pa.ArrowException as error:
                hint = "the syntax is RE2's: github.com/google/re2/wiki/Syntax"
                raise expression.mistake(f"{error}", test.column, hint) from None


def kinds_for(test: Test) -> tuple[str, ...]:
    """The kinds of columns that a test applies to; empty: all."""
    if isinstance(test, IsNull):
        return ()
    if isinstance(test, Flag):
        return ("a boolean",)
    if isinstance(test, Match):
        return ("text",)
    if test.of_length:
        return ("text", "a list")
    return _common([_kinds_of_value(value) for value in _values(test)])


def misspelled(
    expression: Expression, column: Column, known: Iterable[str], what: str
) -> ConfigError:
    """The error for a missing column; suggests a similar one."""
    known = list(known)
    near = difflib.get_close_matches(str(column), known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {name_list(known)}"
    return expression.mistake(what, column, hint)


def _field(expression: Expression, schema: pa.Schema, column: Column, path: str) -> Field:
    for names in ((str(column),), column.names):
        indices = schema.get_all_field_indices(names[0])
        if len(indices) > 1:
            raise expression.mistake(f"{path}: {len(indices)} columns have this name", column)
        if field := field_at(schema, names):
            return field
    raise misspelled(expression, column, paths_in(schema), f"{path}: no column {column.shown!r}")


def _problem(test: Test, type_: pa.DataType) -> str:
    """What is wrong with testing a column of this type so; empty: nothing."""
    kinds = kinds_for(test)
    if kinds and kind_of(type_) not in kinds:
        what = "its length" if getattr(test, "of_length", False) else "it"
        return f", and {what} is tested as {kinds[-1]}"
    if kind_of(type_) == "a time":
        for value in _values(test):
            try:
                moment_of(str(value), type_)
            except ValueError as error:
                return f": {error}"
    return ""


def _way_out(test: Test, kind: str) -> str | None:
    values = _values(test)
    if kind == "text" and values:
        return f'text in quotes: "{values[0]}"'
    if kind == "a number" and isinstance(values[:1], tuple) and values:
        return f"a number without quotes: {values[0]}"
    return {
        "a time": '"2024-01-31" or "2024-01-31T12:00:00"',
        "a boolean": f"{test.column} or not {test.column}",
        "a list": f"len({test.column}) > 0",
        "something else": f"{test.column} is not null",
    }.get(kind)


def _values(test: Test) -> tuple[Value, ...]:
    if isinstance(test, Relation):
        return (test.value,)
    return test.values if isinstance(test, Membership) else ()


def _kinds_of_value(value: Value) -> tuple[str, ...]:
    if isinstance(value, bool):
        return ("a boolean",)
    return ("a time", "text") if isinstance(value, str) else ("a number",)


def _common(kinds: list[tuple[str, ...]]) -> tuple[str, ...]:
    first, *others = kinds
    found = tuple(kind for kind in first if all(kind in other for other in others))
    return found or ("values of one kind",)
