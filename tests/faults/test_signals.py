"""Ctrl-C, kill, a closed terminal, a closed pipe: at the start, in the middle and in assembly. The
process ends by that signal, soon, with nothing left running, and says how to go on; going on then
gives the oracle's bytes. For `prepare` alone, with workers, and for `convert`."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from launch import (
    CONVERT,
    NPY,
    Launch,
    RealRun,
    corpus,
    is_honest,
    launched,
    resumes,
    wrongs,
)

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc"),
    pytest.mark.timeout(120),
]

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
# Where the command stands when the signal comes.
STAGES = {
    "prepare": {
        "start": {"point": "begun", "role": "parent"},
        "middle": {"point": "part half", "slice": 5},
        "assembly": {"point": "shard published", "nth": 2, "role": "parent"},
    },
    "convert": {
        "start": {"point": "begun"},
        "middle": {"point": "shard half", "nth": 6},
        "assembly": {"point": "shard published", "nth": 2},
    },
}
RUNS = {
    "inline": (NPY, 1, "prepare"),
    "workers": (NPY, 2, "prepare"),
    "convert": (CONVERT, 1, "convert"),
}


def trials(*names: str) -> pytest.MarkDecorator:
    """Of "run stage"."""
    return pytest.mark.parametrize(("name", "stage"), [tuple(name.split()) for name in names])


def ignoring(*signums: signal.Signals) -> list[str]:
    """What a shell puts before a command that is to ignore these signals from its birth."""
    return ["sh", "-c", f"trap '' {' '.join(str(int(s)) for s in signums)}; exec \"$@\"", "sh"]


# All of them where a trial is cheap; with workers, each signal and each stage at least once.
EVERY = [
    *[
        (name, stage, signum)
        for name in ("inline", "convert")
        for stage in ("start", "middle", "assembly")
        for signum in SIGNALS
    ],
    ("workers", "start", signal.SIGTERM),
    ("workers", "middle", signal.SIGINT),
    ("workers", "middle", signal.SIGHUP),
    ("workers", "assembly", signal.SIGINT),
]


@pytest.mark.parametrize(("name", "stage", "signum"), EVERY)
def test_signal_ends_the_command_by_that_signal(name, stage, signum, scratch, tally):
    run, num_proc, kind = RUNS[name]
    source, out = corpus(scratch), str(scratch / "out")
    fault = {**STAGES[kind][stage], "act": "pause"}
    with launched(run.command(source, out, num_proc), scratch, faults=[fault]) as launch:
        launch.paused(fault["point"])
        sent = launch.signal(signum)
        launch.go_on()
        seconds = ended(launch, run, out, signum, sent)
    assert "run the same command again" in launch.errors
    if name != "convert":  # whose threads may be writing when it no longer waits for them
        assert not list(Path(out).rglob("*.tmp")), "half-written files are left"
    resumes(run, source, out)
    assert not list(Path(out).rglob("*.tmp")), "half-written files are left for ever"
    tally.add("signals", "identical", seconds=seconds)


def ended(launch: Launch, run: RealRun, out: str, signum: int, sent: float) -> float:
    """How long it took from the signal to the end of the process. The promise is 5 seconds, and 1
    for the second Ctrl-C; what it took is in the tally."""
    assert launch.wait() == -signum, launch.errors
    seconds = time.monotonic() - sent
    launch.gone()
    assert "Traceback" not in launch.errors
    assert is_honest(run, out)
    return seconds


def test_signal_while_a_worker_hangs_ends_the_run_in_time(scratch, tally):
    """The slice under way never ends: it is waited for, but not for long."""
    source, out = corpus(scratch), str(scratch / "out")
    fault = {"point": "part half", "slice": 5, "role": "worker", "act": "loop"}
    with launched(NPY.command(source, out, 2), scratch, faults=[fault]) as launch:
        launch.until(launch.acts)
        sent = launch.signal(signal.SIGINT)
        seconds = ended(launch, NPY, out, signal.SIGINT, sent)
    assert "run the same command again" in launch.errors
    resumes(NPY, source, out)
    tally.add("signals", "identical", seconds=seconds)


@trials("inline start", "inline middle", "workers middle", "workers assembly", "convert middle")
def test_second_ctrl_c_ends_the_command_at_once(name, stage, scratch, tally):
    run, num_proc, kind = RUNS[name]
    source, out = corpus(scratch), str(scratch / "out")
    fault = {**STAGES[kind][stage], "act": "pause"}  # and it never goes on by itself
    with launched(run.command(source, out, num_proc), scratch, faults=[fault]) as launch:
        launch.paused(fault["point"])
        launch.signal(signal.SIGINT)
        if stage == "middle" and kind == "prepare":  # elsewhere the first one has ended it
            launch.until(lambda: "press Ctrl-C again" in launch.errors)
        sent = time.monotonic()
        if launch.process.poll() is None:
            launch.signal(signal.SIGINT)
        seconds = ended(launch, run, out, signal.SIGINT, sent)
    assert "run the same command again" in launch.errors
    resumes(run, source, out)
    tally.add("second Ctrl-C", "identical", seconds=seconds)


@trials("inline start", "workers middle", "workers assembly", "convert assembly")
def test_ctrl_c_hammered_ends_the_command_by_the_signal(name, stage, scratch, tally):
    """As people do it: again and again, until the prompt is back."""
    run, num_proc, kind = RUNS[name]
    source, out = corpus(scratch), str(scratch / "out")
    fault = {**STAGES[kind][stage], "act": "pause"}
    with launched(run.command(source, out, num_proc), scratch, faults=[fault]) as launch:
        launch.paused(fault["point"])
        sent = time.monotonic()
        while launch.process.poll() is None and time.monotonic() - sent < 120.0:
            launch.signal(signal.SIGINT)
            time.sleep(0.0003)
        ended(launch, run, out, signal.SIGINT, sent)
    resumes(run, source, out)
    tally.add("signals", "identical")


@trials("inline start", "workers middle", "workers assembly", "convert middle")
def test_ctrl_c_ends_the_command_though_nobody_reads_what_it_says(name, stage, scratch, tally):
    """stderr is a pipe that is full: whoever wants to say something waits, at any line of code."""
    run, num_proc, kind = RUNS[name]
    source, out = corpus(scratch), str(scratch / "out")
    fault = {**STAGES[kind][stage], "act": "pause"}
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(write_end, b"\n" * 4096):
            pass
    os.set_blocking(write_end, True)
    popen = {"stderr": write_end}
    command = run.command(source, out, num_proc)
    with launched(command, scratch, popen, faults=[fault]) as launch:
        os.close(write_end)
        launch.paused(fault["point"])
        sent = time.monotonic()
        while launch.process.poll() is None and time.monotonic() - sent < 120.0:
            launch.signal(signal.SIGINT)
            time.sleep(0.02)
        seconds = ended(launch, run, out, signal.SIGINT, sent)
    os.close(read_end)
    resumes(run, source, out)
    tally.add("signals", "identical", seconds=seconds)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("name", RUNS)
def test_signal_that_was_ignored_stays_ignored(name, signum, scratch, tally):
    """`nohup tokenmill ...` goes on when the terminal is closed, `tokenmill ... &` in a script when
    Ctrl-C ends that. SIGTERM ends both."""
    run, num_proc, kind = RUNS[name]
    source, out = corpus(scratch), str(scratch / "out")
    fault = {**STAGES[kind]["middle"], "act": "pause"}
    command = run.command(source, out, num_proc)
    popen = {"before": ignoring(signum), "stdin": subprocess.DEVNULL}
    with launched(command, scratch, popen, faults=[fault]) as launch:
        launch.paused(fault["point"])
        launch.signal(signum)
        launch.go_on()
        assert launch.wait() == 0, launch.errors
    assert not wrongs(run, source, out)
    tally.add("signals", "identical")


@pytest.mark.parametrize("name", RUNS)
def test_sigterm_ends_a_command_that_ignores_the_others(name, scratch, tally):
    run, num_proc, kind = RUNS[name]
    source, out = corpus(scratch), str(scratch / "out")
    fault = {**STAGES[kind]["middle"], "act": "pause"}
    command = run.command(source, out, num_proc)
    popen = {"before": ignoring(signal.SIGINT, signal.SIGHUP), "stdin": subprocess.DEVNULL}
    with launched(command, scratch, popen, faults=[fault]) as launch:
        launch.paused(fault["point"])
        sent = launch.signal(signal.SIGTERM)
        launch.go_on()
        seconds = ended(launch, run, out, signal.SIGTERM, sent)
    assert "Ctrl-C" not in launch.errors
    resumes(run, source, out)
    tally.add("signals", "identical", seconds=seconds)


@pytest.mark.parametrize("name", RUNS)
def test_stdout_that_nobody_reads_ends_like_any_filter(name, scratch, tally):
    """stdout is written to at the end only: the dataset is complete by then."""
    run, num_proc, _ = RUNS[name]
    source, out = corpus(scratch), str(scratch / "out")
    read_end, write_end = os.pipe()
    os.close(read_end)
    command = [*run.command(source, out, num_proc), "--json"]
    with launched(command, scratch, {"stdout": write_end}) as launch:
        os.close(write_end)
        assert launch.wait() == 128 + signal.SIGPIPE, launch.errors
    assert "Traceback" not in launch.errors and "error" not in launch.errors
    assert not wrongs(run, source, out)
    tally.add("signals", "identical")


@pytest.mark.parametrize("stage", ["start", "middle"])
def test_stderr_that_nobody_reads_ends_the_run_which_resumes(stage, scratch, tally):
    """`tokenmill prepare ... 2>&1 | head`: a word about a dead worker finds no reader."""
    source, out = corpus(scratch), str(scratch / "out")
    read_end, write_end = os.pipe()
    faults = [{"point": "part half", "slice": 5, "role": "worker", "act": "kill"}]
    if stage == "start":
        os.close(read_end)
    popen = {"stderr": write_end}
    with launched(NPY.command(source, out, 2), scratch, popen, faults=faults) as launch:
        os.close(write_end)
        if stage == "middle":
            launch.until(launch.begun)
            os.close(read_end)
        assert launch.wait() == 128 + signal.SIGPIPE
        launch.gone()
        assert is_honest(NPY, out)
    resumes(NPY, source, out)
    tally.add("signals", "identical")


@pytest.mark.parametrize(
    ("name", "closed"),
    [
        ("inline", "<&- >&- 2>&-"),
        ("workers", "<&- >&- 2>&-"),
        ("workers", "2>&-"),
        ("convert", ">&-"),
    ],
)
def test_closed_descriptors_are_no_place_for_a_shard(name, closed, scratch, tally):
    """What is opened next gets the lowest number: a message must not end up in a shard."""
    run, num_proc, _ = RUNS[name]
    source, out = corpus(scratch), str(scratch / "out")
    popen = {"before": ["sh", "-c", f'exec "$@" {closed}', "sh"]}
    with launched(run.command(source, out, num_proc), scratch, popen) as launch:
        assert launch.wait() == 0, launch.errors
    assert not wrongs(run, source, out)
    tally.add("signals", "identical")


def test_signal_before_anything_was_begun_leaves_nothing(scratch):
    source, out = corpus(scratch), str(scratch / "out")
    fault = {"point": "begun", "role": "parent", "act": "pause"}
    with launched(NPY.command(source, out, 2), scratch, faults=[fault]) as launch:
        launch.paused("begun")
        launch.signal(signal.SIGTERM)
        assert launch.wait() == -signal.SIGTERM, launch.errors
    assert not os.path.exists(out)


# In the process, at the moment when a module is about to be imported: Ctrl-C. A library that is
# written in C makes an ImportError of it.
INTERRUPTED_IMPORT = """
import os, signal, sys
class Finder:
    def find_spec(self, name, *rest):
        if name == {name!r}:
            sys.meta_path.remove(self)
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt:
                if {is_swallowed}:
                    raise ImportError("numpy could not be loaded") from None
                raise
