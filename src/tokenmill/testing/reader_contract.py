"""What every reader promises, as tests to inherit: the same documents in, the same rows out,
however a file is cut; and for a file that cannot be read, an error of ours that names it."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from tokenmill.corpus.readers import Reader, ReadOptions
from tokenmill.corpus.rows import documents
from tokenmill.corpus.spans import Input, Slice, Span
from tokenmill.errors import ConfigError, InputError
from tokenmill.testing.damage import mutated

SEPARATOR = "<|sep|>"
TINY = ReadOptions(separator=SEPARATOR, span_bytes=64, batch_bytes=32)
SMALL = ReadOptions(separator=SEPARATOR, span_bytes=700, batch_bytes=100)
LARGE = ReadOptions(separator=SEPARATOR)
SIZES = (TINY, SMALL, LARGE)
NUM_MUTATIONS = 60

TEXTS = [
    "plain",
    "",
    "héllo wörld 🙂 漢字",
    "line one\nline two\r\n\n\n",
    "nul \0 inside",
    'quotes " and \\ and \\u0041 and {"text": "x"}',
    "x" * 500,
    "\ufeffa mark inside",
    "  spaces  ",
    "<|endoftext|>",
    *(f"document {i} " + "ab " * (i % 7) for i in range(60)),
    "last",
]
WITH_NULLS = [None if i % 5 == 2 else text for i, text in enumerate(TEXTS)]

Read = tuple[list[str | None], dict[int, str], int]


def read_rows(reader: Reader, source: Input) -> Read:
    """(texts, reasons of bad rows by row number, number of rows with replacements) of a file."""
    texts: list[str | None] = []
    bad: dict[int, str] = {}
    num_replaced = 0
    for span in reader.spans(source):
        first_row = len(texts)
        for rows in documents(reader, span, reader.options):
            assert first_row + rows.first_row == len(texts)
            assert rows.texts.type == pa.large_string()
            assert len(rows) == rows.num_covered > 0
            rows.batch.validate(full=True)
            for row, reason in rows.rejected.items():
                assert not rows.texts[row - rows.first_row].is_valid
                bad[first_row + row] = reason
            texts += rows.texts.to_pylist()
            num_replaced += len(rows.replaced)
        if span.num_rows is not None:
            assert len(texts) - first_row == span.num_rows
    return texts, bad, num_replaced


def _texts_of(reader: Reader, span: Span) -> list[str | None]:
    parts = documents(reader, span, reader.options)
    return [text for rows in parts for text in rows.texts.to_pylist()]


class ReaderContract:
    """Inherit, set the first three, implement `reader` and `write`. Every test gets `tmp_path`."""

    kind: str
    file_name: str
    compression: str | None = None
    has_nulls = True  # whether a row can be null
    has_columns = True  # whether `text_column` chooses what is read
    is_cut = True  # whether a large file has several spans
    rows_of_nothing: tuple[str, ...] = ()  # of a file that is written without texts

    def reader(self, options: ReadOptions) -> Reader:
        raise NotImplementedError

    def write(self, path: Path, texts: Sequence[str | None]) -> None:
        """Write the texts as a file that has several spans at `TINY`."""
        raise NotImplementedError

    def place(self, number: int) -> str | None:
        """What `Reader.place` calls row `number` of the file; None if that is not compared."""
        return None

    def written(self, folder: Path, texts: Sequence[str | None] = TEXTS) -> Input:
        self.write(folder / self.file_name, texts)
        return self._input(folder)

    def _input(self, folder: Path) -> Input:
        path = folder / self.file_name
        stat = path.stat()
        return Input(
            str(path), self.kind, self.compression, stat.st_size, stat.st_mtime_ns, digest=""
        )

    def test_texts_however_odd_come_in_order(self, tmp_path: Path) -> None:
        source = self.written(tmp_path)
        for options in SIZES:
            assert read_rows(self.reader(options), source) == (TEXTS, {}, 0)

    def test_null_rows_are_null_and_not_bad(self, tmp_path: Path) -> None:
        if self.has_nulls:
            source = self.written(tmp_path, WITH_NULLS)
            for options in SIZES:
                assert read_rows(self.reader(options), source) == (WITH_NULLS, {}, 0)

    def test_spans_read_in_any_order_have_the_rows_of_the_whole(self, tmp_path: Path) -> None:
        source = self.written(tmp_path)
        for options in SIZES:
            spans = self.reader(options).spans(source)
            assert len(spans) > 1 or not self.is_cut or self.compression or options is not TINY
            alone = [_texts_of(self.reader(options), span) for span in spans[::-1]]
            assert [text for texts in alone[::-1] for text in texts] == TEXTS

    def test_spans_are_plain_data_that_travels_as_json(self, tmp_path: Path) -> None:
        source = self.written(tmp_path)
        reader = self.reader(TINY)
        spans = reader.spans(source)
        assert all(type(span) is Span and span.input == source for span in spans)
        assert all(span.text_bytes > 0 for span in spans)
        sent = Slice.from_plain(json.loads(json.dumps(Slice(0, tuple(spans)).to_plain())))
        assert list(sent.spans) == spans
        assert [text for span in sent.spans for text in _texts_of(reader, span)] == TEXTS

    def test_reading_stops_at_max_rows(self, tmp_path: Path) -> None:
        source = self.written(tmp_path)
        for options in (SMALL, LARGE):
            reader = self.reader(options)
            span = reader.spans(source)[0]
            whole = _texts_of(reader, span)
            for max_rows in (0, 1, 6, 7, 8, 1000):
                assert _texts_of(reader, replace(span, max_rows=max_rows)) == whole[:max_rows]

    def test_places_count_from_the_start_of_the_file(self, tmp_path: Path) -> None:
        source = self.written(tmp_path)
        reader = self.reader(SMALL)
        places = [
            reader.place(span, row)
            for span in reader.spans(source)
            for row in range(len(_texts_of(reader, span)))
        ]
        assert len(set(places)) == len(TEXTS)
        for number, place in enumerate(places):
            assert self.place(number) in (None, place)

    def test_a_file_without_rows_is_no_error(self, tmp_path: Path) -> None:
        source = self.written(tmp_path, [])
        for options in SIZES:
            assert read_rows(self.reader(options), source) == ([*self.rows_of_nothing], {}, 0)
            if not self.compression:  # else its spans are not known yet
                assert len(self.reader(options).spans(source)) == len(self.rows_of_nothing)

    def test_a_column_that_is_missing_is_named_with_the_file(self, tmp_path: Path) -> None:
        if self.has_columns:
            source = self.written(tmp_path)
            for options in SIZES:
                error = self._refused(replace(options, text_column="no such column"), source)
                assert isinstance(error, ConfigError)
                assert "no such column" in error.message and source.path in error.message

    def test_a_file_that_is_gone_is_named(self, tmp_path: Path) -> None:
        source = self.written(tmp_path)
        reader = self.reader(SMALL)
        spans = reader.spans(source)
        (tmp_path / self.file_name).unlink()
        self._is_input_error(self._refused(SMALL, source), source)
        self._is_input_error(self._refused(SMALL, source, spans), source)

    def test_a_file_that_shrank_since_it_was_cut_into_spans_is_named(self, tmp_path: Path) -> None:
        source = self.written(tmp_path)
        spans = self.reader(SMALL).spans(source)
        os.truncate(source.path, source.num_bytes // 2)
        self._is_input_error(self._refused(SMALL, source, spans), source)

    def test_damage_is_an_error_that_names_the_file_or_is_read(self, tmp_path: Path) -> None:
        """Whatever the bytes: InputError or ConfigError with the path, or rows."""
        whole = Path(self.written(tmp_path).path).read_bytes()
        rng = random.Random(0)
        for number in range(NUM_MUTATIONS):
            (tmp_path / self.file_name).write_bytes(mutated(whole, rng))
            source = self._input(tmp_path)
            try:
                read_rows(self.reader(SIZES[number % len(SIZES)]), source)
            except (InputError, ConfigError) as error:
                assert source.path in error.message, error.message

    def _refused(
        self, options: ReadOptions, source: Input, spans: Sequence[Span] | None = None
    ) -> InputError | ConfigError:
        reader = self.reader(options)
        try:
            for span in reader.spans(source) if spans is None else spans:
                _texts_of(reader, span)
        except (InputError, ConfigError) as error:
            return error
        raise AssertionError(f"{source.path} was read")

    def _is_input_error(self, error: InputError | ConfigError, source: Input) -> None:
        assert isinstance(error, InputError) and source.path in error.message, error.message
