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

When the plan is made, whole row groups are left out by the footer's statistics (--where). Of the
others, the columns of --where are read first, and then the text of row groups in which a row goes
in, unless the text itself is tested: other text is neither decoded nor fetched.

The footer is not trusted: sizes that no honest writer produces are refused at plan time, and the
number of rows read must match it. One case cannot be caught: pyarrow 26 aborts the process when a
column's size statistics contradict its schema (`row_group(i).column(j)` throws a C++ exception).
Reading a row first would turn that into an error, but takes 4 ms per row group. So files are cut in
processes that may die (runners/input_cutting.py), except with --num-proc 1.
"""

from __future__ import annotations

import itertools
import mmap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tokenmill.corpus.columns import AskedColumn, Field, SourceSchema, asked, required_fields
from tokenmill.corpus.opening import ranged_file
from tokenmill.corpus.readers import ReadOptions
from tokenmill.corpus.readers.parquet_pages import (
    MAX_DECODED_ROWS,
    READ_FAILURES,
    chunk_of,
    chunk_range,
    decodable_rows,
)
from tokenmill.corpus.rows import (
    Rows,
    joined,
    passing,
    place_in_table,
    sampler_of,
    table_rows,
    without_row_numbers,
    wrong_count,
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

    def schema(self, source: Input) -> SourceSchema:
        with _opened(source) as (file, _):
            try:
                return SourceSchema(file.schema_arrow)
            except READ_FAILURES as error:
                raise _unreadable_schema(source, error) from error

    def spans(self, source: Input) -> list[Span]:
        with _opened(source) as (file, _):
            fields = self._fields(file, source)
            texts = [column.key for column in asked(self.options) if _makes_text(column)]
            leaves = _leaves_of(file.schema, [fields[key].path for key in texts])
            _check_sizes(file.metadata, leaves, source)
            is_ruled_out = self._by_statistics(file, fields, source)
            spans = self._runs(file.metadata, leaves, source, is_ruled_out)
            return without_row_numbers(spans, self.options)

    def rows(self, span: Span) -> Iterator[Rows]:
        if span.is_ruled_out:
            yield Rows.left_out(0, span.num_rows or 0)
            return
        path = span.input.name
        with (
            _opened(span.input) as (file, ranged),
            nullcontext(ranged) if ranged else _mapped(span.input) as data,
        ):
            fields = self._fields(file, span.input)
            if span.stop > file.metadata.num_row_groups:
                raise InputError(f"{path}: row group {span.stop - 1} is gone; the file has changed")
            reads = _GroupReads(file, data, span, self.options, fields)
            try:
                yield from _rows(reads, asked(self.options))
            except pa.ArrowException as error:
                raise InputError(
                    f"{path}: row groups {span.start} to {span.stop - 1}: {error}",
                    hint="the file is damaged; fetch it again",
                ) from error

    def place(self, span: Span, row: int) -> str:
        return place_in_table(span, row, self.options)

    def _fields(self, file: pq.ParquetFile, source: Input) -> dict[str, Field]:
        try:
            return required_fields(SourceSchema(file.schema_arrow), self.options, source.name)
        except READ_FAILURES as error:
            raise _unreadable_schema(source, error) from error

    def _by_statistics(
        self, file: pq.ParquetFile, fields: dict[str, Field], source: Input
    ) -> Callable[[int], bool]:
        """Whether a row group's statistics show that none of its rows goes in."""
        if self.options.where is None:
            return lambda group: False
        from tokenmill.corpus.readers.parquet_statistics import may_pass
        from tokenmill.where.parser import parsed

        expression, known = parsed(self.options.where), {}
        for column in asked(self.options):
            # The statistics of a struct's fields and of a list's elements are not its own. A path
            # may be that of two leaves: a column named `a.b`, and the field b of a struct a.
            field = fields[column.key]
            leaves = _leaves_of(file.schema, [field.path])
            paths = [file.schema.column(leaf).path for leaf in leaves]
            if paths == [field.path] and not pa.types.is_nested(field.type):
                known[column.key] = leaves[0]

        def is_ruled_out(group: int) -> bool:
            chunks = {
                test.column.names: chunk_of(file.metadata, group, known[key], source.name)
                for test in expression.tests
                if (key := f"where:{test.column}") in known
            }
            num_rows = file.metadata.row_group(group).num_rows
            return not may_pass(expression, num_rows, chunks)

        return is_ruled_out

    def _runs(
        self,
        metadata: pq.FileMetaData,
        leaves: Sequence[int],
        source: Input,
        is_ruled_out: Callable[[int], bool],
    ) -> list[Span]:
        """Spans of row groups to read, and of row groups that are ruled out."""
        spans: list[Span] = []
        start = first_row = num_rows = num_bytes = 0
        was_out = False
        for group in range(metadata.num_row_groups):
            is_out = is_ruled_out(group)
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


def _makes_text(column: AskedColumn) -> bool:
    return column.role in ("text", "template")


def _rows(reads: _GroupReads, columns: Sequence[AskedColumn]) -> Iterator[Rows]:
    groups = range(reads.span.start, reads.span.stop)
    tested = [column for column in columns if column.role == "where"]
    others = [column for column in columns if column.role != "where"]
    texts = {column.names for column in columns if _makes_text(column)}
    if not reads.options.filters_rows or texts <= {column.names for column in tested}:
        reads.expect(groups, columns)
        yield from reads.rows(0, groups, columns)
        return
    chosen = _chosen(reads, groups, tested)
    ends = np.cumsum([reads.num_rows(group) for group in groups]).tolist()
    starts = dict(zip(groups, [0, *ends], strict=False))
    stops = dict(zip(groups, ends, strict=True))
    wanted = {group for group in groups if len(chosen.between(starts[group], stops[group]))}
    reads.expect(sorted(wanted), others)
    for is_wanted, run in itertools.groupby(groups, wanted.__contains__):
        some = list(run)
        if is_wanted:
            for rows in reads.rows(starts[some[0]], some, others):
                own = chosen.between(rows.first_row, rows.stop)
                found = rows.take(own.numbers - rows.first_row)
                yield replace(found, rejected=own.rejected)
        else:
            yield Rows.left_out(starts[some[0]], stops[some[-1]] - starts[some[0]])


