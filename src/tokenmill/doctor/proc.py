"""What /proc says about a process: plain values, empty if it is gone or hidden.

The 52nd field of /proc/PID/stat is the exit status of a process that is dead but not yet reaped. A
parent that waits for its children reaps them within microseconds; since Linux 6.15, a pidfd that
was opened while the process lived keeps the status after that (PIDFD_GET_INFO).
"""

from __future__ import annotations

import fcntl
import os
import struct
from dataclasses import dataclass

# include/uapi/linux/pidfd.h: _IOWR(0xFF, 11, struct pidfd_info), whose first version has 64 bytes.
_PIDFD_GET_INFO = 0xC040FF0B
_PIDFD_INFO_EXIT = 1 << 3
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Stat:
    parent: int
    state: str  # R runs, S sleeps, D waits for a disk, Z is dead and not reaped, ...
    cpu_seconds: float
    child_faults: int  # page faults of children that it has reaped: 0 if it has reaped none
    wait_status: int | None  # None: hidden, or an old kernel


@dataclass(frozen=True, slots=True)
class Status:
    peak_bytes: int
    anonymous_bytes: int
    num_threads: int
    leader: int  # the pid of the process that a thread belongs to; a process's own


class LastPid:
    """The last pid assigned to a process or thread in our pid namespace.

    A read takes 1 us and a listing of /proc 60, so a new process is noticed quickly.
    """

    def __init__(self, root: str = "/") -> None:
        try:
            self._fd = os.open(os.path.join(root, "proc/loadavg"), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._fd = -1

    def read(self) -> int | None:
        """None if the kernel does not say."""
        try:
            return int(os.pread(self._fd, 100, 0).split()[-1])
        except (OSError, ValueError, IndexError):
            return None

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def process_ids(root: str = "/") -> list[int]:
    try:
        return [int(name) for name in os.listdir(os.path.join(root, "proc")) if name.isdigit()]
    except OSError:
        return []


def process_stat(pid: int, root: str = "/") -> Stat | None:
    data = _bytes(pid, "stat", root)
    # The name in parentheses may contain spaces and parentheses; the fields follow the last one.
    fields = data[data.rfind(b")") + 2 :].split()
    if len(fields) < 13:
        return None
    cpu = (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND
    status = int(fields[49]) if len(fields) > 49 else None
    return Stat(int(fields[1]), fields[0].decode(), cpu, int(fields[8]), status)


def process_status(pid: int, root: str = "/") -> Status:
    found = {b"VmHWM": 0, b"RssAnon": 0, b"Threads": 0, b"Tgid": 0}
    for line in _bytes(pid, "status", root).splitlines():
        name, _, rest = line.partition(b":")
        if name in found:
            found[name] = int(rest.split()[0])
    peak, anonymous = found[b"VmHWM"] * 1024, found[b"RssAnon"] * 1024
    return Status(peak, anonymous, found[b"Threads"], found[b"Tgid"])


def command_line(pid: int, root: str = "/") -> str:
    """The command as one line; hostile text, not yet safe for a terminal."""
    words = _bytes(pid, "cmdline", root).rstrip(b"\0").split(b"\0")
    return b" ".join(words).decode("utf-8", "replace")


def waiting_in(pid: int, root: str = "/") -> str:
    """The kernel function that a sleeping process waits in, such as futex_do_wait."""
    return _bytes(pid, "wchan", root).decode("ascii", "replace")


def reaped_status(pidfd: int) -> int | None:
    """The wait status of a process that is gone, by a pidfd from its lifetime."""
    info = bytearray(64)
    struct.pack_into("Q", info, 0, _PIDFD_INFO_EXIT)
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, info)
    except OSError:  # older than Linux 6.13
        return None
    (mask,) = struct.unpack_from("Q", info, 0)
    (status,) = struct.unpack_from("i", info, 60)
    return int(status) if mask & _PIDFD_INFO_EXIT else None


def _bytes(pid: int, name: str, root: str) -> bytes:
    try:
        with open(os.path.join(root, "proc", str(pid), name), "rb") as file:
            return file.read()
    except OSError:
        return b""
