"""Explains why a script dies: runs it, watches all its processes, and names the one that died.

The command is not modified: no tracing, no environment variable, no limit. It keeps our stdin and
stdout; its stderr is passed on and searched. Processes are found by listing /proc, at most every
20 ms; pidfds report their ends at once. A child that lives for less than that can be missed.

The exit status of a grandchild belongs to its parent. It is known if the process was an orphan
(we adopt them), always since Linux 6.15 (PIDFD_GET_INFO), and on older kernels if we see the dead
process before its parent does: with a killed worker of `datasets.map(num_proc=2)`, in 17 to 29 of
30. On systems other than Linux only the command's own end is known.

What users see is in a table: a sign in stderr or a signal -> the cause, and what to type. Why each
of these comes out as "abruptly died": docs/abruptly-died.md.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import platform
import re
import resource
import select
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import metadata

from tokenmill.errors import ConfigError, OutputError
from tokenmill.runners import machine
from tokenmill.runners.exit_diagnosis import Exit, death_of, signal_name
from tokenmill.storage.scratch import temporary_folder
from tokenmill.wording.escapes import printable
from tokenmill.wording.plural import counted
from tokenmill.wording.quantities import shown_bytes

PAUSE_SECONDS = 0.02
MEASURE_SECONDS = 0.1
DRAIN_SECONDS = 0.2  # how long orphans may keep writing after the command's end
EXEC_SECONDS = 0.1  # a process this young may still have the command of its parent
MAX_LINE_BYTES = 2000
MAX_SHOWN = 300  # characters of a line
MAX_DEAD = 5

_PR_SET_CHILD_SUBREAPER = 36
# include/uapi/linux/pidfd.h: _IOWR(0xFF, 11, struct pidfd_info), whose first version has 64 bytes.
_PIDFD_GET_INFO, _PIDFD_INFO_EXIT = 0xC040FF0B, 1 << 3
# Ended by their parent, as a pool ends its workers, or by Ctrl-C: not reported.
_BY_PARENT = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE}
_CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGILL, signal.SIGFPE, signal.SIGTRAP)

FEWER = "fewer processes: num_proc=2, and a smaller batch_size and writer_batch_size"
PREPARE = "tokenmill prepare data.parquet -o out: bounded memory, and a dead worker is only retried"
TOKENIZE = 'ds.map(tokenmill.Tokenize("gpt2", text_column="text", eot="append"), num_proc=8)'
GET_ENCODING = 'enc = tokenmill.get_encoding("gpt2") in place of tiktoken.get_encoding("gpt2")'


@dataclass(frozen=True, slots=True)
class Cause:
    title: str
    advice: tuple[str, ...]
    pattern: bytes = b"(?!)"  # of a line of stderr
    signals: tuple[int, ...] = ()


# By name, the most certain first. A line of stderr is a sign of the first that it fits.
CAUSES = {
    "out of memory": Cause(
        "the kernel killed it for lack of memory (OOM killer)",
        (FEWER, "more memory: docker run --memory, sbatch --mem", PREPARE),
    ),
    "panic": Cause(
        "a Rust panic (tiktoken on a pathological document); pools do not catch it, so the "
        "worker dies",
        (
            "in tokenize(): try: ... except BaseException: return {'ids': [], 'len': 0}",
            f"{TOKENIZE}: encodes such documents, or names them",
            "tokenmill prepare data.parquet -o out: quarantines such a document and continues",
        ),
        rb"thread '.*' (?:\(\d+\) )?panicked at|PanicException",
    ),
    "no main guard": Cause(
        "the script has no if __name__ == '__main__': guard, and its workers run all of it again",
        (
            "put everything but imports and functions under if __name__ == '__main__':",
            "tokenmill prepare data.parquet -o out: its workers do not import your script",
        ),
        rb"process has finished its bootstrapping phase",
    ),
    "pickle": Cause(
        "something the workers need cannot be pickled, such as the encoder (tiktoken before 0.6)",
        (GET_ENCODING, TOKENIZE, "or load the encoder inside the function that workers call"),
        rb"[Cc]an(?:no|')t pickle|PicklingError|[Cc]an't get local object",
    ),
    "shared memory": Cause(
        "a bus error: /dev/shm is full, or a mapped file was cut short",
        ("docker run --shm-size=8g (or --ipc=host)", "DataLoader(num_workers=0)"),
        rb"insufficient shared memory|/dev/shm|shm_open|torch_shm_manager"
        rb"|unable to (?:open|write to|mmap) (?:shared memory|file </torch)",
        (signal.SIGBUS,),
    ),
    "disk": Cause(
        "a disk is full",
        (
            "HF_HOME=/big/disk/huggingface TMPDIR=/big/disk/tmp: datasets.map caches the ids as "
            "64-bit numbers, 8 bytes per token",
            "tokenmill prepare data.parquet -o out: 2 bytes per token, no cache",
        ),
        rb"No space left on device|Errno 28|Disk quota exceeded|Not enough disk space",
    ),
    "open files": Cause(
        "too many open files",
        ("ulimit -n 65536, in the shell that starts the script", FEWER),
        rb"Too many open files",
    ),
    "processes": Cause(
        "no more processes or threads may be started (ulimit -u, the cgroup's pids.max)",
        (FEWER, "OMP_NUM_THREADS=1 RAYON_NUM_THREADS=1", "docker run --pids-limit=-1"),
        rb"Resource temporarily unavailable|can't start new thread",
    ),
    "memory refused": Cause(
        "it asked for memory and got none (ulimit -v, a full cgroup, one huge batch)",
        (FEWER, PREPARE),
        rb"\bMemoryError\b|bad_alloc|memory allocation of \d+ bytes failed"
        rb"|Cannot allocate memory|can't allocate memory|malloc of size \d+ failed",
    ),
    "native crash": Cause(
        "a crash in native code: a broken library, or two that are incompatible",
        (
            "PYTHONFAULTHANDLER=1 python ...: shows the Python line",
            "pip install -U datasets pyarrow tiktoken numpy, in a fresh environment",
            PREPARE,
        ),
        rb"Fatal Python error: (?:Segmentation fault|Bus error|Aborted|Illegal)",
        _CRASHES,
    ),
    "killed": Cause(
        "killed by SIGKILL, by a person, a job scheduler or a memory watchdog",
        (
            "ask the scheduler (sacct -j JOB, kubectl describe pod), systemd-oomd or earlyoom "
            "(journalctl): they kill by the same signal and count elsewhere",
            PREPARE,
        ),
        signals=(signal.SIGKILL,),
    ),
    "vocabulary": Cause(
        "tiktoken could not load its vocabulary: not in its cache, and the download failed",
        (f"{GET_ENCODING}: needs no network", TOKENIZE),
        rb"openaipublic\.blob\.core\.windows\.net|data-gym-cache"
        rb"|Hash mismatch for data downloaded from",
    ),
    "fork with threads": Cause(
        "a deadlock: fork in a process with threads copies the locks that they hold",
        (
            "TOKENIZERS_PARALLELISM=false, and call map before anything that starts threads",
            "multiprocess.set_start_method('forkserver') under if __name__ == '__main__':",
            f"{TOKENIZE}: starts no threads, works with every start method",
        ),
        rb"multi-threaded, use of fork\(\) may lead to deadlocks"
        rb"|process just got forked, after parallelism has already been used",
    ),
    "hub": Cause(
        "the Hugging Face Hub could not be reached, or the files are not in its cache",
        ("fetch the files elsewhere; tokenmill prepare 'folder/*.parquet' -o out reads them",),
        rb"OfflineModeIsEnabled|LocalEntryNotFoundError|Couldn't reach .* on the Hub"
        rb"|(?:ConnectError|ConnectionError|MaxRetryError).*huggingface\.co",
    ),
}
# The messages of libraries that noticed the loss of a worker.
_WORKER_GONE = re.compile(
    rb"One of the subprocesses has abruptly died|BrokenProcessPool"
    rb"|DataLoader worker \(pid.*(?:killed by signal|exited unexpectedly)"
)
_SIGNS = {name: re.compile(cause.pattern) for name, cause in CAUSES.items()}


@dataclass(slots=True)
class Member:
    """A process of the command."""

    pid: int
    parent: int
    command: str
    began: float = 0.0  # seconds since the watch began
    ended: float | None = None
    code: int | None = None  # as subprocess has it, negative for a signal; None: not known
    peak_bytes: int = 0
    pidfd: int | None = None

    @property
    def signal(self) -> int:
        """The signal that ended it, or 0."""
        return -self.code if self.code is not None and self.code < 0 else 0

    @property
    def is_spawned(self) -> bool:
        """Whether multiprocessing started it by spawn or forkserver, not by fork."""
        return "spawn_main(" in self.command or ".forkserver import" in self.command


@dataclass(slots=True)
class Watched:
    """What was seen of a command that has ended."""

    command: tuple[str, ...]
    members: list[Member]  # the command itself first
    signs: dict[str, str] = field(default_factory=dict)  # by the name of a cause: a line of stderr
    last_lines: deque[str] = field(default_factory=lambda: deque(maxlen=6))
    is_worker_gone: bool = False  # a library says so
    seconds: float = 0.0
    together_bytes: int = 0
    oom_kills: int = 0

    @property
    def head(self) -> Member:
        return self.members[0]

    @property
    def code(self) -> int:
        return self.head.code or 0

    @property
    def is_fine(self) -> bool:
        return self.code == 0 and not self.dead

    @property
    def dead(self) -> list[Member]:
        """Children that were killed, and workers that failed, in order of their end. Not those that
        their parent ended, nor a `grep` that found nothing."""
        found = [
            member
            for member in self._ended
            if member.signal not in _BY_PARENT
            and (member.signal or (member.code != 0 and self._is_worker(member)))
        ]
        # Of unknown ends only the first is meaningful: it made the parent end the others.
        return [member for member in found if member.code is not None or member is found[0]]

    @property
    def _ended(self) -> list[Member]:
        ended = [member for member in self.members[1:] if member.ended is not None]
        return sorted(ended, key=lambda member: member.ended or 0)

    def _is_worker(self, member: Member) -> bool:
        """Whether it is a Python process that another one started to share its work."""
        if "python" not in member.command.partition(" ")[0]:
            return False
        parents = {other.command for other in self.members if other.pid == member.parent}
        is_old = (member.ended or 0) - member.began >= EXEC_SECONDS
        return member.is_spawned or (is_old and member.command in parents)

    def see(self, line: bytes) -> None:
        """Search a line of stderr; only the first of each kind is kept."""
        shown = line[:MAX_LINE_BYTES].strip().decode("utf-8", "replace")
        if shown:
            self.last_lines.append(shown)
            self.is_worker_gone |= bool(_WORKER_GONE.search(line))
            name = next((name for name, sign in _SIGNS.items() if sign.search(line)), None)
            if name is not None:
                self.signs.setdefault(name, shown)

    def causes(self) -> list[tuple[Cause, list[str]]]:
        """The causes that fit, at most two, each with what was seen of it."""
        seen = {name: [f"stderr: {line}"] for name, line in self.signs.items()}
        dead = [*self.dead, self.head]
        for name, cause in CAUSES.items():
            signals = {member.signal for member in dead} & set(cause.signals)
            seen.setdefault(name, []).extend(f"ended by {signal_name(s)}" for s in signals)
        memory = (
            f"all its processes together held up to {shown_bytes(self.together_bytes)} of the "
            f"{shown_bytes(machine.memory_limit_bytes())} they may have"
        )
        if self.oom_kills and (seen["killed"] or any(m.code is None for m in self.dead)):
            counted_kills = f"the kernel's oom_kill count rose by {self.oom_kills} meanwhile"
            seen["out of memory"], seen["killed"] = [counted_kills, memory], []
        elif seen["killed"]:
            seen["killed"] = ["no oom_kill was counted meanwhile", memory]
        silent = next((m for m in self._ended if m.code == 0 and m.is_spawned), None)
        if self.is_worker_gone and silent and all(m.code is None for m in self.dead):
            seen["vocabulary"].append(
                f"child {silent.pid} ended with code 0 and no message, like a pool's worker that "
                "gets an OSError while it unpickles its task"
            )
        return [(CAUSES[name], seen[name]) for name in CAUSES if seen[name]][:2]


def watch(command: Sequence[str], target: int = 2) -> Watched:
    """Run the command to its end. `target` is the file descriptor that its stderr goes to.

    Reaps every child of the calling process, so that must have no others.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):  # become the parent of orphans
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    kills = machine.oom_kill_count(), machine.oom_kill_count_of_machine()
    try:
        process = subprocess.Popen(command, stderr=subprocess.PIPE)
    except OSError as error:
        typed = f"python {command[0]}" if command[0].endswith(".py") else "COMMAND ..."
        raise ConfigError(
            f"{command[0]}: cannot be run: {error.strerror}",
            hint=f"as you would type it: tokenmill doctor -- {typed}",
        ) from error
    assert process.stderr is not None
    tree = _Tree(process.pid)
    watched = Watched(tuple(command), tree.members)
    stderr = _Stderr(process.stderr.fileno(), target, watched)
    tree.poll.register(stderr.source, select.POLLIN)
    with _signals_forwarded(watched.head):
        while watched.head.ended is None:
            ready = {fd for fd, _ in tree.poll.poll(tree.pause * 1000)}
            for member in tree.look(ready):
                if member is not watched.head and member.signal not in (0, *_BY_PARENT):
                    name = signal_name(member.signal)
                    stderr.write(f"\ndoctor: child {member.pid} was ended by {name}\n".encode())
            if stderr.source in ready and not stderr.pass_on():
                tree.poll.unregister(stderr.source)
        until = time.monotonic() + DRAIN_SECONDS
        while stderr.pass_on() and tree.living and time.monotonic() < until:
            time.sleep(PAUSE_SECONDS)
            tree.look(set())
    stderr.end()
    process.returncode = watched.code  # reaped by us, not by subprocess
    watched.seconds, watched.together_bytes = tree.seconds, tree.together_bytes
    now = machine.oom_kill_count(), machine.oom_kill_count_of_machine()
    watched.oom_kills = max(0, now[0] - kills[0]) or max(0, now[1] - kills[1])
    return watched


