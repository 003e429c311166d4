"""Compressed inputs as streams of text, with the same rules for every compression.

Consecutive members or frames are one stream. A truncated stream raises OSError, and so does garbage
after its end. No more is decompressed than requested, so a bomb costs time, not memory. pyarrow
reads zstd and lz4, gunzip.py gzip, and Python bzip2 and xz: pyarrow has no xz, and its bzip2 fails
at a member without text. MB/s of text, one thread: lz4 1,500, xz 100-300, bzip2 40.
"""

from __future__ import annotations

import bz2
import lzma
from typing import Protocol

import pyarrow as pa

from tokenmill.corpus.readers.gunzip import GzipStream
from tokenmill.corpus.readers.members import MemberStream

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
