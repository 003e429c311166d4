"""Rows: what flows from a reader to the mill, and what options do to them.

A reader yields the rows of a span with the columns that are asked for (columns.py). `documents`
makes documents of them, with the same functions for every kind of input: --where and --sample leave
rows out, a column, a template or a list becomes the text, --limit-docs ends it.

A row that cannot be used stays, null, and `rejected` says why: encode/mill.py counts, quarantines
or stops. Of several reasons, that of the text wins over that of --where, and that over --keep's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from tokenmill.arrays import indices, mask, null_scalar, numbers_of, taken
from tokenmill.corpus.columns import Field, asked, column_of, kept_values, kind_of
from tokenmill.corpus.readers import EVEN_KINDS, Reader, ReadOptions
from tokenmill.corpus.spans import Span
from tokenmill.corpus.text_arrays import (
    byte_lengths,
    checked_texts,
    divided_lists,
    joined_lists,
    plain_binary,
    sound_binary,
)
from tokenmill.errors import InputError
from tokenmill.where.template import template_of

if TYPE_CHECKING:
    from tokenmill.where.evaluation import Values
    from tokenmill.where.tree import Expression, Test

MAX_BATCH_ROWS = 1 << 16  # empty rows have no bytes, but still cost memory
DEFAULT_SEPARATOR = "\n\n"

_NO_TEXTS = pa.nulls(0, pa.large_string())


@dataclass(frozen=True, slots=True)
class Rows:
    """Consecutive rows of a span: rows [first_row, first_row + num_covered), of which `batch` may
    lack some, which are left out. All mappings are by the row's number in the span.

    `batch` has the column `row` (numbers, ascending) and a column of each `AskedColumn.key`. Once
    documents are made, it has `text`, a `large_string` array of valid UTF-8, and of --keep's
    columns those in the plan's types; with --lists documents, `row` counts documents, and
    `file_row` has the rows that they come from, if anything is kept. The text may be a slice of a
    larger array or in a memory-mapped file, and the bytes beneath a null are unspecified.
    """

    batch: pa.RecordBatch
    first_row: int
    num_covered: int
    rejected: Mapping[int, str] = field(default_factory=dict)  # why; their text is null
    # By key: why a value is not what it was asked for as. It is null in its column.
    unreadable: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    replaced: frozenset[int] = frozenset()  # rows in which invalid UTF-8 became U+FFFD

    @staticmethod
    def of(
        columns: Mapping[str, pa.Array],
        first_row: int,
        rejected: Mapping[int, str] | None = None,
        unreadable: Mapping[str, Mapping[int, str]] | None = None,
        replaced: Iterable[int] = (),
        num_rows: int = 0,  # without columns
    ) -> Rows:
        """All rows from a number on."""
        count = len(next(iter(columns.values()))) if columns else num_rows
        numbers = indices(np.arange(first_row, first_row + count))
        batch = pa.RecordBatch.from_arrays([numbers, *columns.values()], ["row", *columns])
        bad = {key: why for key, why in (unreadable or {}).items() if why}
        return Rows(batch, first_row, count, rejected or {}, bad, frozenset(replaced))

    @staticmethod
    def of_texts(texts: pa.Array, first_row: int, replace_bad_text: bool) -> Rows:
        """All rows from a number on, which are texts alone."""
        found, bad, replaced = checked_texts(texts, replace_bad_text)
        rejected = {first_row + at: why for at, why in bad.items()}
        numbers = (first_row + at for at in replaced)
        return Rows.of({"text": found}, first_row, rejected, replaced=numbers)

    @staticmethod
    def left_out(first_row: int, num_covered: int) -> Rows:
        """Rows that are all left out."""
        batch = pa.RecordBatch.from_arrays([indices(np.empty(0, np.int64)), _NO_TEXTS], _TEXT)
        return Rows(batch, first_row, num_covered)

    def __len__(self) -> int:
        """The number of rows that are not left out."""
        return int(self.batch.num_rows)

    @property
    def texts(self) -> pa.LargeStringArray:
        return self["text"]

    @property
    def numbers(self) -> npt.NDArray[np.int64]:
        """The rows' numbers in the span."""
        return numbers_of(self["row"]).view(np.int64)

    @property
    def file_rows(self) -> npt.NDArray[np.int64]:
        """The rows that they come from: `numbers`, unless these count documents."""
        key = "file_row" if "file_row" in self.keys else "row"
        return numbers_of(self[key]).view(np.int64)

    @property
    def stop(self) -> int:
        return self.first_row + self.num_covered

    @property
    def keys(self) -> list[str]:
        return list(self.batch.schema.names)

    def __getitem__(self, key: str) -> pa.Array:
        return self.batch.column(self.batch.schema.get_field_index(key))

    def without(self, role: str) -> Rows:
        """The same without the columns of a role."""
        names = [key for key in self.keys if not key.startswith(f"{role}:")]
        unreadable = {k: v for k, v in self.unreadable.items() if not k.startswith(f"{role}:")}
        return replace(self, batch=self.batch.select(names), unreadable=unreadable)

    def take(self, positions: npt.NDArray[np.int64]) -> Rows:
        """The rows at these ascending positions of the batch; the others are left out."""
        if len(positions) == len(self):
            return self
        arrays = [taken(array, positions) for array in self.batch.columns]
        return self._with(pa.RecordBatch.from_arrays(arrays, self.keys))

    def documents(self, positions: npt.NDArray[np.int64]) -> Rows:
        """The rows at these positions alone, whatever became of the others."""
        if len(positions) == len(self):
            return self
        return replace(self, batch=self.batch.take(indices(positions)))

    def with_column(self, key: str, array: pa.Array) -> Rows:
        columns, names = [*self.batch.columns, array], [*self.keys, key]
        return replace(self, batch=pa.RecordBatch.from_arrays(columns, names))

    def between(self, start: int, stop: int) -> Rows:
        """Those that stand for rows [start, stop)."""
        first, last = np.searchsorted(self.numbers, [start, stop]).tolist()
        part = self._with(self.batch.slice(first, last - first))
        return replace(part, first_row=start, num_covered=stop - start)

    def _with(self, batch: pa.RecordBatch) -> Rows:
        """The same with fewer rows, and without what is known of the others."""
        found = replace(self, batch=batch)
        if not (self.rejected or self.unreadable or self.replaced):
            return found
        there = set(found.numbers.tolist())
        unreadable = {key: _only(why, there) for key, why in self.unreadable.items()}
        return replace(
            found,
            rejected=_only(self.rejected, there),
            unreadable={key: why for key, why in unreadable.items() if why},
            replaced=self.replaced & there,
        )

    def positions_of(self, numbers: Iterable[int]) -> npt.NDArray[np.int64]:
        """Where rows are in the batch."""
        return np.searchsorted(self.numbers, np.fromiter(numbers, np.int64))


