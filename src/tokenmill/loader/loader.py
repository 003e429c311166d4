"""`tokenmill.Loader`: batches of tokens for a trainer, from shards of any format.

    loader = tokenmill.Loader("data/mine", seq_len=1024, batch_size=512)
    for batch in loader:
        loss = model(batch.tokens, batch.targets)
        checkpoint["loader"] = loader.state_dict()

A step is the next `batch_size` rows of the run, on all ranks together; rank r takes the r-th
contiguous part. So the steps are the same for any world size, and any loader of the same data and
options can continue from any state.
"""

from __future__ import annotations

import collections
import functools
import operator
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tokenmill.config.arguments import suggesting
from tokenmill.errors import ConfigError, ConflictError
from tokenmill.loader.account import (
    RowOrigin,
    RowPlace,
    SourceProgress,
    origins_of,
    places_of,
    progress_of,
)
from tokenmill.loader.batch import TokenBatch
from tokenmill.loader.batch_maker import BatchMaker, BatchPlan
from tokenmill.loader.mixing import Mixture
from tokenmill.loader.options import (
    LoaderOptions,
    Packed,
    Stages,
    Weights,
    ranks_given,
    stages_given,
)
from tokenmill.loader.prefetch import Prefetch
from tokenmill.loader.source import Given, sources_of, stages_of
from tokenmill.loader.state import checked_rows, data_of, hash_of, mix_of, require_same, state_of
from tokenmill.loader.steps import Range, Skips
from tokenmill.wording.plural import counted
from tokenmill.wording.quantities import Quantity, count_of


