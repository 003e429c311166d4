"""`tokenmill.Loader`: batches of tokens for a trainer, from shards of any format.

    loader = tokenmill.Loader("data/mine", seq_len=1024, batch_size=512, rank=rank, world_size=8)
    for batch in loader:
        loss = model(batch.tokens, batch.targets)
        checkpoint["loader"] = loader.state_dict()

A step is the next `batch_size` rows of the run, on all ranks together; rank r takes the r-th
contiguous part. So the ranks side by side are the step, for any world size, and any loader of the
same data and options can go on from any state.
"""

from __future__ import annotations

import collections
import functools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokenmill.errors import ConfigError, ConflictError, unknown_name
from tokenmill.loader import masks
from tokenmill.loader.batch import EXTRAS, TokenBatch
from tokenmill.loader.mixing import MAX_PLACES, Mixture, Stage, stage_of
from tokenmill.loader.order import SHUFFLES
from tokenmill.loader.permutation import Numbers
from tokenmill.loader.prefetch import Prefetch
from tokenmill.loader.source import Given, Source, sources_of
from tokenmill.loader.state import checked_rows, data_of, mix_of, require_same, state_of
from tokenmill.loader.steps import Range, Skips, part_of
from tokenmill.words.keywords import suggesting
from tokenmill.words.plural import counted
from tokenmill.words.quantities import Quantity, count_of

AHEAD_STEPS = 4
DTYPES = ("int32", "int64", "uint16", "uint32")
Stages = Iterable[tuple[Quantity, Mapping[str, float]]]


@dataclass(frozen=True, slots=True)
class RowOrigin:
    """Where a row of a step came from."""

    source: str
    epoch: int  # of the source, from 0
    row: int  # of the source's split
    start: int  # its first token, in the split
    documents: range  # numbers of the documents that its inputs are from


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """What a source has given. `planned_tokens` is what the weights ask for, skipped rows too."""

    planned_tokens: float
    delivered_tokens: int
    skipped_tokens: int
    epochs: float


@dataclass(frozen=True, slots=True)
class _Plan:
    """A batch to be made."""

    rows: int  # the run's counter after it
    parts: list[tuple[Source, Numbers, Numbers]]  # of each source: places in the batch, and rows


