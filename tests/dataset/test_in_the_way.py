"""What stands in the way of a dataset, or is taken away while it is made: said before anything is
touched, and the dataset that was there stays whole."""

from __future__ import annotations

import importlib
import json
import os
import shutil
from pathlib import Path

import pytest

import tokenmill
from corpora import made_texts, write_corpus
from tokenmill.cli import main
from tokenmill.dataset import publication
from tokenmill.dataset.dataset import open_dataset
from tokenmill.dataset.verify import verify
from tokenmill.errors import ConflictError, IntegrityError

converting = importlib.import_module("tokenmill.dataset.convert")

PUBLISH = "tokenmill.run.completion.publish"


@pytest.fixture
def source(tmp_path) -> str:
    return write_corpus("jsonl", tmp_path / "corpus", made_texts(40))


@pytest.fixture
def out(source, tmp_path) -> Path:
    """A finished dataset."""
    folder = tmp_path / "out"
    tokenmill.prepare(source, folder, num_proc=1)
    return folder


def files(folder: Path) -> dict[str, bytes]:
    found = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {str(path.relative_to(folder)): data for path, data in found.items()}


def run(*words: object) -> int:
    return main([*map(str, words), "--num-proc", "1"])


@pytest.mark.parametrize(
    ("name", "is_folder", "format_"),
    [
        ("train", False, "mds"),
        ("val", False, "litdata"),
        ("tokenmill.json", True, "nanogpt"),
        ("train.bin", True, "nanogpt"),
        ("train-00000.parquet", True, "parquet"),
    ],
)
@pytest.mark.parametrize("has_old", [False, True])
def test_prepare_when_something_stands_in_its_place_then_refused_before_any_work(
    name, is_folder, format_, has_old, source, tmp_path, capsys
):
    out = tmp_path / "out"
    out.mkdir()
    if has_old:
        tokenmill.prepare(source, out, num_proc=1, format="megatron")
        (out / name).unlink(missing_ok=True)
    (out / name).mkdir() if is_folder else (out / name).write_text("notes")
    before = files(out)
    for more in ([], ["--overwrite"]):
        code = run("prepare", source, "-o", out, "--format", format_, *more)
        said = capsys.readouterr().err
        assert code in (5, 6), said
        assert files(out) == before
    assert name in said and "the dataset needs that name for something else" in said


def test_prepare_when_its_folder_is_taken_at_the_end_then_the_old_dataset_is_whole(
    source, out, monkeypatch, capsys
):
    publish = publication.publish

    def blocked(*arguments: object) -> None:
        (out / "train").write_text("notes")
        publish(*arguments)

    before = files(out)
    monkeypatch.setattr(PUBLISH, blocked)
    assert run("prepare", source, "-o", out, "--format", "mds", "--overwrite") == 6
    assert "the dataset needs that name for something else" in capsys.readouterr().err
    (out / "train").unlink()
    assert verify(out).is_whole
    assert before.items() <= files(out).items()


@pytest.mark.parametrize("damage", ["cut", "removed"])
@pytest.mark.parametrize("when", ["before the journal", "after it"])
def test_overwrite_when_a_staged_shard_is_damaged_then_the_old_dataset_is_whole(
    damage, when, source, out, monkeypatch, capsys
):
    def damaged(folder: Path) -> None:
        [shard] = folder.glob(".tokenmill/*/shards/*.bin")
        shard.unlink() if damage == "removed" else os.truncate(shard, 10)

    if when == "before the journal":
        publish = publication.publish
        monkeypatch.setattr(
            PUBLISH,
            lambda *arguments: (damaged(out), publish(*arguments)),
        )
    else:
        complete = publication._complete
        monkeypatch.setattr(
            publication,
            "_complete",
            lambda *arguments, **named: (damaged(out), complete(*arguments, **named)),
        )
    before = files(out)
    assert run("prepare", source, "-o", out, "--format", "megatron", "--overwrite") == 5
    assert "is missing or has changed since it was written" in capsys.readouterr().err
    found = files(out)
    assert before.items() <= found.items()
    assert not [name for name in found if name.startswith("text")]
    monkeypatch.undo()
    assert run("prepare", source, "-o", out, "--format", "megatron", "--overwrite") == 0
    assert verify(out).is_whole