_TEXT = ["row", "text"]


def _only(found: Mapping[int, str], there: set[int]) -> dict[int, str]:
    return {row: why for row, why in found.items() if row in there}


def documents(reader: Reader, span: Span, options: ReadOptions) -> Iterator[Rows]:
    """The documents of a span in order, in batches of about `batch_bytes`, in bounded memory. They
    do not depend on `span_bytes` or `batch_bytes`. Raises InputError for a broken file."""
    is_even = span.input.kind in EVEN_KINDS
    rows = reader.rows(span)
    if options.where is not None:
        from tokenmill.where.parser import parsed

        expression = parsed(options.where)
        rows = (passing(one, expression, options.replace_bad_text) for one in rows)
    if sampler := sampler_of(span, options):
        rows = (sampler.drawn(one) for one in rows)
    rows = _with_texts(rows, options, is_even)
    return _up_to(rows if is_even else _even(rows, options.batch_bytes), span)


# Rows of tables


def table_rows(
    batch: pa.RecordBatch, first_row: int, fields: Mapping[str, Field], options: ReadOptions
) -> Rows:
    """The columns of a table that `fields` has, by their keys, of those that are asked for. They
    are checked in full: files are not trusted. Raises ArrowInvalid for a damaged column."""
    found: dict[str, pa.Array] = {}
    unreadable: dict[str, Mapping[int, str]] = {}
    for column in asked(options):
        if column.key not in fields:
            continue
        array = column_of(batch, fields[column.key])
        if column.role == "keep":
            found[column.key], bad = kept_values(array, column, options.replace_bad_text)
            unreadable[column.key] = {first_row + at: why for at, why in bad.items()}
        elif column.role == "where":
            found[column.key] = _testable(array)
        else:
            is_number = pa.types.is_integer(array.type)  # in a template: its decimal digits
            found[column.key] = sound_binary(array.cast(pa.large_string()) if is_number else array)
    return Rows.of(found, first_row, None, unreadable)


