"""Expressions for --where, each with its meaning in plain Python: rows are dicts, null is None.

Shares no code with tokenmill: true, false or None for a row, by Python's own comparisons, `len`
and `re`.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

Row = dict[str, Any]
Meaning = Callable[[Row], bool | None]
Expression = tuple[str, Meaning]

OPERATORS = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
WORDS = ["", "a", "ab", "b", "é", "漢", "a'b", 'say "so"', "1"]
INTEGERS = [-(2**63), -3, -1, 0, 1, 2, 3, 2**53, 2**53 + 1, 2**63 - 1]
FLOATS = [-1.5, -0.0, 0.0, 0.5, 1.0, 2.0, 3.5, float(2**53), float("inf"), float("nan")]
PATTERNS = ["a", "^a", "b$", "^$", "[ab]+", "(a|é)b?", r"\d", "."]

rows = st.fixed_dictionaries(
    {
        "text": st.sampled_from(["x", "yy", "é漢", "a b"]),
        "count": st.none() | st.sampled_from(INTEGERS),
        "score": st.none() | st.sampled_from(FLOATS),
        "word": st.none() | st.sampled_from(WORDS),
        "flag": st.none() | st.booleans(),
        "meta": st.none() | st.fixed_dictionaries({"n": st.none() | st.integers(-2, 4)}),
        "tags": st.none() | st.lists(st.sampled_from(WORDS), max_size=3),
    }
)


def of(row: Row, column: str) -> Any:
    value: Any = row
    for name in column.split("."):
        value = None if value is None else value[name]
    return value


def where_known(value: Any, meaning: Callable[[Any], bool]) -> bool | None:
    return None if value is None else meaning(value)


def shown(value: Any, quote: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return quote + value.replace("\\", "\\\\").replace(quote, "\\" + quote) + quote
    return repr(value)


numbers = st.sampled_from([*INTEGERS, 2**70, -(2**70)]) | st.sampled_from(
    [-1.5, 0.0, 0.5, 2.5, 3.5, 1e300, 9007199254740992.0]
)
words = st.sampled_from(WORDS)
quotes = st.sampled_from(["'", '"'])
columns = st.one_of(
    st.tuples(st.sampled_from(["count", "score", "meta.n"]), numbers),
    st.tuples(st.just("word"), words),
    st.tuples(st.just("flag"), st.booleans()),
)


@st.composite
def comparisons(draw: st.DrawFn) -> Expression:
    column, value = draw(columns)
    sign = draw(st.sampled_from(["==", "!="] if column == "flag" else list(OPERATORS)))
    compare, text = OPERATORS[sign], shown(value, draw(quotes))
    if draw(st.booleans()):
        flipped = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(sign, sign)
        return f"{text} {flipped} {column}", lambda row: where_known(
            of(row, column), lambda own: compare(own, value)
        )
    return f"{column} {sign} {text}", lambda row: where_known(
        of(row, column), lambda own: compare(own, value)
    )


@st.composite
def memberships(draw: st.DrawFn) -> Expression:
    column, value = draw(columns)
    kind = {"word": words, "flag": st.booleans()}.get(column, numbers)
    values = [value, *draw(st.lists(kind, max_size=4))]
    text = ", ".join(shown(value, draw(quotes)) for value in values)
    is_not = draw(st.booleans())
    return f"{column} {'not ' * is_not}in ({text})", lambda row: where_known(
        of(row, column), lambda own: any(own == value for value in values) != is_not
    )


@st.composite
def lengths(draw: st.DrawFn) -> Expression:
    column = draw(st.sampled_from(["word", "tags", "text"]))
    sign, value = draw(st.sampled_from(list(OPERATORS))), draw(st.integers(-1, 3))
    return f"len({column}) {sign} {value}", lambda row: where_known(
        of(row, column), lambda own: OPERATORS[sign](len(own), value)
    )


@st.composite
def matches(draw: st.DrawFn) -> Expression:
    column, pattern = draw(st.sampled_from(["word", "text"])), draw(st.sampled_from(PATTERNS))
    is_not = draw(st.booleans())
    # A backslash before a letter stays: nothing is doubled here.
    return f"{column} {'not ' * is_not}matches '{pattern}'", lambda row: where_known(
        of(row, column), lambda own: bool(re.search(pattern, own)) != is_not
    )


@st.composite
def null_tests(draw: st.DrawFn) -> Expression:
    column = draw(st.sampled_from(["count", "score", "word", "flag", "meta", "meta.n", "tags"]))
    is_not = draw(st.booleans())
    return f"{column} is {'not ' * is_not}null", lambda row: (of(row, column) is None) != is_not


flags: st.SearchStrategy[Expression] = st.just(("flag", lambda row: row["flag"]))


def joined(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    return st.one_of(
        st.builds(_not, inner),
        st.builds(_and, st.lists(inner, min_size=2, max_size=3)),
        st.builds(_or, st.lists(inner, min_size=2, max_size=3)),
    )


def _not(one: Expression) -> Expression:
    text, meaning = one
    return f"NOT ({text})", lambda row: where_known(meaning(row), operator.not_)


def _and(several: list[Expression]) -> Expression:
    def meaning(row: Row) -> bool | None:
        found = [one(row) for _, one in several]
        return False if False in found else None if None in found else True

    return " and ".join(f"({text})" for text, _ in several), meaning


def _or(several: list[Expression]) -> Expression:
    def meaning(row: Row) -> bool | None:
        found = [one(row) for _, one in several]
        return True if True in found else None if None in found else False

    return " or ".join(f"({text})" for text, _ in several), meaning


tests = st.one_of(comparisons(), memberships(), lengths(), matches(), null_tests(), flags)
expressions = st.recursive(tests, joined, max_leaves=6)
