"""sha256 of files, as a whole or piece by piece; and whether what was written is still there."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import Any

from tokenmill.storage import heartbeat

# What a file is hashed in: a larger one has several sha256, so that several can compute them.
PIECE_BYTES = 256 << 20
_READ_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class Proof:
    """What tells later whether bytes that were written are still there: where they are in the
    file, their sha256 (of each piece, if `in_pieces`), and the sha256 that the store keeps of the
    file, if it keeps one."""

    start: int
    num_bytes: int
    sha256: tuple[str, ...]
    in_pieces: bool
    kept_sha256: str | None


class PieceHash:
    """The sha256 of each piece of PIECE_BYTES of what it is given."""

    def __init__(self) -> None:
        self._done: list[str] = []
        self._hash = hashlib.sha256()
        self._room = PIECE_BYTES

    def update(self, data: Any) -> None:
        view = memoryview(data)
        while len(view) > self._room:
            self._hash.update(view[: self._room])
            view = view[self._room :]
            self._done.append(self._hash.hexdigest())
            self._hash, self._room = hashlib.sha256(), PIECE_BYTES
        self._hash.update(view)
        self._room -= len(view)

    @property
    def digests(self) -> tuple[str, ...]:
        """One for a file of up to one piece, however small."""
        return (*self._done, self._hash.hexdigest())


def sha256_of(file: Any, in_pieces: bool = False) -> str | tuple[str, ...]:
    """Of all that is in an open file, or of each piece of it."""
    hasher: Any = PieceHash() if in_pieces else hashlib.sha256()
    block = memoryview(bytearray(1 << 20))
    while num_bytes := file.readinto(block):
        hasher.update(block[:num_bytes])
    return hasher.digests if in_pieces else str(hasher.hexdigest())


def sha256_at(path: str, start: int, stop: int, in_pieces: bool) -> tuple[str, ...] | None:
    """Of these bytes of a local file, or of each piece of them; None if it does not have them."""
    hasher: Any = PieceHash() if in_pieces else hashlib.sha256()
    try:
        with open(path, "rb", buffering=0) as file:
            while start < stop:
                data = os.pread(file.fileno(), min(_READ_BYTES, stop - start), start)
                if not data:
                    return None
                hasher.update(data)
                start += len(data)
                heartbeat.beat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return hasher.digests if in_pieces else (hasher.hexdigest(),)
