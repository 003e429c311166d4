"""Row groups of a parquet file: which of their rows go in, and their columns in bounded memory.

When the plan is made, whole row groups are left out by the footer's statistics. Of the others, the
columns of --where are read first, and then the text of row groups in which a row goes in: other
text is neither decoded nor fetched.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tokenmill.corpus.readers import ReadOptions
from tokenmill.corpus.readers.choice import Chosen, RowChoice, joined
from tokenmill.corpus.readers.parquet_pages import (
    MAX_DECODED_ROWS,
    READ_FAILURES,
    chunk_of,
    chunk_range,
    decodable_rows,
)
from tokenmill.corpus.spans import Span
from tokenmill.errors import InputError, NetworkError
from tokenmill.storage.range_reader import RangedFile


class GroupChoice:
    def __init__(self, file: pq.ParquetFile, span: Span, options: ReadOptions) -> None:
        self._metadata = file.metadata
        self._span = span
        try:
            self._rows = RowChoice(file.schema_arrow, span, options)
        except READ_FAILURES as error:
            name = span.input.name
            raise InputError(f"{name}: not a readable parquet schema: {error}") from error
        self.columns = list(dict.fromkeys(field.path for field in self._rows.fields.values()))
        self._schema = file.schema

    @property
    def leaves(self) -> list[int]:
        """The numbers of the leaf columns to read."""
        return leaves_of(self._schema, self.columns)

    def is_ruled_out(self, group: int) -> bool:
        """Whether the statistics show that no row of the group goes in."""
        if self._rows.expression is None:
            return False
        from tokenmill.where.statistics import may_pass

        chunks = {}
        for names, field in self._rows.fields.items():
            # The statistics of a struct's fields and of a list's elements are not its own. A path
            # may be that of two leaves: a column named `a.b`, and the field b of a struct a.
            leaves = leaves_of(self._schema, [field.path])
            paths = [self._schema.column(leaf).path for leaf in leaves]
            if paths == [field.path] and not pa.types.is_nested(field.type):
                chunks[names] = chunk_of(self._metadata, group, leaves[0], self._span.input.name)
        num_rows = self._metadata.row_group(group).num_rows
        return not may_pass(self._rows.expression, num_rows, chunks)

    def among(self, first_row: int, batch: pa.RecordBatch) -> Chosen:
        """Which rows of a batch go in."""
        return self._rows.among(first_row, len(batch), batch)

    def by_group(self, batches: Iterable[pa.RecordBatch]) -> dict[int, Chosen]:
        """Which rows of each row group go in; `batches` has the columns of all of them."""
        groups = range(self._span.start, self._span.stop)
        sizes = [self._metadata.row_group(group).num_rows for group in groups]
        chosen = self._all(batches) if self.columns else self._rows.among(0, sum(sizes))
        if len(chosen.is_in) != sum(sizes):
            raise InputError(
                f"{self._span.input.name}: read {len(chosen.is_in)} rows of "
                f"{', '.join(self.columns)} where the file announces {sum(sizes)}, "
                f"from row {self._span.first_row} on",
                hint="the file is damaged or has changed; fetch it again",
            )
        ends = np.cumsum(sizes, dtype=np.int64).tolist()
        return {
            group: chosen.part(end - size, end)
            for group, size, end in zip(groups, sizes, ends, strict=True)
        }

    def _all(self, batches: Iterable[pa.RecordBatch]) -> Chosen:
        parts: list[Chosen] = []
        first_row = 0
        for batch in batches:
            parts.append(self.among(first_row, batch))
            first_row += len(batch)
        return joined(parts)


def leaves_of(schema: pq.ParquetSchema, columns: Iterable[str]) -> list[int]:
    """The numbers, in the footer, of the leaf columns of these columns."""
    paths = [schema.column(i).path for i in range(len(schema))]
    return [
        i
        for i, path in enumerate(paths)
        if any(f"{path}.".startswith(f"{column}.") for column in columns)
    ]


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns by name, and the numbers of their leaf columns in the footer."""

    names: Sequence[str]
    leaves: Sequence[int]


@dataclass(frozen=True, slots=True)
class GroupReads:
    """Reads a span's row groups. `data` is what `file` reads from: a memory map, or an object's
    ranges."""

    file: pq.ParquetFile
    data: mmap.mmap | RangedFile
    span: Span
    batch_bytes: int

    def expect(self, groups: Iterable[int], columns: Columns) -> None:
        """Announce what will be read next, in its order."""
        if isinstance(self.data, RangedFile):
            chunks = (self._chunk(group, leaf) for group in groups for leaf in columns.leaves)
            self.data.expect(chunk_range(chunk) for chunk in chunks)

    def batches(self, groups: Iterable[int], columns: Columns) -> Iterator[pa.RecordBatch]:
        for some, batch_rows in self._reads(groups, columns.leaves):
            try:
                yield from self.file.iter_batches(
                    batch_rows, row_groups=some, columns=list(columns.names), use_threads=False
                )
            except NetworkError:
                raise
            except READ_FAILURES as error:
                which = f"{some[0]}" if len(some) == 1 else f"{some[0]}-{some[-1]}"
                names = ", ".join(map(repr, columns.names))
                raise InputError(
                    f"{self.span.input.name}: row group {which}: cannot decode column {names}: "
                    f"{error}",
                    hint="the file is damaged; fetch it again",
                ) from error

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
            if some and num_bytes + size > self.batch_bytes:
                yield some, min(most_rows, self._batch_rows(num_bytes, num_rows))
                some, num_bytes, num_rows = [], 0, 0
                most_rows = limit
            group_rows = self.file.metadata.row_group(group).num_rows
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
        num_batches = max(1, round(num_bytes / self.batch_bytes))
        return max(1, -(-num_rows // num_batches))

    def _chunk(self, group: int, leaf: int) -> pq.ColumnChunkMetaData:
        return chunk_of(self.file.metadata, group, leaf, self.span.input.name)
