"""One pass over the tokens of a split, stretch by stretch: counts by id, bytes of text, documents.

A split is cut into up to 256 equal stretches. A sample reads a window of each, at a place that
depends on its number, so that the same dataset gives the same sample; an exact pass reads all. A
stretch costs one `bincount` (1.3 ns a token), from which its bytes of text follow.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tokenmill.dataset.inspect import TokenBytes
from tokenmill.dataset.split import Split
from tokenmill.dataset.stream import Tokens
from tokenmill.look.report.document_keys import DocumentKeys, Keys, Numbers

NUM_STRETCHES = 256
FAR_STRETCHES = 64
MIN_STRETCH_TOKENS = 1024
WINDOW_TOKENS = 8192
BLOCK_TOKENS = 1 << 19  # as 64-bit numbers, an eighth of what a core's share of the L3 holds
# Without a tokenizer nothing says how many ids there are; larger ones are counted together.
MAX_UNKNOWN_IDS = 1 << 20


@dataclass(frozen=True, slots=True)
class ReadStretch:
    """A part of a split, from `start` to `stop`, and what is read of it, in tokens."""

    start: int
    stop: int
    read_start: int
    read_stop: int

    @property
    def num_read(self) -> int:
        return self.read_stop - self.read_start


@dataclass(frozen=True, slots=True)
class SplitTally:
    """The results for consecutive stretches."""

    counts: Numbers  # by id; the last one also of ids beyond
    num_bytes: Numbers  # of each stretch, as far as it was read; empty without a tokenizer
    ends: Numbers  # of documents, in tokens of the split; empty if they were not asked for
    keys: Keys  # of the documents that end there: the same for the same tokens

    @property
    def arrays(self) -> tuple[Numbers, Numbers, Numbers, Keys]:
        return self.counts, self.num_bytes, self.ends, self.keys

    @staticmethod
    def joined(parts: Iterable[SplitTally]) -> SplitTally:
        """The sum of tallies; each one's counts, 0.4 MB, are dropped once they are added."""
        counts = np.empty(0, np.int64)
        others = [(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.uint64))]
        for part in parts:
            counts = np.add(counts, part.counts, out=counts) if len(counts) else part.counts.copy()
            others.append((part.num_bytes, part.ends, part.keys))
        num_bytes, ends, keys = map(np.concatenate, zip(*others, strict=True))
        return SplitTally(counts, num_bytes, ends, keys)


def stretches_of(num_tokens: int, is_exact: bool, is_local: bool) -> list[ReadStretch]:
    most = NUM_STRETCHES if is_local else FAR_STRETCHES
    number = max(1, min(most, num_tokens // MIN_STRETCH_TOKENS))
    bounds = [num_tokens * i // number for i in range(number + 1)]
    return [
        _stretch(position, bounds[position], bounds[position + 1], is_exact)
        for position in range(number if num_tokens else 0)
    ]


def _stretch(position: int, start: int, stop: int, is_exact: bool) -> ReadStretch:
    spare = stop - start - WINDOW_TOKENS
    if is_exact or spare <= 0:
        return ReadStretch(start, stop, start, stop)
    first = start + random.Random(position).randrange(spare + 1)
    return ReadStretch(start, stop, first, first + WINDOW_TOKENS)


def largest_row(table: TokenBytes | None, split: Split) -> int:
    """The last row of the counts: all ids from there on."""
    if table is not None:
        return len(table.lengths) - 1
    return min(int(np.iinfo(split.dtype).max), MAX_UNKNOWN_IDS)


@dataclass(frozen=True, slots=True)
class Tallying:
    """How stretches are counted. `last` is the last row of the counts, `per_id` has the bytes of
    each id. `with_documents` needs stretches that are read whole."""

    split: Split
    last: int
    per_id: Numbers | None
    with_documents: bool

    def of(self, stretches: Sequence[ReadStretch], advance: Callable[[int], None]) -> SplitTally:
        """The tally of neighbouring stretches, in one pass."""
        keys = DocumentKeys(self.split, stretches[0].start) if self.with_documents else None
        return SplitTally.joined(self._tallied(one, keys, advance) for one in stretches)

    def _tallied(
        self, stretch: ReadStretch, keys: DocumentKeys | None, advance: Callable[[int], None]
    ) -> SplitTally:
        counts: Numbers | None = None
        blocks = self._blocks(stretch)
        ends = np.empty(0, np.int64)
        if keys is not None:
            blocks = list(blocks)  # views of a map, or else of what was unpacked
            ends = keys.begin(stretch.start, stretch.stop, blocks)
        for start, tokens in blocks:
            found = _counted(tokens, self.last)
            counts = found if counts is None else np.add(counts, found, out=counts)
            if keys is not None:
                keys.feed(start, tokens)
            advance(len(tokens))
        if counts is None:
            counts = np.zeros(self.last + 1, np.int64)
        num_bytes = [] if self.per_id is None else [int(np.dot(counts, self.per_id))]
        made = np.empty(0, np.uint64) if keys is None else keys.finish()
        return SplitTally(counts, np.array(num_bytes, np.int64), ends, made)

    def _blocks(self, stretch: ReadStretch) -> Iterable[tuple[int, Tokens]]:
        for start in range(stretch.read_start, stretch.read_stop, BLOCK_TOKENS):
            yield start, self.split.tokens(start, min(start + BLOCK_TOKENS, stretch.read_stop))


def _counted(tokens: Tokens, last: int) -> Numbers:
    """How often each id occurs; those beyond `last`, or below 0, count as `last`."""
    if tokens.dtype != np.uint16:  # whose counts are few in any case
        is_signed = tokens.dtype.kind == "i"
        if int(tokens.max()) > last or (is_signed and int(tokens.min()) < 0):
            tokens = np.where((tokens < 0) | (tokens > last), last, tokens)
    counts = np.bincount(tokens.astype(np.intp, copy=False), minlength=last + 1)
    counts[last] += counts[last + 1 :].sum()
    return counts[: last + 1]
