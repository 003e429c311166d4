"""The processes runner: slices and shard tasks in worker processes, which are replaced if they die.

ProcessesRunner     here: the caller's side, generators of cuts and of records
Supervisor          supervisor.py: a thread that hands out tasks and notices deaths
Child, worker       child.py, worker.py: the two ends of one worker process; spawn.py starts it
InputCutting, Attempts, ShardWriting   the tasks, and what to try next after a death
Death               exit_diagnosis.py: what to say about it
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from tokenmill.corpus.input_spans import Cut
from tokenmill.corpus.readers import ReadOptions
from tokenmill.corpus.spans import Input, Slice
from tokenmill.encode.job import Job
from tokenmill.encode.record import PartRecord
from tokenmill.encodings import EncodingId
from tokenmill.runners import Stopped, Watch
from tokenmill.runners.input_cutting import CUT_INPUTS, InputCutting
from tokenmill.runners.outbox import Notice, ShardWritten, SliceStep, SupervisorEnded
from tokenmill.runners.supervisor import ASSIGNMENTS_PER_WORKER, EARLY_WORKERS, Supervisor

if TYPE_CHECKING:
    from tokenmill.assemble.task import ShardRecord, ShardTask


class ProcessesRunner:
    """Runs slices in `num_proc` processes. Entering it starts them, so that they load during
    planning.

    A worker that has work and sends no message for `stall_timeout` seconds is killed. Without an
    encoding, workers can only cut inputs, and load in half the time. `may_fork` is only for callers
    that own the process and enter this in its main thread (spawn.py).
    """

    def __init__(
        self,
        num_proc: int,
        encoding: EncodingId | None,
        stall_timeout: float = 300.0,
        may_fork: bool = False,
    ) -> None:
        self._num_proc = num_proc
        self._encoding = encoding
        self._stall_timeout = stall_timeout
        self._may_fork = may_fork
        self._supervisor: Supervisor | None = None

    def __enter__(self) -> ProcessesRunner:
        self._supervisor = self._new_supervisor()
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def cut(
        self, inputs: Iterable[Input], options: ReadOptions, max_rows: int | None, watch: Watch
    ) -> Iterator[Cut]:
        """Cut inputs in the workers; a file that kills them raises an InputError that names it.

        Of several errors, that of the first input is raised. Inputs are drawn in the caller's
        thread, which may take long, because they may have to be fetched.
        """
        supervisor = self._supervisor = self._supervisor or self._new_supervisor()
        sources, waiting = iter(inputs), deque[InputCutting]()
        while some := list(islice(sources, CUT_INPUTS)):
            waiting.append(InputCutting(some, options, max_rows))
            supervisor.cut(waiting[-1])
            while len(waiting) > EARLY_WORKERS * ASSIGNMENTS_PER_WORKER:
                yield from _finished(waiting.popleft(), supervisor, watch)
        while waiting:
            yield from _finished(waiting.popleft(), supervisor, watch)

    def run(
        self, job: Job, work: Iterable[Slice | ShardTask | None], watch: Watch
    ) -> Iterator[PartRecord | ShardRecord]:
        """Encode slices and write shards; yield each record once. The workers are gone when it
        ends, with or without an error."""
        supervisor = self._supervisor = self._supervisor or self._new_supervisor()
        try:
            supervisor.begin(job, work)
            while True:
                if watch.should_stop():
                    supervisor.stop()
                for event in supervisor.take():
                    if isinstance(event, PartRecord):
                        yield event
                        supervisor.wake()  # the record may have made tasks due
                    elif isinstance(event, ShardWritten):
                        yield event.record
                        supervisor.wake()
                    elif isinstance(event, SliceStep):
                        watch.step(event.slice_, event.step)
                    elif isinstance(event, Notice):
                        watch.notice(event.message)
                    elif isinstance(event, SupervisorEnded):
                        if event.error is not None:
                            raise event.error
                        return
        finally:
            self._close()

    def _close(self) -> None:
        if self._supervisor is not None:
            self._supervisor.close()
            self._supervisor = None

    def _new_supervisor(self) -> Supervisor:
        may_fork, self._may_fork = self._may_fork, False  # next time there may be threads
        return Supervisor(self._num_proc, self._encoding, self._stall_timeout, may_fork)


def _finished(cutting: InputCutting, supervisor: Supervisor, watch: Watch) -> Iterator[Cut]:
    """The results of a cutting, once it is done."""
    while not cutting.is_done:
        if watch.should_stop():
            raise Stopped
        for event in supervisor.take():
            if isinstance(event, Notice):
                watch.notice(event.message)
            elif isinstance(event, SupervisorEnded):
                raise event.error or Stopped
    yield from cutting.found
    if cutting.error is not None:
        raise cutting.error