def _testable(array: pa.Array) -> pa.Array:
    """A column as --where tests it: text is large_binary, and nothing is a dictionary."""
    if kind_of(array.type) == "text":
        return plain_binary(sound_binary(array))
    array.validate(full=True)
    if pa.types.is_dictionary(array.type):
        return array.dictionary.take(array.indices)
    return array


# --where


def passing(rows: Rows, expression: Expression, replace_bad_text: bool) -> Rows:
    """The rows that an expression lets in, without its columns. If the outcome depends on a value
    that cannot be read, its row goes in, rejected. A reader may already have done so: then there
    are no such columns."""
    if not any(key.startswith("where:") for key in rows.keys):
        return rows
    from tokenmill.where.evaluation import Truth, Values, outcome_of_rows  # 35 ms, for --where only

    reasons = dict(rows.rejected)

    def values_of(test: Test) -> Values:
        key = f"where:{test.column}"
        array, bad = rows[key], dict(rows.unreadable.get(key, {}))
        if test.needs_utf8 and pa.types.is_large_binary(array.type):
            texts, invalid, _ = checked_texts(array, replace_bad_text)
            array, numbers = texts.view(pa.large_binary()), rows.numbers
            name = str(test.column)
            bad |= {int(numbers[at]): f"column {name!r}: {why}" for at, why in invalid.items()}
        for row, why in bad.items():
            reasons.setdefault(row, why)
        return Values(array, _flags(rows, bad) if bad else None)

    truth = outcome_of_rows(expression, values_of)
    if rows.rejected:
        truth = Truth(*(flags | _flags(rows, rows.rejected) for flags in truth))
    undecided = np.flatnonzero(truth.true & (truth.false | truth.null))
    rejected = {row: reasons[row] for row in rows.numbers[undecided].tolist()}
    rows = replace(rows.without("where"), rejected=rejected)
    return rows.take(np.flatnonzero(truth.true))


def _flags(rows: Rows, numbers: Iterable[int]) -> npt.NDArray[np.bool_]:
    found = np.zeros(len(rows), np.bool_)
    found[rows.positions_of(numbers)] = True
    return found


# --sample

_STEP = 0x9E3779B97F4A7C15


@dataclass(frozen=True, slots=True)
class Sampler:
    """Draws rows of one span: a fraction, spread over the whole corpus, the same ones every time.

    A row is drawn by a hash of the seed, its file and its number. The file is identified by its
    name and size, not its folder, so that a corpus that was moved or uploaded gives the same
    sample. Where the number of rows before a cut is unknown (JSON lines, CSV, text), rows are
    numbered from the last cut, and its byte is hashed too. A larger sample
    contains a smaller one.
    """

    key: int
    below: int  # hashes below this are drawn, of 2^64

    def drawn(self, rows: Rows) -> Rows:
        """The rows that are in the sample. splitmix64 of key and row."""
        with np.errstate(over="ignore"):
            state = (rows.numbers + 1).astype(np.uint64)
            state = state * np.uint64(_STEP) + np.uint64(self.key)
            state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            state ^= state >> np.uint64(31)
        return rows.take(np.flatnonzero(state <= np.uint64(self.below - 1)))


def sampler_of(span: Span, options: ReadOptions) -> Sampler | None:
    """The sampler of a span; None without --sample."""
    if options.sample is None:
        return None
    source = span.input
    start = 0 if source.kind in ("parquet", "arrow") else span.start  # these know `first_row`
    name = source.name.rpartition("/")[2]
    key = xxhash.xxh3_64_intdigest(f"{start} {source.num_bytes} {name}".encode(), options.seed)
    first_row = (key + span.first_row * _STEP) & 0xFFFFFFFFFFFFFFFF
    return Sampler(first_row, max(1, int(options.sample * (1 << 64))))


