"""A store holds files by their paths: a disk (local.py) or a bucket (objects/).

    store_of(path)      the store of a path or URL; cheap enough to call for every file

What a bucket cannot do is one capability, `is_local`. The other functions here are made of the
store's methods.

Storage errors are OutputError (exit 4), which names the path and what to do. A missing file is
FileNotFoundError, or what the method says. A disk error while reading (EACCES, EIO) stays an
OSError: the caller knows whether the file is an input.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from tokenmill.errors import DamagedWorkError
from tokenmill.storage import disk, local
from tokenmill.storage.address import is_url
from tokenmill.storage.checked_json import is_intact
from tokenmill.storage.local import LocalStore, Range, RangeRead, Stat
from tokenmill.storage.new_file import NewFile
from tokenmill.storage.objects import bucket, in_parallel
from tokenmill.storage.scratch import scratch_folder

REQUEST_BYTES = 32 << 20  # per request of an ordered read

Item = TypeVar("Item")
Result = TypeVar("Result")


class Store(Protocol):
    # Whether files have paths on this machine: a call takes microseconds, and not a request's
    # milliseconds; files take up its space, can be renamed, and written in pieces by several
    # processes; and a process can lock others out (except on some network file systems, which do
    # not say so).
    is_local: bool

    # Reading

    def read(self, path: str, has_checksum: bool = False) -> bytes:
        """The content of a file that fits into memory. FileNotFoundError if there is no such file.
        One that begins with its checksum (checked_json.py) takes one request."""

    def range_reader(self, path: str) -> AbstractContextManager[RangeRead]:
        """A function that reads bytes `start` to `stop`; it can be called many times.
        IntegrityError if the file is shorter."""

    def stat(self, path: str) -> Stat | None:
        """What is known of a file; on a disk, also of a folder or anything else. None if there is
        nothing of that name, or it cannot be reached."""

    def size(self, path: str) -> int | None:
        """The size of a regular file; None if there is no such file."""

    def names(self, folder: str) -> list[str]:
        """Files in a folder and in its direct subfolders, relative to the folder. Skips hidden
        folders and follows no link. Empty if there is no folder."""

    # Writing. A file appears under its name whole or not at all, and survives a crash. A file
    # written with `is_durable=False` may be missing or garbled after power loss: for files whose
    # checksum is kept elsewhere and that can be made again.

    def put(self, source: str, path: str, is_durable: bool = True) -> str | None:
        """Move a local file, which is already synced if it must be durable, to its place. Returns
        the sha256 that the store keeps of it, if it keeps any."""

    def write(self, path: str, data: bytes, is_durable: bool = True) -> None:
        """Create or replace a small file."""

    def create(self, path: str, data: bytes) -> bool:
        """Create a small file unless it exists; whether this call created it. Of all processes on
        all machines, exactly one gets True. Only on a file system without hard links may several
        get True, and the last one wins."""

    def swap(self, path: str, old: bytes | None, data: bytes) -> bool:
        """Replace a small file whose content is `old`, or create it if that is None; whether its
        content is `data` afterwards. On a disk the caller holds a lock; in a bucket, of all
        processes that would replace `old`, one gets True."""

    # Folders, and removal

    def make_folder(self, path: str) -> None:
        """Does nothing in a store without folders."""

    def sweep(self, folder: str, names: Iterable[str]) -> None:
        """Remove what killed attempts left in a folder that only one run writes to: temporary
        files in the subfolders of these names; in a bucket, unfinished uploads."""

    def remove(self, *paths: str) -> None:
        """Remove files; missing ones are ignored. In a bucket, all are of the same."""

    def remove_folder(self, path: str) -> None:
        """Remove a folder and its content, if it exists."""

    def lock(self, path: str, is_shared: bool = False) -> AbstractContextManager[None]:
        """Hold `path` as this run's lock, or raise ConflictError naming who holds it; released by
        the system when its holder dies."""


_LOCAL: Store = LocalStore()


def store_of(path: str) -> Store:
    return bucket(path) if "://" in path and is_url(path) else _LOCAL


def exists(path: str) -> bool:
    return store_of(path).stat(path) is not None


def read_ranges(path: str, ranges: Sequence[Range]) -> list[bytes]:
    with store_of(path).range_reader(path) as read:
        return read(ranges)


def new_file(path: str, hasher: Any = None, is_durable: bool = True) -> NewFile:
    """A file of any size, to be written and then committed."""
    store = store_of(path)
    place = functools.partial(store.put, path=path, is_durable=is_durable)
    if store.is_local:
        return NewFile(path + disk.unique_suffix(), place, hasher, is_durable)
    with contextlib.ExitStack() as stack:
        scratch = os.path.join(stack.enter_context(scratch_folder()), os.path.basename(path))
        return NewFile(scratch, place, hasher, is_synced=False, closing=stack.pop_all())


def staging_folder(folder: str) -> AbstractContextManager[str]:
    """A local folder in which to make files for `folder`; `folder` itself, if it is local."""
    return contextlib.nullcontext(folder) if store_of(folder).is_local else scratch_folder()


def save_record(path: str, data: bytes, is_durable: bool = True) -> None:
    """Create a small file that records finished work. On a disk, who writes it holds the lock. In a
    bucket another run may have written it: then its contents must be identical, unless they are
    empty, because the work is to be done again, or damaged."""
    store = store_of(path)
    if store.is_local:
        store.write(path, data, is_durable)
    elif not store.create(path, data) and (found := store.read(path)) != data:
        is_to_be_replaced = not found or (is_intact(data) and not is_intact(found))
        if not is_to_be_replaced or not store.swap(path, found, data):
            raise DamagedWorkError(
                f"{path} exists with different contents: the same work had two results",
                hint="was it edited, or do the machines differ? Start again: --overwrite",
            )


def read_in_order(path: str, start: int, stop: int, block_bytes: int) -> Iterator[bytes]:
    """Bytes `start` to `stop`, in blocks of `block_bytes`, or in multiples of 1 MiB where a read
    costs a request. IntegrityError if the file is shorter."""
    store = store_of(path)
    step = block_bytes if store.is_local else REQUEST_BYTES
    with store.range_reader(path) as read:
        for at in range(start, stop, step):
            yield from read([(at, min(at + step, stop))])


def wait_for(path: str) -> None:
    """Wait briefly for a file that another machine has made and this one may not see yet: clients
    of a network file system lag. The caller opens the file to find out whether it is there."""
    if store_of(path).is_local:
        local.wait_for(path)


def each(store: Store, work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """The results of `work` for each item, in order. `work` uses the store; calls run in parallel
    where that helps."""
    return map(work, items) if store.is_local else in_parallel(work, items)
