"""Parquet: spans are consecutive row groups; only the needed columns are read, in bounded memory.

Measured on FineWeb-like files (row groups of 1,000 rows, 4 MB of text; one thread): memory_map,
buffer_size and pre_buffer are equal within 5 % (1,050-1,100 MB/s zstd, 750 snappy). For one row
group of 340 MB, plain reads hold the compressed column in memory; a memory map holds one page of
it, and the rest is page cache that the kernel may drop. Page checksums cost 8 % if a file has them
and nothing otherwise, so they are always checked.

`buffer_size` is not used, although it would need the least memory: in pyarrow 17 it returns wrong
text without an error (10 of 24 passes over one intact file were wrong or failed;
apache/arrow#43949), and an out-of-bounds write in the same code was fixed only in 2026
(apache/arrow#48311). The price of the map: if another process truncates the file, the reader dies
of SIGBUS.

The footer is not trusted: sizes that no honest writer produces are refused at plan time, and the
number of rows read must match it. One case cannot be caught: pyarrow 26 aborts the process when a
column's size statistics contradict its schema (`row_group(i).column(j)` throws a C++ exception).
Reading a row first would turn that into an error, but takes 4 ms per row group. So files are cut in
processes that may die (runners/input_cutting.py), except with --num-proc 1.
"""

from __future__ import annotations

import itertools
import mmap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

import pyarrow as pa
import pyarrow.parquet as pq

from tokenmill.corpus.opening import ranged_file
from tokenmill.corpus.readers import ReadOptions, TextBatch
from tokenmill.corpus.readers.choice import Chosen, joined
from tokenmill.corpus.readers.kept_columns import (
    Kept,
    KeptColumns,
    kept_columns,
    raw_of,
    table_schema,
)
from tokenmill.corpus.readers.parquet_pages import READ_FAILURES, chunk_of
from tokenmill.corpus.readers.row_groups import Columns, GroupChoice, GroupReads, leaves_of
from tokenmill.corpus.readers.row_text import RowText
from tokenmill.corpus.readers.rows import (
    Raw,
    left_out,
    place_in_table,
    text_batches,
    without_row_numbers,
)
from tokenmill.corpus.spans import Input, Span
from tokenmill.errors import InputError, NetworkError
from tokenmill.storage.range_reader import RangedFile

MAX_GROUP_BYTES = 4 << 30  # of one row group's text, uncompressed
MAX_GROUP_ROWS = 1 << 31
MAX_RATIO = 1000  # uncompressed : compressed, for row groups over MIN_BOMB_BYTES
MIN_BOMB_BYTES = 256 << 20


