"""Writes TOML: strings, numbers, booleans and lists of these, in tables of one level.

The standard library only reads TOML. tomllib reads what this writes as the same values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t"}
_ESCAPES |= {"\n": "\\n", "\f": "\\f", "\r": "\\r"}
_WIDTH = 90  # a longer list has a line for each item


def toml_text(options: Mapping[str, Any], tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Options first, then each table under its heading, such as `source.web`. Option names and the
    parts of a heading must be bare keys."""
    lines = [*_lines(options)]
    for heading, table in tables.items():
        lines += ["", f"[{heading}]", *_lines(table)]
    return "".join(f"{line}\n" for line in lines)


def _lines(options: Mapping[str, Any]) -> Iterator[str]:
    return (f"{name} = {_value(value)}" for name, value in options.items())


def _value(value: Any) -> str:
    if isinstance(value, str):
        return f'"{"".join(map(_character, value))}"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)  # inf and nan are also TOML
    if isinstance(value, (list, tuple)):
        return _list(map(_value, value))
    raise TypeError(f"no TOML for {value!r}")


def _list(items: Iterable[str]) -> str:
    items = list(items)
    line = f"[{', '.join(items)}]"
    return line if len(line) <= _WIDTH else "".join(["[\n", *(f"  {i},\n" for i in items), "]"])


def _character(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    is_control = character < " " or "\x7f" <= character < "\xa0"
    return f"\\u{ord(character):04x}" if is_control else character
