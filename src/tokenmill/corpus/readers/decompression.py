"""Compressed inputs as streams of text, with the same rules for every compression.

Consecutive members or frames are one stream. A truncated stream raises OSError, and so does garbage
after its end. No more is decompressed than requested, so a bomb costs time, not memory. pyarrow
reads zstd and lz4, ISA-L gzip, and Python bzip2 and xz: pyarrow has no xz, and its bzip2 fails at a
member without text. MB/s of text, one thread: lz4 1,500, xz 100-300, bzip2 40.

pyarrow decides what a valid gzip stream is: if ISA-L refuses a stream, pyarrow reads it again from
the beginning and skips the text already returned. So a broken file gives pyarrow's error, and a
stream that only zlib understands is read.
"""

from __future__ import annotations

import bz2
import lzma
from collections.abc import Callable
from typing import Protocol

import pyarrow as pa
from isal.igzip_lib import DECOMP_GZIP, IgzipDecompressor, IsalError

_FEED_BYTES = 256 << 10  # of the file at a time
_XZ_MEMORY = 512 << 20  # of a decoder; `xz -9` writes files that need 65 MiB


class TextStream(Protocol):
    def read(self, size: int, /) -> bytes:
        """`size` bytes of text, fewer only at the end. Raises OSError for a broken stream."""


def text_stream(file: pa.NativeFile, compression: str) -> TextStream:
    """The text of a compressed file, from its beginning."""
    if compression == "gzip":
        return GzipStream(file)
    if compression == "bzip2":
        return MemberStream(file, lambda head: bz2.BZ2Decompressor())
    if compression == "xz":
        return MemberStream(file, lambda head: lzma.LZMADecompressor(lzma.FORMAT_XZ, _XZ_MEMORY))
    stream: TextStream = pa.CompressedInputStream(file, compression)
    return stream


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


_RESERVED_FLAGS = 0xE0  # in the fourth byte of a member; zlib refuses them, ISA-L does not


class GzipStream:
    def __init__(self, file: pa.NativeFile) -> None:
        self._file = file
        self._members = MemberStream(file, _gzip_member)
        self._num_bytes = 0
        self._strict: pa.CompressedInputStream | None = None

    def read(self, size: int) -> bytes:
        """`size` bytes of text, fewer only at the end. Raises OSError for a broken stream."""
        parts: list[bytes] = []
        while size and self._strict is None:
            try:
                part = self._members.some(size)
            except BrokenStream:
                self._strict = self._reread()
                break
            if not part:
                break
            parts.append(part)
            size -= len(part)
            self._num_bytes += len(part)
        if self._strict is not None:
            parts.append(self._strict.read(size))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _reread(self) -> pa.CompressedInputStream:
        self._file.seek(0)
        stream = pa.CompressedInputStream(self._file, "gzip")
        left = self._num_bytes
        while left:
            skipped = stream.read(min(left, 1 << 20))
            assert skipped, "ISA-L found more text than zlib"
            left -= len(skipped)
        return stream


def _gzip_member(head: bytes) -> StreamMember:
    if head[3:4] and head[3] & _RESERVED_FLAGS:
        raise BrokenStream("reserved flags are set")
    member: StreamMember = IgzipDecompressor(flag=DECOMP_GZIP)
    return member
