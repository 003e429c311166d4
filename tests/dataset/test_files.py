"""What both implementations of `Files` promise, and what a hostile folder cannot do."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from tokenmill.errors import IntegrityError
from tokenmill.formats import Files
from tokenmill.storage.folder_files import FolderFiles
from tokenmill.storage.local import Stat
from tokenmill.storage.object_files import ObjectFiles
from tokenmill.storage.objects.store import ObjectStore

FILES = {
    "train.bin": bytes(range(1, 255)),
    "train/b.bin": b"below",
    "train/a.bin": b"first below",
    "empty": b"",
    "train.idx": b"index",
}


@pytest.fixture(params=["folder", "memory"])
def files(request, tmp_path) -> Files:
    """The same files in a folder, and as objects that are fetched."""
    if request.param == "folder":
        for name, data in FILES.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_bytes(data)
        return FolderFiles(str(tmp_path))
    fsspec = pytest.importorskip("fsspec")
    memory, root = fsspec.filesystem("memory"), f"/{tmp_path.name}"
    for name, data in FILES.items():
        memory.pipe_file(f"{root}/{name}", data)
    request.addfinalizer(lambda: memory.rm(root, recursive=True))
    infos = {name: Stat(len(data), "tag") for name, data in FILES.items()}
    return ObjectFiles(f"memory:/{root}", infos)


def test_names_are_sorted_as_in_a_folder_and_sizes_are_those_of_the_files(files):
    # A folder comes where its name belongs, before files that go on after it.
    assert files.names() == ["empty", "train/a.bin", "train/b.bin", "train.bin", "train.idx"]
    for name, data in FILES.items():
        assert files.has(name) and files.size(name) == len(data)
    assert not files.has("absent") and files.size("absent") is None
    assert files.sizes([*FILES, "absent"]) == [*map(len, FILES.values()), None]
    assert len({files.stamp(name) for name in FILES}) > 1
    assert files.path_of("train.bin") == f"{files.label}/train.bin"


def test_every_way_of_reading_gives_the_bytes(files):
    for name, data in FILES.items():
        with files.open(name) as file:
            file.seek(2)
            assert file.read(3) == data[2:5]
        with files.held(name), files.in_order(name) as file:
            assert file.read(4) == data[:4] and file.read() == data[4:]
    array = files.array("train.bin", np.dtype("<u2"), 2, 100)
    expected = np.frombuffer(FILES["train.bin"], "<u2", 100, 2)
    assert array[10:20].tolist() == expected[10:20].tolist()
    assert np.asarray(array).tolist() == expected.tolist()


def test_what_is_missing_is_named(files):
    for read in (files.open, files.in_order, lambda name: files.array(name, np.dtype("u1"), 0, 1)):
        with pytest.raises((IntegrityError, FileNotFoundError)) as caught:
            np.asarray(read("absent"))
        assert files.path_of("absent") in str(caught.value)


@pytest.fixture
def hostile(tmp_path) -> FolderFiles:
    folder = tmp_path / "folder"
    (folder / "below").mkdir(parents=True)
    (folder / "plain").write_bytes(b"plain")
    (tmp_path / "secret").write_bytes(b"secret")
    (folder / "inner").symlink_to("plain")
    (folder / "outer").symlink_to(tmp_path / "secret")
    (folder / "dangling").symlink_to(tmp_path / "nothing")
    (folder / "elsewhere").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    return FolderFiles(str(folder))


def readers(files: Files):
    def array(name: str) -> object:
        return files.array(name, np.dtype("u1"), 0, 1)

    return (files.open, files.in_order, array, files.local_path)


@pytest.mark.parametrize("name", ["outer", "dangling", "elsewhere/secret", "../secret"])
def test_folder_when_a_name_leads_out_of_it_then_nothing_is_opened(name, hostile, monkeypatch):
    opened, real = [], os.open
    monkeypatch.setattr(os, "open", lambda path, *r: opened.append(path) or real(path, *r))
    for read in (*readers(hostile), hostile.size):
        with pytest.raises(IntegrityError, match="leads out of the folder") as caught:
            read(name)
        assert caught.value.message.startswith(hostile.path_of(name))
    assert not opened


@pytest.mark.parametrize("name", ["pipe", "below", "elsewhere"])
def test_folder_when_it_is_not_a_regular_file_then_refused_without_waiting(name, hostile):
    assert hostile.has(name) and hostile.size(name) is None
    for read in readers(hostile):
        with pytest.raises(IntegrityError):
            read(name)


def test_folder_when_a_link_stays_inside_or_the_folder_is_a_link_then_read(hostile, tmp_path):
    (tmp_path / "alias").symlink_to(hostile.label)
    for files in (hostile, FolderFiles(str(tmp_path / "alias"))):
        assert files.size("inner") == 5
        assert Path(str(files.local_path("inner"))).read_bytes() == b"plain"
        with files.open("inner") as file:
            assert file.read() == b"plain"


def test_objects_when_several_are_held_then_no_more_than_fit(monkeypatch):
    from tokenmill.storage import object_files

    asked = []
    monkeypatch.setattr(object_files, "MAX_HELD_BYTES", 10)
    monkeypatch.setattr(
        ObjectStore, "fetch", lambda self, url, r: asked.append(url) or [b"x" * 6] * len(r)
    )
    files = ObjectFiles("memory://here", {name: Stat(6, "") for name in "ab"})
    with files.held("a"), files.held("b"):
        assert asked == ["memory://here/a"]
    with files.held("b"):
        assert asked == ["memory://here/a", "memory://here/b"]


def test_objects_when_read_in_order_from_the_middle_on_then_nothing_before_it_is_fetched(
    monkeypatch,
):
    """As `verify` reads the pieces of a large shard."""
    asked: list[tuple[int, int]] = []

    def fetch(store: ObjectStore, url: str, ranges: list[tuple[int, int]]) -> list[bytes]:
        asked.extend(ranges)
        return [bytes(stop - start) for start, stop in ranges]

    monkeypatch.setattr(ObjectStore, "fetch", fetch)
    size, start = 400 << 20, 256 << 20
    with ObjectFiles("memory://here", {"large": Stat(size, "")}).in_order("large") as file:
        file.seek(start)
        assert len(file.read(10 << 20)) == 10 << 20
    assert all(stop - first <= 4 << 20 for first, stop in asked)
    assert min(first for first, _ in asked) >= start - (4 << 20)
    assert max(stop for _, stop in asked) <= start + (52 << 20)
