"""Slices and shard tasks in flight on the cluster, from launch to record or loss.

A bounded number is in flight, two for each worker that the cluster can hold: one running and one
queued in Ray, so that no worker waits for the driver. The bound follows the cluster as it grows and
shrinks, and an autoscaler sees the waiting tasks as demand. Work is drawn from the caller's
iterable one item at a time, in the caller's thread.

attempts.py and shard_writing.py decide what to try next when a slice or a shard task lost its
worker, as in the processes runner. A lost node does not count as an attempt, up to MAX_LOST_NODES.
Ray says that a worker died, but rarely why: the cause comes from its node, by the end of the
worker's stderr, where native crashes leave their signal, and the kernel's count of OOM kills.
"""

from __future__ import annotations

import re
import signal
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from tokenmill.corpus.spans import Slice
from tokenmill.encode.job import Job
from tokenmill.encode.record import PartRecord
from tokenmill.errors import TokenmillError
from tokenmill.runners import Watch
from tokenmill.runners.attempts import Attempts
from tokenmill.runners.exit_diagnosis import (
    Death,
    Exit,
    death_of,
    memory_error_of,
    stall_of,
    stderr_excerpt,
)
from tokenmill.runners.ray.cluster import IDLE_SECONDS, Cluster
from tokenmill.runners.ray.facts import mismatch, require_nonce
from tokenmill.runners.ray.heartbeats import Heartbeat, Heartbeats
from tokenmill.runners.ray.ray_task import RayTask, end, run_on_node, since
from tokenmill.runners.ray.remote import end_process, log_tail, work_on_node
from tokenmill.runners.shard_writing import ShardWriting
from tokenmill.runners.worker import error_in

if TYPE_CHECKING:
    from tokenmill.assemble.task import ShardRecord, ShardTask


TICK_SECONDS = 0.25
STEP_SECONDS = 0.5  # between two steps of a worker; more if there are many workers
MAX_STEPS_PER_SECOND = 400  # of all workers together
STOP_SECONDS = 3.0  # how long a stop waits for running tasks
TASKS_PER_SLOT = 2
MIN_IN_FLIGHT = 4  # of a cluster without workers: it may grow when it sees demand
MAX_LOST_NODES = 10  # for one slice or shard task; with more, the task kills nodes


