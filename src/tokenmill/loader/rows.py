"""The rows of a split: row r is its tokens r*T to r*T + T, T + 1 of them, across shards.

The last token of a row is the first of the next: every token is an input once and a target once.
What does not fill the last row is left out. Rows are copied once, out of the mapped shards into the
batch, and cast on the way. A loop over rows is faster than any index array: NumPy's `take` reads
token by token.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.dataset.split import Split
from tokenmill.loader.block_cache import BlockCache
from tokenmill.loader.permutation import Numbers

Buffer = npt.NDArray[Any]


class SplitRows:
    """`is_scattered`: rows next to each other are not read soon after each other."""

    def __init__(self, split: Split, seq_len: int, is_scattered: bool = True) -> None:
        self.split = split
        self.cache = BlockCache(split, seq_len, is_scattered) if split.files.is_far else None
        self.seq_len = seq_len
        self.num_rows = max(0, (split.num_tokens - 1) // seq_len)
        stream = split.stream
        self._starts = np.array([stream.start_of(n) for n in range(len(stream.shards) + 1)])

    @property
    def num_left_out(self) -> int:
        """Tokens at the end that are in no row."""
        used = self.num_rows * self.seq_len + 1 if self.num_rows else 0
        return self.split.num_tokens - used

    def read(self, rows: Numbers, out: Buffer, places: Numbers) -> None:
        """Copy rows into `out`, each to its place."""
        if self.cache is not None:
            for row, place in zip(rows.tolist(), places.tolist(), strict=True):
                out[place] = self.cache.row(row)
            return
        starts = rows * self.seq_len
        shards = np.searchsorted(self._starts, starts, "right") - 1
        ends = starts + self.seq_len + 1
        is_cut = ends > self._starts[shards + 1]
        within = starts - self._starts[shards]
        array, last, length = None, -1, self.seq_len + 1
        order = np.argsort(shards, kind="stable")
        columns = (column[order].tolist() for column in (places, shards, within, is_cut, starts))
        for place, shard, start, cut, first in zip(*columns, strict=True):
            if shard != last:
                array, last = self.split.shards.array(shard), shard
            if array is None or cut:
                out[place] = self.split.tokens(first, first + length)
            else:
                out[place] = array[start : start + length]
