"""A file that exists under its final name only once it is whole and durable.

Every commit on a disk is the same four steps: write a file under a temporary name, fsync it, rename
it to its final name, fsync the folder. A reader therefore sees no file or the whole file, and a
file it sees survives power loss. An object is first written to a local file and then uploaded.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from typing import Any

from tokenmill.storage import disk
from tokenmill.storage.output_errors import as_output_error

_NEW = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC


class NewFile:
    """Use as a context manager; without `commit()` the temporary file is removed on exit.

    `path` is the temporary file; `place` gives it its final name; `closing` is left at the end.
    `digest` (sha256 by default) and `num_bytes` cover everything written.
    """

    def __init__(
        self,
        path: str,
        place: Callable[[str], object],
        hasher: Any = None,
        is_synced: bool = True,
        closing: contextlib.AbstractContextManager[object] | None = None,
    ) -> None:
        self.path = path
        self.num_bytes = 0
        self._place = place
        self._hash = hashlib.sha256() if hasher is None else hasher
        self._is_synced = is_synced
        self._closing = closing or contextlib.nullcontext()
        with as_output_error("create", path):
            self._fd = os.open(path, _NEW, 0o666)  # less the umask

    def write(self, data: Any) -> None:
        """Append anything with the buffer protocol."""
        with as_output_error("write", self.path):
            self.num_bytes += disk.write_hashed(self._fd, data, self._hash)

    @property
    def digest(self) -> str:
        return str(self._hash.hexdigest())

    def commit(self) -> None:
        self.finish()
        self._place(self.path)

    def finish(self) -> None:
        """Close the temporary file, synced if it must be durable."""
        fd, self._fd = self._fd, -1
        with as_output_error("write", self.path):
            try:
                if self._is_synced:
                    os.fsync(fd)
            finally:
                os.close(fd)

    def __enter__(self) -> NewFile:
        return self

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        with contextlib.suppress(OSError):
            os.unlink(self.path)
        self._closing.__exit__(None, None, None)
