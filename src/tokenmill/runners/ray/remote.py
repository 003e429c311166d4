"""What runs on the nodes of a cluster. Plain values in, plain values out; no token leaves a node.

A Ray worker process is reused from task to task, so the engine is loaded once in each, and each
process compares its facts with the driver's once, before it encodes anything: a node that joins in
the middle of a run is checked by the very process that would do the work.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Any

from tokenmill.encodings import EncodingId
from tokenmill.encodings.verdict import remember
from tokenmill.runners import machine
from tokenmill.runners.ray.facts import VERDICT, facts_here, nonce_at
from tokenmill.runners.ray.heartbeats import HeartbeatSender
from tokenmill.runners.worker import configure_process, cut_inputs, encode, load, outcome, reporter
from tokenmill.storage import heartbeat, objects

TAIL_BYTES = 8192

_found: dict[str, dict[str, str]] = {}  # by the nonce's path and value: what this process found


def node_facts(order: dict[str, Any]) -> dict[str, Any]:
    """What this node finds. If that is as it must be, the engine is loaded: it will be needed.

    A store that does not answer at all is said so within seconds: nodes may have no way to it.
    """
    found = _facts(order)
    if found == order["facts"]:
        _, verdict = load(order, lambda: None)
        return {**found, VERDICT: verdict}
    return found


def cut_on_node(order: dict[str, Any]) -> list[list[Any]]:
    """Cut the order's inputs: what a worker process would say on the way, as one list."""
    import ray

    said: list[list[Any]] = []
    objects.expect_answers()  # the driver had some
    found = _facts(order)
    if found != order["facts"]:
        return [["refused", found, ray.get_runtime_context().get_node_id()]]
    failed = outcome(cut_inputs, order, lambda *message: said.append(list(message)))
    return said if failed is None else [*said, list(failed)]


def work_on_node(order: dict[str, Any]) -> list[Any]:
    """Encode the order's slice or write its shard, unless this process is not fit to:
    ["refused", facts]."""
    import ray

    node = ray.get_runtime_context().get_node_id()
    sender = HeartbeatSender(order["key"], node, os.getpid(), _log_path())
    sender.say()
    # Who moves bytes, or waits for a store that answers late, is alive and no stall.
    heartbeat.listen(sender.say, order["step_seconds"])
    objects.report_retries_to(lambda _: sender.say())
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


def log_tail(log: str) -> tuple[str, int]:
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
    """What this process finds. If it is as it must be, it is not looked for again; if not, the
    storage may only have failed for a while."""
    key = repr((order["nonce_path"], order["facts"]))
    if _found.get(key) != order["facts"]:
        # Not by Ray's runtime_env: that would take a fresh process, a second's work.
        configure_process()
        import pyarrow as pa

        pa.set_cpu_count(1)
        with contextlib.suppress(OSError):
            os.chdir(order["cwd"])  # paths may be relative
        encoding = EncodingId.from_plain(order["encoding"])
        remember(encoding, order["verdict"])
        path = order["nonce_path"]
        _found[key] = facts_here(encoding, None if path is None else nonce_at(path))
    return _found[key]


def _log_path() -> str:
    """Where this process's stderr goes."""
    with contextlib.suppress(OSError):
        return os.readlink("/proc/self/fd/2")
    return ""
