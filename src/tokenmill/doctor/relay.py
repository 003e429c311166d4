"""Passes the command's stderr on, byte for byte, and searches it.

On a terminal the command gets its own terminal, so that progress bars look the same.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import signal
import termios
from types import FrameType

from tokenmill.doctor.signs import Signs

_CHUNK_BYTES = 1 << 16


class Relay:
    def __init__(self, target: int) -> None:
        self.signs = Signs()
        self._target = target
        self._ends_line = True
        self._is_terminal = os.isatty(target)
        self.source, self.command_end = pty.openpty() if self._is_terminal else os.pipe()
        os.set_blocking(self.source, False)
        if self._is_terminal:
            attributes = termios.tcgetattr(self.command_end)
            attributes[1] &= ~termios.OPOST  # the real terminal does that
            termios.tcsetattr(self.command_end, termios.TCSANOW, attributes)
            self._copy_size()
            signal.signal(signal.SIGWINCH, self._copy_size)

    def begin(self) -> None:
        """Close our copy of the command's end, or the end of the stream is never seen."""
        os.close(self.command_end)

    def pump(self) -> bool:
        """Pass on the available bytes; returns whether more may come."""
        while True:
            try:
                data = os.read(self.source, _CHUNK_BYTES)
            except BlockingIOError:
                return True
            except OSError:  # a terminal that everyone closed
                return False
            if not data:
                return False
            self.signs.feed(data)
            self._ends_line = data.endswith((b"\n", b"\r"))
            _write_all(self._target, data)

    def say(self, line: str) -> None:
        """Write our own line, but not in the middle of one of the command's lines."""
        _write_all(self._target, f"{'' if self._ends_line else chr(10)}{line}\n".encode())
        self._ends_line = True

    def close(self) -> None:
        self.pump()
        self.signs.close()
        os.close(self.source)
        if self._is_terminal:
            signal.signal(signal.SIGWINCH, signal.SIG_DFL)

    def _copy_size(self, signum: int = 0, frame: FrameType | None = None) -> None:
        with contextlib.suppress(OSError):
            size = fcntl.ioctl(self._target, termios.TIOCGWINSZ, bytes(8))
            fcntl.ioctl(self.source, termios.TIOCSWINSZ, size)


def _write_all(fd: int, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError):
        while data:
            data = data[os.write(fd, data) :]
