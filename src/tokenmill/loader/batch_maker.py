"""Batches from places of the run: which rows of which source, their tokens, and their masks.

A row has one token more than inputs: the last token is only a target. Padding counts as a document
of its own, the last of its row.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.loader.batch import TokenBatch
from tokenmill.loader.mixing import Mixture
from tokenmill.loader.options import LoaderOptions
from tokenmill.loader.order import Numbers
from tokenmill.loader.rows import Buffer, Flags
from tokenmill.loader.source import Source
from tokenmill.loader.steps import Range, part_of

AHEAD_STEPS = 4


@dataclass(frozen=True, slots=True)
class SourcePart:
    """The rows of one source at some places."""

    source: Source
    places: Numbers  # which of them
    turns: Numbers  # of the source
    rows: Numbers


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """A batch to be made."""

    rows: int  # the run's counter after it
    parts: list[SourcePart]


class BatchMaker:
    def __init__(self, sources: Sequence[Source], mixture: Mixture, options: LoaderOptions) -> None:
        self._sources = sources
        self._mixture = mixture
        self._options = options

    @functools.cached_property
    def num_ahead(self) -> int:
        """Steps whose rows are prefetched, if they come from a store."""
        return AHEAD_STEPS if any(source.rows.cache for source in self._sources) else 0

    def parts(self, ranges: Sequence[Range]) -> list[SourcePart]:
        """The rows at these places of the run."""
        numbers, turns = self._at(ranges)
        found = []
        for number in sorted(set(numbers.tolist())):
            source, places = self._sources[number], np.flatnonzero(numbers == number)
            own = turns[places]
            found.append(SourcePart(source, places, own, source.order.rows(own)))
        return found

    def planned(self, ranges: Sequence[Range]) -> BatchPlan:
        """This rank's part of a step; its rows are prefetched."""
        count = self._options.rank_rows
        own = part_of(ranges, self._options.rank * count, (self._options.rank + 1) * count)
        parts = self.parts(own)
        for part in parts:
            part.source.rows.expect(part.rows)
        return BatchPlan(ranges[-1][1], parts)

    def batch(self, plan: BatchPlan) -> TokenBatch:
        shape = (self._options.rank_rows, self._options.seq_len + 1)
        tokens = np.empty(shape, np.dtype(self._options.dtype))
        for part in plan.parts:
            part.source.rows.read(part.rows, tokens, part.places)
        extras = self._extras(plan, tokens) if self._options.extras else {}
        return TokenBatch(tokens[:, :-1], tokens[:, 1:], plan.rows, **extras)

    def _extras(self, plan: BatchPlan, tokens: Any) -> dict[str, Any]:
        starts = np.empty(tokens.shape, np.bool_)
        eots = np.full((len(tokens), 1), -1, np.int64)
        num_real = np.full((len(tokens), 1), tokens.shape[1], np.int64)
        for part in plan.parts:
            rows, places = part.source.rows, part.places
            starts[places] = rows.starts(part.rows, tokens[places])
            stream = rows.split.stream
            if stream.eot is not None and stream.eot_id is not None:
                eots[places] = stream.eot_id
            real = rows.num_real(part.rows)
            if real is not None:
                num_real[places, 0] = real
        makers: dict[str, Callable[[], Any]] = {
            "cu_seqlens": lambda: cu_seqlens(starts),
            "position_ids": lambda: position_ids(starts),
            "document_ids": lambda: document_ids(starts),
            "loss_mask": lambda: loss_mask(starts, tokens, eots, num_real),
        }
        return {name: makers[name]() for name in self._options.extras}

    def _at(self, ranges: Sequence[Range]) -> tuple[Numbers, Numbers]:
        found = [self._mixture.at(start, stop) for start, stop in ranges]
        if len(found) == 1:
            return found[0]
        numbers, turns = zip(*found, strict=True)
        return np.concatenate(numbers), np.concatenate(turns)


# cu_seqlens has room for one document per this many tokens; if that is too little, it is doubled.
TOKENS_PER_DOCUMENT = 64


def document_ids(starts: Flags) -> npt.NDArray[np.int32]:
    """Which document of its row each input belongs to, counted from 0."""
    return np.cumsum(starts[:, :-1], axis=1, dtype=np.int32) - 1


def position_ids(starts: Flags) -> npt.NDArray[np.int32]:
    """The position of each input in its document; the row's first input has 0."""
    places = np.arange(starts.shape[1] - 1, dtype=np.int32)
    return places - np.maximum.accumulate(np.where(starts[:, :-1], places, 0), axis=1)


def loss_mask(starts: Flags, tokens: Buffer, eot_ids: Numbers, num_real: Numbers) -> Flags:
    """Whether a target belongs to the document of its input. The EOT id that ends a document counts
    as its own, even if it begins the next one. Padding is never a target. `eot_ids` has the EOT id
    of each row, -1 if documents have none; `num_real` its number of tokens before the padding."""
    is_end: Flags = (tokens[:, 1:] == eot_ids) & (tokens[:, :-1] != eot_ids)
    is_real: Flags = np.arange(1, tokens.shape[1]) < num_real
    return (~starts[:, 1:] | is_end) & is_real


def cu_seqlens(starts: Flags) -> npt.NDArray[np.int32]:
    """Where documents begin among all inputs of the batch, row after row, then the number of
    inputs, repeated. Its length is fixed, so that a compiled model is not compiled again."""
    num_rows, seq_len = starts.shape[0], starts.shape[1] - 1
    found = np.flatnonzero(starts[:, :-1])
    room = num_rows * (1 + seq_len // TOKENS_PER_DOCUMENT) + 1
    while room < len(found) + 1:
        room *= 2
    padded = np.full(room, num_rows * seq_len, np.int32)
    padded[: len(found)] = found
    return padded
