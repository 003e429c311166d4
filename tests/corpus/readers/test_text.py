"""Plain text against bytes.split, and what is not plain text."""

from __future__ import annotations

import gzip
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.corpus.readers.test_contract import rows_read, source_of
from tokenmill.corpus.readers import ReadOptions, reader_for
from tokenmill.corpus.rows import documents
from tokenmill.errors import ConfigError, InputError

WHOLE = ReadOptions()


def oracle(content: bytes, separator: str) -> list[str]:
    *pieces, last = content.removeprefix(b"\xef\xbb\xbf").split(separator.encode())
    if last or not pieces:
        pieces.append(last)
    return [piece.decode() for piece in pieces]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    separator=st.text("ab\n", min_size=1, max_size=5)
    | st.sampled_from(["\n\n", "aabaa", "é\ufeff"]),
    content=st.text("ab\né\ufeff", max_size=200),
    sizes=st.tuples(st.integers(1, 60), st.integers(1, 60)),
    pack=st.sampled_from([None, "gz"]),
)
def test_text_when_separator_overlaps_itself_then_documents_are_those_of_split(
    tmp_path, separator, content, sizes, pack
):
    path = tmp_path / ("a.txt.gz" if pack else "a.txt")
    path.write_bytes(gzip.compress(content.encode(), 1) if pack else content.encode())
    options = ReadOptions(separator=separator, span_bytes=sizes[0], batch_bytes=sizes[1])
    assert rows_read(path, options) == (oracle(content.encode(), separator), {}, 0)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    content=st.binary(max_size=120).filter(
        lambda raw: not raw.startswith((b"\xff\xfe", b"\xfe\xff"))
    ),
    separator=st.sampled_from(["\0", "\n", "a", "\n\n"]),
    sizes=st.tuples(st.integers(1, 40), st.integers(1, 40)),
)
def test_text_when_content_is_any_bytes_then_replaced_documents_are_those_of_decode(
    tmp_path, content, separator, sizes
):
    (tmp_path / "a.txt").write_bytes(b"x" + content)
    options = ReadOptions(
        separator=separator, span_bytes=sizes[0], batch_bytes=sizes[1], replace_bad_text=True
    )
    *pieces, last = (b"x" + content).split(separator.encode())
    pieces += [last] if last or not pieces else []
    expected = [piece.decode(errors="replace") for piece in pieces]
    assert rows_read(tmp_path / "a.txt", options)[:2] == (expected, {})


@pytest.mark.parametrize("newlines", [5000, 5001])
def test_spans_when_separators_run_through_the_file_then_planning_ends(tmp_path, newlines):
    content = b"a" + b"\n" * newlines + b"b\n\nc"
    (tmp_path / "a.txt").write_bytes(content)
    options = ReadOptions(separator="\n\n", span_bytes=100, batch_bytes=64)
    assert rows_read(tmp_path / "a.txt", options)[0] == oracle(content, "\n\n")


def test_spans_when_documents_are_cut_then_planning_reads_little(tmp_path):
    content = (b"document " * 20 + b"\n\n") * 20_000
    (tmp_path / "a.txt").write_bytes(content)
    options = ReadOptions(separator="\n\n", span_bytes=1 << 19)
    spans = reader_for("text", options).spans(source_of(tmp_path / "a.txt"))
    assert len(spans) == -(-len(content) // (1 << 19))
    assert all(content[: span.stop].endswith(b"\n\n") for span in spans)


@pytest.mark.parametrize("content", ["", "one\r\ndocument\n\n", "nul \0 \x01", "é" * 50_000])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_text_when_there_is_no_separator_then_file_is_one_document(tmp_path, content, mark, name):
    data = mark + content.encode()
    (tmp_path / name).write_bytes(gzip.compress(data, mtime=0) if name.endswith("gz") else data)
    for options in (WHOLE, replace(WHOLE, span_bytes=10, batch_bytes=2)):
        assert rows_read(tmp_path / name, options) == ([content], {}, 0)
    reader = reader_for("text", WHOLE)
    [span] = reader.spans(source_of(tmp_path / name))
    assert reader.place(span, 0) == "the file"


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf"])
def test_text_when_file_is_empty_and_separated_then_is_one_empty_document(tmp_path, content):
    (tmp_path / "a.txt").write_bytes(content)
    assert rows_read(tmp_path / "a.txt", replace(WHOLE, separator="\n")) == ([""], {}, 0)


def test_text_when_document_is_not_utf8_then_only_it_is_bad(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"fine|caf\xe9|fine")
    options = ReadOptions(separator="|")
    expected = (["fine", None, "fine"], {1: "invalid UTF-8 at byte 3 (0xe9)"}, 0)
    assert rows_read(tmp_path / "a.txt", options) == expected
    mended = (["fine", "caf\ufffd", "fine"], {}, 1)
    assert rows_read(tmp_path / "a.txt", replace(options, replace_bad_text=True)) == mended
    assert rows_read(tmp_path / "a.txt", WHOLE)[1] == {0: "invalid UTF-8 at byte 8 (0xe9)"}


def test_text_when_document_has_200_mb_then_is_not_copied(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"0123456789" * 20_000_000)
    reader = reader_for("text", WHOLE)
    [span] = reader.spans(source_of(tmp_path / "a.txt"))
    before = pa.total_allocated_bytes()
    [batch] = documents(reader, span, WHOLE)
    assert batch.texts.nbytes > 200_000_000
    assert pa.total_allocated_bytes() - before < 1_000_000


def test_text_when_separated_document_is_longer_than_limit_then_error_names_offset(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("tokenmill.corpus.readers.text.MAX_DOCUMENT_BYTES", 1000)
    (tmp_path / "a.txt").write_bytes(b"ab|cd|" + b"x" * 5000)
    with pytest.raises(InputError, match="the document at byte 6 is longer than"):
        rows_read(tmp_path / "a.txt", ReadOptions(separator="|", batch_bytes=100))


def test_text_when_separator_is_empty_then_config_error():
    with pytest.raises(ConfigError, match="separator is empty"):
        reader_for("text", ReadOptions(separator=""))


@pytest.mark.parametrize(
    ("magic", "what"),
    [
        (gzip.compress(b"x", mtime=0), "a gzip file"),
        (b"\x28\xb5\x2f\xfd\x00", "a zstd file"),
        (b"PK\x03\x04....", "a zip file"),
        (b"PAR1....", "a parquet file"),
        (b"%PDF-1.7\n", "a PDF file"),
        ("text".encode("utf-16"), "UTF-16LE"),
        (b"\xfe\xff\0t", "UTF-16BE"),
        ("text".encode("utf-32"), "UTF-32LE"),
        (b"\0\0\xfe\xff\0\0\0t", "UTF-32BE"),
    ],
)
@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_spans_when_first_bytes_are_no_text_then_input_error_with_hint(tmp_path, magic, what, name):
    (tmp_path / name).write_bytes(gzip.compress(magic, mtime=0) if name.endswith("gz") else magic)
    with pytest.raises(InputError, match=what) as info:
        reader_for("text", WHOLE).spans(source_of(tmp_path / name))
    assert info.value.hint
