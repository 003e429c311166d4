"""Hints that convert an input: typed as they are, the file can be read, wherever it is."""

from __future__ import annotations

import functools
import gzip
import http.server
import shlex
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import tokenmill
from tokenmill.corpus.readers.conversion import filtered, local_command, renamed
from tokenmill.corpus.spans import Input
from tokenmill.errors import ConfigError, InputError

BARS, UTF_16 = b"id|text\n1|a, b\n2|more\n", "id,text\n1,two\n2,more\n".encode("utf-16")


def typed(hint: str, folder: Path) -> None:
    command = hint.partition(", then give ")[0].replace("python3 -c", f"{sys.executable} -c")
    subprocess.run(["bash", "-ec", command], check=True, cwd=folder, capture_output=True)


@pytest.fixture
def website(tmp_path):
    """The test's folder, served at a URL."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.parametrize("is_served", [False, True], ids=["on disk", "at a URL"])
@pytest.mark.parametrize(
    ("name", "content", "made"),
    [
        ("a b.csv", BARS, "commas.csv"),
        ("a.csv.gz", gzip.compress(BARS, mtime=0), "commas.csv"),
        ("a.tsv", BARS, "commas.csv"),
        ("a.csv", UTF_16, "utf8.csv"),
        ("a.csv.gz", gzip.compress(UTF_16, mtime=0), "utf8.csv"),
        ("a.csv.gz", gzip.compress(UTF_16[2:], mtime=0), "utf8.csv"),
        ("a.tsv", UTF_16[2:].replace(b",", b"\t"), "utf8.tsv"),
        ("a.csv.gz", b"text\ntwo\nmore\n", "a.csv"),
        ("a.csv", gzip.compress(b"text\ntwo\nmore\n", mtime=0), "a.csv.gz"),
    ],
)
def test_hint_of_a_refused_file_when_typed_then_what_it_makes_is_read(
    tmp_path, monkeypatch, website, name, content, made, is_served
):
    if is_served:
        pytest.importorskip("aiohttp")
        if shutil.which("curl") is None:
            pytest.skip("the hint for a URL is a curl command")
    source = f"{website}/served/{name.replace(' ', '%20')}" if is_served else name
    for folder in ("served", "here"):
        (tmp_path / folder).mkdir()
    (tmp_path / ("served" if is_served else "here") / name).write_bytes(content)
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises((ConfigError, InputError)) as caught:
        tokenmill.prepare(source, "out", num_proc=1)
    typed(caught.value.hint, tmp_path / "here")
    assert tokenmill.prepare(made, "out", num_proc=1).num_documents == 2


def test_hint_for_standard_input_when_typed_before_tokenmill_then_it_is_read(tmp_path):
    (tmp_path / "a.csv").write_bytes(BARS)
    argv = [sys.executable, "-m", "tokenmill", "prepare", "-", "--input-format", "csv", "-o", "out"]
    refused = subprocess.run(
        argv, input=BARS.decode(), capture_output=True, text=True, cwd=tmp_path
    )
    [hint] = [line for line in refused.stderr.splitlines() if line.startswith("hint: ")]
    start = "hint: convert it in the pipe, before tokenmill: ... | "
    assert hint.startswith(start) and hint.endswith(" | tokenmill ...")
    command = hint.removeprefix(start).removesuffix(" | tokenmill ...")
    typed(f"{command} < a.csv > b.csv", tmp_path)
    assert tokenmill.prepare(tmp_path / "b.csv", tmp_path / "out").num_documents == 2


def test_csv_when_its_one_column_is_quoted_then_it_is_a_name_and_no_other_kind_is_advised(tmp_path):
    (tmp_path / "a.csv").write_text('"id;text"\n"1;x"\n')
    with pytest.raises(ConfigError, match="no column 'text'; it has id;text") as caught:
        tokenmill.prepare(tmp_path / "a.csv", tmp_path / "out", num_proc=1)
    assert caught.value.hint == "--text-column 'id;text'"


def test_folder_when_its_files_are_to_be_read_otherwise_then_the_hint_names_them(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    below = tmp_path / "my data [1]" / "below"
    below.mkdir(parents=True)
    for folder in (below, below.parent):
        (folder / "a.tsv").write_text("id,text\n1,x\n")
    with pytest.raises(
        InputError, match=r"no csv files in my data \[1\] \(there are: 2 .tsv\)"
    ) as e:
        tokenmill.prepare("my data [1]", "out", num_proc=1, input_format="csv")
    assert e.value.hint.startswith("to read its .tsv files as csv, give ")
    [files] = shlex.split(e.value.hint.partition(", give ")[2].removesuffix(" as SOURCE"))
    assert tokenmill.prepare(files, "out", num_proc=1, input_format="csv").num_documents == 2


def test_object_in_a_store_when_converted_then_it_is_copied_first():
    source = Input("s3://b/a file.csv.zst", "csv", "zstd", 9, 0, "")
    first = "copy it to a disk first"
    hint = filtered(source, "iconv", "utf8.csv")
    assert hint == f"{first}; there: zstd -dc 'a file.csv.zst' | iconv > utf8.csv"
    assert (
        local_command(source.name, "unzstd -k {name}")
        == f"{first}; there: unzstd -k 'a file.csv.zst'"
    )
    assert local_command("hf://datasets/a/b/c.txt", "leave it out") == "leave it out"
    new = renamed("s3://b/a.csv.gz", "s3://b/a.csv")
    assert new == f"{first}, as a.csv, then give a.csv as SOURCE"
