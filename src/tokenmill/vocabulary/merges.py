"""Byte-pair merges, trained on counted words: exact 64-bit counts, whole arrays at a time.

All words are in one array of symbols. A merge looks up the places of its pair, replaces both
symbols by one, and corrects the counts of the pairs to the left and right. NumPy does the work per
place, Python the work per merge.

The next pair is always the one with the highest count; of equals, the one with the smaller token
ids. So the order of the 256 bytes decides ties: `tokenizers` sorts them by the letters that stand
for them, rustbpe by value.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
NOTHING = -1  # between words
_SHIFT = 32


@dataclass(frozen=True, slots=True)
class Words:
    """Distinct pieces of text, and how often each occurs."""

    data: npt.NDArray[np.uint8]  # their bytes, one after another
    ends: Ints  # where each ends
    counts: Ints


@dataclass(frozen=True, slots=True)
class Merges:
    tokens: list[bytes]  # by id: the 256 bytes, then what merges make
    pairs: list[tuple[bytes, bytes]]  # what is merged, in this order
    num_symbols: int  # tokens of the whole text that the words were counted from
    num_unused: int  # different tokens that are not among these


def learned_merges(
    words: Words,
    num_tokens: int,
    byte_order: Sequence[int],
    progress: Callable[[int], None] = lambda num_tokens: None,
) -> Merges:
    """Up to `num_tokens` tokens, bytes in the given order; fewer if no pair is left.

    `progress` is called every 256 tokens with their number.
    """
    return _Merger(words, byte_order).learned(num_tokens, progress)


class _Merger:
    def __init__(self, words: Words, byte_order: Sequence[int]) -> None:
        id_of_byte = np.empty(256, np.int32)
        id_of_byte[list(byte_order)] = np.arange(256, dtype=np.int32)
        self._tokens = [bytes([byte]) for byte in byte_order]
        self._ids = {token: i for i, token in enumerate(self._tokens)}
        self._pairs: list[tuple[bytes, bytes]] = []
        # A word's bytes, then NOTHING, so that no pair spans two words.
        starts = np.concatenate([[0], words.ends[:-1]])
        lengths = words.ends - starts
        places = np.arange(len(words.data), dtype=np.int64) + np.repeat(
            np.arange(1, len(lengths) + 1), lengths
        )
        size = len(words.data) + len(lengths) + 1
        self._symbols = np.full(size, NOTHING, np.int32)
        self._symbols[places] = id_of_byte[words.data]
        self._weights = np.zeros(size, np.int64)  # of each symbol: how often its word occurs
        self._weights[places] = np.repeat(words.counts, lengths)
        self._after = np.arange(1, size + 1, dtype=np.int32)
        self._before = np.arange(-1, size - 1, dtype=np.int32)
        self._counts: dict[int, int] = {}
        self._places: dict[int, list[npt.NDArray[np.int32]]] = {}
        self._heap: list[tuple[int, int]] = []
        self._add_first_pairs()

    def learned(self, num_tokens: int, progress: Callable[[int], None]) -> Merges:
        while len(self._tokens) < num_tokens and self._heap:
            negative_count, pair = heapq.heappop(self._heap)
            count = self._counts[pair]
            if -negative_count != count:  # outdated
                if count > 0:
                    heapq.heappush(self._heap, (-count, pair))
                continue
            self._merge(pair)
            if len(self._tokens) % 256 == 0:
                progress(len(self._tokens))
        is_there = self._symbols >= 0
        num_used = np.count_nonzero(np.bincount(self._symbols[is_there]))
        num_symbols = int(self._weights[is_there].sum())
        return Merges(self._tokens, self._pairs, num_symbols, len(self._tokens) - int(num_used))

    def _add_first_pairs(self) -> None:
        places = np.flatnonzero((self._symbols[:-1] >= 0) & (self._symbols[1:] >= 0))
        self._add_pairs(places.astype(np.int32))

    def _pairs_at(self, places: npt.NDArray[np.int32]) -> Ints:
        first = self._symbols[places].astype(np.int64)
        return (first << _SHIFT) | self._symbols[self._after[places]]

    def _add_pairs(self, places: npt.NDArray[np.int32]) -> None:
        """Count pairs that begin at these places, and remember where they are."""
        if not len(places):
            return
        pairs = self._pairs_at(places)
        order = np.argsort(pairs, kind="stable")
        pairs, places = pairs[order], places[order]
        starts = _starts(pairs)
        sums = np.add.reduceat(self._weights[places], starts).tolist()
        pieces = np.split(places, starts[1:])
        for pair, count, piece in zip(pairs[starts].tolist(), sums, pieces, strict=True):
            total = self._counts.get(pair, 0) + count
            self._counts[pair] = total
            self._places.setdefault(pair, []).append(piece)
            heapq.heappush(self._heap, (-total, pair))

    def _subtract_pairs(self, places: npt.NDArray[np.int32], pairs: Ints) -> None:
        if not len(places):
            return
        order = np.argsort(pairs, kind="stable")
        pairs, weights = pairs[order], self._weights[places[order]]
        starts = _starts(pairs)
        for pair, count in zip(
            pairs[starts].tolist(), np.add.reduceat(weights, starts).tolist(), strict=True
        ):
            self._counts[pair] -= count

    def _merge(self, pair: int) -> None:
        first, second = pair >> _SHIFT, pair & 0xFFFFFFFF
        token = self._tokens[first] + self._tokens[second]
        self._pairs.append((self._tokens[first], self._tokens[second]))
        new = self._ids.setdefault(token, len(self._tokens))  # two pairs may make the same token
        if new == len(self._tokens):
            self._tokens.append(token)
        places = np.sort(np.concatenate(self._places.pop(pair)))
        places = places[(self._symbols[places] == first)]
        nexts = self._after[places]
        is_here = self._symbols[nexts] == second
        places, nexts = places[is_here], nexts[is_here]
        if first == second:
            chosen = _every_other(places, nexts)
            places, nexts = places[chosen], nexts[chosen]
        before, after = self._before[places], self._after[nexts]
        # Pairs that disappear: to the left, and to the right unless the right neighbour is merged
        # too: then it is that one's left pair.
        has_left = self._symbols[before] >= 0
        has_right = self._symbols[after] >= 0
        is_next_merged = np.zeros(len(places) + 1, np.bool_)
        is_next_merged[1:-1] = after[:-1] == places[1:]
        right = has_right & ~is_next_merged[1:]
        self._subtract_pairs(before[has_left], self._pairs_at(before[has_left]))
        self._subtract_pairs(nexts[right], self._pairs_at(nexts[right]))
        self._symbols[places] = new
        self._symbols[nexts] = NOTHING
        self._after[places] = after
        self._before[after] = places
        left = has_left & ~is_next_merged[:-1]  # otherwise the merge before it adds the pair
        self._add_pairs(np.concatenate([before[left], places[has_right]]))


def _starts(sorted_values: Ints) -> Ints:
    changes = np.flatnonzero(sorted_values[1:] != sorted_values[:-1]) + 1
    return np.concatenate([[0], changes])


def _every_other(
    places: npt.NDArray[np.int32], nexts: npt.NDArray[np.int32]
) -> npt.NDArray[np.bool_]:
    """Which pairs of a token with itself are merged: in a run of them, every other."""
    begins_run = np.ones(len(places), np.bool_)
    begins_run[1:] = places[1:] != nexts[:-1]
    numbers = np.arange(len(places))
    run_starts = np.maximum.accumulate(np.where(begins_run, numbers, 0))
    chosen: npt.NDArray[np.bool_] = (numbers - run_starts) % 2 == 0
    return chosen
