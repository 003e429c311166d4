"""The rows of a split: row r is its tokens r*T to r*T + T, T + 1 of them, across shards.

The last token of a row is the first of the next: every token is an input once and a target once.
Tokens that do not fill a row are left out. Rows are copied once, from the mapped shards into the
batch, and cast on the way. A loop over rows is faster than an index array: NumPy's `take` reads
token by token.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tokenmill.dataset.split import Split
from tokenmill.loader.block_cache import BlockCache
from tokenmill.loader.order import Numbers

Buffer = npt.NDArray[Any]
Flags = npt.NDArray[np.bool_]


class SourceRows(Protocol):
    """Rows of T + 1 tokens, by number: of a split (here) or of a plan (packed_rows.py)."""

    @property
    def split(self) -> Split: ...

    @property
    def num_rows(self) -> int: ...

    @property
    def num_left_out(self) -> int:
        """Tokens of the split that are in no row."""

    @property
    def tokens_per_row(self) -> Fraction:
        """On average, without padding."""

    @property
    def cache(self) -> BlockCache | None:
        """The cache of tokens, if they come from a store."""

    def expect(self, rows: Numbers) -> None:
        """Prefetch rows that will be read soon, if they come from a store."""

    def read(self, rows: Numbers, out: Buffer, places: Numbers) -> None:
        """Copy rows into `out`, each to its place."""

    def starts(self, rows: Numbers, tokens: Buffer) -> Flags:
        """Whether a document, or padding, begins at each token of these rows. A row's first token
        counts as a beginning."""

    def num_real(self, rows: Numbers) -> Numbers | None:
        """Tokens of each row before its padding; None if no row has any."""

    def documents(self, rows: Numbers) -> list[tuple[int, Sequence[int]]]:
        """For each row, its first token in the split, and the documents of its inputs."""


class SplitRows:
    def __init__(self, split: Split, seq_len: int, cache: BlockCache | None = None) -> None:
        self.split = split
        self.cache = cache
        self.seq_len = seq_len
        self.num_rows = max(0, (split.num_tokens - 1) // seq_len)
        self.tokens_per_row = Fraction(seq_len)
        stream = split.stream
        self._starts = np.array([stream.start_of(n) for n in range(len(stream.shards) + 1)])

    @property
    def num_left_out(self) -> int:
        used = self.num_rows * self.seq_len + 1 if self.num_rows else 0
        return self.split.num_tokens - used

    def expect(self, rows: Numbers) -> None:
        if self.cache is not None:
            starts = (rows * self.seq_len).tolist()
            self.cache.expect([(start, start + self.seq_len + 1) for start in starts])

    def read(self, rows: Numbers, out: Buffer, places: Numbers) -> None:
        starts = rows * self.seq_len
        length = self.seq_len + 1
        if self.cache is not None:
            for start, place in zip(starts.tolist(), places.tolist(), strict=True):
                out[place] = self.cache.tokens(start, start + length)
            return
        shards = np.searchsorted(self._starts, starts, "right") - 1
        is_cut = starts + length > self._starts[shards + 1]
        within = starts - self._starts[shards]
        array, last = None, -1
        order = np.argsort(shards, kind="stable")
        columns = (column[order].tolist() for column in (places, shards, within, is_cut, starts))
        for place, shard, start, cut, first in zip(*columns, strict=True):
            if shard != last:
                array, last = self.split.shards.array(shard), shard
            if array is None or cut:
                out[place] = self.split.tokens(first, first + length)
            else:
                out[place] = array[start : start + length]

    def starts(self, rows: Numbers, tokens: Buffer) -> Flags:
        """If one EOT id ends or begins a document, the row itself shows where documents begin. If
        the format stores boundaries, or two EOT ids separate documents, the dataset's document
        index does (dataset/document_bounds.py)."""
        stream = self.split.stream
        found = np.zeros(tokens.shape, np.bool_)
        if not stream.has_boundaries and stream.eot == "append":
            found[:, 1:] = tokens[:, :-1] == stream.eot_id
        elif not stream.has_boundaries and stream.eot == "prepend":
            found[:, 1:] = tokens[:, 1:] == stream.eot_id
        else:
            bounds = self.split.bounds
            for place, start in enumerate((rows * self.seq_len).tolist()):
                found[place, bounds.ends_between(start, start + self.seq_len) - start] = True
        found[:, 0] = True
        return found

    def num_real(self, rows: Numbers) -> None:
        return None

    def documents(self, rows: Numbers) -> list[tuple[int, Sequence[int]]]:
        starts, bounds = rows * self.seq_len, self.split.bounds
        firsts = bounds.numbers_at(starts).tolist()
        lasts = bounds.numbers_at(starts + self.seq_len - 1).tolist()
        return [
            (start, range(first, last + 1))
            for start, first, last in zip(starts.tolist(), firsts, lasts, strict=True)
        ]
