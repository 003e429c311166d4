"""Rows: raw Arrow arrays become valid UTF-8, then numbered batches of even size.

String columns of parquet and Arrow may hold any bytes, so every row is checked. Arrow's cast from
binary to large_string checks them and widens the offsets in one pass without copying the text:
23 GB/s for English, 2.5 for Chinese, 1.4 for text with an accent in every word. Python's decode
does 0.4 to 1.1. Rows are checked one by one only in a piece that failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.arrays import (
    binary_array_of,
    indices,
    mask,
    nulls_of,
    numbers_of,
    offsets_of,
    text_array_of,
)
from tokenmill.corpus.readers import ReadOptions, TextBatch
from tokenmill.corpus.readers.lists import (
    DEFAULT_SEPARATOR,
    documents_of,
    joined_lists,
    list_offsets,
)
from tokenmill.corpus.spans import Span
from tokenmill.errors import InputError
from tokenmill.where.template import template_of

MAX_BATCH_ROWS = 1 << 16  # empty rows have no bytes, but still cost memory


@dataclass(frozen=True, slots=True)
class Rows:
    """Consecutive rows. `texts` has null for null and bad rows; `bad` and `replaced` are positions
    in `texts`. If rows were left out, `positions` has the row of each text."""

    texts: pa.LargeStringArray
    bad: dict[int, str] = field(default_factory=dict)
    replaced: tuple[int, ...] = ()
    positions: npt.NDArray[np.int64] | None = None  # None: all rows
    num_covered: int | None = None  # None: as many as texts
    kept: pa.StructArray | None = None  # columns of the rows of `texts` (--keep)

    @property
    def num_rows(self) -> int:
        return len(self.texts) if self.num_covered is None else self.num_covered

    def head(self, num_rows: int) -> Rows:
        count, positions = num_rows, self.positions
        if positions is not None:
            count = int(np.searchsorted(positions, num_rows))
            positions = positions[:count]
        return Rows(
            self.texts.slice(0, count),
            {row: reason for row, reason in self.bad.items() if row < count},
            tuple(row for row in self.replaced if row < count),
            positions,
            None if positions is None else num_rows,
            None if self.kept is None else self.kept.slice(0, count),
        )

    def only(self, drawn: npt.NDArray[np.bool_]) -> Rows:
        """The rows that are drawn; `drawn` has a flag for each row that these cover."""
        rows = np.arange(len(self.texts)) if self.positions is None else self.positions
        kept = np.flatnonzero(drawn[rows])
        place = {at: new for new, at in enumerate(kept.tolist())}
        return Rows(
            self.texts.take(indices(kept)),
            {place[at]: reason for at, reason in self.bad.items() if at in place},
            tuple(place[at] for at in self.replaced if at in place),
            rows[kept],
            self.num_rows,
            None if self.kept is None else self.kept.take(indices(kept)),
        )

    def batch(self, first_row: int) -> TextBatch:
        num_replaced = len(self.replaced)
        return TextBatch(
            self.texts,
            first_row,
            self.bad,
            num_replaced,
            self.positions,
            self.num_covered,
            self.kept,
        )


@dataclass(frozen=True, slots=True)
class Raw:
    """Consecutive rows of a text column as `sound_binary` returns it, before the check for UTF-8.
    If rows were left out, `array` has the others, `positions` says which these are, and `bad` which
    of them to quarantine."""

    array: pa.Array
    positions: npt.NDArray[np.int64] | None = None
    num_covered: int = 0
    bad: Mapping[int, str] = field(default_factory=dict)  # by position in `array`
    kept: pa.StructArray | None = None  # columns of the rows of `array` (--keep)


NO_TEXT = pa.nulls(0, pa.large_binary())


def left_out(num_rows: int) -> Raw:
    """Rows that are all left out."""
    return Raw(NO_TEXT, np.empty(0, np.int64), num_rows)


def text_batches(span: Span, raws: Iterable[Raw], options: ReadOptions) -> Iterator[TextBatch]:
    """Batches of a text column, from arrays of any size."""
    if options.keep is not None:
        raws = _for_kept(raws, options)
    rows = (piece for raw in raws for piece in _checked_pieces(raw, options))
    return numbered(span, _gathered(rows, options.batch_bytes))


def _for_kept(raws: Iterable[Raw], options: ReadOptions) -> Iterator[Raw]:
    """The same, all with positions; with --lists documents, each document has the number of its
    row."""
    first_row = 0
    for raw in raws:
        positions, num_covered = raw.positions, raw.num_covered
        if positions is None:
            positions, num_covered = np.arange(len(raw.array)), len(raw.array)
        kept = raw.kept
        if options.lists == "documents":
            kept = with_row_numbers(kept, first_row + positions)
        yield replace(raw, positions=positions, num_covered=num_covered, kept=kept)
        first_row += num_covered


def with_row_numbers(kept: pa.StructArray | None, numbers: npt.NDArray[np.int64]) -> pa.StructArray:
    """What is kept of documents, with their row numbers in the span."""
    arrays = (
        {} if kept is None else dict(zip((f.name for f in kept.type), kept.flatten(), strict=True))
    )
    arrays["_row"] = indices(numbers)
    return pa.StructArray.from_arrays(list(arrays.values()), list(arrays))


def _checked_pieces(raw: Raw, options: ReadOptions) -> Iterator[Rows]:
    """The rows in pieces of about `batch_bytes`. A piece ends with a row that goes in; a last one
    covers the rows after it."""
    positions = raw.positions
    if positions is None:
        for piece in _pieces(raw.array, options.batch_bytes):
            array = documents_of(piece, ())[0] if _is_documents(piece, options) else piece
            yield checked_rows(_text_of(array, options), options.replace_bad_text)
        return
    start = first_row = 0
    for piece in _pieces(raw.array, options.batch_bytes):
        array, stop = piece, start + len(piece)
        end = int(positions[stop - 1]) + 1
        num_covered = end - first_row
        bad = {at - start: why for at, why in raw.bad.items() if start <= at < stop}
        own = positions[start:stop] - first_row
        kept = None if raw.kept is None else raw.kept.slice(start, len(piece))
        if _is_documents(piece, options):  # a list has as many rows as documents
            array, row_of = documents_of(piece, bad)
            num_covered += len(array) - len(piece)
            own = (own - np.arange(len(piece)))[row_of] + np.arange(len(array))
            bad = {int(np.searchsorted(row_of, at)): why for at, why in bad.items()}
            kept = None if kept is None else kept.take(indices(row_of))
        rows = checked_rows(_text_of(array, options), options.replace_bad_text)
        yield without_bad(Rows(rows.texts, rows.bad, rows.replaced, own, num_covered, kept), bad)
        start, first_row = stop, end
    if first_row < raw.num_covered:
        nothing = pa.nulls(0, pa.large_string())
        yield Rows(nothing, positions=positions[:0], num_covered=raw.num_covered - first_row)


def _is_documents(piece: pa.Array, options: ReadOptions) -> bool:
    return pa.types.is_large_list(piece.type) and options.lists == "documents"


def _text_of(piece: pa.Array, options: ReadOptions) -> pa.Array:
    """The texts of a struct of a template's columns, or of lists; other arrays are texts."""
    if pa.types.is_struct(piece.type):
        assert options.template is not None
        columns = (piece.field(i) for i in range(piece.type.num_fields))
        return template_of(options.template).joined([plain_binary(column) for column in columns])
    if pa.types.is_large_list(piece.type):
        separator = DEFAULT_SEPARATOR if options.separator is None else options.separator
        return joined_lists(piece, separator.encode())
    return piece


