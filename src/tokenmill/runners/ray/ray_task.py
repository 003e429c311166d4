"""One attempt at a slice or a shard task, as a Ray task: where it is, how to end it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tokenmill.encode.job import Step
from tokenmill.runners.attempts import Attempts
from tokenmill.runners.ray.cluster import Cluster
from tokenmill.runners.ray.remote import end_process
from tokenmill.runners.shard_writing import ShardWriting

CANCEL_SECONDS = 2.0  # how long a cancelled task may take to end
HELP_SECONDS = 10.0  # how long a helper task on a node may take


@dataclass(slots=True, eq=False)
class RayTask:
    """One attempt, as a Ray task."""

    attempts: Attempts | ShardWriting
    ref: Any
    node: str = ""  # empty until its first heartbeat
    pid: int = 0
    log: str = ""
    num_oom_kills: int = 0
    step: Step | None = None  # of the last heartbeat
    heard_at: float | None = None  # None: still waits for a worker


def since(before: Step | None, step: Step) -> Step:
    """The step, with the work since the previous one."""
    if before is None:
        return step
    return replace(
        step,
        done_rows=step.done_rows - before.done_rows,
        done_tokens=step.done_tokens - before.done_tokens,
        done_bytes=step.done_bytes - before.done_bytes,
    )


def end(cluster: Cluster, tasks: list[RayTask]) -> None:
    """End these tasks for certain. Ray asks their processes to end; one that is stopped or holds
    the interpreter does not react, and is killed on its node."""
    import ray

    for task in tasks:
        ray.cancel(task.ref, force=True)
    if not tasks:
        return
    refs = [task.ref for task in tasks]
    _, left = ray.wait(refs, num_returns=len(refs), timeout=CANCEL_SECONDS, fetch_local=False)
    for task in tasks:
        if task.ref in left and task.pid:
            run_on_node(cluster, task, end_process, task.pid)


def run_on_node(cluster: Cluster, task: RayTask, function: Any, *arguments: Any) -> Any:
    """Run a function on the task's node; None if that fails."""
    import ray

    if not task.node:
        return None
    try:
        remote = cluster.on(task.node, function)
        return ray.get(remote.remote(*arguments), timeout=HELP_SECONDS)
    except ray.exceptions.RayError:
        return None
