"""Fits shards and the validation split to the size of a small corpus.

A trainer needs training data and validation data. With few documents, a split by documents may
leave one of them empty. With shards of 100M tokens and the first one for validation, a smaller
corpus leaves nothing to train on. Then shards become smaller, unless the user has set their size.
If no document was held out, or every document was, the last tokens of the stream are held out
instead, as in nanoGPT's own recipe for Shakespeare.

The decision depends on the parts' records alone, not on who encoded them or when.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from tokenmill.assemble.task import Block, TokenSource
from tokenmill.config import Config
from tokenmill.corpus.inputs import shared_inputs
from tokenmill.corpus.plan import Plan
from tokenmill.encode.record import PartChunk, PartRecord
from tokenmill.formats import Layout, get_format

# How much is held out if the corpus is too small for a split by documents.
SMALL_VAL_FRACTION = 0.1
MAX_SMALL_VAL_TOKENS = 1_000_000
MIN_SHARD_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class FittingOptions:
    """The options that matter if the corpus is small."""

    may_shrink_shards: bool = False  # the user did not set their size
    is_split: bool = False  # documents are held out at random
    val_fraction: float | None = None  # if the user set it
    is_repeated: bool = False  # some documents are in the corpus several times

    @staticmethod
    def of(config: Config, plan: Plan) -> FittingOptions:
        has_names = bool(config.named) and config.dedup is None
        is_shared = has_names and bool(shared_inputs(plan.inputs))
        is_usual = config.val_fraction == get_format(config.format).defaults.val_fraction
        return FittingOptions(
            may_shrink_shards=config.val == "first-shard" and config.shard_tokens is None,
            is_split=config.val == "fraction",
            val_fraction=None if is_usual else config.val_fraction,
            is_repeated=config.has_repeats or is_shared,
        )


@dataclass(frozen=True, slots=True)
class Fitted:
    """The decision. If a split by documents failed, the last `val_tokens` of `stream` are held out.
    If it is None, the streams are the splits of the parts."""

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
    """The totals of all recorded parts, by split."""

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
    """The decision; None: it needs more parts."""
    num_tokens = sum(totals.num_tokens)
    if options.may_shrink_shards and num_tokens < 2 * (layout.shard_tokens or 0):
        num_documents = sum(totals.num_documents)
        return _with_smaller_shards(layout, num_tokens, num_documents) if is_all else None
    if not options.is_split or all(totals.num_documents):
        return Fitted(layout)
    if not is_all:
        return None
    stream = int(not totals.num_documents[0])
    val_tokens = _val_tokens(num_tokens, options.val_fraction)
    if layout.seq_len:
        val_tokens = _with_whole_samples(num_tokens, val_tokens, layout.seq_len)
    if layout.has_boundaries and totals.num_documents[stream] < 2:
        val_tokens = 0  # a format with boundaries does not cut documents
    if options.is_repeated:
        val_tokens = 0  # copies of the last tokens would be in the training split
    if not val_tokens and not stream:
        return Fitted(layout)
    return Fitted(layout, stream, val_tokens)


def _with_smaller_shards(layout: Layout, num_tokens: int, num_documents: int) -> Fitted:
    """Shards of a tenth of the tokens each, the first for validation; of half if there are very
    few. If that would leave nothing to train on, nothing is held out."""
    wanted = max(-(-num_tokens // 10), min(MIN_SHARD_TOKENS, -(-num_tokens // 2)), 1)
    step = layout.seq_len or 1
    if num_tokens < 2 * step or (layout.has_boundaries and num_documents < 2):
        return Fitted(dataclasses.replace(layout, first_shard_is_val=False))
    return Fitted(dataclasses.replace(layout, shard_tokens=max(step, wanted - wanted % step)))


def _val_tokens(num_tokens: int, fraction: float | None) -> int:
    """The user's fraction, or a tenth but at most a million tokens; neither side is empty."""
    if fraction is None:
        wanted = min(round(num_tokens * SMALL_VAL_FRACTION), MAX_SMALL_VAL_TOKENS)
    else:
        wanted = round(num_tokens * fraction)
    return min(max(wanted, 1), num_tokens - 1)


def _with_whole_samples(num_tokens: int, val_tokens: int, seq_len: int) -> int:
    """How many tokens to hold out so that training data is whole samples, and the unused tail the
    end of the stream; 0 if one side would have no sample."""
    num_train = num_tokens - max(val_tokens, seq_len)
    num_train -= num_train % seq_len
    return num_tokens - num_train if num_train > 0 else 0


class Share:
    """One side of a stream that is divided after `num_train` tokens: the held-out side or the rest.
    If the format stores boundaries, the cut is between two documents."""

    def __init__(self, layout: Layout, num_train: int, is_val: bool = True) -> None:
        self._has_boundaries = layout.has_boundaries
        self._num_train = num_train
        self._is_val = is_val
        self._num_before = 0
        self.is_divided = False  # the last block

    def of(self, block: Block, source: TokenSource) -> Block:
        """The share of the next block; it may be empty."""
        room = min(max(self._num_train - self._num_before, 0), block.num_tokens)
        documents = 0
        # Only the divided block needs lengths; those of later blocks may be gone.
        self.is_divided = room < block.num_tokens and (room > 0 or not self._num_before)
        if self._has_boundaries and self.is_divided:
            ends = np.cumsum(source.lengths(block.whole), dtype=np.int64)
            documents = int(np.searchsorted(ends, room, "right"))
            if not self._num_before:
                documents = max(documents, 1)
            room = int(ends[documents - 1]) if documents else 0
        elif self._has_boundaries and room:
            documents = block.num_documents
        self._num_before += block.num_tokens
        return block.cut_at(room, documents)[self._is_val]
