"""The bytes of an input, in chunks: a range of a plain file, or all of a compressed one.

decompression.py has the rules of compressed files: a truncated stream raises, as does garbage after
the end (tests cut at every byte, zstd with pyarrow 17 and 26). zstd windows over 128 MiB are
refused. Two faults cannot be detected: a file cut exactly between two members, and flipped bits in
zstd and lz4 frames written without a checksum.

A UTF-8 byte order mark at the start of the file is dropped. Files whose first bytes show that they
are not UTF-8 are refused, by signatures that cannot begin real text. NUL bytes are valid text, so
their number is no evidence.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from os.path import splitext

import pyarrow as pa

from tokenmill.corpus.opening import opened, ranged_file, unreadable_input
from tokenmill.corpus.readers.decompression import text_stream
from tokenmill.corpus.spans import Input, Span
from tokenmill.errors import InputError, NetworkError
from tokenmill.storage import heartbeat
from tokenmill.storage.range_reader import Range
from tokenmill.storage.store import store_of

Expect = Callable[[Iterable[Range]], None]
UTF8_BOM = b"\xef\xbb\xbf"
HEAD_BYTES = 1 << 16

# Longest first: a UTF-32 mark begins with a UTF-16 one.
_OTHER_ENCODINGS = (
    (b"\xff\xfe\0\0", "UTF-32LE"),
    (b"\0\0\xfe\xff", "UTF-32BE"),
    (b"\xff\xfe", "UTF-16LE"),
    (b"\xfe\xff", "UTF-16BE"),
)
_UNPACK = "unpack it, and give the folder as SOURCE"
# Magic bytes, the kind of file, and what to do.
_NO_TEXT = (
    (b"\x1f\x8b", "a gzip file", "decompress it, or let its name end in .gz"),
    (b"\x28\xb5\x2f\xfd", "a zstd file", "decompress it, or let its name end in .zst"),
    (b"PAR1", "a parquet file", "--input-format parquet"),
    (b"ARROW1\0\0", "an Arrow file", "--input-format arrow"),
    (b"PK\x03\x04", "a zip file", _UNPACK),
    (b"%PDF-", "a PDF file", "convert it to .txt first, and give that as SOURCE"),
    (b"BZh91AY&SY", "a bzip2 file", "decompress it, or let its name end in .bz2"),
    (b"\xfd7zXZ\0", "an xz file", "decompress it, or let its name end in .xz"),
    (b"\x04\x22\x4d\x18", "an lz4 file", "decompress it, or let its name end in .lz4"),
    (b"\x7fELF", "a program", "leave it out"),
)
_TAR_MAGIC, _TAR_MAGIC_AT = b"ustar", 257
MAX_DOCUMENT_BYTES = 1 << 30  # of a document that must be held in memory
MAX_COUNTED_BYTES = 1 << 30  # a second of counting, for the number of a line or document


@contextlib.contextmanager
def native_file(source: Input, is_mapped: bool = False) -> Iterator[tuple[pa.NativeFile, Expect]]:
    """An input opened for pyarrow, and a function that announces the ranges to be read. pyarrow
    does not wrap exceptions from a Python file, so a network failure stays one."""
    ranged = ranged_file(source)
    if ranged is not None:
        with contextlib.closing(ranged), pa.PythonFile(ranged, mode="r") as file:
            yield file, ranged.expect
        return
    try:
        file = pa.memory_map(source.path) if is_mapped else pa.OSFile(source.path)
    except (OSError, pa.ArrowException) as error:
        raise unreadable_input(source, error) from error
    with file:
        yield file, lambda ranges: None


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


class RowLines:
    """The lines on which rows begin, for `Reader.place`. Rows are asked for in order, so a span is
    scanned once, and not once per bad row. `lines_of` must not refer to the reader, or a file stays
    open until the garbage collector runs."""

    def __init__(self, lines_of: Callable[[Span], Iterator[int]]) -> None:
        """`lines_of` has the line of each row of a span, from 1, counted from its start."""
        self._lines_of = lines_of
        self._counted: tuple[Span, int, int, Iterator[int]] | None = None

    def place(self, span: Span, row: int) -> str:
        is_from_start = is_counted_from_start(span)
        if self._counted is None or self._counted[0] != span or self._counted[1] > row:
            is_counted = span.start and is_from_start
            before = chunks_of(span.input, 0, span.start, 1 << 20) if is_counted else ()
            num_before = sum(chunk.count(b"\n") for chunk in before)
            self._counted = (span, 0, num_before, self._lines_of(span))
        _, first, num_before, lines = self._counted
        line = num_before + next(itertools.islice(lines, row - first, None))
        self._counted = (span, row + 1, num_before, lines)
        suffix = "" if is_from_start or not span.start else f" from byte {span.start} on"
        return f"line {line}{suffix}"


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


def check_signature(source: Input, head: bytes) -> None:
    """Raise InputError if the file's first bytes show that it is not UTF-8 text."""
    path = source.name
    for mark, encoding in _OTHER_ENCODINGS:
        if head.startswith(mark):
            raise InputError(
                f"{path}: encoded as {encoding}, not UTF-8 (its first bytes are a byte order mark)",
                hint=f"convert it first: iconv -f {encoding[:6]} -t UTF-8",
            )
    if head[_TAR_MAGIC_AT:].startswith(_TAR_MAGIC):
        raise InputError(f"{path}: a tar archive, not text", hint=_UNPACK)
    for magic, what, hint in _NO_TEXT:
        if head.startswith(magic):
            raise InputError(f"{path}: {what}, not text", hint=hint)


def begins_as_text(head: bytes) -> bool:
    """Whether the first bytes are UTF-8 that can be printed, as no compressed file begins."""
    start = head[:64].decode(errors="replace").removesuffix("\ufffd")  # may be cut
    return "\ufffd" not in start and "".join(start.split()).isprintable()
