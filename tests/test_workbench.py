"""The workbench: whoever takes it over is alone with it, whatever the one before still does."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from tokenmill import storage
from tokenmill.config import Config
from tokenmill.encodings import get_encoding
from tokenmill.errors import IntegrityError, OutputError
from tokenmill.formats import Layout
from tokenmill.settings import layout_of, resolved
from tokenmill.shards import Batch, ShardSet
from tokenmill.workbench import Workbench, last_cursor

DOCUMENTS = [np.arange(1, 2 + number % 7, dtype="<u2") for number in range(600)]


def layout(format_: str) -> Layout:
    encoding = get_encoding("gpt2").identity
    size = None if format_ == "nanogpt" else 500
    config = Config(sources=("a",), out="b", format=format_, shard_tokens=size, val="none")
    return layout_of(resolved(config, encoding), encoding)


def batch(documents: list[np.ndarray]) -> Batch:
    data = np.concatenate(documents).tobytes()
    lengths = np.array([len(document) for document in documents], np.uint32)
    return Batch(
        len(data) // 2, lambda start, stop: [memoryview(data)[2 * start : 2 * stop]], lengths
    )


def shard_files(folder: str) -> dict[str, bytes]:
    found = {path.name: path.read_bytes() for path in Path(folder).iterdir() if path.is_file()}
    found.pop("cursor.json", None)
    return found


@pytest.fixture(params=["nanogpt", "npy", "megatron", "datatrove"])
def shape(request) -> Layout:
    return layout(request.param)


def finished_in_one_go(shape: Layout, folder: Path) -> dict[str, bytes]:
    folder.mkdir()
    shards = ShardSet(str(folder), shape, {})
    shards.put(0, batch(DOCUMENTS))
    shards.finish()
    shards.retire()
    return shard_files(str(folder))


@pytest.mark.parametrize("num_saved", [0, 100, 400])
@pytest.mark.parametrize("num_more", [1, 150])
def test_who_was_overtaken_changes_nothing_of_what_the_next_one_makes(
    num_saved, num_more, shape, tmp_path
):
    """The first saves after some documents, and has put a few more, when the second takes over."""
    expected = finished_in_one_go(shape, tmp_path / "alone")
    work = tmp_path / "work"
    work.mkdir()
    first = Workbench(str(work))
    first_shards = ShardSet(first.folder, shape, {})
    if num_saved:
        first_shards.put(0, batch(DOCUMENTS[:num_saved]))
        first_shards.sync()
        first.save({"next": num_saved, "streams": first_shards.state()})
        first_shards.retire()
    first_shards.put(0, batch(DOCUMENTS[num_saved : num_saved + num_more]))

    second = Workbench(str(work))
    assert second.cursor.get("next", 0) == num_saved
    second_shards = ShardSet(second.folder, shape, second.cursor.get("streams", {}))
    second_shards.put(0, batch(DOCUMENTS[num_saved:]))
    with pytest.raises((OutputError, FileNotFoundError)):
        first_shards.put(0, batch(DOCUMENTS[num_saved + num_more :]))
        first_shards.finish()
    with pytest.raises(OutputError):
        first.save({"next": 600, "streams": {}})
    first_shards.close()
    second_shards.finish()
    second_shards.retire()
    assert shard_files(second.folder) == expected


def test_of_two_that_began_at_the_same_time_the_one_with_a_cursor_is_kept(tmp_path, monkeypatch):
    work = str(tmp_path)
    names = iter([b"\xff" * 4, b"\0" * 4, b"\1" * 4])
    monkeypatch.setattr(os, "urandom", lambda count: next(names)[:count].ljust(count, b"\2"))
    first = Workbench(work)
    real = storage.names_in
    monkeypatch.setattr(storage, "names_in", lambda folder: [])  # it does not see the first one
    second = Workbench(work)
    monkeypatch.setattr(storage, "names_in", real)
    assert sorted(os.listdir(work)) == ["bench-00000000", "bench-ffffffff"]
    monkeypatch.undo()
    first.save({"next": 3})
    assert last_cursor(work) == {"next": 3}
    third = Workbench(work)
    assert third.cursor == {"next": 3}
    assert os.listdir(work) == [os.path.basename(third.folder)]
    with pytest.raises(OutputError):
        second.save({"next": 1})


def test_cursor_that_was_changed_is_an_error_for_who_reads_and_who_takes_over(tmp_path):
    bench = Workbench(str(tmp_path))
    bench.save({"next": 3})
    path = Path(bench.folder, "cursor.json")
    path.write_bytes(path.read_bytes().replace(b"3}", b"4}"))
    for look in (last_cursor, Workbench):
        with pytest.raises(IntegrityError, match=r"cursor\.json is damaged") as caught:
            look(str(tmp_path))
        assert caught.value.hint == "start anew with --overwrite"


def test_growing_file_is_cut_when_it_is_finished_and_not_before(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"saved, and what a crash left")
    file = storage.GrowingFile(str(path), 5)
    assert path.read_bytes() == b"saved, and what a crash left"
    file.write(b" twice")
    file.finish()
    assert path.read_bytes() == b"saved twice"