class Loader:
    """Batches of tokens, a run of them: `for batch in loader` goes on where the last loop was left,
    and `state_dict` says where that is. docs/training.md has examples."""

    @suggesting
    def __init__(
        self,
        sources: Given | Mapping[str, Given],
        *,
        seq_len: Quantity,
        batch_size: Quantity,
        weights: Mapping[str, float] | None = None,
        stages: Stages = (),
        rank: int = 0,
        world_size: int = 1,
        seed: int = 0,
        split: str = "train",
        shuffle: str | None = "full",
        epochs: int | None = None,
        skip: Iterable[Range] = (),
        extras: Sequence[str] = (),
        dtype: str = "int64",
        prefetch: int = 2,
    ) -> None:
        """`sources`: a dataset (a path, a URL, or what `tokenmill.open` returned), or several by
        name. `weights`: how many tokens of each, as ratios; by default as many as they have.
        `stages`: [("50B", {"web": 0.6, "code": 0.4})], other weights from that token of the run on.
        `epochs`: the run ends before a source begins one more; None: it goes on for ever.
        `skip`: ranges of rows of the run to leave out. `extras`: any of cu_seqlens, position_ids,
        document_ids and loss_mask. `prefetch`: steps that a thread prepares ahead.
        """
        self.seq_len = _at_least_one("seq_len", seq_len)
        self.batch_size = _at_least_one("batch_size", batch_size)
        self.rank, self.world_size = operator.index(rank), operator.index(world_size)
        self.seed, self.split, self.shuffle = operator.index(seed), split, shuffle
        self.epochs = None if epochs is None else _at_least_one("epochs", epochs)
        self._dtype, self._prefetch = np.dtype(_one_of("dtype", dtype, DTYPES)), prefetch
        self._extras = (extras,) if isinstance(extras, str) else tuple(extras)
        skip = list(skip)
        stages = list(stages)
        self._skips = Skips(skip)
        self._given = {
            "seq_len": self.seq_len,
            "batch_size": self.batch_size,
            "weights": weights,
            "stages": stages,
            "rank": self.rank,
            "world_size": self.world_size,
            "seed": self.seed,
            "split": split,
            "shuffle": shuffle,
            "epochs": self.epochs,
            "skip": skip,
            "extras": self._extras,
            "dtype": dtype,
            "prefetch": prefetch,
        }
        self._require_consistent()
        self._sources = sources_of(sources, split, self.seq_len, shuffle, self.seed)
        self._mixture = Mixture(
            [source.name for source in self._sources],
            list(_stages(self._sources, weights, stages, self.seq_len)),
            self.seed,
        )
        self._require_documents()
        self._require_ids()
        self._rows = 0
        self._version = 0  # of the counter: a running iterator notices that it was set

    # Iteration

    def __iter__(self) -> Iterator[TokenBatch]:
        """The batches from here on. The counter counts what was handed out, not what was
        prepared."""
        version = self._version
        made: Iterator[TokenBatch] = self.batches()
        ahead = Prefetch(made, self._prefetch) if self._prefetch else None
        try:
            for batch in ahead or made:
                if version != self._version:
                    raise ConflictError(
                        "a state was loaded while the loader was iterated",
                        hint="load the state first, then begin: for batch in loader",
                    )
                self._rows = batch.rows
                yield batch
        finally:
            if ahead is not None:
                ahead.close()

    def batches(
        self, worker: int = 0, num_workers: int = 1, num_made: int = 0
    ) -> Iterator[TokenBatch]:
        """Every `num_workers`-th batch from here on, beginning with number `worker`, without the
        first `num_made` of those; made in this thread, and not counted."""
        place, number, worker = self._rows, 0, worker + num_made * num_workers
        planned: collections.deque[_Plan] = collections.deque()
        while (ranges := self._step(place)) is not None:
            place = ranges[-1][1]
            if number >= worker and (number - worker) % num_workers == 0:
                planned.append(self._planned(ranges))
            number += 1
            if len(planned) > self._num_ahead:
                yield self._batch(planned.popleft())
        yield from map(self._batch, planned)

    @property
    def num_rows(self) -> int | None:
        """The rows of the run, skipped ones too; None: it has no end."""
        return self._end

    def __len__(self) -> int:
        """The steps that are left. Raises TypeError for a run without an end, as `len` does."""
        if self._end is None:
            raise TypeError("the run has no end: epochs=None")
        return self._num_delivered(self._rows, self._end) // self.batch_size

    @functools.cached_property
    def _end(self) -> int | None:
        if self.epochs is None:
            return None
        return self._mixture.end([self.epochs * one.rows.num_rows for one in self._sources])

    def _num_delivered(self, start: int, stop: int) -> int:
        skipped = sum(
            min(last, stop) - max(first, start)
            for first, last in self._skips.ranges
            if first < stop and last > start
        )
        return max(0, stop - start) - skipped

    def _step(self, place: int) -> list[Range] | None:
        """The places of the step that begins at a place; None if the run has not as many left."""
        ranges = self._skips.next(place, self.batch_size)
        return ranges if self._end is None or ranges[-1][1] <= self._end else None

    # Making a batch

    @functools.cached_property
    def _num_ahead(self) -> int:
        """Steps whose rows are requested ahead, where they come from a store."""
        return AHEAD_STEPS if any(source.rows.cache for source in self._sources) else 0

    def _planned(self, ranges: Sequence[Range]) -> _Plan:
        count = self.batch_size // self.world_size
        own = part_of(ranges, self.rank * count, (self.rank + 1) * count)
        numbers, turns = self._at(own)
        parts = []
        for number in sorted(set(numbers.tolist())):
            source, places = self._sources[number], np.flatnonzero(numbers == number)
            rows = source.order.rows(turns[places])
            parts.append((source, places, rows))
            if source.rows.cache is not None:
                source.rows.cache.expect(rows.tolist())
        return _Plan(ranges[-1][1], parts)

    def _batch(self, plan: _Plan) -> TokenBatch:
        count = self.batch_size // self.world_size
        tokens = np.empty((count, self.seq_len + 1), self._dtype)
        starts = np.empty(tokens.shape, np.bool_) if self._extras else None
        eots = np.full((count, 1), -1, np.int64) if self._extras else None
        for source, places, found in plan.parts:
            source.rows.read(found, tokens, places)
            if starts is not None and eots is not None:
                starts[places] = masks.starts_of(source.rows, found, tokens[places])
                eot_id = source.rows.split.stream.eot_id
                eots[places] = -1 if eot_id is None else eot_id
        extras: dict[str, Any] = {}
        if starts is not None and eots is not None:
            extras = self._made_extras(starts, tokens, eots)
        return TokenBatch(tokens[:, :-1], tokens[:, 1:], plan.rows, **extras)

    def _made_extras(self, starts: masks.Flags, tokens: Any, eots: Numbers) -> dict[str, Any]:
        makers: dict[str, Callable[[], Any]] = {
            "cu_seqlens": lambda: masks.cu_seqlens(starts),
            "position_ids": lambda: masks.position_ids(starts),
            "document_ids": lambda: masks.document_ids(starts),
            "loss_mask": lambda: masks.loss_mask(starts, tokens, eots),
        }
        return {name: makers[name]() for name in self._extras}

    def _at(self, ranges: Sequence[Range]) -> tuple[Numbers, Numbers]:
        found = [self._mixture.at(start, stop) for start, stop in ranges]
        if len(found) == 1:
            return found[0]
        numbers, turns = zip(*found, strict=True)
        return np.concatenate(numbers), np.concatenate(turns)

    def __reduce__(self) -> tuple[Any, ...]:
        """Worker processes open the datasets again."""
        datasets = {source.name: source.dataset for source in self._sources}
        return _rebuilt, (datasets, self._given, self._rows)

    # State

    def state_dict(self) -> dict[str, Any]:
        """Where the run is: plain values for JSON, under 1 kB, the same on every rank."""
        return self.state_at(self._rows)

    def state_at(self, rows: int) -> dict[str, Any]:
        """The state after a batch whose `rows` this is, for batches that other processes made."""
        return state_of(rows, self._settings(rows))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state, of any world size, batch size and number of workers.

        Raises ConflictError, with what differs, if the data or an option would give other rows.
        """
        rows = checked_rows(state)
        require_same(state, self._settings(rows))
        self._rows = rows
        self._version += 1

    def advance_to(self, rows: int) -> None:
        """Count a batch that another process made: its `rows`."""
        self._rows = rows

    def _settings(self, rows: int) -> dict[str, Any]:
        return {
            "seq_len": self.seq_len,
            "seed": self.seed,
            "shuffle": self.shuffle,
            "split": self.split,
            "mix": mix_of(self._mixture.stages, rows),
            "data": self._data,
        }

    @functools.cached_property
    def _data(self) -> dict[str, str]:
        return data_of({source.name: source.content for source in self._sources})

    # Questions

    def documents_of(self, step: int) -> list[RowOrigin]:
        """Where each row of a step came from, and which documents it saw, rows of all ranks in
        order. Steps are those of a run with this batch_size from its beginning."""
        if step < 0:
            raise ConfigError(f"there is no step {step}")
        place = self._skips.nth(step * self.batch_size)
        ranges = self._step(place)
        if ranges is None:
            raise ConfigError(f"the run has no step {step:,}: it ends before")
        return self._origins(ranges)

    def progress(self) -> dict[str, SourceProgress]:
        """What the weights ask for so far, and what each source has given."""
        skipped = [0] * len(self._sources)
        for first, last in self._skips.before(self._rows):
            before, after = self._mixture.counts(first), self._mixture.counts(last)
            skipped = [n + b - a for n, a, b in zip(skipped, before, after, strict=True)]
        found = {}
        planned, counts = self._mixture.planned(self._rows), self._mixture.counts(self._rows)
        for number, source in enumerate(self._sources):
            found[source.name] = SourceProgress(
                float(planned[number] * self.seq_len),
                (counts[number] - skipped[number]) * self.seq_len,
                skipped[number] * self.seq_len,
                counts[number] / source.rows.num_rows,
            )
        return found

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
        return (
            f"<Loader at row {self._rows:,}: {sources}; seq_len {self.seq_len:,}, batch_size "
            f"{self.batch_size:,}, rank {self.rank} of {self.world_size}>"
        )

    def _origins(self, ranges: Sequence[Range]) -> list[RowOrigin]:
        numbers, turns = self._at(ranges)
        found: list[RowOrigin | None] = [None] * len(numbers)
        for number in sorted(set(numbers.tolist())):
            source, places = self._sources[number], np.flatnonzero(numbers == number)
            rows = source.order.rows(turns[places])
            starts = rows * self.seq_len
            bounds = source.rows.split.bounds
            firsts = bounds.numbers_at(starts).tolist()
            lasts = bounds.numbers_at(starts + self.seq_len - 1).tolist()
            epochs = (turns[places] // source.rows.num_rows).tolist()
            for place, epoch, row, first, last in zip(
                places.tolist(), epochs, rows.tolist(), firsts, lasts, strict=True
            ):
                documents = range(first, last + 1)
                found[place] = RowOrigin(source.name, epoch, row, row * self.seq_len, documents)
        return [origin for origin in found if origin is not None]

    # Checks

    def _require_consistent(self) -> None:
        if self.shuffle not in SHUFFLES:
            raise unknown_name("shuffle", str(self.shuffle), ("full", "block", "None"))
        for name in self._extras:
            _one_of("extra", name, EXTRAS)
        if not 0 <= self.rank < self.world_size:
            raise ConfigError(
                f"rank {self.rank} of world_size {self.world_size}",
                hint="ranks are 0 to world_size - 1: RANK and WORLD_SIZE of torchrun",
            )
        if self.batch_size % self.world_size:
            less = max(self.batch_size // self.world_size, 1) * self.world_size
            raise ConfigError(
                f"batch_size {self.batch_size:,} rows cannot be shared by {self.world_size} ranks",
                hint=f"batch_size={less}: it is that of all ranks together",
            )
        if self.batch_size > MAX_PLACES:
            raise ConfigError(f"batch_size {self.batch_size:,} is over {MAX_PLACES:,}")
        if self._prefetch < 0:
            raise ConfigError(f"prefetch={self._prefetch}", hint="prefetch=0: no thread")

    def _require_documents(self) -> None:
        if self._extras:
            for source in self._sources:
                _ = source.rows.split.bounds  # which refuses what has no documents

    def _require_ids(self) -> None:
        """The dtype must hold what is stored."""
        for source in self._sources:
            stored = source.rows.split.dtype
            if self._dtype.itemsize < stored.itemsize:
                raise ConfigError(
                    f"{source.name} has {stored} tokens, which {self._dtype} does not hold",
                    hint="dtype='int64'",
                )


def _rebuilt(sources: Mapping[str, Given], given: dict[str, Any], rows: int) -> Loader:
    loader = Loader(sources, **given)
    loader.advance_to(rows)
    return loader


def _at_least_one(option: str, value: object) -> int:
    found = count_of(option, value)
    if found < 1:
        raise ConfigError(f"{option} is at least 1, got {found}")
    return found


def _one_of(what: str, name: str, known: tuple[str, ...]) -> str:
    if name not in known:
        raise unknown_name(what, str(name), known)
    return name


def _stages(
    sources: Sequence[Source], weights: Mapping[str, float] | None, stages: Stages, seq_len: int
) -> Iterator[Stage]:
    """The stages in rows, the first of which begins with the run."""
    names = [source.name for source in sources]
    sizes = {source.name: source.rows.num_rows for source in sources}
    given = [(0, weights or sizes)]
    given += [(count_of("stages", start), later) for start, later in stages]
    last = -1
    for token, one in sorted(given, key=lambda item: item[0]):
        row = round(token / seq_len) if token < 1 << 50 else token // seq_len
        if row <= last:
            raise ConfigError(
                f"two stages begin at row {row:,}",
                hint="weights= is the stage from token 0; stages= are those that follow",
            )
        last = row
        yield stage_of(row, one, names)
