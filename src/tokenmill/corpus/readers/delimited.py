"""CSV and TSV: the first record names the columns, every other record is a row.

Records are as Python's csv module reads them: a quoted field may hold delimiters, line ends and
doubled quotes. pyarrow's parser reads blocks of whole records (records.py); blocks that it refuses
go to Python's. A record with more or fewer fields than the header is bad. Fields are text; --where
reads a field as the type that it is compared with (`score >= 3` as a number), and an empty one as
null. pyarrow would infer a type for each block. A .csv file whose header has no comma, but
semicolons or tabs, is separated by those.

330-390 MB/s of text per thread, by Python's parser 110-180. Cutting a file reads all of it once, at
800 MB/s, which pays with two workers or more. An object in a store is therefore fetched twice: a
corpus must be cut the same wherever it is, or a shuffle would give different bytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from tokenmill.arrays import binary_array_of, null_scalar, scalar
from tokenmill.corpus.readers import COMPRESSED_TEXT_RATIO, ReadOptions, TextBatch
from tokenmill.corpus.readers.bytestream import chunks_of, head_of, is_counted_from_start
from tokenmill.corpus.readers.choice import Chosen
from tokenmill.corpus.readers.json_choice import choice_of
from tokenmill.corpus.readers.kept_columns import KeptColumns, kept_columns, raw_of, table_schema
from tokenmill.corpus.readers.records import Record, RecordBlocks, records
from tokenmill.corpus.readers.row_text import RowText
from tokenmill.corpus.readers.rows import Raw, text_batches
from tokenmill.corpus.readers.sample import Sampler, sampler_of
from tokenmill.corpus.readers.signature import UTF8_BOM
from tokenmill.corpus.spans import Input, Span
from tokenmill.errors import ConfigError, InputError
from tokenmill.where.columns import misspelled
from tokenmill.where.parser import parsed

_HEADER_BYTES = 1 << 20
_CUT_BYTES = 4 << 20  # scanned at a time
# Other delimiters of .csv files: spreadsheets write semicolons where numbers have decimal commas.
_INSTEAD_OF_COMMA = (b";", b"\t")
_SEPARATORS = {
    ",": ("comma", "commas"),
    "\t": ("tab", "tabs"),
    ";": ("semicolon", "semicolons"),
    "|": ("bar", "bars"),
}


@dataclass(frozen=True, slots=True)
class _Header:
    names: list[str]
    delimiter: bytes
    num_lines: int  # including blank ones before it
    num_bytes: int
    has_more: bool  # anything follows it

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(name, pa.string()) for name in self.names])


@dataclass(frozen=True, slots=True)
class _Table:
    """Some records: the needed columns, as bytes; a bad record is null in all."""

    batch: pa.RecordBatch
    bad: dict[int, str]


class DelimitedReader:
    """Span unit: bytes of the file."""

    def __init__(self, options: ReadOptions, delimiter: str) -> None:
        if options.lists is not None:
            raise ConfigError(
                "--lists is for columns of lists, and the fields of a CSV file are text",
                hint="leave --lists out",
            )
        self.options = options
        self._delimiter = delimiter.encode()
        self._counted: tuple[Span, int, Iterator[int]] | None = None

    def spans(self, source: Input) -> list[Span]:
        header = self._header(source)
        if header is None:
            return []
        self._require_divided(header, source)
        RowText(header.schema, self.options, source.name)
        if self.options.where is not None:
            require_columns(self.options.where, header.names, source.name)
        if source.compression:
            return [Span(source, 0, source.num_bytes, source.num_bytes * COMPRESSED_TEXT_RATIO)]
        edges = [0, source.num_bytes]
        if source.num_bytes > self.options.span_bytes:
            edges = self._cuts(source, header.delimiter)
        spans = [Span(source, a, b, b - a) for a, b in itertools.pairwise(edges)]
        return spans if header.has_more else []

    def batches(self, span: Span) -> Iterator[TextBatch]:
        header = self._header(span.input)
        if header is None:  # a compressed file without text
            return iter(())
        row_text = RowText(header.schema, self.options, span.input.name)
        sampler = sampler_of(span, self.options)
        kept = kept_columns(header.schema, self.options, span.input.name)
        tables = self._tables(span, header, self._needed(row_text, kept))
        raws = _raws(tables, row_text, kept, sampler, self.options)
        return text_batches(span, raws, self.options)

    def kept_schema(self, source: Input) -> pa.Schema:
        """Fields have no types: they are kept as text."""
        header = self._header(source)
        schema = pa.schema([]) if header is None else header.schema
        return table_schema(schema, self.options.keep or (), source.name)

    def place(self, span: Span, row: int) -> str:
        # Rows are requested in order, so the records are parsed once, not once per bad row.
        if self._counted is None or self._counted[0] != span or self._counted[1] > row:
            self._counted = (span, 0, self._lines_of_rows(span))
        _, first, lines = self._counted
        line = next(itertools.islice(lines, row - first, None))
        self._counted = (span, row + 1, lines)
        if span.start and not is_counted_from_start(span):
            return f"line {line} from byte {span.start} on"
        return f"line {line}"

    def _header(self, source: Input) -> _Header | None:
        """The first record; None for a file without records."""
        if source.num_bytes == 0 and not source.compression:
            return None
        head = head_of(source, _HEADER_BYTES)
        delimiter, first = self._first_record(head, source)
        if first is None:
            return None
        if first.problem:
            raise InputError(f"{source.name}: line {first.line}: {first.problem}")
        if any("\0" in name for name in first.fields):
            raise InputError(
                f"{source.name}: NUL bytes in its first record, which names the columns: it may be "
                "encoded as UTF-16, not UTF-8",
                hint="if it is, convert it first: iconv -f UTF-16LE -t UTF-8",
            )
        lines = head.split(b"\n", first.end_line)
        num_bytes = min(len(head), sum(map(len, lines[: first.end_line])) + first.end_line)
        if num_bytes >= _HEADER_BYTES:
            raise InputError(
                f"{source.name}: the first record, which names the columns, is longer than "
                f"{_HEADER_BYTES} bytes",
                hint="is this a CSV file?",
            )
        names = [_shown(name) for name in first.fields]
        return _Header(names, delimiter, first.end_line, num_bytes, len(head) > num_bytes)

    def _first_record(self, head: bytes, source: Input) -> tuple[bytes, Record | None]:
        """The delimiter, and the header."""
        first = next(records([head], self._delimiter, source), None)
        if self._delimiter == b"," and first and first.fields != [self.options.text_column]:
            for delimiter in _INSTEAD_OF_COMMA if len(first.fields) == 1 else ():
                other = next(records([head], delimiter, source), None)
                if other and len(other.fields) > 1:
                    return delimiter, other
        return self._delimiter, first

    def _require_divided(self, header: _Header, source: Input) -> None:
        """Raise ConfigError for a file that something else separates: its lines, whole, would be
        the values of a column whose name is the whole header."""
        is_named = self.options.template or header.names[0] == self.options.text_column
        if len(header.names) > 1 or is_named:
            return
        own, head = header.delimiter.decode(), head_of(source, header.num_bytes)
        found = [mark for mark in _SEPARATORS if mark != own and _is_divided(head, mark, source)]
        if not found:  # such a mark may be in a quoted name
            return
        hint = "--input-format csv"
        if found[0] == "|":
            hint = "write it with commas first, as with Python's csv module"
        raise ConfigError(
            f"{source.name}: its first line, which names the columns, has no "
            f"{_SEPARATORS[own][0]}, but {_SEPARATORS[found[0]][1]}: {header.names[0]!r}",
            hint=hint,
        )

    def _needed(self, row_text: RowText, kept: KeptColumns | None) -> list[str]:
        """The columns to read, each once."""
        where = [] if self.options.where is None else parsed(self.options.where).columns
        names = [*(field.path for field in row_text.fields), *(".".join(one) for one in where)]
        return list(dict.fromkeys([*names, *(kept.paths if kept else ())]))

    def _cuts(self, source: Input, delimiter: bytes) -> list[int]:
        """Where the file is cut, with its ends; only its ends if finding cuts takes a parser."""
        target = span_bytes = self.options.span_bytes
        chunks = chunks_of(source, 0, source.num_bytes, min(span_bytes, _CUT_BYTES))
        blocks = RecordBlocks(chunks, delimiter, source)
        ends, end = [], 0
        for block in blocks:
            end += len(block)
            if end >= target:
                ends.append(end)
                target = end + span_bytes
        if blocks.rest is not None:
            return [0, source.num_bytes]
        mark = source.num_bytes - end  # a byte order mark is not among the chunks
        ends = [mark + one for one in ends]
        return [0, *(one for one in ends if one < source.num_bytes), source.num_bytes]

    def _tables(self, span: Span, header: _Header, needed: list[str]) -> Iterator[_Table]:
        chunks = chunks_of(span.input, span.start, span.stop, self.options.batch_bytes)
        num_lines = 0
        if span.start == 0:
            chunks, num_lines = _without(chunks, header.num_bytes), header.num_lines
        blocks = RecordBlocks(chunks, header.delimiter, span.input, num_lines)
        columns = [header.names.index(name) for name in needed]
        for block in blocks:
            arrays = _parsed(block, header.delimiter, len(header.names), columns)
            if arrays is not None:
                yield _Table(pa.RecordBatch.from_arrays(arrays, needed), {})
            else:
                found = records([block], header.delimiter, span.input)
                yield _table(list(found), len(header.names), columns, needed)
        if blocks.rest is not None:
            found = records(blocks.rest, header.delimiter, span.input, blocks.num_lines)
            for some in _gathered(found, self.options.batch_bytes):
                yield _table(some, len(header.names), columns, needed)

    def _lines_of_rows(self, span: Span) -> Iterator[int]:
        header = self._header(span.input)
        assert header is not None, "a span has records"
        first, skipped = 0, 0
        if span.start and is_counted_from_start(span):
            before = chunks_of(span.input, 0, span.start, self.options.batch_bytes)
            first = sum(chunk.count(b"\n") for chunk in before)
        chunks = chunks_of(span.input, span.start, span.stop, self.options.batch_bytes)
        if span.start == 0:
            skipped = 1
        found = records(chunks, header.delimiter, span.input)
        for record in itertools.islice(found, skipped, None):
            yield first + record.line


# Functions, not methods: a reader that keeps an unfinished generator must not be referenced by it.


def _raws(
    tables: Iterable[_Table],
    row_text: RowText,
    columns: KeptColumns | None,
    sampler: Sampler | None,
    options: ReadOptions,
) -> Iterator[Raw]:
    first_row = 0
    for table in tables:
        num_rows = len(table.batch)
        texts = row_text.of(_with_nulls(table.batch) if options.template else table.batch)
        kept = None if columns is None else columns.of(table.batch)
        if options.filters_rows:
            chosen = chosen_records(table.batch, table.bad, options)
            if sampler is not None:
                chosen = chosen.only(sampler.drawn(first_row, num_rows))
            yield chosen.of(texts, kept)
        elif table.bad:
            yield Chosen(np.ones(num_rows, np.bool_), table.bad).of(texts, kept)
        else:
            yield raw_of(texts, kept)
        first_row += num_rows


def _parsed(
    block: bytes, delimiter: bytes, num_columns: int, columns: Sequence[int]
) -> list[pa.Array] | None:
    """The columns of a block, parsed by pyarrow; None if it needs Python's parser."""
    if block.startswith(UTF8_BOM):  # here it is text, but pyarrow would drop it
        return None
    names = [str(number) for number in range(num_columns)]
    try:
        table = pyarrow.csv.read_csv(
            pa.BufferReader(block),
            read_options=pyarrow.csv.ReadOptions(
                use_threads=False, block_size=len(block) + 1, column_names=names
            ),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=delimiter.decode(), newlines_in_values=True
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                check_utf8=False,
                column_types=dict.fromkeys(names, pa.large_binary()),
                include_columns=[names[column] for column in columns],
                strings_can_be_null=False,
            ),
        )
    except (pa.ArrowException, OverflowError):
        return None
    return [column.combine_chunks() for column in table.columns]


