"""Where the records of a CSV or TSV file end: at line ends outside of quotes.

If every quote opens or closes a field or is doubled within one, a line end is outside of quotes if
the number of quotes before it is even. NumPy counts them at 800 MB/s, so a file is cut when the
plan is made, although all of it must be read for that. A file with a quote elsewhere (`5" disk`) is
not cut, and from the first such quote on Python's csv module reads it: there a quote is an ordinary
character, which only a parser can tell.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tokenmill.corpus.readers.bytestream import MAX_DOCUMENT_BYTES
from tokenmill.corpus.spans import Input
from tokenmill.errors import InputError

_QUOTE, _NEWLINE, _RETURN = b'"\n\r'
_PIECE_BYTES = 1 << 20
_END = "\0end of the file\0"


def end_of_records(data: bytes, delimiter: bytes) -> int | None:
    """Where the last complete record of `data`, which begins with a record, ends. 0: none is
    complete; None: a quote or a carriage return is out of place."""
    array = np.frombuffer(data, np.uint8)
    quotes = np.flatnonzero(array == _QUOTE)
    end = data.rfind(b"\n") + 1
    while end and (num_before := int(np.searchsorted(quotes, end))) % 2:
        end = data.rfind(b"\n", 0, int(quotes[num_before - 1])) + 1
    quotes = quotes[: np.searchsorted(quotes, end)]
    if not _are_in_place(array, quotes, delimiter[0]):
        return None
    if b"\r" in data and not _are_returns_in_place(array[:end], quotes):
        return None
    return end


def _are_in_place(
    array: npt.NDArray[np.uint8], quotes: npt.NDArray[np.int64], delimiter: int
) -> bool:
    """Whether opening quotes follow a delimiter, line end or quote, and closing ones precede
    one."""
    opening, closing = quotes[0::2], quotes[1::2]
    before = array[opening[opening > 0] - 1]
    after = array[closing + 1]  # there is a line end at least
    may_surround = np.zeros(256, np.bool_)
    may_surround[[delimiter, _NEWLINE, _QUOTE]] = True
    if not may_surround[before].all():
        return False
    may_surround[_RETURN] = True
    return bool(may_surround[after].all())


def _are_returns_in_place(array: npt.NDArray[np.uint8], quotes: npt.NDArray[np.int64]) -> bool:
    """Whether carriage returns outside of quotes are parts of line ends."""
    returns = np.flatnonzero(array == _RETURN)
    outside = returns[np.searchsorted(quotes, returns) % 2 == 0]
    return bool((array[outside + 1] == _NEWLINE).all())


class RecordBlocks:
    """Whole records in blocks of about the size of a chunk, as far as they can be found without
    parsing; `rest` is what remains then. `num_lines` counts the lines before the first block, and
    then those of the blocks."""

    def __init__(
        self, chunks: Iterable[bytes], delimiter: bytes, source: Input, num_lines: int = 0
    ) -> None:
        self._chunks = iter(chunks)
        self._delimiter = delimiter
        self._source = source
        self.num_lines = num_lines
        self.rest: Iterator[bytes] | None = None

    def __iter__(self) -> Iterator[bytes]:
        parts: list[bytes] = []
        num_bytes = wanted = 0  # `wanted` grows, so that a long record is scanned few times
        for chunk in self._chunks:
            parts.append(chunk)
            num_bytes += len(chunk)
            if num_bytes < wanted:
                continue
            data = b"".join(parts)
            end = end_of_records(data, self._delimiter)
            if end is None:
                self.rest = itertools.chain([data], self._chunks)
                return
            if end:
                yield data[:end]
                self.num_lines += data.count(b"\n", 0, end)
            parts, num_bytes = [data[end:]], len(data) - end
            wanted = min(2 * num_bytes, MAX_DOCUMENT_BYTES + 1)
            if num_bytes > MAX_DOCUMENT_BYTES:
                raise _too_long(self._source, self.num_lines + 1)
        last = b"".join(parts)
        if not last:
            return
        if end_of_records(last + b"\n", self._delimiter) == len(last) + 1:
            yield last
        else:
            self.rest = iter([last])


@dataclass(frozen=True, slots=True)
class Record:
    fields: list[str]  # bytes that are not UTF-8 are lone surrogates
    line: int  # on which it begins, from 1
    end_line: int  # the last of its lines
    problem: str | None = None  # why it cannot be parsed


def records(
    chunks: Iterable[bytes], delimiter: bytes, source: Input, num_lines: int = 0
) -> Iterator[Record]:
    """All records, by Python's csv module; blank lines are not records. `num_lines` come before
    them. Raises InputError for a quote that is never closed."""
    csv.field_size_limit(max(csv.field_size_limit(), MAX_DOCUMENT_BYTES))
    lines = _Lines(chunks, source, num_lines)
    reader = csv.reader(lines, delimiter=delimiter.decode())
    while True:
        line, problem = lines.begin_record(), None
        try:
            fields = next(reader)
        except csv.Error as error:  # a carriage return outside of quotes
            problem = str(error).partition(" - ")[0]
            lines.repeat_record()
            fields = next(reader)  # to its end, which is beyond this line if a quote is open there
        if fields == [_END]:
            return
        if fields and fields[-1].endswith(_END + "\n"):
            raise InputError(
                f"{source.name}: a quote in the record at line {line} is never closed",
                hint="close it, or write it twice if it is a character of the text",
            )
        if fields:
            yield Record([] if problem else fields, line, lines.number, problem)


def _without_returns(line: str) -> str:
    """The line without carriage returns, except at its end."""
    return line[:-2].replace("\r", " ") + line[-2:]


class _Lines:
    """Lines with their ends, then a marker as the last line, which no file contains."""

    def __init__(self, chunks: Iterable[bytes], source: Input, num_lines: int) -> None:
        self._lines = self._all(chunks)
        self._source = source
        self.number = num_lines
        self._first = 0  # line of the record, and its bytes
        self._num_bytes = 0
        self._record: list[str] = []  # its lines so far
        self._again: list[str] = []
        self._is_repeated = False

    def begin_record(self) -> int:
        """The line on which the next record begins."""
        self._first, self._num_bytes = self.number + 1, 0
        self._record, self._is_repeated = [], False
        return self._first

    def repeat_record(self) -> None:
        """Give the lines of the record again, without carriage returns within them."""
        self._again = list(map(_without_returns, self._record))
        self._is_repeated = True  # and so are the lines that follow in it

    def __iter__(self) -> Iterator[str]:
        for line in self._lines:
            self.number += 1
            self._num_bytes += len(line)
            if self._num_bytes > MAX_DOCUMENT_BYTES:
                raise _too_long(self._source, self._first)
            self._record.append(line.decode(errors="surrogateescape"))
            yield _without_returns(self._record[-1]) if self._is_repeated else self._record[-1]
            while self._again:
                yield self._again.pop(0)
        yield _END + "\n"

    def _all(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        parts: list[bytes] = []
        num_bytes = 0
        for piece in _pieces(chunks):
            *lines, rest = piece.split(b"\n")
            for line in lines:
                yield b"".join([*parts, line, b"\n"])
                parts, num_bytes = [], 0
            parts.append(rest)
            num_bytes += len(rest)
            if num_bytes > MAX_DOCUMENT_BYTES:
                raise _too_long(self._source, self.number + 1)
        if last := b"".join(parts):
            yield last + b"\n"


def _pieces(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Bytes in small pieces: a chunk may be a gigabyte of short lines."""
    for chunk in chunks:
        for start in range(0, len(chunk), _PIECE_BYTES):
            yield chunk[start : start + _PIECE_BYTES]


def _too_long(source: Input, line: int) -> InputError:
    return InputError(
        f"{source.name}: the record at line {line} is longer than {MAX_DOCUMENT_BYTES} bytes, "
        "probably because a quote is never closed",
        hint=f"look at line {line}: close the quote there, or write it twice if it is a character "
        "of the text",
    )
