"""Small files that hold far more than their size says, each made in a second or less."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import struct
import zlib
from pathlib import Path

import numpy as np
import parquet_tree
import pyarrow as pa
import pyarrow.parquet as pq

MB = 1 << 20


def _value(num_bytes: int) -> bytes:
    """Text that is quickly encoded."""
    words = b"The mill grinds slowly. "
    return (words * (num_bytes // len(words) + 1))[:num_bytes]


def gzip_of(byte: bytes, num_bytes: int, path: Path) -> None:
    member = gzip.compress(byte * (64 * MB), 9, mtime=0)
    path.write_bytes(member * (num_bytes // (64 * MB)))


def zstd_of(byte: bytes, num_bytes: int, path: Path) -> None:
    frame = pa.compress(byte * (256 * MB), codec="zstd", asbytes=True)
    path.write_bytes(frame * (num_bytes // (256 * MB)))


def bzip2_of(byte: bytes, num_bytes: int, path: Path) -> None:
    path.write_bytes(bz2.compress(byte * (64 * MB)) * (num_bytes // (64 * MB)))


def xz_of(byte: bytes, num_bytes: int, path: Path) -> None:
    path.write_bytes(lzma.compress(byte * (64 * MB), preset=0) * (num_bytes // (64 * MB)))


def lz4_of(head: bytes, byte: bytes, num_bytes: int, path: Path) -> None:
    with pa.CompressedOutputStream(str(path), "lz4") as stream:
        stream.write(head)
        for _ in range(num_bytes // (16 * MB)):
            stream.write(byte * (16 * MB))


def xz_dictionary(path: Path) -> None:
    """A stream of a few bytes whose header says that its decoder needs 4 GiB."""
    data = bytearray(lzma.compress(b'{"text": "a"}\n'))
    assert data[14:16] == b"\x21\x01"  # the filter LZMA2, and the length of its properties
    data[16] = 40  # the largest dictionary
    data[20:24] = zlib.crc32(data[12:20]).to_bytes(4, "little")
    path.write_bytes(data)


def wide_csv(num_columns: int, num_fields: int, path: Path) -> None:
    """A row with too many fields between two that are right."""
    names = b",".join(b"%x" % number for number in range(num_columns))
    row = b"," * num_columns
    rows = (names + b",text", row + b"first", b"," * num_fields, row + b"last")
    path.write_bytes(b"\n".join(rows) + b"\n")


def long_field(num_bytes: int, path: Path) -> None:
    field = b'"' + _value(num_bytes) + b'""\n"'
    path.write_bytes(b"id,text\n1," + field + b"\n2,after it\n")


def long_number(num_digits: int, path: Path) -> None:
    path.write_bytes(b'[{"text": "a", "n": ' + b"9" * num_digits + b'},\n {"text": "b"}]')


def long_line(num_bytes: int, path: Path) -> None:
    piece = _value(960_000)
    with open(path, "wb") as file:
        file.write(b'{"text": "')
        for _ in range(num_bytes // len(piece)):
            file.write(piece)
        file.write(b'"}\n{"text": "after it"}\n')


def deep_json(opening: bytes, closing: bytes, depth: int, path: Path) -> None:
    """An object with something in it that is nested so deeply, and one after it."""
    line = b'{"text": "a", "deep": ' + opening * depth + b"1" + closing * depth
    path.write_bytes(line + (b"}" if closing else b"") + b'\n{"text": "b"}\n')


def parquet_rows(num_rows: int, path: Path) -> None:
    """Three rows, where the footer says otherwise."""
    sink = io.BytesIO()
    pq.write_table(pa.table({"text": ["a", "b", "c"]}), sink, use_dictionary=False)
    tree = parquet_tree.parsed(sink.getvalue())
    _announce(tree, num_rows)
    path.write_bytes(parquet_tree.file_bytes(tree))


def parquet_dictionary(value_bytes: int, num_rows: int, path: Path) -> None:
    """One value in the dictionary, and a run of so many indices of it: a few hundred bytes."""
    sink = io.BytesIO()
    table = pa.table({"text": ["a", "a"]})
    pq.write_table(table, sink, compression="zstd", write_statistics=False, store_schema=False)
    tree = parquet_tree.parsed(sink.getvalue())
    [[dictionary, page]] = tree.chunks
    dictionary.body = struct.pack("<I", value_bytes) + _value(value_bytes)
    dictionary.header.get(7).set(1, 1)
    levels = _run(num_rows, 1)
    page.body = struct.pack("<I", len(levels)) + levels + b"\x01" + _run(num_rows, 0)
    page.header.get(5).set(1, num_rows)
    _announce(tree, num_rows)
    [column] = tree.columns()
    column.set(6, value_bytes + 100)
    path.write_bytes(parquet_tree.file_bytes(tree))


def parquet_prefixes(value_bytes: int, num_rows: int, path: Path) -> None:
    """A value, and then rows that are nothing but the same beginning."""
    table = pa.table({"text": [_value(value_bytes)] * num_rows})
    options = {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}}
    pq.write_table(table, path, compression="zstd", write_statistics=False, **options)


def arrow_compressed(value_bytes: int, path: Path) -> None:
    table = pa.table({"text": pa.array([_value(value_bytes)], pa.large_binary())})
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(path, table.schema, options=options) as writer:
        writer.write_table(table)


def arrow_views(value_bytes: int, num_rows: int, path: Path) -> None:
    """Views that all lead to the same value."""
    view = struct.pack("<i4sii", value_bytes, _value(4), 0, 0)
    buffers = [None, pa.py_buffer(view * num_rows), pa.py_buffer(_value(value_bytes))]
    array = pa.Array.from_buffers(pa.string_view(), num_rows, buffers)
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    schema = pa.schema([("text", pa.string_view())])
    with pa.ipc.new_stream(path, schema, options=options) as writer:
        writer.write_batch(pa.record_batch([array], schema))


def arrow_dictionary(value_bytes: int, num_rows: int, path: Path) -> None:
    values = pa.array([_value(value_bytes)], pa.large_binary())
    array = pa.DictionaryArray.from_arrays(pa.array(np.zeros(num_rows, np.int8)), values)
    table = pa.table({"text": array})
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(path, table.schema, options=options) as writer:
        writer.write_table(table)


def _announce(tree: parquet_tree.ParquetTree, num_rows: int) -> None:
    tree.footer.set(3, num_rows)
    [group] = tree.footer.get(4).items
    group.set(3, num_rows)
    [column] = tree.columns()
    column.set(5, num_rows)
    # Statistics of sizes that contradict the rest abort pyarrow 26 before anything else happens.
    column.fields = [field for field in column.fields if field[0] not in (12, 16)]


def _run(length: int, value: int) -> bytes:
    """A run of one value, in parquet's hybrid encoding with a width of one byte or less."""
    head, number = bytearray(), length << 1
    while number >= 0x80:
        head.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(head) + bytes([number, value])
