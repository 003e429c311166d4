"""Runners execute slices and shard tasks; which one does it never changes the bytes.

A runner calls `encode_slice` for each slice and `carry_out` for each shard task, in this process or
elsewhere, and yields the records as they arrive, in any order. It owns no important state: work is
done when it has a record on disk. Before that, it calls `cut` for each input of a new plan, in the
same processes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # heavy: workers are started before these are loaded
    from tokenmill.assemble.task import ShardRecord, ShardTask
    from tokenmill.corpus.input_spans import Cut
    from tokenmill.corpus.readers import ReadOptions
    from tokenmill.corpus.spans import Input, Slice
    from tokenmill.encode.job import Job, Step
    from tokenmill.encode.record import PartRecord


class Stopped(Exception):
    """The watch asked for a stop. Encoded slices are kept; the same command resumes."""


class Watch(Protocol):
    """The observer of a run: shows progress and notices, and may ask for a stop."""

    def step(self, slice_: Slice, step: Step) -> None:
        """A slice has made progress."""

    def notice(self, message: str) -> None:
        """A message for the user: a worker died, and what was done about it."""

    def should_stop(self) -> bool:
        """Called at least four times a second. True: start nothing new, and end within 5
        seconds."""


class Runner(Protocol):
    def cut(
        self, inputs: Iterable[Input], options: ReadOptions, max_rows: int | None, watch: Watch
    ) -> Iterator[Cut]:
        """Cut the inputs into spans (corpus/input_spans.py), in order; before `run`."""

    def run(
        self, job: Job, work: Iterable[Slice | ShardTask | None], watch: Watch
    ) -> Iterator[PartRecord | ShardRecord]:
        """Encode slices and carry out shard tasks; yield each record once. On a stop it ends early,
        without an error.

        Items of `work` are drawn as workers become free, perhaps in another thread. None means that
        nothing can start yet: ask again after the next record, or soon.
        """
