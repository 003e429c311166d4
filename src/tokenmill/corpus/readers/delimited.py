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

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.csv

from tokenmill.arrays import binary_array_of, null_scalar, scalar
from tokenmill.corpus.columns import AskedColumn, SourceSchema, asked, kept_values, require_columns
from tokenmill.corpus.readers import COMPRESSED_TEXT_RATIO, ReadOptions
from tokenmill.corpus.readers.bytestream import UTF8_BOM, RowLines, chunks_of, head_of
from tokenmill.corpus.readers.json_values import BadLine, require_kind, tested_array
from tokenmill.corpus.readers.records import Record, RecordBlocks, records
from tokenmill.corpus.rows import Rows
from tokenmill.corpus.spans import Input, Span
from tokenmill.errors import ConfigError, InputError

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
    def schema(self) -> SourceSchema:
        """Fields are text, which --where reads as what it is compared with."""
        types = (pa.string(), pa.float64(), pa.bool_())
        any_type = pa.dense_union([pa.field(str(type_), type_) for type_ in types])
        return SourceSchema(pa.schema([(name, any_type) for name in self.names]))


# These a float64 holds exactly, or as Python reads them.
_PLAIN_NUMBER = r"^-?[0-9]{1,15}(\.[0-9]{1,15})?$"
_NOTHING: Mapping[int, str] = {}
_Arrays = dict[str, pa.Array]  # of the file's columns, by their names


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
        self._lines = RowLines(functools.partial(_lines_of_rows, options, delimiter))

    def spans(self, source: Input) -> list[Span]:
        header = self.header(source)
        if header is None:
            return []
        self._require_divided(header, source)
        require_columns(header.schema, self.options, source.name)
        if source.compression:
            return [Span(source, 0, source.num_bytes, source.num_bytes * COMPRESSED_TEXT_RATIO)]
        edges = [0, source.num_bytes]
        if source.num_bytes > self.options.span_bytes:
            edges = self._cuts(source, header.delimiter)
        spans = [Span(source, a, b, b - a) for a, b in itertools.pairwise(edges)]
        return spans if header.has_more else []

    def rows(self, span: Span) -> Iterator[Rows]:
        header = self.header(span.input)
        if header is None:  # a compressed file without text
            return
        require_columns(header.schema, self.options, span.input.name)
        first_row = 0
        for arrays, bad in self._tables(span, header):
            rows = _rows(arrays, bad, first_row, self.options)
            yield rows
            first_row = rows.stop

    def schema(self, source: Input) -> SourceSchema:
        header = self.header(source)
        return SourceSchema(pa.schema([])) if header is None else header.schema

    def place(self, span: Span, row: int) -> str:
        return self._lines.place(span, row)

    def header(self, source: Input) -> _Header | None:
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

    def _tables(self, span: Span, header: _Header) -> Iterator[tuple[_Arrays, dict[int, str]]]:
        """The columns that are asked for, as bytes, of blocks of records; and why records are bad,
        which are null in all."""
        chunks = chunks_of(span.input, span.start, span.stop, self.options.batch_bytes)
        num_lines = 0
        if span.start == 0:
            chunks, num_lines = _without(chunks, header.num_bytes), header.num_lines
        blocks = RecordBlocks(chunks, header.delimiter, span.input, num_lines)
        names = dict.fromkeys(column.name for column in asked(self.options))
        columns = {name: header.names.index(name) for name in names}
        for block in blocks:
            arrays = _parsed(block, header.delimiter, len(header.names), columns)
            if arrays is not None:
                yield arrays, {}
            else:
                found = records([block], header.delimiter, span.input)
                yield _table(list(found), len(header.names), columns)
        if blocks.rest is not None:
            found = records(blocks.rest, header.delimiter, span.input, blocks.num_lines)
            for some in _gathered(found, self.options.batch_bytes):
                yield _table(some, len(header.names), columns)


def _lines_of_rows(options: ReadOptions, delimiter: str, span: Span) -> Iterator[int]:
    header = DelimitedReader(options, delimiter).header(span.input)
    assert header is not None, "a span has records"
    chunks = chunks_of(span.input, span.start, span.stop, options.batch_bytes)
    found = records(chunks, header.delimiter, span.input)
    for record in itertools.islice(found, 0 if span.start else 1, None):
        yield record.line