class InFlight:
    """One `run` on a cluster. `common` is the part of every order besides the work."""

    def __init__(
        self,
        cluster: Cluster,
        heartbeats: Heartbeats,
        job: Job,
        common: dict[str, Any],
        watch: Watch,
        stall_timeout: float,
    ) -> None:
        self._cluster = cluster
        self._heartbeats = heartbeats
        self._job = job
        self._common = common
        self._watch = watch
        self._stall_timeout = stall_timeout
        self._in_flight: dict[str, RayTask] = {}
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
                for key in self._ended_keys():
                    record = self._finish(key)
                    if record is not None:
                        yield record
                self._read_heartbeats()
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
        while len(self._in_flight) < self._max_in_flight():
            attempts = self._next()
            if attempts is None:
                return
            key = self._heartbeats.new_key()
            remote = self._cluster.anywhere(work_on_node)
            seconds = max(STEP_SECONDS, self._cluster.num_slots / MAX_STEPS_PER_SECOND)
            order = {**self._common, **attempts.order(), "key": key, "step_seconds": seconds}
            self._in_flight[key] = RayTask(attempts, remote.remote(order))

    def _max_in_flight(self) -> int:
        if self._cluster.max_workers is not None:
            return self._cluster.max_workers
        return max(MIN_IN_FLIGHT, TASKS_PER_SLOT * self._cluster.num_slots)

    def _next(self) -> Attempts | ShardWriting | None:
        """The next task to launch; None: nothing, for now or for good."""
        if any(task.attempts.is_exclusive for task in self._in_flight.values()):
            return None
        if self._retries:
            if self._retries[0].is_exclusive and self._in_flight:
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

    def _ended_keys(self) -> list[str]:
        """The keys of tasks that have ended; waits briefly for one."""
        import ray

        keys = {task.ref: key for key, task in self._in_flight.items()}
        if not keys:
            time.sleep(TICK_SECONDS / 5)
            return []
        ended, _ = ray.wait(list(keys), num_returns=1, timeout=TICK_SECONDS, fetch_local=False)
        if ended:
            ended, _ = ray.wait(list(keys), num_returns=len(keys), timeout=0, fetch_local=False)
        return [keys[ref] for ref in ended]

    def _read_heartbeats(self) -> None:
        """Record the progress of the workers."""
        for key, heartbeat in self._heartbeats.new_heartbeats(self._in_flight):
            self._on_heartbeat(self._in_flight[key], heartbeat)

    def _read_heartbeat(self, key: str) -> None:
        """Record the last heartbeat of this task, now."""
        heartbeat = self._heartbeats.new_heartbeat(key)
        if heartbeat is not None:
            self._on_heartbeat(self._in_flight[key], heartbeat)

    def _on_heartbeat(self, task: RayTask, heartbeat: Heartbeat) -> None:
        task.node, task.pid, task.log, task.num_oom_kills = heartbeat.location
        task.heard_at = self._busy_at = time.monotonic()
        if heartbeat.step is not None and isinstance(task.attempts, Attempts):
            task.attempts.step = since(task.step, heartbeat.step)
            task.step = heartbeat.step
            self._watch.step(task.attempts.slice_, task.attempts.step)

    def _forget(self, key: str) -> RayTask:
        """Forget a task."""
        self._heartbeats.forget(key)
        return self._in_flight.pop(key)

    # Ended tasks

    def _finish(self, key: str) -> PartRecord | ShardRecord | None:
        """Forget a task that has ended; returns its record, if it has one."""
        import ray

        if key not in self._in_flight:
            return None
        try:
            kind, *content = ray.get(self._in_flight[key].ref)
        except ray.exceptions.RayError as error:
            if self._stop_at is None:
                self._read_heartbeat(key)  # its last reported position
                self._lost(self._in_flight[key], error)
            self._forget(key)
            return None
        task = self._forget(key)
        *content, (task.node, task.pid, task.log, _) = content
        self._busy_at = time.monotonic()
        if kind == "record":
            return PartRecord.from_plain(content[0])
        if kind == "shard":
            from tokenmill.assemble.task import ShardRecord

            return ShardRecord.from_plain(content[0])
        if kind == "refused":
            self._refused(task, content[0])
        elif kind == "memory":
            run_on_node(self._cluster, task, end_process, task.pid)  # it may hold much memory
            self._failed(task, memory_error_of(Exit(task.pid, None, None, "")))
        elif kind == "error":
            raise self._with_node(error_in(kind, content), task)
        else:
            raise error_in(kind, content)
        return None

    def _with_node(self, error: TokenmillError, task: RayTask) -> TokenmillError:
        message = f"{error.message} (on node {self._cluster.name(task.node)})"
        return type(error)(message, error.hint)

    def _refused(self, task: RayTask, found: dict[str, str]) -> None:
        """Continue without a node that joined during the run and differs from this machine."""
        require_nonce(self._common["nonce_path"])
        self._retries.appendleft(task.attempts)
        if self._cluster.refuse(task.node):
            name = self._cluster.name(task.node)
            error = mismatch(name, self._common["facts"], found)
            self._watch.notice(f"{error.message}\nit gets no work; {error.hint}")

    # Losses

    def _lost(self, task: RayTask, error: Any) -> None:
        """Handle a task that ended without a result."""
        import ray.exceptions as causes

        task.node = task.node or node_named_in(str(error))
        if isinstance(error, causes.OutOfMemoryError):
            self._failed(task, memory_kill_of(task.pid, str(error)))
        elif self._is_node_lost(task, error):
            self._node_lost(task)
        elif isinstance(error, causes.WorkerCrashedError):
            said, oom_kills = run_on_node(self._cluster, task, log_tail, task.log) or ("", 0)
            self._failed(task, crash_of(task.pid, said, oom_kills - task.num_oom_kills))
        else:
            what = f"{type(error).__name__}: {str(error).strip().splitlines()[-1][:200]}"
            self._failed(task, Death(task.pid, "Ray's error", what))

    def _is_node_lost(self, task: RayTask, error: Any) -> bool:
        import ray.exceptions as causes

        if isinstance(error, (causes.NodeDiedError, causes.LocalRayletDiedError)):
            return True
        self._cluster.look_again()
        node = self._cluster.nodes.get(task.node)
        return node is not None and not node.is_alive

    def _node_lost(self, task: RayTask) -> None:
        self._lost_nodes[task.attempts] += 1
        cause = "its node is gone"
        if self._lost_nodes[task.attempts] > MAX_LOST_NODES:
            self._failed(task, Death(task.pid, cause, f"for the {MAX_LOST_NODES + 1}th time"))
            return
        self._retries.appendleft(task.attempts)
        self._notice(task, f"{cause}: shut down, preempted, or cut off", "another node takes it")

    def _failed(self, task: RayTask, death: Death) -> None:
        outcome = task.attempts.failed(death)
        self._retries.appendleft(task.attempts)
        self._notice(task, death.explained, outcome)

    def _notice(self, task: RayTask, cause: str, outcome: str) -> None:
        worker = f"worker {task.pid}" if task.pid else "a worker"
        if task.node:
            worker += f" on node {self._cluster.name(task.node)}"
        self._watch.notice(f"{worker} died while {task.attempts.doing}: {cause}\n{outcome}")

    def _end_stalled(self) -> None:
        for key, task in list(self._in_flight.items()):
            if self._is_silent(task):
                self._read_heartbeat(key)  # perhaps only the caller was busy for so long
            if self._is_silent(task):
                end(self._cluster, [task])
                self._forget(key)
                exit_ = Exit(task.pid, None, None, "")
                self._failed(task, stall_of(exit_, self._stall_timeout))
        now = time.monotonic()
        is_idle = all(task.heard_at is None for task in self._in_flight.values())
        if self._in_flight and is_idle and now - self._busy_at > IDLE_SECONDS:
            self._watch.notice(self._cluster.idle_words)
            self._busy_at = float("inf")

    def _is_silent(self, task: RayTask) -> bool:
        heard_at = task.heard_at
        return heard_at is not None and time.monotonic() - heard_at > self._stall_timeout

    # Ending

    def _stop(self) -> None:
        """Start nothing more; running tasks may end within a few seconds."""
        import ray

        if self._stop_at is not None:
            return
        self._stop_at = time.monotonic() + STOP_SECONDS
        for key, task in list(self._in_flight.items()):
            if task.heard_at is None:
                ray.cancel(task.ref, force=True)
                self._forget(key)


