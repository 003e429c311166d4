"""How a worker process starts: as a new interpreter, or as a fork of this one.

    started()   at any time, in any program; spends 0.2 s of CPU on imports done here already
    forked()    starts with everything loaded, but is only safe in a process with a single thread

So a command forks its first workers, before it has a second thread, and starts replacements for
dead ones. Where tokenmill is used as a library, no worker is forked: the process may have threads.
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
    """The process id, and our ends of its pipes."""

    pid: int
    stdin: int
    stdout: int
    stderr: int


def started() -> Process:
    """A worker in a new interpreter. The kernel kills it when the calling thread ends."""
    paths = json.dumps([path for path in sys.path if os.path.isabs(path)])
    # -P: a random.py in the current folder, or beside worker.py, is not imported.
    command = [sys.executable, "-P", _WORKER, str(os.getpid()), paths]

    def start(stdin: int, stdout: int, stderr: int) -> int:
        process = subprocess.Popen(
            command, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True
        )
        process.returncode = 0  # we reap it, not Popen
        return process.pid

    return _with_pipes(start)


def load_for_forks() -> bool:
    """Import what forked workers need; returns whether this process may be forked.

    Not the engine: workers load it in parallel, and only a worker dies if loading crashes.
    """
    if sys.platform != "linux":
        return False
    stay_single_threaded()
    worker.load_modules()
    return may_fork()


def stay_single_threaded() -> None:
    """Tell the libraries, before they are loaded, not to start threads."""
    os.environ.update(worker.ENVIRONMENT)
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")


def may_fork() -> bool:
    return sys.platform == "linux" and len(os.listdir("/proc/self/task")) == 1


def forked() -> Process:
    """A worker forked from this process, if `load_for_forks` returned True."""
    parent = os.getpid()
    gc.freeze()  # so that the collector does not copy shared pages

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
            traceback.print_exc()
        finally:
            os._exit(1)

    return _with_pipes(start)


def _close_all_but(count: int) -> None:
    """Close every descriptor except the first `count`. (With a limit of a billion, `closerange`
    takes minutes in a Python that was built for an old kernel.)"""
    for number in map(int, os.listdir("/proc/self/fd")):
        if number >= count:
            with contextlib.suppress(OSError):  # the descriptor of the listing itself
                os.close(number)


def _with_pipes(start: Callable[[int, int, int], int]) -> Process:
    """Start a process with the other ends of three new pipes."""
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
