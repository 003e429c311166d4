"""Heartbeats: tell the process that watches this one for stalls that bytes are moving.

A slice reports its steps. A shard has no steps and may take longer than the stall timeout, but its
bytes are read, hashed, written and sent block by block.
"""

from __future__ import annotations

import time
from collections.abc import Callable

_tell: Callable[[], None] | None = None
_seconds = 1.0
_told_at = 0.0


def listen(tell: Callable[[], None], seconds: float = 1.0) -> None:
    """Have `beat` call `tell`, in any thread, at most once every `seconds`."""
    global _tell, _seconds
    _tell, _seconds = tell, seconds


def beat() -> None:
    """Report that some bytes were moved."""
    global _told_at  # noqa: PLW0603
    if _tell is not None and time.monotonic() - _told_at >= _seconds:
        _told_at = time.monotonic()
        _tell()
