"""Where the bytes of a remote file come from.

A download asks the file's source for a stretch, and again for what is missing of it after an error
or in a later run. So another way to get the same bytes (Xet) is another class, and one that fails
can hand over to HTTP inside `stream`, at the byte that it has reached.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Protocol


class HandedOver(Exception):
    """The source has another way to the bytes from now on: the rest is to be asked for at once."""


class ByteSource(Protocol):
    """One file, elsewhere. Several threads may stream stretches of it at the same time."""

    @property
    def max_streams(self) -> int:
        """How many stretches may be asked for at a time. It may change while the file is fetched.
        With 1, a stretch is as long as it can be: up to the next bytes that are here already, or to
        the end."""

    @property
    def fills_line(self) -> bool:
        """Whether it fetches in parallel by itself, so that a stream of it takes what the line
        gives. Of such sources, the next file is begun while the last bytes of one arrive, and no
        more."""

    @property
    def latency_seconds(self) -> float:
        """How long an answer takes to begin, as far as is known; 0: not at all."""

    def stream(self, start: int, stop: int) -> Generator[memoryview, None, None]:
        """The bytes from `start` to `stop`, in order. Each view is valid until the next is asked
        for. It may end early, or raise an error that `storage/retry.py` knows: the rest is asked
        for again, after HandedOver without a pause. Closing the generator ends it."""
