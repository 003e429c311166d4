"""A download that later attempts continue."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable
from typing import Any

from tokenmill.storage import disk
from tokenmill.storage.output_errors import as_output_error


class PartialFile:
    """A file that several attempts download by appending to it. It is never synced, because it is
    trusted only once the whole file has the right hash. `digest` covers its content, by the hash
    that `new_hash` makes."""

    def __init__(self, path: str, new_hash: Callable[[], Any]) -> None:
        self._path = path
        self._new_hash = new_hash
        self._hash = new_hash()
        self.num_bytes = 0
        with as_output_error("open", path):
            self._fd = self._opened()
            while block := os.pread(self._fd, 1 << 22, self.num_bytes):
                self._hash.update(block)
                self.num_bytes += len(block)

    @property
    def digest(self) -> str:
        return str(self._hash.hexdigest())

    def _opened(self) -> int:
        """The file, locked: waits for another run that fetches the same file."""
        while True:
            flags = os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC
            fd = os.open(self._path, flags, 0o666)
            with contextlib.suppress(OSError):  # no locks on this file system
                fcntl.flock(fd, fcntl.LOCK_EX)
            with contextlib.suppress(FileNotFoundError):
                if os.stat(self._path).st_ino == os.fstat(fd).st_ino:
                    return fd
            os.close(fd)  # the other run has finished it and given it its name

    def write(self, data: bytes) -> None:
        with as_output_error("write", self._path):
            disk.write_all(self._fd, memoryview(data))
        self._hash.update(data)
        self.num_bytes += len(data)

    def restart(self) -> None:
        with as_output_error("write", self._path):
            os.ftruncate(self._fd, 0)
        self._hash = self._new_hash()
        self.num_bytes = 0

    def __enter__(self) -> PartialFile:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)
