"""Run a command and see what it cost: seconds, CPU seconds, memory and bytes written, of all of it.

The whole tree of processes counts. CPU seconds and bytes written are what the kernel hands over
with each exit code; this process declares itself the reaper of orphans, so that none is missed.
Memory is sampled 20 times a second: anonymous and shared pages, not mapped files, which the kernel
may drop. Pages that forked processes share are counted once for each: a little unfair to pools.
"""

from __future__ import annotations

import compileall
import ctypes
import glob
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass

PR_SET_CHILD_SUBREAPER = 36
SAMPLE_SECONDS = 0.05
ORPHAN_SECONDS = 10.0
PACKAGE = os.path.join(os.path.dirname(__file__), "../src/tokenmill")


@dataclass(frozen=True)
class Cost:
    seconds: float
    cpu_seconds: float
    tree_mb: float  # peak of all processes together
    parent_mb: float  # peak resident set of the command itself, and of its largest descendant
    worker_mb: float
    written_mb: float  # to files, temporary ones too
    stdout: str
    own_cpu_seconds: float = 0.0  # of the command's own process, without its workers


class Failed(Exception):
    """The command did not end with 0; the message has the end of what it said."""


def compile_package() -> None:
    """Give the checkout what pip gives to an installed package: its bytecode.

    Where PYTHONDONTWRITEBYTECODE is set, all our processes would compile all modules in every run,
    which took 0.6 of 8.3 CPU seconds for 1 GB.
    """
    compileall.compile_dir(PACKAGE, quiet=1)


def cost(command: list[str], environment: dict[str, str] | None = None, log: str = "") -> Cost:
    """Run a command; what it prints to stderr goes to the file `log`."""
    _adopt_orphans()
    os.sync()  # what the contestant before left unwritten is not this one's to wait for
    # Not a pipe: its end would be when the last orphan has closed it.
    with open(log or os.devnull, "wb") as errors, tempfile.TemporaryFile("w+") as output:
        began = time.perf_counter()
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=errors)
        sampler = _Sampler(process.pid)
        sampler.start()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        seconds = time.perf_counter() - began
        own_cpu_seconds = _own_cpu_seconds(process.pid)
        _, status, usage = os.wait4(process.pid, 0)
        sampler.stop()
        output.seek(0)
        stdout = output.read()
    process.returncode = os.waitstatus_to_exitcode(status)
    usages = [usage, *_orphans()]
    if process.returncode:
        raise Failed(f"{' '.join(command)}: exit code {process.returncode}: {_end_of(log)}")
    return Cost(
        seconds,
        sum(used.ru_utime + used.ru_stime for used in usages),
        sampler.tree_mb,
        sampler.parent_mb,
        sampler.worker_mb,
        sum(used.ru_oublock for used in usages) * 512 / 1e6,
        stdout,
        own_cpu_seconds,
    )


def _own_cpu_seconds(pid: int) -> float:
    """Of a process that has ended and was not reaped yet: what wait4 says has its children in it,
    too."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _adopt_orphans() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _orphans() -> list[resource.struct_rusage]:
    """What processes used that outlived their parents. Those that go on living are ended."""
    found, deadline = [], time.monotonic() + ORPHAN_SECONDS
    while True:
        try:
            pid, _, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid:
            found.append(usage)
            continue
        if time.monotonic() > deadline:
            for child in descendants(os.getpid()):
                os.kill(child, signal.SIGKILL)
        time.sleep(0.01)


class _Sampler(threading.Thread):
    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self._done = threading.Event()
        self.tree_mb = self.parent_mb = self.worker_mb = 0.0

    def run(self) -> None:
        while not self._done.wait(SAMPLE_SECONDS):
            tree = 0.0
            for pid in [self._pid, *descendants(self._pid)]:
                memory = _memory_mb(pid)
                tree += memory.get("RssAnon", 0) + memory.get("RssShmem", 0)
                peak = memory.get("VmHWM", 0)
                if pid == self._pid:
                    self.parent_mb = max(self.parent_mb, peak)
                else:
                    self.worker_mb = max(self.worker_mb, peak)
            self.tree_mb = max(self.tree_mb, tree)

    def stop(self) -> None:
        self._done.set()
        self.join()


def descendants(pid: int) -> list[int]:
    found = []
    for path in glob.glob(f"/proc/{pid}/task/*/children"):
        try:
            with open(path) as file:
                for child in map(int, file.read().split()):
                    found += [child, *descendants(child)]
        except OSError:
            continue
    return found


def _memory_mb(pid: int) -> dict[str, float]:
    try:
        with open(f"/proc/{pid}/status") as file:
            rows = (line.split() for line in file)
            return {row[0][:-1]: int(row[1]) / 1e3 for row in rows if row[-1] == "kB"}
    except OSError:
        return {}


def _end_of(log: str) -> str:
    if not log:
        return ""
    with open(log, errors="replace") as file:
        return " / ".join(file.read().strip().splitlines()[-3:])
