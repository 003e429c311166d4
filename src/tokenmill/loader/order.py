"""The order in which the rows of one source are read: a new one every epoch.

full     any row may follow any other
block    neighbouring rows stay close, so that little is fetched from a store at a time: blocks of
         256 rows are shuffled, then rows within windows of 64 such blocks. The rows after the last
         whole block belong to the last window
None     not shuffled

A permutation is computed and never stored. A Feistel network with two unequal halves permutes
2^bits numbers, bits = ceil(log2(size)). A result that is not below `size` is permuted again until
it is (cycle walking): less than twice on average. Each round takes the high bits of a
multiply-xorshift-multiply: low bits of a product hardly mix. Eight rounds are enough for large
sizes. With 6 items they make some orders three times as likely as others; 24 rounds do not. Keys
come from SHAKE-256, whose output no version of NumPy changes.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

ROUNDS = 8
SMALL_BITS, SMALL_ROUNDS = 11, 24  # for sizes up to 2^10
_MULTIPLIERS = np.array([0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93], np.uint64)
_SHIFT = np.uint64(32)

Words = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]


def key_words(count: int, *parts: str | int) -> Words:
    """Pseudo-random words that depend on every part; ("ab", "c") and ("a", "bc") differ."""
    data = json.dumps(["tokenmill permutation 1", *parts]).encode()
    return np.frombuffer(hashlib.shake_256(data).digest(8 * count), "<u8").astype(np.uint64)


def hashed(numbers: Words, key: np.uint64) -> Words:
    """A hash of each number; only the high bits are well mixed."""
    found: Words = (numbers ^ key) * _MULTIPLIERS[0]
    found ^= found >> _SHIFT
    found *= _MULTIPLIERS[1]
    return found


class Permutation:
    """`parts` are the seed and whatever else distinguishes this permutation from others."""

    def __init__(self, size: int, *parts: str | int) -> None:
        self.size = size
        bits = max(2, (size - 1).bit_length())
        rounds = SMALL_ROUNDS if bits < SMALL_BITS else ROUNDS
        self._keys = key_words(rounds, size, *parts).reshape(-1, 2)
        self._right_bits = np.uint64(bits - bits // 2)
        self._right_mask = np.uint64((1 << (bits - bits // 2)) - 1)
        self._left_drop = np.uint64(64 - bits // 2)
        self._right_drop = np.uint64(64 - (bits - bits // 2))

    def __call__(self, numbers: Numbers) -> Numbers:
        """The images of these numbers, which are below `size`."""
        found = self._network(numbers.astype(np.uint64))
        outside = np.flatnonzero(found >= self.size)
        while len(outside):
            found[outside] = self._network(found[outside])
            outside = outside[found[outside] >= self.size]
        return found.astype(np.int64)

    def _network(self, numbers: Words) -> Words:
        left, right = numbers >> self._right_bits, numbers & self._right_mask
        for even, odd in self._keys:
            left ^= hashed(right, even) >> self._left_drop
            right ^= hashed(left, odd) >> self._right_drop
        return (left << self._right_bits) | right


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