sys.meta_path.insert(0, Finder())
sys.argv = ["tokenmill", *sys.argv[1:]]
import runpy
runpy.run_module("tokenmill", run_name="__main__")
"""


@pytest.mark.parametrize("is_swallowed", [False, True], ids=["", "swallowed"])
@pytest.mark.parametrize("name", ["tokenmill.cli", "argparse", "tokenmill.prepare", "pyarrow"])
def test_ctrl_c_while_modules_load_ends_the_command_by_it_without_a_traceback(
    name, is_swallowed, tmp_path
):
    (tmp_path / "a.txt").write_text("one\n\ntwo")
    script = INTERRUPTED_IMPORT.format(name=name, is_swallowed=is_swallowed)
    command = [sys.executable, "-c", script, "prepare", "a.txt", "-o", "out", "--num-proc", "1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == -signal.SIGINT, done.stderr
    assert "Traceback" not in done.stderr and "bug" not in done.stderr


@pytest.mark.parametrize("num_proc", [1, 2])
def test_terminal_that_is_closed_ends_the_command_by_sighup(num_proc, scratch):
    source, out = corpus(scratch), str(scratch / "out")
    fault = {**STAGES["prepare"]["middle"], "act": "pause"}
    leader, follower = os.openpty()
    command = NPY.command(source, out, num_proc)
    screen = {"stdout": follower, "stderr": follower}
    with launched(command, scratch, popen=screen, faults=[fault]) as launch:
        os.close(follower)
        launch.paused(fault["point"])
        os.close(leader)  # from here on, nothing can be written there
        launch.signal(signal.SIGHUP)
        launch.go_on()
        assert launch.wait() == -signal.SIGHUP
        launch.gone()
    resumes(NPY, source, out)
