"""The messages of an Arrow IPC file or stream: where record batches begin, how many rows they have.

A stream is a schema message, then dictionary and record batch messages, then an end marker that
writers may leave out. A file is the same after 8 bytes of magic, plus a footer. Walking the
messages touches their headers only (a memory map; 8 us each), so that a slice deep inside a stream
of 5 GB is planned and reached without reading what lies before it. pyarrow does not tell a
message's number of rows without decoding it; the header is a flatbuffer, and `_batch_header` reads
two of its fields.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from tokenmill.errors import InputError

FILE_MAGIC = b"ARROW1\0\0"
FEATHER_V1_MAGIC = b"FEA1"
READ_FAILURES = (pa.ArrowException, OSError, EOFError, KeyError, UnicodeError)


@dataclass(frozen=True, slots=True)
class Batch:
    """One record batch message."""

    start: int
    stop: int
    num_rows: int
    body_bytes: int
    is_compressed: bool


@dataclass(frozen=True, slots=True)
class Layout:
    """What a walk over all messages found."""

    schema: pa.Schema
    batches: tuple[Batch, ...]
    has_dictionaries: bool


def layout_of(file: pa.MemoryMappedFile, path: str, is_file: bool) -> Layout:
    """Walk all messages. A message that is cut short is an error, not the end of the data."""
    start = len(FILE_MAGIC) if is_file else 0
    schema: pa.Schema | None = None
    batches: list[Batch] = []
    has_dictionaries = False
    for message, begin, end in _messages(file, path, start):
        if schema is None:
            schema = _schema_of(message, path)
        elif message.type == "dictionary":
            has_dictionaries = True
        elif message.type == "record batch":
            body_bytes = message.body.size if message.body is not None else 0
            try:
                num_rows, is_compressed = _batch_header(message.metadata.to_pybytes())
            except struct.error as error:
                raise InputError(f"{path}: byte {begin}: a broken message header") from error
            batches.append(Batch(begin, end, num_rows, body_bytes, is_compressed))
        else:
            raise InputError(f"{path}: byte {begin}: unexpected {message.type} message")
    if schema is None:
        raise InputError(f"{path}: not an Arrow file or stream: it holds no schema")
    if not is_file and file.tell() < file.size():
        raise InputError(f"{path}: {file.size() - file.tell()} bytes follow the end of the stream")
    return Layout(schema, tuple(batches), has_dictionaries)


def _messages(
    file: pa.MemoryMappedFile, path: str, start: int
) -> Iterator[tuple[pa.ipc.Message, int, int]]:
    file.seek(start)
    while True:
        begin = file.tell()
        try:
            message = pa.ipc.read_message(file)
        except EOFError:
            return
        except READ_FAILURES as error:
            what = "not an Arrow file or stream" if begin == start else f"byte {begin}: cut short"
            raise InputError(
                f"{path}: {what}: {error}", hint="fetch it again if it was cut short"
            ) from error
        yield message, begin, file.tell()


def _schema_of(message: pa.ipc.Message, path: str) -> pa.Schema:
    # read_schema takes any message for a schema and follows its header into nowhere (a segfault).
    if message.type != "schema":
        raise InputError(f"{path}: not an Arrow file or stream: it begins with a {message.type}")
    try:
        return pa.ipc.read_schema(message)
    except READ_FAILURES as error:
        raise InputError(f"{path}: not an Arrow file or stream: {error}") from error


def _batch_header(metadata: bytes) -> tuple[int, bool]:
    """(number of rows, is the body compressed) of a record batch message.

    Message { version, header_type, header, bodyLength }, RecordBatch { length, nodes, buffers,
    compression }: github.com/apache/arrow/blob/main/format/Message.fbs
    """

    def field(table: int, index: int) -> int:
        vtable = table - struct.unpack_from("<i", metadata, table)[0]
        slot = 4 + 2 * index
        if vtable < 0 or slot + 2 > struct.unpack_from("<H", metadata, vtable)[0]:
            return 0
        offset = struct.unpack_from("<H", metadata, vtable + slot)[0]
        return table + offset if offset else 0

    message = struct.unpack_from("<I", metadata, 0)[0]
    header = field(message, 2)
    batch = header + struct.unpack_from("<I", metadata, header)[0]
    length = field(batch, 0)
    num_rows = struct.unpack_from("<q", metadata, length)[0] if length else 0
    return num_rows, bool(field(batch, 3))
