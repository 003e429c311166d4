"""sha256 of files, whole or in pieces."""

from __future__ import annotations

import hashlib
import os
from typing import Any

from tokenmill.storage import heartbeat

# A larger file has one sha256 per piece, so that several workers can hash it in parallel.
PIECE_BYTES = 256 << 20
_READ_BYTES = 256 << 10


class PieceHash:
    """The sha256 of each PIECE_BYTES of its input."""

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
        """At least one, even for an empty file."""
        return (*self._done, self._hash.hexdigest())


def sha256_of(file: Any, in_pieces: bool = False) -> str | tuple[str, ...]:
    """The sha256 of an open file's content, or of each piece."""
    hasher: Any = PieceHash() if in_pieces else hashlib.sha256()
    block = memoryview(bytearray(1 << 20))
    while num_bytes := file.readinto(block):
        hasher.update(block[:num_bytes])
    return hasher.digests if in_pieces else str(hasher.hexdigest())


def file_digest(path: str, hasher: Any) -> str:
    """The checksum of a local file by this hasher."""
    with open(path, "rb") as file:
        while block := file.read(1 << 22):
            hasher.update(block)
    return str(hasher.hexdigest())


def sha256_at(path: str, start: int, stop: int, in_pieces: bool) -> tuple[str, ...] | None:
    """The sha256 of these bytes of a local file, or of each piece; None if the file is shorter."""
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
