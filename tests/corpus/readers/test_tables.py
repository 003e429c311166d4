"""Parquet and Arrow: column types, columns that are not there, and files that are broken."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.corpus.readers.test_contract import rows_read, source_of, write_arrow_stream
from tokenmill.corpus.readers import ReadOptions, reader_for
from tokenmill.corpus.rows import documents
from tokenmill.errors import ConfigError, InputError
from tokenmill.testing.reader_contract import LARGE, SMALL, TINY

VALUES = ["a", "héllo", None, "", "x" * 50, "a"] * 5
KINDS = [
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.binary(),
    pa.large_binary(),
    pa.binary_view(),
    pa.dictionary(pa.int32(), pa.string()),
    pa.dictionary(pa.int8(), pa.large_string()),
]
CONTAINERS = ["a.parquet", "file.arrow", "stream.arrow"]


def _column(kind: pa.DataType, values: list[str | bytes | None]) -> pa.Array:
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode().cast(kind)
    is_bytes = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    if is_bytes or pa.types.is_binary_view(kind):
        values = [v.encode() if isinstance(v, str) else v for v in values]
    return pa.array(values, kind)


def _write(path, table: pa.Table, rows: int = 4, compression: str | None = None) -> None:
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=rows)
        return
    options = pa.ipc.IpcWriteOptions(compression=compression)
    new = pa.ipc.new_file if path.name.startswith("file") else pa.ipc.new_stream
    with pa.OSFile(str(path), "wb") as sink, new(sink, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=rows)


def _invalid_strings(values: list[bytes | None]) -> pa.Array:
    """A string array that holds bytes which are not UTF-8, as broken writers make them."""
    return pa.array(values, pa.binary()).view(pa.string())


@pytest.mark.parametrize("name", CONTAINERS)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_reader_when_column_has_any_text_type_then_yields_large_strings(tmp_path, name, kind):
    path = tmp_path / name
    try:
        _write(path, pa.table({"id": range(30), "text": _column(kind, VALUES)}))
    except pa.ArrowNotImplementedError:
        pytest.skip("this pyarrow cannot write the type")
    for options in (TINY, LARGE):
        assert rows_read(path, options) == (VALUES, {}, 0)


@pytest.mark.parametrize("name", CONTAINERS)
@pytest.mark.parametrize("kind", [pa.string(), pa.binary()], ids=str)
def test_reader_when_bytes_are_not_utf8_then_row_is_bad_or_replaced(tmp_path, name, kind):
    raw = [b"good", b"caf\xe9 au lait", None, b"\xed\xa0\x80", b"fine"] * 3
    _write(tmp_path / name, pa.table({"text": _invalid_strings(raw).view(kind)}))
    for options in (TINY, LARGE):
        texts, bad, _ = rows_read(tmp_path / name, options)
        assert texts == ["good", None, None, None, "fine"] * 3
        assert sorted(bad) == [1, 3, 6, 8, 11, 13]
        assert bad[1] == "invalid UTF-8 at byte 3 (0xe9)"
        texts, bad, num_replaced = rows_read(
            tmp_path / name, replace(options, replace_bad_text=True)
        )
        expected = [None if r is None else r.decode(errors="replace") for r in raw]
        assert (texts, bad, num_replaced) == (expected, {}, 6)


@pytest.mark.parametrize("name", CONTAINERS)
def test_spans_when_column_is_missing_then_error_lists_columns_and_nearest(tmp_path, name):
    _write(tmp_path / name, pa.table({"texts": ["a"], "n": [1]}))
    with pytest.raises(
        ConfigError, match=r"no column 'text'.*texts \(string\), n \(int64\)"
    ) as info:
        rows_read(tmp_path / name, LARGE)
    assert info.value.hint == "--text-column texts"


@pytest.mark.parametrize("name", CONTAINERS)
def test_spans_when_column_is_not_text_then_error_names_type_and_text_columns(tmp_path, name):
    _write(tmp_path / name, pa.table({"text": [[1]], "body": ["a"]}))
    with pytest.raises(ConfigError, match=r"'text' is list<.*>, not text.*text: body"):
        rows_read(tmp_path / name, LARGE)


def test_spans_when_column_name_stands_twice_then_is_refused(tmp_path):
    table = pa.table([pa.array(["a"]), pa.array(["b"])], names=["text", "text"])
    _write(tmp_path / "stream.arrow", table)
    with pytest.raises(ConfigError, match="2 columns are named 'text'"):
        rows_read(tmp_path / "stream.arrow", LARGE)


@pytest.mark.parametrize("name", ["file.arrow", "stream.arrow"])
@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_arrow_when_buffers_are_compressed_then_yields_the_rows(tmp_path, name, compression):
    _write(tmp_path / name, pa.table({"text": VALUES, "b": VALUES}), compression=compression)
    assert rows_read(tmp_path / name, TINY) == (VALUES, {}, 0)


def test_arrow_when_feather_v2_then_is_read(tmp_path):
    import pyarrow.feather

    pyarrow.feather.write_feather(pa.table({"text": VALUES}), str(tmp_path / "a.feather"))
    assert rows_read(tmp_path / "a.feather", TINY) == (VALUES, {}, 0)


def test_arrow_when_feather_v1_then_error_says_so(tmp_path):
    (tmp_path / "a.feather").write_bytes(b"FEA1" + bytes(40))
    with pytest.raises(InputError, match="Feather version 1"):
        rows_read(tmp_path / "a.feather", LARGE)


def test_arrow_when_one_record_batch_is_giant_then_batches_stay_small(tmp_path):
    texts = ["x" * 1000] * 2000
    _write(tmp_path / "stream.arrow", pa.table({"text": texts}), rows=10**6)
    source = source_of(tmp_path / "stream.arrow")
    options = replace(LARGE, batch_bytes=50_000)
    reader = reader_for("arrow", options)
    batches = [rows for span in reader.spans(source) for rows in documents(reader, span, options)]
    assert sum(len(batch.texts) for batch in batches) == 2000
    assert max(len(batch.texts) for batch in batches) <= 50


def test_arrow_when_other_column_of_stream_is_dictionary_then_is_one_whole_span(tmp_path):
    kind = pa.dictionary(pa.int32(), pa.string())
    table = pa.table({"lang": _column(kind, VALUES), "text": VALUES})
    _write(tmp_path / "stream.arrow", table)
    source = source_of(tmp_path / "stream.arrow")
    assert len(reader_for("arrow", TINY).spans(source)) == 1
    assert rows_read(tmp_path / "stream.arrow", TINY)[0] == VALUES


def test_arrow_when_dictionary_changes_in_stream_then_each_batch_has_its_own(tmp_path):
    kind = pa.dictionary(pa.int8(), pa.string())
    batches = [pa.record_batch({"text": _column(kind, v)}) for v in (["a", "b"], ["c", "a"])]
    path = tmp_path / "stream.arrow"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    assert rows_read(path, TINY)[0] == ["a", "b", "c", "a"]


@pytest.mark.parametrize("name", CONTAINERS)
def test_reader_when_file_is_cut_anywhere_then_raises(tmp_path, name):
    path, cut = tmp_path / name, tmp_path / f"cut_{name}"
    _write(path, pa.table({"text": VALUES}), rows=10)
    data = path.read_bytes()
    if name == "file.arrow":
        cut = tmp_path / f"file_cut_{name}"
    for size in range(len(data)):
        cut.write_bytes(data[:size])
        with pytest.raises(InputError):
            rows_read(cut, SMALL)


@pytest.mark.parametrize("name", CONTAINERS)
def test_reader_when_any_byte_is_flipped_then_raises_nothing_but_our_errors(tmp_path, name):
    path = tmp_path / name
    _write(path, pa.table({"text": VALUES}), rows=10)
    data = path.read_bytes()
    for position in range(0, len(data), 3):
        flipped = bytearray(data)
        flipped[position] ^= 0xFF
        path.write_bytes(flipped)
        try:
            rows_read(path, SMALL)
        except (InputError, ConfigError):
            continue


@pytest.mark.parametrize("name", CONTAINERS)
@pytest.mark.parametrize("content", [b"", b"P", b"hello world, this is text", bytes(64)])
def test_spans_when_file_is_something_else_then_input_error_names_it(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=name):
        rows_read(tmp_path / name, LARGE)


@pytest.mark.parametrize("name", CONTAINERS)
def test_spans_when_file_is_gone_then_input_error_names_it(tmp_path, name):
    _write(tmp_path / name, pa.table({"text": ["a"]}))
    source = source_of(tmp_path / name)
    (tmp_path / name).unlink()
    with pytest.raises(InputError, match=name):
        reader_for(source.kind, LARGE).spans(source)


def test_arrow_stream_when_bytes_follow_its_end_then_is_refused(tmp_path):
    path = tmp_path / "stream.arrow"
    write_arrow_stream(path, VALUES)
    path.write_bytes(path.read_bytes() * 2)
    with pytest.raises(InputError, match="follow the end of the stream"):
        rows_read(path, LARGE)


def test_arrow_when_offsets_point_outside_the_data_then_input_error(tmp_path):
    offsets = struct.pack("<3i", 0, 1 << 30, 5)
    column = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(offsets), pa.py_buffer(b"hello")]
    )
    batch = pa.record_batch([column], names=["text"])
    # The writer would refuse such an array, so the offsets are patched in the file.
    good = pa.record_batch([pa.array(["he", "llo"])], names=["text"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(good)
    data = sink.getvalue().to_pybytes()
    assert data.count(struct.pack("<3i", 0, 2, 5)) == 1
    path = tmp_path / "stream.arrow"
    path.write_bytes(data.replace(struct.pack("<3i", 0, 2, 5), offsets))
    with pytest.raises(InputError, match=r"stream\.arrow: record batch 0"):
        rows_read(path, LARGE)


def test_arrow_when_view_beneath_a_null_is_garbage_then_is_not_followed(tmp_path):
    views = struct.pack("<i12s", 3, b"abc") + struct.pack("<i4sii", -(1 << 31), b"zzzz", 0, 0)
    column = pa.Array.from_buffers(
        pa.string_view(), 2, [pa.py_buffer(b"\x01"), pa.py_buffer(views)]
    )
    _write(tmp_path / "stream.arrow", pa.table({"text": column}))
    assert rows_read(tmp_path / "stream.arrow", LARGE) == (["abc", None], {}, 0)


def test_arrow_when_a_stream_is_cut_between_two_batches_then_input_error(tmp_path):
    """Such as the cache of a program that was killed."""
    path, cuts = tmp_path / "stream.arrow", []
    batch = pa.record_batch([pa.array(["one", "two"])], names=["text"])
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, batch.schema) as writer:
        for _ in range(3):
            cuts.append(sink.tell())
            writer.write_batch(batch)
    data = path.read_bytes()
    for cut in (*cuts[1:], len(data) - 8):
        path.write_bytes(data[:cut])
        with pytest.raises(InputError, match="ends without the end marker"):
            rows_read(path, LARGE)


def test_arrow_when_first_message_is_no_schema_then_input_error(tmp_path):
    path = tmp_path / "stream.arrow"
    write_arrow_stream(path, VALUES)
    with pa.memory_map(str(path)) as file:
        pa.ipc.read_message(file)
        start = file.tell()
    path.write_bytes(path.read_bytes()[start:])
    with pytest.raises(InputError, match="it begins with a record batch"):
        rows_read(path, LARGE)


def test_parquet_when_page_is_corrupt_then_error_names_row_group(tmp_path):
    path = tmp_path / "a.parquet"
    texts = [f"{i} " + os.urandom(50).hex() for i in range(400)]
    pq.write_table(
        pa.table({"text": texts}),
        path,
        row_group_size=100,
        use_dictionary=False,
        compression=None,
        write_page_checksum=True,
    )
    chunk = pq.ParquetFile(path).metadata.row_group(2).column(0)
    data = bytearray(path.read_bytes())
    data[chunk.data_page_offset + chunk.total_compressed_size // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"a\.parquet: row group 2: cannot decode column 'text'"):
        rows_read(path, SMALL)


def test_parquet_when_rows_are_fewer_than_announced_then_input_error(tmp_path):
    path = tmp_path / "a.parquet"
    _write(path, pa.table({"text": VALUES}))
    reader = reader_for("parquet", LARGE)
    span = reader.spans(source_of(path))[0]
    with pytest.raises(InputError, match="read 30 rows where the file announces 31"):
        list(documents(reader, replace(span, num_rows=31), LARGE))


@pytest.mark.parametrize(
    ("limit", "value", "message"),
    [
        ("MAX_GROUP_BYTES", 10, "bytes of text .at most 10"),
        ("MAX_GROUP_ROWS", 3, "announces 4 rows"),
    ],
)
def test_parquet_when_footer_announces_too_much_then_is_refused_at_plan_time(
    tmp_path, monkeypatch, limit, value, message
):
    path = tmp_path / "a.parquet"
    _write(path, pa.table({"text": VALUES}))
    monkeypatch.setattr(f"tokenmill.corpus.readers.parquet.{limit}", value)
    with pytest.raises(InputError, match=message):
        reader_for("parquet", LARGE).spans(source_of(path))


def test_parquet_when_ratio_is_that_of_a_bomb_then_is_refused_at_plan_time(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    table = pa.table({"text": ["a" * 5_000_000]})
    pq.write_table(table, path, compression="zstd", use_dictionary=False)
    assert rows_read(path, LARGE)[0] == ["a" * 5_000_000]
    monkeypatch.setattr("tokenmill.corpus.readers.parquet.MIN_BOMB_BYTES", 1_000_000)
    with pytest.raises(InputError, match="a bomb"):
        reader_for("parquet", LARGE).spans(source_of(path))


def test_parquet_when_row_groups_overlap_then_is_refused_at_plan_time(tmp_path):
    path = tmp_path / "a.parquet"
    _write(path, pa.table({"text": VALUES}))
    with pytest.raises(InputError, match="overlap"):
        reader_for("parquet", LARGE).spans(replace(source_of(path), num_bytes=10))


def test_parquet_when_dictionary_repeats_long_texts_then_batches_stay_small(tmp_path):
    """The footer's sizes are those of the dictionary, far below what the rows decode to."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["x" * 10_000] * 20_000}), path)
    options = ReadOptions(batch_bytes=1 << 20)
    reader = reader_for("parquet", options)
    [span] = reader.spans(source_of(path))
    assert span.text_bytes < 100_000
    sizes = [batch.texts.nbytes for batch in documents(reader, span, options)]
    assert max(sizes) < 1.1 * (1 << 20)


