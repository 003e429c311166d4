"""The tokens of a plan's rows, copied piece by piece out of the shards."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.dataset.split import Split
from tokenmill.dataset.stream import Tokens
from tokenmill.loader.packing.best_fit import Numbers
from tokenmill.loader.packing.row_plan import Row, RowPlan

Buffer = npt.NDArray[Any]
Read = Callable[[int, int], Tokens]  # tokens `start` to `stop` of the split


class RowReader:
    """`read` gives tokens from elsewhere than the shards, such as a cache."""

    def __init__(self, split: Split, plan: RowPlan, read: Read | None = None) -> None:
        self.split = split
        self.seq_len = plan.seq_len
        self.units = plan.units(split.name)
        self.pad_id = split.stream.eot_id or 0
        self._read = read
        stream = split.stream
        self._firsts = [stream.start_of(n) for n in range(len(stream.shards) + 1)]

    def fill(self, rows: Sequence[Row], out: Buffer, places: Numbers) -> None:
        """Copy rows into `out`, each to its place, and pad them. If `out` has room for one more
        token than a row, that is the next token of a document that continues after the row."""
        tokens, has_next = self._read or self._mapped(), out.shape[1] > self.seq_len
        for place, (starts, lengths, is_cut) in zip(places.tolist(), rows, strict=True):
            row, at = out[place], 0
            for start, length in zip(starts, lengths, strict=True):
                row[at : at + length] = tokens(start, start + length)
                at += length
            if has_next and is_cut and at == self.seq_len:
                stop = starts[-1] + lengths[-1]
                row[at:] = tokens(stop, stop + 1)
            else:
                row[at:] = self.pad_id

    def rows(self, start: int, stop: int) -> Tokens:
        """Rows `start` to `stop`, concatenated."""
        found = np.empty((stop - start, self.seq_len), self.split.dtype)
        self.fill(self.units.pieces(np.arange(start, stop)), found, np.arange(stop - start))
        return found.reshape(-1)

    def _mapped(self) -> Read:
        """Reads from the mapped shards, for one call of `fill`: it keeps the shards that it
        opens."""
        firsts, split = self._firsts, self.split
        seen: dict[int, Tokens | None] = {}

        def tokens(start: int, stop: int) -> Tokens:
            shard = bisect.bisect_right(firsts, start) - 1
            if shard not in seen:
                seen[shard] = split.shards.array(shard)
            array = seen[shard]
            if array is None or stop > firsts[shard + 1]:
                return split.tokens(start, stop)
            return array[start - firsts[shard] : stop - firsts[shard]]

        return tokens
