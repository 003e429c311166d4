"""The suite itself, in the background: it runs as in the foreground, and leaves no process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
IN_BACKGROUND = ["sh", "-c", "trap '' INT QUIT HUP; exec \"$@\"", "sh"]
HEARING = """
import signal, subprocess, sys

def test_child():
    ask = "import signal; print([int(signal.getsignal(s) == signal.SIG_IGN) for s in (1, 2, 3)])"
    said = subprocess.run([sys.executable, "-c", ask], stdout=subprocess.PIPE).stdout
    assert said.split() == [b"[0,", b"0,", b"0]"]

def test_ourselves():
    for signum in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.raise_signal(signum)
"""
LEAVING = """
import subprocess, sys
import orphans

orphans.RETRY_SECONDS = 0.1

def test_leaves():
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    start = f"import subprocess; print(subprocess.Popen({sleep}).pid)"
    subprocess.run([sys.executable, "-c", start], start_new_session=True)
"""

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")


def pytest_of(script: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """A pytest of its own with our conftest, in the background."""
    path = folder / "test_script.py"
    path.write_text(script)
    command = [sys.executable, "-m", "pytest", "-s", "-p", "conftest", *options, str(path)]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    for name in [name for name in environment if name.startswith("PYTEST_")]:
        del environment[name]
    return subprocess.run(
        [*IN_BACKGROUND, *command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("num_processes", ["0", "1"])
def test_suite_in_the_background_starts_programs_that_hear_signals(num_processes, tmp_path):
    done = pytest_of(HEARING, tmp_path, "-n", num_processes)
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("num_processes", ["0", "1"])
def test_process_left_behind_is_killed_and_fails_the_suite(num_processes, tmp_path):
    done = pytest_of(LEAVING, tmp_path, "-n", num_processes)
    assert done.returncode == 1 and "1 passed" in done.stdout, done.stdout + done.stderr
    found = re.search(r"process (\d+), started by \S+::test_leaves \(call\)", done.stdout)
    assert found, done.stdout
    while is_running(int(found[1])):  # SIGKILL needs a moment
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        return bool(Path("/proc", str(pid), "cmdline").read_bytes())  # empty: a zombie
    except OSError:
        return False
