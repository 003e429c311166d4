"""A command and everything it starts, watched from outside until it ends.

Looked for by polling: a list of /proc, and the parent of every process not seen before. That is
one `listdir` a look, 0.07 ms on a machine with 76 processes; a child that lives
shorter than the pause between two looks can be missed. Ends are told by pidfds, at once.

The exit status of a grandchild belongs to its parent. It is known here when the process was an
orphan (they are handed to us: `adopt_orphans`), from Linux 6.15 on always (proc.py), and before
that when we see the dead process before its parent does. Measured with a killed worker of
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

    @property
    def signal(self) -> int:
        """The signal that ended it, or 0."""
        return -self.code if self.code is not None and self.code < 0 else 0


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies, so that we learn its end."""
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class Family:
    """The processes of one command; `look` and `measure` bring them up to date."""

    def __init__(self, pid: int, root: str = "/") -> None:
        self._root = root
        self._began = time.monotonic()
        self._strangers: set[int] = set()
        self._news: list[Member] = []
        self.poll = select.poll()
        self.members: list[Member] = []
        self.living: dict[int, Member] = {}
        self.together_bytes = 0
        self.head = self._add(pid, os.getpid())

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    @property
    def cpu_seconds(self) -> float:
        return sum(member.cpu_seconds for member in self.members)

    def look(self, ready: AbstractSet[int] = frozenset()) -> list[Member]:
        """Find new members and take note of those that ended; the latter.

        `ready` are file descriptors that `poll` has just named: first things first, because a
        parent may reap in the next microsecond.
        """
        self._news = []
        for member in list(self.living.values()):
            if member.pidfd is None or member.pidfd in ready:
                self._see_whether_ended(member)
        self.reap()
        present = set(proc.process_ids(self._root))
        self._strangers &= present
        # In order of birth, mostly: a child has a larger pid than its parent, until they wrap.
        for pid in sorted(present - self._strangers - self.living.keys()):
            self._place(pid, present)
        return self._news

    def measure(self) -> None:
        """Memory and CPU time of the living."""
        together = 0
        for member in self.living.values():
            stat = proc.process_stat(member.pid, self._root)
            status = proc.process_status(member.pid, self._root)
            together += status.anonymous_bytes
            member.peak_bytes = max(member.peak_bytes, status.peak_bytes)
            if stat:
                member.cpu_seconds, member.state = stat.cpu_seconds, stat.state
            # A spawned child is its parent's copy until it has replaced itself.
            member.command = proc.command_line(member.pid, self._root) or member.command
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
                if member is not self.head:  # whose figure began at ours: vfork
                    member.peak_bytes = max(member.peak_bytes, usage.ru_maxrss * 1024)
                self._end(member, status)

    def _add(self, pid: int, parent: int) -> Member:
        self._strangers.discard(pid)
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
        if stat.parent in self.living or stat.parent == os.getpid():
            self._add(pid, stat.parent)
        elif stat.parent in self._strangers or stat.parent not in present:
            self._strangers.add(pid)

    def _see_whether_ended(self, member: Member) -> None:
        stat = proc.process_stat(member.pid, self._root)
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
        self._strangers.add(member.pid)  # it stays in /proc until its parent has reaped it
        self._news.append(member)
