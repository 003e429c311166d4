"""Rows of a dataset in an object store, fetched ahead in the order in which they will be read.

The order is known, so the blocks of the next steps are requested before they are needed, 16 at a
time. A block is a run of whole rows; with shuffle="block" those that are shuffled together. The
blocks used last stay in memory, up to 512 MiB for each source: twice what a window of 64 blocks of
256 rows of 2,048 uint32 tokens takes.
"""

from __future__ import annotations

import collections
import os
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor

from tokenmill.dataset.split import Split
from tokenmill.dataset.stream import Tokens
from tokenmill.loader.order import BLOCK_ROWS

MAX_BYTES = 512 << 20
NUM_REQUESTS = 16
# Scattered rows are fetched with their neighbours: a smaller request takes no less time.
MIN_TOKENS = 32 << 10


class BlockCache:
    def __init__(self, split: Split, seq_len: int, is_scattered: bool) -> None:
        self._split = split
        self._seq_len = seq_len
        self.block_rows = max(1, MIN_TOKENS // seq_len) if is_scattered else BLOCK_ROWS
        block_bytes = self.block_rows * seq_len * split.dtype.itemsize
        self._max_blocks = max(2, MAX_BYTES // block_bytes)
        self._blocks: collections.OrderedDict[int, Future[Tokens]] = collections.OrderedDict()
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._blocks.clear()
        self._pool = ThreadPoolExecutor(NUM_REQUESTS, "tokenmill blocks")

    def expect(self, rows: Iterable[int]) -> None:
        """Request the blocks of rows that will be read soon."""
        for block in dict.fromkeys(row // self.block_rows for row in rows):
            self._block(block)

    def row(self, number: int) -> Tokens:
        """The T + 1 tokens of a row."""
        block, within = divmod(number, self.block_rows)
        try:
            tokens = self._block(block).result()
        except BaseException:
            self._blocks.pop(block, None)  # the next attempt asks again
            raise
        start = within * self._seq_len
        return tokens[start : start + self._seq_len + 1]

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._blocks.clear()

    def _block(self, block: int) -> Future[Tokens]:
        if self._process != os.getpid():  # a forked worker has none of the pool's threads
            self._begin()
        found = self._blocks.get(block)
        if found is None:
            found = self._blocks[block] = self._pool.submit(self._fetched, block)
            if len(self._blocks) > self._max_blocks:
                self._blocks.popitem(last=False)
        self._blocks.move_to_end(block)
        return found

    def _fetched(self, block: int) -> Tokens:
        """One token more than its rows' inputs: the last target."""
        size = self.block_rows * self._seq_len
        return self._split.tokens(block * size, (block + 1) * size + 1)