# The text of a row


def _with_texts(parts: Iterable[Rows], options: ReadOptions, is_even: bool) -> Iterator[Rows]:
    num_more = 0  # documents than rows, so far
    for rows in parts:
        for piece in (rows,) if is_even else _pieces(rows, options):
            found = _with_text(piece, options, num_more)
            num_more += found.num_covered - piece.num_covered
            yield found


def _pieces(rows: Rows, options: ReadOptions) -> Iterator[Rows]:
    """The rows in slices of about `batch_bytes` of text; a single row may be larger. A slice ends
    with a row that is not left out; a last one covers the rows after it.

    Dictionaries, views and templates can repeat a value endlessly, so rows are divided before their
    texts are made.
    """
    sources = [rows[key] for key in rows.keys if key == "text" or key.startswith("template:")]
    lengths = sum(map(byte_lengths, sources), start=np.zeros(len(rows), np.int64))
    ends, numbers = np.cumsum(lengths), rows.numbers
    start, first_row = 0, rows.first_row
    while start < len(rows):
        before = ends[start - 1] if start else 0
        stop = int(np.searchsorted(ends, before + options.batch_bytes, side="right"))
        stop = max(start + 1, min(stop, start + MAX_BATCH_ROWS))
        stop_row = int(numbers[stop - 1]) + 1
        is_whole = stop - start == len(rows) and stop_row == rows.stop
        yield rows if is_whole else rows.between(first_row, stop_row)
        start, first_row = stop, stop_row
    if first_row < rows.stop:
        yield Rows.left_out(first_row, rows.stop - first_row)


def _with_text(rows: Rows, options: ReadOptions, num_before: int) -> Rows:
    """Rows whose text is made, and checked; `num_before` more documents than rows come before."""
    if not len(rows):
        return Rows.left_out(rows.first_row + num_before, rows.num_covered)
    if rows.unreadable:
        rows = replace(rows, rejected=_reasons(rows), unreadable={})
    raw = _raw_text(rows, options)
    kept = {key: rows[key] for key in rows.keys if key.startswith("keep:")}
    if options.lists == "documents":
        rows, raw, kept = _divided(rows, raw, kept, num_before)
        if options.keep is None:
            del kept["file_row"]
    texts, bad, replaced = checked_texts(raw, options.replace_bad_text)
    numbers = rows.numbers
    rejected = dict(rows.rejected) | {int(numbers[at]): why for at, why in bad.items()}
    if rejected:
        import pyarrow.compute as pc

        is_rejected = mask(_flags(rows, rejected))
        texts = pc.if_else(is_rejected, null_scalar(pa.large_string()), texts)
    batch = pa.RecordBatch.from_arrays([rows["row"], texts, *kept.values()], [*_TEXT, *kept])
    all_replaced = rows.replaced.union(numbers[replaced].tolist()) - rejected.keys()
    return replace(rows, batch=batch, rejected=rejected, replaced=all_replaced)


def _reasons(rows: Rows) -> dict[int, str]:
    """Why rows are rejected: the first reason of each; that of the text counts most."""
    of_text = [why for key, why in rows.unreadable.items() if not key.startswith("keep:")]
    of_kept = [why for key, why in rows.unreadable.items() if key.startswith("keep:")]
    found: dict[int, str] = {}
    for reasons in (*of_text, rows.rejected, *of_kept):
        found = {**reasons, **found}
    return found


def _raw_text(rows: Rows, options: ReadOptions) -> pa.Array:
    """The rows' texts before they are checked; lists that are to be divided stay lists."""
    if "text" not in rows.keys:
        assert options.template is not None
        template = template_of(options.template)
        slots = [plain_binary(rows[f"template:{slot.name}"]) for slot in template.slots]
        return template.joined(slots)
    raw = rows["text"]
    if pa.types.is_large_list(raw.type) and options.lists != "documents":
        separator = DEFAULT_SEPARATOR if options.separator is None else options.separator
        return joined_lists(raw, separator.encode())
    return raw


