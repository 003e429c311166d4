"""Reads some columns of some row groups of an open parquet file, in batches of bounded memory."""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from tokenmill.corpus.readers.column_chunks import (
    MAX_DECODED_ROWS,
    READ_FAILURES,
    chunk_of,
    chunk_range,
    decodable_rows,
)
from tokenmill.corpus.spans import Span
from tokenmill.errors import InputError, NetworkError
from tokenmill.storage.range_reader import RangedFile


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
