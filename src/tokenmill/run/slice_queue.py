"""Slices to the runner, records back, and shard tasks in between."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tokenmill.assemble.books import Assembly
from tokenmill.assemble.selection import ALL_RECORDS, RecordSelection
from tokenmill.corpus.hub_inputs import HubInputs
from tokenmill.corpus.spans import Slice
from tokenmill.encode.job import Job
from tokenmill.encode.record import PartRecord
from tokenmill.run.context import RunContext
from tokenmill.run.watch import tell_limit
from tokenmill.runners import Stopped
from tokenmill.runners.workload import Workload


@dataclass(frozen=True, slots=True)
class SliceQueue:
    """Slices on their way to the runner: each once its inputs are here, `selection` asks for it and
    it is still wanted. Without `remote`, all inputs are here."""

    slices: Sequence[Slice]
    remote: HubInputs | None
    selection: RecordSelection = ALL_RECORDS
    is_wanted: Callable[[Slice], bool] = lambda slice_: True
    in_flight: dict[int, Slice] = field(default_factory=dict)  # by index

    def handed_out(self) -> Iterator[Slice | None]:
        """The slices to begin; None: nothing can begin yet."""
        arriving: Iterator[Slice | None] = iter(self.slices)
        if self.remote is not None:
            arriving = self.remote.as_they_arrive(self.slices)
        for slice_ in self.selection.handed_out(arriving, self.in_flight):
            if slice_ is not None and not slice_.is_pruning:
                if not self.is_wanted(slice_):
                    continue
                self.in_flight[slice_.index] = slice_
            yield slice_

    def passed_on(self, record: PartRecord) -> Iterable[PartRecord]:
        """The records that can be passed on, now that there is this one."""
        found = self.selection.added(record, self.in_flight)
        limit = self.selection.limit
        done = (
            [self.in_flight.pop(record.slice_index, None)] if limit is None else limit.take_done()
        )
        for slice_ in done:
            if self.remote is not None and slice_ is not None:
                self.remote.release(slice_)
        return found


def encode_and_assemble(
    context: RunContext, job: Job, queue: SliceQueue, assembly: Assembly
) -> None:
    """Encode the slices and write all shards. Raises Stopped if the watch ends it before that."""
    for _ in encoded(context, job, queue, assembly):
        pass  # the assembly keeps the records
    if not assembly.is_done:
        raise Stopped


def encoded(
    context: RunContext, job: Job, queue: SliceQueue, assembly: Assembly | None = None
) -> Generator[PartRecord, None, None]:
    """The records of the slices as the runner makes them and the selection passes them on; fewer if
    the watch stops it. With an assembly, shard tasks are carried out as they become due, before new
    slices."""
    remote, selection = queue.remote, queue.selection
    if remote is not None and remote.inputs:
        remote.begin(queue.slices)
        context.watch.downloading(remote.progress)
    due = deque() if assembly is None else assembly.due
    num_slices = len(queue.slices) + selection.num_again
    workload = Workload(queue.handed_out(), num_slices, due)
    if assembly is None or assembly.is_done:
        workload.close()
    _tell_limit(context, selection)
    running: Any = context.runner.run(job, workload, context.watch)  # a generator
    with contextlib.closing(running):
        for record in running:
            if isinstance(record, PartRecord):
                if record.slice_index in queue.in_flight:
                    context.watch.recorded(record)
                for one in queue.passed_on(record):
                    if assembly is not None:
                        selection.end(assembly)
                        assembly.add(one)
                    yield one
                _tell_limit(context, selection)
            elif assembly is not None:
                assembly.done(record)
            if assembly is not None and assembly.is_done:
                workload.close()


def _tell_limit(context: RunContext, selection: RecordSelection) -> None:
    if selection.limit is not None:
        tell_limit(context.watch, selection.limit.num_tokens, selection.limit.max_tokens)
