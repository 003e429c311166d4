"""Parallel work in forks of this process, for functions that hold the GIL, such as `bincount`.

A fork costs milliseconds, a new interpreter half a second, and a fork inherits open files. It is
only safe in a process with a single thread (spawn.may_fork). A fork returns arrays through a pipe.
If it fails, the caller repeats its work in this process, and so sees the error.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import io
import mmap
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from tokenmill.runners import worker

TICK_SECONDS = 0.1
Item = TypeVar("Item")
Arrays = Sequence[npt.NDArray[Any]]
Advance = Callable[[int], None]


def in_forks(
    work: Callable[[Item, Advance], Arrays], items: Sequence[Item], progress: Advance
) -> Iterator[Arrays]:
    """The results of `work` for each item, in order, each from its own fork. `progress` is called
    with the sum of what all of them have reported."""
    sys.stdout.flush()
    sys.stderr.flush()
    gc.freeze()  # so that the collector does not copy shared pages
    forks: list[_Fork] = []
    reported = np.frombuffer(mmap.mmap(-1, 8 * max(1, len(items))), np.int64)
    try:
        for number, item in enumerate(items):
            try:
                forks.append(_Fork(functools.partial(work, item), reported[number:], forks))
            except OSError:  # no more processes, or no more descriptors
                break
        for fork, item in zip(forks, items, strict=False):
            found = fork.result(lambda: progress(int(reported.sum())))
            yield work(item, lambda count: None) if found is None else found
        for item in items[len(forks) :]:
            yield work(item, lambda count: None)
    finally:
        for fork in forks:
            fork.end()
        gc.unfreeze()


class _Fork:
    def __init__(
        self,
        work: Callable[[Advance], Arrays],
        reported: npt.NDArray[np.int64],
        others: list[_Fork],
    ) -> None:
        parent = os.getpid()
        read, write = os.pipe()
        try:
            self._pid = os.fork()
        except OSError:
            os.close(read)
            os.close(write)
            raise
        if not self._pid:
            _serve(parent, work, reported, write, [read, *(other.fd for other in others)])
        os.close(write)
        self._answer = os.fdopen(read, "rb")

    @property
    def fd(self) -> int:
        return self._answer.fileno()

    def result(self, tick: Callable[[], None]) -> Arrays | None:
        """Its result, once it has ended; None if it failed."""
        while not select.select([self._answer], [], [], TICK_SECONDS)[0]:
            tick()
        answer = io.BytesIO(self._answer.read())
        try:
            num_arrays = answer.read(1)[0]
            return [np.lib.format.read_array(answer) for _ in range(num_arrays)]
        except (IndexError, ValueError):
            return None

    def end(self) -> None:
        self._answer.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)


def _serve(
    parent: int,
    work: Callable[[Advance], Arrays],
    reported: npt.NDArray[np.int64],
    write: int,
    inherited: list[int],
) -> None:
    """The body of the fork; never returns."""
    try:
        worker.die_with(parent)
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(signum, signal.SIG_DFL)
        for fd in inherited:
            os.close(fd)

        def advance(count: int) -> None:
            reported[0] += count

        answer = io.BytesIO()
        found = work(advance)
        answer.write(bytes([len(found)]))
        for array in found:
            np.lib.format.write_array(answer, array, allow_pickle=False)
        with os.fdopen(write, "wb") as pipe:
            pipe.write(answer.getbuffer())
    finally:
        os._exit(0)
