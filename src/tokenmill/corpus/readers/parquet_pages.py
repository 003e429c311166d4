"""Parquet's column chunks (one column of one row group): where they are in the file, and how many
of their rows can be decoded at a time.

Sizes in the footer are those of encoded pages, but a column of repeated texts decodes to far more.
So the rows decoded at a time are limited, by number and by their largest possible size; rows.py
joins the results. Joining costs time: pyarrow's dictionaries of 4 MB limit it to 320 rows of 4 kB,
which reads 3 to 15 % slower than 1,024 rows; with a limit of 256 MB it was 30 %.

A dictionary page holds a value once, and a run of indices repeats it a million times in six bytes;
DELTA_BYTE_ARRAY repeats the beginning of the previous value. So a file of 274 bytes can hold a
terabyte of text, and pyarrow decodes as many rows at a time as requested. The footer cannot be
trusted: nothing enforces its list of encodings and its sizes. So this module reads the page headers
themselves, at 20 us each (a page is about 1 MB). A chunk that is not exactly a sequence of pages
counts as unknown, which is treated as the worst case.
"""

from __future__ import annotations

import mmap
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from tokenmill.errors import InputError
from tokenmill.storage.range_reader import Range, RangedFile

MAX_DECODED_ROWS = 1024
MAX_DECODED_BYTES = 1280 << 20
UNKNOWN_ROWS = 16  # if the pages are unknown
# A smaller chunk cannot be a bomb, so its pages need not be read.
_MAX_EXPANSION = {"UNCOMPRESSED": 1, "SNAPPY": 22, "LZ4": 256, "GZIP": 1032}
READ_FAILURES = (pa.ArrowException, OSError, UnicodeError)


def chunk_of(
    metadata: pq.FileMetaData, group: int, column: int, path: str
) -> pq.ColumnChunkMetaData:
    """A leaf column's chunk in a row group."""
    try:
        return metadata.row_group(group).column(column)
    except (IndexError, *READ_FAILURES) as error:
        raise InputError(
            f"{path}: row group {group}: its columns are not those of the schema: {error}",
            hint="the file is damaged; fetch it again",
        ) from error


def chunk_range(chunk: pq.ColumnChunkMetaData) -> Range:
    """The byte range of a column chunk's pages."""
    start = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < start:
        start = chunk.dictionary_page_offset
    return start, start + chunk.total_compressed_size


def decodable_rows(chunk: pq.ColumnChunkMetaData, data: mmap.mmap | RangedFile, limit: int) -> int:
    """The number of rows, up to `limit`, that cannot decode to more than MAX_DECODED_BYTES."""
    expansion = _MAX_EXPANSION.get(chunk.compression)
    if expansion and limit * chunk.total_compressed_size * expansion <= MAX_DECODED_BYTES:
        return limit
    most = repeatable_bytes(data, *chunk_range(chunk))
    if most is None:
        return UNKNOWN_ROWS
    return max(1, min(limit, MAX_DECODED_BYTES // max(1, most)))


# parquet.thrift: PageType, Encoding, and the fields of PageHeader.
_DATA_PAGE, _INDEX_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2 = range(4)
_DELTA_BYTE_ARRAY = 7
_TYPE, _SIZE, _COMPRESSED_SIZE, _DATA_HEADER, _V2_HEADER = 1, 2, 3, 5, 8
_ENCODING_FIELDS = {_DATA_HEADER: 2, _V2_HEADER: 4}

# Thrift's compact protocol: types of fields.
_BOOLEANS, _BYTE, _INTEGERS, _DOUBLE, _BINARY, _STRUCT = (1, 2), 3, (4, 5, 6), 7, 8, 12
_MAX_DEPTH = 8
_MAX_VARINT_BYTES = 10


class Bytes(Protocol):
    """A file in a memory map, an object read by ranges, or bytes."""

    def __getitem__(self, position: int, /) -> int: ...


def repeatable_bytes(data: Bytes, start: int, stop: int) -> int | None:
    """An upper bound on the bytes of a value that other rows can repeat; None: unknown."""
    most = 0
    if start < 0:
        return None
    try:
        while start < stop:
            header = _Header(data, start)
            if not (header.type in range(4) and header.size >= 0 and header.compressed_size >= 0):
                return None
            if header.type == _DICTIONARY_PAGE or header.encoding == _DELTA_BYTE_ARRAY:
                most = max(most, header.size)
            start = header.stop + header.compressed_size
    except (IndexError, ValueError):
        return None
    return most if start == stop else None


class _Header:
    """The needed fields of a page's header. Raises IndexError or ValueError."""

    def __init__(self, data: Bytes, start: int) -> None:
        self.type = self.size = self.compressed_size = self.encoding = -1
        self._data = data
        self.stop = start
        self._struct(depth=0)

    def _struct(self, depth: int, parent: int = 0) -> None:
        if depth > _MAX_DEPTH:
            raise ValueError("too deep")
        field = 0
        while head := self._byte():
            field = field + (head >> 4) if head >> 4 else self._integer()
            kind = head & 15
            if kind in _INTEGERS:
                self._take(depth, parent, field, self._integer())
            elif kind == _STRUCT:
                self._struct(depth + 1, field)
            elif kind == _BINARY:
                num_bytes = self._varint()
                self.stop += num_bytes
            elif kind in (_BYTE, _DOUBLE):
                self.stop += 1 if kind == _BYTE else 8
            elif kind not in _BOOLEANS:
                raise ValueError(f"type {kind}")

    def _take(self, depth: int, parent: int, field: int, value: int) -> None:
        if depth == 0:
            if field == _TYPE:
                self.type = value
            elif field == _SIZE:
                self.size = value
            elif field == _COMPRESSED_SIZE:
                self.compressed_size = value
        elif depth == 1 and field == _ENCODING_FIELDS.get(parent):
            self.encoding = value

    def _byte(self) -> int:
        self.stop += 1
        return self._data[self.stop - 1]

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 7 * _MAX_VARINT_BYTES, 7):
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise ValueError("a number without end")

    def _integer(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)
