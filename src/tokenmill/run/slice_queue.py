"""Slices to the runner, records back, and shard tasks in between."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any

from tokenmill.assemble.books import Assembly
from tokenmill.assemble.choice import EVERYTHING, Choice
from tokenmill.corpus.fetch import RemoteInputs
from tokenmill.corpus.spans import Slice
from tokenmill.encode.job import Job
from tokenmill.encode.record import PartRecord
from tokenmill.run.context import RunContext
from tokenmill.runners.workload import Workload


class SliceQueue:
    """Slices on their way to the runner, as their inputs arrive and as `choice` asks for them."""

    def __init__(
        self, remote: RemoteInputs | None, choice: Choice, is_wanted: Callable[[Slice], bool]
    ) -> None:
        self._remote = remote
        self._choice = choice
        self._is_wanted = is_wanted
        self.under_way: dict[int, Slice] = {}  # from the plan, without a record that is passed on

    def handed_out(self, slices: Sequence[Slice]) -> Iterator[Slice | None]:
        arriving: Iterator[Slice | None] = iter(slices)
        if self._remote is not None:
            arriving = self._remote.as_they_arrive(slices)
        for slice_ in self._choice.handed_out(arriving, self.under_way):
            if slice_ is not None and not slice_.is_pruning:
                if not self._is_wanted(slice_):
                    continue
                self.under_way[slice_.index] = slice_
            yield slice_

    def passed_on(self, record: PartRecord) -> Iterable[PartRecord]:
        """The records that can be passed on, now that there is this one."""
        found = self._choice.added(record, self.under_way)
        limit = self._choice.limit
        if limit is None:
            self._release([self.under_way.pop(record.slice_index, None)])
        else:
            self._release(limit.take_done())
        return found

    def _release(self, done: Iterable[Slice | None]) -> None:
        for slice_ in done:
            if self._remote is not None and slice_ is not None:
                self._remote.release(slice_)


def encoded(
    context: RunContext,
    job: Job,
    slices: Sequence[Slice],
    remote: RemoteInputs | None,
    choice: Choice = EVERYTHING,
    assembly: Assembly | None = None,
    is_wanted: Callable[[Slice], bool] = lambda slice_: True,
) -> Generator[PartRecord, None, None]:
    """Records of these slices as the runner makes them, those that `choice` passes on; fewer than
    slices if the watch stops it. With an assembly, shard tasks are carried out as they become due,
    before new slices. Whether a slice is still wanted is asked when it is about to begin. Without
    `remote`, all inputs are here."""
    if remote is not None and remote.inputs:
        remote.begin(slices)
        context.watch.downloading(remote.progress)
    queue = SliceQueue(remote, choice, is_wanted)
    due = deque() if assembly is None else assembly.due
    workload = Workload(queue.handed_out(slices), len(slices) + choice.num_again, due)
    if assembly is None or assembly.is_done:
        workload.close()
    running: Any = context.runner.run(job, workload, context.watch)  # a generator
    with contextlib.closing(running):
        for record in running:
            if isinstance(record, PartRecord):
                if record.slice_index in queue.under_way:
                    context.watch.recorded(record)
                for one in queue.passed_on(record):
                    if assembly is not None:
                        choice.end(assembly)
                        assembly.add(one)
                    yield one
            elif assembly is not None:
                assembly.done(record)
            if assembly is not None and assembly.is_done:
                workload.close()
