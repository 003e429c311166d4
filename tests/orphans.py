"""Processes that tests started and that are still there when the last test has ended.

A process inherits its environment, so a variable of ours tells which are ours, whoever their parent
is by now; pytest's own PYTEST_CURRENT_TEST tells which test started it. Where there is no /proc,
nothing is found.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

MARK = "TOKENMILL_TEST_SESSION"
# A process that was told to end needs a moment; a busy machine makes it a long one.
RETRY_SECONDS = 10.0
# What multiprocessing starts once for a program, and ends with it.
_HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")


@dataclass(frozen=True)
class Orphan:
    pid: int
    test: str
    command: str

    def __str__(self) -> str:
        return f"process {self.pid}, started by {self.test or 'no test'}: {self.command}"


def mark_children() -> None:
    """Have those that this process starts from now on carry its mark."""
    os.environ[MARK] = f"{os.getpid()}.{time.time_ns()}"


def ended_orphans() -> list[Orphan]:
    """Those that do not end by themselves soon. They are killed, so that none is left."""
    time.sleep(0.2)  # a program that is being started has no environment yet
    deadline = time.monotonic() + RETRY_SECONDS
    while (found := _orphans()) and time.monotonic() < deadline:
        time.sleep(0.05)
    for orphan in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(orphan.pid, signal.SIGKILL)
    return found


def _orphans() -> list[Orphan]:
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return [orphan for pid in pids if (orphan := _orphan(pid)) is not None]


def _orphan(pid: int) -> Orphan | None:
    folder = Path("/proc", str(pid))
    try:
        environ = (folder / "environ").read_bytes()
        command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:  # it has ended, or it is another user's
        return None
    variables = dict(entry.partition("=")[::2] for entry in os.fsdecode(environ).split("\0"))
    if variables.get(MARK) != os.environ[MARK] or any(name in command for name in _HELPERS):
        return None
    return Orphan(pid, variables.get("PYTEST_CURRENT_TEST", ""), command.strip())
