"""The contract that all readers pass: the same documents in, the same rows out, however cut."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokenmill.corpus.readers import KINDS, ReadOptions, kind_of, reader_for
from tokenmill.corpus.spans import Input, Span
from tokenmill.errors import ConfigError

SEPARATOR = "<|sep|>"
TINY = ReadOptions(separator=SEPARATOR, span_bytes=64, batch_bytes=32)
SMALL = ReadOptions(separator=SEPARATOR, span_bytes=700, batch_bytes=100)
LARGE = ReadOptions(separator=SEPARATOR)

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


def source_of(path: Path | str) -> Input:
    kind = kind_of(str(path))
    assert kind is not None
    stat = os.stat(path)
    return Input(str(path), *kind, stat.st_size, stat.st_mtime_ns, "")


def rows_read(
    path: Path | str, options: ReadOptions
) -> tuple[list[str | None], dict[int, str], int]:
    """(texts, reasons of bad rows by row number, number of rows with replacements) of a file."""
    texts: list[str | None] = []
    bad: dict[int, str] = {}
    num_replaced = 0
    source = source_of(path)
    reader = reader_for(source.kind, options)
    for span in reader.spans(source):
        first_row = len(texts)
        for batch in reader.batches(span):
            assert first_row + batch.first_row == len(texts)
            assert batch.texts.type == pa.large_string()
            assert len(batch.texts) > 0
            batch.texts.validate(full=True)
            for position, reason in batch.bad.items():
                assert not batch.texts[position].is_valid
                bad[len(texts) + position] = reason
            texts += batch.texts.to_pylist()
            num_replaced += batch.num_replaced
        if span.num_rows is not None:
            assert len(texts) - first_row == span.num_rows
    return texts, bad, num_replaced


def _table(texts: list[str | None]) -> pa.Table:
    numbers = pa.array(range(len(texts)))
    return pa.table(
        {"id": numbers, "text": pa.array(texts, pa.string()), "url": ["u"] * len(texts)}
    )


def write_parquet(path: Path, texts: list[str | None]) -> None:
    pq.write_table(_table(texts), path, row_group_size=7)


def write_arrow_file(path: Path, texts: list[str | None]) -> None:
    table = _table(texts)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=7)


def write_arrow_stream(path: Path, texts: list[str | None]) -> None:
    table = _table(texts)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=7)


def jsonl_bytes(texts: list[str | None]) -> bytes:
    rows = ({"id": i, "text": text} for i, text in enumerate(texts))
    return "".join(json.dumps(row, ensure_ascii=row["id"] % 2 == 0) + "\n" for row in rows).encode()


def text_bytes(texts: list[str | None]) -> bytes:
    return SEPARATOR.join(text or "" for text in texts).encode()


def zstd_bytes(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


def _bytes_writer(content: Callable[[list[str | None]], bytes], pack: Callable[[bytes], bytes]):
    return lambda path, texts: path.write_bytes(pack(content(texts)))


WRITERS: dict[str, Callable[[Path, list[str | None]], object]] = {
    "a.parquet": write_parquet,
    "file.arrow": write_arrow_file,
    "stream.arrow": write_arrow_stream,
    "a.jsonl": _bytes_writer(jsonl_bytes, bytes),
    "a.jsonl.gz": _bytes_writer(jsonl_bytes, gzip.compress),
    "a.jsonl.zst": _bytes_writer(jsonl_bytes, zstd_bytes),
    "a.txt": _bytes_writer(text_bytes, bytes),
    "a.txt.gz": _bytes_writer(text_bytes, gzip.compress),
    "a.txt.zst": _bytes_writer(text_bytes, zstd_bytes),
}
NULLABLE = [name for name in WRITERS if ".txt" not in name]
every_kind = pytest.mark.parametrize("name", WRITERS)
every_size = pytest.mark.parametrize(
    "options", [TINY, SMALL, LARGE], ids=["tiny", "small", "large"]
)


@every_kind
@every_size
def test_reader_when_texts_are_odd_then_yields_them_in_order(tmp_path, name, options):
    WRITERS[name](tmp_path / name, TEXTS)
    assert rows_read(tmp_path / name, options) == (TEXTS, {}, 0)


@pytest.mark.parametrize("name", NULLABLE)
@every_size
def test_reader_when_rows_are_null_then_yields_null_that_is_not_bad(tmp_path, name, options):
    WRITERS[name](tmp_path / name, WITH_NULLS)
    assert rows_read(tmp_path / name, options) == (WITH_NULLS, {}, 0)


@every_kind
def test_reader_when_spans_are_read_in_any_order_then_rows_are_the_same(tmp_path, name):
    WRITERS[name](tmp_path / name, TEXTS)
    source = source_of(tmp_path / name)
    reader = reader_for(source.kind, TINY)
    spans = reader.spans(source)
    assert len(spans) > 1 or source.compression
    backwards = [[t for b in reader.batches(s) for t in b.texts.to_pylist()] for s in spans[::-1]]
    assert [text for texts in backwards[::-1] for text in texts] == TEXTS


@every_kind
@pytest.mark.parametrize("max_rows", [0, 1, 6, 7, 8, 1000])
def test_reader_when_max_rows_is_set_then_stops_there(tmp_path, name, max_rows):
    WRITERS[name](tmp_path / name, TEXTS)
    source = source_of(tmp_path / name)
    for options in (SMALL, LARGE):
        reader = reader_for(source.kind, options)
        span = reader.spans(source)[0]
        whole = [t for b in reader.batches(span) for t in b.texts.to_pylist()]
        limited = reader.batches(replace(span, max_rows=max_rows))
        assert [t for b in limited for t in b.texts.to_pylist()] == whole[:max_rows]


@every_kind
def test_place_when_row_is_deep_in_file_then_counts_from_its_start(tmp_path, name):
    WRITERS[name](tmp_path / name, TEXTS)
    source = source_of(tmp_path / name)
    reader = reader_for(source.kind, SMALL)
    word, first = {"jsonl": ("line", 1), "text": ("document", 1)}.get(source.kind, ("row", 0))
    number = 0
    for span in reader.spans(source):
        for row in range(sum(len(batch.texts) for batch in reader.batches(span))):
            assert reader.place(span, row) == f"{word} {number + first}"
            number += 1
    assert number == len(TEXTS)


@every_kind
def test_spans_when_made_then_are_plain_data_that_covers_the_file(tmp_path, name):
    WRITERS[name](tmp_path / name, TEXTS)
    source = source_of(tmp_path / name)
    spans = reader_for(source.kind, TINY).spans(source)
    assert all(type(span) is Span and span.input == source for span in spans)
    if source.kind != "arrow":
        assert spans[0].start == 0
    if "stream" not in name:
        assert all(a.stop == b.start for a, b in pairwise(spans))
    assert all(span.text_bytes > 0 for span in spans)


@pytest.mark.parametrize("name", ["a.parquet", "file.arrow", "stream.arrow", "a.jsonl"])
def test_spans_when_file_has_no_rows_then_there_are_none(tmp_path, name):
    WRITERS[name](tmp_path / name, [])
    source = source_of(tmp_path / name)
    assert reader_for(source.kind, LARGE).spans(source) == []


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a/b.parquet", ("parquet", None)),
        ("b.PQ", ("parquet", None)),
        ("x.arrow", ("arrow", None)),
        ("x.feather", ("arrow", None)),
        ("x.ipc", ("arrow", None)),
        ("x.jsonl", ("jsonl", None)),
        ("x.ndjson.gz", ("jsonl", "gzip")),
        ("x.json.zst", ("jsonl", "zstd")),
        ("x.txt.zstd", ("text", "zstd")),
        ("x.text", ("text", None)),
        ("x.parquet.gz", None),
        ("x.gz", None),
        ("README.md", None),
        ("txt", None),
    ],
)
def test_kind_of_when_given_a_name_then_goes_by_extension(path, expected):
    assert kind_of(path) == expected


def test_reader_for_when_kind_is_unknown_then_lists_the_known():
    with pytest.raises(ConfigError, match="parquet, arrow, jsonl, text"):
        reader_for("parquett", LARGE)
    assert [type(reader_for(kind, LARGE)).__name__ for kind in KINDS] == [
        "ParquetReader",
        "ArrowReader",
        "JsonlReader",
        "TextReader",
    ]
