"""Parquet's column chunks (one column of one row group): where they are in the file, and how many
of their rows can be decoded at a time.

Sizes in the footer are those of encoded pages, but a column of repeated texts decodes to far more.
So the rows decoded at a time are limited, by number and by their largest possible size; rows.py
joins the results. Joining costs time: pyarrow's dictionaries of 4 MB limit it to 320 rows of 4 kB,
which reads 3 to 15 % slower than 1,024 rows; with a limit of 256 MB it was 30 %.
"""

from __future__ import annotations

import mmap

import pyarrow as pa
import pyarrow.parquet as pq

from tokenmill.corpus.readers.pages import repeatable_bytes
from tokenmill.errors import InputError
from tokenmill.storage.range_reader import Range, RangedFile

MAX_DECODED_ROWS = 1024
MAX_DECODED_BYTES = 1280 << 20
UNKNOWN_ROWS = 16  # if the pages are unknown (pages.py)
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
