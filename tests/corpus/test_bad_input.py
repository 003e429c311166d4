"""Every bad input gets a clear error: what, where, and what to type next; and nothing is lost."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import oracle
import tokenmill
from corpora import made_texts, write_corpus
from tokenmill.errors import ConfigError, ConflictError, InputError, OutputError, TokenmillError


def prepared(source: object, out: Path, **options: object) -> tokenmill.Manifest:
    return tokenmill.prepare(source, out, num_proc=1, val="none", **options)


def refused(kind: type[TokenmillError], source: object, tmp_path: Path, **options: object) -> str:
    """Prepare, expecting an error of this kind before any output; its whole text."""
    with pytest.raises(kind) as caught:
        prepared(source, tmp_path / "out", **options)
    assert not (tmp_path / "out" / "tokenmill.json").exists()
    assert not (tmp_path / "out" / "train.bin").exists()
    return str(caught.value)


def written(out: Path) -> list[list[int]]:
    ids = np.fromfile(out / "train.bin", "<u2")
    return [part[:-1].tolist() for part in np.split(ids, np.flatnonzero(ids == 50256) + 1)[:-1]]


def encoded(*texts: str) -> list[list[int]]:
    return [oracle.reference().encode_ordinary(text) for text in texts]


# Names, columns, files


def test_missing_column_lists_the_columns(tmp_path, corpus):
    said = refused(ConfigError, corpus, tmp_path, text_column="txt")
    assert "'txt'" in said and "id" in said and "text" in said and "--text-column" in said
    assert os.path.basename(corpus) in said


@pytest.mark.parametrize(
    ("name", "content", "hint"),
    [
        ("a.csv", b"text,id\ncaf\xe9,1\nth\xe9,2\n", "iconv -f ISO-8859-1 -t UTF-8"),
        ("a.jsonl", b"id,text\n1,x\n2,y\n", "--input-format csv, tsv or text"),
        ("a.jsonl", b'"x"\n"y"\n', "are these the right files"),
        ("a.json", b'["x", "y"]', "are these the right files"),
        ("a.jsonl", b'{"text": 1}\n{"text": 2}\n', "are these the right files"),
    ],
)
def test_file_of_which_most_rows_are_bad_gets_a_hint_for_the_file(tmp_path, name, content, hint):
    path = tmp_path / name
    path.write_bytes(content)
    said = refused(InputError, str(path), tmp_path)
    assert "2 rows are bad" in said or "3 rows are bad" in said
    assert hint in said and "--max-bad-fraction: it resumes" not in said


@pytest.mark.parametrize("ending", ["jsonl.gz", "jsonl.zst", "txt.bz2", "csv.xz", "txt.lz4"])
def test_text_that_is_named_like_a_compressed_file_is_called_text(tmp_path, ending):
    path = tmp_path / f"a.{ending}"
    path.write_text('{"text": "é"}\n' * 20)
    said = refused(InputError, str(path), tmp_path)
    assert "text, not a " in said and f"let its name end in .{ending.split('.')[0]}" in said


def test_missing_column_in_the_last_of_many_files_fails_before_a_token_is_written(tmp_path):
    for number in range(5):
        name = "text" if number < 4 else "body"
        pq.write_table(pa.table({name: ["words"] * 10}), tmp_path / f"{number}.parquet")
    said = refused(ConfigError, str(tmp_path / "*.parquet"), tmp_path)
    assert "4.parquet" in said and "body" in said


@pytest.mark.parametrize("values", [[1, 2], [1.5, 2.5], [[1], [2]], [{"a": 1}, {"a": 2}]])
def test_column_that_is_not_text_names_its_type(values, tmp_path):
    pq.write_table(pa.table({"text": values, "body": ["x", "y"]}), tmp_path / "a.parquet")
    said = refused(ConfigError, tmp_path / "a.parquet", tmp_path)
    assert "a.parquet" in said and "body" in said


def test_jsonl_without_the_field_lists_the_keys(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"body": "x", "id": 1}\n' * 3)
    said = refused(ConfigError, tmp_path / "a.jsonl", tmp_path)
    assert "body" in said and "id" in said


def test_no_such_file_is_said(tmp_path):
    assert "nowhere.txt" in refused(InputError, tmp_path / "nowhere.txt", tmp_path)


def test_glob_without_a_match_is_said(tmp_path):
    assert "*.parquet" in refused(InputError, str(tmp_path / "*.parquet"), tmp_path)


def test_folder_without_corpus_files_says_what_is_there(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "notes.md").write_text("x")
    said = refused(InputError, tmp_path / "in", tmp_path)
    assert "1 .md" in said and "--input-format text" in said


def test_folder_with_two_kinds_asks_which(tmp_path):
    write_corpus("jsonl", tmp_path / "in", ["a"])
    write_corpus("txt", tmp_path / "in", ["a"])
    said = refused(InputError, tmp_path / "in", tmp_path)
    assert "1 jsonl" in said and "1 text" in said and "--input-format" in said
    prepared(tmp_path / "in", tmp_path / "ok", input_format="jsonl")


def test_dataset_metadata_beside_arrow_files_is_not_taken_for_text(tmp_path):
    write_corpus("arrow", tmp_path / "in", ["a", "b"])
    (tmp_path / "in" / "dataset_info.json").write_text(json.dumps({"a": 1}, indent=2))
    (tmp_path / "in" / "state.json").write_text("{}")
    assert prepared(tmp_path / "in", tmp_path / "out").counts.num_written == 2


def test_unknown_extension_asks_how_to_read_it(tmp_path):
    (tmp_path / "a.xyz").write_text("text")
    assert "--input-format" in refused(ConfigError, tmp_path / "a.xyz", tmp_path)
    prepared(tmp_path / "a.xyz", tmp_path / "ok", input_format="text")


@pytest.mark.parametrize(
    ("options", "known"),
    [
        ({"tokenizer": "gpt3"}, ["gpt2", "cl100k_base", "o200k_base", "p50k_base", "r50k_base"]),
        ({"format": "nanogbt"}, ["nanogpt", "npy", "llmc"]),
        ({"eot": "after"}, ["append", "prepend", "both", "none"]),
        ({"dtype": "int8"}, ["auto", "uint16", "uint32"]),
    ],
)
def test_unknown_name_lists_the_known_ones(options, known, tmp_path, corpus):
    said = refused(ConfigError, corpus, tmp_path, **options)
    assert all(name in said for name in known)


@pytest.mark.parametrize(
    "options",
    [
        {"val_fraction": 1.5},
        {"shard_tokens": 0},
        {"shard_tokens": 10},
        {"num_proc": 0},
        {"limit_docs": -1},
        {"seed": -1},
        {"separator": ""},
        {"max_bad_fraction": 2.0},
        {"format": "npy", "name": "../up"},
        {"name": "stem"},
        {"val": "first-shard"},
    ],
)
def test_option_out_of_range_is_refused(options, tmp_path, corpus):
    with pytest.raises(ConfigError):
        tokenmill.prepare(corpus, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


# Broken files


def test_truncated_parquet_is_named(tmp_path, corpus):
    data = Path(corpus).read_bytes()
    (tmp_path / "cut.parquet").write_bytes(data[: len(data) // 2])
    assert "cut.parquet" in refused(InputError, tmp_path / "cut.parquet", tmp_path)


def test_file_that_is_not_parquet_is_named(tmp_path):
    (tmp_path / "page.parquet").write_text("<html>404</html>" * 10)
    assert "page.parquet" in refused(InputError, tmp_path / "page.parquet", tmp_path)


def test_corrupt_parquet_page_is_named(tmp_path, corpus):
    data = bytearray(Path(corpus).read_bytes())
    data[len(data) // 3 : len(data) // 3 + 3000] = b"\x00" * 3000
    (tmp_path / "bad.parquet").write_bytes(data)
    assert "bad.parquet" in refused(InputError, tmp_path / "bad.parquet", tmp_path)


@pytest.mark.parametrize("kind", ["jsonl.gz", "jsonl.zst", "txt.gz", "txt.zst"])
@pytest.mark.parametrize("damage", ["truncated", "flipped", "trailing"])
def test_corrupt_compressed_file_is_named(kind, damage, tmp_path):
    path = Path(write_corpus(kind, tmp_path, made_texts(300)))
    data = bytearray(path.read_bytes())
    if damage == "truncated":
        data = data[: len(data) * 2 // 3]
    elif damage == "flipped":
        data[len(data) // 2] ^= 0xFF
    else:
        data += b"trailing garbage"
    path.write_bytes(data)
    separator = "\x01" if kind.startswith("txt") else None
    assert path.name in refused(InputError, path, tmp_path, separator=separator)


def test_truncated_arrow_stream_is_named(tmp_path):
    path = Path(write_corpus("arrow", tmp_path, made_texts(300)))
    path.write_bytes(path.read_bytes()[:-2000])
    assert path.name in refused(InputError, path, tmp_path)


def test_utf16_text_gets_a_way_out(tmp_path):
    (tmp_path / "a.txt").write_bytes("hello".encode("utf-16"))
    assert "iconv" in refused(InputError, tmp_path / "a.txt", tmp_path)


def test_gzip_named_txt_is_refused(tmp_path):
    (tmp_path / "a.txt").write_bytes(gzip.compress(b"hello " * 100))
    assert "gzip" in refused(InputError, tmp_path / "a.txt", tmp_path)


def test_folder_named_like_a_file_and_unreadable_things_are_named(tmp_path):
    os.mkfifo(tmp_path / "pipe.txt")
    assert "pipe.txt" in refused(InputError, tmp_path / "pipe.txt", tmp_path)


# Bad documents


def lines_with(tmp_path: Path, *bad: bytes) -> Path:
    good = [json.dumps({"text": f"good {number}"}).encode() for number in range(20)]
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"\n".join([*good[:10], *bad, *good[10:]]) + b"\n")
    return path


GOOD = encoded(*(f"good {number}" for number in range(20)))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"text": "cut off', "JSON"),
        (b"not json at all", "JSON"),
        (b'["text", "in a list"]', "object"),
        (b'{"text": 17}', "number"),
        (b'{"text": "caf\xe9 in latin-1"}', "UTF-8"),
    ],
)
def test_bad_json_line_is_quarantined_with_file_line_and_reason(line, reason, tmp_path):
    path = lines_with(tmp_path, line)
    manifest = prepared(path, tmp_path / "out", max_bad_fraction=0.1)
    assert (manifest.counts.num_rows, manifest.counts.num_quarantined) == (21, 1)
    assert written(tmp_path / "out") == GOOD
    [entry] = (tmp_path / "out" / "tokenmill-quarantine.jsonl").read_text().splitlines()
    found = json.loads(entry)
    assert (found["path"], found["place"]) == (str(path), "line 11")
    assert reason in found["reason"]


def test_bad_json_line_with_policy_error_stops_naming_it(tmp_path):
    path = lines_with(tmp_path, b"{broken")
    said = refused(InputError, path, tmp_path, on_bad_document="error")
    assert "rows.jsonl, line 11" in said and "--on-bad-document quarantine" in said


def test_invalid_utf8_with_policy_replace_is_written_and_counted(tmp_path):
    path = lines_with(tmp_path, b'{"text": "caf\xe9"}')
    manifest = prepared(path, tmp_path / "out", on_bad_document="replace")
    assert (manifest.counts.num_replaced, manifest.counts.num_quarantined) == (1, 0)
    assert written(tmp_path / "out") == GOOD[:10] + encoded("caf�") + GOOD[10:]


def test_invalid_utf8_in_a_text_file_is_quarantined_per_document(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"one\n\ncaf\xe9\n\nthree")
    manifest = prepared(
        tmp_path / "a.txt", tmp_path / "out", separator="\n\n", max_bad_fraction=0.5
    )
    assert manifest.counts.num_quarantined == 1
    assert written(tmp_path / "out") == encoded("one", "three")


def test_invalid_utf8_in_a_parquet_string_column_is_quarantined(tmp_path):
    array = pa.array([b"one", b"caf\xe9", b"three"], pa.binary())
    text = pa.Array.from_buffers(pa.string(), 3, array.buffers())
    pq.write_table(pa.table({"text": text}), tmp_path / "a.parquet")
    manifest = prepared(tmp_path / "a.parquet", tmp_path / "out", max_bad_fraction=0.5)
    assert manifest.counts.num_quarantined == 1
    assert written(tmp_path / "out") == encoded("one", "three")


def test_lone_surrogates_become_what_tiktoken_makes_of_them(tmp_path):
    path = lines_with(tmp_path, rb'{"text": "half \ud83d pair"}', rb'{"text": "\ud83d\ude42"}')
    manifest = prepared(path, tmp_path / "out")
    assert manifest.counts.num_replaced == 1
    expected = encoded("half \ud83d pair", "🙂")
    assert written(tmp_path / "out") == GOOD[:10] + expected + GOOD[10:]


def test_nul_bytes_are_text_and_a_bom_at_the_start_is_not(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\x00two\xef\xbb\xbfthree")
    prepared(tmp_path / "a.txt", tmp_path / "out")
    assert written(tmp_path / "out") == encoded("one\x00two\ufeffthree")


def test_bom_and_crlf_in_jsonl_are_fine(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"text": "one"}\r\n{"text": "two"}\r\n')
    prepared(tmp_path / "a.jsonl", tmp_path / "out")
    assert written(tmp_path / "out") == encoded("one", "two")


def test_corpus_of_nothing_but_empty_rows_is_refused_with_the_counts(tmp_path):
    source = write_corpus("parquet", tmp_path, ["", None, ""])
    assert "2 are empty, 1 null" in refused(InputError, source, tmp_path)


@pytest.mark.parametrize("tokenizer", ["gpt2", "o200k_base"])
def test_a_million_spaces_is_a_document_like_any_other(tokenizer, tmp_path):
    source = write_corpus("jsonl", tmp_path, ["before", " " * 1_000_000, "after"])
    manifest = prepared(source, tmp_path / "out", tokenizer=tokenizer)
    assert manifest.counts.num_written == 3
    dtype = "<u2" if tokenizer == "gpt2" else "<u4"
    ids = np.fromfile(tmp_path / "out" / "train.bin", dtype).tolist()
    assert tokenmill.get_encoding(tokenizer).decode(ids).count(" ") == 1_000_000


def test_a_document_of_200_mb_is_encoded_within_bounds(tmp_path):
    paragraph = "The mill grinds slowly, but it grinds exceeding fine. " * 200 + "\n"
    with open(tmp_path / "huge.txt", "w") as file:
        for _ in range(200_000_000 // len(paragraph)):
            file.write(paragraph)
    script = (
        "import sys, tokenmill\n"
        "m = tokenmill.prepare(sys.argv[1], sys.argv[2], num_proc=1, val='none')\n"
        "status = open('/proc/self/status').read(); "
        "print(m.num_tokens, int(status.partition('VmHWM:')[2].split()[0]) // 1024)"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "huge.txt"), str(tmp_path / "out")]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    num_tokens, peak_mb = map(int, found)
    once = len(oracle.reference().encode_ordinary(paragraph * 50)) / 50
    assert abs(num_tokens - once * (200_000_000 // len(paragraph))) < once * 2
    assert peak_mb < 1600


# The output folder


def test_output_path_that_is_a_file_is_a_conflict(tmp_path, corpus):
    (tmp_path / "out").write_text("a file")
    with pytest.raises(ConflictError, match="is a file"):
        prepared(corpus, tmp_path / "out")


def test_output_below_a_file_is_an_output_error(tmp_path, corpus):
    (tmp_path / "file").write_text("a file")
    with pytest.raises(OutputError, match="Not a directory"):
        prepared(corpus, tmp_path / "file" / "out")


AS_SOMEONE_ELSE = """
import os, sys, tokenmill, tokenmill.errors
source, first, out = sys.argv[1:]
for number in range(2):  # import everything while we may
    tokenmill.prepare(source, first + str(number), num_proc=1, val="none")
if os.geteuid() == 0:
    os.seteuid(65534)  # root may write anywhere
try:
    tokenmill.prepare(source, out, num_proc=1, val="none")
except tokenmill.errors.OutputError as error:
    print(error)
    sys.exit(error.exit_code)
"""


def test_read_only_output_folder_is_an_output_error(texts):
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        source = write_corpus("jsonl", Path(folder), texts)
        out = Path(folder, "out")
        out.mkdir(mode=0o500)
        command = [sys.executable, "-c", AS_SOMEONE_ELSE, source, f"{folder}/first", str(out)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr, list(out.iterdir())) == (4, "", [])
        assert "Permission denied" in done.stdout and "hint: choose a folder" in done.stdout
