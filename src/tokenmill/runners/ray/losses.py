"""Explains why Ray has lost a worker, as far as the cause is known.

Ray says that a worker died, but rarely why. The cause comes from its node: the end of the worker's
stderr, where native crashes leave their signal, and the kernel's count of OOM kills.
"""

from __future__ import annotations

import re
import signal

from tokenmill.runners.exit_diagnosis import Death, Exit, death_of, stderr_excerpt

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
