"""Runs a user's command and watches all its processes until it ends.

The command keeps our stdin and stdout; its stderr passes through (relay.py). The command is not
modified: no tracing, no environment variable, no limit. The pause between two polls is ten times
as long as a poll takes, and so is that between two checks for new processes: each takes at most a
tenth of one CPU.
"""

from __future__ import annotations

import contextlib
import functools
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import FrameType

from tokenmill.doctor import proc
from tokenmill.doctor.process_tree import Member, ProcessTree, adopt_orphans
from tokenmill.doctor.relay import Relay
from tokenmill.errors import ConfigError
from tokenmill.runners import machine
from tokenmill.runners.exit_diagnosis import signal_name

MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.01, 0.2
# Between two checks for new processes.
NEW_PIDS_SECONDS = 0.001
MEASURE_SECONDS = 0.1
# A process that polls an empty queue 20 times a second, as datasets does, uses less than this.
IDLE_CPU_SHARE = 0.05
# How long orphans may keep writing after the command's end.
DRAIN_SECONDS = 0.2
_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
# Ended by their parent, as a pool ends its workers, or by Ctrl-C: not reported.
_ENDED_BY_PARENT = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE}


@dataclass(frozen=True, slots=True)
class Hang:
    seconds: float
    num_processes: int
    num_on_locks: int  # of them, processes that wait for a lock (futex)


@dataclass(slots=True)
class Watched:
    """All observations about a command that has ended."""

    command: tuple[str, ...]
    head: Member
    members: list[Member] = field(default_factory=list)
    left_behind: list[Member] = field(default_factory=list)
    seconds: float = 0.0
    together_bytes: int = 0
    oom_kills: int = 0  # counted in our cgroup meanwhile
    machine_oom_kills: int = 0  # counted on the whole machine meanwhile
    shm_free_bytes: int | None = None  # the least that was seen
    hang: Hang | None = None
    was_interrupted: bool = False
    has_unseen_children: bool = False  # gone before they could be observed
    signs: dict[str, str] = field(default_factory=dict)
    last_lines: list[str] = field(default_factory=list)

    @property
    def code(self) -> int:
        return self.head.code or 0

    @property
    def dead(self) -> list[Member]:
        """Children that were killed, and workers that failed; in order of their end.

        Not those that their parent ended, nor a `grep` that found nothing.
        """
        found = [
            member
            for member in self._ended
            if member.signal not in _ENDED_BY_PARENT
            and (member.signal or (member.code != 0 and self.is_worker(member)))
        ]
        # Of unknown ends only the first is meaningful: it made the parent end the others.
        return [member for member in found if member.code is not None or member is found[0]]

    @property
    def silent(self) -> Member | None:
        """The worker that ended with code 0, if its pool missed it and no other child failed."""
        if "worker gone" not in self.signs or any(member.code is not None for member in self.dead):
            return None
        return next((m for m in self._ended if m.code == 0 and self.is_worker(m)), None)

    @property
    def _ended(self) -> list[Member]:
        ended = [m for m in self.members if m is not self.head and m.ended is not None]
        return sorted(ended, key=lambda member: member.ended or 0)

    def is_worker(self, member: Member) -> bool:
        """Whether it is a Python process that another one started to share its work."""
        parents = (other.command for other in self.members if other.pid == member.parent)
        is_python = "python" in member.command.partition(" ")[0]
        is_fork = not member.is_before_exec and member.command in parents
        return is_python and (is_spawned(member) or is_fork)


def is_spawned(member: Member) -> bool:
    """Whether it was started by multiprocessing's spawn or forkserver, not by fork."""
    return "spawn_main(" in member.command or ".forkserver import" in member.command


def watch(command: Sequence[str], target: int = 2, hang_seconds: float = 60) -> Watched:
    """Run the command to its end. `target` is the file descriptor that its stderr goes to.

    Reaps every child of the calling process, so that must have no others.
    """
    adopt_orphans()
    cgroup_kills, machine_kills = machine.oom_kill_count(), machine.oom_kill_count_of_machine()
    relay = Relay(target)
    try:
        process = subprocess.Popen(command, stderr=relay.command_end)
    except OSError as error:
        raise ConfigError(f"{command[0]}: cannot be run: {error.strerror}") from error
    finally:
        relay.begin()
    tree = ProcessTree(process.pid)
    watched = Watched(tuple(command), tree.head)
    with _signals_forwarded(process.pid, watched):
        _Watch(tree, relay, watched, hang_seconds).until_the_end()
    process.returncode = watched.code  # reaped by us, not by subprocess
    relay.close()
    watched.has_unseen_children = tree.has_unseen_children
    tree.close()
    watched.members, watched.left_behind = tree.members, list(tree.living.values())
    watched.seconds, watched.together_bytes = tree.seconds, tree.together_bytes
    watched.oom_kills = machine.oom_kill_count() - cgroup_kills
    watched.machine_oom_kills = machine.oom_kill_count_of_machine() - machine_kills
    watched.signs, watched.last_lines = relay.signs.lines, relay.signs.last_lines
    return watched


