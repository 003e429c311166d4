"""Which files are the corpus: nothing vanishes while sources are listed, and what is not read is
said; what cannot be read names the way out."""

from __future__ import annotations

import glob
import gzip
import json
import os
import random
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tokenmill
import warm
from tokenmill.config import Config
from tokenmill.corpus.inputs import FoundInputs, found_inputs
from tokenmill.corpus.plan import Plan
from tokenmill.corpus.planning import make_plan
from tokenmill.corpus.readers.naming import may_be_text
from tokenmill.corpus.source_files import inputs_of
from tokenmill.errors import ConfigError, InputError, NetworkError, TokenmillError
from tokenmill.run.corpus_notes import separator_note
from tokenmill.storage import listing


def written(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"text of {name}")
    return folder


def found(*sources: object, **options: object) -> FoundInputs:
    return found_inputs(Config(sources=tuple(map(str, sources)), **options))


def names_of(result: FoundInputs, folder: Path) -> list[str]:
    return [os.path.relpath(source.path, folder) for source in result.inputs]


def refused(kind: type[TokenmillError], *sources: object, **options: object) -> str:
    with pytest.raises(kind) as caught:
        found(*sources, **options)
    return str(caught.value)


def command(*words: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return warm.tokenmill(*words, cwd=cwd)


# What cannot be listed or read

NOBODY = 65534  # root may read anything


@pytest.fixture
def perm() -> Iterator[Path]:
    """Two readable files and a folder; not below `tmp_path`, which is closed to others."""
    with tempfile.TemporaryDirectory() as scratch:
        os.chmod(scratch, 0o755)
        folder = Path(scratch, "perm")
        written(folder, "a.txt", "b.txt", "sub/c.txt", "sub/deep/d.txt")
        Path(scratch, "out").mkdir(mode=0o777)
        os.chmod(Path(scratch, "out"), 0o777)
        yield folder
        for path in (folder / "sub", folder / "sub/c.txt", folder / "sub/deep"):
            path.chmod(0o700)


def as_someone_else(perm: Path, *words: object) -> subprocess.CompletedProcess[str]:
    return warm.tokenmill(*words, euid=NOBODY if os.geteuid() == 0 else None)


@pytest.mark.parametrize("closed", ["sub", "sub/deep"])
@pytest.mark.parametrize(
    "words",
    [
        ("prepare", "{perm}", "-o", "{out}"),
        ("prepare", "{perm}/**/*.txt", "-o", "{out}"),
        ("prepare", "file://{perm}", "-o", "{out}"),
        ("prepare", "{perm}", "-o", "{out}", "--dry-run"),
        ("estimate", "{perm}"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_sources_when_a_subfolder_cannot_be_listed_then_it_is_named(closed, words, perm):
    (perm / closed).chmod(0)
    out = perm.parent / "out" / "x"
    argv = [word.format(perm=perm, out=out) for word in words] + ["--num-proc", "1"]
    done = as_someone_else(perm, *argv)
    assert done.returncode == 3, done.stdout + done.stderr
    assert f"cannot list {perm / closed}: Permission denied" in done.stderr
    assert "hint: chmod" in done.stderr
    assert not out.exists()


@pytest.mark.parametrize(
    ("closed", "mode", "source", "named"),
    [
        ("sub", 0o000, "sub/c.txt", "sub/c.txt"),  # not "no such file"
        ("sub", 0o000, "*/c.txt", "sub/c.txt"),
        ("sub", 0o400, ".", "sub/deep"),  # its names can be listed, and that is all
        ("sub", 0o100, "sub/*.txt", "sub"),
        ("sub/c.txt", 0o000, ".", "sub/c.txt"),
    ],
)
def test_sources_when_permission_is_missing_then_what_lacks_it_is_named(
    closed, mode, source, named, perm
):
    (perm / closed).chmod(mode)
    if os.geteuid() == 0:
        os.chown(perm / closed, 65534, -1)
    done = as_someone_else(perm, "estimate", perm / source, "--num-proc", "1")
    assert done.returncode == 3, done.stdout + done.stderr
    assert f"{perm / named}: Permission denied" in done.stderr


def test_sources_when_all_can_be_read_by_someone_else_then_all_are(perm):
    for path in perm.rglob("*"):
        path.chmod(0o755)
    done = as_someone_else(
        perm, "prepare", perm, "-o", perm.parent / "out/x", "--json", "--num-proc", "1"
    )
    assert json.loads(done.stdout.splitlines()[-1])["counts"]["num_rows"] == 4


@pytest.mark.parametrize("source", ["", "/**", "/*"])
def test_sources_when_a_link_leads_nowhere_then_it_is_named(source, tmp_path):
    written(tmp_path, "a.txt")
    (tmp_path / "data").symlink_to("/nowhere/data")
    said = refused(InputError, f"{tmp_path}{source}")
    assert f"{tmp_path}/data" in said and "/nowhere/data" in said and "hint: " in said


def test_folder_when_links_go_round_in_circles_then_each_file_is_read_once(tmp_path):
    written(tmp_path, "a/one.txt", "b/two.txt")
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    (tmp_path / "a" / "over").symlink_to(tmp_path / "b")
    (tmp_path / "b" / "back").symlink_to(tmp_path / "a")
    result = found(tmp_path)
    assert [source.num_bytes for source in result.inputs] == [17, 17]
    assert "named more than once" in result.notes[0]
    assert len(found(tmp_path / "**" / "*.txt").inputs) == 2


def test_matching_agrees_with_glob_on_random_trees(tmp_path, monkeypatch):
    """Where everything can be listed, our globs are Python's."""
    random_ = random.Random(0)
    parts = ["a", "b", ".h", "ab.txt", "a[1]"]
    for _ in range(60):
        path = tmp_path.joinpath(*random_.choices(parts, k=random_.randint(1, 4)))
        if any(above.is_file() for above in path.parents) or path.exists():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    monkeypatch.chdir(tmp_path)
    patterns = ["*", "**", "**/*", "*/*", "a*", ".*", "**/a", "a/**", "**/**/*.txt", "*/**/ab*"]
    patterns += ["?", "[ab]/*", "./*", "a/../b/*", "**/.h/*", "link/**", "*/", "nothing/*"]
    for pattern in (*patterns, *(f"{tmp_path}/{pattern}" for pattern in patterns)):
        expected = {os.path.normpath(p) for p in glob.glob(pattern, recursive=True)}
        here = listing.matching(pattern)
        ours = [os.path.normpath(p) for p in (*here.files, *here.folders)]
        assert len(set(ours)) == len(ours)
        # `**` itself stands for the folder it begins in, too: no file either way.
        assert expected - set(ours) <= {".", "a", "link", str(tmp_path), f"{tmp_path}/a"} | {
            f"{tmp_path}/link"
        }, pattern
        assert set(ours) <= expected, pattern
        assert {p for p in ours if os.path.isfile(p)} == {p for p in expected if os.path.isfile(p)}


def test_https_when_its_package_is_missing_then_that_one_is_named(tmp_path):
    script = (
        "import sys; sys.modules['aiohttp'] = None\n"
        "from tokenmill.cli import main\n"
        "sys.exit(main(['prepare', 'https://host/a.txt', '-o', sys.argv[1]]))"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "hint: pip install aiohttp" in done.stderr


# What is not read is said


def test_folder_when_files_of_other_kinds_lie_in_it_then_they_are_counted(tmp_path):
    written(tmp_path, "a.txt", "README.md", "x/b.csv", "x/c.csv", ".hidden", "LICENSE")
    result = found(tmp_path)
    assert names_of(result, tmp_path) == ["a.txt"]
    assert result.notes == (
        f"4 files were not read: 2 .csv, 1 LICENSE, 1 .md (first: {tmp_path}/LICENSE)",
    )


def test_folder_when_inputs_lie_beside_a_dataset_then_it_is_said_that_they_are_not_read(tmp_path):
    written(tmp_path, "a.txt", "x/b.txt", "x/train.parquet", "y/c.txt", "y/.tokenmill/plan.json")
    (tmp_path / "x" / "tokenmill.json").write_text('{"files": [{"name": "train.parquet"}]}')
    result = found(tmp_path)
    assert names_of(result, tmp_path) == ["a.txt"]
    [note] = result.notes
    assert note.startswith("2 files were not read, because a dataset or an unfinished run is in")
    assert "a glob reads such files" in note


def test_folder_when_json_lies_beside_json_lines_then_it_is_said_to_be_metadata(
    tmp_path,
):
    written(tmp_path, "a.jsonl", "b.json")
    for chosen in (None, "jsonl"):
        [note] = found(tmp_path, input_format=chosen).notes
        assert "1 file was not read, taken for metadata (a glob reads them): 1 .json" in note


def test_folder_when_input_format_chooses_then_the_others_are_counted(tmp_path):
    written(tmp_path, "a.jsonl", "b.txt", "c.txt", "d.md")
    result = found(tmp_path, input_format="jsonl")
    assert names_of(result, tmp_path) == ["a.jsonl"]
    [note] = result.notes
    assert "3 files were not read, because of --input-format jsonl: 2 .txt, 1 .md" in note


def test_folder_when_input_format_is_text_then_all_that_may_be_text_is_read(tmp_path):
    written(tmp_path, "a.txt", "b.md", "src/c.py", "Makefile", "d.csv", "e.png", "f.jsonl", "g.zip")
    (tmp_path / "h.md.gz").write_bytes(gzip.compress(b"packed"))
    result = found(tmp_path, input_format="text")
    assert names_of(result, tmp_path) == ["Makefile", "a.txt", "b.md", "h.md.gz", "src/c.py"]
    [note] = result.notes
    assert all(f"1 {end}" in note for end in (".csv", ".png", ".jsonl", ".zip"))
    out = tmp_path / "out"
    manifest = tokenmill.prepare(tmp_path, out, input_format="text", num_proc=1, val="none")
    assert (manifest.counts.num_rows, manifest.counts.num_quarantined) == (5, 0)


def test_folder_when_datasets_left_its_metadata_then_that_is_no_news(tmp_path):
    written(tmp_path, "a.arrow", "state.json", "dataset_info.json")
    assert found(tmp_path).notes == ()
    written(tmp_path, "more.json")
    assert "1 .json" in found(tmp_path).notes[0]


@pytest.mark.parametrize(
    "spelling", ["same", "absolute", "dotted", "link", "glob", "folder", "url"]
)
def test_file_when_named_twice_then_it_is_read_once_and_said(spelling, tmp_path, monkeypatch):
    monkeypatch.chdir(written(tmp_path, "a.txt"))
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "link.txt").symlink_to(tmp_path / "a.txt")
    other = {
        "same": "a.txt",
        "absolute": str(tmp_path / "a.txt"),
        "dotted": "./hidden/../a.txt",
        "link": "hidden/link.txt",
        "glob": "a*.txt",
        "folder": ".",
        "url": f"file://{tmp_path}/a.txt",
    }[spelling]
    result = found("a.txt", other)
    assert [source.path for source in result.inputs] == ["a.txt"]
    assert len(result.notes) == 1
    assert "1 path was named more than once and read once" in result.notes[0]
    assert "a.txt" in result.notes[0]


def test_text_when_it_has_markers_or_is_large_then_a_note_says_how_to_divide_it(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("tokenmill.corpus.inputs.LARGE_BYTES", 100)
    written(tmp_path, "0.txt", "about.txt")
    (tmp_path / "about.txt").write_text("GPT-2 has the token <|endoftext|>, once")
    assert found(tmp_path).notes == ()
    (tmp_path / "large.txt").write_text("word " * 30)
    (tmp_path / "small.txt.gz").write_bytes(gzip.compress(b"x<|endoftext|>" * 3))
    [note] = found(tmp_path).notes
    assert note.startswith(f"{tmp_path}/large.txt, 150 B, is one document: --separator")
    (tmp_path / "many.txt").write_text("a story<|endoftext|>" * 9)
    [note] = found(tmp_path).notes
    assert note.startswith(f"{tmp_path}/many.txt has <|endoftext|> in it")
    assert "--separator '<|endoftext|>'" in note
    divided = Config(sources=(str(tmp_path),), out="out", separator="<|endoftext|>")
    assert found_inputs(divided).notes == ()
    done = command("prepare", tmp_path, "-o", tmp_path / "out", "--no-val")
    assert note in done.stderr and tokenmill.estimate(tmp_path).notes[0] == note


def test_glob_when_folders_match_too_then_they_are_said(tmp_path):
    written(tmp_path, "a.txt", "sub/b.txt")
    assert "1 folder was matched by a glob and not read" in found(tmp_path / "*").notes[0]
    assert found(tmp_path / "**").notes == ()
    said = refused(InputError, tmp_path / "su*")
    assert "1 folders do" in said and f"{tmp_path}/su*/**" in said


def test_object_when_named_twice_then_it_is_read_once_and_said():
    files = fsspec.filesystem("memory")
    files.pipe({"/corpus/a.txt": b"a", "/corpus/b.md": b"b"})
    try:
        result = found("memory://corpus/a.txt", "memory://corpus/*.txt", "memory://corpus/")
        assert len(result.inputs) == 1
        assert "1 file was not read: 1 .md" in result.notes[0]
        assert "1 path was named more than once" in result.notes[1]
    finally:
        files.rm("/corpus", recursive=True)


@pytest.mark.parametrize(
    ("options", "name", "said"),
    [
        ({"separator": "\n\n"}, "a.jsonl", "--separator separates documents in text files"),
        ({"separator": "\n\n"}, "a.parquet", "these are parquet"),
        ({"text_column": "body"}, "a.txt", "--text-column body names a column"),
    ],
)
def test_option_when_no_input_heeds_it_then_refused(options, name, said, tmp_path):
    assert said in refused(ConfigError, written(tmp_path, name) / name, **options)


def test_option_when_one_of_several_inputs_heeds_it_then_accepted(tmp_path):
    written(tmp_path, "a.txt", "b.jsonl")
    sources = tmp_path / "a.txt", tmp_path / "b.jsonl"
    assert len(found(*sources, separator="\n", text_column="body").inputs) == 2


@pytest.mark.parametrize(
    ("contents", "separator", "is_said"),
    [
        (["a\nb"], "\n\n", True),
        (["a\n\nb"], "\n\n", False),
        (["a", "b"], "\n", True),
        (["a", "b\nc"], "\n", False),
        ([""], "\n", True),
    ],
)
def test_separator_when_it_divides_nothing_then_said(contents, separator, is_said, tmp_path):
    for number, content in enumerate(contents):
        (tmp_path / f"{number}.txt").write_text(content)
    (tmp_path / "more.txt").write_text("so that something is written")
    done = command("prepare", tmp_path, "-o", tmp_path / "o", "--separator", repr(separator)[1:-1])
    assert done.returncode == 0, done.stderr
    assert (f"--separator {separator!r} divides" in done.stderr) == is_said


def test_separator_when_tables_are_read_too_then_only_text_counts(tmp_path):
    pq.write_table(pa.table({"text": ["x"] * 9}), tmp_path / "a.parquet")
    written(tmp_path, "b.txt")
    config = Config(
        sources=(str(tmp_path / "a.parquet"), str(tmp_path / "b.txt")), separator="\n\n"
    )
    plan = make_plan({"options": config.identity()}, found_inputs(config).inputs, config)
    assert "divides nothing" in separator_note(config, plan, 10)
    assert separator_note(config, plan, 11) is None


def test_notes_on_the_corpus_are_shown_once_and_are_in_the_plan_of_a_dry_run(tmp_path):
    written(tmp_path, "in/a.txt", "in/b.csv")
    note = f"1 file was not read: 1 .csv ({tmp_path}/in/b.csv)"
    first = command("prepare", tmp_path / "in", "-o", tmp_path / "o")
    assert first.stderr.count(f"warning: {note}\n") == first.stderr.count(note) == 1
    dry = command("prepare", tmp_path / "in", "-o", tmp_path / "q", "--json", "--dry-run")
    assert note in json.loads(dry.stdout)["notes"]
    assert f"note: {note}" in command("estimate", tmp_path / "in").stdout
    assert note in command("prepare", tmp_path / "in", "-o", tmp_path / "r", "--dry-run").stderr


def test_plan_when_it_has_notes_then_its_id_is_as_without_and_they_are_kept(tmp_path):
    written(tmp_path, "in/a.txt", "in/b.csv")
    config = Config(sources=(str(tmp_path / "in"),), val_fraction=0.0005)
    here = found_inputs(config)
    plain = make_plan({"options": config.identity()}, here.inputs, config)
    plan = Plan(plain.identity, plain.inputs, plain.slices, here.notes)
    assert plan.notes and plan.plan_id == plain.plan_id
    assert plan.create(str(tmp_path / "plan.json"))
    again = Plan.load(str(tmp_path / "plan.json"))
    assert (again.notes, again.plan_id, again.slices) == (plan.notes, plan.plan_id, plan.slices)


def test_finish_when_a_task_left_files_aside_then_it_says_so(tmp_path):
    written(tmp_path, "in/a.txt", "in/b.csv")
    out = tmp_path / "out"
    assert command("prepare", tmp_path / "in", "-o", out, "--partition", "1/1").returncode == 0
    shutil.rmtree(tmp_path / "in")
    done = command("finish", out)
    assert done.returncode == 0 and "1 file was not read: 1 .csv" in done.stderr


# Ways out that lead somewhere


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("t.tar.gz", "unpack it, and give the folder as SOURCE"),
        ("t.tgz", "unpack it, and give the folder as SOURCE"),
        ("a.zip", "unpack it, and give the folder as SOURCE"),
        ("a.pdf", "convert it to .txt first, and give that as SOURCE"),
        ("a.parquet.gz", "decompress it first"),
        ("a.png", "leave it out"),
    ],
)
def test_file_when_its_name_says_that_it_is_no_text_then_refused_with_what_to_do(
    name, hint, tmp_path
):
    said = refused(InputError, written(tmp_path, name) / name)
    assert f"hint: {hint}" in said and "--input-format" not in said


def test_archive_when_called_text_then_it_is_to_be_unpacked(tmp_path, monkeypatch):
    monkeypatch.chdir(written(tmp_path, "a.txt"))
    subprocess.run(["tar", "-czf", "t.tar.gz", "a.txt"], check=True)
    with pytest.raises(InputError, match="a tar archive") as caught:
        tokenmill.prepare("t.tar.gz", tmp_path / "out", num_proc=1, input_format="text")
    assert caught.value.hint == "unpack it, and give the folder as SOURCE"


@pytest.mark.parametrize("name", ["a.parquet", "a.txt"])
def test_parquet_when_read_as_text_then_the_hint_leads_to_its_reader(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"text": ["a"]}), name)
    with pytest.raises(InputError) as caught:
        tokenmill.prepare(name, tmp_path / "out", num_proc=1, input_format="text")
    assert caught.value.hint == "--input-format parquet"
    manifest = tokenmill.prepare(name, tmp_path / "out", num_proc=1, input_format="parquet")
    assert manifest.num_documents == 1


def test_unknown_name_when_it_may_be_text_then_asks_how_to_read_it(tmp_path):
    for name in ("a.md", "part-00000.gz", "b.md.zst"):
        assert may_be_text(name)
        said = refused(ConfigError, written(tmp_path, name) / name)
        assert "--input-format parquet|arrow|jsonl|csv|tsv|text" in said


def test_folder_when_it_holds_tables_of_text_then_they_are_data_unless_beside_other_data(tmp_path):
    written(tmp_path, "x.csv", "y.csv", "m.json", "README.md")
    assert [Path(one.path).name for one in inputs_of([str(tmp_path)], None)] == ["x.csv", "y.csv"]
    written(tmp_path, "b.jsonl")
    assert [Path(one.path).name for one in inputs_of([str(tmp_path)], None)] == ["b.jsonl"]
    assert [one.kind for one in inputs_of([str(tmp_path)], "csv")] == ["csv", "csv"]


@pytest.mark.parametrize("asked", ["text", "txt", "text.fr"])
def test_struct_column_when_its_text_is_asked_for_then_the_hint_leads_into_it(
    asked, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    table = pa.table({"text": [{"n": 1, "en": "hello"}], "score": [0.5], "url": ["x"], "id": ["y"]})
    pq.write_table(table, "a.parquet")
    with pytest.raises(ConfigError) as caught:
        tokenmill.prepare("a.parquet", tmp_path / "out", num_proc=1, text_column=asked)
    assert caught.value.hint == "--text-column text.en"


@pytest.mark.parametrize(
    ("columns", "asked", "hint"),
    [
        ({"content": ["a"], "url": ["b"], "n": [1]}, "text", "--text-column content"),
        ({"story": ["a"]}, "text", "--text-column story"),
        ({"url": ["a"], "id": ["b"]}, "text", "--text-column NAME, one of: url, id"),
        ({"parts": [["a"]], "n": [1]}, "text", "--text-column parts --lists join"),
        ({"text": [[1]], "n": [1]}, "text", "these files hold no text: name others"),
    ],
)
def test_column_hint_names_only_columns_that_are_text(columns, asked, hint, tmp_path):
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    with pytest.raises(ConfigError) as caught:
        tokenmill.prepare(tmp_path / "a.parquet", tmp_path / "out", num_proc=1, text_column=asked)
    assert caught.value.hint == hint


@pytest.mark.parametrize(
    ("source", "typed"),
    [
        ("HuggingFaceFW/fineweb-edu", "tokenmill fineweb --version 10B --edu -o OUT"),
        ("HuggingFaceFW/fineweb", "tokenmill fineweb --version 10B --no-edu -o OUT"),
        ("someone/some-data", "tokenmill prepare someone/some-data -o OUT"),
        (
            "https://huggingface.co/datasets/HuggingFaceFW/fineweb-edu",
            "tokenmill fineweb --version 10B --edu -o OUT",
        ),
    ],
)
def test_source_when_it_is_a_dataset_of_the_hub_then_the_hint_is_its_command(
    source, typed, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((InputError, ConfigError)) as caught:
        inputs_of([source], None)
    assert typed in (caught.value.hint or "")


def test_source_when_its_folder_is_here_then_the_hint_is_not_about_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(written(tmp_path, "data/a.txt"))
    assert f"hint: see: ls {tmp_path}/data" in refused(InputError, "data/b")
    assert f"hint: see: ls {tmp_path}/data" in refused(InputError, tmp_path / "data/x/y")
    assert "Hub" not in refused(InputError, "elsewhere/b.txt")


def test_https_when_nobody_answers_then_it_is_the_network(monkeypatch):
    pytest.importorskip("aiohttp")
    monkeypatch.setattr("tokenmill.storage.retry.UNREACHABLE_SECONDS", 0.0)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        url = f"https://127.0.0.1:{free.getsockname()[1]}/a.jsonl"
        with pytest.raises(NetworkError) as caught:
            inputs_of([url], None)
    assert caught.value.exit_code == 8
    assert "S3" not in str(caught.value) and "aws" not in str(caught.value)


def test_http_when_the_file_is_not_there_then_it_is_the_input(tmp_path):
    pytest.importorskip("aiohttp")
    script = "import http.server as h; s = h.ThreadingHTTPServer(('127.0.0.1', 0), "
    script += "h.SimpleHTTPRequestHandler); print(s.server_port, flush=True); s.serve_forever()"
    argv = [sys.executable, "-c", script]
    written(tmp_path, "a.txt")
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=tmp_path
    ) as server:
        try:
            assert server.stdout is not None
            place = f"http://127.0.0.1:{int(server.stdout.readline())}"
            assert inputs_of([f"{place}/a.txt"], None)[0].num_bytes == len("text of a.txt")
            with pytest.raises(InputError) as caught:
                inputs_of([f"{place}/nope.txt"], None)
            assert caught.value.hint == f"is the address right? curl -I {place}/nope.txt"
        finally:
            server.terminate()


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
