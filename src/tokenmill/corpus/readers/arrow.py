"""Arrow IPC: files (.arrow, Feather v2) and streams (the caches of `datasets`), memory-mapped.

A stream is cut between messages, a file between record batches, so seeking to a span costs nothing,
and the text is not copied (3,500-4,800 MB/s; 1,100-1,200 from zstd buffers). A stream with
dictionary-encoded columns is one span, because a batch needs the dictionaries before it.

The price of the memory map: if another process truncates the file, the reader dies of SIGBUS.
Offsets and dictionary indices in the file are not trusted: each text column is validated in full
before they are used. In a compressed *stream* all columns of a batch are decompressed, because
pyarrow cannot select columns of a single message; in a compressed file, only the text column is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from tokenmill.corpus.columns import Field, SourceSchema, required_fields
from tokenmill.corpus.readers import COMPRESSED_TEXT_RATIO, ReadOptions
from tokenmill.corpus.readers.bytestream import native_file
from tokenmill.corpus.readers.ipc import (
    FEATHER_V1_MAGIC,
    FILE_MAGIC,
    READ_FAILURES,
    Batch,
    BatchIndex,
    batch_index_of,
)
from tokenmill.corpus.rows import Rows, place_in_table, table_rows, without_row_numbers
from tokenmill.corpus.spans import Input, Span
from tokenmill.errors import InputError, NetworkError


class ArrowReader:
    """Span unit: record batches of a file; bytes of a stream."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options

    def spans(self, source: Input) -> list[Span]:
        with native_file(source, is_mapped=True) as (file, expect):
            expect([(0, source.num_bytes)])
            is_file = _is_file(file, source.name)
            found = batch_index_of(file, source.name, is_file)
            fields = required_fields(SourceSchema(found.schema), self.options, source.name)
            if is_file:
                num_batches = _file_reader(file, source.name, fields).num_record_batches
                if num_batches != len(found.batches):
                    raise InputError(
                        f"{source.name}: the footer lists {num_batches} record batches, "
                        f"the file holds {len(found.batches)}"
                    )
            spans = [span for span in self._spans(source, found, is_file) if span.num_rows]
            return without_row_numbers(spans, self.options)

    def schema(self, source: Input) -> SourceSchema:
        with native_file(source, is_mapped=True) as (file, _):
            return SourceSchema(_schema_of(file, _is_file(file, source.name)))

    def rows(self, span: Span) -> Iterator[Rows]:
        path, num_read, first_row = span.input.name, 0, 0
        with native_file(span.input, is_mapped=True) as (file, expect):
            try:
                is_file = _is_file(file, path)
                if not is_file:
                    expect([(span.start, span.stop)])
                schema = SourceSchema(_schema_of(file, is_file))
                fields = required_fields(schema, self.options, path)
                for batch in self._batches(file, span, fields):
                    yield table_rows(batch, first_row, fields, self.options)
                    num_read, first_row = num_read + 1, first_row + len(batch)
            except NetworkError:
                raise
            except READ_FAILURES as error:
                unit = "record batch" if _is_file(file, path) else "byte"
                raise InputError(
                    f"{path}: record batch {num_read} from {unit} {span.start} on: {error}",
                    hint="the file is damaged; fetch it again",
                ) from error

    def place(self, span: Span, row: int) -> str:
        return place_in_table(span, row, self.options)

    def _spans(self, source: Input, found: BatchIndex, is_file: bool) -> list[Span]:
        if not found.batches:
            return []
        if found.has_dictionaries and not is_file:
            num_rows = sum(batch.num_rows for batch in found.batches)
            num_bytes = sum(map(_text_bytes, found.batches))
            return [Span(source, 0, source.num_bytes, num_bytes, 0, num_rows)]
        spans: list[Span] = []
        start = first_row = num_rows = num_bytes = 0
        for index, batch in enumerate([*found.batches, None]):
            size = _text_bytes(batch) if batch else 0
            if batch is None or (index > start and num_bytes + size > self.options.span_bytes):
                edges = (start, index)
                if not is_file:
                    edges = (found.batches[start].start, found.batches[index - 1].stop)
                spans.append(Span(source, *edges, num_bytes, first_row, num_rows))
                start, first_row = index, first_row + num_rows
                num_rows = num_bytes = 0
            num_rows += batch.num_rows if batch else 0
            num_bytes += size
        return spans

    def _batches(
        self, file: pa.NativeFile, span: Span, fields: Mapping[str, Field]
    ) -> Iterator[pa.RecordBatch]:
        """Record batches with the columns that are needed, and perhaps others."""
        if _is_file(file, span.input.name):
            reader = _file_reader(file, span.input.name, fields)
            for index in range(span.start, span.stop):
                yield reader.get_batch(index)
            return
        schema = _schema_of(file, is_file=False)
        file.seek(span.start)
        if span.start == 0:  # a whole stream with dictionaries: the first batch starts further on
            yield from pa.ipc.open_stream(file, options=_only(schema, fields))
            return
        while file.tell() < span.stop:
            yield pa.ipc.read_record_batch(pa.ipc.read_message(file), schema)


def _schema_of(file: pa.NativeFile, is_file: bool) -> pa.Schema:
    file.seek(0)
    return (pa.ipc.open_file if is_file else pa.ipc.open_stream)(file).schema


def _file_reader(
    file: pa.NativeFile, path: str, fields: Mapping[str, Field]
) -> pa.RecordBatchFileReader:
    try:
        return pa.ipc.open_file(file, options=_only(_schema_of(file, is_file=True), fields))
    except NetworkError:
        raise
    except READ_FAILURES as error:
        raise InputError(
            f"{path}: not a readable Arrow file: {error}",
            hint="fetch it again if it was cut short, or leave it out",
        ) from error


def _only(schema: pa.Schema, fields: Mapping[str, Field]) -> pa.ipc.IpcReadOptions:
    """Reads only the columns that are needed."""
    columns = sorted({schema.get_field_index(field.names[0]) for field in fields.values()})
    return pa.ipc.IpcReadOptions(included_fields=columns, use_threads=False)


def _text_bytes(batch: Batch) -> int:
    return batch.body_bytes * (COMPRESSED_TEXT_RATIO if batch.is_compressed else 1)


def _is_file(file: pa.NativeFile, path: str) -> bool:
    """Whether the first bytes are those of the IPC file format; otherwise it is a stream."""
    magic = file.read_at(len(FILE_MAGIC), 0) if file.size() else b""
    if magic.startswith(FEATHER_V1_MAGIC):
        raise InputError(
            f"{path}: Feather version 1, which pyarrow no longer writes",
            hint="read it with pyarrow.feather.read_table and write it as version 2",
        )
    return bool(magic == FILE_MAGIC)
