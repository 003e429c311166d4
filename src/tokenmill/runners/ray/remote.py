"""What runs on the nodes of a cluster. Plain values in, plain values out; no token leaves a node.

A Ray worker process is reused from task to task, so the engine is loaded once in each, and each
process compares its facts with the driver's once, before it encodes anything: a node that joins in
the middle of a run is checked by the very process that would do the work.
"""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import astuple
from typing import Any

from tokenmill import machine, objectstore
from tokenmill.encodings import EncodingId
from tokenmill.job import Step
from tokenmill.runners.outbox import merged
from tokenmill.runners.ray.facts import facts_here
from tokenmill.runners.worker import cut_inputs, encode, load, outcome, reporter

# Every step is a message to one actor: often enough for a progress line, seldom enough for 1,000
# workers.
STEP_SECONDS = 0.5
HEARD_SECONDS = 10.0  # how long to wait for the scout at most; usually 2 ms
TAIL_BYTES = 8192

_found: dict[str, dict[str, str]] = {}  # by the nonce's path and value: what this process found


class Scout:
    """The actor that hears from all workers where they are; the driver asks it now and then."""

    def __init__(self) -> None:
        self._said: dict[int, tuple[list[Any], Step | None]] = {}

    def say(self, key: int, whereabouts: list[Any], step: list[int] | None) -> None:
        before = self._said.get(key, (None, None))[1]
        now = before if step is None else merged(before, Step(*step))
        self._said[key] = (whereabouts, now)

    def take(self) -> dict[int, tuple[list[Any], tuple[int, ...] | None]]:
        """What was said since the last call, one step a task."""
        said, self._said = self._said, {}
        return {
            key: (where, astuple(step) if step else None) for key, (where, step) in said.items()
        }


def examine(order: dict[str, Any]) -> dict[str, str]:
    """What this node finds. If that is as it must be, the engine is loaded: it will be needed."""
    found = _facts(order)
    if found == order["facts"]:
        load(order["encoding"], lambda: None)
    return found


def cut_here(order: dict[str, Any]) -> list[list[Any]]:
    """Cut the order's inputs: what a worker process would say on the way, as one list."""
    import ray

    said: list[list[Any]] = []
    found = _facts(order)
    if found != order["facts"]:
        return [["refused", found, ray.get_runtime_context().get_node_id()]]
    failed = outcome(cut_inputs, order, lambda *message: said.append(list(message)))
    return said if failed is None else [*said, list(failed)]


def encode_slice_here(order: dict[str, Any], key: int, scout: Any) -> list[Any]:
    """Encode the order's slice, unless this process is not fit to: ["refused", facts]."""
    import ray

    node = ray.get_runtime_context().get_node_id()
    whereabouts = [node, os.getpid(), _log_path(), machine.oom_kill_count()]
    is_careful = order["caution"]["one_by_one"]

    def tell(step: Step | None) -> None:
        said = scout.say.remote(key, whereabouts, step and astuple(step))
        if is_careful or step is None:  # what comes next may kill: be sure that this was heard
            with contextlib.suppress(ray.exceptions.RayError):  # the scout may be dead
                ray.get(said, timeout=HEARD_SECONDS)

    tell(None)
    # Who waits for a store that answers late is alive, and no stall.
    objectstore.listen(lambda _: scout.say.remote(key, whereabouts, None))
    found = _facts(order)
    if found != order["facts"]:
        return ["refused", found, *whereabouts]
    report = reporter(tell, 0.0 if is_careful else STEP_SECONDS)
    return [*outcome(encode, order, report), *whereabouts]


def write_shard_here(order: dict[str, Any]) -> list[Any]:
    """Carry out a shard order, unless this process is not fit to."""
    import ray

    found = _facts(order)
    if found != order["facts"]:
        return ["refused", found, ray.get_runtime_context().get_node_id()]

    def written() -> tuple[Any, ...]:
        from tokenmill.fulfil import write_shard
        from tokenmill.orders import ShardOrder

        return ("shard", write_shard(ShardOrder.from_plain(order["order"])).to_plain())

    return list(outcome(written))


def last_words(log: str) -> tuple[str, int]:
    """The end of what a worker of this node printed, and how often the kernel killed here."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            said = file.read().decode(errors="replace")
    except OSError:
        said = ""
    return said, machine.oom_kill_count()


def end_process(pid: int) -> None:
    """Kill a worker of this node that no longer answers; no other process of that number."""
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            is_ray = file.read().startswith(b"ray::")
        if is_ray:
            os.kill(pid, signal.SIGKILL)


def _facts(order: dict[str, Any]) -> dict[str, str]:
    key = repr((order["nonce_path"], order["facts"]))
    if key not in _found:
        import pyarrow as pa

        pa.set_cpu_count(1)
        with contextlib.suppress(OSError):
            os.chdir(order["cwd"])  # paths may be relative
        encoding = EncodingId.from_plain(order["encoding"])
        _found[key] = facts_here(encoding, order["nonce_path"])
    return _found[key]


def _log_path() -> str:
    """Where this process's stderr goes."""
    with contextlib.suppress(OSError):
        return os.readlink("/proc/self/fd/2")
    return ""
