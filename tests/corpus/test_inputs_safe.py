"""No input of a command is ever removed or replaced, whatever the user says: refused before
anything is touched, and `--dry-run` says so."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

import pytest

import tokenmill
from corpora import write_corpus
from tokenmill.cli import main
from tokenmill.dataset.manifest import Manifest


def everything(folder: Path) -> dict[str, bytes | str]:
    """Every file and link below a folder, and what is in it; folders, too."""
    found: dict[str, bytes | str] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            found[name] = f"link to {os.readlink(path)}"
        else:
            found[name] = path.read_bytes() if path.is_file() else "folder"
    return found


@pytest.fixture
def parquet(tmp_path, texts) -> bytes:
    return Path(write_corpus("parquet", tmp_path / "made", texts[:50])).read_bytes()


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    """An empty folder that is the current one."""
    folder = tmp_path / "place"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def put(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def require_refused(place: Path, capsys, *words: object, dry_run: bool = True) -> None:
    """Refused as a matter of usage, with a word on why; nothing has changed. With and without
    --overwrite, and by --dry-run."""
    before = everything(place)
    ways = [[], ["--overwrite"], *([["--dry-run"], ["--overwrite", "--dry-run"]] * dry_run)]
    for way in ways:
        code = main([*map(str, words), *way])
        said = capsys.readouterr().err
        assert code == 2, (way, said)
        reasons = ("is an input of this command", "is the input folder", "is inside")
        assert any(reason in said for reason in reasons), said
        assert "hint: choose another" in said
        assert everything(place) == before, way


# `prepare`


@pytest.mark.parametrize("name", ["train-00000.parquet", "val-00000.parquet"])
def test_prepare_into_its_source_folder_when_an_input_has_a_shards_name_then_refused(
    name, place, parquet, capsys
):
    put(place / "rp" / name, parquet)
    words = ("--format", "parquet", "--num-proc", "1")
    require_refused(place, capsys, "prepare", "rp", "-o", "rp", *words)
    require_refused(place, capsys, "prepare", f"rp/{name}", "-o", "rp", *words)
    require_refused(place, capsys, "prepare", "rp/*.parquet", "-o", "rp", *words)


def test_prepare_when_train_bin_is_the_text_then_refused(place, capsys):
    put(place / "data" / "train.bin", b"somebody's only copy")
    words = ("--input-format", "text", "-o", "data", "--num-proc", "1")
    require_refused(place, capsys, "prepare", "data/train.bin", *words)


@pytest.mark.parametrize(
    ("source", "out"),
    [
        ("rp", "{place}/rp"),
        ("{place}/rp", "rp"),
        ("./rp/../rp", "rp/"),
        ("rp", "rp/sub/.."),
        ("link", "rp"),
        ("rp", "link"),
        ("link/train-00000.parquet", "rp"),
        ("file://{place}/rp", "rp"),
    ],
)
def test_prepare_when_folders_are_spelled_differently_then_refused(
    source, out, place, parquet, capsys
):
    put(place / "rp" / "train-00000.parquet", parquet)
    (place / "rp" / "sub").mkdir()
    (place / "link").symlink_to("rp")
    source, out = source.format(place=place), out.format(place=place)
    words = ("--format", "parquet", "--num-proc", "1")
    require_refused(place, capsys, "prepare", source, "-o", out, *words)


@pytest.mark.parametrize("link", [os.link, os.symlink], ids=["hard-link", "link"])
@pytest.mark.parametrize("is_source_the_link", [False, True])
def test_prepare_when_a_link_leads_to_an_input_then_refused(
    link, is_source_the_link, place, parquet, capsys
):
    """The input is somewhere else, and a file of the output folder is the same file."""
    put(place / "in" / "corpus.parquet", parquet)
    (place / "out").mkdir()
    ours = place / "out" / "train-00000.parquet"
    link(place / "in" / "corpus.parquet", ours)
    source = ours if is_source_the_link else place / "in"
    words = ("--format", "parquet", "--num-proc", "1")
    require_refused(place, capsys, "prepare", source, "-o", "out", *words)


@pytest.mark.parametrize("where", ["a subfolder", "the folder above"])
def test_prepare_when_one_of_the_two_is_in_the_other_then_no_input_is_lost(
    where, place, parquet, capsys
):
    """The source inside OUT, in a place where the format writes; OUT inside the source."""
    if where == "a subfolder":
        put(place / "in" / "train" / "chunk-0-0.bin", b"text")
        words = ("in/train/*", "-o", "in", "--format", "litdata", "--input-format", "text")
        require_refused(place, capsys, "prepare", *words, "--num-proc", "1")
        return
    put(place / "in" / "a.parquet", parquet)
    put(place / "in" / "out" / "train-00000.parquet", parquet)  # an input, by the folder above
    words = ("in", "-o", "in/out", "--format", "parquet", "--num-proc", "1")
    require_refused(place, capsys, "prepare", *words)


def test_prepare_when_out_is_apart_within_the_source_then_written_and_inputs_stay(
    place, parquet, capsys
):
    put(place / "in" / "a.parquet", parquet)
    before = everything(place)
    for _ in range(2):
        words = ("in", "-o", "in/out", "--format", "parquet", "--num-proc", "1", "--overwrite")
        assert main(["prepare", *words]) == 0
        assert main(["verify", "in/out", "--full"]) == 0
    assert everything(place).items() >= before.items()


@pytest.mark.parametrize("name", ["tokenmill.json", "tokenmill-quarantine.jsonl"])
def test_prepare_when_an_input_is_called_like_our_own_files_then_refused(name, place, capsys):
    put(place / "data" / name, b'{"text": "a row"}\n')
    words = (f"data/{name}", "-o", "data", "--input-format", "jsonl", "--num-proc", "1")
    require_refused(place, capsys, "prepare", *words)


def test_prepare_when_an_input_is_in_the_work_folder_then_refused(place, capsys):
    put(place / "data" / ".tokenmill" / "a.txt", b"text")
    words = ("data/.tokenmill/a.txt", "-o", "data", "--num-proc", "1")
    require_refused(place, capsys, "prepare", *words)


def test_prepare_when_the_input_is_a_shard_of_the_dataset_that_it_replaces_then_refused(
    place, parquet, capsys
):
    """In another format: its name is not one of the new format's, but the old manifest's."""
    put(place / "a.parquet", parquet)
    words = ("--num-proc", "1", "--no-val")
    assert main(["prepare", "a.parquet", "-o", "data", "--format", "parquet", *words]) == 0
    shard = "data/train-00000.parquet"
    capsys.readouterr()
    options = ("--text-column", "input_ids", "--num-proc", "1")
    require_refused(place, capsys, "prepare", shard, "-o", "data", *options)


def test_partition_when_an_input_has_a_shards_name_then_refused(place, parquet, capsys):
    put(place / "rp" / "train-00000.parquet", parquet)
    words = ("rp", "-o", "rp", "--format", "parquet", "--num-proc", "1", "--partition", "1/2")
    before = everything(place)
    assert main(["prepare", *words]) == 2
    assert "is an input of this command" in capsys.readouterr().err
    assert everything(place) == before


def test_finish_when_an_input_is_in_its_way_then_nothing_is_lost(place, parquet, capsys):
    """What a partition began is finished; an input that got a shard's name since stays."""
    put(place / "in" / "a.parquet", parquet)
    words = ("in", "-o", "out", "--format", "parquet", "--num-proc", "1", "--partition", "1/1")
    assert main(["prepare", *words]) == 0
    os.link(place / "in" / "a.parquet", place / "out" / "train-00000.parquet")
    code = main(["finish", "out"])
    assert code in (2, 6), capsys.readouterr().err
    assert (place / "in" / "a.parquet").read_bytes() == parquet
    assert (place / "out" / "train-00000.parquet").read_bytes() == parquet


