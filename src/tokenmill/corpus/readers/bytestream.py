"""The bytes of an input, in chunks: a range of a plain file, or all of a compressed one.

decompression.py has the rules of compressed files: a truncated stream raises, as does garbage after
the end (tests cut at every byte, zstd with pyarrow 17 and 26). zstd windows over 128 MiB are
refused. Two faults cannot be detected: a file cut exactly between two members, and flipped bits in
zstd and lz4 frames written without a checksum.

A UTF-8 byte order mark at the start of the file is dropped.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from os.path import splitext

import pyarrow as pa

from tokenmill.corpus.opening import opened, unreadable_input
from tokenmill.corpus.readers.decompression import text_stream
from tokenmill.corpus.readers.native import native_file
from tokenmill.corpus.readers.signature import (
    HEAD_BYTES,
    UTF8_BOM,
    begins_as_text,
    check_signature,
)
from tokenmill.corpus.spans import Input, Span
from tokenmill.errors import InputError, NetworkError
from tokenmill.storage import heartbeat
from tokenmill.storage.store import store_of

MAX_DOCUMENT_BYTES = 1 << 30  # of a document that must be held in memory
MAX_COUNTED_BYTES = 1 << 30  # a second of counting, for the number of a line or document


def chunks_of(source: Input, start: int, stop: int, chunk_bytes: int) -> Iterator[bytes]:
    """Bytes [start, stop) of a plain file; of a compressed file all bytes, decompressed."""
    chunks = (
        _decompressed(source, stop, chunk_bytes)
        if source.compression
        else _plain(source, start, stop, chunk_bytes)
    )
    return _heard(_without_mark(chunks) if start == 0 else chunks)


def _heard(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Each chunk with a heartbeat: a file of which --where lets nothing in has no other step."""
    for chunk in chunks:
        heartbeat.beat()
        yield chunk


def head_of(source: Input, num_bytes: int = HEAD_BYTES) -> bytes:
    """The beginning of the text, up to `num_bytes`. Raises InputError if it is not text."""
    head = b""
    for chunk in chunks_of(source, 0, min(num_bytes, source.num_bytes), num_bytes):
        head += chunk
        if len(head) >= num_bytes:
            break
    check_signature(source, head)
    return head


def is_counted_from_start(span: Span) -> bool:
    """Whether a span's lines or documents are counted from the start of the file, by reading the
    bytes before it. Otherwise they are counted from the start of the span.

    Decided by the input's name, not its path: the numbers of an object must be the same if `verify`
    reads a copy on disk.
    """
    return span.start <= MAX_COUNTED_BYTES and store_of(span.input.name).is_local


def too_long(source: Input, what: str, offset: int | None = None) -> InputError:
    if offset is not None:
        what += f" at byte {offset}{' of the decompressed text' if source.compression else ''}"
    return InputError(
        f"{source.name}: {what} is longer than {MAX_DOCUMENT_BYTES} bytes",
        hint="split it, or leave the file out",
    )


def _plain(source: Input, start: int, stop: int, chunk_bytes: int) -> Iterator[bytes]:
    try:
        with opened(source, [(start, stop)]) as file:
            file.seek(start)
            while start < stop:
                chunk = file.read(min(chunk_bytes, stop - start))
                if not chunk:
                    raise InputError(f"{source.name}: ends at byte {start}, before byte {stop}")
                start += len(chunk)
                yield chunk
    except OSError as error:
        raise unreadable_input(source, error) from error


def _decompressed(source: Input, expected: int, chunk_bytes: int) -> Iterator[bytes]:
    """The whole file, decompressed; `expected` is how much of the file will probably be read."""
    assert source.compression is not None
    hint = "fetch it again, and start again with --overwrite"
    if source.num_bytes == 0:
        raise InputError(f"{source.name}: empty, not a {source.compression} stream", hint)
    with native_file(source) as (file, expect):
        expect([(0, expected)])
        stream, num_chunks = text_stream(file, source.compression), 0
        while True:
            try:
                chunk = stream.read(chunk_bytes)
            except NetworkError:
                raise
            except (OSError, pa.ArrowException) as error:
                if num_chunks == 0:
                    _require_compressed(source)
                near = f"broken {source.compression} stream near byte {file.tell()}"
                if "too much memory" in str(error):
                    hint = "its window is over 128 MiB; decompress it first: zstd -d --long=31"
                raise InputError(f"{source.name}: {near}: {error}", hint) from error
            if not chunk:
                return
            num_chunks += 1
            yield chunk


def _require_compressed(source: Input) -> None:
    """Raise InputError for a file that is named like a compressed one and begins as text."""
    with contextlib.suppress(OSError), opened(source, [(0, HEAD_BYTES)]) as file:
        if begins_as_text(bytes(file.read(HEAD_BYTES))):
            raise InputError(
                f"{source.name}: text, not a {source.compression} file",
                hint=f"let its name end in {splitext(splitext(source.name)[0])[1] or '.txt'}",
            )


def _without_mark(chunks: Iterator[bytes]) -> Iterator[bytes]:
    head = b""
    for chunk in chunks:
        head += chunk
        if len(head) >= len(UTF8_BOM):
            break
    head = head.removeprefix(UTF8_BOM)
    if head:
        yield head
    yield from chunks
