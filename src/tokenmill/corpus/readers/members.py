"""A compressed stream of consecutive members, by a library that decompresses one at a time."""

from __future__ import annotations

import lzma
from collections.abc import Callable
from typing import Protocol

import pyarrow as pa
from isal.igzip_lib import IsalError

_FEED_BYTES = 256 << 10  # of the file at a time


class BrokenStream(OSError):
    """The compressed data is truncated or damaged; the file itself could be read."""


class StreamMember(Protocol):
    """The common interface of the decompressors of bz2, lzma and isal."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class MemberStream:
    """`new_member` gets the member's first bytes, and may raise BrokenStream."""

    def __init__(self, file: pa.NativeFile, new_member: Callable[[bytes], StreamMember]) -> None:
        self._file = file
        self._new_member = new_member
        self._member: StreamMember | None = None
        self._fed = b""  # read from the file, not yet decompressed

    def read(self, size: int) -> bytes:
        """`size` bytes of text, fewer only at the end."""
        parts: list[bytes] = []
        while size and (part := self.some(size)):
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def some(self, max_bytes: int) -> bytes:
        """Some text; empty after the last member."""
        while True:
            if not self._fed and (self._member is None or self._member.needs_input):
                self._fed = self._file.read(_FEED_BYTES)
                if not self._fed and self._member is None:
                    return b""
                if not self._fed:
                    raise BrokenStream("Truncated compressed stream")
            self._member = self._member or self._new_member(self._fed)
            fed, self._fed = self._fed, b""
            text = _decompressed(self._member, fed, max_bytes)
            if self._member.eof:
                self._fed, self._member = self._member.unused_data, None
            if text:
                return text


def _decompressed(member: StreamMember, data: bytes, max_bytes: int) -> bytes:
    try:
        return member.decompress(data, max_bytes)
    except (IsalError, lzma.LZMAError, OSError, ValueError, EOFError) as error:  # type: ignore[misc]  # its stubs call IsalError an instance
        raise BrokenStream(str(error)) from error
