"""One file that is being downloaded: what is missing, which ranges are in flight, how far it is
hashed.

Bytes are hashed in order, behind the ranges that arrive. The state of the hash is not saved, so a
later attempt hashes again what is here. Threads share it by the lock of `downloads.py`; they write
their ranges, and one of them hashes, without it.

Between two restarts each byte is written once. A byte that was replaced after it was hashed, by
another answer for the same range, would be in the file although nobody has compared it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tokenmill.corpus.download.byte_source import ByteSource
from tokenmill.corpus.hub_digests import new_hash
from tokenmill.storage.byte_ranges import ByteRanges
from tokenmill.storage.partial_file import PartialFile

HASHED_BYTES = 1 << 20  # at a time


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A remote file, and what to do with it here."""

    name: str
    num_bytes: int
    digest: str  # "sha256:...", or "git:..." (hub_digests.py)
    partial_path: str
    source: ByteSource
    has_size: Callable[[], bool]  # whether a file of the right size is in its place
    is_right: Callable[[], bool]  # whether it also has the right bytes; reads all of it
    put_in_place: Callable[[], None]  # the partial file
    explained: Callable[[], contextlib.AbstractContextManager[None]]  # of its errors


@dataclass(frozen=True, slots=True)
class RangeWish:
    """How long a range should be. A shorter one would wait longer for the answer than for its
    bytes; a longer one would delay the file's last bytes."""

    least_bytes: int
    most_bytes: int


@dataclass(slots=True, eq=False)
class FileRange:
    """A stretch that one connection fetches; `start` advances as bytes arrive."""

    file: FileDownload
    start: int
    stop: int


class FileDownload:
    """A file whose partial file is open."""

    def __init__(self, remote: RemoteFile) -> None:
        self.remote = remote
        self.in_flight: list[FileRange] = []
        self.is_spoiled = False  # it restarts as soon as no range is in flight
        self.num_attempts = 0  # downloads of the whole file that had a wrong hash
        self.num_failures = 0  # in a row
        self.failing_since = 0.0
        self.failed_at = 0.0
        self.answered_at = 0.0
        self.not_before = 0.0
        self._writing = threading.Lock()  # taken last
        self.partial = PartialFile(remote.partial_path)
        if self.partial.ranges.stop > remote.num_bytes:
            self.partial.restart(remote.num_bytes)
        self._begin_hash()

    def _begin_hash(self) -> None:
        self._num_hashed = 0
        self._hash: Any = new_hash(self.remote.digest.partition(":")[0], self.remote.num_bytes)

    @property
    def num_bytes(self) -> int:
        return self.partial.num_bytes

    def next_range(self, wish: RangeWish, num_connections: int) -> FileRange | None:
        """The first stretch that nobody fetches: as long as wished, but short enough that all
        connections have a share of what has not arrived."""
        if self.is_spoiled or len(self.in_flight) >= self.remote.source.max_streams:
            return None
        taken = ByteRanges()
        for range_ in self.in_flight:
            taken.add(range_.start, range_.stop)
        missing = self.partial.missing(self.remote.num_bytes, taken)
        if not missing:
            return None
        start, stop = missing[0]
        if self.remote.source.max_streams > 1:
            share = (self.remote.num_bytes - self.num_bytes) / num_connections
            size = max(wish.least_bytes, min(wish.most_bytes, int(share)))
            # A remainder that is not worth a request is part of this range.
            stop = start + size if stop - start > size + size // 2 else stop
        range_ = FileRange(self, start, stop)
        self.in_flight.append(range_)
        return range_

    def write(self, range_: FileRange, block: memoryview) -> int:
        """Write as much of a block as the range still lacks; returns how much that is."""
        with self._writing:
            fitting = block[: range_.stop - range_.start]
            if fitting:
                self.partial.write(fitting, range_.start)
            range_.start += len(fitting)
        return len(fitting)

    def end(self, num_bytes: int) -> bytes | None:
        """The file's last bytes, if they are here."""
        start = max(0, self.remote.num_bytes - num_bytes)
        if not self.partial.has(start, self.remote.num_bytes):
            return None
        return self.partial.read(num_bytes, start)

    def supply_end(self, data: bytes) -> int:
        """Write those of the file's last bytes that are not here, known from elsewhere. Returns how
        many. Ranges in flight end before them, and what still arrives of them is dropped."""
        size = self.remote.num_bytes
        start = size - len(data)
        if self.partial.has(start, size):
            return 0
        with self._writing:
            before = self.num_bytes
            other = ByteRanges()
            other.add(0, start)
            for first, stop in self.partial.missing(size, other):
                self.partial.write(memoryview(data)[first - start : stop - start], first)
            for range_ in self.in_flight:
                range_.stop = max(range_.start, min(range_.stop, start))
            return self.num_bytes - before

    @property
    def can_restart(self) -> bool:
        return self.is_spoiled and not self.in_flight

    def restart(self) -> None:
        """Forget all bytes. Only the thread that hashes may do this."""
        self.partial.restart(self.remote.num_bytes)
        self._begin_hash()
        self.is_spoiled = False

    @property
    def can_hash(self) -> bool:
        return not self.is_spoiled and self._num_hashed < self.partial.prefix

    def hash_some(self) -> None:
        """Hash the next bytes that are here. For one thread only."""
        stop = min(self.partial.prefix, self._num_hashed + HASHED_BYTES)
        block = self.partial.read(stop - self._num_hashed, self._num_hashed)
        if not block:
            self.is_spoiled = True  # another process has truncated the file
        self._hash.update(block)
        self._num_hashed += len(block)

    @property
    def is_complete(self) -> bool:
        """Whether all of it is hashed and no thread writes to it any more."""
        is_hashed = not self.is_spoiled and self._num_hashed >= self.remote.num_bytes
        return is_hashed and not self.in_flight

    @property
    def digest(self) -> str:
        return f"{self.remote.digest.partition(':')[0]}:{self._hash.hexdigest()}"
