"""What every store promises (storage/store.py), tested on each: a disk, S3, and memory:// as any
other that fsspec knows."""

from __future__ import annotations

import hashlib
import os
import threading
import time
import uuid

import pytest

from tokenmill.errors import DamagedWorkError, IntegrityError, OutputError
from tokenmill.storage import disk_space, files, retry
from tokenmill.storage.checked_json import checksummed
from tokenmill.storage.file_piece import FilePiece
from tokenmill.storage.hashing import Proof
from tokenmill.storage.local import LocalStore
from tokenmill.storage.objects.store import ObjectStore
from tokenmill.storage.store import store_of


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(retry, "LONGEST_PAUSE_SECONDS", 0.02)


@pytest.fixture(params=["disk", "s3", "memory"])
def folder(request, tmp_path) -> str:
    """An empty work folder: below a plan's prefix, as where the product writes."""
    if request.param == "disk":
        (tmp_path / "out").mkdir()
        return str(tmp_path / "out")
    place = uuid.uuid4().hex
    if request.param == "s3":
        place = request.getfixturevalue("bucket")
    return f"{request.param}://{place}/out/.tokenmill/0123456789abcdef"


def put(folder: str, *names: str) -> None:
    for name in names:
        path = f"{folder}/{name}"
        files.make_folder(os.path.dirname(path))
        files.write_file(path, name.encode())


# Which store


@pytest.mark.parametrize(
    "path", ["", "a", "/a/b", "s3", "s3:/a", "/a/s3://b", "./s3://b", "hf://datasets/a/b", "://a"]
)
def test_store_of_when_no_url_of_a_bucket_then_the_disk(path):
    assert isinstance(store_of(path), LocalStore)


@pytest.mark.parametrize("path", ["s3://a", "gs://a/b", "memory://a", "abfs://a@b/c", "http://a/b"])
def test_store_of_when_url_then_the_bucket(path):
    assert isinstance(store_of(path), ObjectStore)


# Reading and writing


@pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)) * 5000])
def test_read_when_written_then_the_same_bytes(folder, data):
    path = f"{folder}/a"
    assert not files.exists(path) and files.size(path) is None
    for is_durable in (True, False):
        files.write_file(path, b"before")
        files.write_file(path, data, is_durable)
        assert files.read_file(path) == data
    assert files.exists(path) and files.size(path) == len(data)
    assert files.names_below(folder) == ["a"]


def test_read_when_there_is_none_then_file_not_found(folder):
    with pytest.raises(FileNotFoundError):
        files.read_file(f"{folder}/a")
    with pytest.raises(FileNotFoundError), files.range_reader(f"{folder}/a") as read:
        read([(0, 1)])


def test_create_when_it_exists_then_it_stays(folder):
    path = f"{folder}/plan.json"
    assert files.create_file(path, b"first")
    assert not files.create_file(path, b"second")
    assert files.read_file(path) == b"first" and files.entries(folder) == ["plan.json"]


def test_swap_when_the_content_is_another_then_it_stays(folder):
    path = f"{folder}/run.json"
    assert files.swap_file(path, None, b"first")
    assert not files.swap_file(path, None, b"second")
    assert not files.swap_file(path, b"other", b"second")
    assert files.read_file(path) == b"first"
    assert files.swap_file(path, b"first", b"second")
    assert not files.swap_file(path, b"first", b"third")
    assert files.read_file(path) == b"second" and files.entries(folder) == ["run.json"]


