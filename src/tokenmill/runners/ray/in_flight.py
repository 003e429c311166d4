"""Slices and shard tasks in the cluster: launched, tracked, then finished as records or lost.

A bounded number is in flight, two for each worker that the cluster can hold: one running and one
queued in Ray, so that no worker waits for the driver. The bound follows the cluster as it grows and
shrinks, and an autoscaler sees the waiting tasks as demand. Work is drawn from the caller's
iterable one item at a time, in the caller's thread.

attempts.py and shard_writing.py decide what to try next when a slice or a shard task lost its
worker, as in the processes runner. A lost node does not count as an attempt, up to MAX_LOST_NODES.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from tokenmill.corpus.spans import Slice
from tokenmill.encode.job import Job
from tokenmill.encode.record import PartRecord
from tokenmill.errors import TokenmillError, error_from_plain
from tokenmill.runners import Watch
from tokenmill.runners.attempts import Attempts
from tokenmill.runners.death import Death, Exit, memory_error_of, stall_of
from tokenmill.runners.ray.cluster import IDLE_SECONDS, Cluster
from tokenmill.runners.ray.facts import mismatch, require_nonce
from tokenmill.runners.ray.flight import Flight, end, helped, since
from tokenmill.runners.ray.heartbeats import Heartbeat, Heartbeats
from tokenmill.runners.ray.losses import crash_of, memory_kill_of, node_named_in
from tokenmill.runners.ray.remote import end_process, last_words, work_here
from tokenmill.runners.shard_writing import ShardWriting

if TYPE_CHECKING:
    from tokenmill.assemble.task import ShardRecord, ShardTask

TICK_SECONDS = 0.25
STEP_SECONDS = 0.5  # between two steps of a worker; more if there are many workers
MAX_STEPS_PER_SECOND = 400  # of all workers together
STOP_SECONDS = 3.0  # how long a stop waits for running tasks
FLIGHTS_PER_SLOT = 2
MIN_FLIGHTS = 4  # of a cluster without workers: it may grow when it sees demand
MAX_LOST_NODES = 10  # for one slice or shard task; with more, the task kills nodes


class InFlight:
    """One `run` on a cluster. `common` is the part of every order besides the work."""

    def __init__(
        self,
        cluster: Cluster,
        board: Heartbeats,
        job: Job,
        common: dict[str, Any],
        watch: Watch,
        stall_timeout: float,
    ) -> None:
        self._cluster = cluster
        self._heartbeats = board
        self._job = job
        self._common = common
        self._watch = watch
        self._stall_timeout = stall_timeout
        self._in_flight: dict[str, Flight] = {}
        self._retries: deque[Attempts | ShardWriting] = deque()
        self._lost_nodes: Counter[Attempts | ShardWriting] = Counter()  # by the lost task
        self._work: Iterator[Slice | ShardTask | None] = iter(())
        self._is_drawn = False  # the iterator is exhausted
        self._stop_at: float | None = None
        self._busy_at = time.monotonic()  # the time of the last heartbeat

    def records(
        self, work: Iterable[Slice | ShardTask | None]
    ) -> Iterator[PartRecord | ShardRecord]:
        """Do the work and yield each record once. No task is left when it ends, with or without an
        error."""
        self._work = iter(work)
        try:
            while not self._is_over():
                self._launch()
                for key in self._landed():
                    record = self._settled(key)
                    if record is not None:
                        yield record
                self._listen()
                self._end_stalled()
                if self._watch.should_stop():
                    self._stop()
        finally:
            end(self._cluster, list(self._in_flight.values()))

    def _is_over(self) -> bool:
        if self._stop_at is not None:
            return not self._in_flight or time.monotonic() > self._stop_at
        return self._is_drawn and not self._in_flight and not self._retries

    # Launching

    def _launch(self) -> None:
        if self._stop_at is not None:
            return
        while len(self._in_flight) < self._max_flights():
            attempts = self._next()
            if attempts is None:
                return
            key = self._heartbeats.new_key()
            task = self._cluster.anywhere(work_here)
            seconds = max(STEP_SECONDS, self._cluster.num_slots / MAX_STEPS_PER_SECOND)
            order = {**self._common, **attempts.order(), "key": key, "step_seconds": seconds}
            self._in_flight[key] = Flight(attempts, task.remote(order))

    def _max_flights(self) -> int:
        if self._cluster.max_workers is not None:
            return self._cluster.max_workers
        return max(MIN_FLIGHTS, FLIGHTS_PER_SLOT * self._cluster.num_slots)

    def _next(self) -> Attempts | ShardWriting | None:
        """The next task to launch; None: nothing, for now or for good."""
        if any(flight.attempts.is_alone for flight in self._in_flight.values()):
            return None
        if self._retries:
            if self._retries[0].is_alone and self._in_flight:
                return None
            return self._retries.popleft()
        try:
            item = next(self._work)
        except StopIteration:
            self._is_drawn = True
            return None
        if item is None:
            return None
        return Attempts(self._job, item) if isinstance(item, Slice) else ShardWriting(item)

    # Heartbeats

    def _landed(self) -> list[str]:
        """The flights that have ended; waits briefly for one."""
        import ray

        keys = {flight.ref: key for key, flight in self._in_flight.items()}
        if not keys:
            time.sleep(TICK_SECONDS / 5)
            return []
        ended, _ = ray.wait(list(keys), num_returns=1, timeout=TICK_SECONDS, fetch_local=False)
        if ended:
            ended, _ = ray.wait(list(keys), num_returns=len(keys), timeout=0, fetch_local=False)
        return [keys[ref] for ref in ended]

    def _listen(self) -> None:
        """Record the progress of the workers."""
        for key, heartbeat in self._heartbeats.news(self._in_flight):
            self._heard(self._in_flight[key], heartbeat)

    def _listen_to(self, key: str) -> None:
        """Record the last heartbeat of this flight, now."""
        heartbeat = self._heartbeats.news_of(key)
        if heartbeat is not None:
            self._heard(self._in_flight[key], heartbeat)

    def _heard(self, flight: Flight, heartbeat: Heartbeat) -> None:
        flight.node, flight.pid, flight.log, flight.num_oom_kills = heartbeat.location
        flight.heard_at = self._busy_at = time.monotonic()
        if heartbeat.step is not None and isinstance(flight.attempts, Attempts):
            flight.attempts.step = since(flight.step, heartbeat.step)
            flight.step = heartbeat.step
            self._watch.step(flight.attempts.slice_, flight.attempts.step)

    def _gone(self, key: str) -> Flight:
        """Remove a flight from those in flight."""
        self._heartbeats.forget(key)
        return self._in_flight.pop(key)

    # Landing

    def _settled(self, key: str) -> PartRecord | ShardRecord | None:
        """Remove a flight that has ended; returns its record, if it has one."""
        import ray

        if key not in self._in_flight:
            return None
        try:
            kind, *content = ray.get(self._in_flight[key].ref)
        except ray.exceptions.RayError as error:
            if self._stop_at is None:
                self._listen_to(key)  # its last reported position
                self._lost(self._in_flight[key], error)
            self._gone(key)
            return None
        flight = self._gone(key)
        *content, (flight.node, flight.pid, flight.log, _) = content
        self._busy_at = time.monotonic()
        if kind == "record":
            return PartRecord.from_plain(content[0])
        if kind == "shard":
            from tokenmill.assemble.task import ShardRecord

            return ShardRecord.from_plain(content[0])
        if kind == "refused":
            self._refused(flight, content[0])
        elif kind == "memory":
            helped(self._cluster, flight, end_process, flight.pid)  # it may hold much memory
            self._failed(flight, memory_error_of(Exit(flight.pid, None, None, "")))
        elif kind == "error":
            raise self._with_node(error_from_plain(content[0]), flight)
        else:
            what, trace = content
            raise TokenmillError(f"a worker failed in a way that is our bug: {what}\n{trace}")
        return None

    def _with_node(self, error: TokenmillError, flight: Flight) -> TokenmillError:
        message = f"{error.message} (on node {self._cluster.name(flight.node)})"
        return type(error)(message, error.hint)

    def _refused(self, flight: Flight, found: dict[str, str]) -> None:
        """Continue without a node that joined during the run and differs from this machine."""
        require_nonce(self._common["nonce_path"])
        self._retries.appendleft(flight.attempts)
        if self._cluster.refuse(flight.node):
            name = self._cluster.name(flight.node)
            error = mismatch(name, self._common["facts"], found)
            self._watch.notice(f"{error.message}\nit gets no work; {error.hint}")

    # Losses

    def _lost(self, flight: Flight, error: Any) -> None:
        """Handle a task that ended without a result."""
        import ray.exceptions as causes

        flight.node = flight.node or node_named_in(str(error))
        if isinstance(error, causes.OutOfMemoryError):
            self._failed(flight, memory_kill_of(flight.pid, str(error)))
        elif self._is_node_lost(flight, error):
            self._node_lost(flight)
        elif isinstance(error, causes.WorkerCrashedError):
            said, oom_kills = helped(self._cluster, flight, last_words, flight.log) or ("", 0)
            self._failed(flight, crash_of(flight.pid, said, oom_kills - flight.num_oom_kills))
        else:
            what = f"{type(error).__name__}: {str(error).strip().splitlines()[-1][:200]}"
            self._failed(flight, Death(flight.pid, "Ray's error", what))

    def _is_node_lost(self, flight: Flight, error: Any) -> bool:
        import ray.exceptions as causes

        if isinstance(error, (causes.NodeDiedError, causes.LocalRayletDiedError)):
            return True
        self._cluster.look_again()
        node = self._cluster.nodes.get(flight.node)
        return node is not None and not node.is_alive

    def _node_lost(self, flight: Flight) -> None:
        self._lost_nodes[flight.attempts] += 1
        cause = "its node is gone"
        if self._lost_nodes[flight.attempts] > MAX_LOST_NODES:
            self._failed(flight, Death(flight.pid, cause, f"for the {MAX_LOST_NODES + 1}th time"))
            return
        self._retries.appendleft(flight.attempts)
        self._notice(flight, f"{cause}: shut down, preempted, or cut off", "another node takes it")

    def _failed(self, flight: Flight, death: Death) -> None:
        outcome = flight.attempts.failed(death)
        self._retries.appendleft(flight.attempts)
        self._notice(flight, death.explained, outcome)

    def _notice(self, flight: Flight, cause: str, outcome: str) -> None:
        worker = f"worker {flight.pid}" if flight.pid else "a worker"
        if flight.node:
            worker += f" on node {self._cluster.name(flight.node)}"
        self._watch.notice(f"{worker} died while {flight.attempts.doing}: {cause}\n{outcome}")

    def _end_stalled(self) -> None:
        for key, flight in list(self._in_flight.items()):
            if self._is_silent(flight):
                self._listen_to(key)  # perhaps only the caller was busy for so long
            if self._is_silent(flight):
                end(self._cluster, [flight])
                self._gone(key)
                exit_ = Exit(flight.pid, None, None, "")
                self._failed(flight, stall_of(exit_, self._stall_timeout))
        now = time.monotonic()
        is_idle = all(flight.heard_at is None for flight in self._in_flight.values())
        if self._in_flight and is_idle and now - self._busy_at > IDLE_SECONDS:
            self._watch.notice(self._cluster.idle_words)
            self._busy_at = float("inf")

    def _is_silent(self, flight: Flight) -> bool:
        heard_at = flight.heard_at
        return heard_at is not None and time.monotonic() - heard_at > self._stall_timeout

    # Ending

    def _stop(self) -> None:
        """Start nothing more; running tasks may end within a few seconds."""
        import ray

        if self._stop_at is not None:
            return
        self._stop_at = time.monotonic() + STOP_SECONDS
        for key, flight in list(self._in_flight.items()):
            if flight.heard_at is None:
                ray.cancel(flight.ref, force=True)
                self._gone(key)
