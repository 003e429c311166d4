"""Workers that die, hang, stop or run out of memory, in real runs of the command line: the run
finishes with the oracle's bytes, or ends with exit code 7 naming the slice, and can be resumed."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from launch import NPY, Launch, corpus, deaths, finished, launched, looks_complete, succeeds, wrongs
from scenarios import TEXTS, differences

import oracle

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc"),
    pytest.mark.timeout(120),
]

MEMORY_BYTES = 600 << 20  # of the cgroup: three processes that only load hold less than half of it


def wrong(scratch: Path) -> list[str]:
    return wrongs(NPY, str(scratch / "corpus.jsonl"), str(scratch / "out"))


def fault(act: str, point: str = "part half", times: int = 1, **more: object) -> dict[str, object]:
    where = {} if point == "engine" else {"slice": 3}
    return {"point": point, "role": "worker", "act": act, "times": times, **where, **more}


def run_with(scratch: Path, *faults: dict[str, object], stall: float = 60.0) -> Launch:
    command = [*NPY.command(corpus(scratch), str(scratch / "out"), 2), "--stall-timeout"]
    return finished([*command, str(stall)], scratch, faults=list(faults))


@pytest.mark.parametrize(
    ("act", "point", "says"),
    [
        ("segfault", "part half", "SIGSEGV: a crash in native code"),
        ("segfault", "engine", "SIGSEGV: a crash in native code"),
        ("grow to a limit", "engine", "MemoryError: it asked for more memory than it may have"),
    ],
)
def test_worker_that_dies_once_is_explained_and_its_slice_retried(act, point, says, scratch, tally):
    text = {"text": TEXTS[20]} if point == "engine" else {}
    launch = run_with(scratch, fault(act, point, **text))
    assert launch.process.returncode == 0, launch.errors
    assert not wrong(scratch)
    [(seconds, notice)] = deaths(launch)
    assert "while encoding slice" in notice and says in notice
    assert "it is tried again, attempt 2 of 3" in launch.errors
    tally.add("worker deaths", "identical")
    if act == "segfault":  # growing takes time of its own
        tally.add("worker's death to message", "said", seconds=seconds)


def test_worker_that_hangs_once_is_replaced(scratch, tally):
    launch = run_with(scratch, fault("loop"), stall=1.5)
    assert launch.process.returncode == 0, launch.errors
    assert not wrong(scratch)
    [(seconds, notice)] = deaths(launch)
    assert "while encoding slice 3" in notice and "no progress for 1.5 s" in notice
    tally.add("hangs", "identical", seconds=seconds)


def test_worker_stopped_from_outside_is_replaced(scratch, tally):
    command = [*NPY.command(corpus(scratch), str(scratch / "out"), 2), "--stall-timeout", "1.5"]
    with launched(command, scratch, slow=0.01) as launch:
        launch.until(launch.begun)
        [begun, *_] = [traced for traced in launch.trace() if traced.role == "worker"]
        os.kill(begun.pid, signal.SIGSTOP)
        assert launch.wait() == 0, launch.errors
    assert f"worker {begun.pid} died" in launch.errors and "no progress for 1.5 s" in launch.errors
    assert not wrong(scratch)
    tally.add("hangs", "identical")


@pytest.mark.parametrize("act", ["segfault", "grow to a limit"])
def test_slice_that_kills_every_worker_is_exit_7_naming_it_and_resumes(act, scratch, tally):
    launch = run_with(scratch, fault(act, times=99))
    out = str(scratch / "out")
    assert launch.process.returncode == 7, launch.errors
    assert not looks_complete(out)
    assert "error: workers keep dying at slice 3 (" in launch.errors
    assert "corpus.jsonl" in launch.errors and "hint: " in launch.errors
    assert "Traceback" not in launch.errors
    launch.gone()
    tally.add("worker deaths", "exit 7, then identical", seconds=succeeds_after(scratch))


def test_slice_that_hangs_every_worker_is_exit_7_naming_it_and_resumes(scratch, tally):
    launch = run_with(scratch, fault("loop", times=99), stall=1.5)
    assert launch.process.returncode == 7, launch.errors
    assert "error: workers keep dying at slice 3 (" in launch.errors
    assert "--stall-timeout" in launch.errors
    launch.gone()
    tally.add("hangs", "exit 7, then identical", seconds=succeeds_after(scratch))


def succeeds_after(scratch: Path) -> float:
    return succeeds(NPY, str(scratch / "corpus.jsonl"), str(scratch / "out"), scratch, 2)


def test_document_that_kills_every_worker_is_left_out_and_listed(scratch, tally):
    """Not an error: the document is named, and the bytes are those without it."""
    launch = run_with(scratch, fault("segfault", "engine", 99, text=TEXTS[21]))
    assert launch.process.returncode == 0, launch.errors
    listed = (scratch / "out" / "tokenmill-quarantine.jsonl").read_text()
    assert '"place": "line 23"' in listed  # line 8 is broken, and lines count from 1
    assert "kills the worker that encodes it (SIGSEGV)" in listed
    assert "this document does it every time" in launch.errors
    others = TEXTS[:21] + TEXTS[22:]
    expected = oracle.npy_files(oracle.ids(others, "prepend"), 2000, "edufineweb")
    assert not differences(str(scratch / "out"), expected)
    tally.add("worker deaths", "quarantined")


@pytest.mark.parametrize(("num_proc", "times"), [(1, 99), (2, 1)])
def test_engine_that_panics_is_stood_in_for_by_the_reference(num_proc, times, scratch, tally):
    """A Rust panic is a BaseException; nobody dies of it, and the ids stay the reference's."""
    out = str(scratch / "out")
    panic = {"point": "engine", "act": "panic", "times": times, "text": TEXTS[20]}
    launch = finished(NPY.command(corpus(scratch), out, num_proc), scratch, faults=[panic])
    assert launch.process.returncode == 0, launch.errors
    assert launch.acts()
    assert not wrong(scratch)
    tally.add("panics", "identical")