def test_create_when_many_do_at_once_then_one_is_told_so(folder):
    path, created = f"{folder}/plan.json", []

    def create(number: int) -> None:
        if files.create_file(path, str(number).encode()):
            created.append(str(number).encode())

    threads = [threading.Thread(target=create, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert created == [files.read_file(path)]


def test_record_when_written_twice_then_it_is_there(folder):
    for _ in range(2):
        files.write_record(f"{folder}/0.json", b"done")
    assert files.read_file(f"{folder}/0.json") == b"done"


def test_record_when_it_says_something_else_then_the_last_or_damaged(folder):
    """Who writes a record on a disk holds the lock; in a bucket somebody else may have."""
    path = f"{folder}/0.json"
    files.write_record(path, b"one")
    if isinstance(store_of(folder), LocalStore):
        files.write_record(path, b"two")
        assert files.read_file(path) == b"two"
        return
    with pytest.raises(DamagedWorkError, match="exists with different contents"):
        files.write_record(path, b"two")
    assert files.read_file(path) == b"one"


def test_new_file_when_not_committed_then_nothing_is_there(folder):
    with files.new_file(folder, "a") as file:
        file.write(b"some")
        assert not files.exists(f"{folder}/a")
    assert not files.entries(folder) and not os.path.exists(file.path)


def test_new_file_when_committed_then_all_of_it_is_there(folder):
    with files.new_file(folder, "a") as file:
        for piece in (b"some", bytearray(b" and"), memoryview(b" more")):
            file.write(piece)
        file.commit()
    assert files.read_file(f"{folder}/a") == b"some and more"
    assert file.num_bytes == 13 and file.digest == hashlib.sha256(b"some and more").hexdigest()
    assert files.entries(folder) == ["a"] and not os.path.exists(file.path)


def test_read_files_when_some_are_not_there_then_none(folder):
    contents = [checksummed(b'{"number": %d}' % i) if i % 3 else None for i in range(100)]
    for number, data in enumerate(contents):
        if data is not None:
            files.write_file(f"{folder}/{number}", data, is_durable=False)
    assert list(files.read_files([f"{folder}/{i}" for i in range(100)])) == contents
    assert list(files.read_files([])) == []


def test_read_files_when_one_has_no_checksum_then_as_it_is(folder):
    files.write_file(f"{folder}/a", b'{"torn": ')
    assert list(files.read_files([f"{folder}/a"])) == [b'{"torn": ']


# Ranges


def test_ranges_when_read_then_their_bytes(folder):
    data = os.urandom(3000)
    files.write_file(f"{folder}/a", data)
    ranges = [(5, 10), (0, 3000), (7, 7), (2999, 3000), (1, 2)]
    assert files.read_ranges(f"{folder}/a", ranges) == [data[a:b] for a, b in ranges]
    with files.range_reader(f"{folder}/a") as read:
        assert read([(0, 2)]) + read([(2, 4)]) == [data[:2], data[2:4]]


@pytest.mark.parametrize("wanted", [(0, 11), (10, 11), (20, 30)])
def test_ranges_when_the_file_is_shorter_then_integrity_error(folder, wanted):
    files.write_file(f"{folder}/a", b"0123456789")
    with pytest.raises(IntegrityError, match="ends before byte"):
        files.read_ranges(f"{folder}/a", [wanted])
    with pytest.raises(IntegrityError, match="ends before byte"):
        list(files.read_in_order(f"{folder}/a", *wanted, 4))


def test_read_in_order_when_of_any_block_size_then_all_bytes_in_blocks_of_whole_numbers(folder):
    data = os.urandom(1000)
    files.write_file(f"{folder}/a", data)
    for start, stop in ((0, 1000), (16, 984), (40, 40)):
        blocks = list(files.read_in_order(f"{folder}/a", start, stop, 64))
        assert b"".join(blocks) == data[start:stop]
        assert all(len(block) % 8 == 0 for block in blocks)


def test_ranged_file_when_there_is_one_then_its_bytes_and_else_the_path_is_a_file(folder):
    data = os.urandom(5000)
    files.write_file(f"{folder}/a", data)
    ranged = store_of(folder).ranged_file(f"{folder}/a", len(data), "tag:1")
    if ranged is None:
        with open(f"{folder}/a", "rb") as file:
            assert file.read() == data
        return
    ranged.expect([(100, 200)])
    assert ranged.seek(100) == 100 and ranged.read(100) == data[100:200]


# Looking


def test_sizes_when_of_many_then_in_order_and_none_where_there_is_none(folder):
    put(folder, "a", "long", "sub/b")
    paths = [f"{folder}/{name}" for name in ("long", "gone", "a", "sub/b")]
    assert files.sizes(paths) == [4, None, 1, 5] and files.sizes([]) == []


def test_modified_when_written_then_about_now_and_not_later(folder):
    before = time.time_ns()
    put(folder, "a")
    a_minute, a_second = 60 * 10**9, 10**9  # buckets say whole seconds
    found = files.modified_ns(f"{folder}/a")
    assert before - a_minute < found < time.time_ns() + a_second


def test_names_when_in_subfolders_then_one_below_and_no_hidden_folder(folder):
    assert files.names_below(folder) == [] == files.entries(folder)
    put(folder, "b", "a", "sub/b", "sub/a", ".hidden/a")
    assert files.names_below(folder) == ["a", "b", "sub/a", "sub/b"]
    assert {"a", "b"} <= set(files.entries(folder))


def test_irregular_when_a_file_or_nothing_then_no(folder):
    put(folder, "a")
    assert not files.is_irregular(f"{folder}/a") and not files.is_irregular(f"{folder}/b")


def test_wait_for_when_it_is_there_then_at_once(folder):
    put(folder, "a")
    files.wait_for(f"{folder}/a")


def test_mapped_when_some_fail_then_in_order_up_to_there(folder):
    put(folder, *(str(number) for number in range(50)))
    paths = [f"{folder}/{number}" for number in range(51)]
    found = store_of(folder).mapped(files.read_file, paths)
    assert [next(found) for _ in range(50)] == [str(number).encode() for number in range(50)]
    with pytest.raises(FileNotFoundError):
        next(found)


# Removing


def test_remove_when_not_there_then_nothing_happens(folder):
    put(folder, "a", "b", "c", "sub/d")
    files.remove(f"{folder}/a")
    files.remove(f"{folder}/a")
    files.remove_all([f"{folder}/b", f"{folder}/never there"])
    files.remove_all([])
    assert files.names_below(folder) == ["c", "sub/d"]
    files.remove_empty_folder(f"{folder}/sub")
    assert files.exists(f"{folder}/sub/d")


def test_remove_folder_when_another_begins_like_it_then_that_stays(folder):
    put(folder, "sub/a", "sub/below/b", "sub2/c")
    for _ in range(2):
        files.remove_folder(f"{folder}/sub")
    assert files.names_below(folder) == ["sub2/c"]


def test_work_folders_when_made_twice_then_what_is_whole_stays(folder):
    for _ in range(2):
        files.make_work_folders(folder, ("shards", "tasks"))
        files.write_file(f"{folder}/tasks/0.json", b"done")
    assert files.names_below(folder) == ["tasks/0.json"]


# Shards: made in a staging folder, delivered, and looked at again


def delivered(folder: str) -> dict[str, Proof]:
    """Two pieces of a file and a file beside it, in the folder; what proves each."""
    store, data = store_of(folder), os.urandom(300)
    with store.staging(folder) as staging:
        piece = FilePiece(os.path.join(staging, "0.bin"), 0)
        piece.write(data[:100])
        piece.write(data[100:])
        with files.new_file(staging, "0.idx") as file:
            file.write(b"beside")
            file.commit()
        kept = store.deliver(staging, folder, ("0.bin", "0.idx"), piece)
        piece.close()
    assert files.read_file(f"{folder}/0.bin") == data
    assert files.read_file(f"{folder}/0.idx") == b"beside"
    return {
        "0.bin": Proof(0, 300, piece.digests, True, kept.get("0.bin")),
        "0.idx": Proof(0, 6, (file.digest,), False, kept.get("0.idx")),
    }


def test_delivered_when_nothing_happened_then_intact(folder):
    for name, proof in delivered(folder).items():
        assert store_of(folder).is_intact(f"{folder}/{name}", proof)


def test_delivered_when_gone_then_not_intact(folder):
    for name, proof in delivered(folder).items():
        files.remove(f"{folder}/{name}")
        assert not store_of(folder).is_intact(f"{folder}/{name}", proof)


def test_delivered_when_replaced_then_not_intact_if_the_store_can_tell(folder):
    for name, proof in delivered(folder).items():
        files.write_file(f"{folder}/{name}", bytes(proof.num_bytes))
        is_told = not folder.startswith("memory://")  # which keeps no sha256
        assert store_of(folder).is_intact(f"{folder}/{name}", proof) is not is_told


def test_pieces_when_a_store_has_them_then_they_are_written_in_any_order(folder):
    if not store_of(folder).has_pieces:
        return
    for start, data in ((3, b"def"), (0, b"abc")):
        piece = FilePiece(f"{folder}/0.bin", start)
        piece.write(data)
        piece.sync()
        piece.close()
    assert files.read_file(f"{folder}/0.bin") == b"abcdef"


# Places


def test_disk_when_asked_for_then_there_is_one(folder, tmp_path):
    store = store_of(folder)
    assert disk_space.free_bytes(f"{folder}/not/there/yet") > 0
    assert os.path.isdir(store.disk_folder(folder))
    assert disk_space.on_one_disk(folder, str(tmp_path)) == store.takes_disk_space
    assert store_of(store.absolute(folder)) is store and store.absolute(folder) == folder


# Errors


def test_write_when_the_store_refuses_then_output_error_with_path_and_hint(folder):
    refused = f"{folder}/a/b"
    if isinstance(store_of(folder), LocalStore):
        put(folder, "a")  # a file, where a folder would have to be
    elif folder.startswith("s3://"):
        refused = "s3://there-is-no-such-bucket/a"
    else:
        pytest.skip("memory:// refuses nothing")
    for do in (
        lambda: files.write_file(refused, b"x"),
        lambda: files.create_file(refused, b"x"),
        lambda: files.write_record(refused, b"x"),
    ):
        with pytest.raises(OutputError, match=r"cannot (create|write) ") as raised:
            do()
        assert refused in raised.value.message and raised.value.hint
