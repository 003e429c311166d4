"""Which part files are still needed: by tasks without a record, or for tasks that are yet to come.

A part file goes when nothing needs it any more; `used.json` says so before it is removed, so that a
later attempt does not encode its slice again. Should that be lost, this costs time and nothing
else.
"""

from __future__ import annotations

import bisect
import collections
import json
import os

from tokenmill.assemble.task import ShardTask
from tokenmill.encode.record import SPLITS, part_path
from tokenmill.storage import files
from tokenmill.storage.checked_json import checked_object, checksummed
from tokenmill.storage.store import store_of

_USED_NAME = "used.json"
RANGES_PER_FILE = 8  # so many ranges are written, at most, for each part file that goes
PartFile = tuple[int, int]  # split, slice


def are_removed_early(work: str) -> bool:
    """Whether parts go as soon as nothing needs them. Where removing one costs a request, they stay
    until the dataset is complete: those who wait for tasks would be held up."""
    return store_of(work).has_quick_calls


class PartsInUse:
    def __init__(self, work: str) -> None:
        self._work = work
        self._are_removed_early = are_removed_early(work)
        self._used = UsedParts.of(work)
        self._users: collections.Counter[PartFile] = collections.Counter()
        self._files_of: dict[tuple[int, int, int], set[PartFile]] = {}  # by task
        # By stream: blocks that are not all in tasks yet, and where each ends in the stream.
        self._blocks: tuple[collections.deque[tuple[int, PartFile]], ...] = tuple(
            collections.deque() for _ in SPLITS
        )
        self._num_tokens = [0] * len(SPLITS)
        self._unused: list[PartFile] = []  # that are still there

    def no_part(self, file: PartFile) -> None:
        """A slice has nothing for a split: what is used stays a few long ranges."""
        self._used.add(*file)

    def block_fed(self, stream: int, file: PartFile, num_tokens: int) -> None:
        """A block of a part file now follows in a stream."""
        self._num_tokens[stream] += num_tokens
        self._blocks[stream].append((self._num_tokens[stream], file))
        self._users[file] += 1

    def task_made(self, task: ShardTask, split: int) -> None:
        needed = {(split, stretch.key[0]) for stretch in task.stretches}
        self._files_of[task.stream, task.shard, task.piece] = needed
        self._users.update(needed)

    def blocks_done(self, stream: int, num_tokens: int) -> None:
        """Tasks were made for so many tokens of a stream."""
        blocks, released = self._blocks[stream], []
        while blocks and blocks[0][0] <= num_tokens:
            released.append(blocks.popleft()[1])
        self._release(released)

    def task_done(self, place: tuple[int, int, int]) -> None:
        """A task has its record."""
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
        # What an earlier attempt has noted, it has removed.
        unused = [file for file in unused if file not in self._used]
        for split, index in unused:
            self._used.add(split, index)
        self._unused += unused
        # The more there is to write, the less often: thousands of tasks may end in any order.
        if self._unused and len(self._unused) >= self._used.num_ranges // RANGES_PER_FILE:
            self._used.save(self._work)
            for split, index in self._unused:
                files.remove(part_path(self._work, index, split))
            self._unused = []


class UsedParts:
    """Part files that are no longer needed, as ranges of slices: there are few of those."""

    def __init__(self, ranges: list[list[list[int]]] | None = None) -> None:
        self._ranges = ranges or [[] for _ in SPLITS]

    @staticmethod
    def of(work: str) -> UsedParts:
        """What an earlier attempt has noted; nothing, if it has not, or if that is damaged."""
        try:
            ranges = checked_object(files.read_file(os.path.join(work, _USED_NAME)))["used"]
            return UsedParts([[[int(a), int(b)] for a, b in of_split] for of_split in ranges])
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return UsedParts()

    @property
    def num_ranges(self) -> int:
        return sum(map(len, self._ranges))

    def save(self, work: str) -> None:
        data = checksummed(json.dumps({"used": self._ranges}).encode())
        files.write_file(os.path.join(work, _USED_NAME), data, is_durable=False)

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
