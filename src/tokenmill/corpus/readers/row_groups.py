"""Which rows of a parquet file's row groups go in.

When the plan is made, whole row groups are left out by the footer's statistics. Of the others, the
columns of --where are read first, and then the text of row groups in which a row goes in: other
text is neither decoded nor fetched.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tokenmill.corpus.readers import ReadOptions
from tokenmill.corpus.readers.choice import Chosen, RowChoice, joined
from tokenmill.corpus.readers.column_chunks import READ_FAILURES, chunk_of
from tokenmill.corpus.spans import Span
from tokenmill.errors import InputError


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
