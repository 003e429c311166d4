"""A store: where files lie by their paths. A disk (local.py), or a bucket (objects/store.py).

    store_of(path)      the store that a path or URL is of: cheap, it is asked for every file

What differs between a disk and a bucket is done by the store, or is one of its three capabilities.
Callers use it through files.py, which asks `store_of` for them.

Errors of the storage are OutputError (exit 4), which names the path and what to do. Where a file is
not there, that is FileNotFoundError, or what the method says. What a disk refuses while it is only
read (EACCES, EIO) is the OSError that it is: the caller knows whether it concerns an input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from tokenmill.storage.file_piece import FilePiece
from tokenmill.storage.hashing import Proof
from tokenmill.storage.local import LocalStore
from tokenmill.storage.new_file import NewFile
from tokenmill.storage.objects import is_url
from tokenmill.storage.objects.store import ObjectStore
from tokenmill.storage.range_reader import RangedFile

Item = TypeVar("Item")
Result = TypeVar("Result")
RangeRead = Callable[[Sequence[tuple[int, int]]], list[bytes]]


class Store(Protocol):
    # Whether a call takes microseconds, not a request's milliseconds. Where it does not, calls are
    # made ahead, many at a time, or not at all.
    has_quick_calls: bool
    # Whether several processes may write bytes to their places in one file.
    has_pieces: bool
    # Whether a process can keep others out. Where it cannot, two may do the same work at once, and
    # what they write has the same bytes.
    has_locks: bool
    # Whether a file can be given another name. Where it cannot, it is copied, and a request that
    # was sent long ago may arrive late.
    has_renames: bool
    # Whether what is written there takes up space on a disk that this machine sees.
    takes_disk_space: bool

    # Reading

    def read_file(self, path: str) -> bytes:
        """All of a file that fits into memory. FileNotFoundError if there is none."""

    def read_files(self, paths: Sequence[str]) -> Iterator[bytes | None]:
        """Small files with a checksum (checked_json.py), in order; None where there is none."""

    def read_in_order(self, path: str, start: int, stop: int, block_bytes: int) -> Iterator[bytes]:
        """Bytes `start` to `stop`, in blocks of `block_bytes`, or of a multiple of 1 MiB where a
        read costs a request. IntegrityError if the file is shorter."""

    def range_reader(self, path: str) -> AbstractContextManager[RangeRead]:
        """What reads bytes `start` to `stop` of each range it is given, as often as it is asked.
        IntegrityError if the file is shorter."""

    def ranged_file(self, path: str, num_bytes: int, digest: str) -> RangedFile | None:
        """The file, read by ranges that arrive ahead; None where there is no need to: the path can
        be opened and mapped, and the system reads ahead. `digest` tells it from what else may have
        had this name."""

    def wait_for(self, path: str) -> None:
        """Wait a little for a file that another machine has made, if it is not seen here yet:
        clients of a network file system may be late. Whether it is there then is found out by
        opening it."""

    # Looking

    def size(self, path: str) -> int | None:
        """The size of a regular file, or None if there is none."""

    def exists(self, path: str) -> bool:
        """Whether there is a file, or on a disk anything else, of that name."""

    def is_irregular(self, path: str) -> bool:
        """Whether something has this name that is no regular file: a folder, a pipe, whose reader
        would wait for ever."""

    def names_below(self, folder: str) -> list[str]:
        """Files in a folder and in its subfolders, but not below these, relative to it; nothing
        that is in a hidden folder, and no link is followed. None if there is no folder."""

    def entries(self, folder: str) -> list[str]:
        """All that is in a folder, subfolders too where there are such; none if there is none."""

    def kinds_in(self, folder: str) -> dict[str, bool]:
        """All that is in a folder, and whether it is a folder itself; nothing if there is none, or
        where no name can be in the way of another. NotADirectoryError if it is a file."""

    def is_link(self, path: str) -> bool:
        """Whether what has this name is somewhere else."""

    def is_whole(self, path: str, num_bytes: int, checksum: str, hasher: Any) -> bool:
        """Whether a file is as it was written, although it was not made durable; `hasher` is for
        where that can only be known from its bytes."""

    def is_intact(self, path: str, proof: Proof) -> bool:
        """Whether what the proof is of is still there, unchanged."""

    # Writing. A file appears under its name whole, or not at all, and stays there after a crash;
    # one that is not `is_durable` may be gone or garbled after power loss: for what has a checksum
    # elsewhere and can be made again.

    def new_file(
        self, folder: str, name: str, hasher: Any = None, is_durable: bool = True
    ) -> NewFile:
        """A file of any size, to be written and then committed."""

    def write_file(self, path: str, data: bytes, is_durable: bool = True) -> None:
        """Create or replace a small file."""

    def create_file(self, path: str, data: bytes) -> bool:
        """Create a small file unless it exists; whether it was created. Of any number of processes,
        on any number of machines, exactly one is told that it was the one; only on a file system
        without hard links may several be, and the last one wins."""

    def write_record(self, path: str, data: bytes, is_durable: bool = True) -> None:
        """Create a small file that says what is done. If it exists, its contents must be identical:
        DamagedWorkError, where that is looked at."""

    def sync_files(self, folder: str, names: Iterable[str]) -> None:
        """Make files durable that were written without."""

    def move(self, source: str, target: str) -> bool:
        """Give a finished file its final name; False if there is no such file any more, as after an
        earlier attempt. In a bucket it is a copy, which stands for the file from then on."""

    def staging(self, folder: str) -> AbstractContextManager[str]:
        """A local folder in which to make files that will be in `folder`: `folder` itself, if it is
        local."""

    def deliver(
        self, staging: str, folder: str, names: Iterable[str], piece: FilePiece | None
    ) -> dict[str, str | None]:
        """Make what is in `staging` durable, and have it in `folder`. `piece` is what is still open
        of it. Returns the sha256 that the store keeps of each file, if it keeps any."""

    # Folders, and what goes

    def make_folder(self, path: str) -> None:
        """Nothing to do where there are no folders."""

    def make_work_folders(self, work: str, names: Iterable[str]) -> None:
        """Make folders that only the run at hand writes into, and remove what crashed attempts left
        half written there."""

    def remove_temporaries(self, folder: str) -> None:
        """Remove what crashed attempts left in a folder, if they leave anything there."""

    def remove(self, path: str) -> None:
        """Remove a file, if there is one."""

    def remove_all(self, paths: Sequence[str]) -> None:
        """Remove files, as far as they are there."""

    def remove_folder(self, path: str) -> None:
        """Remove a folder and all that is in it, if there is one."""

    def remove_empty_folder(self, path: str) -> None:
        """Remove a folder if nothing is in it."""

    # Locks: released by the system when their holder dies

    def lock(self, path: str) -> AbstractContextManager[None]:
        """Hold `path` as this run's lock, or raise ConflictError naming who holds it."""

    def shared_lock(self, path: str) -> AbstractContextManager[None]:
        """Hold it together with others who share it."""

    def require_lock(self, path: str) -> None:
        """Raise ConflictError unless we are the last who took this lock."""

    # Places

    def disk_folder(self, path: str) -> str:
        """The folder whose disk fills up when `path` is written."""

    def absolute(self, path: str) -> str:
        """The path as it is understood in any working folder."""

    def canonical(self, path: str) -> str:
        """The same for any two names of one folder."""

    def file_id(self, path: str) -> object:
        """The same for any two names of one file; None if there is none."""

    def mapped(self, work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """`work`, which reads or writes in this store, of each item, in order; many at a time where
        that helps."""


_LOCAL: Store = LocalStore()
_OBJECTS: Store = ObjectStore()


def store_of(path: str) -> Store:
    return _OBJECTS if "://" in path and is_url(path) else _LOCAL
