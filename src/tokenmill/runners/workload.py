"""What a runner draws from: shard tasks that are due, before new slices.

The driver adds to it between two records, in its own thread; whoever hands out work draws from it,
in another. It is at its end when the driver says so, and not when nothing is there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tokenmill.corpus.spans import Slice

if TYPE_CHECKING:
    from tokenmill.assemble.task import ShardTask


class Workload:
    """`due` is shared with who keeps the books; `num_slices` is how many slices there are."""

    def __init__(
        self, slices: Iterator[Slice | None], num_slices: int, due: deque[ShardTask]
    ) -> None:
        self._slices = slices
        self._num_slices = num_slices
        self._due = due
        self._is_closed = False

    def close(self) -> None:
        """Nothing more will be due."""
        self._is_closed = True

    def __iter__(self) -> Workload:
        return self

    def __next__(self) -> Slice | ShardTask | None:
        is_closed = self._is_closed  # before the look at what is due
        try:
            return self._due.popleft()
        except IndexError:
            pass
        slice_ = next(self._slices, self)
        if not isinstance(slice_, Workload):
            self._num_slices -= slice_ is not None
            return slice_
        self._num_slices = 0
        if is_closed:
            raise StopIteration
        return None

    def __length_hint__(self) -> int:
        return self._num_slices + len(self._due)
