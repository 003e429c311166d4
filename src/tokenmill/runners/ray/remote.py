"""What runs on the nodes of a cluster. Plain values in, plain values out; no token leaves a node.

Ray reuses a worker process for many tasks, so each loads the engine once, and compares its facts
with the driver's once, before it encodes anything. A node that joins during a run is thus checked
too.
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
    """This node's facts. If they match, the engine is loaded too, because it will be needed.

    A store that this node cannot reach is reported within seconds.
    """
    found = _facts(order)
    if found == order["facts"]:
        _, verdict = load(order, lambda: None)
        return {**found, VERDICT: verdict}
    return found


def cut_on_node(order: dict[str, Any]) -> list[list[Any]]:
    """Cut the order's inputs; returns the messages that a worker process would send."""
    import ray

    said: list[list[Any]] = []
    objects.expect_answers()  # the driver got some
    found = _facts(order)
    if found != order["facts"]:
        return [["refused", found, ray.get_runtime_context().get_node_id()]]
    failed = outcome(cut_inputs, order, lambda *message: said.append(list(message)))
    return said if failed is None else [*said, list(failed)]


def work_on_node(order: dict[str, Any]) -> list[Any]:
    """Encode the order's slice or write its shard; ["refused", facts] if the facts differ."""
    import ray

    node = ray.get_runtime_context().get_node_id()
    sender = HeartbeatSender(order["key"], node, os.getpid(), _log_path())
    sender.send()
    # Moving bytes, or waiting for a slow store, is not a stall.
    heartbeat.listen(sender.send, order["step_seconds"])
    objects.report_retries_to(lambda _: sender.send())
    objects.expect_answers()
    found = _facts(order)
    if found != order["facts"]:
        return ["refused", found, sender.location]
    if "shard" in order:
        return [*outcome(_write_shard, order), sender.location]
    is_careful = order["caution"]["one_by_one"]
    report = reporter(sender.send, 0.0 if is_careful else order["step_seconds"])
    return [*outcome(encode, order, report), sender.location]


def _write_shard(order: dict[str, Any]) -> tuple[Any, ...]:
    from dataclasses import asdict

    from tokenmill.assemble.sources import task_of
    from tokenmill.assemble.writing import carry_out

    return ("shard", asdict(carry_out(task_of(order["shard"]))))


def log_tail(log: str) -> tuple[str, int]:
    """The end of a worker's stderr, and this node's count of OOM kills."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            said = file.read().decode(errors="replace")
    except OSError:
        said = ""
    return said, machine.oom_kill_count()


def end_process(pid: int) -> None:
    """Kill a Ray worker of this node that no longer answers; not another process with its pid."""
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            is_ray = file.read().startswith(b"ray::")
        if is_ray:
            os.kill(pid, signal.SIGKILL)


def _facts(order: dict[str, Any]) -> dict[str, str]:
    """This process's facts. Once they match they are cached; a mismatch may be a transient failure
    of the storage."""
    key = repr((order["nonce_path"], order["facts"]))
    if _found.get(key) != order["facts"]:
        # Not by Ray's runtime_env, which would start a new process: one second.
        configure_process()
        # Ray's own handler raises SystemExit wherever the code is, which would be taken for a bug.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
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