class ParquetReader:
    """Span unit: row groups."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options

    def spans(self, source: Input) -> list[Span]:
        with _opened(source) as (file, _):
            columns = _text_columns(file, self.options, source.name)[1]
            _check_sizes(file.metadata, columns.leaves, source)
            groups = Span(source, 0, file.metadata.num_row_groups, 0)
            choice = GroupChoice(file, groups, self.options) if self.options.filters_rows else None
            spans = self._runs(file.metadata, columns.leaves, source, choice)
            return without_row_numbers(spans, self.options)

    def kept_schema(self, source: Input) -> pa.Schema:
        with _opened(source) as (file, _):
            try:
                return table_schema(file.schema_arrow, self.options.keep or (), source.name)
            except READ_FAILURES as error:
                raise InputError(
                    f"{source.name}: not a readable parquet schema: {error}"
                ) from error

    def batches(self, span: Span) -> Iterator[TextBatch]:
        return text_batches(span, self._raws(span), self.options)

    def place(self, span: Span, row: int) -> str:
        return place_in_table(span, row, self.options)

    def _runs(
        self,
        metadata: pq.FileMetaData,
        leaves: Sequence[int],
        source: Input,
        choice: GroupChoice | None,
    ) -> list[Span]:
        """Spans of row groups to read, and of row groups that are ruled out."""
        spans: list[Span] = []
        start = first_row = num_rows = num_bytes = 0
        was_out = False
        for group in range(metadata.num_row_groups):
            is_out = choice is not None and choice.is_ruled_out(group)
            chunks = [chunk_of(metadata, group, leaf, source.name) for leaf in leaves]
            size = 0 if is_out else sum(chunk.total_uncompressed_size for chunk in chunks)
            is_full = num_bytes + size > self.options.span_bytes or is_out != was_out
            if group > start and is_full:
                stop = start if was_out else group
                spans.append(Span(source, start, stop, num_bytes, first_row, num_rows))
                start, first_row = group, first_row + num_rows
                num_rows = num_bytes = 0
            num_rows += metadata.row_group(group).num_rows
            num_bytes += size
            was_out = is_out
        stop = start if was_out else metadata.num_row_groups
        spans.append(Span(source, start, stop, num_bytes, first_row, num_rows))
        return [span for span in spans if span.num_rows]

    def _raws(self, span: Span) -> Iterator[Raw]:
        if span.is_ruled_out:
            yield left_out(span.num_rows or 0)
            return
        path = span.input.name
        with (
            _opened(span.input) as (file, ranged),
            nullcontext(ranged) if ranged else _mapped(span.input) as data,
        ):
            row_text, columns = _text_columns(file, self.options, path)
            kept = kept_columns(file.schema_arrow, self.options, path)
            if kept is not None:
                columns = _columns(file, [*columns.names, *kept.paths])
            if span.stop > file.metadata.num_row_groups:
                raise InputError(f"{path}: row group {span.stop - 1} is gone; the file has changed")
            reads = GroupReads(file, data, span, self.options.batch_bytes)
            try:
                if self.options.filters_rows:
                    raws = self._chosen(reads, row_text, columns, kept)
                else:
                    raws = self._all(reads, row_text, columns, kept)
                yield from raws if span.num_rows is not None else _counted(raws, reads)
            except pa.ArrowException as error:
                raise InputError(
                    f"{path}: row groups {span.start} to {span.stop - 1}: {error}",
                    hint="the file is damaged; fetch it again",
                ) from error

    def _all(
        self, reads: GroupReads, row_text: RowText, columns: Columns, kept: KeptColumns | None
    ) -> Iterator[Raw]:
        groups = range(reads.span.start, reads.span.stop)
        reads.expect(groups, columns)
        for batch in reads.batches(groups, columns):
            yield raw_of(*_text_and_kept(batch, row_text, kept))

    def _chosen(
        self, reads: GroupReads, row_text: RowText, columns: Columns, kept: KeptColumns | None
    ) -> Iterator[Raw]:
        """The rows that go in. The text is read last, unless the expression tests it."""
        span = reads.span
        groups = range(span.start, span.stop)
        choice = GroupChoice(reads.file, span, self.options)
        deciding = Columns(choice.columns, choice.leaves)
        decides_itself = set(row_text.columns) <= set(choice.columns)
        if decides_itself and kept is not None:
            deciding = _columns(reads.file, [*choice.columns, *kept.paths])
        reads.expect(groups, deciding)
        if decides_itself:
            yield from _each_chosen(choice, row_text, kept, reads.batches(groups, deciding))
            return
        by_group = choice.by_group(reads.batches(groups, deciding))
        wanted = {group for group in groups if by_group[group].is_in.any()}
        reads.expect(sorted(wanted), columns)
        for is_wanted, run in itertools.groupby(groups, wanted.__contains__):
            some = list(run)
            chosen = joined([by_group[group] for group in some])
            if is_wanted:
                batches = reads.batches(some, columns)
                found = (_text_and_kept(batch, row_text, kept) for batch in batches)
                yield from _parts_chosen(chosen, found)
            else:
                yield left_out(len(chosen.is_in))


def _columns(file: pq.ParquetFile, names: Iterable[str]) -> Columns:
    """Columns by their paths, in this order, without those inside another one."""
    found = list(dict.fromkeys(names))
    outer = [one for one in found if not any(one.startswith(f"{other}.") for other in found)]
    return Columns(outer, leaves_of(file.schema, outer))


def _text_and_kept(
    batch: pa.RecordBatch, row_text: RowText, kept: KeptColumns | None
) -> tuple[pa.Array, Kept | None]:
    return row_text.of(batch), None if kept is None else kept.of(batch)


def _each_chosen(
    choice: GroupChoice,
    row_text: RowText,
    kept: KeptColumns | None,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[Raw]:
    """The text of batches that hold all columns."""
    first_row = 0
    for batch in batches:
        yield choice.among(first_row, batch).of(*_text_and_kept(batch, row_text, kept))
        first_row += len(batch)


def _parts_chosen(chosen: Chosen, found: Iterable[tuple[pa.Array, Kept | None]]) -> Iterator[Raw]:
    """The text of arrays that together have the rows of `chosen`."""
    start = 0
    for array, kept in found:
        stop = start + len(array)
        part = chosen.part(start, stop)
        if len(part.is_in) != len(array):
            break  # too many rows: the caller's count will show it
        yield part.of(array, kept)
        start = stop


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
    except READ_FAILURES as error:
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


def _text_columns(file: pq.ParquetFile, options: ReadOptions, path: str) -> tuple[RowText, Columns]:
    """What makes the text of a row, and the columns to read for it."""
    try:
        row_text = RowText(file.schema_arrow, options, path)
        return row_text, Columns(row_text.columns, leaves_of(file.schema, row_text.columns))
    except READ_FAILURES as error:
        raise InputError(f"{path}: not a readable parquet schema: {error}") from error


def _counted(raws: Iterable[Raw], reads: GroupReads) -> Iterator[Raw]:
    """The same; raises InputError if the number of rows differs from the footer's."""
    num_rows = 0
    for raw in raws:
        num_rows += len(raw.array) if raw.positions is None else raw.num_covered
        yield raw
    groups = range(reads.span.start, reads.span.stop)
    expected = sum(reads.file.metadata.row_group(group).num_rows for group in groups)
    if num_rows != expected:
        raise InputError(
            f"{reads.span.input.name}: read {num_rows} rows where the file announces {expected}, "
            f"from row {reads.span.first_row} on",
            hint="the file is damaged or has changed; fetch it again",
        )


def _check_sizes(metadata: pq.FileMetaData, leaves: Sequence[int], source: Input) -> None:
    """Raise InputError for a footer with sizes that only a decompression bomb has."""
    total_compressed = total_rows = 0
    for group in range(metadata.num_row_groups):
        num_rows = metadata.row_group(group).num_rows
        chunks = [chunk_of(metadata, group, leaf, source.name) for leaf in leaves]
        size = sum(chunk.total_uncompressed_size for chunk in chunks)
        compressed = sum(chunk.total_compressed_size for chunk in chunks)
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
