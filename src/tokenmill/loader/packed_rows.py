"""Rows of a plan (loader/packing/): whole documents side by side, and padding where none fits.

A row has T inputs. The last input's target is the next token of its document if the plan cut the
document there; otherwise it is padding, like the rest of the row. Padding is the EOT id.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from tokenmill.dataset.split import Split
from tokenmill.loader.block_cache import BlockCache
from tokenmill.loader.order import Numbers
from tokenmill.loader.packing.row_plan import Row, RowPlan
from tokenmill.loader.packing.row_reader import RowReader
from tokenmill.loader.rows import Buffer, Flags


class PackedRows:
    def __init__(self, split: Split, plan: RowPlan, cache: BlockCache | None = None) -> None:
        self.split = split
        self.plan = plan
        self.cache = cache
        self._reader = RowReader(split, plan, None if cache is None else cache.tokens)
        self._units = self._reader.units
        self._report = plan.splits[split.name].report
        self.num_rows = self._units.num_rows
        self._last: tuple[Numbers, list[Row]] | None = None

    @property
    def num_left_out(self) -> int:
        return self._report.num_lost_tokens

    @property
    def tokens_per_row(self) -> Fraction:
        return Fraction(self._report.num_packed_tokens, max(1, self.num_rows))

    def expect(self, rows: Numbers) -> None:
        if self.cache is not None:
            for starts, lengths, is_cut in self._pieces(rows):
                stops = [start + length for start, length in zip(starts, lengths, strict=True)]
                stops[-1] += is_cut
                self.cache.expect(list(zip(starts, stops, strict=True)))

    def _pieces(self, rows: Numbers) -> list[Row]:
        """The pieces of each row, cached for the last call: a batch asks for them several times."""
        last = self._last
        if last is None or last[0] is not rows:
            self._last = last = rows, self._units.pieces(rows)
        return last[1]

    def read(self, rows: Numbers, out: Buffer, places: Numbers) -> None:
        self._reader.fill(self._pieces(rows), out, places)

    def starts(self, rows: Numbers, tokens: Buffer) -> Flags:
        found = np.zeros(tokens.shape, np.bool_)
        for place, (_, lengths, is_cut) in enumerate(self._pieces(rows)):
            ends = list(itertools.accumulate(lengths))
            if is_cut and ends[-1] == self.plan.seq_len:
                ends.pop()
            found[place, ends] = True
        found[:, 0] = True
        return found

    def num_real(self, rows: Numbers) -> Numbers:
        pieces, seq_len = self._pieces(rows), self.plan.seq_len
        sizes = [(sum(lengths), is_cut) for _, lengths, is_cut in pieces]
        # A document that the plan cut goes on in the row's last target.
        return np.array([size + (is_cut and size == seq_len) for size, is_cut in sizes], np.int64)

    def documents(self, rows: Numbers) -> list[tuple[int, Sequence[int]]]:
        found: list[tuple[int, Sequence[int]]] = []
        for starts, _, _ in self._units.pieces(rows):
            numbers = self.split.bounds.numbers_at(np.array(starts, np.int64))
            found.append((starts[0], tuple(numbers.tolist())))
        return found
