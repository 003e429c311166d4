"""The options of a Loader as plain values, checked once; also sent to worker processes."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tokenmill.errors import ConfigError, unknown_name
from tokenmill.loader.batch import EXTRAS
from tokenmill.loader.mixing import MAX_PLACES
from tokenmill.loader.order import SHUFFLES
from tokenmill.loader.steps import Range
from tokenmill.wording.quantities import Quantity, count_of

DTYPES = ("int32", "int64", "uint16", "uint32")
Weights = Mapping[str, float]
Stages = Iterable[tuple[Quantity, Weights]]
PlanChoice = bool | str | os.PathLike[str]
Packed = PlanChoice | Mapping[str, PlanChoice]


@dataclass(frozen=True, kw_only=True, slots=True)
class LoaderOptions:
    """Raises ConfigError, with a hint, for values that contradict each other."""

    seq_len: int
    batch_size: int
    weights: Weights | None
    stages: tuple[tuple[int, Weights], ...]  # (first token of the run, weights)
    rank: int
    world_size: int
    seed: int
    split: str
    shuffle: str | None
    epochs: int | None
    skip: tuple[Range, ...]
    extras: tuple[str, ...]
    packed: Packed
    dtype: str
    prefetch: int
    cache_dir: str | None
    cache_bytes: int

    @property
    def rank_rows(self) -> int:
        """Rows of a step that a rank takes."""
        return self.batch_size // self.world_size

    def __post_init__(self) -> None:
        for option in ("seq_len", "batch_size", "epochs"):
            value = getattr(self, option)
            if value is not None and value < 1:
                raise ConfigError(f"{option} must be at least 1, got {value}")
        if self.shuffle not in SHUFFLES:
            raise unknown_name("shuffle", str(self.shuffle), ("full", "block", "None"))
        for name in self.extras:
            _require_known("extra", name, EXTRAS)
        _require_known("dtype", self.dtype, DTYPES)
        if self.prefetch < 0:
            raise ConfigError(f"prefetch={self.prefetch}", hint="prefetch=0: no thread")
        self._require_shares()

    def _require_shares(self) -> None:
        if not 0 <= self.rank < self.world_size:
            raise ConfigError(
                f"rank {self.rank} of world_size {self.world_size}",
                hint="ranks are 0 to world_size - 1: RANK and WORLD_SIZE of torchrun",
            )
        if self.batch_size % self.world_size:
            less = max(self.batch_size // self.world_size, 1) * self.world_size
            raise ConfigError(
                f"batch_size {self.batch_size:,} rows cannot be shared by {self.world_size} ranks",
                hint=f"batch_size={less}; it counts the rows of all ranks together",
            )
        if self.batch_size > MAX_PLACES:
            raise ConfigError(f"batch_size {self.batch_size:,} is over {MAX_PLACES:,}")


def ranks_given(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """`rank` and `world_size`; where they are None, RANK and WORLD_SIZE of the environment, as
    torchrun sets them, or else one rank."""
    if rank is None:
        rank = 0 if world_size == 1 else _environment_number("RANK")
    if world_size is None:
        known = _environment_number("WORLD_SIZE")
        world_size = 1 if known is None else known
    if rank is None and world_size > 1:
        raise ConfigError(
            f"rank is not given, and this is one of {world_size} ranks",
            hint=f"rank=0 to {world_size - 1}, or RANK in the environment: torchrun sets it",
        )
    return operator.index(rank or 0), operator.index(world_size)


def _environment_number(name: str) -> int | None:
    value = os.environ.get(name)
    if not value:
        return None
    if not (value.isascii() and value.isdecimal()):
        raise ConfigError(
            f"{name} in the environment is {value!r}, which is not a number",
            hint="give rank= and world_size=, or start the processes with torchrun",
        )
    return int(value)


def stages_given(stages: Stages) -> tuple[tuple[int, Weights], ...]:
    return tuple((count_of("stages", start), weights) for start, weights in stages)


def _require_known(what: str, name: str, known: Sequence[str]) -> None:
    if name not in known:
        raise unknown_name(what, str(name), tuple(known))
