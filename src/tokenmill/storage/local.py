"""The local disk as a store: files in folders, by system calls."""

from __future__ import annotations

import contextlib
import functools
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from tokenmill.errors import IntegrityError
from tokenmill.storage import disk, heartbeat
from tokenmill.storage.lock import lock
from tokenmill.storage.new_file import NewFile
from tokenmill.storage.output_errors import as_output_error

LATE_SECONDS = 2.0

Range = tuple[int, int]
RangeRead = Callable[[Sequence[Range]], list[bytes]]


@dataclass(frozen=True, slots=True)
class Stat:
    """What a store says about a file. `tag` changes whenever the content changes."""

    num_bytes: int
    tag: str
    sha256: str | None = None  # of the content, if the store keeps it with the file
    modified_ns: int = 0  # by the clock of the store; 0: unknown
    is_file: bool = True  # not a folder, nor a pipe, whose reader would wait forever


class LocalStore:
    """See Store for what the methods promise."""

    is_local = True

    def read(self, path: str, has_checksum: bool = False) -> bytes:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # half the cost of `open`, a million times
        try:
            pieces: list[bytes] = []
            while piece := os.read(fd, 1 << 20 if pieces else 1 << 12):
                pieces.append(piece)
            return b"".join(pieces)
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def range_reader(self, path: str) -> Iterator[RangeRead]:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield lambda ranges: [_read_at(fd, path, *one) for one in ranges]
        finally:
            os.close(fd)

    def stat(self, path: str) -> Stat | None:
        try:
            found = os.stat(path)
        except (OSError, ValueError):  # whatever needs it will say why it cannot be reached
            return None
        return stat_of(found)

    def size(self, path: str) -> int | None:
        try:
            return os.stat(path).st_size
        except (FileNotFoundError, NotADirectoryError):
            return None

    def names(self, folder: str) -> list[str]:
        if not os.path.isdir(folder):
            return []
        names = []
        with as_output_error("list", folder), os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                names.append(entry.name)
            elif not entry.name.startswith("."):
                names += [f"{entry.name}/{below}" for below in disk.names_in(entry.path)]
        return names

    def put(self, source: str, path: str, is_durable: bool = True) -> None:
        disk.rename(source, path, is_durable)

    def write(self, path: str, data: bytes, is_durable: bool = True) -> None:
        with self._beside(path, is_durable) as file:
            file.write(data)
            file.commit()

    def create(self, path: str, data: bytes) -> bool:
        with self._beside(path) as file:
            file.write(data)
            file.finish()
            return disk.link_new(file.path, path)

    def swap(self, path: str, old: bytes | None, data: bytes) -> bool:
        if old is None:
            return self.create(path, data)
        if self.read(path) != old:
            return False
        self.write(path, data)
        return True

    def _beside(self, path: str, is_durable: bool = True) -> NewFile:
        place = functools.partial(self.put, path=path, is_durable=is_durable)
        return NewFile(path + disk.unique_suffix(), place, is_synced=is_durable)

    make_folder = staticmethod(disk.make_folder)

    def sweep(self, folder: str, names: Iterable[str]) -> None:
        for name in names:
            path = os.path.join(folder, name)
            for one in (path, *disk.folders_in(path)):
                disk.remove_temporaries(one)

    def remove(self, *paths: str) -> None:
        for path in paths:
            disk.remove(path)

    remove_folder = staticmethod(disk.remove_folder)
    lock = staticmethod(lock)


def stat_of(found: os.stat_result) -> Stat:
    tag = f"{found.st_size}-{found.st_mtime_ns}-{found.st_ino}"
    is_file = stat.S_ISREG(found.st_mode)
    return Stat(found.st_size, tag, modified_ns=found.st_mtime_ns, is_file=is_file)


def wait_for(path: str) -> None:
    deadline = time.monotonic() + LATE_SECONDS
    while not os.path.exists(path) and time.monotonic() < deadline:
        time.sleep(0.05)


def _read_at(fd: int, path: str, start: int, stop: int) -> bytes:
    data = os.pread(fd, stop - start, start)
    if len(data) != stop - start:
        raise IntegrityError(f"{path} ends before byte {stop:,}")
    heartbeat.beat()
    return data