def test_prepare_when_the_work_folder_is_a_link_then_refused(source, tmp_path, capsys):
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    out.mkdir()
    elsewhere.mkdir()
    (out / ".tokenmill").symlink_to(elsewhere)
    assert run("prepare", source, "-o", out) == 6
    assert "is a link" in capsys.readouterr().err
    assert not os.listdir(elsewhere)


def test_overwrite_when_no_manifest_lists_a_file_then_it_is_named(source, out, capsys):
    (out / "val.bin").write_bytes(b"somebody's")
    manifest = json.loads((out / "tokenmill.json").read_text())
    assert "val.bin" in [file["name"] for file in manifest["files"]]
    assert run("prepare", source, "-o", out, "--seed", "7", "--overwrite") == 0
    assert "no manifest lists" not in capsys.readouterr().err
    (out / "tokenmill.json").unlink()
    assert run("prepare", source, "-o", out, "--seed", "8", "--overwrite") == 0
    said = capsys.readouterr().err
    assert "--overwrite replaces 2 files that no manifest lists: train.bin, val.bin" in said


def test_convert_when_its_source_is_replaced_then_conflict(out, tmp_path, monkeypatch):
    source = open_dataset(str(out))
    look = converting.DatasetTokens.scan

    def gone(self: object, segment: object) -> object:
        (out / "train.bin").unlink(missing_ok=True)
        return look(self, segment)

    monkeypatch.setattr(converting.DatasetTokens, "scan", gone)
    target = converting.Target(out=str(tmp_path / "new"), format="llmc", num_proc=1)
    with pytest.raises(ConflictError, match="changed while it was converted"):
        converting.convert(source, target)


def test_prepare_when_a_conversion_is_under_way_then_it_says_so(
    source, out, tmp_path, monkeypatch, capsys
):
    target = converting.Target(out=str(tmp_path / "new"), format="llmc", num_proc=1)
    with pytest.raises(converting.Stopped):
        converting.convert(open_dataset(str(out)), target, None, lambda num_tokens: True)
    assert run("prepare", source, "-o", target.out, "--format", "llmc") == 6
    assert "tokenmill convert" in capsys.readouterr().err
    assert main(["finish", target.out]) == 6
    assert main(["verify", target.out]) == 5
    assert "the command that makes it" in capsys.readouterr().err
    converting.convert(open_dataset(str(out)), target)
    assert verify(target.out).is_whole


def test_prepare_when_its_folder_is_renamed_then_it_is_not_called_another_run(
    source, tmp_path, monkeypatch
):
    out = tmp_path / "out"
    publish = publication.publish

    def renamed(*arguments: object) -> None:
        shutil.move(out, tmp_path / "elsewhere")
        publish(*arguments)

    monkeypatch.setattr(PUBLISH, renamed)
    with pytest.raises(ConflictError, match="removed or renamed while the run was writing"):
        tokenmill.prepare(source, out, num_proc=1)


@pytest.mark.parametrize("format_", ["npy", "llmc", "nanogpt", "mds"])
def test_prepare_when_there_is_no_text_then_exit_3(format_, tmp_path, capsys):
    (tmp_path / "empty.txt").write_text("")
    code = run("prepare", tmp_path / "empty.txt", "-o", tmp_path / "out", "--format", format_)
    said = capsys.readouterr().err
    assert code == 3 and "nothing to write" in said and "1 rows" not in said
    assert not (tmp_path / "out").exists()


def test_integrity_error_names_what_to_do(out):
    os.truncate(out / "train.bin", 10)
    with pytest.raises((ConflictError, IntegrityError)) as caught:
        tokenmill.prepare(str(out.parent / "corpus"), out, num_proc=1)
    assert "--overwrite" in str(caught.value.hint)
