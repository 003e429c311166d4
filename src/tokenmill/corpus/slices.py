"""A plan's slices in compact form: 70 bytes per span, where objects take 350. `Slice` objects are
created on access.

A corpus of 15 trillion tokens has two million slices, and the driver holds the plan during the
whole run. Light to import: plain arrays, no NumPy.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterable, Sequence
from typing import Any, overload

from tokenmill.corpus.spans import Input, Slice, Span

COLUMNS = ("input", "start", "stop", "text_bytes", "first_row", "num_rows", "max_rows")
_TEXT_BYTES = COLUMNS.index("text_bytes")
_NUM_ROWS = COLUMNS.index("num_rows")
_NOTHING = -1  # stands for None in num_rows and max_rows


class SliceTable(Sequence[Slice]):
    """Slices as columns of numbers, one row per span; behaves like a tuple of slices."""

    def __init__(self, inputs: Sequence[Input], first: int = 0) -> None:
        self._inputs = inputs
        self._first = first  # the index of the first slice
        self._ends = array("q")  # of each slice: the row after its last span
        self._columns = tuple(array("q") for _ in COLUMNS)

    @staticmethod
    def of(inputs: Sequence[Input], slices: Iterable[Slice]) -> SliceTable:
        table = SliceTable(inputs)
        position = {source: i for i, source in enumerate(inputs)}
        for slice_ in slices:
            for s in slice_.spans:
                row = (position[s.input], s.start, s.stop, s.text_bytes, s.first_row)
                rest = (_NOTHING if n is None else n for n in (s.num_rows, s.max_rows))
                for column, number in zip(table._columns, (*row, *rest), strict=True):
                    column.append(number)
            table._ends.append(len(table._columns[0]))
        return table

    def to_plain(self) -> dict[str, list[int]]:
        columns = zip(COLUMNS, self._columns, strict=True)
        return {"end": self._ends.tolist(), **{name: column.tolist() for name, column in columns}}

    @staticmethod
    def from_plain(inputs: Sequence[Input], plain: dict[str, Any]) -> SliceTable:
        """Raises ValueError, KeyError, TypeError or OverflowError for invalid data."""
        table = SliceTable(inputs)
        table._ends = array("q", plain["end"])
        table._columns = tuple(array("q", plain[name]) for name in COLUMNS)
        num_rows = {len(column) for column in table._columns}
        positions = table._columns[0]
        if num_rows != {table._ends[-1] if table._ends else 0}:
            raise ValueError("columns of different lengths")
        if positions and not 0 <= min(positions) <= max(positions) < len(inputs):
            raise ValueError("a span of no input")
        return table

    @property
    def text_bytes(self) -> int:
        return sum(self._columns[_TEXT_BYTES])

    @property
    def num_rows(self) -> int | None:
        """The rows of all slices; None if a file does not state them."""
        column = self._columns[_NUM_ROWS]
        return None if _NOTHING in column else sum(column)

    @property
    def sizes(self) -> array[int]:
        """The bytes of text of each slice."""
        before = array("q", itertools.accumulate(self._columns[_TEXT_BYTES], initial=0))
        rows = itertools.pairwise(itertools.chain((0,), self._ends))
        return array("q", (before[stop] - before[start] for start, stop in rows))

    def source_of(self, at: int) -> str:
        """The named source of a slice."""
        return self._inputs[self._columns[0][self._row(at)]].source

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, at: int) -> Slice: ...

    @overload
    def __getitem__(self, at: slice) -> SliceTable: ...

    def __getitem__(self, at: int | slice) -> Slice | SliceTable:
        if isinstance(at, slice):
            return self._part(*at.indices(len(self)))
        if at < 0:
            at += len(self)
        rows = range(self._row(at), self._ends[at])
        return Slice(self._first + at, tuple(self._span(row) for row in rows))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SliceTable):
            return NotImplemented
        mine = (self._first, self._inputs, self._ends, self._columns)
        return mine == (other._first, other._inputs, other._ends, other._columns)

    __hash__ = None  # type: ignore[assignment]

    def _row(self, at: int) -> int:
        """The first row of a slice."""
        return self._ends[at - 1] if at else 0

    def _span(self, row: int) -> Span:
        position, start, stop, text_bytes, first_row, num_rows, max_rows = (
            column[row] for column in self._columns
        )
        return Span(
            self._inputs[position],
            start,
            stop,
            text_bytes,
            first_row,
            None if num_rows == _NOTHING else num_rows,
            None if max_rows == _NOTHING else max_rows,
        )

    def _part(self, start: int, stop: int, step: int) -> SliceTable:
        if step != 1:
            raise ValueError("only consecutive slices")
        stop = max(start, stop)
        part = SliceTable(self._inputs, self._first + start)
        first, last = self._row(start), self._row(stop)
        part._ends = array("q", (end - first for end in self._ends[start:stop]))
        part._columns = tuple(column[first:last] for column in self._columns)
        return part
