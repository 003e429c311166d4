"""Signs of life: whoever watches this process for stalls is told, now and then, that bytes move.

A slice tells of its steps. A shard may take longer than a stall is waited for, and has none; but
what it is made of is read, hashed, written and sent block by block.
"""

from __future__ import annotations

import time
from collections.abc import Callable

_tell: Callable[[], None] | None = None
_seconds = 1.0
_told_at = 0.0


def listen(tell: Callable[[], None], seconds: float = 1.0) -> None:
    """Have `tell` called by `beat`, in whichever thread, at most once in so many seconds."""
    global _tell, _seconds
    _tell, _seconds = tell, seconds


def beat() -> None:
    """Some bytes were moved."""
    global _told_at  # noqa: PLW0603
    if _tell is not None and time.monotonic() - _told_at >= _seconds:
        _told_at = time.monotonic()
        _tell()