class _Watch:
    def __init__(
        self, tree: ProcessTree, relay: Relay, watched: Watched, hang_seconds: float
    ) -> None:
        self._tree, self._relay, self._watched = tree, relay, watched
        self._hang_seconds = hang_seconds
        self._measured = self._active = 0.0
        self._active_cpu_seconds = 0.0

    def until_the_end(self) -> None:
        tree, relay = self._tree, self._relay
        tree.poll.register(relay.source, select.POLLIN)
        pause, looked = MIN_PAUSE_SECONDS, -1.0
        pid_pause, asked = NEW_PIDS_SECONDS, -1.0
        while tree.head.ended is None:
            ready = {fd for fd, _ in tree.poll.poll(min(pause, pid_pause) * 1000)}
            if tree.seconds - asked >= pid_pause:
                pid_pause = max(_pause_after(tree.find_new), NEW_PIDS_SECONDS)
                asked = tree.seconds
            if ready - {relay.source} or tree.seconds - looked >= pause:
                pause = _pause_after(functools.partial(self._look, ready))
                pause = min(max(pause, MIN_PAUSE_SECONDS), MAX_PAUSE_SECONDS)
                looked = tree.seconds
            if relay.source in ready and not relay.pump():
                tree.poll.unregister(relay.source)
        self._drain()

    def _look(self, ready: set[int]) -> None:
        for member in self._tree.look(ready):
            if member is not self._tree.head and member.signal not in (0, *_ENDED_BY_PARENT):
                name = signal_name(member.signal)
                self._relay.say(f"doctor: child {member.pid} was ended by {name}")
        if self._tree.seconds - self._measured >= MEASURE_SECONDS:
            self._measured = self._tree.seconds
            self._tree.measure()
            self._note_shared_memory()
            self._note_hang()

    def _note_shared_memory(self) -> None:
        with contextlib.suppress(OSError):
            free, least = shutil.disk_usage("/dev/shm").free, self._watched.shm_free_bytes
            self._watched.shm_free_bytes = free if least is None else min(free, least)

    def _note_hang(self) -> None:
        now, cpu = self._measured, self._tree.cpu_seconds
        living = self._tree.living.values()
        idle = now - self._active
        used = cpu - self._active_cpu_seconds
        if used > 0.1 + IDLE_CPU_SHARE * idle or any(member.state == "D" for member in living):
            self._active, self._active_cpu_seconds = now, cpu
        elif idle >= self._hang_seconds and self._watched.hang is None:
            on_locks = sum("futex" in proc.waiting_in(member.pid) for member in living)
            self._watched.hang = Hang(idle, len(living), on_locks)
            self._relay.say(
                f"doctor: no process of this command did anything for {idle:.0f} s; "
                f"{_how_to_end()} to end it and see why"
            )

    def _drain(self) -> None:
        until = time.monotonic() + DRAIN_SECONDS
        while self._relay.pump() and self._tree.living and time.monotonic() < until:
            time.sleep(MIN_PAUSE_SECONDS)
            self._tree.look()


def _pause_after(look: Callable[[], None]) -> float:
    """Look, and return the pause before the next look: ten times as long as it took."""
    began = time.perf_counter()
    look()
    return 10 * (time.perf_counter() - began)


@contextlib.contextmanager
def _signals_forwarded(pid: int, watched: Watched) -> Iterator[None]:
    """Forward signals to the command. Ctrl-C reaches it directly: it is in our process group.

    Signals that we ignore (because of nohup or a shell's &) the command ignores too.
    """

    def forward(signum: int, frame: FrameType | None) -> None:
        watched.was_interrupted = True
        from_terminal = signum in (signal.SIGINT, signal.SIGQUIT) and _is_in_foreground()
        if not from_terminal and watched.head.ended is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signum)

    heard = [signum for signum in _FORWARDED if not _is_ignored(signum)]
    before = {signum: signal.signal(signum, forward) for signum in heard}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def _is_ignored(signum: signal.Signals) -> bool:
    return signal.getsignal(signum) is signal.SIG_IGN


def _how_to_end() -> str:
    return f"type `kill {os.getpid()}`" if _is_ignored(signal.SIGINT) else "press Ctrl-C"


def _is_in_foreground() -> bool:
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