class _Stderr:
    """Passes the command's stderr on, byte for byte, and searches its lines."""

    def __init__(self, source: int, target: int, watched: Watched) -> None:
        self.source, self._target, self._watched = source, target, watched
        self._rest = b""
        os.set_blocking(source, False)

    def pass_on(self) -> bool:
        """Pass on the available bytes; whether more may come."""
        while True:
            try:
                data = os.read(self.source, 1 << 16)
            except BlockingIOError:
                return True
            if not data:
                return False
            self.write(data)
            # A progress bar ends its lines with a carriage return.
            *lines, rest = (self._rest + data).replace(b"\r", b"\n").split(b"\n")
            for line in lines:
                self._watched.see(line)
            self._rest = rest[-MAX_LINE_BYTES:]

    def end(self) -> None:
        self._watched.see(self._rest)
        if self._rest:
            self.write(b"\n")  # what we say is a line of its own

    def write(self, data: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):
            while data:
                data = data[os.write(self._target, data) :]


class _Tree:
    """A command and everything it starts, watched from outside."""

    def __init__(self, pid: int) -> None:
        self._start = time.monotonic()
        self._measured = 0.0
        self._unrelated: set[int] = set()
        self.pause = PAUSE_SECONDS
        self.poll = select.poll()
        self.members: list[Member] = []
        self.living: dict[int, Member] = {}
        self.together_bytes = 0
        self._add(pid, os.getpid())

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._start

    def look(self, ready: set[int]) -> list[Member]:
        """Find new processes, and return those that have ended. `ready` are the file descriptors
        that `poll` has just returned; they come first, because a parent may reap within
        microseconds."""
        began = time.monotonic()
        before = list(self.living.values())
        for member in before:
            if member.pidfd is None or member.pidfd in ready:
                self._see_whether_ended(member)
        self._reap()
        names = os.listdir("/proc") if os.path.isdir("/proc") else []
        present = {int(name) for name in names if name.isdigit()}
        self._unrelated &= present
        # A child's pid is larger than its parent's, until they wrap.
        for pid in sorted(present - self._unrelated - self.living.keys()):
            parent, _, _ = _stat(pid)
            if parent in self.living or parent == os.getpid():
                self._add(pid, parent)
            elif parent in self._unrelated or parent not in present:
                self._unrelated.add(pid)
        if self.seconds - self._measured >= MEASURE_SECONDS:
            self._measure()
        self.pause = max(PAUSE_SECONDS, 10 * (time.monotonic() - began))  # a tenth of a CPU
        return [member for member in before if member.ended is not None]

    def _measure(self) -> None:
        self._measured, together = self.seconds, 0
        for member in self.living.values():
            peak, own = _memory(member.pid)
            member.peak_bytes = max(member.peak_bytes, peak)
            together += own
            member.command = _command(member.pid) or member.command  # until exec it is the parent's
        self.together_bytes = max(self.together_bytes, together)

    def _add(self, pid: int, parent: int) -> None:
        self._unrelated.discard(pid)
        member = Member(pid, parent, _command(pid), self.seconds, peak_bytes=_memory(pid)[0])
        with contextlib.suppress(OSError, AttributeError):
            member.pidfd = os.pidfd_open(pid)
            self.poll.register(member.pidfd, select.POLLIN)
        self.members.append(member)
        self.living[pid] = member

    def _see_whether_ended(self, member: Member) -> None:
        _, state, status = _stat(member.pid)
        if state not in "ZX" or member is self.members[0]:  # our own child is ours to reap
            return
        if status is None and member.pidfd is not None:
            status = _reaped_status(member.pidfd)
        self._end(member, status)

    def _reap(self) -> None:
        """Collect the command and its orphans, which are our own children."""
        with contextlib.suppress(ChildProcessError):
            while (found := os.wait4(-1, os.WNOHANG))[0]:
                if member := self.living.get(found[0]):
                    if member is not self.members[0]:  # whose figure began at ours, by vfork
                        member.peak_bytes = max(member.peak_bytes, found[2].ru_maxrss * 1024)
                    self._end(member, found[1])

    def _end(self, member: Member, status: int | None) -> None:
        member.ended = self.seconds
        member.code = None if status is None else os.waitstatus_to_exitcode(status)
        if member.pidfd is not None:
            self.poll.unregister(member.pidfd)
            os.close(member.pidfd)
            member.pidfd = None
        del self.living[member.pid]
        self._unrelated.add(member.pid)  # it stays in /proc until its parent has reaped it