# `convert`


@pytest.fixture
def dataset(place, parquet) -> Path:
    put(place / "a.parquet", parquet)
    tokenmill.prepare("a.parquet", "data", num_proc=1, val_fraction=0.2)
    return place / "data"


@pytest.mark.parametrize("format_name", ["nanogpt", "npy", "megatron"])
@pytest.mark.parametrize("out", ["data", "{place}/data", "./data/", "link", "data/../data"])
def test_convert_onto_itself_is_refused(format_name, out, dataset, place, capsys):
    (place / "link").symlink_to("data")
    out = out.format(place=place)
    words = ("convert", "data", out, "--format", format_name)
    require_refused(place, capsys, *words, dry_run=False)


def test_convert_into_the_parent_when_its_files_would_go_then_refused(place, parquet, capsys):
    """litdata's shards are in OUT/train: where a source of that name is."""
    put(place / "a.parquet", parquet)
    tokenmill.prepare("a.parquet", "data", num_proc=1, format="datatrove", val="none")
    shutil.move(place / "data", place / "made")
    shutil.move(place / "made" / "train", place / "out" / "train")
    words = ("convert", "out/train", "out", "--format", "datatrove", "--tokenizer", "gpt2")
    require_refused(place, capsys, *words, dry_run=False)


def test_convert_into_the_parent_with_overwrite_is_refused_and_without_leaves_the_source(
    dataset, place, capsys
):
    os.rename(dataset, place / "x")
    (place / "out").mkdir()
    os.rename(place / "x", place / "out" / "data")
    words = ("convert", "out/data", "out", "--format", "npy")
    before = everything(place)
    assert main([*words, "--overwrite"]) == 2
    assert "out/data is inside out" in capsys.readouterr().err
    assert everything(place) == before
    for _ in range(2):
        assert main(list(words)) == 0
        assert main(["verify", "out"]) == main(["verify", "out/data"]) == 0
    assert everything(place).items() >= before.items()