class Loader:
    """An iterable of token batches: `for batch in loader` continues where the last loop stopped,
    and `state_dict` says where that is. docs/training.md has examples."""

    @suggesting
    def __init__(
        self,
        sources: Given | Mapping[str, Given],
        *,
        seq_len: Quantity,
        batch_size: Quantity,
        weights: Weights | None = None,
        stages: Stages = (),
        rank: int | None = None,
        world_size: int | None = None,
        seed: int = 0,
        split: str = "train",
        shuffle: str | None = "full",
        epochs: int | None = None,
        skip: Iterable[Range] = (),
        extras: str | Sequence[str] = (),
        packed: Packed = False,
        dtype: str = "int64",
        prefetch: int = 2,
        cache_dir: str | os.PathLike[str] | None = None,
        cache_bytes: Quantity = 32 << 30,
    ) -> None:
        """`sources`: a dataset (a path, a URL, or what `tokenmill.open` returned), or several by
        name. `weights`: how many tokens of each, as ratios; by default as many as they have.
        `stages`: [("50B", {"web": 0.6, "code": 0.4})], other weights from that token of the run on.
        `rank`, `world_size`: by default RANK and WORLD_SIZE of the environment, as torchrun sets
        them; without these, one rank. `epochs`: the run ends before a source begins another epoch;
        None: it never ends. `skip`: ranges of rows of the run to leave out. `extras`: any of
        cu_seqlens, position_ids, document_ids and loss_mask. `packed`: rows of the plan that
        `tokenmill pack` wrote beside the data; or the path of a plan; or either for each source by
        name. `prefetch`: steps that a thread prepares. `cache_dir`: keeps data of a store on disk,
        up to `cache_bytes`.
        """
        own_rank, num_ranks = ranks_given(rank, world_size)
        self.options = LoaderOptions(
            seq_len=count_of("seq_len", seq_len),
            batch_size=count_of("batch_size", batch_size),
            weights=weights,
            stages=stages_given(stages),
            rank=own_rank,
            world_size=num_ranks,
            seed=operator.index(seed),
            split=split,
            shuffle=shuffle,
            epochs=None if epochs is None else count_of("epochs", epochs),
            skip=tuple((operator.index(first), operator.index(last)) for first, last in skip),
            extras=(extras,) if isinstance(extras, str) else tuple(extras),
            packed=packed,
            dtype=dtype,
            prefetch=prefetch,
            cache_dir=None if cache_dir is None else os.fspath(cache_dir),
            cache_bytes=count_of("cache_bytes", cache_bytes),
        )
        self._skips = Skips(self.options.skip)
        self._sources = sources_of(sources, self.options)
        self._mixture = Mixture(
            [source.name for source in self._sources],
            stages_of(self._sources, self.options),
            self.options.seed,
        )
        self._maker = BatchMaker(self._sources, self._mixture, self.options)
        self._require_a_step()
        self._rows = 0
        self._version = 0  # increases when the counter is set, so that a running iterator notices

    # Iteration

    def __iter__(self) -> Iterator[TokenBatch]:
        """The batches from here on. The counter counts batches that were yielded, not prepared."""
        self._version += 1
        version = self._version
        made: Iterator[TokenBatch] = self.batches()
        ahead = Prefetch(made, self.options.prefetch) if self.options.prefetch else None
        try:
            for batch in ahead or made:
                if version != self._version:
                    raise ConflictError(
                        "a state was loaded, or another loop started, during this iteration",
                        hint="load the state first, then start: for batch in loader",
                    )
                self._rows = batch.rows
                yield batch
        finally:
            if ahead is not None:
                ahead.close()

    def batches(
        self, worker: int = 0, num_workers: int = 1, num_made: int = 0
    ) -> Iterator[TokenBatch]:
        """Every `num_workers`-th batch from here on, starting with number `worker`, without the
        first `num_made` of those. Made in this thread; the counter does not change."""
        place, number, worker = self._rows, 0, worker + num_made * num_workers
        planned: collections.deque[BatchPlan] = collections.deque()
        while (ranges := self._step(place)) is not None:
            place = ranges[-1][1]
            if number >= worker and (number - worker) % num_workers == 0:
                planned.append(self._maker.planned(ranges))
            number += 1
            if len(planned) > self._maker.num_ahead:
                yield self._maker.batch(planned.popleft())
        yield from map(self._maker.batch, planned)

    @property
    def num_rows(self) -> int | None:
        """The rows of the run, skipped ones included; None: it never ends."""
        return self._end

    def __len__(self) -> int:
        """The steps that are left. Raises TypeError for a run that never ends."""
        if self._end is None:
            raise TypeError("the run has no end: epochs=None")
        return self._num_delivered(self._rows, self._end) // self.options.batch_size

    @functools.cached_property
    def _end(self) -> int | None:
        if self.options.epochs is None:
            return None
        return self._mixture.end([self.options.epochs * one.rows.num_rows for one in self._sources])

    def _num_delivered(self, start: int, stop: int) -> int:
        skipped = sum(
            min(last, stop) - max(first, start)
            for first, last in self._skips.ranges
            if first < stop and last > start
        )
        return max(0, stop - start) - skipped

    def _step(self, place: int) -> list[Range] | None:
        """The places of the step that begins at `place`; None if the run does not have enough
        left."""
        ranges = self._skips.next(place, self.options.batch_size)
        return ranges if self._end is None or ranges[-1][1] <= self._end else None

    def __reduce__(self) -> tuple[Any, ...]:
        """Worker processes reopen the datasets."""
        datasets = {source.name: source.dataset for source in self._sources}
        return _rebuilt, (datasets, asdict(self.options), self._rows)

    # State

    def state_dict(self) -> dict[str, Any]:
        """The position of the run: plain values for JSON, under 1 kB, the same on every rank."""
        return self.state_at(self._rows)

    def state_at(self, rows: int) -> dict[str, Any]:
        """The state after the batch with this `rows`, for batches made by other processes."""
        return state_of(rows, self._settings(rows))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state, saved with any world size, batch size and number of workers.

        Raises ConflictError, with the differences, if the data or an option would give other rows.
        """
        rows = checked_rows(state)
        require_same(state, self._settings(rows))
        self._rows = rows
        self._version += 1

    def advance_to(self, rows: int) -> None:
        """Set the counter to the `rows` of a batch that another process made."""
        self._rows = rows

    def _settings(self, rows: int) -> dict[str, Any]:
        return {
            "seq_len": self.options.seq_len,
            "seed": self.options.seed,
            "shuffle": self.options.shuffle,
            "split": self.options.split,
            "mix": mix_of(self._mixture.stages, rows),
            "data": self._data,
            **({"documents": self._documents} if self.options.extras else {}),
        }

    @functools.cached_property
    def _data(self) -> dict[str, str]:
        return data_of({source.name: source.content for source in self._sources})

    @functools.cached_property
    def _documents(self) -> str:
        """Identifies the documents, which extras are made of."""
        return hash_of([[one.name, one.rows.split.content.documents] for one in self._sources])

    # Where rows came from

    def documents_of(self, step: int) -> list[RowOrigin]:
        """Where each row of a step came from, and its documents; the rows of all ranks, in order.
        Steps are counted from the start of a run with this batch_size."""
        return origins_of(self._maker.parts(self._ranges_of(step)), self.options.batch_size)

    def rows_of(self, step: int) -> list[RowPlace]:
        """Which rows a step is made of, in the same order; does not look up documents."""
        return places_of(self._maker.parts(self._ranges_of(step)), self.options.batch_size)

    @property
    def step(self) -> int:
        """The number of the next step, counted from the start of a run with this batch_size."""
        return self._num_delivered(0, self._rows) // self.options.batch_size

    def _ranges_of(self, step: int) -> list[Range]:
        if step < 0:
            raise ConfigError(f"there is no step {step}")
        place = self._skips.nth(step * self.options.batch_size)
        ranges = self._step(place)
        if ranges is None:
            raise ConfigError(f"the run has no step {step:,}: it ends before that")
        return ranges

    def progress(self) -> dict[str, SourceProgress]:
        """For each source, the tokens that the weights ask for so far, and those delivered."""
        return progress_of(self._sources, self._mixture, self._skips, self._rows)

    def close(self) -> None:
        """Close the files of all sources."""
        for source in self._sources:
            source.dataset.close()
            if source.rows.cache is not None:
                source.rows.cache.close()

    def __repr__(self) -> str:
        sources = ", ".join(
            f"{one.name} {counted(one.rows.num_rows, 'row')} "
            f"({counted(one.rows.num_left_out, 'token')} left out)"
            for one in self._sources
        )
        options, rest = self.options, ""
        if self._end is not None:
            num_left_out = self._num_delivered(0, self._end) % options.batch_size
            steps = counted(self._num_steps, "step")
            rest = f"; {steps}, then {counted(num_left_out, 'row')} left out"
        return (
            f"<Loader at row {self._rows:,}: {sources}; seq_len {options.seq_len:,}, batch_size "
            f"{options.batch_size:,}, rank {options.rank} of {options.world_size}{rest}>"
        )

    def _require_a_step(self) -> None:
        if self._end is not None and not self._num_steps:
            num_rows = self._num_delivered(0, self._end)
            raise ConfigError(
                f"a step of batch_size {self.options.batch_size:,} needs more than the "
                f"{counted(num_rows, 'row')} that epochs={self.options.epochs} has",
                hint=f"batch_size={max(1, num_rows)}, or a smaller seq_len",
            )

    @property
    def _num_steps(self) -> int:
        return self._num_delivered(0, self._end or 0) // self.options.batch_size


def _rebuilt(sources: Mapping[str, Given], given: dict[str, Any], rows: int) -> Loader:
    loader = Loader(sources, **given)
    loader.advance_to(rows)
    return loader