def _stat(pid: int) -> tuple[int, str, int | None]:
    """Its parent, its state (X: gone), and its wait status if it is dead and that is shown."""
    data = _proc(pid, "stat")
    # The name in parentheses may contain spaces and parentheses; the fields follow the last one.
    fields = data[data.rfind(b")") + 2 :].split()
    if len(fields) < 2:
        return 0, "X", None
    return int(fields[1]), fields[0].decode(), int(fields[49]) if len(fields) > 49 else None


def _memory(pid: int) -> tuple[int, int]:
    """The most memory that it held, and what it holds of its own now."""
    found = dict(re.findall(rb"^(VmHWM|RssAnon):\s+(\d+) kB", _proc(pid, "status"), re.MULTILINE))
    return int(found.get(b"VmHWM", 0)) * 1024, int(found.get(b"RssAnon", 0)) * 1024


def _command(pid: int) -> str:
    """Hostile text, not yet safe for a terminal."""
    return _proc(pid, "cmdline").rstrip(b"\0").replace(b"\0", b" ").decode("utf-8", "replace")


def _proc(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        return b""


def _reaped_status(pidfd: int) -> int | None:
    """The wait status of a process that is gone, by a pidfd from its lifetime."""
    info = bytearray(64)
    struct.pack_into("Q", info, 0, _PIDFD_INFO_EXIT)
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, info)
    except OSError:  # an older kernel
        return None
    (mask,), (status,) = struct.unpack_from("Q", info, 0), struct.unpack_from("i", info, 60)
    return int(status) if mask & _PIDFD_INFO_EXIT else None


