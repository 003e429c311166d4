"""An expression as plain data: tests of columns, joined by and, or, not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from tokenmill.errors import ConfigError

SHOWN = 100  # characters of the text around a mistake


class ExactNumber(float):
    """A number that is not whole, with its digits: a decimal is compared with these, because 0.1 is
    not a floating-point number."""

    digits: str

    def __new__(cls, digits: str) -> ExactNumber:
        number = super().__new__(cls, digits)
        number.digits = digits
        return number


Value = str | int | float | bool | Fraction


@dataclass(frozen=True, slots=True)
class Column:
    """A column as written: `meta.lang` has two names. `start` and `stop` are its place in the
    text."""

    names: tuple[str, ...]
    start: int
    stop: int

    def __str__(self) -> str:
        return ".".join(self.names)

    @property
    def shown(self) -> str:
        """Shortened for a message, which shows the expression too."""
        name = str(self)
        return name if len(name) <= SHOWN else f"{name[:SHOWN]}..."


@dataclass(frozen=True, slots=True)
class Relation:
    column: Column
    operator: str  # == != < <= > >=
    value: Value
    of_length: bool = False  # len(column)

    @property
    def needs_utf8(self) -> bool:
        """Whether text must be valid for the test; else it is bytes."""
        return self.of_length


@dataclass(frozen=True, slots=True)
class Membership:
    column: Column
    values: tuple[Value, ...]
    of_length: bool = False

    @property
    def needs_utf8(self) -> bool:
        return self.of_length


@dataclass(frozen=True, slots=True)
class Match:
    column: Column
    pattern: str
    needs_utf8: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class IsNull:
    column: Column
    needs_utf8: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Flag:
    """A boolean column on its own."""

    column: Column
    needs_utf8: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Not:
    node: Node


@dataclass(frozen=True, slots=True)
class All:
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Any:
    nodes: tuple[Node, ...]


Test = Relation | Membership | Match | IsNull | Flag
Node = Test | Not | All | Any


@dataclass(frozen=True, slots=True)
class Expression:
    text: str
    root: Node

    @property
    def tests(self) -> list[Test]:
        return list(_tests(self.root))

    @property
    def columns(self) -> list[tuple[str, ...]]:
        """The names of the columns, each once."""
        return list(dict.fromkeys(test.column.names for test in self.tests))

    def mistake(self, what: str, column: Column, hint: str | None = None) -> ConfigError:
        return mistake(self.text, what, column.start, column.stop, hint)


def _tests(node: Node) -> Iterator[Test]:
    if isinstance(node, Not):
        yield from _tests(node.node)
    elif isinstance(node, (All, Any)):
        for inner in node.nodes:
            yield from _tests(inner)
    else:
        yield node


def mistake(
    text: str, what: str, start: int, stop: int, hint: str | None = None, option: str = "--where"
) -> ConfigError:
    """The error for a mistake in an expression or a template, with carets under it."""
    first = max(0, start - SHOWN // 2)
    shown = "".join(c if c.isprintable() else " " for c in text[first : first + SHOWN])
    before = "... " if first else ""
    carets = "^" * max(1, min(stop, first + SHOWN) - start)
    place = " " * (len(before) + start - first)
    return ConfigError(f"{option}: {what}\n  {before}{shown}\n  {place}{carets}", hint=hint)