def without_bad(rows: Rows, bad: Mapping[int, str]) -> Rows:
    """The same rows, with more of them bad and without text."""
    if not bad:
        return rows
    texts = rows.texts.to_pylist()
    for at in bad:
        texts[at] = None
    replaced = tuple(at for at in rows.replaced if at not in bad)
    all_bad = {**bad, **rows.bad}
    found = text_array_of(texts)
    return Rows(found, all_bad, replaced, rows.positions, rows.num_covered, rows.kept)


def without_row_numbers(spans: Iterable[Span], options: ReadOptions) -> list[Span]:
    """The same spans; with --lists documents, their numbers of rows are unknown."""
    if options.lists != "documents":
        return list(spans)
    return [span if span.is_ruled_out else replace(span, num_rows=None) for span in spans]


def place_in_table(span: Span, row: int, options: ReadOptions) -> str:
    if options.lists == "documents":
        return f"document {row + 1} from row {span.first_row} on"
    return f"row {span.first_row + row}"


def numbered(span: Span, parts: Iterable[Rows]) -> Iterator[TextBatch]:
    """Rows as batches: numbered within the span, cut at `max_rows`, counted against `num_rows`."""
    first_row = 0
    for part in parts:
        if span.max_rows is not None and first_row + part.num_rows >= span.max_rows:
            part = part.head(span.max_rows - first_row)  # noqa: PLW2901
            if part.num_rows:
                yield part.batch(first_row)
            return
        if part.num_rows:
            yield part.batch(first_row)
        first_row += part.num_rows
    if span.num_rows is not None and first_row != span.num_rows:
        raise InputError(
            f"{span.input.name}: read {first_row} rows where the file announces {span.num_rows}, "
            f"from row {span.first_row} on",
            hint="the file is damaged or has changed; fetch it again",
        )


