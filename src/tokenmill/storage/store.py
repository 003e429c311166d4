"""A store holds files by their paths: a disk (local.py) or a bucket (objects/store.py).

    store_of(path)      the store of a path or URL; cheap enough to call for every file

The store hides the differences between a disk and a bucket, or names them as a capability. Callers
use it through files.py, which calls `store_of` for them.

Storage errors are OutputError (exit 4), which names the path and what to do. A missing file is
FileNotFoundError, or what the method says. A disk error while reading (EACCES, EIO) stays an
OSError: the caller knows whether the file is an input.
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
    # Whether a call takes microseconds, not a request's milliseconds. Where it takes longer,
    # callers make many calls at a time and ahead of need, or avoid them.
    has_quick_calls: bool
    # Whether several processes can write to one file at different offsets.
    has_pieces: bool
    # Whether a process can lock others out. Where it cannot, two processes may do the same work at
    # once; both write the same bytes.
    has_locks: bool
    # Whether a file can be renamed. Where it cannot, it is copied, and a request that was sent long
    # ago may arrive late.
    has_renames: bool
    # Whether files there take up space on a disk of this machine.
    takes_disk_space: bool

    # Reading

    def read_file(self, path: str) -> bytes:
        """The content of a file that fits into memory. FileNotFoundError if there is no such
        file."""

    def read_files(self, paths: Sequence[str]) -> Iterator[bytes | None]:
        """Small files with a checksum (checked_json.py), in order; None for a missing file."""

    def read_in_order(self, path: str, start: int, stop: int, block_bytes: int) -> Iterator[bytes]:
        """Bytes `start` to `stop`, in blocks of `block_bytes`, or in multiples of 1 MiB where a
        read costs a request. IntegrityError if the file is shorter."""

    def range_reader(self, path: str) -> AbstractContextManager[RangeRead]:
        """A function that reads bytes `start` to `stop`; it can be called many times.
        IntegrityError if the file is shorter."""

    def ranged_file(self, path: str, num_bytes: int, digest: str) -> RangedFile | None:
        """The file, read in prefetched ranges. None where the path can be opened and mapped,
        because the kernel reads ahead. `digest` distinguishes it from other contents of the same
        name."""

    def wait_for(self, path: str) -> None:
        """Wait briefly for a file that another machine has made and this one may not see yet:
        clients of a network file system lag. The caller opens the file to find out whether it is
        there."""

    # Looking

    def size(self, path: str) -> int | None:
        """The size of a regular file; None if there is no such file."""

    def modified_ns(self, path: str) -> int:
        """When a file was last modified, by the clock of its store; 0 if that is unknown."""

    def exists(self, path: str) -> bool:
        """Whether a file has that name; on a disk, also a folder or anything else."""

    def is_irregular(self, path: str) -> bool:
        """Whether the path exists and is not a regular file: a folder, or a pipe, whose reader
        would wait forever."""

    def names_below(self, folder: str) -> list[str]:
        """Files in a folder and in its direct subfolders, relative to the folder. Skips hidden
        folders and follows no link. Empty if there is no folder."""

    def entries(self, folder: str) -> list[str]:
        """All names in a folder, with subfolders on a disk; an empty list if there is no folder."""

    def kinds_in(self, folder: str) -> dict[str, bool]:
        """All names in a folder, and whether each is a folder. Empty if the folder does not exist,
        or in a store where names cannot collide. NotADirectoryError if `folder` is a file."""

    def is_link(self, path: str) -> bool:
        """Whether the path is a symbolic link."""

    def is_whole(self, path: str, num_bytes: int, checksum: str, hasher: Any) -> bool:
        """Whether a file that was not made durable is unchanged. `hasher` is used where only the
        file's bytes can tell."""

    def is_intact(self, path: str, proof: Proof) -> bool:
        """Whether the bytes that the proof describes are still there, unchanged."""

    # Writing. A file appears under its name whole or not at all, and survives a crash. A file
    # written with `is_durable=False` may be missing or garbled after power loss: for files whose
    # checksum is kept elsewhere and that can be made again.

    def new_file(
        self, folder: str, name: str, hasher: Any = None, is_durable: bool = True
    ) -> NewFile:
        """A file of any size, to be written and then committed."""

    def write_file(self, path: str, data: bytes, is_durable: bool = True) -> None:
        """Create or replace a small file."""

    def create_file(self, path: str, data: bytes) -> bool:
        """Create a small file unless it exists; whether this call created it. Of all processes on
        all machines, exactly one gets True. Only on a file system without hard links may several
        get True, and the last one wins."""

    def swap_file(self, path: str, old: bytes | None, data: bytes) -> bool:
        """Replace a small file whose content is `old`, or create it if that is None; whether its
        content is `data` afterwards. On a disk the caller holds a lock; in a bucket, of all
        processes that would replace `old`, one gets True."""

    def write_record(self, path: str, data: bytes, is_durable: bool = True) -> None:
        """Create a small file that records finished work. If it exists, its contents must be
        identical, unless they are empty or damaged; a store that compares them raises
        DamagedWorkError."""

    def sync_files(self, folder: str, names: Iterable[str]) -> None:
        """Make files durable that were written without a sync."""

    def staging(self, folder: str) -> AbstractContextManager[str]:
        """A local folder in which to make files for `folder`; `folder` itself, if it is local."""

    def deliver(
        self, staging: str, folder: str, names: Iterable[str], piece: FilePiece | None
    ) -> dict[str, str | None]:
        """Make the files in `staging` durable in `folder`; `piece` is written but not synced.
        Returns the sha256 that the store keeps of each file, if it keeps any."""

    # Folders, and removal

    def make_folder(self, path: str) -> None:
        """Does nothing in a store without folders."""

    def make_work_folders(self, work: str, names: Iterable[str]) -> None:
        """Make folders that only this run writes to, and remove half-written files of crashed
        attempts."""

    def remove_temporaries(self, folder: str) -> None:
        """Remove temporary files of crashed attempts from a folder."""

    def remove(self, path: str) -> None:
        """Remove a file, if there is one."""

    def remove_all(self, paths: Sequence[str]) -> None:
        """Remove files; missing ones are ignored."""

    def remove_folder(self, path: str) -> None:
        """Remove a folder and its content, if it exists."""

    def remove_empty_folder(self, path: str) -> None:
        """Remove a folder if it is empty."""

    # Locks: released by the system when their holder dies

    def lock(self, path: str) -> AbstractContextManager[None]:
        """Hold `path` as this run's lock, or raise ConflictError naming who holds it."""

    def shared_lock(self, path: str) -> AbstractContextManager[None]:
        """Share the lock with other tasks."""

    def require_lock(self, path: str) -> None:
        """Raise ConflictError unless this process was the last to take the lock."""

    # Places

    def disk_folder(self, path: str) -> str:
        """The folder whose disk fills up when `path` is written."""

    def absolute(self, path: str) -> str:
        """The path, independent of the working directory."""

    def canonical(self, path: str) -> str:
        """A name that is the same for all paths of one folder."""

    def file_id(self, path: str) -> object:
        """A value that is the same for all names of one file; None if there is no such file."""

    def mapped(self, work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """The results of `work` for each item, in order. `work` uses this store; calls run in
        parallel where that helps."""


_LOCAL: Store = LocalStore()
_OBJECTS: Store = ObjectStore()


def store_of(path: str) -> Store:
    return _OBJECTS if "://" in path and is_url(path) else _LOCAL
