"""A download that later attempts continue, whichever ranges of it have arrived.

Beside the file there is a journal: after a block was written into the file, its range is appended
to the journal. A killed process loses at most one block per thread. Neither file is synced, because
the content is trusted only once all of it has the right hash.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import threading

from tokenmill.storage import disk
from tokenmill.storage.byte_ranges import ByteRanges
from tokenmill.storage.output_errors import as_output_error

JOURNAL_SUFFIX = ".journal"
_RANGE = struct.Struct("<QQ")
_FLAGS = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC


class InUse(Exception):
    """Another run is fetching the same file."""


class PartialFile:
    """A file that is written in any order, by several threads; `ranges` is what it holds. Raises
    InUse if another run has it open."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._journal_path = path + JOURNAL_SUFFIX
        self._lock = threading.Lock()
        with as_output_error("open", path):
            self._fd = self._opened()
            has_journal = os.path.exists(self._journal_path)
            self._journal = os.open(self._journal_path, _FLAGS | os.O_APPEND, 0o666)
            size = os.fstat(self._fd).st_size
            # Files without a journal are from an older tokenmill, which wrote from the start on.
            noted = self._noted() if has_journal else [(0, size)]
            self.ranges = ByteRanges()
            for start, stop in noted:
                self.ranges.add(start, min(stop, size))
            self._rewrite_journal()

    def _opened(self) -> int:
        """The file, locked."""
        while True:
            fd = os.open(self.path, _FLAGS, 0o666)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                raise InUse from None
            except OSError:
                pass  # no locks on this file system
            with contextlib.suppress(FileNotFoundError):
                if os.stat(self.path).st_ino == os.fstat(fd).st_ino:
                    return fd
            os.close(fd)  # the other run has just finished it and given it its name

    def _noted(self) -> list[tuple[int, int]]:
        size = os.fstat(self._journal).st_size
        data = os.pread(self._journal, size - size % _RANGE.size, 0)
        return list(_RANGE.iter_unpack(data))

    def _rewrite_journal(self) -> None:
        """Drop ranges that the file does not hold. A journal can outlive its file, and would be
        wrong once the new file has grown."""
        os.ftruncate(self._journal, 0)
        data = b"".join(_RANGE.pack(start, stop) for start, stop in self.ranges)
        disk.write_all(self._journal, memoryview(data))

    def write(self, data: memoryview, offset: int) -> None:
        stop = offset + len(data)
        with as_output_error("write", self.path):
            disk.write_all_at(self._fd, data, offset)
            disk.write_all(self._journal, memoryview(_RANGE.pack(offset, stop)))
        with self._lock:
            self.ranges.add(offset, stop)

    def read(self, num_bytes: int, offset: int) -> bytes:
        return os.pread(self._fd, num_bytes, offset)

    def restart(self, size: int) -> None:
        """Discard all bytes, of a file that is to have this size. No thread may be writing. The
        file is cut to that size but not emptied, because a worker may have mapped it."""
        with as_output_error("write", self.path):
            os.ftruncate(self._journal, 0)
            if os.fstat(self._fd).st_size > size:
                os.ftruncate(self._fd, size)
        self.ranges = ByteRanges()

    def close(self) -> None:
        """No thread may be writing."""
        os.close(self._fd)
        os.close(self._journal)

    def remove_journal(self) -> None:
        """After the file itself was renamed or removed."""
        disk.remove(self._journal_path)

    def has(self, start: int, stop: int) -> bool:
        with self._lock:
            return any(first <= start and stop <= last for first, last in self.ranges)

    def missing(self, size: int, in_flight: ByteRanges) -> list[tuple[int, int]]:
        """The ranges that are neither written nor in flight."""
        with self._lock:
            taken = self.ranges.copy()
        for start, stop in in_flight:
            taken.add(start, stop)
        return list(taken.gaps(size))

    @property
    def num_bytes(self) -> int:
        with self._lock:
            return self.ranges.num_bytes

    @property
    def prefix(self) -> int:
        with self._lock:
            return self.ranges.prefix