def sound_binary(array: pa.Array) -> pa.Array:
    """The same buffers as bytes, which may not be valid UTF-8, but are safe to access.

    Offsets and dictionary indices come from the file; if they are out of bounds, this raises
    ArrowInvalid. The cost is negligible beside the UTF-8 check.
    """
    binary = _as_binary(array)
    binary.validate(full=True)
    return binary


def _as_binary(array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        array.validate(full=True)
        values = _as_binary(array.values).cast(pa.large_binary())
        valid = None if not array.null_count else mask(~nulls_of(array))
        buffers = [valid and valid.buffers()[1], pa.py_buffer(list_offsets(array))]
        made = pa.large_list(pa.large_binary())
        return pa.Array.from_buffers(made, len(array), buffers, children=[values])
    if pa.types.is_dictionary(kind):
        values = _as_binary(array.dictionary)
        return pa.DictionaryArray.from_arrays(array.indices, values, safe=False)
    if pa.types.is_string(kind):
        return array.view(pa.binary())
    if pa.types.is_large_string(kind):
        return array.view(pa.large_binary())
    if pa.types.is_string_view(kind):
        return array.view(pa.binary_view())
    return array


def checked_rows(raw: pa.Array, replace: bool) -> Rows:
    """Binary rows of any layout as valid text; invalid UTF-8 is replaced, or its row is null and
    bad."""
    if pa.types.is_dictionary(raw.type) or pa.types.is_binary_view(raw.type):
        raw = plain_binary(raw)
    try:
        return Rows(raw.cast(pa.large_string()))
    except pa.ArrowInvalid:
        return _repaired_rows(raw.cast(pa.large_binary()), replace)


def plain_binary(raw: pa.Array) -> pa.LargeBinaryArray:
    """Bytes of any layout as a plain array."""
    if pa.types.is_dictionary(raw.type):
        raw = raw.dictionary.take(raw.indices)
    return _without_views(raw) if pa.types.is_binary_view(raw.type) else raw.cast(pa.large_binary())


def _repaired_rows(raw: pa.LargeBinaryArray, replace: bool) -> Rows:
    texts: list[str | None] = []
    bad: dict[int, str] = {}
    replaced: list[int] = []
    for row, value in enumerate(raw.to_pylist()):
        try:
            texts.append(None if value is None else value.decode())
        except UnicodeDecodeError as error:
            if replace:
                texts.append(value.decode(errors="replace"))
                replaced.append(row)
            else:
                texts.append(None)
                bad[row] = f"invalid UTF-8 at byte {error.start} (0x{value[error.start]:02x})"
    return Rows(text_array_of(texts), bad, tuple(replaced))


def _pieces(array: pa.Array, batch_bytes: int) -> Iterator[pa.Array]:
    """The array in slices of about `batch_bytes` of text; a single row may be larger.

    Dictionaries and views can repeat a value endlessly, so they are sliced before they are decoded.
    """
    ends = np.cumsum(_byte_lengths(array))
    start = 0
    while start < len(array):
        before = ends[start - 1] if start else 0
        stop = int(np.searchsorted(ends, before + batch_bytes, side="right"))
        stop = max(start + 1, min(stop, start + MAX_BATCH_ROWS))
        yield array.slice(start, stop - start)
        start = stop


def _without_views(array: pa.Array) -> pa.LargeBinaryArray:
    # Not by a cast: pyarrow 17 has none, and pyarrow 26 uses the length beneath a null, which no
    # validation checks; a negative one segfaults.
    return binary_array_of(array.to_pylist())


def _byte_lengths(array: pa.Array) -> npt.NDArray[np.int64]:
    """The rows' sizes in memory; a null counts as the bytes beneath it, or as nothing."""
    if pa.types.is_dictionary(array.type):
        numbers, nulls = numbers_of(array.indices), nulls_of(array.indices)
        lengths = np.zeros(len(array), np.int64)
        lengths[~nulls] = _byte_lengths(array.dictionary)[numbers[~nulls]]
        return lengths
    if pa.types.is_binary_view(array.type):
        return _view_lengths(array)
    if pa.types.is_struct(array.type):
        fields = (array.field(i) for i in range(array.type.num_fields))
        return sum(map(_byte_lengths, fields), start=np.zeros(len(array), np.int64))
    if pa.types.is_large_list(array.type):
        ends = offsets_of(array.values)[list_offsets(array)]
        return np.diff(ends)
    return np.diff(offsets_of(array))


def _view_lengths(array: pa.Array) -> npt.NDArray[np.int64]:
    """A view is 16 bytes, and the first 4 are its length; beneath a null they are arbitrary."""
    views = array.buffers()[1]
    if not len(array) or views is None:
        return np.zeros(len(array), np.int64)
    lengths = np.frombuffer(views, "<i4")[4 * array.offset :: 4][: len(array)].astype(np.int64)
    lengths[nulls_of(array)] = 0
    return lengths


def _gathered(parts: Iterable[Rows], batch_bytes: int) -> Iterator[Rows]:
    """Consecutive small parts joined up to `batch_bytes`; a part on its own is not copied."""
    waiting: list[Rows] = []
    num_bytes = num_rows = 0
    for part in parts:
        size, count = part.texts.nbytes, part.num_rows
        if waiting and (num_bytes + size > batch_bytes or num_rows + count > MAX_BATCH_ROWS):
            yield _joined(waiting)
            waiting, num_bytes, num_rows = [], 0, 0
        waiting.append(part)
        num_bytes += size
        num_rows += count
    if waiting:
        yield _joined(waiting)


def _joined(parts: list[Rows]) -> Rows:
    if len(parts) == 1:
        return parts[0]
    bad: dict[int, str] = {}
    replaced: list[int] = []
    first = 0
    for part in parts:
        bad.update((first + row, reason) for row, reason in part.bad.items())
        replaced.extend(first + row for row in part.replaced)
        first += len(part.texts)
    texts = pa.concat_arrays([part.texts for part in parts])
    kept = [part.kept for part in parts if part.kept is not None]
    return Rows(
        texts,
        bad,
        tuple(replaced),
        *_joined_positions(parts),
        pa.concat_arrays(kept) if kept else None,
    )


def _joined_positions(parts: list[Rows]) -> tuple[npt.NDArray[np.int64] | None, int | None]:
    if all(part.positions is None for part in parts):
        return None, None
    positions = []
    first_row = 0
    for part in parts:
        own = np.arange(len(part.texts)) if part.positions is None else part.positions
        positions.append(own + first_row)
        first_row += part.num_rows
    return np.concatenate(positions), first_row