@pytest.mark.parametrize("link", [os.link, os.symlink], ids=["hard-link", "link"])
def test_convert_when_a_file_of_out_is_the_sources_then_refused(link, dataset, place, capsys):
    (place / "out").mkdir()
    link(dataset / "train.bin", place / "out" / "train.bin")
    require_refused(place, capsys, "convert", "data", "out", "--format", "nanogpt", dry_run=False)


# `demo`

STDLIB = ["a.py", "b.py", "abc/c.py"]


@pytest.fixture
def small_stdlib(tmp_path, monkeypatch) -> None:
    """A standard library that takes no time."""
    for name in STDLIB:
        put(tmp_path / "stdlib" / name, f"print('{name}')\n".encode() * 50)
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"stdlib": str(tmp_path / "stdlib")})


OTHERS = {
    "notes": {"notes.txt": b"mine"},
    "train.bin": {"train.bin": b"mine"},
    "hidden": {".git/config": b"mine"},
    "subfolder": {"runs/1/model.pt": b"mine"},
    "broken-manifest": {"tokenmill.json": b"{}", "train.bin": b"mine"},
}


@pytest.mark.parametrize("others", OTHERS)
def test_demo_when_its_folder_holds_something_else_then_refused(
    others, place, small_stdlib, capsys
):
    for name, data in OTHERS[others].items():
        put(place / "demo-out" / name, data)
    before = everything(place)
    assert main(["demo", "--num-proc", "1"]) == 6
    said = capsys.readouterr().err
    assert "demo-out holds files that no demo wrote" in said and "hint: choose another" in said
    assert everything(place) == before


def test_demo_when_its_folder_holds_a_dataset_of_somebody_then_refused(
    place, parquet, small_stdlib, capsys
):
    put(place / "a.parquet", parquet)
    tokenmill.prepare("a.parquet", "demo-out", num_proc=1)
    before = everything(place)
    assert main(["demo", "--num-proc", "1"]) == 6
    assert everything(place) == before


def test_demo_when_somebodys_run_is_unfinished_there_then_refused(
    place, parquet, small_stdlib, capsys
):
    put(place / "a.parquet", parquet)
    words = ("a.parquet", "-o", "demo-out", "--num-proc", "1", "--partition", "1/1")
    assert main(["prepare", *words]) == 0
    before = everything(place)
    assert main(["demo", "--num-proc", "1"]) == 6
    assert everything(place) == before


def test_demo_when_its_command_is_pasted_then_it_does_the_same(
    place, small_stdlib, tmp_path, capsys
):
    for number in range(150):
        put(tmp_path / "stdlib" / f"m{number}.py", b"print()\n")
    put(tmp_path / "stdlib" / "latin.py", b"# caf\xe9\n")  # one row in 150 is bad
    assert main(["demo", "--num-proc", "1", "-o", "my demo"]) == 0
    [line] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("$ ")]
    made = Manifest.load("my demo")
    assert made.counts.num_quarantined == 1
    shutil.rmtree("my demo")
    assert main([*shlex.split(line)[2:], "--num-proc", "1"]) == 0
    assert Manifest.load("my demo") == made


def test_output_when_it_is_a_link_to_nothing_then_that_is_the_hint(place, capsys):
    put(place / "a.txt", b"one")
    (place / "link").symlink_to("nowhere/at/all")
    assert main(["prepare", "a.txt", "-o", "link", "--num-proc", "1"]) == 4
    assert "what it is a link to, is gone: make it" in capsys.readouterr().err


def test_demo_when_it_was_run_before_then_run_again(place, small_stdlib, tmp_path, capsys):
    (place / "demo-out").mkdir()
    assert main(["demo", "--num-proc", "1"]) == 0
    first = Manifest.load("demo-out")
    assert main(["demo", "--num-proc", "1"]) == 0
    assert Manifest.load("demo-out") == first
    (tmp_path / "stdlib" / "d.py").write_text("a new module")
    assert main(["demo", "--num-proc", "1"]) == 0
    assert Manifest.load("demo-out").num_documents == first.num_documents + 1
    put(place / "demo-out" / "mine.txt", b"mine")
    before = everything(place)
    assert main(["demo", "--num-proc", "1"]) == 6
    assert everything(place) == before
