"""What the size of a corpus decides: how large shards are, and what is held out of a small one.

A trainer needs something to train on and something to validate with. A split by documents gives
neither where there are few documents, and shards of 100M tokens of which the first is for
validation leave nothing to train on where there are fewer tokens. Unless the user says how large
shards shall be, they become smaller then; and where no document was held out, or every one was, the
last tokens of the stream are, as nanoGPT's own recipe for Shakespeare does it.

All of it is a function of the parts' records, so it does not depend on who encoded them, or when.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from tokenmill.assemble.task import Block, TokenSource
from tokenmill.encode.record import PartChunk, PartRecord
from tokenmill.formats import Layout

# Of a corpus that is too small for the usual shards or for a split by documents: what is held out.
SMALL_VAL_FRACTION = 0.1
MAX_SMALL_VAL_TOKENS = 1_000_000
MIN_SHARD_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class FittingOptions:
    """What the user and the format say of splits, as far as the size of the corpus matters."""

    may_shrink_shards: bool = False  # the user did not say how large they shall be
    is_split: bool = False  # documents are held out by chance
    val_fraction: float | None = None  # that the user asked for


@dataclass(frozen=True, slots=True)
class Fitted:
    """What was decided. `val_tokens` of `stream` are held out, if a split by documents has failed;
    None: each stream is what the parts say."""

    layout: Layout
    stream: int = 0
    val_tokens: int | None = None

    @property
    def split_rule(self) -> str:
        if self.layout.first_shard_is_val:
            return "first-shard"
        return "documents" if self.val_tokens is None else "tokens"


@dataclass(frozen=True, slots=True)
class PartTotals:
    """What the parts hold that have a record, by split."""

    num_tokens: tuple[int, int] = (0, 0)
    num_documents: tuple[int, int] = (0, 0)

    def __add__(self, record: PartRecord) -> PartTotals:
        chunks = (PartChunk(self.num_tokens, self.num_documents), *record.chunks)
        return PartTotals(
            (sum(c.num_tokens[0] for c in chunks), sum(c.num_tokens[1] for c in chunks)),
            (sum(c.num_documents[0] for c in chunks), sum(c.num_documents[1] for c in chunks)),
        )


def fitted(
    layout: Layout, options: FittingOptions, totals: PartTotals, is_all: bool
) -> Fitted | None:
    """The decision, as soon as it can be made; None: not before there are more parts."""
    num_tokens = sum(totals.num_tokens)
    if options.may_shrink_shards and num_tokens < 2 * (layout.shard_tokens or 0):
        return _with_smaller_shards(layout, num_tokens) if is_all else None
    if not options.is_split or all(totals.num_documents):
        return Fitted(layout)
    if not is_all:
        return None
    stream = int(not totals.num_documents[0])
    val_tokens = _val_tokens(num_tokens, options.val_fraction)
    if layout.seq_len:
        val_tokens = _with_whole_samples(num_tokens, val_tokens, layout.seq_len)
    if layout.has_boundaries and totals.num_documents[stream] < 2:
        val_tokens = 0  # documents are not cut where the format keeps them apart
    if not val_tokens and not stream:
        return Fitted(layout)
    return Fitted(layout, stream, val_tokens)


def _with_smaller_shards(layout: Layout, num_tokens: int) -> Fitted:
    """A tenth for validation, and the rest in as many shards; of very few tokens, a half."""
    wanted = max(-(-num_tokens // 10), min(MIN_SHARD_TOKENS, -(-num_tokens // 2)), 1)
    step = layout.seq_len or 1
    return Fitted(dataclasses.replace(layout, shard_tokens=max(step, wanted - wanted % step)))


def _val_tokens(num_tokens: int, fraction: float | None) -> int:
    """As many as the user asked for, or a tenth, up to a million; and some of both."""
    if fraction is None:
        wanted = min(round(num_tokens * SMALL_VAL_FRACTION), MAX_SMALL_VAL_TOKENS)
    else:
        wanted = round(num_tokens * fraction)
    return min(max(wanted, 1), num_tokens - 1)


def _with_whole_samples(num_tokens: int, val_tokens: int, seq_len: int) -> int:
    """What to hold out so that training data is whole samples, and what fills none is the end of
    the stream; 0 if one side would have no sample."""
    num_train = num_tokens - max(val_tokens, seq_len)
    num_train -= num_train % seq_len
    return num_tokens - num_train if num_train > 0 else 0


class Share:
    """One side of a stream that is divided after `num_train` tokens: what is held out, or what is
    not. Where the format keeps documents apart, it is divided between two of them."""

    def __init__(self, layout: Layout, num_train: int, is_val: bool = True) -> None:
        self._has_boundaries = layout.has_boundaries
        self._num_train = num_train
        self._is_val = is_val
        self._num_before = 0

    def of(self, block: Block, source: TokenSource) -> Block:
        """The share of the next block; it may be empty."""
        room = min(max(self._num_train - self._num_before, 0), block.num_tokens)
        documents = 0
        if self._has_boundaries and room < block.num_tokens:
            ends = np.cumsum(source.lengths(block.whole), dtype=np.int64)
            documents = int(np.searchsorted(ends, room, "right"))
            if not self._num_before:
                documents = max(documents, 1)
            room = int(ends[documents - 1]) if documents else 0
        elif self._has_boundaries:
            documents = block.num_documents
        self._num_before += block.num_tokens
        return block.cut_at(room, documents)[self._is_val]