def _divided(
    rows: Rows, raw: pa.Array, kept: dict[str, pa.Array], num_before: int
) -> tuple[Rows, pa.Array, dict[str, pa.Array]]:
    """Each string of a list as a document: the rows, numbered as documents, their texts, and what
    is kept of them. A list has as many rows as documents; a row that is left out or rejected counts
    as one."""
    numbers = rows.numbers
    row_of = np.arange(len(rows))
    if pa.types.is_large_list(raw.type):
        raw, row_of = divided_lists(raw, rows.positions_of(rows.rejected))
    own = (numbers - np.arange(len(rows)) + num_before)[row_of] + np.arange(len(row_of))
    firsts = own[np.searchsorted(row_of, np.arange(len(rows)))]

    def renumbered(some: Iterable[int]) -> list[int]:
        found: list[int] = firsts[rows.positions_of(some)].tolist()
        return found

    kept = {key: array.take(indices(row_of)) for key, array in kept.items()}
    kept["file_row"] = indices(numbers[row_of])
    divided = Rows(
        pa.RecordBatch.from_arrays([indices(own)], ["row"]),
        rows.first_row + num_before,
        rows.num_covered + len(own) - len(rows),
        dict(zip(renumbered(rows.rejected), rows.rejected.values(), strict=True)),
        replaced=frozenset(renumbered(rows.replaced)),
    )
    return divided, raw, kept


# Batches


def _even(parts: Iterable[Rows], batch_bytes: int) -> Iterator[Rows]:
    """Consecutive small parts joined up to `batch_bytes`; a part on its own is not copied."""
    waiting: list[Rows] = []
    num_bytes = num_rows = 0
    for part in parts:
        size, count = part.texts.nbytes, part.num_covered
        if waiting and (num_bytes + size > batch_bytes or num_rows + count > MAX_BATCH_ROWS):
            yield joined(waiting)
            waiting, num_bytes, num_rows = [], 0, 0
        waiting.append(part)
        num_bytes += size
        num_rows += count
    if waiting:
        yield joined(waiting)


def joined(parts: Sequence[Rows]) -> Rows:
    found = [part for part in parts if len(part)] or parts[:1]
    batch = found[0].batch
    if len(found) > 1:
        columns = zip(*(part.batch.columns for part in found), strict=True)
        batch = pa.RecordBatch.from_arrays(list(map(pa.concat_arrays, columns)), found[0].keys)
    return Rows(
        batch,
        parts[0].first_row,
        parts[-1].stop - parts[0].first_row,
        {row: why for part in found for row, why in part.rejected.items()},
        replaced=frozenset().union(*(part.replaced for part in found)),
    )


def _up_to(parts: Iterable[Rows], span: Span) -> Iterator[Rows]:
    """Ends at the span's `max_rows`. Raises InputError if there are not as many as announced."""
    num_rows = 0
    for part in parts:
        if span.max_rows is not None and part.stop >= span.max_rows:
            if part.first_row < span.max_rows:
                yield part.between(part.first_row, span.max_rows)
            return
        if part.num_covered:
            yield part
        num_rows = part.stop
    if span.num_rows is not None and num_rows != span.num_rows:
        raise wrong_count(span, num_rows, span.num_rows)


def wrong_count(span: Span, num_rows: int, announced: int) -> InputError:
    return InputError(
        f"{span.input.name}: read {num_rows} rows where the file announces {announced}, "
        f"from row {span.first_row} on",
        hint="the file is damaged or has changed; fetch it again",
    )


def place_in_table(span: Span, row: int, options: ReadOptions) -> str:
    if options.lists == "documents":
        return f"document {row + 1} from row {span.first_row} on"
    return f"row {span.first_row + row}"


def without_row_numbers(spans: Iterable[Span], options: ReadOptions) -> list[Span]:
    """The same spans; with --lists documents, their numbers of rows are unknown."""
    if options.lists != "documents":
        return list(spans)
    return [span if span.is_ruled_out else replace(span, num_rows=None) for span in spans]
