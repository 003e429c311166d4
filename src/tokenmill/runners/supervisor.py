"""The supervisor: a thread that keeps the workers busy and notices at once when one dies.

It is a thread, so that it does not depend on the caller, which assembles shards between two
records. It starts workers itself, because the kernel ends a worker together with the thread that
started it. (The main thread, which lives as long, forks its workers before this thread starts.)
Each worker has one slice running and one queued, so that it never waits for an answer. Results go
into the outbox; nothing here calls back into the caller's code except to draw slices.

What dead workers left is in `_retries`; other work is drawn from the caller's iterable one at a
time, so memory does not grow with the corpus. Before there are slices, workers cut inputs for the
plan. That needs no engine, so they do it while they are still loading theirs.
"""

from __future__ import annotations

import itertools
import operator
import os
import selectors
import signal
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from tokenmill.corpus.spans import Slice
from tokenmill.encode.job import Job, Step
from tokenmill.encode.record import PartRecord
from tokenmill.encodings import EncodingId
from tokenmill.encodings.verdict import remember
from tokenmill.errors import MORE_MEMORY, WorkerError
from tokenmill.runners import machine
from tokenmill.runners.assignment import Assignment
from tokenmill.runners.attempts import Attempts
from tokenmill.runners.child import Child
from tokenmill.runners.exit_diagnosis import Death, death_of, memory_error_of, stall_of
from tokenmill.runners.input_cutting import InputCutting
from tokenmill.runners.outbox import Event, Notice, Outbox, ShardWritten, SupervisorEnded
from tokenmill.runners.retries import Retries
from tokenmill.runners.shard_writing import ShardDeaths, ShardWriting
from tokenmill.runners.spawn import Process, forked, load_for_forks, started
from tokenmill.runners.worker import error_in

if TYPE_CHECKING:
    from tokenmill.assemble.task import ShardTask

TICK_SECONDS = 0.25
WAITING_SECONDS = 0.02  # between two checks for work that is not ready: a file being downloaded
EARLY_WORKERS = 4  # started before the amount of work is known
EARLY_FORKS = 64  # a fork costs milliseconds, a new interpreter half a second
STOP_SECONDS = 3.0  # how long a stop waits for running slices
START_SECONDS = 120.0  # how long a worker may take to load, at least
MAX_FAILED_STARTS = 3
ASSIGNMENTS_PER_WORKER = 2
MAX_WAITING = 1000  # unread events: start no slice beyond this


