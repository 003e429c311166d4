"""The iterable of work that a runner draws from: due shard tasks first, then new slices.

The driver adds tasks between two records; the runner may draw in another thread. It ends when the
driver closes it, not when it is empty.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tokenmill.corpus.spans import Slice

if TYPE_CHECKING:
    from tokenmill.assemble.task import ShardTask


class Workload:
    """`due` is shared with the assembly's books; `num_slices` is the number of slices, and one more
    for each kind of slices that is encoded again: it may not reach 0 before the last is drawn."""

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
        is_closed = self._is_closed  # read before `due`
        try:
            return self._due.popleft()
        except IndexError:
            pass
        slice_ = next(self._slices, self)
        if not isinstance(slice_, Workload):
            if slice_ is not None and not slice_.is_pruning:
                self._num_slices -= 1  # prunings were not planned
            return slice_
        self._num_slices = 0
        if is_closed:
            raise StopIteration
        return None

    def __length_hint__(self) -> int:
        return max(0, self._num_slices) + len(self._due)
