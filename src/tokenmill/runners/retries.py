"""Work that a dead worker left, until another one takes it.

A worker does two things at a time: it carries out an order and commits the shard before it. A death
does not say which of the two was the cause, so it counts for both. The next attempts at both are
alone in their worker (`Assignment.is_alone`), so only the first death may count for the wrong one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from tokenmill.runners.assignment import Assignment


class Retries:
    def __init__(self) -> None:
        self._waiting: deque[Assignment] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Assignment]:
        return iter(self._waiting)

    def put_back(self, assignments: Sequence[Assignment]) -> None:
        """Add these, in this order, before the others."""
        self._waiting.extendleft(reversed(assignments))

    def remove(self, assignment: Assignment) -> None:
        self._waiting.remove(assignment)

    @property
    def first_alone(self) -> Assignment | None:
        """The next one for a worker that has nothing else to do."""
        return next((one for one in self._waiting if one.is_alone), None)

    @property
    def first_shared(self) -> Assignment | None:
        """The next one for any worker."""
        return next((one for one in self._waiting if not one.is_alone), None)
