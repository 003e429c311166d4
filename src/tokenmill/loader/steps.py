"""Which places of the run make up a step, without skipped ones, and which a rank takes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from tokenmill.errors import ConfigError

Range = tuple[int, int]


class Skips:
    """Ranges of rows of the run that are left out: `skip=[(first, one past the last), ...]`."""

    def __init__(self, ranges: Iterable[Range]) -> None:
        self.ranges: list[Range] = []
        for start, stop in sorted(ranges):
            if not 0 <= start < stop:
                raise ConfigError(
                    f"skip=({start}, {stop}) is not a range of rows",
                    hint="skip=[(first, one past the last)], in rows: a step is batch_size rows",
                )
            if self.ranges and start <= self.ranges[-1][1]:
                first, last = self.ranges.pop()
                self.ranges.append((first, max(last, stop)))
            else:
                self.ranges.append((start, stop))

    def next(self, place: int, count: int) -> list[Range]:
        """The next `count` places from `place` on that are not skipped."""
        found = []
        for start, stop in itertools.chain(self.ranges, [(place + count + self._num(), 0)]):
            if stop and stop <= place:
                continue
            if place < start:
                end = min(start, place + count)
                found.append((place, end))
                count -= end - place
            if not count:
                break
            place = stop
        return found

    def nth(self, number: int) -> int:
        """The place of the row that is delivered as number `number`, from 0."""
        for start, stop in self.ranges:
            if number < start:
                break
            number += stop - start
        return number

    def before(self, place: int) -> list[Range]:
        """The skipped ranges before a place."""
        return [(start, min(stop, place)) for start, stop in self.ranges if start < place]

    def _num(self) -> int:
        return sum(stop - start for start, stop in self.ranges)


def part_of(ranges: Sequence[Range], start: int, stop: int) -> list[Range]:
    """Places `start` to `stop`, counted within the ranges."""
    found = []
    for first, last in ranges:
        low, high = max(first, first + start), min(last, first + stop)
        if low < high:
            found.append((low, high))
        start, stop = start - (last - first), stop - (last - first)
    return found
