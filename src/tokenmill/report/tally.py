"""One pass over the tokens of a split, stretch by stretch: counts by id, bytes of text, documents.

A split is cut into up to 256 equal stretches. A sample reads a window of each, at a place that the
stretch's own number decides, so that the same dataset gives the same sample; an exact pass reads
all. A stretch costs one `bincount` (1.3 ns a token), from which its bytes of text follow.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tokenmill.dataset.inspect import TokenBytes
from tokenmill.dataset.split import Split
from tokenmill.dataset.stream import Tokens

NUM_STRETCHES = 256
FAR_STRETCHES = 64
MIN_STRETCH_TOKENS = 1024
WINDOW_TOKENS = 8192
BLOCK_TOKENS = 1 << 18
# Without a tokenizer nothing says how many ids there are; larger ones are counted together.
MAX_UNKNOWN_IDS = 1 << 20
_PROBES = 8  # tokens of a document that its key is made of, from either end

Numbers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]


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
class StretchTally:
    counts: Numbers  # by id; the last one also of ids beyond
    ends: Numbers | None  # of documents, in tokens of the split; None: not asked for
    keys: Keys | None  # of the documents that end there: the same for the same tokens


@dataclass(frozen=True, slots=True)
class SplitTally:
    """What consecutive stretches hold together."""

    counts: Numbers
    num_bytes: tuple[int | None, ...]  # of each stretch, as far as it was read
    ends: Numbers
    keys: Keys

    @staticmethod
    def of(tallies: Iterable[StretchTally], per_id: Numbers | None) -> SplitTally:
        """Of stretches that come one by one: their counts take 0.4 MB each and are not kept.
        `per_id` are the bytes of each id."""
        counts, num_bytes = np.empty(0, np.int64), list[int | None]()
        ends, keys = [np.empty(0, np.int64)], [np.empty(0, np.uint64)]
        for tally in tallies:
            counts = tally.counts + (counts if len(counts) else 0)
            num_bytes.append(None if per_id is None else int(tally.counts @ per_id))
            if tally.ends is not None and tally.keys is not None:
                ends.append(tally.ends)
                keys.append(tally.keys)
        return SplitTally(counts, tuple(num_bytes), np.concatenate(ends), np.concatenate(keys))

    @staticmethod
    def joined(parts: Sequence[SplitTally]) -> SplitTally:
        return SplitTally(
            np.sum([part.counts for part in parts], axis=0),
            tuple(itertools.chain.from_iterable(part.num_bytes for part in parts)),
            np.concatenate([part.ends for part in parts]),
            np.concatenate([part.keys for part in parts]),
        )


def stretches_of(num_tokens: int, is_exact: bool, is_far: bool) -> list[ReadStretch]:
    most = FAR_STRETCHES if is_far else NUM_STRETCHES
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


def tallied(split: Split, stretch: ReadStretch, last: int, with_documents: bool) -> StretchTally:
    """What a stretch holds; with documents only if it is read as a whole."""
    counts = np.zeros(last + 1, np.int64)
    for start in range(stretch.read_start, stretch.read_stop, BLOCK_TOKENS):
        tokens = split.tokens(start, min(start + BLOCK_TOKENS, stretch.read_stop))
        counts += _counted(tokens, last)
    if not with_documents:
        return StretchTally(counts, None, None)
    ends = split.bounds.ends_between(stretch.start or -1, stretch.stop)
    if stretch.stop == split.num_tokens and (not len(ends) or ends[-1] < stretch.stop):
        ends = np.append(ends, stretch.stop)  # what no EOT id ends
    return StretchTally(counts, ends, _keys(split, stretch, ends))


def _counted(tokens: Tokens, last: int) -> Numbers:
    """How often each id occurs; those beyond `last`, or below 0, count as `last`."""
    if tokens.dtype != np.uint16:  # whose counts are few in any case
        is_signed = tokens.dtype.kind == "i"
        if int(tokens.max()) > last or (is_signed and int(tokens.min()) < 0):
            tokens = np.where((tokens < 0) | (tokens > last), last, tokens)
    counts = np.bincount(tokens.astype(np.intp, copy=False), minlength=last + 1)
    counts[last] += counts[last + 1 :].sum()
    return counts[: last + 1]


def _keys(split: Split, stretch: ReadStretch, ends: Numbers) -> Keys:
    """A number for each document that ends in a stretch: of its length, and of a few tokens at
    both ends. Documents with different keys differ."""
    if not len(ends):
        return np.empty(0, np.uint64)
    first = _start_of(split, stretch, int(ends[0]))
    starts = np.concatenate([[first], ends[:-1]])
    tokens = split.tokens(first, int(ends[-1]))
    keys: Keys = (ends - starts).astype(np.uint64)
    at_most = np.maximum(ends - 1, starts)
    for probe in range(_PROBES):
        for places in (np.minimum(starts + probe, at_most), np.maximum(ends - 1 - probe, starts)):
            within = np.minimum(places - first, max(0, len(tokens) - 1))
            values = tokens[within] if len(tokens) else np.zeros(len(ends), np.uint16)
            keys = keys * np.uint64(0x9E3779B97F4A7C15) + values.astype(np.uint64)
            keys ^= keys >> np.uint64(29)
    return keys


def _start_of(split: Split, stretch: ReadStretch, end: int) -> int:
    """Where the document begins that ends first in a stretch."""
    if not stretch.start:
        return 0
    return split.bounds.bounds(int(split.bounds.numbers_at(np.array([end - 1]))[0]))[0]
