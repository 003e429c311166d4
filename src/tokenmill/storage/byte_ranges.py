"""Which bytes of a file have arrived."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator


class ByteRanges:
    """A set of byte positions. Ranges that touch are one."""

    def __init__(self) -> None:
        self._bounds: list[int] = []  # start, stop, start, stop, ...: ascending, all different

    def add(self, start: int, stop: int) -> None:
        if start >= stop:
            return
        first, last = bisect_left(self._bounds, start), bisect_right(self._bounds, stop)
        # At an even index the bound lies outside all ranges, so it is kept.
        self._bounds[first:last] = [start] * (first % 2 == 0) + [stop] * (last % 2 == 0)

    def copy(self) -> ByteRanges:
        twin = ByteRanges()
        twin._bounds = self._bounds[:]
        return twin

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._bounds[::2], self._bounds[1::2], strict=True)

    @property
    def num_bytes(self) -> int:
        return sum(self._bounds[1::2]) - sum(self._bounds[::2])

    @property
    def prefix(self) -> int:
        """How many bytes there are from the start, without a gap."""
        return self._bounds[1] if self._bounds[:1] == [0] else 0

    @property
    def stop(self) -> int:
        """Where the last of them ends."""
        return self._bounds[-1] if self._bounds else 0

    def gaps(self, size: int) -> Iterator[tuple[int, int]]:
        """The ranges that a file of this size lacks, in order."""
        at = 0
        for start, stop in self:
            if at < min(start, size):
                yield at, min(start, size)
            at = stop
        if at < size:
            yield at, size
