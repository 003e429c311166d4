"""Compressed inputs as streams of text, one rule for every compression.

Consecutive members or frames are one stream. A stream that is cut short raises OSError, and so does
garbage after its end; both read no more than requested, so a bomb costs time, not memory. pyarrow
reads zstd and lz4, gunzip.py gzip. bzip2 and xz are Python's: pyarrow has no xz, and its bzip2
fails at a member without text. MB/s of text, one thread: lz4 1,500, xz 100-300, bzip2 40.
"""

from __future__ import annotations

import bz2
import lzma
from typing import Protocol

import pyarrow as pa

from tokenmill.corpus.readers.gunzip import GzipStream
from tokenmill.corpus.readers.members import MemberStream, StreamMember

_XZ_MEMORY = 512 << 20  # of a decoder; `xz -9` writes files that need 65 MiB


class TextStream(Protocol):
    def read(self, size: int, /) -> bytes:
        """`size` bytes of text, fewer only at the end. OSError if the stream is not whole."""


def _bzip2_member(_: bytes) -> StreamMember:
    return bz2.BZ2Decompressor()


def _xz_member(_: bytes) -> StreamMember:
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)


def text_stream(file: pa.NativeFile, compression: str) -> TextStream:
    """The text of a compressed file, from its beginning."""
    if compression == "gzip":
        return GzipStream(file)
    if compression == "bzip2":
        return MemberStream(file, _bzip2_member)
    if compression == "xz":
        return MemberStream(file, _xz_member)
    stream: TextStream = pa.CompressedInputStream(file, compression)
    return stream
