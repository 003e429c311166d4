"""Cells of byte-oriented files: JSON lines and text, plain or compressed.

Reading a plain file can start anywhere: a cell is a byte range whose ends are moved to the next
document end. Both ends move by the same rule, so cells cover a file without gap or overlap. Text
without separators is cut between characters.

A compressed file can only be read from its start, so its cells come from its head. The compressed
bytes read so far show how large a share of the file the head is. The rest is assumed to be similar,
which no sample can verify.
"""

from __future__ import annotations

import bisect
import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tokenmill.arrays import binary_array_of, mask
from tokenmill.corpus.opening import opened, unreadable_input
from tokenmill.corpus.readers.decompression import text_stream
from tokenmill.corpus.readers.json_array import is_array
from tokenmill.corpus.readers.jsonl import rows_in
from tokenmill.corpus.readers.rows import checked_rows
from tokenmill.corpus.spans import Input, Slice, Span
from tokenmill.errors import InputError, NetworkError
from tokenmill.estimate.cells import Cell, Reading, numbers_in_head
from tokenmill.estimate.sample import num_cells
from tokenmill.storage.range_reader import ByteFile

HEAD_BYTES = 2 << 20
_WINDOW_BYTES = 64 << 10
_FEED_BYTES = 4 << 10
_NUM_SECTIONS = 8
# How far ahead to search for the end of a line: half a line is not JSON.
_MAX_LINE_BYTES = 1 << 30
_NO_TEXTS = pa.nulls(0, pa.large_string())

Bytes = Callable[[int, int], bytes]  # the bytes of a file from one offset to another


def can_start_anywhere(source: Input, reading: Reading) -> bool:
    """Whether documents can be found from any byte on. CSV records, elements of a JSON array and
    documents of a list can only be found from the start."""
    if source.kind == "text":
        return True
    is_lines = source.kind == "jsonl" and reading.options.lists != "documents"
    return is_lines and not is_array(source)


def plain_cells(unit: Slice, numbers: Sequence[int], reading: Reading) -> list[Cell]:
    """Some cells of files that can be read from any byte on."""
    size, count = unit.text_bytes, num_cells(unit, reading.cell_bytes)
    ends = list(itertools.accumulate(span.stop - span.start for span in unit.spans))
    cells = []
    for number in numbers:
        began = time.perf_counter()
        low, high = size * number // count, size * (number + 1) // count
        texts, num_bytes, num_cut = [_NO_TEXTS], 0, 0
        for position in range(bisect.bisect_right(ends, low), len(unit.spans)):
            span = unit.spans[position]
            begin = ends[position] - (span.stop - span.start)
            if begin >= high:
                break
            start, stop = max(low - begin, 0), min(high - begin, span.stop - span.start)
            if start < stop:
                block, is_cut = _range_of(span, span.start + start, span.start + stop, reading)
                num_bytes += len(block)
                num_cut += is_cut
                texts.append(_texts_of(block, span.input.kind, reading))
        found = pa.concat_arrays(texts)
        reading.spent("read", time.perf_counter() - began, found.nbytes)
        cells.append(Cell(found, num_bytes, num_cut=min(num_cut, len(found))))
    return cells


