"""The grammar of `--where`:

    either     = both {"or" both}
    both       = negated {"and" negated}
    negated    = "not" negated | "(" either ")" | test
    test       = operand [comparison operand | ["not"] "in" "(" value {"," value} ")"
               | "is" ["not"] "null" | ["not"] "matches" string]
    operand    = column | "len" "(" column ")" | value
    column     = name {"." name}             a name in `backquotes` may hold anything
    value      = string | number | "true" | "false"

Keywords may be written in any case. In a string a backslash escapes a quote, itself, n, r, t and
uXXXX; before anything else it stays, so that regular expressions need no second one.
"""

from __future__ import annotations

import functools
import math
import re
from fractions import Fraction
from typing import NamedTuple

from tokenmill.errors import ConfigError
from tokenmill.where import tree
from tokenmill.where.tree import mistake

MAX_LENGTH = 1 << 16
MAX_DEPTH = 100
MAX_DIGITS = 400
_KEYWORDS = frozenset({"and", "or", "not", "in", "is", "null", "matches", "true", "false"})
_FLIPPED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>[-+]?(?:[0-9][0-9_]*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)(?!\w)
    | (?P<name>[^\W\d]\w*)
    | (?P<quoted>`[^`]+`)
    | (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<operator>==|!=|<=|>=|<>|&&|\|\||[<>=!()&|,.~])
    )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|[\\\"'nrt])")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}
_VALUES = (str, int, float, Fraction)
# What other languages write.
_OTHERS = {
    **{"=": "==", "<>": "!=", "&&": "and", "&": "and", "||": "or", "|": "or", "!": "not"},
    **{"~": "matches", "=~": "matches", "none": "null"},
}
_INSTEAD = {
    "between": "column >= 1 and column <= 5",
    "contains": 'column matches "part of the text", a regular expression',
    "like": 'column matches "part of the text", a regular expression',
    "startswith": 'column matches "^beginning"',
    "endswith": 'column matches "end$"',
    "length": "len(column) >= 100",
    "len": "len(column) >= 100",
}


class _Token(NamedTuple):
    kind: str  # number, name, quoted, string, operator, end
    text: str
    start: int
    stop: int


class _Length(NamedTuple):
    """len(column)."""

    column: tree.Column


@functools.lru_cache(maxsize=16)
def parsed(text: str) -> tree.Expression:
    """The expression. Raises ConfigError with a caret under what is wrong."""
    if len(text) > MAX_LENGTH:
        raise ConfigError(f"--where has {len(text):,} characters; at most {MAX_LENGTH:,} are read")
    if not text.strip():
        raise ConfigError("--where is empty", hint="--where 'int_score >= 3'")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise mistake(text, "not valid Unicode", error.start, error.end) from None
    return tree.Expression(text, _Parser(text).whole())


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._at = 0
        self._depth = 0

    def whole(self) -> tree.Node:
        node = self._either()
        if self._next.kind != "end":
            raise self._wrong(self._next, f"expected `and`, `or` or the end, got {self._shown}")
        return node

    def _either(self) -> tree.Node:
        nodes = [self._both()]
        while self._took("or"):
            nodes.append(self._both())
        return nodes[0] if len(nodes) == 1 else tree.Any(tuple(nodes))

    def _both(self) -> tree.Node:
        nodes = [self._negated()]
        while self._took("and"):
            nodes.append(self._negated())
        return nodes[0] if len(nodes) == 1 else tree.All(tuple(nodes))

    def _negated(self) -> tree.Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._wrong(self._next, f"nested more than {MAX_DEPTH} deep")
        if self._took("not"):
            node: tree.Node = tree.Not(self._negated())
        elif self._took("("):
            node = self._either()
            self._expect(")")
        else:
            node = self._test()
        self._depth -= 1
        return node

    def _test(self) -> tree.Node:
        first = self._next
        left = self._operand()
        if self._next.text in _FLIPPED:
            return self._comparison(first, left)
        if isinstance(left, _VALUES):
            raise self._wrong(first, "a value on its own: compare it with a column")
        column, of_length = (left.column, True) if isinstance(left, _Length) else (left, False)
        if self._took("is"):
            return self._null_test(first, column, of_length)
        is_not = self._took("not")
        if self._took("in"):
            node: tree.Test = tree.Membership(column, self._values(of_length), of_length)
        elif self._took("matches"):
            if of_length:
                raise self._wrong(first, "a length is a number, and only text matches")
            node = tree.Match(column, self._pattern())
        elif is_not:
            raise self._wrong(self._next, f"expected `in` or `matches`, got {self._shown}")
        elif of_length:
            raise self._wrong(self._next, f"expected a comparison, got {self._shown}")
        else:
            node = tree.Flag(column)
        return tree.Not(node) if is_not else node

    def _comparison(self, first: _Token, left: tree.Column | _Length | tree.Value) -> tree.Relation:
        operator = self._taken().text
        second = self._next
        right = self._operand()
        of_value = first if isinstance(left, _VALUES) else second
        if isinstance(left, _VALUES):
            left, right, operator = right, left, _FLIPPED[operator]
        if isinstance(left, _VALUES):
            raise self._wrong(first, "two values: compare a column with one")
        if not isinstance(right, _VALUES):
            what = "a column is compared with a value, not with another column"
            raise self._wrong(second, what, 'text in quotes: "en"')
        if self._next.text in _FLIPPED:
            raise self._wrong(self._next, "one comparison at a time", "a >= 1 and a < 5")
        if isinstance(left, _Length):
            self._require_number(of_value, right)
            return tree.Relation(left.column, operator, right, of_length=True)
        return tree.Relation(left, operator, right)

    def _null_test(self, first: _Token, column: tree.Column, of_length: bool) -> tree.Node:
        is_not = self._took("not")
        if not self._took("null"):
            raise self._wrong(self._next, f"expected `null`, got {self._shown}")
        if of_length:
            raise self._wrong(first, "a length is null where its column is", f"{column} is null")
        return tree.Not(tree.IsNull(column)) if is_not else tree.IsNull(column)

    def _values(self, of_length: bool) -> tuple[tree.Value, ...]:
        self._expect("(")
        values = [self._value(of_length)]
        while self._took(","):
            values.append(self._value(of_length))
        self._expect(")")
        return tuple(values)

    def _value(self, of_length: bool = False) -> tree.Value:
        token, value = self._next, self._operand()
        if not isinstance(value, _VALUES):
            raise self._wrong(token, "expected a value, got a column", 'text in quotes: "en"')
        if of_length:
            self._require_number(token, value)
        return value

    def _require_number(self, token: _Token, value: tree.Value) -> None:
        if isinstance(value, str | bool):
            raise self._wrong(token, "a length is compared with a number", "len(column) >= 100")

    def _pattern(self) -> str:
        token, value = self._next, self._value()
        if not isinstance(value, str):
            raise self._wrong(token, "`matches` takes a regular expression in quotes")
        return value

    def _operand(self) -> tree.Column | _Length | tree.Value:
        token = self._taken()
        word = token.text.lower()
        if token.kind == "string":
            return self._string(token)
        if token.kind == "number":
            return self._number(token)
        if token.kind == "name" and word in ("true", "false"):
            return word == "true"
        if token.kind == "name" and word == "null":
            raise self._wrong(token, "nothing equals null", "column is null, column is not null")
        if token.kind == "name" and word == "len" and self._took("("):
            column = self._column(self._taken())
            self._expect(")")
            return _Length(column)
        return self._column(token)

    def _column(self, token: _Token) -> tree.Column:
        names, start = [self._name(token)], token.start
        while self._took("."):
            token = self._taken()
            names.append(self._name(token))
        return tree.Column(tuple(names), start, token.stop)

    def _name(self, token: _Token) -> str:
        if token.kind == "quoted":
            return token.text[1:-1]
        if token.kind != "name" or token.text.lower() in _KEYWORDS:
            raise self._wrong(token, f"expected a column or a value, got {_shown(token)}")
        return token.text

    def _string(self, token: _Token) -> str:
        value = _ESCAPE.sub(_unescaped, token.text[1:-1])
        try:
            value.encode()
        except UnicodeEncodeError:
            raise self._wrong(token, "half of a surrogate pair is not a character") from None
        return value

    def _number(self, token: _Token) -> int | float | Fraction:
        digits = token.text.replace("_", "")
        if len(digits) > MAX_DIGITS:
            raise self._wrong(token, f"a number of {len(digits):,} digits")
        if digits.lstrip("+-").isdigit():
            return int(digits)
        value = tree.ExactNumber(digits)
        if not math.isfinite(value):
            raise self._wrong(token, "too large a number")
        if abs(value) >= 1 << 53 and digits.lstrip("+-").replace(".", "").isdigit():
            return Fraction(digits)  # exact: beyond 2^53 a float cannot represent every integer
        return value

    # Tokens

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    @property
    def _shown(self) -> str:
        return _shown(self._next)

    def _taken(self) -> _Token:
        token = self._next
        self._at += token.kind != "end"
        return token

    def _took(self, text: str) -> bool:
        """Take the next token if it is this keyword or operator."""
        token = self._next
        is_it = token.kind in ("name", "operator") and token.text.lower() == text
        self._at += is_it
        return is_it

    def _expect(self, text: str) -> None:
        if not self._took(text):
            raise self._wrong(self._next, f"expected `{text}`, got {self._shown}")

    def _wrong(self, token: _Token, what: str, hint: str | None = None) -> ConfigError:
        is_word = token.kind in ("name", "operator")
        before = self._tokens[max(0, self._tokens.index(token) - 1)].text.lower()
        if is_word and (ours := _OTHERS.get(token.text.lower())):
            hint = f"write `{ours}`"
        elif is_word and (instead := _INSTEAD.get(token.text.lower()) or _INSTEAD.get(before)):
            hint = f"write {instead}"
        return mistake(self._text, what, token.start, token.stop, hint)


def _shown(token: _Token) -> str:
    return "the end" if token.kind == "end" else f"`{token.text[:40]}`"


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            raise mistake(text, _unknown(text[at]), at, at + 1)
        kind = match.lastgroup
        found.append(_Token(kind, match[kind], match.start(kind), match.end(kind)))
        at = match.end()
    found.append(_Token("end", "", end, end + 1))
    return found


def _unknown(character: str) -> str:
    if character in "\"'`":
        return f"the quote {character} is not closed"
    return f"unexpected {character!r}"


def _unescaped(match: re.Match[str]) -> str:
    escaped = match[1]
    if escaped[0] == "u" and len(escaped) > 1:
        return chr(int(escaped[1:], 16))
    return _ESCAPED.get(escaped, escaped)
