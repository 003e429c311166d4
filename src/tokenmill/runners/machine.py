"""What this process may use: CPUs by affinity and cgroup quota, memory by cgroup and RAM.

`os.cpu_count()` and the installed RAM say what the machine has. In a container, a Slurm job or a
systemd slice the kernel allows less, and kills processes that take more. cgroups nest, and every
level may set a limit: the smallest on the way to the root applies. A level that cannot be seen
from here (no cgroup namespace, no mount) is skipped.

Every function takes `root`, the folder that holds proc/ and sys/, and reads nothing but files
under it. Where there are none (macOS) the answer comes from the C library.
"""

from __future__ import annotations

import math
import os
import resource
import sys
from collections.abc import Iterator

# cgroup v1 says "no limit" with the largest page-aligned int64; no machine has 2**60 bytes.
_NO_LIMIT_BYTES = 1 << 60


def available_cpus(root: str = "/") -> int:
    """How many CPUs this process can keep busy; at least 1."""
    allowed = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    quota = cpu_quota(root)
    return max(1, allowed if quota is None else min(allowed, math.ceil(quota)))


def cpu_quota(root: str = "/") -> float | None:
    """CPU seconds per second that the cgroups grant, or None for no limit."""
    quotas = []
    for folder in _cgroup_folders(root, ""):
        fields = _text(folder, "cpu.max").split()
        if len(fields) == 2 and fields[0].isdigit():
            quotas.append(int(fields[0]) / int(fields[1]))
    for folder in _cgroup_folders(root, "cpu"):
        quota, period = _number(folder, "cpu.cfs_quota_us"), _number(folder, "cpu.cfs_period_us")
        if quota and period:
            quotas.append(quota / period)
    return min(quotas, default=None)


def memory_limit_bytes(root: str = "/") -> int:
    """The most memory that this process and its children may hold together."""
    limits = [limit for limit, _ in _memory_cgroups(root)]
    return min([_physical_bytes(root), *limits])


def memory_available_bytes(root: str = "/") -> int:
    """How much of the limit is free, or would be on demand (page cache)."""
    free = [limit - used for limit, used in _memory_cgroups(root)]
    return max(0, min([_meminfo_bytes(root, "MemAvailable") or _physical_bytes(root), *free]))


def oom_kill_count(root: str = "/") -> int:
    """How often the kernel killed a process for lack of memory here. Only changes are meaningful.

    Counted in the innermost visible cgroup, else on the whole machine.
    """
    for controller, name in (("", "memory.events"), ("memory", "memory.oom_control")):
        for folder in _cgroup_folders(root, controller):
            if text := _text(folder, name):
                return _field(text, "oom_kill")
    return oom_kill_count_of_machine(root)


def oom_kill_count_of_machine(root: str = "/") -> int:
    return _field(_text(root, "proc/vmstat"), "oom_kill")


def peak_rss_bytes(usage: resource.struct_rusage | None = None) -> int:
    """The most memory held at once, of this process or of one that `os.wait4` reaped.

    On Linux a child's peak starts at its parent's, because vfork shares the parent's memory.
    """
    usage = usage or resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_maxrss if sys.platform == "darwin" else usage.ru_maxrss * 1024


def _memory_cgroups(root: str) -> Iterator[tuple[int, int]]:
    """(limit, used) in bytes of every cgroup that limits memory; page cache is not used memory."""
    for folder in _cgroup_folders(root, ""):
        limit = _number(folder, "memory.max")
        if limit is not None:
            cache = _field(_text(folder, "memory.stat"), "inactive_file")
            yield limit, (_number(folder, "memory.current") or 0) - cache
    for folder in _cgroup_folders(root, "memory"):
        limit = _number(folder, "memory.limit_in_bytes")
        if limit is not None and limit < _NO_LIMIT_BYTES:
            cache = _field(_text(folder, "memory.stat"), "total_inactive_file")
            yield limit, (_number(folder, "memory.usage_in_bytes") or 0) - cache


def _cgroup_folders(root: str, controller: str) -> list[str]:
    """This process's cgroup and its ancestors as folders; controller "" is the v2 hierarchy."""
    for line in _text(root, "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controller not in controllers.split(","):
            continue
        for name in (controllers, controller) if controller else ("unified", ""):
            mount = os.path.join(root, "sys/fs/cgroup", name)
            if os.path.isdir(mount):
                return _with_ancestors(mount, path)
    return []


def _with_ancestors(mount: str, path: str) -> list[str]:
    # In a container without a cgroup namespace the path is the host's, and only the mount itself,
    # which is then the container's own cgroup, exists.
    names = [name for name in path.split("/") if name not in ("", "..")]
    folders = [os.path.join(mount, *names[:depth]) for depth in range(len(names), -1, -1)]
    return [folder for folder in folders if os.path.isdir(folder)]


def _physical_bytes(root: str) -> int:
    found = _meminfo_bytes(root, "MemTotal")
    return found or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _meminfo_bytes(root: str, name: str) -> int:
    return _field(_text(root, "proc/meminfo"), f"{name}:") * 1024


def _text(folder: str, name: str) -> str:
    """A file's text; "" if it cannot be read."""
    try:
        with open(os.path.join(folder, name), encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _number(folder: str, name: str) -> int | None:
    """The file's positive number; None for "max", "-1" or no such file."""
    text = _text(folder, name).strip()
    return int(text) if text.isdigit() else None


def _field(text: str, name: str) -> int:
    """The number after `name` in lines of "name number"; 0 if there is none."""
    for line in text.splitlines():
        fields = line.split()
        if len(fields) > 1 and fields[0] == name and fields[1].isdigit():
            return int(fields[1])
    return 0
