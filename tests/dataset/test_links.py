"""Links in an output folder: nothing behind them is moved, removed or written to. And what else a
command leaves alone that finds its dataset finished."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import pytest

from corpora import made_texts, write_corpus
from tokenmill.cli import main
from tokenmill.dataset import publication

PUBLISH = "tokenmill.run.completion.publish"


def run(*arguments: object) -> int:
    return main([*map(str, arguments), *(["-q"] if arguments[0] == "prepare" else [])])


class Killed(BaseException):
    pass


def killed_before_the_move(monkeypatch, *arguments: object) -> None:
    def die(out: str, is_interrupted: bool) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(publication, "_complete", die)
        with pytest.raises(Killed):
            run(*arguments)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.fixture
def source(tmp_path: Path) -> str:
    return write_corpus("jsonl", tmp_path, made_texts(40))


@pytest.fixture
def other(tmp_path: Path) -> str:
    (tmp_path / "b").mkdir()
    return write_corpus("jsonl", tmp_path / "b", made_texts(60))


def inline(source: str, out: Path, *more: str) -> tuple[object, ...]:
    return ("prepare", source, "-o", out, "--runner", "inline", *more)


@pytest.mark.parametrize("command", ["inspect", "prepare", "verify"])
def test_publish_when_staged_shards_are_a_link_then_its_target_stays(
    command, source, tmp_path, monkeypatch, capsys
):
    out, mine = tmp_path / "out", tmp_path / "mine"
    killed_before_the_move(monkeypatch, *inline(source, out))
    [staged] = out.glob(".tokenmill/*/shards")
    staged.rename(mine)
    staged.symlink_to(mine)
    before = files(mine)
    arguments = inline(source, out) if command == "prepare" else (command, out)
    assert run(*arguments) == 5
    assert "is a link" in capsys.readouterr().err
    assert files(mine) == before


@pytest.mark.parametrize("command", ["inspect", "prepare", "--overwrite"])
def test_work_folder_when_it_is_a_link_then_another_run_is_left_alone(
    command, source, tmp_path, monkeypatch, capsys
):
    out, victim = tmp_path / "out", tmp_path / "victim"
    killed_before_the_move(monkeypatch, *inline(source, victim))
    out.mkdir()
    (out / ".tokenmill").symlink_to(victim / ".tokenmill")
    before = sorted(os.walk(victim))
    more = ["--overwrite"] if command == "--overwrite" else []
    arguments = ("inspect", out) if command == "inspect" else inline(source, out, *more)
    assert run(*arguments) == 6
    assert "is a link" in capsys.readouterr().err
    assert sorted(os.walk(victim)) == before
    assert run(*inline(source, victim)) == 0


def test_finished_dataset_when_the_work_folder_is_a_link_then_nothing_is_put_behind_it(
    source, tmp_path
):
    out, empty = tmp_path / "out", tmp_path / "empty"
    assert run(*inline(source, out)) == 0
    empty.mkdir()
    (out / ".tokenmill").symlink_to(empty)
    assert run(*inline(source, out)) == 0
    assert not list(empty.iterdir())


@pytest.mark.parametrize("again", ["prepare", "finish"])
def test_finished_dataset_when_another_corpus_is_to_replace_it_then_that_work_stays(
    again, source, other, tmp_path, monkeypatch
):
    out = tmp_path / "out"
    assert run(*inline(source, out)) == 0
    with monkeypatch.context() as patched:
        patched.setattr(PUBLISH, lambda *_: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            run(*inline(other, out, "--overwrite"))
    command = inline(source, out) if again == "prepare" else ("finish", out)
    assert run(*command) == (0 if again == "prepare" else 6)
    assert list(out.glob(".tokenmill/*/records/*.json"))


def test_overwrite_when_killed_while_it_was_published_then_it_is_not_made_twice(
    source, other, tmp_path, monkeypatch
):
    out = tmp_path / "out"
    assert run(*inline(other, out)) == 0
    killed_before_the_move(monkeypatch, *inline(source, out, "--overwrite"))
    the_run = importlib.import_module("tokenmill.prepare")
    monkeypatch.setattr(the_run, "_made_dataset", lambda *_: pytest.fail("made again"))
    assert run(*inline(source, out, "--overwrite")) == 0
    assert not (out / ".tokenmill").exists()


def test_convert_when_a_shard_is_missing_then_it_says_so_and_leaves_nothing(
    source, tmp_path, capsys
):
    out, target = tmp_path / "out", tmp_path / "target"
    assert run(*inline(source, out)) == 0
    (out / "train.bin").unlink()
    assert main(["convert", str(out), str(target), "--format", "npy"]) == 5
    assert "tokenmill verify" in capsys.readouterr().err
    assert not target.exists()


def test_convert_into_an_unfinished_prepare_says_whose_it_is(source, tmp_path, monkeypatch, capsys):
    out, target = tmp_path / "out", tmp_path / "target"
    assert run(*inline(source, out)) == 0
    with monkeypatch.context() as patched:
        patched.setattr(PUBLISH, lambda *_: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            run(*inline(source, target))
    assert main(["convert", str(out), str(target), "--format", "npy"]) == 6
    assert "tokenmill prepare" in capsys.readouterr().err


def test_dataset_at_a_file_url_is_the_folder(source, tmp_path):
    out = tmp_path / "out"
    assert run(*inline(source, out)) == 0
    assert main(["verify", f"file://{out}", "-q"]) == 0