class Supervisor:
    """One run's workers, from the moment it is made until `close`."""

    def __init__(
        self, num_proc: int, encoding: EncodingId | None, stall_timeout: float, may_fork: bool
    ) -> None:
        self._encoding = encoding
        self._stall_timeout = stall_timeout
        self._num_workers = num_proc
        self._num_failed_starts = 0
        self._num_oom_kills = machine.oom_kill_count()
        self._children: list[Child] = []
        self._retries = Retries()
        self._shard_deaths = ShardDeaths(num_proc)
        self._cuttings: deque[InputCutting] = deque()
        self._outbox = Outbox()

        self._work: tuple[Job, Iterator[Slice | ShardTask | None]] | None = None
        self._is_drawn = False  # the iterator is exhausted
        self._is_waiting = False  # it had nothing to hand out yet
        self._stop_at: float | None = None
        self._is_closing = False

        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)
        if may_fork and load_for_forks():
            for _ in range(min(num_proc, machine.available_cpus(), EARLY_FORKS)):
                self._add_child(forked())
        self._thread = threading.Thread(target=self._supervise, name="tokenmill", daemon=True)
        self._thread.start()

    # Called from the caller's thread.

    def cut(self, cutting: InputCutting) -> None:
        """Queue inputs to cut, before `begin`; `take` returns the cutting when it is done."""
        self._cuttings.append(cutting)
        self._wake()

    def begin(self, job: Job, work: Iterable[Slice | ShardTask | None]) -> None:
        self._work = (job, iter(work))
        self._wake()

    def wake(self) -> None:
        """Look for work again: more may be due now."""
        if not self._is_closing:
            self._wake()

    def take(self) -> list[Event]:
        return self._outbox.take(TICK_SECONDS)

    def stop(self) -> None:
        """Start no more slices; end when the running ones are done, or after 3 seconds."""
        if self._stop_at is None:
            self._stop_at = time.monotonic() + STOP_SECONDS
            self._wake()

    def close(self) -> None:
        """End all workers now; returns when they are gone. Can be called repeatedly."""
        if not self._is_closing:
            self._is_closing = True
            self._wake()
            self._thread.join()
            os.close(self._wake_read)
            os.close(self._wake_write)

    def _wake(self) -> None:
        os.write(self._wake_write, b"!")

    # Everything below runs in the supervisor's thread.

    def _supervise(self) -> None:
        error: BaseException | None = None
        try:
            while not self._is_over():
                self._hand_out()  # first, because there may be no work for more workers
                self._start_missing_workers()
                for child in self._children_with_news():
                    self._handle_messages(child)
                self._end_stalled()
        except BaseException as caught:
            error = caught
        finally:
            try:
                self._end_workers(self._children)
                self._selector.close()
            finally:
                self._outbox.put(SupervisorEnded(error))

    def _is_over(self) -> bool:
        if self._is_closing:
            return True
        is_busy = any(child.is_busy for child in self._children)
        if self._stop_at is not None:
            return not is_busy or time.monotonic() > self._stop_at
        return self._is_drawn and not is_busy and not self._retries

    def _children_with_news(self) -> list[Child]:
        """Wait for an event, read and write pipes; returns the children with news."""
        touched: dict[Child, None] = {}
        for key, _ in self._selector.select(WAITING_SECONDS if self._is_waiting else TICK_SECONDS):
            if key.data is None:
                os.read(self._wake_read, 4096)
            else:
                child, transfer = key.data
                transfer()
                touched[child] = None
        return list(touched)

    def _handle_messages(self, child: Child) -> None:
        for kind, *content in child.messages():
            self._handle_message(child, kind, content)
            if child not in self._children:
                return
        if child.at_end:
            exit_ = child.end()
            death = death_of(exit_, machine.oom_kill_count() - self._num_oom_kills)
            self._num_oom_kills += death.is_oom_kill
            self._handle_death(child, death)

    def _handle_message(self, child: Child, kind: str, content: list[Any]) -> None:
        if kind == "ready":
            child.is_ready = True
            if self._encoding is not None:
                remember(self._encoding, content[0])  # for the workers that are started later
            self._num_failed_starts = 0
        elif kind == "step":
            running = child.assignments[0]
            assert isinstance(running, Attempts)
            running.step = Step(*content)
            self._outbox.put_step(running.slice_, running.step)
        elif kind == "record":
            child.assignments.popleft()
            self._outbox.put(PartRecord.from_plain(content[0]))
        elif kind == "drafted":
            drafted = child.assignments.popleft()
            assert isinstance(drafted, ShardWriting)
            drafted.is_drafted = True
            child.committing.append(drafted)
        elif kind == "shard":
            self._handle_shard(child, *content)
        elif kind == "notice":
            self._outbox.put(Notice(content[0]))
        elif kind == "alive":
            pass  # receiving it is enough
        elif kind in ("cutting", "cut", "uncut"):
            self._handle_cutting(child, kind, content)
        elif kind == "memory":
            child.kill()
            self._handle_death(child, memory_error_of(child.end()))
        else:
            raise error_in(kind, content)

    def _handle_shard(self, child: Child, plain: dict[str, Any], was_whole: bool) -> None:
        from tokenmill.assemble.task import ShardRecord

        record = ShardRecord.from_plain(plain)
        assert child.committing[0].place == record.place
        del child.committing[0]
        if not was_whole:
            self._shard_deaths.on_shard_written()
        self._outbox.put(ShardWritten(record))

    def _handle_cutting(self, child: Child, kind: str, content: list[Any]) -> None:
        running = child.assignments[0]
        assert isinstance(running, InputCutting)
        running.on_message(kind, content)
        if running.is_done:
            child.assignments.popleft()
            self._outbox.put(running)

    def _end_stalled(self) -> None:
        now = time.monotonic()
        for child in list(self._children):
            limit = max(self._stall_timeout, 0 if child.is_ready else START_SECONDS)
            if (child.is_busy or not child.is_ready) and now - child.last_message_at > limit:
                child.kill()
                self._handle_death(child, stall_of(child.end(), limit))

    def _handle_death(self, child: Child, death: Death) -> None:
        """Continue without a dead worker: retry what it was doing, and hand the rest to others."""
        self._children.remove(child)
        self._retries.put_back(child.untouched)
        suspects = child.suspects
        when = "while it had nothing to do" if child.is_ready else "while it started"
        if suspects:
            when = "while " + " and ".join(assignment.doing for assignment in suspects)
        outcome = self._charged(suspects, death) if self._stop_at is None else []
        is_start = not child.is_ready and not any(
            isinstance(one, InputCutting) and one.is_begun for one in suspects
        )
        if self._should_shrink(is_start, death):
            self._num_workers -= 1
            outcome.append(f"continuing with one fewer worker: {self._num_workers}")
        lines = [f"worker {death.pid} died {when}: {death.explained}", *outcome]
        self._outbox.put(Notice("\n".join(lines)))

    def _charged(self, suspects: list[Assignment], death: Death) -> list[str]:
        """Count a death for what the worker was doing; returns what happens next."""
        outcome = [assignment.failed(death) for assignment in suspects]
        if any(isinstance(assignment, ShardWriting) for assignment in suspects):
            self._shard_deaths.on_death(death)
        for assignment in reversed(suspects):
            if isinstance(assignment, InputCutting) and assignment.is_done:
                self._outbox.put(assignment)
            else:
                self._retries.put_back([assignment])
        return outcome

    def _should_shrink(self, is_start: bool, death: Death) -> bool:
        """Whether to continue without replacing a dead worker. Raises WorkerError if none
        starts."""
        if death.is_oom_kill and self._num_workers > 1:
            return True
        self._num_failed_starts += is_start
        if self._num_failed_starts < MAX_FAILED_STARTS:
            return False
        self._num_failed_starts = 0
        if any(other.is_ready for other in self._children):
            return True
        raise WorkerError(
            f"workers die while they start, {MAX_FAILED_STARTS} in a row\n{death.explained}",
            hint=MORE_MEMORY
            if death.is_memory
            else "fix what its stderr says, or encode in this process: --num-proc 1",
        )

    def _start_missing_workers(self) -> None:
        """Start workers up to the number that there is work for."""
        wanted = 1 if self._exclusive() else self._num_workers
        if self._work is None:
            wanted = min(wanted, EARLY_WORKERS)
        if self._is_drawn:
            wanted = min(wanted, self._num_under_way())
        elif self._work is not None:
            # There may be less work than workers; an iterable without a length counts as plenty.
            left = operator.length_hint(self._work[1], self._num_workers)
            wanted = min(wanted, left + self._num_under_way())
        if self._stop_at is None:
            while len(self._children) < wanted:
                self._add_child(started())

    def _num_under_way(self) -> int:
        return len(self._retries) + sum(
            len(child.assignments) + len(child.committing) for child in self._children
        )

    def _add_child(self, process: Process) -> None:
        self._children.append(Child(process, self._selector, self._encoding))

    def _hand_out(self) -> None:
        if self._stop_at is not None or len(self._outbox) > MAX_WAITING:
            return
        exclusive = self._exclusive()
        if exclusive is not None:
            if self._children and not any(child.is_busy for child in self._children):
                self._end_workers(self._children[:-1])
                if self._children[-1].is_ready:
                    self._retries.remove(exclusive)
                    self._children[-1].assign(exclusive)
            return
        self._hand_out_alone()
        # Or all would always be busy, if a dead worker is not replaced.
        kept_free = self._children[-1] if self._retries.first_alone and self._children else None
        for num_assignments in range(ASSIGNMENTS_PER_WORKER):
            for child in self._children:
                if child.is_alone or child is kept_free:
                    continue
                # Before there are slices, there are only inputs to cut, which need no engine.
                can_begin = child.is_ready or self._work is None
                if can_begin and len(child.assignments) == num_assignments:
                    assignment = self._next_assignment()
                    if assignment is None:
                        return
                    child.assign(assignment)

    def _hand_out_alone(self) -> None:
        for child in self._children:
            alone = self._retries.first_alone
            if alone is not None and child.is_ready and not child.is_busy:
                self._retries.remove(alone)
                child.assign(alone)

    def _exclusive(self) -> Assignment | None:
        """The assignment that must run alone, running or next in line."""
        running = itertools.chain(*(child.assignments for child in self._children))
        return next((one for one in (*running, *self._retries) if one.is_exclusive), None)

    def _next_assignment(self) -> Assignment | None:
        retry = self._retries.first_shared
        if retry is not None:
            self._retries.remove(retry)
            return retry
        if self._cuttings:
            return self._cuttings.popleft()
        if self._work is None or self._is_drawn:
            return None
        job, work = self._work
        try:
            item = next(work)
        except StopIteration:
            self._is_drawn, self._is_waiting = True, False
            self._wake()  # the run may be over: without this, only the next tick would notice
            return None
        self._is_waiting = item is None
        if item is None:
            return None
        return Attempts(job, item) if isinstance(item, Slice) else ShardWriting(item)

    def _end_workers(self, children: list[Child]) -> None:
        children = list(children)
        for child in children:
            child.kill(signal.SIGTERM)  # as a pool does: a SIGKILL would look like an accident
        for child in children:
            child.end()
            self._children.remove(child)
