"""The values that an option can have: what is refused, and how a shell word becomes one.

`parse` takes what Python and TOML give, and words of a shell unless `typed` turns them into
something else first. It raises `Unfit`, whose text goes after the option's name.
"""

from __future__ import annotations

import csv
import difflib
import io
import os
import re
import shlex
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from numbers import Real
from typing import Any

from tokenmill.errors import ConfigError
from tokenmill.wording.quantities import count_of, share_of

# What --keep writes for every document besides columns of the corpus (encode/kept_file.py).
OWN_COLUMNS = ("_source", "_file", "_byte", "_row", "_tokens")


class Unfit(ValueError):
    """What is wrong with a value, and perhaps what to type."""

    def __init__(self, what: str, hint: str | None = None) -> None:
        super().__init__(what)
        self.what, self.hint = what, hint


@dataclass(frozen=True)
class Kind:
    words: str
    parse: Callable[[Any], Any]
    metavar: str = ""
    example: str = ""  # of a shell
    typed: Callable[[str], Any] | None = None
    written: Callable[[Any], str] = str  # back to what one types
    choices: tuple[str, ...] = ()

    def checked(self, called: str, value: Any) -> Any:
        """The value as it is used. Raises ConfigError, which calls the option `called`."""
        try:
            return self.parse(value)
        except Unfit as unfit:
            is_typed, hint = called.startswith("--"), unfit.hint
            if hint is None and is_typed and self.example:
                hint = f"{called} {self.example}"
            if isinstance(value, str) and (meant := nearest(value, self.choices)):
                hint = (
                    f"did you mean `{called} {meant}`?" if is_typed else f"did you mean {meant!r}?"
                )
            what = unfit.what or f" takes {self.words}, got {_shown(value)}"
            raise ConfigError(f"{called}{what}", hint=hint) from None


def nearest(name: str, known: Collection[str]) -> str | None:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    return near[0] if near else None


def _shown(value: Any) -> str:
    try:
        text = "a table" if isinstance(value, dict) else repr(value)
    except ValueError:
        return "a number of thousands of digits"
    return text if len(text) <= 60 else f"{text[:57]}..."


# Text


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise Unfit("")
    return value


def _separator(value: Any) -> str:
    if not _text(value):
        raise Unfit(" is empty", r"--separator '\n\n'")
    return str(value)


def _template(value: Any) -> str:
    from tokenmill.where.template import template_of

    template_of(_text(value))
    return str(value)


def _where(value: Any) -> str:
    from tokenmill.where.parser import parsed

    parsed(_text(value))
    return str(value)


def _file_name(value: Any) -> str:
    if not _text(value) or value.startswith(".") or set(value) & set("/\\\0"):
        raise Unfit(f" {value!r} cannot be part of a file name")
    return str(value)


def _path(value: Any) -> str:
    if not isinstance(value, (str, os.PathLike)):
        raise Unfit("")
    return os.fspath(value)


def _paths(value: Any) -> tuple[str, ...]:
    is_one = isinstance(value, (str, os.PathLike)) or not isinstance(value, Iterable)
    return tuple(map(_path, [value] if is_one else value))


def unescaped(text: str) -> str:
    r"""Text as typed in a shell: \n, \t, \r, \0, \\ and \xNN are escapes."""
    names = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}
    return ESCAPE.sub(lambda match: names.get(match[0][1:]) or chr(int(match[0][2:], 16)), text)


def _escaped(text: str) -> str:
    return text.encode("unicode_escape").decode()


ESCAPE = re.compile(r"\\(?:[ntr0\\]|x[0-9a-fA-F]{2})")

TEXT = Kind("text", _text, "TEXT")
SEPARATOR = Kind("text", _separator, "SEP", typed=unescaped, written=_escaped)
TEMPLATE = Kind("text", _template, "TEXT", typed=unescaped, written=_escaped)
WHERE = Kind("an expression", _where, "EXPR")
FILE_NAME = Kind("text", _file_name, "NAME")
PATH = Kind("a path", _path, "PATH")
TOKENIZER = Kind("a name or a path", _path, "NAME|FILE")
PATHS = Kind("a path, or a list of paths", _paths, "SOURCE")


def text(metavar: str) -> Kind:
    return Kind("text", _text, metavar)


def choice(*names: str) -> Kind:
    """One of these names."""

    def parse(value: Any) -> str:
        if value not in names:
            known = "" if len(names) == 1 else "one of "
            raise Unfit(f" is {known}{', '.join(names)}; got {_shown(value)}")
        return str(value)

    metavar = f"{{{','.join(names)}}}"
    return Kind(f"one of {', '.join(names)}", parse, metavar, names[0], choices=names)


# Numbers


