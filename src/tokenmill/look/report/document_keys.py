"""A key for each document, from its length and a few tokens at both ends. Documents with different
keys differ; those with the same key may be equal.

The keys are made in the pass that counts tokens, block by block, so that nothing is read or
unpacked twice. A document that is not over at the end of a stretch is carried over to the next.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from tokenmill.dataset.document_bounds import UNIT_TOKENS, DocumentBounds
from tokenmill.dataset.split import Split
from tokenmill.dataset.stream import Tokens

PROBES = 8  # tokens from either end
_PROBE = np.arange(PROBES)[:, None]
_FACTOR, _SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(29)

Numbers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]


class DocumentKeys:
    """The keys of documents that end in consecutive stretches, from `start` on. For each stretch,
    call `begin`, `feed` with its tokens, and `finish`."""

    def __init__(self, split: Split, start: int) -> None:
        self._split = split
        self._open = _start_before(split.bounds, start) if start else 0
        # Its first tokens before the stretch, and the last ones from the end on.
        self._head = split.tokens(self._open, min(self._open + PROBES, start)).astype(np.uint64)
        tail = split.tokens(max(self._open, start - PROBES), start)
        self._tail = tail[::-1].astype(np.uint64)

    def begin(self, start: int, stop: int, blocks: Iterable[tuple[int, Tokens]]) -> Numbers:
        """The ends of the documents that end in a stretch, whose tokens are `blocks`."""
        ends = self._ends_in(start, stop, blocks)
        if stop == self._split.num_tokens and (not len(ends) or ends[-1] < stop):
            ends = np.append(ends, stop)  # the last document has no EOT id
        self._num_ends = len(ends)
        self._ends = np.append(ends, stop)  # with the open document
        self._starts = np.concatenate([[self._open], self._ends[:-1]])
        last = np.maximum(self._ends - 1, self._starts)
        heads = np.minimum(self._starts + _PROBE, last)
        tails = np.maximum(self._ends - 1 - _PROBE, self._starts)
        self._places = np.concatenate([heads, tails])
        self._values = np.zeros(self._places.shape, np.uint64)
        for row in np.flatnonzero(self._places[:, 0] < start).tolist():
            self._values[row, 0] = self._before(start, int(self._places[row, 0]))
        return ends

    def _ends_in(self, start: int, stop: int, blocks: Iterable[tuple[int, Tokens]]) -> Numbers:
        stream = self._split.stream
        if stream.has_boundaries or stream.eot == "both":
            return self._split.bounds.ends_between(start or -1, stop)
        # Not by the document index, which would read, and may unpack, the same tokens again.
        found = [np.flatnonzero(tokens == stream.eot_id) + at for at, tokens in blocks]
        if stream.eot == "append":
            return np.concatenate([np.empty(0, np.int64), *found]) + 1
        after = self._split.tokens(stop, stop + 1)  # an EOT id ends the document before it
        ends = np.concatenate([*found, np.flatnonzero(after == stream.eot_id) + stop])
        return ends[ends > start]

    def _before(self, start: int, place: int) -> np.uint64:
        """A token of the open document before the stretch."""
        at = place - self._open
        return self._head[at] if at < PROBES else self._tail[start - 1 - place]  # type: ignore[no-any-return]

    def feed(self, start: int, tokens: Tokens) -> None:
        """A block of the stretch."""
        first = int(np.searchsorted(self._ends, start, "left"))  # documents that reach into it
        last = int(np.searchsorted(self._starts, start + len(tokens), "left"))
        # Those that it holds as a whole, which are nearly all.
        whole = int(np.searchsorted(self._starts, start, "left"))
        end = int(np.searchsorted(self._ends, start + len(tokens), "right"))
        end = max(whole, min(end, last))  # an empty one at the very end has no place here
        self._values[:, whole:end] = tokens[self._places[:, whole:end] - start]
        for some in slice(first, whole), slice(end, last):
            within = self._places[:, some] - start
            is_here = (within >= 0) & (within < len(tokens))
            self._values[:, some][is_here] = tokens[within[is_here]]

    def finish(self) -> Keys:
        num = self._num_ends
        self._open = int(self._starts[-1])
        length = int(self._ends[-1]) - self._open
        self._head, self._tail = (self._values[rows, -1][:length] for rows in _HEADS_AND_TAILS)
        lengths = (self._ends - self._starts)[:num]
        keys: Keys = lengths.astype(np.uint64)
        for probe in range(PROBES):
            for values in self._values[probe, :num], self._values[PROBES + probe, :num]:
                keys = keys * _FACTOR + values
                keys ^= keys >> _SHIFT
        return np.where(lengths, keys, np.uint64(0))  # an empty one has no tokens


_HEADS_AND_TAILS = slice(0, PROBES), slice(PROBES, 2 * PROBES)


def _start_before(bounds: DocumentBounds, token: int) -> int:
    """Where the document that contains a token begins: the last end before it."""
    stop = token
    while stop:
        start = max(0, stop - UNIT_TOKENS)
        ends = bounds.ends_between(start or -1, stop)
        if len(ends):
            return int(ends[-1])
        stop = start
    return 0
