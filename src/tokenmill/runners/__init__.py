"""Runners: what executes slices and shard tasks. The same in, the same bytes out.

A runner calls `encode_slice` for each slice and `carry_out` for each shard task somewhere and
yields the records as they come, in any order. It owns nothing that matters: what is done is what
has a record on disk. Before that, it calls `cut` for each input of a new plan, in the same places.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # heavy: workers are started before anything of that kind is loaded
    from tokenmill.assemble.task import ShardRecord, ShardTask
    from tokenmill.corpus.plan import Cut
    from tokenmill.corpus.readers import ReadOptions
    from tokenmill.corpus.spans import Input, Slice
    from tokenmill.encode.job import Job, Step
    from tokenmill.encode.record import PartRecord


class Stopped(Exception):
    """The watch asked for a stop; what was encoded is kept, and the same command continues."""


class Watch(Protocol):
    """Who looks on: shows progress, hears of trouble, may ask for a stop."""

    def step(self, slice_: Slice, step: Step) -> None:
        """A slice has moved on."""

    def notice(self, message: str) -> None:
        """Something a person should read: a worker died, and what was done about it."""

    def should_stop(self) -> bool:
        """Asked at least four times a second; True: begin nothing new, end within 5 seconds."""


class Runner(Protocol):
    def cut(
        self, inputs: Iterable[Input], options: ReadOptions, max_rows: int | None, watch: Watch
    ) -> Iterator[Cut]:
        """Cut the inputs into spans (corpus/plan.py), in order; before `run`."""

    def run(
        self, job: Job, work: Iterable[Slice | ShardTask | None], watch: Watch
    ) -> Iterator[PartRecord | ShardRecord]:
        """Encode slices and carry out shard tasks; yield each record once. Ends early, without
        error, on a stop.

        `work` is drawn from as workers become free, perhaps in another thread; None means that
        nothing can be begun yet, and to ask again after the next record, or soon.
        """