_RECEIVED = re.compile(r"\*\*\* (SIG[A-Z]+) received at")
_NODE = re.compile(r"\bnode(?: \(IP: [^ ,)]+,)? ID: ([0-9a-f]{40,})", re.IGNORECASE)
_USAGE = re.compile(r" was ([0-9.]+ ?[KMGT]?i?B)(?: used)? / ([0-9.]+ ?[KMGT]?i?B)")


def node_named_in(message: str) -> str:
    """The id of the node that Ray's message names; "" if it names none."""
    found = _NODE.search(message)
    return found[1] if found else ""


def crash_of(pid: int, said: str, oom_kills: int) -> Death:
    """The death of a worker that crashed or was killed; `said` is the end of its stderr."""
    received = _RECEIVED.findall(said)
    if received:
        return death_of(Exit(pid, -signal.Signals[received[-1]], None, _without_marks(said)), 0)
    if oom_kills > 0:
        return death_of(Exit(pid, -signal.SIGKILL, None, ""), oom_kills)
    likely = "killed by a person, a job scheduler or the kernel, or it exited on its own"
    return Death(pid, "unknown end", likely, stderr_excerpt(_without_marks(said)))


def memory_kill_of(pid: int, message: str) -> Death:
    """The death of a worker that Ray's memory monitor killed."""
    usage = _USAGE.search(message)
    held = f": {usage[1]} of {usage[2]} were in use" if usage else ""
    likely = f"Ray killed it because its node ran short of memory{held}; --worker-memory 4G helps"
    return Death(pid, "OutOfMemoryError", likely, is_memory=True, is_oom_kill=True)


def _without_marks(said: str) -> str:
    """The text without the marker lines that Ray writes to a worker's stderr."""
    return "\n".join(line for line in said.splitlines() if not line.startswith(":"))