def _count(value: Any) -> int:
    """A positive number, in Python also as people write it: "100M"."""
    try:
        found = count_of("", value)
    except ConfigError as error:
        if "must be positive" in error.message:
            raise Unfit(error.message) from None
        raise Unfit("") from None
    if found <= 0:
        raise Unfit(f" must be positive, got {found}")
    if found >= 1 << 63:
        raise Unfit(f" must be below 2^63, got {_shown(found)}")
    return found


def _seq_len(value: Any) -> int:
    """Tokens per sample. `document` is 0: each document is a sample."""
    if value in ("document", "documents") or (type(value) is int and value == 0):
        return 0
    found = _count(value)
    if found >= 1 << 31:
        raise Unfit(f" must be below 2^31, got {found}")
    return found


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise Unfit("")
    return float(value)


def _positive(value: Any) -> float:
    if not _number(value) > 0:  # so that nan is refused, too
        raise Unfit(f" must be positive, got {value}")
    return float(value)


def _fraction(value: Any) -> float:
    if not 0 < _number(value) < 1:
        raise Unfit(f" must lie between 0 and 1, got {value}")
    return float(value)


def _tolerated(value: Any) -> float:
    if not 0 <= _number(value) <= 1:
        raise Unfit(f" must lie in [0, 1], got {value}")
    return float(value)


def _share(value: Any) -> float:
    try:
        return _fraction(share_of("", value))
    except ConfigError:
        raise Unfit("") from None


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise Unfit("")
    return int(value.__index__())


def _seed(value: Any) -> int:
    if not 0 <= (found := _whole(value)) < 1 << 64:
        raise Unfit(f" must lie in [0, 2^64), got {_shown(found)}")
    return found


def _typed_whole(word: str) -> Any:
    return int(word) if re.fullmatch(r"[+-]?\d{1,30}", word) else word


def _typed_number(word: str) -> Any:
    try:
        return float(word)
    except ValueError:
        return word


def _switch(value: Any) -> bool:
    if type(value).__name__ not in ("bool", "bool_"):  # NumPy's
        raise Unfit("")
    return bool(value)


COUNT = Kind('a whole number, such as 1000 or "100M"', _count, "N", "100M")
WORKERS = Kind("a whole number", _count, "N", "8")
MEMORY = Kind('a number of bytes, such as "2G"', _count, "N", "2G")
SEQ_LEN = Kind(
    "a whole number, or `document`", _seq_len, "N", "2048", written=lambda n: str(n or "document")
)
WHOLE = Kind("a whole number", _whole, "N", "8080", typed=_typed_whole)
SEED = Kind("a whole number", _seed, "S", "42", typed=_typed_whole)
SHARE = Kind('a number, such as 0.1 or "10%"', _share, "F", "0.1")
FRACTION = Kind("a number", _fraction, "F", "0.01", typed=_typed_number)
TOLERATED = Kind("a number", _tolerated, "F", "0.01", typed=_typed_number)
POSITIVE = Kind("a number", _positive, "N", "1", typed=_typed_number)
SECONDS = Kind("a number", _positive, "S", "300", typed=_typed_number)
SWITCH = Kind("true or false", _switch)


# Columns


def columns_in(text: str) -> tuple[str, ...]:
    """Column names separated by commas; a name that contains a comma is in double quotes."""
    try:
        rows = list(csv.reader([text], skipinitialspace=True, strict=True))
    except csv.Error as error:
        raise ConfigError(f"--keep {text!r}: {error}", hint="--keep id,url") from None
    return tuple(dict.fromkeys(name.strip() for row in rows for name in row))


def comma_separated(names: Iterable[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(names)
    return text.getvalue()


def _columns(value: Any) -> str:
    """Comma-separated values; Python callers may also pass a list of names."""
    if isinstance(value, str):
        value = columns_in(value.strip())
    if not isinstance(value, Iterable):
        raise Unfit("")
    names = tuple(map(str, value))
    if own := [name for name in names if name in OWN_COLUMNS]:
        others = comma_separated(name for name in names if name not in OWN_COLUMNS)
        raise Unfit(
            f" {own[0]}: tokenmill writes a column of this name itself, for every document",
            f"--keep {shlex.quote(others)}; to keep a column {own[0]} of the files, rename it",
        )
    for name in names:
        if not name:
            what = ": a column name is empty"
            raise Unfit(what, "--keep id,url; a column without a name cannot be kept: rename it")
        if "\n" in name or "\r" in name:
            raise Unfit(": a column name contains a line break")
        if name != name.encode(errors="replace").decode():
            raise Unfit(f": {name!r} is not valid Unicode")
    return comma_separated(names)


COLUMNS = Kind("columns, as id,url", _columns, "COLUMNS", "id,url")
