"""The local disk as a store: files in folders, by system calls."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from tokenmill.errors import IntegrityError
from tokenmill.storage import disk, heartbeat
from tokenmill.storage.file_piece import FilePiece
from tokenmill.storage.hashing import Proof, sha256_at
from tokenmill.storage.lock import lock, require_lock, shared_lock
from tokenmill.storage.new_file import NewFile
from tokenmill.storage.output_errors import as_output_error

LATE_SECONDS = 2.0

Item = TypeVar("Item")
Result = TypeVar("Result")
Range = tuple[int, int]


class LocalStore:
    """See Store for what the methods promise."""

    has_quick_calls = True
    has_pieces = True
    has_locks = True  # except on some network file systems, which do not say so
    has_renames = True
    takes_disk_space = True

    def read_file(self, path: str) -> bytes:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # half the cost of `open`, a million times
        try:
            pieces: list[bytes] = []
            while piece := os.read(fd, 1 << 20 if pieces else 1 << 12):
                pieces.append(piece)
            return b"".join(pieces)
        finally:
            os.close(fd)

    def read_files(self, paths: Sequence[str]) -> Iterator[bytes | None]:
        for path in paths:
            try:
                yield self.read_file(path)
            except FileNotFoundError:
                yield None

    def read_in_order(self, path: str, start: int, stop: int, block_bytes: int) -> Iterator[bytes]:
        with self.range_reader(path) as read:
            for at in range(start, stop, block_bytes):
                yield from read([(at, min(at + block_bytes, stop))])

    @contextlib.contextmanager
    def range_reader(self, path: str) -> Iterator[Callable[[Sequence[Range]], list[bytes]]]:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield lambda ranges: [_read_at(fd, path, *one) for one in ranges]
        finally:
            os.close(fd)

    def ranged_file(self, path: str, num_bytes: int, digest: str) -> None:
        return None

    def wait_for(self, path: str) -> None:
        deadline = time.monotonic() + LATE_SECONDS
        while not os.path.exists(path) and time.monotonic() < deadline:
            time.sleep(0.05)

    def size(self, path: str) -> int | None:
        try:
            return os.stat(path).st_size
        except (FileNotFoundError, NotADirectoryError):
            return None

    def modified_ns(self, path: str) -> int:
        return os.stat(path).st_mtime_ns

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_irregular(self, path: str) -> bool:
        return os.path.exists(path) and not os.path.isfile(path)

    def names_below(self, folder: str) -> list[str]:
        names = []
        for name in self.entries(folder):
            path = os.path.join(folder, name)
            if os.path.isdir(path) and not os.path.islink(path):
                if not name.startswith("."):
                    names += [f"{name}/{below}" for below in disk.names_in(path)]
            else:
                names.append(name)
        return names

    def entries(self, folder: str) -> list[str]:
        return disk.names_in(folder) if os.path.isdir(folder) else []

    def kinds_in(self, folder: str) -> dict[str, bool]:
        if not os.path.exists(folder):
            return {}
        if not os.path.isdir(folder):
            raise NotADirectoryError(folder)
        with as_output_error("list", folder), os.scandir(folder) as found:
            return {entry.name: entry.is_dir() for entry in found}

    is_link = staticmethod(os.path.islink)

    def is_whole(self, path: str, num_bytes: int, checksum: str, hasher: Any) -> bool:
        if self.size(path) != num_bytes:
            return False
        with open(path, "rb") as file:
            while block := file.read(1 << 22):
                hasher.update(block)
        return str(hasher.hexdigest()) == checksum

    def is_intact(self, path: str, proof: Proof) -> bool:
        stop = proof.start + proof.num_bytes
        return sha256_at(path, proof.start, stop, proof.in_pieces) == proof.sha256

    def new_file(
        self, folder: str, name: str, hasher: Any = None, is_durable: bool = True
    ) -> NewFile:
        final_path = os.path.join(folder, name)
        place = functools.partial(disk.rename, target=final_path, is_durable=is_durable)
        return NewFile(final_path + disk.unique_suffix(), place, hasher, is_durable)

    def write_file(self, path: str, data: bytes, is_durable: bool = True) -> None:
        with self.new_file(*os.path.split(path), is_durable=is_durable) as file:
            file.write(data)
            file.commit()

    def create_file(self, path: str, data: bytes) -> bool:
        with self.new_file(*os.path.split(path)) as file:
            file.write(data)
            file.finish()
            return disk.link_new(file.path, path)

    def swap_file(self, path: str, old: bytes | None, data: bytes) -> bool:
        if old is None:
            return self.create_file(path, data)
        if self.read_file(path) != old:
            return False
        self.write_file(path, data)
        return True

    write_record = write_file  # a second writer holds the lock and has redone the work
    sync_files = staticmethod(disk.sync_files)

    def staging(self, folder: str) -> contextlib.nullcontext[str]:
        return contextlib.nullcontext(folder)

    def deliver(
        self, staging: str, folder: str, names: Iterable[str], piece: FilePiece | None
    ) -> dict[str, str | None]:
        if piece is not None:  # all other files are committed already
            piece.sync()
        return {}

    make_folder = staticmethod(disk.make_folder)

    def make_work_folders(self, work: str, names: Iterable[str]) -> None:
        for name in names:
            folder = os.path.join(work, name)
            self.make_folder(folder)
            for below in (folder, *disk.folders_in(folder)):
                disk.remove_temporaries(below)

    remove_temporaries = staticmethod(disk.remove_temporaries)
    remove = staticmethod(disk.remove)

    def remove_all(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.remove(path)

    remove_folder = staticmethod(disk.remove_folder)
    remove_empty_folder = staticmethod(disk.remove_empty_folder)

    lock = staticmethod(lock)
    shared_lock = staticmethod(shared_lock)
    require_lock = staticmethod(require_lock)

    def disk_folder(self, path: str) -> str:
        return path

    def absolute(self, path: str) -> str:
        return os.path.abspath(path)

    def canonical(self, path: str) -> str:
        return os.path.realpath(path)

    def file_id(self, path: str) -> object:
        try:
            found = os.stat(path)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def mapped(self, work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        return map(work, items)


def _read_at(fd: int, path: str, start: int, stop: int) -> bytes:
    data = os.pread(fd, stop - start, start)
    if len(data) != stop - start:
        raise IntegrityError(f"{path} ends before byte {stop:,}")
    heartbeat.beat()
    return data