def _table(
    found: Sequence[Record], num_columns: int, columns: Sequence[int], names: Sequence[str]
) -> _Table:
    bad: dict[int, str] = {}
    for row, record in enumerate(found):
        if record.problem is not None:
            bad[row] = record.problem
        elif len(record.fields) != num_columns:
            bad[row] = f"{len(record.fields)} fields where the header has {num_columns}"
    arrays = [
        binary_array_of(
            [
                None if row in bad else record.fields[column].encode(errors="surrogateescape")
                for row, record in enumerate(found)
            ]
        )
        for column in columns
    ]
    return _Table(pa.RecordBatch.from_arrays(arrays, list(names)), bad)


def _is_divided(head: bytes, mark: str, source: Input) -> bool:
    """Whether a mark divides the first record."""
    first = next(records([head], mark.encode(), source), None)
    return first is not None and len(first.fields) > 1


def _gathered(found: Iterable[Record], batch_bytes: int) -> Iterator[list[Record]]:
    some: list[Record] = []
    num_bytes = 0
    for record in found:
        some.append(record)
        num_bytes += sum(map(len, record.fields)) + 1
        if num_bytes >= batch_bytes:
            yield some
            some, num_bytes = [], 0
    if some:
        yield some


def _with_nulls(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same with null for empty fields, which a template treats alike."""
    import pyarrow.compute as pc

    nothing, zero = null_scalar(pa.large_binary()), scalar(0, pa.int64())
    arrays = [
        pc.if_else(pc.equal(pc.binary_length(column), zero), nothing, column)
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(arrays, batch.schema.names)


def _without(chunks: Iterator[bytes], num_bytes: int) -> Iterator[bytes]:
    """The chunks without their first bytes."""
    for chunk in chunks:
        if len(chunk) > num_bytes:
            yield chunk[num_bytes:]
        num_bytes = max(0, num_bytes - len(chunk))


def _shown(name: str) -> str:
    return name.encode(errors="surrogateescape").decode(errors="replace")


def chosen_records(batch: pa.RecordBatch, bad: dict[int, str], options: ReadOptions) -> Chosen:
    """The records that satisfy --where, if it is given; the outcome of `bad` ones is unknown."""
    if options.where is None:
        return Chosen(np.ones(len(batch), np.bool_), bad)
    choice = choice_of(parsed(options.where), options.replace_bad_text)
    names = [".".join(one) for one in parsed(options.where).columns]
    columns = [
        [_value(field, types, options.replace_bad_text) for field in column.to_pylist()]
        for column, types in ((batch.column(n), choice.types_of(n)) for n in names)
    ]
    rows = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
    return choice.among_objects(rows, bad)


def _value(field: bytes | None, types: tuple[type, ...] | None, replace: bool) -> Any:
    """A field as the type it is tested as; as text or bytes if that fails."""
    if not field:
        return None
    try:
        text = field.decode()
    except UnicodeDecodeError:
        if not replace or types is None or str in types:
            return field
        text = field.decode(errors="replace")
    if types is not None and int in types:
        return _number(text)
    if types is not None and bool in types:
        return {"true": True, "false": False}.get(text.strip().lower(), text)
    return text


def _number(text: str) -> int | float | str:
    try:
        return int(text) if text.lstrip("+-").isdigit() and len(text) < 400 else float(text)
    except ValueError:
        return text


def require_columns(where: str, names: Sequence[str], path: str) -> None:
    """Raise ConfigError for a column that the header does not name, or tested as two types."""
    expression = parsed(where)
    for test in expression.tests:
        if str(test.column) not in names:
            what = f"{path}: no column {test.column.shown!r}"
            raise misspelled(expression, test.column, names, what)
    choice_of(expression, replace=False)  # refuses a column that is tested as two types
