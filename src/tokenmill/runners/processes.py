"""The processes runner: slices in worker processes, which may die without harm.

ProcessesRunner     here: the caller's side, a generator of records
Supervisor          supervisor.py: a thread that hands out slices and notices deaths
Child, worker       child.py, worker.py: the two ends of one worker process
Attempts, Death     attempts.py, death.py: what to try next, and what to say about it
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType

from tokenmill.corpus import Slice
from tokenmill.encodings import EncodingId
from tokenmill.job import Job
from tokenmill.record import PartRecord
from tokenmill.runners import Watch
from tokenmill.runners.outbox import End, Notice, Progress
from tokenmill.runners.supervisor import Supervisor


class ProcessesRunner:
    """Runs slices in `num_proc` processes. Entering it starts them: they load while you plan.

    A worker that says nothing for `stall_timeout` seconds while it has a slice is ended.
    """

    def __init__(self, num_proc: int, encoding: EncodingId, stall_timeout: float = 300.0) -> None:
        self._num_proc = num_proc
        self._encoding = encoding
        self._stall_timeout = stall_timeout
        self._supervisor: Supervisor | None = None

    def __enter__(self) -> ProcessesRunner:
        self._supervisor = self._new_supervisor()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def run(self, job: Job, slices: Iterable[Slice | None], watch: Watch) -> Iterator[PartRecord]:
        """Encode the slices; yield each record once. However it ends, the workers are gone then."""
        supervisor = self._supervisor = self._supervisor or self._new_supervisor()
        try:
            supervisor.begin(job, slices)
            while True:
                if watch.should_stop():
                    supervisor.stop()
                for event in supervisor.take():
                    if isinstance(event, PartRecord):
                        yield event
                    elif isinstance(event, Progress):
                        watch.step(event.slice_, event.step)
                    elif isinstance(event, Notice):
                        watch.notice(event.message)
                    elif isinstance(event, End):
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
        return Supervisor(self._num_proc, self._encoding, self._stall_timeout)
