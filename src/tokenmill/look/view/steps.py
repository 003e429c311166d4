"""What a training step read: its rows, and where their tokens are in a dataset.

Two reading orders are supported: that of `tokenmill.Loader`, and the loop of build-nanogpt and of
llm.c's train_gpt2.py, which reads one shard after another. nanoGPT draws random places, which are
not recorded.
"""

from __future__ import annotations

import bisect
import itertools
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tokenmill.dataset.inspect import LookedInto
from tokenmill.dataset.opened import OpenedDataset, Opening, opened
from tokenmill.errors import ConfigError
from tokenmill.loader.loader import Loader

MAX_BATCH = 1 << 16
MAX_SEQ_LEN = 1 << 24
MAX_OPTIONS_BYTES = 1 << 20
_EXAMPLE = '{"sources": {"web": "data/web"}, "seq_len": 1024, "batch_size": 512, "seed": 0}'
_ALL_RANKS = {"rank": 0, "world_size": 1}  # unless the run says otherwise; not of the environment


@dataclass(frozen=True, slots=True)
class StepRow:
    """Tokens `start` to `start + seq_len` of a split; each target is the token after its input."""

    rank: int
    start: int
    micro_step: int = 0  # of a step that sums gradients over several
    source: str = ""
    epoch: int = 0


class Steps(Protocol):
    """The steps of a run."""

    @property
    def split(self) -> str: ...

    @property
    def seq_len(self) -> int: ...

    def num_rows(self) -> int:
        """The rows of a step on all ranks."""

    def rows(self, step: int, first: int, stop: int) -> list[StepRow]:
        """Rows number `first` to `stop` of a step."""


@dataclass(frozen=True, slots=True)
class ShardAfterShard:
    """Every rank reads `batch_size` rows, then skips those of the other ranks. It moves on to the
    next shard when the read after the next would pass the end, so a later rank may move on before
    the first. The rest of a shard is not read."""

    split: str
    shard_tokens: Sequence[int]
    seq_len: int
    batch_size: int  # of a rank, in a micro-step
    world_size: int = 1
    micro_steps: int = 1

    def __post_init__(self) -> None:
        _require("batch_size", self.batch_size * self.world_size * self.micro_steps, MAX_BATCH)
        _require("seq_len", self.seq_len, MAX_SEQ_LEN)
        if not self.shard_tokens:
            raise ConfigError(f"{self.split} is empty")

    def num_rows(self) -> int:
        return self.batch_size * self.world_size * self.micro_steps

    def rows(self, step: int, first: int, stop: int) -> list[StepRow]:
        return [self._row(step, number) for number in range(first, min(stop, self.num_rows()))]

    def _row(self, step: int, number: int) -> StepRow:
        micro_step, within = divmod(number, self.batch_size * self.world_size)
        rank, row = divmod(within, self.batch_size)
        ends = list(itertools.accumulate(self._num_reads(rank)))
        epoch, read = divmod(step * self.micro_steps + micro_step, ends[-1])
        shard = bisect.bisect_right(ends, read)
        leap = self.batch_size * self.seq_len
        position = (read - (ends[shard - 1] if shard else 0)) * leap * self.world_size + rank * leap
        if position + leap + 1 > self.shard_tokens[shard]:
            raise ConfigError(
                f"rank {rank} needs {leap + 1:,} tokens at {position:,} of shard {shard}, which "
                f"has {self.shard_tokens[shard]:,}: the trainer fails there",
                hint="a smaller batch or seq_len",
            )
        start = sum(self.shard_tokens[:shard]) + position + row * self.seq_len
        return StepRow(rank, start, micro_step, epoch=epoch)

    def _num_reads(self, rank: int) -> list[int]:
        """How often a rank reads from each shard."""
        leap = self.batch_size * self.seq_len
        beyond = 1 + rank * leap
        return [max(1, (size - beyond) // (leap * self.world_size)) for size in self.shard_tokens]


@dataclass(frozen=True, slots=True)
class LoaderSteps:
    loader: Loader
    datasets: Mapping[str, OpenedDataset]

    @property
    def split(self) -> str:
        return self.loader.options.split

    @property
    def seq_len(self) -> int:
        return self.loader.options.seq_len

    def num_rows(self) -> int:
        return self.loader.options.batch_size

    def rows(self, step: int, first: int, stop: int) -> list[StepRow]:
        share = self.loader.options.rank_rows
        return [
            StepRow(number // share, place.row * self.seq_len, 0, place.source, place.epoch)
            for number, place in enumerate(self.loader.rows_of(step))
            if first <= number < stop
        ]


def loader_steps(looked: LookedInto, name: str, options: Mapping[str, Any]) -> LoaderSteps:
    """The steps of a Loader over the open dataset, under the name that the run gave it."""
    _require("batch_size", options["batch_size"], MAX_BATCH)
    _require("seq_len", options["seq_len"], MAX_SEQ_LEN)
    datasets = {name: OpenedDataset(Opening(looked.dataset.name), looked)}
    return LoaderSteps(Loader(datasets, prefetch=0, **{**_ALL_RANKS, **options}), datasets)


def steps_of_file(path: str) -> LoaderSteps:
    """The steps of the Loader whose arguments, and perhaps "state", are in a JSON file."""
    given = _json_object(path)
    sources, state = given.pop("sources", None), given.pop("state", None)
    named = {"data": sources} if isinstance(sources, str) else sources
    if not isinstance(named, dict) or not all(isinstance(one, str) for one in named.values()):
        raise ConfigError(f"{path} does not say which data: sources", hint=f"such as {_EXAMPLE}")
    if given.get("packed"):
        raise ConfigError(
            f"{path}: packed rows are not stretches of the data",
            hint="loader.documents_of(step) says which documents a step saw",
        )
    folder = os.path.dirname(os.path.abspath(path))
    datasets = {name: opened(_place(folder, one)) for name, one in named.items()}
    try:
        loader = Loader(datasets, **{**_ALL_RANKS, **given, "prefetch": 0})
    except (TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"{path}: {error}", hint=f"such as {_EXAMPLE}") from None
    _require("batch_size", loader.options.batch_size, MAX_BATCH)
    if state is not None:
        loader.load_state_dict(state)
    return LoaderSteps(loader, datasets)


def _place(folder: str, path: str) -> str:
    """The path relative to the file, or else to the current folder."""
    beside = os.path.join(folder, path)
    return beside if "://" not in path and os.path.exists(beside) else path


def _json_object(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            plain = json.loads(file.read(MAX_OPTIONS_BYTES))
    except OSError as error:
        raise ConfigError(
            f"--loader {path}: {error.strerror}", hint=f"{_EXAMPLE} > {path}"
        ) from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"--loader {path} is no JSON: {error}", hint=f"such as {_EXAMPLE}"
        ) from None
    if not isinstance(plain, dict):
        raise ConfigError(f"--loader {path} is no JSON object", hint=f"such as {_EXAMPLE}")
    return plain


def _require(name: str, value: int, most: int) -> None:
    if not 1 <= value <= most:
        raise ConfigError(f"{name} is 1 to {most:,}, got {value:,}")