_PEAK_OF_READING = """
import os, sys
import pyarrow as pa
from tokenmill.corpus.spans import Input
from tokenmill.corpus.readers import ReadOptions, reader_for
from tokenmill.corpus.rows import documents
path, kind = sys.argv[1:]
def anonymous():
    return int(open("/proc/self/status").read().split("RssAnon:")[1].split()[0]) // 1024
reader = reader_for(kind, ReadOptions())
source = Input(path, kind, None, os.path.getsize(path), 0, "")
before, peak, num_bytes = anonymous(), 0, 0
for span in reader.spans(source):
    for batch in documents(reader, span, ReadOptions()):
        peak = max(peak, anonymous())
        num_bytes += batch.texts.nbytes
print(num_bytes, peak - before, pa.default_memory_pool().max_memory() >> 20)
"""


@pytest.mark.parametrize("name", ["a.parquet", "stream.arrow"])
def test_reader_when_row_group_is_200_mb_then_memory_stays_bounded(tmp_path, name):
    path = tmp_path / name
    # Text that does not compress well: the compressed column is large as well.
    texts = [os.urandom(2_000).hex() for _ in range(500)] * 100
    table = pa.table({"text": texts})
    if name == "a.parquet":
        pq.write_table(
            table, path, row_group_size=10**6, use_dictionary=False, compression="snappy"
        )
    else:
        _write(path, table, rows=10**6)
    command = [sys.executable, "-c", _PEAK_OF_READING, str(path), source_of(path).kind]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    num_bytes, grown_mib, pool_mib = map(int, done.stdout.split())
    assert num_bytes >= 200_000_000
    assert grown_mib < 80, done.stdout
    assert pool_mib < 64, done.stdout
