"""nanochat's rule: of the next 1,000 documents, a row takes the longest that fits into its rest,
until none fits; then the shortest is cropped to fill it. So every row begins with a document, and
no row has padding. What is cropped is lost: a third of web text with rows of 2,048.
"""

from __future__ import annotations

import bisect

from tokenmill.loader.packing.best_fit import Numbers

BUFFER_DOCUMENTS = 1000

Placement = tuple[int, int, int]  # document, row, tokens of it


def best_fit_crop(lengths: Numbers, seq_len: int) -> list[Placement]:
    """Every document of these lengths, none of which is 0, in the order of placement."""
    waiting, found, row, room = _Waiting(lengths.tolist()), [], 0, seq_len
    while len(waiting):
        length, document = waiting.taken(room)
        found.append((document, row, min(length, room)))
        room -= min(length, room)
        if not room:
            row, room = row + 1, seq_len
    return found


class _Waiting:
    """Up to 1,000 documents, sorted by length; of equal ones, the last in the list is the
    oldest."""

    def __init__(self, lengths: list[int]) -> None:
        self._lengths = lengths
        self._num_read = min(BUFFER_DOCUMENTS, len(lengths))
        self._waiting = sorted((lengths[n], -n) for n in range(self._num_read))

    def __len__(self) -> int:
        return len(self._waiting)

    def taken(self, room: int) -> tuple[int, int]:
        """The length and number of the longest document that fits, or of the shortest."""
        place = bisect.bisect_right(self._waiting, (room, 1))
        if not place:
            place = bisect.bisect_right(self._waiting, (self._waiting[0][0], 1))
        length, number = self._waiting.pop(place - 1)
        if self._num_read < len(self._lengths):
            bisect.insort(self._waiting, (self._lengths[self._num_read], -self._num_read))
            self._num_read += 1
        return length, -number
