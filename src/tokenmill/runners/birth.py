"""How a worker process begins: as a new interpreter, or as a copy of this one.

    started()   at any time, in any program; it loads for 0.2 s of CPU what we have loaded already
    forked()    begins with all that loaded, but is only safe in a process with a single thread

So a command forks the workers it begins with, before it has a second thread; those that replace
dead ones are started. In somebody else's process, which may hold anything, none is forked.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from typing import NamedTuple

from tokenmill.errors import WorkerError
from tokenmill.runners import worker

_WORKER = os.path.abspath(worker.__file__)


class Process(NamedTuple):
    """Its number, and our ends of its pipes."""

    pid: int
    stdin: int
    stdout: int
    stderr: int


def started() -> Process:
    """A worker in a new interpreter. The kernel ends it together with the thread that calls."""
    paths = json.dumps([path for path in sys.path if os.path.isabs(path)])
    # -P: a user's random.py in the current folder, or ours beside worker.py, is not imported.
    command = [sys.executable, "-P", _WORKER, str(os.getpid()), paths]

    def start(stdin: int, stdout: int, stderr: int) -> int:
        process = subprocess.Popen(
            command, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True
        )
        process.returncode = 0  # Popen need not wait for it: we do
        return process.pid

    return _with_pipes(start)


def load_for_forks() -> bool:
    """Load what forked workers need; whether this process may be forked then.

    Not the engine: workers build theirs at the same time, and may die of it without harm.
    """
    if sys.platform != "linux":
        return False
    os.environ.update(worker.ENVIRONMENT)  # each of these libraries starts threads otherwise
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
    worker.load_modules()
    return len(os.listdir("/proc/self/task")) == 1


def forked() -> Process:
    """A worker that is a copy of this process: after `load_for_forks`, and if that said so."""
    parent = os.getpid()
    gc.freeze()  # what is there stays where it is, in both; no page is copied to look at it

    def start(*theirs: int) -> int:
        pid = os.fork()
        if pid:
            return pid
        try:
            os.setsid()
            for number, fd in enumerate(theirs):
                os.dup2(fd, number)
            _close_all_but(3)
            worker.main_of_fork(parent)
        except BaseException:
            traceback.print_exc()  # its last words
        finally:
            os._exit(1)

    return _with_pipes(start)


def _close_all_but(count: int) -> None:
    """Close every descriptor but the first so many. (Where the limit is a billion, `closerange`
    takes minutes with a Python that was built for an old kernel.)"""
    for number in map(int, os.listdir("/proc/self/fd")):
        if number >= count:
            with contextlib.suppress(OSError):  # the listing's own
                os.close(number)


def _with_pipes(start: Callable[[int, int, int], int]) -> Process:
    """Have a process started that is given the other ends of three new pipes."""
    ours: list[int] = []
    theirs: list[int] = []
    try:
        for is_read_by_us in (False, True, True):
            read, write = os.pipe()
            ours.append(read if is_read_by_us else write)
            theirs.append(write if is_read_by_us else read)
        return Process(start(*theirs), *ours)
    except OSError as error:
        for fd in ours:
            os.close(fd)
        raise WorkerError(
            f"cannot start a worker process: {error}",
            hint="raise the limits (ulimit -n, ulimit -u), or use fewer: --num-proc 1",
        ) from error
    finally:
        for fd in theirs:
            os.close(fd)
