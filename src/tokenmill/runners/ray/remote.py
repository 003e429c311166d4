"""The functions that run on the nodes of a cluster. Plain values in and out; no token leaves a
node.

Ray reuses a worker process for many tasks, so each process loads the engine once. Each process also
compares its facts with the driver's once, before it encodes anything: so a node that joins during a
run is checked too.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Any

from tokenmill.encodings import EncodingId
from tokenmill.runners import machine
from tokenmill.runners.ray.facts import facts_here, nonce_at
from tokenmill.runners.ray.heartbeats import HeartbeatSender
from tokenmill.runners.worker import cut_inputs, encode, load, outcome, reporter, settle
from tokenmill.storage import heartbeat, objects

TAIL_BYTES = 8192

_found: dict[str, dict[str, str]] = {}  # this process's facts, by the nonce's path and value


def examine(order: dict[str, Any]) -> dict[str, str]:
    """This node's facts. If they match the driver's, the engine is loaded, because it will be
    needed.

    A store that does not answer at all is reported within seconds: nodes may have no route to it.
    """
    found = _facts(order)
    if found == order["facts"]:
        load(order["encoding"], lambda: None)
    return found


def cut_here(order: dict[str, Any]) -> list[list[Any]]:
    """Cut the order's inputs; returns the messages that a worker process would send, as one
    list."""
    import ray

    said: list[list[Any]] = []
    objects.expect_answers()  # the driver got answers
    found = _facts(order)
    if found != order["facts"]:
        return [["refused", found, ray.get_runtime_context().get_node_id()]]
    failed = outcome(cut_inputs, order, lambda *message: said.append(list(message)))
    return said if failed is None else [*said, list(failed)]


def work_here(order: dict[str, Any]) -> list[Any]:
    """Encode the order's slice or write its shard; ["refused", facts] if this process differs from
    the driver."""
    import ray

    node = ray.get_runtime_context().get_node_id()
    sender = HeartbeatSender(order["key"], node, os.getpid(), _log_path())
    sender.say()
    # A worker that moves bytes or waits for a slow store is alive, not stalled.
    heartbeat.listen(sender.say, order["step_seconds"])
    objects.listen(lambda _: sender.say())
    objects.expect_answers()
    found = _facts(order)
    if found != order["facts"]:
        return ["refused", found, sender.location]
    if "shard" in order:
        return [*outcome(_write_shard, order), sender.location]
    is_careful = order["caution"]["one_by_one"]
    report = reporter(sender.say, 0.0 if is_careful else order["step_seconds"])
    return [*outcome(encode, order, report), sender.location]


def _write_shard(order: dict[str, Any]) -> tuple[Any, ...]:
    from dataclasses import asdict

    from tokenmill.assemble.sources import task_of
    from tokenmill.assemble.writing import carry_out

    return ("shard", asdict(carry_out(task_of(order["shard"]))))


def last_words(log: str) -> tuple[str, int]:
    """The end of a worker's log on this node, and the node's number of OOM kills."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            said = file.read().decode(errors="replace")
    except OSError:
        said = ""
    return said, machine.oom_kill_count()


def end_process(pid: int) -> None:
    """Kill a worker of this node that no longer answers, but no other process with that pid."""
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            is_ray = file.read().startswith(b"ray::")
        if is_ray:
            os.kill(pid, signal.SIGKILL)


def _facts(order: dict[str, Any]) -> dict[str, str]:
    """The facts of this process. They are kept if they match; otherwise they are checked again,
    because the storage may have failed only for a while."""
    key = repr((order["nonce_path"], order["facts"]))
    if _found.get(key) != order["facts"]:
        settle()  # not by Ray's runtime_env: a fresh process would cost a second
        import pyarrow as pa

        pa.set_cpu_count(1)
        with contextlib.suppress(OSError):
            os.chdir(order["cwd"])  # paths may be relative
        encoding = EncodingId.from_plain(order["encoding"])
        path = order["nonce_path"]
        _found[key] = facts_here(encoding, None if path is None else nonce_at(path))
    return _found[key]


def _log_path() -> str:
    """Where this process's stderr goes."""
    with contextlib.suppress(OSError):
        return os.readlink("/proc/self/fd/2")
    return ""
