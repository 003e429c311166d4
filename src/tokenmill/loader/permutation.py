"""A pseudo-random permutation of 0 .. size-1 that is computed, not stored.

A Feistel network with two unequal halves permutes 2^bits numbers, bits = ceil(log2(size)). A result
that is not below `size` is permuted again until it is (cycle walking): less than twice on average.
Each round takes the high bits of a multiply-xorshift-multiply: low bits of a product hardly mix.
Eight rounds are enough for large sizes. With 6 items they make some orders three times as likely as
others; 24 rounds do not. Keys come from SHAKE-256, whose output no version of NumPy changes.
"""

from __future__ import annotations

import hashlib
import json

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
