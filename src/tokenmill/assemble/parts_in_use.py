"""Which part files are still needed, by tasks without a record or by future tasks.

A part file is removed once no task needs it. `used.json` lists it before that, so that a later
attempt does not encode its slice again. Losing `used.json` costs only time.
"""

from __future__ import annotations

import bisect
import collections
import json
import os

from tokenmill.assemble.task import Place, ShardTask
from tokenmill.encode.record import SPLITS, part_path
from tokenmill.storage.checked_json import checked_object, checksummed
from tokenmill.storage.store import store_of

_USED_NAME = "used.json"
RANGES_PER_FILE = 8  # at most this many ranges are written per removed part file
PartFile = tuple[int, int]  # split, slice


def are_removed_early(work: str) -> bool:
    """Whether parts are removed as soon as no task needs them. If a removal takes a request, parts
    stay until the dataset is complete: removing them would delay the workers."""
    return store_of(work).is_local


class PartsInUse:
    def __init__(self, work: str) -> None:
        self._work = work
        self._are_removed_early = are_removed_early(work)
        self._used = UsedParts.of(work)
        self._users: collections.Counter[PartFile] = collections.Counter()
        self._files_of: dict[Place, set[PartFile]] = {}  # by task
        # By stream: the end of each block that tasks do not fully cover yet, and its part file.
        self._blocks: tuple[collections.deque[tuple[int, PartFile]], ...] = tuple(
            collections.deque() for _ in SPLITS
        )
        self._num_tokens = [0] * len(SPLITS)
        self._unused: list[PartFile] = []  # not removed yet

    def no_part(self, file: PartFile) -> None:
        """Note that a slice has no file for a split, which keeps the used parts in few ranges."""
        self._used.add(*file)

    def replaced(self, index: int) -> None:
        """Remove the part files of a slice whose part was replaced. If the new part is lost, the
        slice is encoded again."""
        if self._are_removed_early:
            paths = [part_path(self._work, index, split) for split in range(len(SPLITS))]
            store_of(self._work).remove(*paths)

    def keep(self, file: PartFile) -> None:
        """Note that a part file is needed until the end."""
        self._users[file] += 1

    def block_fed(self, stream: int, file: PartFile, num_tokens: int) -> None:
        """Note that a block of a part file is next in a stream."""
        self._num_tokens[stream] += num_tokens
        if file not in self._used:  # else an earlier attempt has removed it
            self._blocks[stream].append((self._num_tokens[stream], file))
            self._users[file] += 1

    def task_made(self, task: ShardTask, split: int) -> None:
        indices = {stretch.key[0] for stretch in task.stretches}
        needed = {(split, index) for index in indices if (split, index) not in self._used}
        self._files_of[task.place] = needed
        self._users.update(needed)

    def blocks_done(self, stream: int, num_tokens: int) -> None:
        """Note that tasks cover the first `num_tokens` of a stream."""
        blocks, released = self._blocks[stream], []
        while blocks and blocks[0][0] <= num_tokens:
            released.append(blocks.popleft()[1])
        self._release(released)

    def task_done(self, place: Place) -> None:
        self._release(sorted(self._files_of.pop(place, ())))

    def _release(self, released: list[PartFile]) -> None:
        if not released:
            return
        self._users.subtract(released)
        unused = [file for file in dict.fromkeys(released) if not self._users[file]]
        for file in unused:
            del self._users[file]
        if not self._are_removed_early:
            return
        for split, index in unused:
            self._used.add(split, index)
        self._unused += unused
        # A larger used.json is saved less often: thousands of tasks may finish in any order.
        if self._unused and len(self._unused) >= self._used.num_ranges // RANGES_PER_FILE:
            self._used.save(self._work)
            for split, index in self._unused:
                store_of(self._work).remove(part_path(self._work, index, split))
            self._unused = []


class UsedParts:
    """Part files that are no longer needed, as a few ranges of slices."""

    def __init__(self, ranges: list[list[list[int]]] | None = None) -> None:
        self._ranges = ranges or [[] for _ in SPLITS]

    @staticmethod
    def of(work: str) -> UsedParts:
        """What an earlier attempt saved; empty if that is missing or damaged."""
        try:
            ranges = checked_object(store_of(work).read(os.path.join(work, _USED_NAME)))["used"]
            return UsedParts([[[int(a), int(b)] for a, b in of_split] for of_split in ranges])
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return UsedParts()

    @property
    def num_ranges(self) -> int:
        return sum(map(len, self._ranges))

    @property
    def num_first(self) -> int:
        """The number of slices before the first whose part files may still be needed."""
        firsts = [of_split[0] if of_split else [0, 0] for of_split in self._ranges]
        return min(stop if start == 0 else 0 for start, stop in firsts)

    def save(self, work: str) -> None:
        data = checksummed(json.dumps({"used": self._ranges}).encode())
        store_of(work).write(os.path.join(work, _USED_NAME), data, is_durable=False)

    def add(self, split: int, index: int) -> None:
        ranges = self._ranges[split]
        at = bisect.bisect_right(ranges, [index, index])
        if (split, index) in self:
            return
        if at and ranges[at - 1][1] == index:
            ranges[at - 1][1] += 1
            at -= 1
        else:
            ranges.insert(at, [index, index + 1])
        if at + 1 < len(ranges) and ranges[at][1] == ranges[at + 1][0]:
            ranges[at][1] = ranges.pop(at + 1)[1]

    def __contains__(self, file: PartFile) -> bool:
        split, index = file
        at = bisect.bisect_right(self._ranges[split], [index, 1 << 62]) - 1
        return at >= 0 and index < self._ranges[split][at][1]
