"""A thread that takes items from an iterator ahead of the caller.

An error in the thread is raised where its item would have been. `close` stops the thread and waits
for the item that it is making, but no longer than five seconds: a read from a network may take
minutes, and a daemon thread keeps no process alive.
"""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Iterator
from typing import Generic, TypeVar, cast

Item = TypeVar("Item")
_POLL_SECONDS = 0.1  # between two checks for `close`, while the queue is full
_CLOSE_SECONDS = 5.0


class Prefetch(Generic[Item]):
    def __init__(self, source: Iterator[Item], depth: int) -> None:
        self._source = source
        self._ready: queue.Queue[tuple[Item | None, BaseException | None]] = queue.Queue(depth)
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tokenmill loader", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[Item]:
        return self

    def __next__(self) -> Item:
        if self._is_closed.is_set():
            raise StopIteration
        item, error = self._ready.get()
        if error is not None:
            self._is_closed.set()
            raise error
        return cast("Item", item)

    def close(self) -> None:
        self._is_closed.set()
        # When the interpreter exits, modules may be gone and the thread has stopped.
        if threading is None or sys.is_finalizing():
            return
        if self._thread is not threading.current_thread():
            self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        try:
            for item in self._source:
                if not self._put(item, None):
                    return
            self._put(None, StopIteration())
        except BaseException as error:
            self._put(None, error)

    def _put(self, item: Item | None, error: BaseException | None) -> bool:
        while not self._is_closed.is_set():
            try:
                self._ready.put((item, error), timeout=_POLL_SECONDS)
                return True
            except queue.Full:
                continue
        return False