def test_panic_outside_the_engine_is_told_with_its_traceback_and_resumes(scratch, tally):
    launch = run_with(scratch, fault("panic"))
    assert launch.process.returncode == 1, launch.errors
    assert "PanicException: index out of bounds" in launch.errors
    assert not looks_complete(str(scratch / "out"))
    launch.gone()
    tally.add("panics", "exit 1, then identical", seconds=succeeds_after(scratch))


@contextlib.contextmanager
def memory_cgroup() -> Iterator[Path]:
    """A cgroup of our own with a memory limit, below the one we are in."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers in ("memory", ""):
            mount = Path("/sys/fs/cgroup", controllers)
            folder = mount / path.strip("/") / f"tokenmill-test-{os.getpid()}"
            limit = "memory.limit_in_bytes" if controllers else "memory.max"
            try:
                folder.mkdir()
                (folder / limit).write_text(str(MEMORY_BYTES))
                if not controllers:
                    (folder / "memory.swap.max").write_text("0")
            except OSError:
                with contextlib.suppress(OSError):
                    folder.rmdir()
                continue
            try:
                yield folder
            finally:
                folder.rmdir()
            return
    pytest.skip("may not make a memory cgroup here: needs root and a writable /sys/fs/cgroup")


def test_worker_killed_by_the_kernel_for_memory_is_told_so_and_the_run_finishes(scratch, tally):
    with memory_cgroup() as cgroup:
        command = NPY.command(corpus(scratch), str(scratch / "out"), 2)
        enter = ["sh", "-c", f'echo $$ > {cgroup}/cgroup.procs && exec "$@"', "sh"]
        grow = fault("grow", "engine", text=TEXTS[20])
        with launched(command, scratch, {"before": enter}, faults=[grow]) as launch:
            launch.wait()
        launch.gone()
    assert launch.process.returncode == 0, launch.errors
    assert "the kernel killed it for lack of memory (oom_kill count +1)" in launch.errors
    assert "continuing with one fewer worker: 1" in launch.errors
    assert not wrong(scratch)
    tally.add("worker deaths", "identical")
