"""The contract of readers (tokenmill.testing), for every registered kind and compression."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokenmill.corpus import readers
from tokenmill.corpus.readers import KINDS, ReadOptions, kind_of, kinds, reader_for
from tokenmill.corpus.spans import Input
from tokenmill.errors import ConfigError
from tokenmill.testing import ReaderContract
from tokenmill.testing.reader_contract import (
    LARGE,
    SEPARATOR,
    TEXTS,
    TINY,
    Read,
    read_rows,
)


def source_of(path: Path | str) -> Input:
    kind = kind_of(str(path))
    assert kind is not None
    stat = os.stat(path)
    return Input(str(path), *kind, stat.st_size, stat.st_mtime_ns, "")


def rows_read(path: Path | str, options: ReadOptions) -> Read:
    source = source_of(path)
    return read_rows(reader_for(source.kind, options), source)


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


def array_bytes(texts: list[str | None]) -> bytes:
    return json.dumps([{"id": i, "text": text} for i, text in enumerate(texts)], indent=1).encode()


def csv_bytes(texts: list[str | None], delimiter: str = ",") -> bytes:
    sink = io.StringIO(newline="")
    rows = ([i, text, "u"] for i, text in enumerate(texts))
    csv.writer(sink, delimiter=delimiter).writerows([["id", "text", "url"], *rows])
    return sink.getvalue().encode()


def tsv_bytes(texts: list[str | None]) -> bytes:
    return csv_bytes(texts, "\t")


def _packed(data: bytes, codec: str) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


def zstd_bytes(data: bytes) -> bytes:
    return _packed(data, "zstd")


def lz4_bytes(data: bytes) -> bytes:
    return _packed(data, "lz4")


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "zst": zstd_bytes,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "lz4": lz4_bytes,
}


def _bytes_writer(content: Callable[[list[str | None]], bytes], pack: Callable[[bytes], bytes]):
    return lambda path, texts: path.write_bytes(pack(content(texts)))


# How the texts are written for each kind and compression that the registry knows.
WRITERS: dict[str, Callable[[Path, list[str | None]], object]] = {
    "a.parquet": write_parquet,
    "file.arrow": write_arrow_file,
    "stream.arrow": write_arrow_stream,
    "array.json": _bytes_writer(array_bytes, bytes),
    **{
        name: _bytes_writer(content, bytes)
        for name, content in (
            *(("a.jsonl", jsonl_bytes), ("a.csv", csv_bytes)),
            *(("a.tsv", tsv_bytes), ("a.txt", text_bytes)),
        )
    },
    **{
        f"a.jsonl.{extension}": _bytes_writer(jsonl_bytes, pack)
        for extension, pack in PACKERS.items()
    },
    "a.csv.bz2": _bytes_writer(csv_bytes, bz2.compress),
    "a.txt.gz": _bytes_writer(text_bytes, gzip.compress),
    "a.txt.zst": _bytes_writer(text_bytes, zstd_bytes),
}
FIRST_PLACES = {"jsonl": ("line", 1), "text": ("document", 1)}


class OurReader(ReaderContract):
    """A file of `WRITERS`, read by the reader that its name stands for."""

    def reader(self, options):
        return reader_for(self.kind, options)

    def write(self, path, texts):
        WRITERS[self.file_name](path, texts)

    def place(self, number):
        if self.kind in ("csv", "tsv"):
            return None  # texts have line ends: test_delimited.py
        word, first = FIRST_PLACES.get(self.kind, ("row", 0))
        word = "element" if self.file_name == "array.json" else word
        return f"{word} {number + first}"


for name in WRITERS:
    kind, compression = kind_of(name)
    title = "Test" + name.title().replace(".", "")
    is_text = kind == "text"
    globals()[title] = type(
        title,
        (OurReader,),
        {
            "file_name": name,
            "kind": kind,
            "compression": compression,
            "is_cut": not compression and name != "array.json",
            "has_nulls": kind not in ("csv", "tsv", "text"),
            "has_columns": not is_text,
            "rows_of_nothing": ("",) if is_text else (),
        },
    )


def test_every_reader_and_compression_that_is_registered_is_held_to_the_contract():
    """A new one fails here until `WRITERS` can write its files."""
    extensions = readers._KIND_OF_EXTENSION
    compressions = ("", *readers._COMPRESSION_OF_EXTENSION)
    known = {kind_of(f"a{one}{packed}") for one in extensions for packed in compressions} - {None}
    held = {kind_of(name) for name in WRITERS}
    assert held <= known
    assert {packed for _, packed in held} == {packed for _, packed in known}
    assert {kind for kind, _ in held} == {kind for kind, _ in known} == set(KINDS) == set(kinds())


@pytest.mark.parametrize("name", WRITERS)
def test_spans_when_made_then_they_follow_on_each_other(tmp_path, name):
    WRITERS[name](tmp_path / name, TEXTS)
    source = source_of(tmp_path / name)
    spans = reader_for(source.kind, TINY).spans(source)
    if source.kind != "arrow":
        assert spans[0].start == 0
    if "stream" not in name:
        assert all(a.stop == b.start for a, b in pairwise(spans))


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
        ("x.csv.bz2", ("csv", "bzip2")),
        ("x.TSV.xz", ("tsv", "xz")),
        ("x.json.lz4", ("jsonl", "lz4")),
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
    with pytest.raises(ConfigError, match="parquet, arrow, jsonl, csv, tsv, text"):
        reader_for("parquett", LARGE)
    assert [type(reader_for(kind, LARGE)).__name__ for kind in KINDS] == [
        "ParquetReader",
        "ArrowReader",
        "JsonlReader",
        "DelimitedReader",
        "DelimitedReader",
        "TextReader",
    ]
