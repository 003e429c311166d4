"""Turns signals into an orderly stop."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from types import FrameType


class Interrupted(BaseException):
    """A signal asked the process to end. A BaseException, so that no handler swallows it."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


_received: list[int] = []


def received_signal() -> int:
    """The signal that asked this process to end; 0: none did. What its handler raises may have
    become another error: a library raises ImportError when it is interrupted while it loads, and a
    closed terminal takes no more messages."""
    return _received[0] if _received else 0


def unwind_on_signals() -> None:
    """Have SIGTERM and SIGHUP raise `Interrupted`, and Ctrl-C KeyboardInterrupt: a command that
    does not stop in an order of its own then removes its temporary files on its way out."""

    def unwind(signum: int, frame: FrameType | None) -> None:
        _received.append(signum)
        signal.signal(signum, signal.SIG_DFL)  # another one ends the process
        raise KeyboardInterrupt if signum == signal.SIGINT else Interrupted(signum)

    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(signum) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(signum, unwind)


class SignalStop:
    """SIGINT, SIGTERM and SIGHUP: the first signal stops gracefully, the second at once.

    While slices are encoded, the first signal is only noted, and the runner ends gracefully. At
    other times, and on a second signal, `Interrupted` is raised. Another signal during that ends
    the process. Every commit is atomic, so any moment is safe.
    """

    def __init__(self) -> None:
        self.signum = 0
        self.can_wait = False
        self._is_raised = False

    def install(self) -> None:
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(signum) is not signal.SIG_IGN:  # as set by nohup or a shell's &
                signal.signal(signum, self._handle)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        is_first, self.signum = self.signum == 0, signum
        _received.append(signum)
        if is_first and self.can_wait:
            again = "press Ctrl-C again" if signum == signal.SIGINT else "send the signal again"
            _say(f"\nstopping; {again} to stop at once\n")
            return
        if self._is_raised:
            _say("\nstopped at once. To continue, run the same command again.\n")
            self.die_by(signum)
        self._is_raised = True
        raise Interrupted(signum)

    @staticmethod
    def die_by(signum: int) -> None:
        """End by that signal, so that shells and schedulers see it."""
        signal.signal(signum, signal.SIG_DFL)
        os.kill(os.getpid(), signum)


def _say(text: str) -> None:
    """Write to stderr from a signal handler: bypasses its buffer, which may be in use, and does not
    write if that would block."""
    with contextlib.suppress(OSError):
        if select.select((), (2,), (), 0)[1]:
            os.write(2, text.encode())