def _chosen(reads: _GroupReads, groups: range, tested: Sequence[AskedColumn]) -> Rows:
    """The numbers of all rows that go in, and which of them are rejected."""
    if tested:
        from tokenmill.where.parser import parsed

        assert reads.options.where is not None
        expression, replace_bad_text = parsed(reads.options.where), reads.options.replace_bad_text
        reads.expect(groups, tested)
        batches = reads.rows(0, groups, tested)
        chosen = joined([passing(rows, expression, replace_bad_text) for rows in batches])
    else:
        chosen = Rows.of({}, 0, num_rows=sum(map(reads.num_rows, groups)))
    sampler = sampler_of(reads.span, reads.options)
    return chosen if sampler is None else sampler.drawn(chosen)


@dataclass(frozen=True, slots=True)
class _GroupReads:
    """Reads a span's row groups. `data` is what `file` reads from: a memory map, or an object's
    ranges."""

    file: pq.ParquetFile
    data: mmap.mmap | RangedFile
    span: Span
    options: ReadOptions
    fields: dict[str, Field]

    def num_rows(self, group: int) -> int:
        return int(self.file.metadata.row_group(group).num_rows)

    def expect(self, groups: Iterable[int], columns: Sequence[AskedColumn]) -> None:
        """Announce what will be read next, in its order."""
        if isinstance(self.data, RangedFile):
            leaves = self._leaves(self._paths(columns))
            chunks = (self._chunk(group, leaf) for group in groups for leaf in leaves)
            self.data.expect(chunk_range(chunk) for chunk in chunks)

    def rows(
        self, first_row: int, groups: Sequence[int], columns: Sequence[AskedColumn]
    ) -> Iterator[Rows]:
        """The columns of row groups, of which the first begins with row `first_row`."""
        paths, num_read = self._paths(columns), 0
        own = {column.key: self.fields[column.key] for column in columns}
        for some, batch_rows in self._reads(groups, self._leaves(paths)):
            try:
                for batch in self.file.iter_batches(
                    batch_rows, row_groups=some, columns=paths, use_threads=False
                ):
                    yield table_rows(batch, first_row + num_read, own, self.options)
                    num_read += len(batch)
            except NetworkError:
                raise
            except READ_FAILURES as error:
                which = f"{some[0]}" if len(some) == 1 else f"{some[0]}-{some[-1]}"
                names = ", ".join(map(repr, paths))
                raise InputError(
                    f"{self.span.input.name}: row group {which}: cannot decode column {names}: "
                    f"{error}",
                    hint="the file is damaged; fetch it again",
                ) from error
        if num_read != (announced := sum(map(self.num_rows, groups))):
            raise wrong_count(self.span, num_read, announced)

    def _paths(self, columns: Sequence[AskedColumn]) -> list[str]:
        """The columns to read, without those inside another one."""
        found = list(dict.fromkeys(self.fields[column.key].path for column in columns))
        return [one for one in found if not any(one.startswith(f"{other}.") for other in found)]

    def _leaves(self, paths: Iterable[str]) -> list[int]:
        return _leaves_of(self.file.schema, paths)

    def _reads(
        self, groups: Iterable[int], leaves: Sequence[int]
    ) -> Iterator[tuple[list[int], int]]:
        """(row groups, rows per batch): small groups together, a large one in even batches."""
        some: list[int] = []
        num_bytes = num_rows = 0
        limit = most_rows = min(MAX_DECODED_ROWS, self.span.num_rows or MAX_DECODED_ROWS)
        for group in groups:
            chunks = [self._chunk(group, leaf) for leaf in leaves]
            size = sum(chunk.total_uncompressed_size for chunk in chunks)
            if some and num_bytes + size > self.options.batch_bytes:
                yield some, min(most_rows, self._batch_rows(num_bytes, num_rows))
                some, num_bytes, num_rows = [], 0, 0
                most_rows = limit
            group_rows = self.num_rows(group)
            some.append(group)
            num_bytes += size
            num_rows += group_rows
            for chunk in chunks:
                values_per_row = max(1, chunk.num_values // max(1, group_rows))  # of a list
                most_values = decodable_rows(chunk, self.data, limit)
                most_rows = min(most_rows, max(1, most_values // values_per_row))
        if some:
            yield some, min(most_rows, self._batch_rows(num_bytes, num_rows))

    def _batch_rows(self, num_bytes: int, num_rows: int) -> int:
        num_batches = max(1, round(num_bytes / self.options.batch_bytes))
        return max(1, -(-num_rows // num_batches))

    def _chunk(self, group: int, leaf: int) -> pq.ColumnChunkMetaData:
        return chunk_of(self.file.metadata, group, leaf, self.span.input.name)


def _leaves_of(schema: pq.ParquetSchema, columns: Iterable[str]) -> list[int]:
    """The numbers, in the footer, of the leaf columns of these columns."""
    paths = [schema.column(i).path for i in range(len(schema))]
    return [
        i
        for i, path in enumerate(paths)
        if any(f"{path}.".startswith(f"{column}.") for column in columns)
    ]


def _unreadable_schema(source: Input, error: Exception) -> InputError:
    return InputError(f"{source.name}: not a readable parquet schema: {error}")


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
