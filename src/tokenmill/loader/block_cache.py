"""Tokens of a split in an object store, prefetched in the order in which they will be read.

The order of rows is known, so the blocks of the next steps are requested before they are needed, 16
at a time. The last used blocks stay in memory, up to 512 MiB per source: twice the size of a window
of 64 blocks of 256 rows of 2,048 uint32 tokens. With a folder, blocks are also kept on disk,
each with a checksum, for later epochs and for other ranks on the machine.
"""

from __future__ import annotations

import collections
import os
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from tokenmill.dataset.cache_folder import CacheFolder
from tokenmill.dataset.split import Split
from tokenmill.dataset.stream import Tokens
from tokenmill.errors import ConfigError
from tokenmill.loader.order import BLOCK_ROWS

MAX_BYTES = 512 << 20
NUM_REQUESTS = 16
# Scattered rows are fetched with their neighbours: a smaller request is no faster.
MIN_TOKENS = 32 << 10

Range = tuple[int, int]


def block_tokens_of(seq_len: int, is_scattered: bool) -> int:
    """The size of a block, in whole rows: with shuffle="block", those that are shuffled
    together."""
    return seq_len * (max(1, MIN_TOKENS // seq_len) if is_scattered else BLOCK_ROWS)


class BlockCache:
    """`folder` keeps blocks on disk, under a name made of `key`, which identifies the content."""

    def __init__(
        self, split: Split, block_tokens: int, folder: CacheFolder | None = None, key: Any = None
    ) -> None:
        self._split = split
        self._size = block_tokens
        self._folder = folder
        self._key = key
        self._max_blocks = max(2, MAX_BYTES // (block_tokens * split.dtype.itemsize))
        self._blocks: collections.OrderedDict[int, Future[Tokens]] = collections.OrderedDict()
        self._is_closed = False
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._blocks.clear()
        self._pool = ThreadPoolExecutor(NUM_REQUESTS, "tokenmill blocks")

    def expect(self, ranges: Iterable[Range]) -> None:
        """Request the blocks of tokens that will be read soon."""
        for block in dict.fromkeys(block for one in ranges for block in self._blocks_of(*one)):
            self._block(block)

    def tokens(self, start: int, stop: int) -> Tokens:
        blocks = self._blocks_of(start, stop)
        pieces = []
        for block in blocks:
            first, last = block * self._size, (block + 1) * self._size
            end = stop if block == blocks[-1] else last
            pieces.append(self._result(block)[max(start, first) - first : end - first])
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def close(self) -> None:
        self._is_closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._blocks.clear()

    def _blocks_of(self, start: int, stop: int) -> range:
        """A block has one token more than its size: the last target of its last row."""
        first = start // self._size
        return range(first, max(first, (stop - 2) // self._size) + 1)

    def _result(self, block: int) -> Tokens:
        try:
            return self._block(block).result()
        except BaseException:
            self._blocks.pop(block, None)  # the next attempt fetches it again
            raise

    def _block(self, block: int) -> Future[Tokens]:
        if self._is_closed:
            raise ConfigError(f"{self._split.files.label} was closed", hint="open it again")
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
        start, stop = block * self._size, (block + 1) * self._size + 1
        if self._folder is None:
            return self._split.tokens(start, stop)
        dtype = self._split.dtype
        key = ["block", self._key, self._split.name, self._size, block, dtype.str]
        data = self._folder.get(key)
        if data is not None:
            return np.frombuffer(data, dtype)
        found = np.ascontiguousarray(self._split.tokens(start, stop), dtype)
        self._folder.put(key, found.tobytes())
        return found
