"""Compressed streams: of several members, cut at every byte, damaged, with garbage behind."""

from __future__ import annotations

import gzip
import zlib

import pyarrow as pa
import pytest

from tests.corpus.readers.test_contract import PACKERS, jsonl_bytes, rows_read, source_of
from tokenmill.corpus.readers import ReadOptions, reader_for
from tokenmill.corpus.readers.decompression import GzipStream
from tokenmill.errors import InputError
from tokenmill.testing.reader_contract import TINY

TEXTS = [f"document number {i}" for i in range(20)]
every_packer = pytest.mark.parametrize("extension", PACKERS)


@every_packer
def test_stream_when_it_has_several_members_then_all_are_read(tmp_path, extension):
    pack = PACKERS[extension]
    content = jsonl_bytes(TEXTS)
    path = tmp_path / f"a.jsonl.{extension}"
    path.write_bytes(pack(content[:333]) + pack(b"") + pack(content[333:]))
    assert rows_read(path, TINY)[0] == TEXTS


@every_packer
@pytest.mark.parametrize("batch_bytes", [7, 1 << 20])
def test_stream_when_cut_at_any_byte_then_input_error_names_file(tmp_path, extension, batch_bytes):
    pack = PACKERS[extension]
    first, second = pack(b'{"text": "a"}\n' * 5), pack(b'{"text": "b"}\n' * 5)
    path = tmp_path / f"a.jsonl.{extension}"
    for size in range(len(first + second)):
        if size == len(first):
            continue  # between two members: no one can tell
        path.write_bytes((first + second)[:size])
        with pytest.raises(InputError, match=path.name):
            rows_read(path, ReadOptions(batch_bytes=batch_bytes))


@every_packer
@pytest.mark.parametrize("garbage", [b"\0", b"garbage behind", bytes(100)])
def test_stream_when_garbage_follows_then_input_error(tmp_path, extension, garbage):
    path = tmp_path / f"a.txt.{extension}"
    path.write_bytes(PACKERS[extension](b"text") + garbage)
    with pytest.raises(InputError, match=r"broken \w+ stream near byte \d+"):
        rows_read(path, ReadOptions())


@every_packer
def test_spans_when_file_is_not_compressed_then_fails_at_plan_time(tmp_path, extension):
    path = tmp_path / f"a.txt.{extension}"
    path.write_bytes(b"just text, under a wrong name")
    with pytest.raises(InputError, match=r"text, not a \w+ file") as info:
        reader_for("text", ReadOptions()).spans(source_of(path))
    assert info.value.hint == "let its name end in .txt"
    path.write_bytes(b"neither\0 text\xff nor compressed")
    with pytest.raises(InputError, match="broken") as info:
        reader_for("text", ReadOptions()).spans(source_of(path))
    assert info.value.hint.startswith("fetch it again")


def test_stream_when_gzip_content_is_damaged_then_input_error(tmp_path):
    path = tmp_path / "a.txt.gz"
    data = bytearray(gzip.compress(b"some text " * 100))
    data[-6] ^= 1  # in the checksum
    path.write_bytes(data)
    with pytest.raises(InputError, match="incorrect data check"):
        rows_read(path, ReadOptions(separator="|"))


def _outcome(stream) -> tuple[bytes, str]:
    """What is read of it in all, or the error."""
    text = b""
    try:
        while chunk := stream.read(100):
            text += chunk
    except OSError as error:
        return b"", str(error)
    return text, ""


def test_gzip_when_any_bit_is_flipped_then_read_or_refused_as_zlib_does():
    members = [gzip.compress(b"some text, " * 30), gzip.compress(bytes(range(256)), 1)]
    whole = b"".join(members)
    damaged = [whole, zlib.compress(b"another wrapper")]
    for at in range(len(whole) * 8):
        flipped = bytearray(whole)
        flipped[at // 8] ^= 1 << at % 8
        damaged.append(bytes(flipped))
    for data in damaged:
        expected = pa.CompressedInputStream(pa.BufferReader(data), "gzip")
        assert _outcome(GzipStream(pa.BufferReader(data))) == _outcome(expected)


def test_stream_when_it_is_a_bomb_then_stops_at_the_document_limit(tmp_path, monkeypatch):
    monkeypatch.setattr("tokenmill.corpus.readers.text.MAX_DOCUMENT_BYTES", 1 << 20)
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(bytes(64 << 20)))
    with pytest.raises(InputError, match="of the decompressed text is longer"):
        rows_read(path, ReadOptions())
