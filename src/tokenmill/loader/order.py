"""The order in which the rows of one source are read: a new one every epoch.

full     any row may follow any other
block    neighbouring rows stay close, so that little is fetched from a store at a time: blocks of
         256 rows are shuffled, then rows within windows of 64 such blocks. The rows after the last
         whole block belong to the last window
None     not shuffled
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tokenmill.loader.permutation import Numbers, Permutation

BLOCK_ROWS = 256
WINDOW_ROWS = 64 * BLOCK_ROWS
# Permuting 64 numbers takes 0.25 ms, mostly calls; permuting 4,096 takes 0.5 ms.
TURNS_AT_ONCE = 4096
SHUFFLES = ("full", "block", None)


@dataclass(frozen=True, slots=True)
class RowOrder:
    """`source` is a name: the order does not depend on which other sources there are."""

    num_rows: int
    shuffle: str | None
    seed: int
    source: str

    def rows(self, turns: Numbers) -> Numbers:
        """The row for each turn of the source; turn `num_rows` begins epoch 1."""
        if self.shuffle is None or not len(turns) < TURNS_AT_ONCE <= self.num_rows:
            return self.computed(turns)
        return grouped(turns // TURNS_AT_ONCE, turns, functools.partial(_looked_up, self))

    def computed(self, turns: Numbers) -> Numbers:
        """Like `rows`, without the cache."""
        epochs, places = np.divmod(turns, self.num_rows)
        if self.shuffle is None:
            return places
        return grouped(epochs, places, self._rows_of_epoch)

    def _rows_of_epoch(self, epoch: int, places: Numbers) -> Numbers:
        if self.shuffle == "full":
            return self._permutation(self.num_rows, "rows", epoch)(places)
        last = max(0, self.num_rows // WINDOW_ROWS - 1)
        windows = np.minimum(places // WINDOW_ROWS, last)
        return self._in_blocks(epoch, grouped(windows, places, self._within_window(epoch, last)))

    def _within_window(self, epoch: int, last: int) -> Callable[[int, Numbers], Numbers]:
        def shuffled(window: int, places: Numbers) -> Numbers:
            start = window * WINDOW_ROWS
            stop = self.num_rows if window == last else start + WINDOW_ROWS
            order = self._permutation(stop - start, "window", epoch, window)
            return order(places - start) + start

        return shuffled

    def _in_blocks(self, epoch: int, places: Numbers) -> Numbers:
        num_blocks = self.num_rows // BLOCK_ROWS
        is_in_block = places < num_blocks * BLOCK_ROWS
        if not is_in_block.any():
            return places
        found = places.copy()
        blocks, within = np.divmod(places[is_in_block], BLOCK_ROWS)
        order = self._permutation(num_blocks, "blocks", epoch)
        found[is_in_block] = order(blocks) * BLOCK_ROWS + within
        return found

    def _permutation(self, size: int, *parts: str | int) -> Permutation:
        return Permutation(size, self.seed, self.source, *parts)


def _looked_up(order: RowOrder, number: int, turns: Numbers) -> Numbers:
    return _rows_of(order, number)[turns - number * TURNS_AT_ONCE]


@functools.lru_cache(maxsize=128)
def _rows_of(order: RowOrder, number: int) -> Numbers:
    start = number * TURNS_AT_ONCE
    return order.computed(np.arange(start, start + TURNS_AT_ONCE))


def grouped(keys: Numbers, values: Numbers, function: Callable[[int, Numbers], Numbers]) -> Numbers:
    """Apply `function` to each group of values with the same key."""
    different = sorted(set(keys.tolist()))
    if len(different) == 1:
        return function(different[0], values)
    found = np.empty(len(values), np.int64)
    for key in different:
        those = keys == key
        found[those] = function(key, values[those])
    return found
