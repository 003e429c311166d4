"""A command and everything it starts, watched from outside until it ends.

Processes are found by polling. Every millisecond the kernel is asked for the last pid it assigned
(`proc.LastPid`, 1 us), and the pids since then are checked; less often, /proc is listed, to find
the missed ones. pidfds report ends at once. A child that starts, dies and is reaped within a
millisecond or two can still be missed: only tracing would see it, and that would change the
command. The page faults of reaped children, which the kernel adds to their parent, show that there
was one (`has_unseen_children`).

The exit status of a grandchild belongs to its parent. We know it if the process was an orphan
(`adopt_orphans` makes us its parent), always since Linux 6.15 (proc.py), and on older kernels if we
see the dead process before its parent does. Measured with a killed worker of
`datasets.map(num_proc=2)` on two cores of Linux 6.18: 105 of 105; with PIDFD_GET_INFO switched off,
17, 27 and 29 of 30 in three series, which load did not explain (27 was beside three busy loops).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import time
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from tokenmill.doctor import proc

_PR_SET_CHILD_SUBREAPER = 36
# If there are more new pids, only the last are checked; `look` finds the others.
MAX_NEW_PIDS = 32
# A pid is assigned before its process is visible.
_NUM_TRIES = 3
# A process this new may still exec another program.
RECENT_SECONDS = 0.1


@dataclass(slots=True)
class Member:
    pid: int
    parent: int
    command: str
    began: float  # seconds since the watch began
    ended: float | None = None
    code: int | None = None  # as subprocess has it, negative for a signal; None: not known
    peak_bytes: int = 0
    cpu_seconds: float = 0.0
    state: str = "R"
    pidfd: int | None = None
    is_before_exec: bool = False  # its command may still be that of its parent

    @property
    def signal(self) -> int:
        """The signal that ended it, or 0."""
        return -self.code if self.code is not None and self.code < 0 else 0


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies, so that we learn its end."""
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class ProcessTree:
    """The processes of one command; `look` and `measure` bring them up to date."""

    def __init__(self, pid: int, root: str = "/") -> None:
        self._root = root
        self._began = time.monotonic()
        self._unrelated: set[int] = set()
        self._ended_members: list[Member] = []
        self._last_pid = proc.LastPid(root)
        self._last_seen = self._last_pid.read() or 0
        self._awaited: dict[int, int] = {}  # pid -> how often it was looked for
        self._recent: list[Member] = []
        self._child_faults = 0  # of the head
        self.poll = select.poll()
        self.members: list[Member] = []
        self.living: dict[int, Member] = {}
        self.together_bytes = 0
        self.head = self._add(pid, os.getpid())
        # It may have begun before the first look at the last pid.
        self._await(range(pid + 1, self._last_seen + 1))

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    @property
    def cpu_seconds(self) -> float:
        return sum(member.cpu_seconds for member in self.members)

    @property
    def has_unseen_children(self) -> bool:
        """Whether the command reaped children, and none of them was seen."""
        seen = any(member.parent == self.head.pid for member in self.members)
        return self._child_faults > 0 and not seen

    def find_new(self) -> None:
        """Find members that started since the last call. Far cheaper than `look`."""
        last = self._last_pid.read()
        if last is not None and last != self._last_seen:
            self._await(range(self._last_seen + 1, last + 1))
            self._last_seen = last
        for pid in list(self._awaited):
            if self._is_placed(pid):
                del self._awaited[pid]
        self._recent = [member for member in self._recent if self._reread_command(member)]

    def close(self) -> None:
        self._last_pid.close()

    def look(self, ready: AbstractSet[int] = frozenset()) -> list[Member]:
        """Find new members, and return those that have ended.

        `ready` are file descriptors that `poll` has just returned. They come first, because a
        parent may reap within microseconds.
        """
        self._ended_members = []
        for member in list(self.living.values()):
            if member.pidfd is None or member.pidfd in ready:
                self._see_whether_ended(member)
        self.reap()
        present = set(proc.process_ids(self._root))
        self._unrelated &= present
        # Mostly in the order they started: a child's pid is larger than its parent's, until they
        # wrap.
        for pid in sorted(present - self._unrelated - self.living.keys()):
            self._place(pid, present)
        return self._ended_members

    def measure(self) -> None:
        """Update the memory and CPU time of living members."""
        together = 0
        for member in self.living.values():
            stat = proc.process_stat(member.pid, self._root)
            status = proc.process_status(member.pid, self._root)
            together += status.anonymous_bytes
            member.peak_bytes = max(member.peak_bytes, status.peak_bytes)
            if stat:
                member.cpu_seconds, member.state = stat.cpu_seconds, stat.state
            self._read_command(member)
        self.together_bytes = max(self.together_bytes, together)

    def reap(self) -> None:
        """Collect the command and its orphans, which are our own children."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            member = self.living.get(pid)
            if member:
                if member is not self.head:  # the head's figure started at ours, because of vfork
                    member.peak_bytes = max(member.peak_bytes, usage.ru_maxrss * 1024)
                self._end(member, status)

    def _add(self, pid: int, parent: int) -> Member:
        self._unrelated.discard(pid)
        member = Member(pid, parent, proc.command_line(pid, self._root), self.seconds)
        member.peak_bytes = proc.process_status(pid, self._root).peak_bytes
        with contextlib.suppress(OSError, AttributeError):
            member.pidfd = os.pidfd_open(pid)
            self.poll.register(member.pidfd, select.POLLIN)
        self.members.append(member)
        self.living[pid] = member
        return member

    def _place(self, pid: int, present: set[int]) -> None:
        stat = proc.process_stat(pid, self._root)
        if stat is None:
            return
        if self._is_ours(stat):
            self._add(pid, stat.parent)
        elif stat.parent in self._unrelated or stat.parent not in present:
            self._unrelated.add(pid)

    def _is_ours(self, stat: proc.Stat) -> bool:
        return stat.parent in self.living or stat.parent == os.getpid()

    def _await(self, pids: range) -> None:
        known = self.living.keys() | self._unrelated
        self._awaited.update((pid, 0) for pid in pids[-MAX_NEW_PIDS:] if pid not in known)

    def _is_placed(self, pid: int) -> bool:
        """Look for a process by an assigned pid; returns whether the search for it is over.

        Threads and other people's processes are left to `look`.
        """
        stat = None if pid in self.living else proc.process_stat(pid, self._root)
        if stat is None:
            self._awaited[pid] += 1
            return pid in self.living or self._awaited[pid] >= _NUM_TRIES
        if self._is_ours(stat) and proc.process_status(pid, self._root).leader == pid:
            member = self._add(pid, stat.parent)
            member.is_before_exec = True
            self._recent.append(member)
        return True

    def _reread_command(self, member: Member) -> bool:
        """Read a recent member's command again; returns whether to do so once more."""
        self._read_command(member)
        return member.ended is None and self.seconds - member.began < RECENT_SECONDS

    def _read_command(self, member: Member) -> None:
        """Read the command; until exec, a child has its parent's."""
        if command := proc.command_line(member.pid, self._root):
            member.command, member.is_before_exec = command, False

    def _see_whether_ended(self, member: Member) -> None:
        stat = proc.process_stat(member.pid, self._root)
        if stat and member is self.head:
            self._child_faults = stat.child_faults
        if stat and stat.state not in "ZX":
            return
        if stat and member is self.head:
            self.reap()
            return
        status = stat.wait_status if stat else None
        if status is None and member.pidfd is not None:
            status = proc.reaped_status(member.pidfd)
        self._end(member, status)

    def _end(self, member: Member, status: int | None) -> None:
        member.ended = self.seconds
        if status is not None:
            member.code = os.waitstatus_to_exitcode(status)
        if member.pidfd is not None:
            self.poll.unregister(member.pidfd)
            os.close(member.pidfd)
            member.pidfd = None
        self.living.pop(member.pid, None)
        self._unrelated.add(member.pid)  # it stays in /proc until its parent has reaped it
        self._ended_members.append(member)
