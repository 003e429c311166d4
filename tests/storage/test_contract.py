"""The contract of a store, on a disk, S3, and memory:// as any other that fsspec knows; on Google
and Azure in test_clouds.py."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from tokenmill.storage import disk_space, retry
from tokenmill.storage.file_piece import FilePiece
from tokenmill.storage.local import LocalStore
from tokenmill.storage.objects.store import ObjectStore
from tokenmill.storage.store import store_of
from tokenmill.testing.store_contract import StoreContract

WORK = "out/.tokenmill/0123456789abcdef"


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(retry, "LONGEST_PAUSE_SECONDS", 0.02)


class TestDisk(StoreContract):
    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        self.folder = str(tmp_path / WORK)
        self.store.make_folder(self.folder)
        (tmp_path / "file").write_bytes(b"where a folder would have to be")
        self.refused = str(tmp_path / "file" / "b")

    def test_pieces_when_written_in_any_order_then_one_file(self):
        store, folder = self.store, self.folder
        for start, data in ((3, b"def"), (0, b"abc")):
            piece = FilePiece(f"{folder}/0.bin", start)
            piece.write(data)
            piece.sync()
            piece.close()
        assert store.read(f"{folder}/0.bin") == b"abcdef"

    def test_sweep_when_temporaries_were_left_then_they_go(self):
        store, folder = self.store, self.folder
        for name in ("tasks/a.tmp", "tasks/below/b.tmp", "tasks/c", "other/d.tmp"):
            store.make_folder(str(Path(folder, name).parent))
            store.write(f"{folder}/{name}", b"x")
        store.sweep(folder, ["tasks"])
        left = [path.name for path in Path(folder).rglob("*") if path.is_file()]
        assert sorted(left) == ["c", "d.tmp"]


class TestS3(StoreContract):
    refused = "s3://there-is-no-such-bucket/a"

    @pytest.fixture(autouse=True)
    def place(self, bucket: str) -> None:
        self.folder = f"s3://{bucket}/{WORK}"


class TestMemory(StoreContract):
    @pytest.fixture(autouse=True)
    def place(self) -> None:
        self.folder = f"memory://{uuid.uuid4().hex}/{WORK}"


@pytest.mark.parametrize(
    "path", ["", "a", "/a/b", "s3", "s3:/a", "/a/s3://b", "./s3://b", "hf://datasets/a/b", "://a"]
)
def test_store_of_when_no_url_of_a_bucket_then_the_disk(path):
    assert isinstance(store_of(path), LocalStore) and store_of(path).is_local


@pytest.mark.parametrize("path", ["s3://a", "gs://a/b", "memory://a", "abfs://a@b/c", "http://a/b"])
def test_store_of_when_url_then_the_bucket(path):
    assert isinstance(store_of(path), ObjectStore) and not store_of(path).is_local


def test_disk_when_asked_for_then_there_is_one(tmp_path):
    for folder in (str(tmp_path / "out"), "memory://out"):
        assert disk_space.free_bytes(f"{folder}/not/there/yet") > 0
        is_here = store_of(folder).is_local
        assert disk_space.on_one_disk(folder, str(tmp_path)) == is_here
