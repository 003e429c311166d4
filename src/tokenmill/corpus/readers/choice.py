"""Which rows of a table go in: applies --where and --sample.

If the outcome depends on a value that cannot be read, such as text for `matches` that is not valid
UTF-8, its row goes in, to be quarantined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.arrays import taken
from tokenmill.corpus.readers import ReadOptions
from tokenmill.corpus.readers.kept_columns import Kept
from tokenmill.corpus.readers.rows import Raw, checked_rows, plain_binary, sound_binary
from tokenmill.corpus.readers.sample import sampler_of
from tokenmill.corpus.spans import Span
from tokenmill.where.fields import Field, Fields, column_of, kind_of

if TYPE_CHECKING:
    from tokenmill.where.evaluation import Truth
    from tokenmill.where.tree import Expression, Test


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


def chosen_of(truth: Truth, reasons: Mapping[int, str]) -> Chosen:
    """The rows whose outcome is true, and the undecided ones, which are bad: of these, `reasons`
    says why."""
    undecided = np.flatnonzero(truth.true & (truth.false | truth.null))
    return Chosen(np.asarray(truth.true), {row: reasons[row] for row in undecided.tolist()})


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
        from tokenmill.where.evaluation import Values, outcome_of_rows  # 35 ms, only for --where

        assert self.expression is not None
        arrays = {names: self._array(batch, field) for names, field in self.fields.items()}
        reasons: dict[int, str] = {}

        def values_of(test: Test) -> Values:
            names = test.column.names
            if not test.needs_utf8 or not pa.types.is_large_binary(arrays[names].type):
                return Values([arrays[names]])
            rows = checked_rows(arrays[names], self._replace)
            unreadable = np.zeros(len(batch), np.bool_)
            for row, why in rows.bad.items():
                unreadable[row] = True
                reasons.setdefault(row, f"column {self.fields[names].path!r}: {why}")
            return Values([rows.texts.view(pa.large_binary())], unreadable)

        return chosen_of(outcome_of_rows(self.expression, values_of), reasons)

    def _array(self, batch: pa.RecordBatch, field: Field) -> pa.Array:
        """A column, checked in full: files are not trusted. Text is large_binary."""
        array = column_of(batch, field)
        if kind_of(field.type) == "text":
            return plain_binary(sound_binary(array))
        array.validate(full=True)
        if pa.types.is_dictionary(array.type):
            return array.dictionary.take(array.indices)
        return array