def _rows(arrays: _Arrays, bad: dict[int, str], first_row: int, options: ReadOptions) -> Rows:
    found: dict[str, pa.Array] = {}
    unreadable: dict[str, dict[int, str]] = {}
    for column in asked(options):
        array, why = arrays[column.name], _NOTHING
        if column.role in ("template", "where"):
            array = _with_nulls(array)
        if column.role == "where":
            array, why = _tested(array, column, options.replace_bad_text)
        elif column.role == "keep":
            array, why = kept_values(array, column, options.replace_bad_text)
        found[column.key] = array
        unreadable[column.key] = {first_row + at: reason for at, reason in why.items()}
    rejected = {first_row + at: reason for at, reason in bad.items()}
    return Rows.of(found, first_row, rejected, unreadable)


def _tested(
    array: pa.LargeBinaryArray, column: AskedColumn, replace: bool
) -> tuple[pa.Array, Mapping[int, str]]:
    """Fields as what they are tested as; why others are not, by position."""
    if not column.kinds or "text" in column.kinds:
        return array, _NOTHING
    if "a number" in column.kinds:
        import pyarrow.compute as pc

        if pc.all(pc.match_substring_regex(array, _PLAIN_NUMBER)).as_py() is not False:
            return array.cast(pa.large_string()).cast(pa.float64()), _NOTHING
    values = [_value(field, column.kinds, replace) for field in array.to_pylist()]
    bad: dict[int, str] = {}
    for at, value in enumerate(values):
        try:
            if value is not None:
                require_kind(value, column)
        except BadLine as why:
            bad[at], values[at] = str(why), None
    return tested_array(values, column), bad


def _parsed(
    block: bytes, delimiter: bytes, num_columns: int, columns: Mapping[str, int]
) -> _Arrays | None:
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
                include_columns=[names[column] for column in columns.values()],
                strings_can_be_null=False,
            ),
        )
    except (pa.ArrowException, OverflowError):
        return None
    found = (column.combine_chunks() for column in table.columns)
    return dict(zip(columns, found, strict=True))


def _table(
    found: Sequence[Record], num_columns: int, columns: Mapping[str, int]
) -> tuple[_Arrays, dict[int, str]]:
    bad: dict[int, str] = {}
    for row, record in enumerate(found):
        if record.problem is not None:
            bad[row] = record.problem
        elif len(record.fields) != num_columns:
            bad[row] = f"{len(record.fields)} fields where the header has {num_columns}"
    arrays = {
        name: binary_array_of(
            [
                None if row in bad else record.fields[column].encode(errors="surrogateescape")
                for row, record in enumerate(found)
            ]
        )
        for name, column in columns.items()
    }
    return arrays, bad


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


def _with_nulls(column: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
    """The same with null for empty fields, which a template and --where treat alike."""
    import pyarrow.compute as pc

    nothing, zero = null_scalar(pa.large_binary()), scalar(0, pa.int64())
    return pc.if_else(pc.equal(pc.binary_length(column), zero), nothing, column)


def _without(chunks: Iterator[bytes], num_bytes: int) -> Iterator[bytes]:
    """The chunks without their first bytes."""
    for chunk in chunks:
        if len(chunk) > num_bytes:
            yield chunk[num_bytes:]
        num_bytes = max(0, num_bytes - len(chunk))


def _shown(name: str) -> str:
    return name.encode(errors="surrogateescape").decode(errors="replace")


def _value(field: bytes | None, kinds: Sequence[str], replace: bool) -> Any:
    """A field as the type it is tested as; as text or bytes if that fails."""
    if field is None:
        return None
    try:
        text = field.decode()
    except UnicodeDecodeError:
        if not replace:
            return field
        text = field.decode(errors="replace")
    if "a number" in kinds:
        return _number(text)
    return {"true": True, "false": False}.get(text.strip().lower(), text)


def _number(text: str) -> int | float | str:
    try:
        return int(text) if text.lstrip("+-").isdigit() and len(text) < 400 else float(text)
    except ValueError:
        return text
