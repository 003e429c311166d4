"""Which rows of a table go in: applies --where and --sample.

A value that is not valid UTF-8 is like a bad text: if the outcome depends on it, its row is
quarantined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.arrays import nulls_of, taken
from tokenmill.corpus.readers import ReadOptions
from tokenmill.corpus.readers.kept_columns import Kept
from tokenmill.corpus.readers.rows import Raw, checked_rows, sound_binary
from tokenmill.corpus.readers.sample import sampler_of
from tokenmill.corpus.spans import Span
from tokenmill.where.fields import Field, Fields, column_of, kind_of

if TYPE_CHECKING:
    from tokenmill.where.tree import Expression


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which rows go in, including the `bad` ones, which will be quarantined."""

    is_in: npt.NDArray[np.bool_]
    bad: dict[int, str]

    def of(self, texts: pa.Array, kept: Kept | None = None) -> Raw:
        """The rows of a text column that go in, with what is kept of them."""
        positions = np.flatnonzero(self.is_in)
        is_all = len(positions) == len(texts)
        texts = texts if is_all else taken(texts, positions)
        bad = self.bad
        if kept is not None:
            bad = {row: why for row, why in kept.bad.items() if self.is_in[row]} | bad
        bad = {int(np.searchsorted(positions, row)): why for row, why in bad.items()}
        array = None if kept is None else kept.array
        if array is not None and not is_all:
            array = taken(array, positions)
        return Raw(texts, positions, len(self.is_in), bad, array)

    def only(self, drawn: npt.NDArray[np.bool_]) -> Chosen:
        """The chosen rows that are also drawn."""
        bad = {row: reason for row, reason in self.bad.items() if drawn[row]}
        return Chosen(self.is_in & drawn, bad)

    def part(self, start: int, stop: int) -> Chosen:
        bad = {row - start: reason for row, reason in self.bad.items() if start <= row < stop}
        return Chosen(self.is_in[start:stop], bad)


def joined(parts: Sequence[Chosen]) -> Chosen:
    bad: dict[int, str] = {}
    first = 0
    for part in parts:
        bad.update((first + row, reason) for row, reason in part.bad.items())
        first += len(part.is_in)
    return Chosen(np.concatenate([np.empty(0, np.bool_), *(part.is_in for part in parts)]), bad)


def chosen_of(outcome: pa.BooleanArray, bad: dict[int, str]) -> Chosen:
    """The rows whose outcome is true, and the bad rows whose outcome is unknown."""
    is_null = nulls_of(outcome)
    is_in = _values_of(outcome) & ~is_null
    bad = {row: reason for row, reason in bad.items() if is_null[row]}
    is_in[list(bad)] = True
    return Chosen(is_in, bad)


class RowChoice:
    """Chooses among the rows of a span. Raises ConfigError for a column that does not exist."""

    def __init__(self, schema: pa.Schema, span: Span, options: ReadOptions) -> None:
        self._replace = options.replace_bad_text
        self._sampler = sampler_of(span, options)
        self.expression: Expression | None = None
        self.fields: Fields = {}  # by their names in the expression
        if options.where is not None:
            from tokenmill.where.columns import fields_of  # takes 9 ms, only for --where
            from tokenmill.where.parser import parsed

            self.expression = parsed(options.where)
            self.fields = fields_of(self.expression, schema, span.input.name)

    def among(self, first_row: int, num_rows: int, batch: pa.RecordBatch | None = None) -> Chosen:
        """Which of these rows of the span go in. `batch` has the columns of the expression. Raises
        ArrowInvalid for a damaged column."""
        chosen = Chosen(np.ones(num_rows, np.bool_), {})
        if self.expression is not None:
            assert batch is not None
            chosen = self._passing(batch)
        if self._sampler is None:
            return chosen
        return chosen.only(self._sampler.drawn(first_row, num_rows))

    def _passing(self, batch: pa.RecordBatch) -> Chosen:
        from tokenmill.where.evaluation import outcomes  # takes 35 ms, only for --where

        assert self.expression is not None
        bad: dict[int, str] = {}
        layers = {names: [self._values(batch, field, bad)] for names, field in self.fields.items()}
        return chosen_of(outcomes(self.expression, layers.__getitem__), bad)

    def _values(self, batch: pa.RecordBatch, field: Field, bad: dict[int, str]) -> pa.Array:
        """A column, checked in full: files are not trusted."""
        array = column_of(batch, field)
        if kind_of(field.type) == "text":
            rows = checked_rows(sound_binary(array), self._replace)
            bad.update((row, f"column {field.path!r}: {why}") for row, why in rows.bad.items())
            return rows.texts
        array.validate(full=True)
        if pa.types.is_dictionary(array.type):
            return array.dictionary.take(array.indices)
        return array


def _values_of(array: pa.BooleanArray) -> npt.NDArray[np.bool_]:
    if not len(array):
        return np.zeros(0, np.bool_)
    bits = np.unpackbits(np.frombuffer(array.buffers()[1], np.uint8), bitorder="little")
    return bits[array.offset : array.offset + len(array)].astype(np.bool_)