@contextlib.contextmanager
def _signals_forwarded(head: Member) -> Iterator[None]:
    """SIGTERM and SIGHUP reach the command; Ctrl-C does by itself, and must not end us. What we
    ignore (nohup, a shell's &) the command ignores, too."""

    def forward(signum: int, frame: object) -> None:
        if signum != signal.SIGINT and head.ended is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(head.pid, signum)

    signals = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    heard = [signum for signum in signals if signal.getsignal(signum) is not signal.SIG_IGN]
    before = {signum: signal.signal(signum, forward) for signum in heard}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def report(watched: Watched) -> list[str]:
    """What happened, which processes died, and why: lines that are safe for a terminal."""
    how = f"ended with exit code {watched.code}"
    if watched.head.signal:
        how = f"was ended by {signal_name(watched.head.signal)}"
    elif not watched.code:
        how += ", but a child process died"
    if watched.together_bytes:  # else it ended before it could be measured
        how += f", held up to {shown_bytes(watched.head.peak_bytes)}"
    command = _shortened(shlex.join(watched.command))
    lines = [f"doctor: {command} {how}, after {_seconds(watched.seconds)}"]
    lines += [f"  {_death(watched, member)}" for member in watched.dead[:MAX_DEAD]]
    if (num_more := len(watched.dead) - MAX_DEAD) > 0:
        lines.append(f"  and {counted(num_more, 'child', 'children')} more after it")
    causes = watched.causes()
    if not causes:
        lines.append("none of the known causes fits; its last output:")
        lines += [f"  | {printable(text[:MAX_SHOWN])}" for text in watched.last_lines]
    for cause, seen in causes:
        lines.append(f"cause: {cause.title}")
        lines += [f"  seen: {printable(evidence[:MAX_SHOWN])}" for evidence in seen]
        lines += [f"  try:  {advice}" for advice in cause.advice]
    left = [str(member.pid) for member in watched.members if member.ended is None]
    if left:
        lines.append(f"still running, though their parent is gone: kill {' '.join(left)}")
    return lines


