"""Compressed inputs as streams of text, one rule for every compression.

Consecutive members or frames are one stream. A stream that is cut short raises OSError, and so does
garbage after its end; both read no more than requested, so a bomb costs time, not memory. pyarrow
reads zstd and lz4, gunzip.py gzip. bzip2 and xz are Python's: pyarrow has no xz, and its bzip2
fails at a member without text. MB/s of text, one thread: lz4 1,500, xz 100-300, bzip2 40.
"""

from __future__ import annotations

import bz2
import lzma
from collections.abc import Callable
from typing import Protocol

import pyarrow as pa

from tokenmill.corpus.readers.gunzip import GzipStream

_FEED_BYTES = 256 << 10  # of the file at a time
_XZ_MEMORY = 512 << 20  # of a decoder; `xz -9` writes files that need 65 MiB


class TextStream(Protocol):
    def read(self, size: int, /) -> bytes:
        """`size` bytes of text, fewer only at the end. OSError if the stream is not whole."""


class _Member(Protocol):
    """What the decompressors of bz2 and lzma have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _MemberStream:
    def __init__(self, file: pa.NativeFile, new_member: Callable[[], _Member]) -> None:
        self._file = file
        self._new_member = new_member
        self._member: _Member | None = None
        self._fed = b""  # read from the file, not yet decompressed

    def read(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size and (part := self._some(size)):
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _some(self, max_bytes: int) -> bytes:
        """Some text; empty after the last member."""
        while True:
            if not self._fed and (self._member is None or self._member.needs_input):
                self._fed = self._file.read(_FEED_BYTES)
                if not self._fed and self._member is None:
                    return b""
                if not self._fed:
                    raise OSError("Truncated compressed stream")
            self._member = self._member or self._new_member()
            fed, self._fed = self._fed, b""
            try:
                text = self._member.decompress(fed, max_bytes)
            except (lzma.LZMAError, ValueError, EOFError) as error:
                raise OSError(str(error)) from error
            if self._member.eof:
                self._fed, self._member = self._member.unused_data, None
            if text:
                return text


def _xz_member() -> _Member:
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)


def text_stream(file: pa.NativeFile, compression: str) -> TextStream:
    """The text of a compressed file, from its beginning."""
    if compression == "gzip":
        return GzipStream(file)
    if compression == "bzip2":
        return _MemberStream(file, bz2.BZ2Decompressor)
    if compression == "xz":
        return _MemberStream(file, _xz_member)
    stream: TextStream = pa.CompressedInputStream(file, compression)
    return stream
