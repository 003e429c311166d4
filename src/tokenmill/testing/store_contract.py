"""What every store promises (storage/store.py), as tests to inherit."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator

from tokenmill.errors import DamagedWorkError, IntegrityError, OutputError
from tokenmill.storage.checked_json import checksummed
from tokenmill.storage.store import (
    Store,
    each,
    exists,
    new_file,
    read_in_order,
    read_ranges,
    save_record,
    staging_folder,
    store_of,
    wait_for,
)


class StoreContract:
    """Before each test, set `folder` to an empty folder of the store, below a run's prefix, as
    where the product writes, and `refused` to a path that it refuses to write to, if any."""

    folder: str
    refused: str | None = None

    @property
    def store(self) -> Store:
        return store_of(self.folder)

    # Reading and writing

    def test_read_when_written_then_the_same_bytes(self) -> None:
        store, folder = self.store, self.folder
        path = f"{folder}/a"
        assert not exists(path) and store.stat(path) is None and store.size(path) is None
        for data in (b"", b"x", bytes(range(256)) * 5000):
            for is_durable in (True, False):
                store.write(path, b"before")
                store.write(path, data, is_durable)
                assert store.read(path) == store.read(path, has_checksum=True) == data
            found = store.stat(path)
            assert found is not None and found.is_file and found.num_bytes == len(data)
            assert exists(path) and store.size(path) == len(data)
        assert store.names(folder) == ["a"]

    def test_read_when_there_is_none_then_file_not_found(self) -> None:
        store, folder = self.store, self.folder
        for has_checksum in (False, True):
            with _refused(FileNotFoundError):
                store.read(f"{folder}/a", has_checksum)
        with _refused(FileNotFoundError):
            read_ranges(f"{folder}/a", [(0, 1)])

    def test_read_when_it_has_a_checksum_or_should_have_then_as_it_is(self) -> None:
        store, folder = self.store, self.folder
        for data in (checksummed(b'{"number": 1}'), b'{"torn": '):
            store.write(f"{folder}/a", data)
            assert store.read(f"{folder}/a", has_checksum=True) == data

    def test_create_when_it_exists_then_it_stays(self) -> None:
        store, folder = self.store, self.folder
        path = f"{folder}/plan.json"
        assert store.create(path, b"first")
        assert not store.create(path, b"second")
        assert store.read(path) == b"first" and store.names(folder) == ["plan.json"]

    def test_create_when_many_do_at_once_then_one_is_told_so(self) -> None:
        store, folder = self.store, self.folder
        path, created = f"{folder}/plan.json", list[bytes]()

        def create(number: int) -> None:
            if store.create(path, str(number).encode()):
                created.append(str(number).encode())

        _at_once(create)
        assert created == [store.read(path)]

    def test_swap_when_the_content_is_another_then_it_stays(self) -> None:
        store, folder = self.store, self.folder
        path = f"{folder}/run.json"
        assert store.swap(path, None, b"first")
        assert not store.swap(path, None, b"second")
        assert not store.swap(path, b"other", b"second")
        assert store.read(path) == b"first"
        assert store.swap(path, b"first", b"second")
        assert not store.swap(path, b"first", b"third")
        assert store.read(path) == b"second" and store.names(folder) == ["run.json"]

    def test_swap_when_many_try_at_once_then_one_succeeds(self) -> None:
        """On a disk, a lock keeps the others out; memory:// knows no conditions."""
        store, folder = self.store, self.folder
        if store.is_local or folder.startswith("memory://"):
            return
        path, done = f"{folder}/run.json", list[bytes]()
        store.create(path, b"before")

        def swap(number: int) -> None:
            if store.swap(path, b"before", str(number).encode()):
                done.append(str(number).encode())

        _at_once(swap)
        assert done == [store.read(path)]

    def test_put_when_done_then_the_file_has_moved(self) -> None:
        store, folder = self.store, self.folder
        data = os.urandom(1000)
        with staging_folder(folder) as staging:
            with open(f"{staging}/made", "wb") as file:
                file.write(data)
            sha256 = store.put(f"{staging}/made", f"{folder}/a")
            assert store.read(f"{folder}/a") == data and not os.path.exists(f"{staging}/made")
        found = store.stat(f"{folder}/a")
        assert found is not None and found.sha256 == sha256
        assert sha256 in (None, hashlib.sha256(data).hexdigest())
        store.write(f"{folder}/a", bytes(len(data)))
        replaced = store.stat(f"{folder}/a")
        assert replaced is not None and replaced.sha256 is None and replaced.tag != found.tag

    def test_record_when_written_twice_then_it_is_there(self) -> None:
        store, folder = self.store, self.folder
        for _ in range(2):
            save_record(f"{folder}/0.json", b"done")
        assert store.read(f"{folder}/0.json") == b"done"

    def test_record_when_it_says_something_else_then_the_last_or_damaged(self) -> None:
        """Who writes a record on a disk holds the lock; in a bucket somebody else may have."""
        store, folder = self.store, self.folder
        path = f"{folder}/0.json"
        save_record(path, b"one")
        if store.is_local:
            save_record(path, b"two")
            assert store.read(path) == b"two"
            return
        with _refused(DamagedWorkError, "exists with different contents"):
            save_record(path, b"two")
        assert store.read(path) == b"one"
        store.write(path, b"")
        save_record(path, b"two")
        assert store.read(path) == b"two"

    def test_new_file_when_not_committed_then_nothing_is_there(self) -> None:
        store, folder = self.store, self.folder
        with new_file(f"{folder}/a") as file:
            file.write(b"some")
            assert not exists(f"{folder}/a")
        assert not store.names(folder) and not os.path.exists(file.path)

    def test_new_file_when_committed_then_all_of_it_is_there(self) -> None:
        store, folder = self.store, self.folder
        with new_file(f"{folder}/a") as file:
            for piece in (b"some", bytearray(b" and"), memoryview(b" more")):
                file.write(piece)
            file.commit()
        assert store.read(f"{folder}/a") == b"some and more"
        digest = hashlib.sha256(b"some and more").hexdigest()
        assert (file.num_bytes, file.digest) == (13, digest)
        assert store.names(folder) == ["a"] and not os.path.exists(file.path)

    # Ranges

    def test_ranges_when_read_then_their_bytes(self) -> None:
        store, folder = self.store, self.folder
        data = os.urandom(3000)
        store.write(f"{folder}/a", data)
        ranges = [(5, 10), (0, 3000), (7, 7), (2999, 3000), (1, 2)]
        assert read_ranges(f"{folder}/a", ranges) == [data[a:b] for a, b in ranges]
        with store.range_reader(f"{folder}/a") as read:
            assert read([(0, 2)]) + read([(2, 4)]) == [data[:2], data[2:4]]

    def test_ranges_when_the_file_is_shorter_then_integrity_error(self) -> None:
        store, folder = self.store, self.folder
        store.write(f"{folder}/a", b"0123456789")
        for wanted in ((0, 11), (10, 11), (20, 30)):
            with _refused(IntegrityError, "ends before byte"):
                read_ranges(f"{folder}/a", [wanted])
            with _refused(IntegrityError, "ends before byte"):
                list(read_in_order(f"{folder}/a", *wanted, 4))

    def test_read_in_order_when_of_any_block_size_then_blocks_of_whole_numbers(
        self,
    ) -> None:
        store, folder = self.store, self.folder
        data = os.urandom(1000)
        store.write(f"{folder}/a", data)
        for start, stop in ((0, 1000), (16, 984), (40, 40)):
            blocks = list(read_in_order(f"{folder}/a", start, stop, 64))
            assert b"".join(blocks) == data[start:stop]
            assert all(len(block) % 8 == 0 for block in blocks)

    # Looking

    def test_stat_when_written_then_it_was_modified_about_now_and_not_later(self) -> None:
        store, folder = self.store, self.folder
        before = time.time_ns()
        store.write(f"{folder}/a", b"x")
        a_minute, a_second = 60 * 10**9, 10**9  # buckets say whole seconds
        found = store.stat(f"{folder}/a")
        assert found is not None
        assert before - a_minute < found.modified_ns < time.time_ns() + a_second

    def test_names_when_in_subfolders_then_one_below_and_no_hidden_folder(self) -> None:
        store, folder = self.store, self.folder
        assert store.names(folder) == []
        _write(store, folder, "b", "a", "sub/b", "sub/a", ".hidden/a")
        assert store.names(folder) == ["a", "b", "sub/a", "sub/b"]

    def test_wait_for_when_it_is_there_then_at_once(self) -> None:
        store, folder = self.store, self.folder
        store.write(f"{folder}/a", b"x")
        wait_for(f"{folder}/a")

    def test_each_when_some_fail_then_in_order_up_to_there(self) -> None:
        store, folder = self.store, self.folder
        _write(store, folder, *(str(number) for number in range(50)))
        found = each(store, store.read, [f"{folder}/{number}" for number in range(51)])
        assert [next(found) for _ in range(50)] == [str(number).encode() for number in range(50)]
        with _refused(FileNotFoundError):
            next(found)

    # Removing

    def test_remove_when_not_there_then_nothing_happens(self) -> None:
        store, folder = self.store, self.folder
        _write(store, folder, "a", "b", "c", "sub/d")
        for _ in range(2):
            store.remove(f"{folder}/a")
        store.remove(f"{folder}/b", f"{folder}/never there")
        store.remove()
        assert store.names(folder) == ["c", "sub/d"]

    def test_remove_folder_when_another_begins_like_it_then_that_stays(self) -> None:
        store, folder = self.store, self.folder
        _write(store, folder, "sub/a", "sub/below/b", "sub2/c")
        for _ in range(2):
            store.remove_folder(f"{folder}/sub")
        assert store.names(folder) == ["sub2/c"]

    def test_sweep_when_repeated_then_what_is_whole_stays(self) -> None:
        store, folder = self.store, self.folder
        for _ in range(2):
            store.make_folder(f"{folder}/tasks")
            store.sweep(folder, ["tasks"])
            store.write(f"{folder}/tasks/0.json", b"done")
        assert store.names(folder) == ["tasks/0.json"]

    # Errors

    def test_write_when_the_store_refuses_then_output_error_with_path_and_hint(self) -> None:
        if (path := self.refused) is None:
            return
        for do in (store_of(path).write, store_of(path).create, save_record):
            with _refused(OutputError, path) as errors:
                do(path, b"x")
            [error] = errors
            assert isinstance(error, OutputError) and error.hint
            assert error.message.startswith(("cannot create ", "cannot write "))


def _write(store: Store, folder: str, *names: str) -> None:
    for name in names:
        path = f"{folder}/{name}"
        store.make_folder(os.path.dirname(path))
        store.write(path, name.encode())


@contextlib.contextmanager
def _refused(kind: type[Exception], words: str = "") -> Iterator[list[Exception]]:
    """Assert that an error of this kind is raised and has these words."""
    raised: list[Exception] = []
    try:
        yield raised
    except kind as error:
        raised.append(error)
    assert raised and words in str(raised[0]), f"no {kind.__name__} with {words!r}: {raised}"


def _at_once(work: Callable[[int], None]) -> None:
    """Eight calls of `work`, each with a number."""
    threads = [threading.Thread(target=work, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
