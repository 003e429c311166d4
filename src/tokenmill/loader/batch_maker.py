"""Batches from places of the run: which rows of which source, their tokens, and their masks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokenmill.loader import masks
from tokenmill.loader.batch import TokenBatch
from tokenmill.loader.mixing import Mixture
from tokenmill.loader.options import LoaderOptions
from tokenmill.loader.permutation import Numbers
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
            "cu_seqlens": lambda: masks.cu_seqlens(starts),
            "position_ids": lambda: masks.position_ids(starts),
            "document_ids": lambda: masks.document_ids(starts),
            "loss_mask": lambda: masks.loss_mask(starts, tokens, eots, num_real),
        }
        return {name: makers[name]() for name in self._options.extras}

    def _at(self, ranges: Sequence[Range]) -> tuple[Numbers, Numbers]:
        found = [self._mixture.at(start, stop) for start, stop in ranges]
        if len(found) == 1:
            return found[0]
        numbers, turns = zip(*found, strict=True)
        return np.concatenate(numbers), np.concatenate(turns)
