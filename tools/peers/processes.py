"""A run with all its processes: started, watched, killed to the last of them, and reaped. Linux.

The driver makes itself the reaper of all orphans below it, so whatever a run leaves behind, in
whatever session, is still among its descendants. One run at a time.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass

PR_SET_CHILD_SUBREAPER = 36
POLL_SECONDS = 0.002
MAX_START_SECONDS = 600.0  # to the moment of the fault, on a busy machine


def become_reaper() -> None:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(pid: int) -> list[int]:
    """Living processes below `pid`, parents first."""
    below: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open(f"/proc/{name}/stat") as file:
                state, parent = file.read().rsplit(")", 1)[1].split()[:2]
            if state != "Z":
                below.setdefault(int(parent), []).append(int(name))
    found = [pid]
    for one in found:
        found += below.get(one, [])
    return found[1:]


def cpu_ticks(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return sum(map(int, file.read().rsplit(")", 1)[1].split()[11:13]))
    except OSError:
        return -1


def kill_all() -> int:
    """SIGKILL for all that was started here, until nothing is left; how many there were."""
    killed: set[int] = set()
    while found := descendants(os.getpid()):
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        killed.update(found)
        time.sleep(0.02)
        _reap(found)
    return len(killed)


def _reap(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


@dataclass(frozen=True)
class Ending:
    """How a run ended. `code` is None if it did not: it was killed by us, or hung."""

    code: int | None
    seconds: float  # from the fault on, if there was one
    hung: bool
    num_left: int  # processes that were still there two seconds after it had ended
    fault_landed: bool


@dataclass(frozen=True)
class Fault:
    """`strike(pid of the run)` is called once `is_time()`; whether it struck."""

    is_time: Callable[[], bool]
    strike: Callable[[int], bool]
    is_end: bool = False  # the run is over with it


def run(
    command: list[str],
    environment: dict[str, str],
    log: str,
    timeout: float,
    fault: Fault | None = None,
    limit: Callable[[], None] | None = None,
    each_poll: Callable[[], None] = lambda: None,
) -> Ending:
    """Run a command to its end, or to `timeout` seconds after the fault; without one, the start."""
    with open(log, "wb") as said:
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
            preexec_fn=limit,  # noqa: PLW1509
        )
    began, landed = time.monotonic(), False
    while process.poll() is None:
        each_poll()
        if fault and not landed and fault.is_time():
            landed = fault.strike(process.pid)
            began = time.monotonic()
            if landed and fault.is_end:
                kill_all()
                process.wait()
                return Ending(None, 0.0, False, 0, True)
        if time.monotonic() - began > (timeout if landed or not fault else MAX_START_SECONDS):
            kill_all()
            process.wait()
            return Ending(None, timeout, True, 0, landed)
        time.sleep(POLL_SECONDS)
    seconds = time.monotonic() - began
    until = time.monotonic() + 2
    while (left := descendants(os.getpid())) and time.monotonic() < until:
        time.sleep(0.05)
    kill_all()
    return Ending(process.returncode, seconds, False, len(left), landed)