def head_cells(unit: Slice, numbers: Sequence[int], reading: Reading) -> list[Cell]:
    """Some cells of a compressed file, all from its head."""
    [span] = unit.spans
    began = time.perf_counter()
    head = _head_of(span.input, max(HEAD_BYTES, 2 * len(numbers) * reading.cell_bytes))
    size = len(head.data)
    reading.spent("decompress", time.perf_counter() - began, size)
    reading.num_heads += not head.is_whole
    nominal = count = num_cells(unit, reading.cell_bytes)
    if not head.is_whole:
        count = max(len(numbers), round(size / reading.cell_bytes))
        numbers = numbers_in_head(numbers, nominal, count)
    separator = _separator(span.input.kind, reading)
    cells = []
    for number in numbers:
        began = time.perf_counter()
        start, stop = (
            _document_end(head.bytes_of, size * edge // count, (0, size), separator)
            for edge in (number, number + 1)
        )
        texts = _texts_of(head.data[start:stop], span.input.kind, reading)
        reading.spent("read", time.perf_counter() - began, texts.nbytes)
        is_cut = not _is_document_start(head.bytes_of, start, 0, separator[0])
        cells.append(
            Cell(
                texts,
                frame_bytes=(stop - start) / max(1.0, head.file_bytes) * unit.text_bytes,
                weight=count / nominal * head.file_bytes / max(1, size),
                frame_error=head.relative_error,
                num_cut=min(int(is_cut), len(texts)),
            )
        )
    return cells


def _range_of(span: Span, start: int, stop: int, reading: Reading) -> tuple[bytes, bool]:
    """Bytes [start, stop) of a plain file, each end moved to the next document's start if there is
    one near; and whether they begin within a document."""
    separator = _separator(span.input.kind, reading)
    try:
        with opened(span.input) as file:

            def bytes_of(first: int, last: int) -> bytes:
                file.seek(first)
                return file.read(max(0, last - first))

            bounds = (span.start, span.stop)
            first = _document_end(bytes_of, start, bounds, separator)
            data = bytes_of(first, _document_end(bytes_of, stop, bounds, separator))
            return data, not _is_document_start(bytes_of, first, span.start, separator[0])
    except OSError as error:
        raise unreadable_input(span.input, error) from error


def _separator(kind: str, reading: Reading) -> tuple[bytes | None, int]:
    """The end mark of documents, and how far ahead to search for it."""
    if kind == "jsonl":
        return b"\n", _MAX_LINE_BYTES
    written = reading.options.separator
    return (None if written is None else written.encode()), 2 * reading.cell_bytes


def _document_end(
    bytes_of: Bytes, position: int, bounds: tuple[int, int], separator: tuple[bytes | None, int]
) -> int:
    """The first place at or after `position`, within bounds, where a document begins or the file
    ends.

    If no separator is near: the next place between two characters.
    """
    first, last = bounds
    if position <= first or position >= last:
        return min(max(position, first), last)
    mark, lookahead = separator
    if mark is not None:
        overlap = len(mark) - 1
        begin = max(first, position - len(mark))
        for start in range(begin, min(last, position + lookahead), _WINDOW_BYTES):
            found = bytes_of(start, min(last, start + _WINDOW_BYTES + overlap)).find(mark)
            if found >= 0:
                return start + found + len(mark)
        if position + lookahead >= last:
            return last
    following = bytes_of(position, min(last, position + 4))
    return position + sum(1 for _ in itertools.takewhile(_is_continuation, following))


def _is_document_start(bytes_of: Bytes, position: int, first: int, mark: bytes | None) -> bool:
    if position <= first or mark is None:
        return position <= first
    return bytes_of(position - len(mark), position) == mark


def _is_continuation(byte: int) -> bool:
    """Whether the byte is inside a UTF-8 character."""
    return byte & 0xC0 == 0x80


def _texts_of(block: bytes, kind: str, reading: Reading) -> pa.LargeStringArray:
    """The documents in a block that a run would encode."""
    replace = reading.options.replace_bad_text
    if kind == "jsonl":
        rows = rows_in(block, reading.options)
    else:
        mark, _ = _separator(kind, reading)
        documents = [block] if mark is None else block.split(mark)
        if mark is not None and not documents[-1]:
            documents.pop()
        rows = checked_rows(binary_array_of(documents), replace)
    return rows.texts.filter(mask(reading.kept(rows.texts, len(rows.bad), rows.num_rows)))


@dataclass(frozen=True, slots=True)
class _Head:
    """The first bytes of a compressed file, decompressed."""

    data: bytes
    is_whole: bool
    file_bytes: float  # of the whole file, decompressed, as far as the head tells
    relative_error: float  # of that

    def bytes_of(self, first: int, last: int) -> bytes:
        return self.data[first:last]


class _Feed:
    """A file, read in small pieces, so that its position shows how much was decompressed."""

    closed = False

    def __init__(self, file: ByteFile) -> None:
        self._file = file
        self.num_bytes = 0

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(min(size, _FEED_BYTES) if size >= 0 else _FEED_BYTES)
        self.num_bytes += len(data)
        return data

    def close(self) -> None:
        self.closed = True


def _head_of(source: Input, num_bytes: int) -> _Head:
    chunks: list[bytes] = []
    marks: list[tuple[int, int]] = []  # (bytes out, bytes in)
    size, is_whole = 0, False
    try:
        with (
            opened(source, [(0, num_bytes // 2)]) as file,
            pa.PythonFile(feed := _Feed(file), mode="r") as raw,
        ):
            assert source.compression is not None
            stream = text_stream(raw, source.compression)
            while size < num_bytes and not is_whole:
                chunk = stream.read(_WINDOW_BYTES)
                chunks.append(chunk)
                size += len(chunk)
                is_whole = not chunk
                marks.append((size, feed.num_bytes))
    except NetworkError:
        raise
    except (OSError, pa.ArrowException) as error:
        raise InputError(
            f"{source.name}: broken {source.compression} stream: {error}",
            hint="download it again",
        ) from error
    data = b"".join(chunks)
    if is_whole:
        return _Head(data, True, size, 0.0)
    if source.kind == "jsonl":
        data = data[: data.rfind(b"\n") + 1]  # the last line may be cut short
    ratio, relative_error = _ratio_of(marks)
    return _Head(data, False, source.num_bytes * ratio, relative_error)


def _ratio_of(marks: list[tuple[int, int]]) -> tuple[float, float]:
    """Text per compressed byte, and its relative error, from how it changes along the head.

    The input runs ahead of the output, by a buffer and a block of the codec. It does so equally at
    every mark, so the first mark must not be (0, 0), where it does not.
    """
    picked = np.linspace(len(marks) // 8, len(marks) - 1, _NUM_SECTIONS + 1).round().astype(int)
    points = np.array(marks, np.float64)[np.unique(picked)]
    out, fed = np.diff(points, axis=0).T
    ratio = float(out.sum() / max(1.0, fed.sum()))
    if len(out) < 2:
        return ratio, 0.0
    residuals = out - ratio * fed
    error = math.sqrt(float(residuals @ residuals) / (len(out) - 1) * len(out))
    return ratio, error / float(out.sum())
