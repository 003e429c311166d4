"""What the rows of a file are by Python's own csv, json, bz2 and lzma: slow, and nothing of
tokenmill in it."""

from __future__ import annotations

import bz2
import csv
import io
import itertools
import json
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

ANY = object()  # a row of which Python's parser cannot say what it is
BLANK = b" \t\r\n"
BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Whole:
    """A whole number, as it is written: no text but in a template."""

    digits: str


_DECODER = json.JSONDecoder(parse_int=Whole)
_LIBRARIES: dict[str, Callable[[], Any]] = {
    "gz": lambda: zlib.decompressobj(31),
    "bz2": bz2.BZ2Decompressor,
    "xz": lzma.LZMADecompressor,
}

Texts = Callable[[Any], list[Any]]  # of a parsed row; None: it is bad


class Refused(Exception):
    """No reader can read this to its end."""


def rows(name: str, data: bytes, texts_of: Texts) -> list[Any] | None:
    """The texts of all rows of a .csv, .tsv, .json or .jsonl file, compressed or not; None if
    Python has no module for it. Raises Refused."""
    kind, *compression = name.split(".")[1:]
    if compression and compression[0] not in _LIBRARIES:
        return None
    data = _decompressed(data, _LIBRARIES[compression[0]]) if compression else data
    if kind == "txt":
        return None
    data = data.removeprefix(BOM)
    if kind in ("csv", "tsv"):
        found = _records(data, "," if kind == "csv" else "\t")
        return [_decoded(text) for row in found for text in _texts(row, texts_of)]
    if data.lstrip(BLANK).startswith(b"["):
        found = _elements(data)
    else:
        found = (_line(line) for line in data.split(b"\n") if line.strip(BLANK))
    return [_without_surrogates(text) for row in found for text in _texts(row, texts_of)]


def _decompressed(data: bytes, new: Callable[[], Any]) -> bytes:
    """All members, one after the other, and nothing after them."""
    found = b""
    while data or not found:
        member = new()
        try:
            found += member.decompress(data)
        except (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error):
            raise Refused("decompression") from None
        if not member.eof:
            raise Refused("a member that does not end")
        if not found and not member.unused_data:
            break
        data = member.unused_data
    return found


def _texts(row: Any, texts_of: Texts) -> list[Any]:
    return texts_of(row) if isinstance(row, dict) else [row]


def _decoded(text: str | None) -> str | None:
    """A field of a CSV file, in which bytes that are not UTF-8 are lone surrogates."""
    return None if text is None or any("\ud800" <= one <= "\udfff" for one in text) else text


def _without_surrogates(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _records(data: bytes, delimiter: str) -> Iterator[Any]:
    """Records by the names of the header; None for a bad one, which ends where it would without
    the carriage returns that Python refuses. A reader is not used again after an error: it would
    put what it has seen of the record into the next one."""
    lines = io.StringIO(data.decode(errors="surrogateescape"), newline="\n").readlines()
    header: list[str] | None = None
    at = 0
    while at < len(lines):
        try:
            fields, at = _record(itertools.islice(lines, at, None), delimiter, at)
        except csv.Error:
            some = (line[:-2].replace("\r", " ") + line[-2:] for line in lines[at:])
            _, at = _record(some, delimiter, at)
            yield None
            continue
        if header is None:
            header = fields or None
        elif fields:
            is_whole = len(fields) == len(header)
            yield dict(zip(header, fields, strict=True)) if is_whole else None


def _record(lines: Iterable[str], delimiter: str, at: int) -> tuple[list[str], int]:
    """The first record of some lines, and the number of the line after it."""
    reader = csv.reader(lines, delimiter=delimiter)
    fields = next(reader)
    return fields, at + reader.line_num


def may_be_deep(text: str) -> bool:
    """Whether it may be nested deeper than the levels that are read line by line."""
    return text.count("[") + text.count("{") > 400


def _line(line: bytes) -> Any:
    if may_be_deep(line.decode(errors="replace")):
        return ANY
    try:
        found = json.loads(line.decode(), parse_int=Whole)
    except RecursionError:
        return ANY
    except ValueError:  # Arrow's parser takes a few lines that Python's does not
        return ANY if b"Inf" in line else None
    return found if isinstance(found, dict) else None


def _elements(data: bytes) -> Iterator[Any]:
    text = data.decode(errors="surrogateescape")
    blank, at = BLANK.decode(), text.index("[") + 1
    is_first = True
    while True:
        at += len(text[at:]) - len(text[at:].lstrip(blank))
        if is_first and text[at : at + 1] == "]":
            break
        try:
            found, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            raise Refused("an element") from None
        is_utf8 = not any("\udc80" <= letter <= "\udcff" for letter in text[at:end])
        is_row = isinstance(found, dict) and is_utf8
        yield ANY if may_be_deep(text[at:end]) else found if is_row else None
        end += len(text[end:]) - len(text[end:].lstrip(blank))
        if text[end : end + 1] not in (",", "]"):
            raise Refused("what follows an element")
        at, is_first = end + 1, False
        if text[end] == "]":
            at = end
            break
    if text[at + 1 :].strip(blank):
        raise Refused("text after the end")


# What makes a row's text.


def at_path(row: dict[str, Any], path: str) -> Any:
    if path in row:
        return row[path]
    value: Any = row
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def column(path: str) -> Texts:
    return lambda row: [_string(at_path(row, path))]


def joined(path: str, separator: str) -> Texts:
    def texts(row: dict[str, Any]) -> list[Any]:
        value = at_path(row, path)
        if not isinstance(value, list):
            return [_string(value)]
        strings = [one for one in value if one is not None]
        return [separator.join(strings) if all(isinstance(s, str) for s in strings) else None]

    return texts


def divided(path: str) -> Texts:
    def texts(row: dict[str, Any]) -> list[Any]:
        value = at_path(row, path)
        if not isinstance(value, list):
            return [_string(value)]
        is_sound = all(one is None or isinstance(one, str) for one in value)
        return (value or [""]) if is_sound else [None]

    return texts


def filled(pieces: list[tuple[str, bool]], is_empty_null: bool) -> Texts:
    """`pieces`: (text, is it the name of a column) of a template."""

    def texts(row: dict[str, Any]) -> list[Any]:
        values = {text: _written(at_path(row, text)) for text, is_column in pieces if is_column}
        given = [value for value in values.values() if value is not None]
        given = list(filter(None, given)) if is_empty_null else given
        if not given or not all(isinstance(value, str) for value in given):
            return [None]
        return ["".join((values[p] or "") if is_column else p for p, is_column in pieces)]

    return texts


def _written(value: Any) -> Any:
    return value.digits.replace("-0", "0") if isinstance(value, Whole) else value


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) else None
