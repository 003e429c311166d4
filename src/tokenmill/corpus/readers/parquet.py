"""Parquet: spans are runs of row groups; only the text column is read, in bounded memory.

Measured on FineWeb-like files (row groups of 1,000 rows, 4 MB of text; one thread): memory_map,
buffer_size and pre_buffer are equal within 5 % (1,050-1,100 MB/s zstd, 750 snappy). For one row
group of 340 MB, plain reads hold the compressed column in memory; a memory map holds one page of
it, and the rest is page cache that the kernel may drop. Page checksums cost 8 % if a file has them
and nothing otherwise, so they are always checked.

`buffer_size` is not used, although it would need the least memory: in pyarrow 17 it returns wrong
text without an error (10 of 24 passes over one sound file were wrong or failed;
apache/arrow#43949), and an out-of-bounds write in the same code was fixed only in 2026
(apache/arrow#48311). The price of the map: if another process truncates a file while it is read,
the reader dies of SIGBUS.

The footer is not trusted: sizes that no honest writer produces are refused at plan time, and the
number of rows read must match it. One case cannot be caught: pyarrow 26 aborts the process when a
column's size statistics contradict its schema (`row_group(i).column(j)` throws a C++ exception).
Reading a row first would turn that into an error, but takes 4 ms per row group. So files are cut in
processes that may die (runners/cutting.py), except with --num-proc 1.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pyarrow as pa
import pyarrow.parquet as pq

from tokenmill.corpus.opening import ranged_file
from tokenmill.corpus.readers import ReadOptions, TextBatch
from tokenmill.corpus.readers.column import text_column_index
from tokenmill.corpus.readers.pages import repeatable_bytes
from tokenmill.corpus.readers.rows import sound_binary, text_batches
from tokenmill.corpus.spans import Input, Span
from tokenmill.errors import ConfigError, InputError, NetworkError
from tokenmill.storage.range_reader import Range, RangedFile

MAX_GROUP_BYTES = 4 << 30  # of one row group's text, uncompressed
MAX_GROUP_ROWS = 1 << 31
MAX_RATIO = 1000  # uncompressed : compressed, for row groups over MIN_BOMB_BYTES
MIN_BOMB_BYTES = 256 << 20
# Sizes in the footer are those of encoded pages: a column of repeated texts decodes to far more. So
# the rows decoded at a time are limited, by number and by their largest possible bytes; rows.py
# joins the results. Joining costs: pyarrow's dictionaries of 4 MB limit it to 320 rows of 4 kB,
# which reads 3 to 15 % slower than 1,024 rows; with a limit of 256 MB it was 30 %.
MAX_DECODED_ROWS = 1024
MAX_DECODED_BYTES = 1280 << 20
UNKNOWN_ROWS = 16  # if the pages are unknown (pages.py)
# A smaller chunk cannot be a bomb, so its pages need not be read.
_MAX_EXPANSION = {"UNCOMPRESSED": 1, "SNAPPY": 22, "LZ4": 256, "GZIP": 1032}
_READ_FAILURES = (pa.ArrowException, OSError, UnicodeError)


class ParquetReader:
    """Span unit: row groups."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options

    def spans(self, source: Input) -> list[Span]:
        with _opened(source) as (file, _):
            column = _leaf_column(file, self.options.text_column, source.name)
            _check_sizes(file.metadata, column, source)
            return self._runs(file.metadata, column, source)

    def batches(self, span: Span) -> Iterator[TextBatch]:
        return text_batches(span, self._arrays(span), self.options)

    def place(self, span: Span, row: int) -> str:
        return f"row {span.first_row + row}"

    def _runs(self, metadata: pq.FileMetaData, column: int, source: Input) -> list[Span]:
        spans: list[Span] = []
        start = first_row = num_rows = num_bytes = 0
        for group in range(metadata.num_row_groups):
            size = _chunk(metadata, group, column, source.name).total_uncompressed_size
            if group > start and num_bytes + size > self.options.span_bytes:
                spans.append(Span(source, start, group, num_bytes, first_row, num_rows))
                start, first_row = group, first_row + num_rows
                num_rows = num_bytes = 0
            num_rows += metadata.row_group(group).num_rows
            num_bytes += size
        spans.append(Span(source, start, metadata.num_row_groups, num_bytes, first_row, num_rows))
        return [span for span in spans if span.num_rows]

    def _arrays(self, span: Span) -> Iterator[pa.Array]:
        name, path = self.options.text_column, span.input.name
        with (
            _opened(span.input) as (file, ranged),
            nullcontext(ranged) if ranged else _mapped(span.input) as data,
        ):
            column = _leaf_column(file, name, path)
            if span.stop > file.metadata.num_row_groups:
                raise InputError(f"{path}: row group {span.stop - 1} is gone; the file has changed")
            if ranged is not None:
                groups = range(span.start, span.stop)
                ranged.expect(chunk_range(_chunk(file.metadata, i, column, path)) for i in groups)
            for some, batch_rows in self._reads(file.metadata, column, span, data):
                try:
                    batches = file.iter_batches(
                        batch_rows, row_groups=some, columns=[name], use_threads=False
                    )
                    for batch in batches:
                        yield sound_binary(batch.column(0))
                except NetworkError:
                    raise
                except _READ_FAILURES as error:
                    which = f"{some[0]}" if len(some) == 1 else f"{some[0]}-{some[-1]}"
                    raise InputError(
                        f"{path}: row group {which}: cannot decode column {name!r}: {error}",
                        hint="the file is damaged; fetch it again",
                    ) from error

    def _reads(
        self, metadata: pq.FileMetaData, column: int, span: Span, data: mmap.mmap | RangedFile
    ) -> Iterator[tuple[list[int], int]]:
        """(row groups, rows per batch): small neighbours merged, a large group in even batches."""
        groups: list[int] = []
        num_bytes = num_rows = 0
        limit = most_rows = min(MAX_DECODED_ROWS, span.num_rows or MAX_DECODED_ROWS)
        for group in range(span.start, span.stop):
            chunk = _chunk(metadata, group, column, span.input.name)
            size = chunk.total_uncompressed_size
            if groups and num_bytes + size > self.options.batch_bytes:
                yield groups, min(most_rows, self._batch_rows(num_bytes, num_rows))
                groups, num_bytes, num_rows = [], 0, 0
                most_rows = limit
            groups.append(group)
            num_bytes += size
            num_rows += metadata.row_group(group).num_rows
            most_rows = min(most_rows, _decodable_rows(chunk, data, limit))
        if groups:
            yield groups, min(most_rows, self._batch_rows(num_bytes, num_rows))

    def _batch_rows(self, num_bytes: int, num_rows: int) -> int:
        num_batches = max(1, round(num_bytes / self.options.batch_bytes))
        return max(1, -(-num_rows // num_batches))


@contextmanager
def _opened(source: Input) -> Iterator[tuple[pq.ParquetFile, RangedFile | None]]:
    """The file; for an object, also its range reader."""
    ranged = ranged_file(source)
    try:
        file = pq.ParquetFile(
            source.path if ranged is None else pa.PythonFile(ranged, mode="r"),
            memory_map=True,
            pre_buffer=False,
            page_checksum_verification=True,
        )
    except NetworkError:
        raise
    except _READ_FAILURES as error:
        raise InputError(
            f"{source.name}: not a readable parquet file: {error}",
            hint="fetch it again if it was cut short, or leave it out",
        ) from error
    with file:
        yield file, ranged


@contextmanager
def _mapped(source: Input) -> Iterator[mmap.mmap]:
    try:
        with open(source.path, "rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # removed or emptied since it was opened
        raise InputError(f"{source.name}: cannot be read: {error}") from error
    with data:
        yield data


def chunk_range(chunk: pq.ColumnChunkMetaData) -> Range:
    """The byte range of a column chunk's pages."""
    start = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < start:
        start = chunk.dictionary_page_offset
    return start, start + chunk.total_compressed_size


def _decodable_rows(chunk: pq.ColumnChunkMetaData, data: mmap.mmap | RangedFile, limit: int) -> int:
    """The number of rows, up to `limit`, that cannot decode to more than MAX_DECODED_BYTES."""
    expansion = _MAX_EXPANSION.get(chunk.compression)
    if expansion and limit * chunk.total_compressed_size * expansion <= MAX_DECODED_BYTES:
        return limit
    most = repeatable_bytes(data, *chunk_range(chunk))
    if most is None:
        return UNKNOWN_ROWS
    return max(1, min(limit, MAX_DECODED_BYTES // max(1, most)))


def _leaf_column(file: pq.ParquetFile, name: str, path: str) -> int:
    """The text column's index among the leaf columns, as the footer counts them."""
    try:
        text_column_index(file.schema_arrow, name, path)
        leaves = [i for i in range(len(file.schema)) if file.schema.column(i).path == name]
    except _READ_FAILURES as error:
        raise InputError(f"{path}: not a readable parquet schema: {error}") from error
    if len(leaves) != 1:
        raise ConfigError(f"{path}: {len(leaves)} columns are named {name!r}; rename one of them")
    return leaves[0]


def _chunk(metadata: pq.FileMetaData, group: int, column: int, path: str) -> pq.ColumnChunkMetaData:
    try:
        return metadata.row_group(group).column(column)
    except (IndexError, *_READ_FAILURES) as error:
        raise InputError(
            f"{path}: row group {group}: its columns are not those of the schema: {error}",
            hint="the file is damaged; fetch it again",
        ) from error


def _check_sizes(metadata: pq.FileMetaData, column: int, source: Input) -> None:
    """Raise InputError for footers with sizes that only a decompression bomb announces."""
    total_compressed = total_rows = 0
    for group in range(metadata.num_row_groups):
        num_rows = metadata.row_group(group).num_rows
        chunk = _chunk(metadata, group, column, source.name)
        size, compressed = chunk.total_uncompressed_size, chunk.total_compressed_size
        total_compressed += max(0, compressed)
        total_rows += num_rows
        what = f"{source.name}: row group {group} announces"
        if not 0 <= num_rows <= MAX_GROUP_ROWS:
            raise InputError(f"{what} {num_rows} rows (at most {MAX_GROUP_ROWS} are read)")
        if not 0 <= size <= MAX_GROUP_BYTES:
            raise InputError(
                f"{what} {size} bytes of text (at most {MAX_GROUP_BYTES} are read)",
                hint="write the file again with smaller row groups",
            )
        if size > MIN_BOMB_BYTES and size > MAX_RATIO * max(1, compressed):
            raise InputError(f"{what} {size} bytes of text in {compressed} compressed ones: a bomb")
    if total_rows != metadata.num_rows:
        raise InputError(
            f"{source.name}: its row groups announce {total_rows} rows together, the footer "
            f"{metadata.num_rows}",
            hint="the file is damaged; fetch it again",
        )
    if total_compressed > source.num_bytes:
        raise InputError(
            f"{source.name}: its row groups announce {total_compressed} bytes in a file of "
            f"{source.num_bytes}: they overlap"
        )