def healthy_line(watched: Watched) -> str:
    count = counted(len(watched.members), "process", "processes")
    largest = shown_bytes(max(member.peak_bytes for member in watched.members))
    held = f", the largest held {largest}" if watched.together_bytes else ""
    return f"doctor: fine after {_seconds(watched.seconds)}: {count}{held}"


def _death(watched: Watched, member: Member) -> str:
    """One dead child, described like one of tokenmill's own workers."""
    died = death_of(Exit(member.pid, member.code, member.peak_bytes, ""), watched.oom_kills)
    held = "" if "held up to" in died.likely else f"; held {shown_bytes(member.peak_bytes)}"
    return (
        f"child {member.pid} ({_shortened(member.command)}) after {_seconds(member.ended or 0)}: "
        f"{died.cause}, {died.likely}{held}"
    )


def _seconds(seconds: float) -> str:
    return f"{max(seconds, 0.01):.2f} s"


def _shortened(command: str) -> str:
    """Its beginning, and its end, which names the script."""
    return printable(command if len(command) <= 100 else f"{command[:50]} ... {command[-50:]}")


def examination() -> dict[str, str]:
    """What this machine allows, by topic, without a script."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    free, limit = machine.memory_available_bytes(), machine.memory_limit_bytes()
    is_fork = sys.platform == "linux" and sys.version_info < (3, 14)
    try:
        temporary = _room(temporary_folder())
    except OutputError as error:
        temporary = f"{error.message} -> {error.hint}"
    return {
        "CPUs": f"{machine.available_cpus()} usable of {os.cpu_count()}",
        "memory": f"{shown_bytes(free)} free of {shown_bytes(limit)}; a worker of map takes 1 GB; "
        f"the kernel killed {machine.oom_kill_count()} here so far for lack of it",
        "/dev/shm": f"{_room('/dev/shm')}; if it is small: docker run --shm-size=8g",
        "open files": f"at most {'any number' if soft < 0 else soft} (ulimit -n)",
        "start method": "fork: start no threads before map"
        if is_fork
        else "not fork: guard the script with if __name__ == '__main__':",
        "disk here": _room(os.getcwd()),
        "temporary files": temporary,
        "versions": ", ".join(_versions()),
    }


def _room(folder: str) -> str:
    try:
        usage = shutil.disk_usage(folder)
    except OSError as error:
        return f"{folder}: {error.strerror}"
    return f"{shown_bytes(usage.free)} free of {shown_bytes(usage.total)} in {folder}"


def _versions() -> Iterator[str]:
    yield f"Python {platform.python_version()} ({sys.platform}, kernel {platform.release()})"
    for name in ("tokenmill", "tiktoken", "pyarrow", "numpy", "datasets", "multiprocess", "torch"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            yield f"{name} {metadata.version(name)}"
