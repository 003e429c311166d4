"""Where the bytes of a remote file come from.

A download asks the file's source for a stretch, and again for what is missing of it after an error
or in a later run. Another way to get the same bytes (Xet) is another class; if that fails, it can
hand over to HTTP inside `stream`, at the byte that it has reached.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Protocol


class HandedOver(Exception):
    """The source gets the bytes in another way from now on: request the rest at once."""


class ByteSource(Protocol):
    """One remote file. Several threads may stream stretches of it at the same time."""

    @property
    def max_streams(self) -> int:
        """How many stretches may be requested at a time; it may change during the download. With 1,
        a stretch is as long as possible: up to the next bytes that are here, or to the end."""

    @property
    def fills_line(self) -> bool:
        """Whether one stream uses the whole line, because the source fetches in parallel itself. Of
        such sources, at most the next file is started while the last bytes of one arrive."""

    @property
    def latency_seconds(self) -> float:
        """How long an answer takes to begin, as far as is known; 0: not at all."""

    def stream(self, start: int, stop: int) -> Generator[memoryview, None, None]:
        """The bytes from `start` to `stop`, in order, in views that are valid until the next one.
        It may end early, or raise an error that `storage/retry.py` knows: the rest is then
        requested again, after HandedOver without a pause. Closing the generator ends it."""
