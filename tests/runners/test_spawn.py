"""How workers begin: a command forks those it begins with, and nobody else forks."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import tokenmill
from tokenmill.cli import main
from tokenmill.errors import WorkerError
from tokenmill.runners import spawn

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks")

# The command in a process of its own, which says how its workers began.
COMMAND = """
import sys, threading
from tokenmill.cli import main
from tokenmill.runners import supervisor

begun = []
for name in ("forked", "started"):
    def begin(name=name, real=getattr(supervisor, name)):
        begun.append(name)
        return real()
    setattr(supervisor, name, begin)
{before}
code = main()
print(*begun)
sys.exit(code)
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("birth") / "corpus.jsonl"
    texts = [f"document {number}: " + "some words " * 50 for number in range(400)]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


def beginnings(source: Path, out: Path, before: str = "") -> list[str]:
    """How the workers of a command began, after it had done something else."""
    script = COMMAND.format(before=before)
    arguments = ["prepare", str(source), "-o", str(out), "--num-proc", "2", "--quiet"]
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.split()


def test_a_command_forks_its_workers(source, tmp_path, read_files):
    assert beginnings(source, tmp_path / "out") == ["forked", "forked"]
    tokenmill.prepare(source, tmp_path / "called", num_proc=2)
    assert read_files(tmp_path / "out") == read_files(tmp_path / "called")


def test_a_command_with_a_second_thread_starts_them(source, tmp_path, read_files):
    before = "threading.Thread(target=threading.Event().wait, daemon=True).start()"
    assert set(beginnings(source, tmp_path / "out", before)) == {"started"}
    tokenmill.prepare(source, tmp_path / "called", num_proc=2)
    assert read_files(tmp_path / "out") == read_files(tmp_path / "called")


@pytest.mark.parametrize("how", ["main", "prepare"])
def test_in_somebody_elses_process_nothing_is_forked(how, source, tmp_path, monkeypatch):
    def fork() -> int:
        raise AssertionError("forked")

    monkeypatch.setattr(os, "fork", fork)
    monkeypatch.setattr("tokenmill.runners.supervisor.load_for_forks", lambda: fork())
    if how == "prepare":
        tokenmill.prepare(source, tmp_path / "out", num_proc=2)
    else:
        assert main(["prepare", str(source), "-o", str(tmp_path / "out"), "--num-proc", "2"]) == 0


# A fork keeps nothing of its parent but what is loaded.

PARENT = """
import os, signal, sys, tempfile
from tokenmill.runners import spawn

assert spawn.load_for_forks()
signal.signal(signal.SIGHUP, lambda *_: None)
signal.signal(signal.SIGUSR1, lambda *_: None)
signal.signal(signal.SIGUSR2, signal.SIG_IGN)
held = tempfile.TemporaryFile()
os.set_inheritable(held.fileno(), True)
print("not flushed", end="")
first, second = spawn.forked(), spawn.forked()
print("", first.pid, second.pid, flush=True)
sys.stdin.read()
"""


def test_a_fork_has_no_file_signal_handler_or_session_of_its_parent():
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None and parent.stdin is not None
        said, *pids = parent.stdout.readline().replace("not flushed", "said").split()
        assert said == "said"  # once: what the parent had not flushed is not said by the workers
        for pid in map(int, pids):
            status = settled(pid)
            assert int(status["SigCgt"], 16) & bits(signal.SIGHUP, signal.SIGUSR1) == 0
            ignored = int(status["SigIgn"], 16)
            assert ignored & bits(signal.SIGUSR2) and ignored & bits(signal.SIGINT)
            assert os.getsid(pid) == pid
            deadline = time.monotonic() + 20
            while not files_of(pid) <= {"pipe", "/dev/null"}:  # what it is loading, it closes again
                assert time.monotonic() < deadline, files_of(pid)
                time.sleep(0.01)
        parent.kill()
    for pid in map(int, pids):
        gone(pid)


def settled(pid: int) -> dict[str, str]:
    """What the kernel says of a worker that has begun to listen: it has its second thread."""
    deadline = time.monotonic() + 20
    while True:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        if int(status["Threads"]) > 1:
            return status
        assert time.monotonic() < deadline, "it does not begin"
        time.sleep(0.01)


def bits(*numbers: int) -> int:
    return sum(1 << (number - 1) for number in numbers)


def files_of(pid: int) -> set[str]:
    found = set()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since
            found.add(os.readlink(path).partition(":")[0])
    return found


def gone(pid: int) -> None:
    """It ends with its parent."""
    deadline = time.monotonic() + 5
    while Path(f"/proc/{pid}").exists():
        if "State:\tZ" in Path(f"/proc/{pid}/status").read_text():
            return
        assert time.monotonic() < deadline, "it is still there"
        time.sleep(0.01)


@pytest.mark.parametrize("begin", [spawn.started, spawn.forked])
def test_no_process_to_be_had_is_said_and_leaves_no_pipe(begin, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    monkeypatch.setattr(subprocess, "Popen", refuse)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(WorkerError, match="cannot start a worker process") as caught:
        begin()
    assert "--num-proc 1" in (caught.value.hint or "")
    assert os.listdir("/proc/self/fd") == before
