"""A byte range of a file on disk: how several workers write one shard."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from tokenmill.storage import disk
from tokenmill.storage.hashing import PieceHash
from tokenmill.storage.output_errors import as_output_error

FLUSH_BYTES = 16 << 20  # written before the kernel is asked to flush


class FilePiece:
    """A byte range of a file; other workers may write the bytes before and after it.

    It is written in order. Another worker may write the same bytes there, now or later, without
    harm. `digests` hashes each piece of what was written. Nothing is durable before `sync`.
    """

    def __init__(self, path: str, offset: int) -> None:
        self.path = path
        self.num_bytes = 0
        self._num_flushed = 0
        self._hash = PieceHash()
        self._offset = offset
        with as_output_error("open", path):
            self._fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o666)
            os.lseek(self._fd, offset, os.SEEK_SET)

    def write(self, data: Any) -> None:
        with as_output_error("write", self.path):
            self.num_bytes += disk.write_hashed(self._fd, data, self._hash)
        if self.num_bytes - self._num_flushed >= FLUSH_BYTES:
            self._flush()

    def _flush(self) -> None:
        """Make the kernel start writing its cached pages to disk, so that `sync` waits less: on
        Linux, POSIX_FADV_DONTNEED does that."""
        if hasattr(os, "posix_fadvise"):
            at, size = self._offset + self._num_flushed, self.num_bytes - self._num_flushed
            with contextlib.suppress(OSError):
                os.posix_fadvise(self._fd, at, size, os.POSIX_FADV_DONTNEED)
        self._num_flushed = self.num_bytes

    @property
    def digests(self) -> tuple[str, ...]:
        return self._hash.digests

    def sync(self) -> None:
        with as_output_error("sync", self.path):
            os.fsync(self._fd)
        disk.fsync_folder(os.path.dirname(self.path))

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
