"""Cells: stretches of about half a megabyte of text, with the documents that a run would encode.

A unit (a slice of the plan) can be read on its own. Of a table's unit, such as a row group of 4 MB,
all text is read, which is cheap, and only the drawn cells are encoded, which is not. The length of
every document then shows exactly how much of the footer's size a cell represents. A unit over
MAX_READ_BYTES is read from its start: cells of this head represent those drawn.

Cells hold whole documents: a document belongs to the cell in which it begins.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.arrays import mask, offsets_of
from tokenmill.corpus.readers import ReadOptions, TextBatch, reader_for
from tokenmill.corpus.spans import Input, Slice, Span
from tokenmill.estimate.sample import num_cells

MAX_READ_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Cell:
    texts: pa.LargeStringArray  # without rows that a run leaves out: null, bad, perhaps empty
    frame_bytes: float  # how much of the unit's `text_bytes` the texts are
    weight: float = 1.0  # over 1: it is smaller than the cell that it represents
    rows: npt.NDArray[np.int64] | None = None  # which rows of the unit these texts are
    frame_error: float = 0.0  # relative error of all `frame_bytes` of the unit
    num_cut: int = 0  # of the texts, those that begin within a document


@dataclass(slots=True)
class Reading:
    """How cells are read, and the counts and times of reading them."""

    options: ReadOptions
    keeps_empty: bool
    cell_bytes: int
    num_rows: int = 0
    num_kept: int = 0
    num_bad: int = 0
    num_heads: int = 0  # units of which only the start was read
    _spent: dict[str, tuple[float, int]] = field(default_factory=dict)  # (seconds, bytes of text)
    _open_seconds: float | None = None

    def kept(
        self, texts: pa.LargeStringArray, num_bad: int, num_rows: int
    ) -> npt.NDArray[np.bool_]:
        """Which texts a run would encode. Also counts rows, kept texts and bad rows."""
        self.num_rows += num_rows
        self.num_bad += num_bad
        keep = np.ones(len(texts), np.bool_)
        if texts.null_count:
            keep &= ~np.asarray(texts.is_null())
        if not self.keeps_empty:
            keep &= np.diff(offsets_of(texts)) > 0
        self.num_kept += int(np.count_nonzero(keep))
        return keep

    def spent(self, doing: str, seconds: float, text_bytes: int) -> None:
        """Record how long something took, and for how much text."""
        before = self._spent.get(doing, (0.0, 0))
        self._spent[doing] = (before[0] + seconds, before[1] + text_bytes)

    def open_seconds(self, source: Input) -> float:
        """The time to open such a file. A run opens it once per 32 MB, which is negligible; here it
        may take as long as reading the unit."""
        if self._open_seconds is None:
            began = time.perf_counter()
            reader_for(source.kind, self.options).spans(source)
            self._open_seconds = time.perf_counter() - began
        return self._open_seconds

    @property
    def seconds_per_byte(self) -> float:
        """The time per byte of one worker that runs alone, over everything noted."""
        return sum(max(0.0, seconds) / max(1, size) for seconds, size in self._spent.values())


@dataclass(frozen=True, slots=True)
class _Table:
    """The text of a unit, as far as it was read."""

    texts: pa.LargeStringArray
    rows: npt.NDArray[np.int64]  # of each text, in the unit
    num_rows: int
    is_whole: bool


def whole_unit(unit: Slice, reading: Reading) -> Iterator[Cell]:
    """The whole unit, a batch at a time. (A compressed file may hold any amount of text.)"""
    for batch in _batches(unit, reading):
        texts = batch.texts
        keep = reading.kept(texts, len(batch.bad), batch.num_rows)
        yield Cell(texts if keep.all() else texts.filter(mask(keep)), frame_bytes=0.0)


def table_cells(unit: Slice, numbers: Sequence[int], reading: Reading) -> list[Cell]:
    """Some cells of a unit that is read row by row."""
    table = _table(unit, reading, 2 * len(numbers) * reading.cell_bytes)
    reading.num_heads += not table.is_whole
    offsets = offsets_of(table.texts) - offsets_of(table.texts)[0]
    text_bytes = int(offsets[-1])
    nominal = count = num_cells(unit, reading.cell_bytes)
    if not table.is_whole:
        count = max(len(numbers), round(text_bytes / reading.cell_bytes))
        numbers = numbers_in_head(numbers, nominal, count)
    # A document belongs to the cell that it begins in.
    edges = np.searchsorted(offsets[:-1], text_bytes * np.arange(count + 1) / count)
    edges[-1] = len(table.texts)
    head_share = table.num_rows / max(1, unit_rows(unit)) if not table.is_whole else 1.0
    cells = []
    for number in numbers:
        start, stop = int(edges[number]), int(edges[number + 1])
        if table.is_whole:  # without any text, all cells are alike
            own = float(offsets[stop] - offsets[start])
            share = own / text_bytes if text_bytes else 1 / count
        else:
            share = head_share * (stop - start) / max(1, len(table.texts))
        cells.append(
            Cell(
                table.texts.slice(start, stop - start),
                frame_bytes=share * unit.text_bytes,
                weight=count / nominal / head_share,
                rows=table.rows[start:stop],
            )
        )
    return cells


def numbers_in_head(numbers: Sequence[int], nominal: int, count: int) -> list[int]:
    """Cells of a head of `count` cells that represent cells of the whole, all different, in
    order."""
    found: list[int] = []
    for position, number in enumerate(numbers):
        least = found[-1] + 1 if found else 0
        most = count - (len(numbers) - position)  # leaves room for those to come
        found.append(min(max(number * count // nominal, least), most))
    return found


def num_rows_of(span: Span) -> int | None:
    """How many rows of the span are read; None where the file does not say."""
    if span.num_rows is None or span.max_rows is None:
        return span.num_rows
    return min(span.num_rows, span.max_rows)


def unit_rows(unit: Slice) -> int:
    return sum(num_rows_of(span) or 0 for span in unit.spans)


def _table(unit: Slice, reading: Reading, min_bytes: int) -> _Table:
    """The unit's rows that a run would encode; of a large unit a beginning, of `min_bytes` or more.

    A unit that does not say how many rows it has is read whole: small compressed files.
    """
    max_bytes = max(MAX_READ_BYTES, min_bytes) if unit_rows(unit) else sys.maxsize
    parts, rows = [], []
    num_rows = num_bytes = 0
    is_whole = True
    for batch in _batches(unit, reading):
        texts = batch.texts
        keep = reading.kept(texts, len(batch.bad), batch.num_rows)
        parts.append(texts if keep.all() else texts.filter(mask(keep)))
        rows.append(batch.rows[keep] + num_rows)
        num_rows += batch.num_rows
        num_bytes += texts.nbytes
        if num_bytes >= max_bytes:
            is_whole = num_rows == unit_rows(unit)
            break
    texts = pa.concat_arrays(parts) if parts else pa.nulls(0, pa.large_string())
    found = np.concatenate(rows) if rows else np.empty(0, np.int64)
    return _Table(texts, found.astype(np.int64), num_rows, is_whole)


def _batches(unit: Slice, reading: Reading) -> Iterator[TextBatch]:
    for span in unit.spans:
        began = time.perf_counter() + reading.open_seconds(span.input)
        for batch in reader_for(span.input.kind, reading.options).batches(span):
            num_bytes = batch.texts.nbytes
            reading.spent("read", time.perf_counter() - began, num_bytes)
            yield batch
            began = time.perf_counter()
