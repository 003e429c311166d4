"""A file that lines are appended to, by one process at a time, over several runs.

Nothing is synced: what power loss takes is the newest lines of a log. A process that is killed in
the middle of a line leaves it torn; the next one begins a new line after it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat

from tokenmill.storage import disk
from tokenmill.storage.output_errors import as_output_error

_FLAGS = os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK


class AppendedFile:
    """Raises FileExistsError if the path is no regular file, and BlockingIOError if another process
    has it open."""

    def __init__(self, path: str, hint: str) -> None:
        self.path = path
        self._hint = hint
        with as_output_error("open", path, hint):
            self._fd = os.open(path, _FLAGS, 0o666)
        try:
            self._require_own()
        except BaseException:
            os.close(self._fd)
            raise
        self.num_bytes = os.fstat(self._fd).st_size
        is_torn = self.num_bytes and os.pread(self._fd, 1, self.num_bytes - 1) != b"\n"
        self._before = b"\n" if is_torn else b""

    def _require_own(self) -> None:
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            raise FileExistsError(self.path)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:
            pass  # no locks on this file system

    def append(self, line: bytes) -> None:
        """Raises OutputError."""
        data = self._before + line
        with as_output_error("write", self.path, self._hint):
            disk.write_all(self._fd, memoryview(data))
        self._before = b""
        self.num_bytes += len(data)

    def close(self) -> None:
        """A file without a line is removed: nobody has anything from it."""
        if not self.num_bytes:
            with contextlib.suppress(OSError):
                os.unlink(self.path)
        os.close(self._fd)
