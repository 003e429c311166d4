"""The messages of an Arrow IPC file or stream: where record batches begin, how many rows they have.

A stream is a schema message, then dictionary and record batch messages, then an end marker. The
format lets writers leave it out, but none known does, and without it a stream that was cut between
two batches looks whole. A file is the same after 8 bytes of magic, plus a footer. Walking the
messages touches only their headers (in a memory map; 8 us each), so that a slice deep inside a
stream of 5 GB is planned and reached without reading the bytes before it. pyarrow does not give a
message's number of rows without decoding it, so `_batch_header` parses the header, a flatbuffer. It
reads the number of rows, which must equal that of the first column, or a flipped bit could make a
batch look empty; and the start of each compressed buffer, which begins with its decompressed size.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from tokenmill.errors import InputError, NetworkError

FILE_MAGIC = b"ARROW1\0\0"
FEATHER_V1_MAGIC = b"FEA1"
READ_FAILURES = (pa.ArrowException, OSError, EOFError, KeyError, UnicodeError)

# As for row groups of parquet: larger sizes are taken for a decompression bomb.
MAX_BATCH_BYTES = 4 << 30
MAX_RATIO = 1000  # uncompressed : compressed, for batches over MIN_BOMB_BYTES
MIN_BOMB_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Batch:
    """One record batch message."""

    start: int
    stop: int
    num_rows: int
    body_bytes: int
    is_compressed: bool


@dataclass(frozen=True, slots=True)
class BatchIndex:
    """The result of a walk over all messages."""

    schema: pa.Schema
    batches: tuple[Batch, ...]
    has_dictionaries: bool


def batch_index_of(file: pa.NativeFile, path: str, is_file: bool) -> BatchIndex:
    """Walk all messages. A truncated message is an error, not the end of the data."""
    start = len(FILE_MAGIC) if is_file else 0
    schema: pa.Schema | None = None
    batches: list[Batch] = []
    has_dictionaries, end = False, start
    for message, begin, end in _messages(file, path, start):
        if schema is None:
            schema = _schema_of(message, path)
        elif message.type in ("dictionary", "record batch"):
            body = message.body if message.body is not None else pa.py_buffer(b"")
            try:
                header = _batch_header(message)
            except struct.error as error:
                raise InputError(f"{path}: byte {begin}: a broken message header") from error
            if header.num_rows < 0 or (len(schema) and header.column_rows != header.num_rows):
                raise InputError(
                    f"{path}: byte {begin}: a {message.type} of {header.num_rows} rows, and "
                    f"{header.column_rows} in its first column",
                    hint="the file is damaged; fetch it again",
                )
            if header.is_compressed:
                _check_size(header, body, f"{path}: byte {begin}: a {message.type}")
            if message.type == "dictionary":
                has_dictionaries = True
            else:
                batches.append(Batch(begin, end, header.num_rows, body.size, header.is_compressed))
        else:
            raise InputError(f"{path}: byte {begin}: unexpected {message.type} message")
    if schema is None:
        raise InputError(f"{path}: not an Arrow file or stream: it holds no schema")
    if not is_file and file.tell() == end:
        raise InputError(
            f"{path}: ends without the end marker of a stream: cut short, or its writer died",
            hint="fetch it again, or write it again to the end",
        )
    if not is_file and file.tell() < file.size():
        raise InputError(f"{path}: {file.size() - file.tell()} bytes follow the end of the stream")
    return BatchIndex(schema, tuple(batches), has_dictionaries)


def _messages(
    file: pa.NativeFile, path: str, start: int
) -> Iterator[tuple[pa.ipc.Message, int, int]]:
    file.seek(start)
    while True:
        begin = file.tell()
        try:
            message = pa.ipc.read_message(file)
        except EOFError:
            return
        except NetworkError:
            raise
        except READ_FAILURES as error:
            what = "not an Arrow file or stream" if begin == start else f"byte {begin}: cut short"
            raise InputError(
                f"{path}: {what}: {error}", hint="fetch it again if it was cut short"
            ) from error
        yield message, begin, file.tell()


def _schema_of(message: pa.ipc.Message, path: str) -> pa.Schema:
    # read_schema takes any message for a schema, and segfaults on another kind.
    if message.type != "schema":
        raise InputError(f"{path}: not an Arrow file or stream: it begins with a {message.type}")
    try:
        return pa.ipc.read_schema(message)
    except READ_FAILURES as error:
        raise InputError(f"{path}: not an Arrow file or stream: {error}") from error


@dataclass(frozen=True, slots=True)
class _Header:
    num_rows: int
    column_rows: int | None  # of the first column, if there is one
    is_compressed: bool
    buffers: tuple[int, ...]  # the start of each in the body, if compressed


def _batch_header(message: pa.ipc.Message) -> _Header:
    """The header of a record batch or dictionary message; struct.error if it is broken.

    Message { version, header_type, header, bodyLength }, DictionaryBatch { id, data, isDelta },
    RecordBatch { length, nodes, buffers, compression }, FieldNode { length, null_count },
    Buffer { offset, length }: github.com/apache/arrow/blob/main/format/Message.fbs
    """
    buffer = _Flatbuffer(message.metadata.to_pybytes())
    batch = buffer.followed(buffer.field(buffer.followed(0), 2))
    if message.type == "dictionary":
        batch = buffer.followed(buffer.field(batch, 1))
    length = buffer.field(batch, 0)
    nodes = buffer.pairs(buffer.field(batch, 1))
    is_compressed = bool(buffer.field(batch, 3))
    return _Header(
        buffer.number("<q", length) if length else 0,
        nodes[0] if nodes else None,
        is_compressed,
        buffer.pairs(buffer.field(batch, 2)) if is_compressed else (),
    )


class _Flatbuffer:
    """The needed subset of a flatbuffer. Places are byte offsets; 0 means none."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def number(self, kind: str, place: int) -> int:
        return int(struct.unpack_from(kind, self._data, place)[0])

    def field(self, table: int, index: int) -> int:
        """Where a table's field is, or 0 if it has none."""
        vtable = table - self.number("<i", table)
        slot = 4 + 2 * index
        if vtable < 0 or slot + 2 > self.number("<H", vtable):
            return 0
        offset = self.number("<H", vtable + slot)
        return table + offset if offset else 0

    def followed(self, place: int) -> int:
        return place + self.number("<I", place)

    def pairs(self, place: int) -> tuple[int, ...]:
        """The first numbers of a list of pairs."""
        if not place:
            return ()
        vector = self.followed(place)
        count = min(self.number("<I", vector), len(self._data))
        return struct.unpack_from(f"<{2 * count}q", self._data, vector + 4)[::2]


def _check_size(header: _Header, body: pa.Buffer, what: str) -> None:
    """Raise InputError for a compressed batch that must be a bomb. Each buffer begins with its
    decompressed size."""
    data = memoryview(body)
    num_bytes = sum(
        max(0, struct.unpack_from("<q", data, start)[0])
        for start in header.buffers
        if 0 <= start <= len(data) - 8
    )
    is_bomb = num_bytes > MIN_BOMB_BYTES and num_bytes > MAX_RATIO * len(data)
    if is_bomb or num_bytes > MAX_BATCH_BYTES:
        raise InputError(
            f"{what} announces {num_bytes} bytes in {len(data)} compressed ones"
            + (": a bomb" if is_bomb else f" (at most {MAX_BATCH_BYTES} are read)"),
            hint="write the file again with smaller record batches",
        )
