"""Durable changes to files and folders, for paths that are known to be local.

Output is never written through mmap, because a full disk would raise SIGBUS instead of ENOSPC. A
failed fsync is never repeated on the same descriptor: the kernel may have dropped the dirty pages,
so the whole file is written again.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
from collections.abc import Iterable
from typing import Any

from tokenmill.storage import heartbeat
from tokenmill.storage.output_errors import as_output_error

TEMPORARY_SUFFIX = ".tmp"
_WRITE_BYTES = 256 << 10
# What `link` raises on a file system without hard links.
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


def unique_suffix() -> str:
    """The end of a temporary name. Two attempts at one file (a retry while the first still runs)
    must not share a name."""
    return f".{os.urandom(8).hex()}{TEMPORARY_SUFFIX}"


def write_hashed(fd: int, data: Any, hash_: Any) -> int:
    """Write and hash a buffer in small steps, so that each step is still in the CPU cache when the
    kernel copies it."""
    view = memoryview(data).cast("B")
    for start in range(0, len(view), _WRITE_BYTES):
        piece = view[start : start + _WRITE_BYTES]
        hash_.update(piece)
        write_all(fd, piece)
        heartbeat.beat()
    return len(view)


def write_all(fd: int, view: memoryview) -> None:
    while view:
        view = view[os.write(fd, view) :]


def write_sparse_file(path: str, num_bytes: int, pieces: dict[int, bytes]) -> None:
    """Write a file of `num_bytes` that holds only these pieces (offset -> bytes). Not durable."""
    with as_output_error("write", path):
        fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            os.ftruncate(fd, num_bytes)
            for offset, data in pieces.items():
                os.pwrite(fd, data, offset)
        finally:
            os.close(fd)


def rename(source: str, target: str, is_durable: bool = True) -> None:
    """Rename a file that is already synced, and make the new name durable."""
    with as_output_error("rename to", target):
        os.replace(source, target)
    if is_durable:
        fsync_folder(os.path.dirname(target))


def rename_if_there(source: str, target: str, is_durable: bool = True) -> bool:
    """Like `rename`; False if `source` does not exist."""
    with as_output_error("rename to", target):
        try:
            os.replace(source, target)
        except FileNotFoundError:
            if os.path.exists(source):  # so the target's folder is missing
                raise
            return False
    if is_durable:
        fsync_folder(os.path.dirname(target))
    return True


def link_new(source: str, target: str) -> bool:
    """Durably give a synced file a second name; False, without a change, if that name exists. On a
    file system without links the file is renamed, and the last rename wins."""
    with as_output_error("create", target):
        try:
            os.link(source, target)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            rename(source, target)
            return True
    fsync_folder(os.path.dirname(target))
    return True


def sync_files(folder: str, names: Iterable[str]) -> None:
    """Make files durable that were written without a sync."""
    for name in names:
        path = os.path.join(folder, name)
        with as_output_error("sync", path):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
    fsync_folder(folder)


def fsync_folder(path: str) -> None:
    with as_output_error("sync", path):
        fd = os.open(path or ".", os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        except OSError as error:
            # Some network file systems refuse fsync on a folder; they order renames on their own.
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                raise
        finally:
            os.close(fd)


def make_folder(path: str) -> None:
    """Durably make a folder and the missing ones above it."""
    changed = [os.path.dirname(os.path.abspath(path))]  # folders that get a new entry
    while not os.path.lexists(changed[-1]):
        changed.append(os.path.dirname(changed[-1]))
    with as_output_error("create the folder", path):
        os.makedirs(path, exist_ok=True)
    for folder in changed:
        fsync_folder(folder)


def make_folder_of(path: str) -> None:
    """Make the folder of a file, if it is missing. One that is there costs no sync, which may have
    to wait for all that is being written to the disk."""
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        make_folder(folder)


def make_private_folder(path: str, hint: str) -> None:
    """Make a folder for this user alone; it is for a while, so nothing is synced."""
    with as_output_error("create a folder in", os.path.dirname(path), hint):
        os.mkdir(path, 0o700)


def remove(path: str) -> None:
    with as_output_error("remove", path), contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def remove_for_good(path: str) -> None:
    """Durably remove a file, if it exists."""
    if os.path.exists(path):
        remove(path)
    fsync_folder(os.path.dirname(path))


def remove_temporaries(folder: str) -> None:
    """Remove half-written files of crashed attempts from a folder that only we write to."""
    for name in names_in(folder):
        if name.endswith(TEMPORARY_SUFFIX):
            remove(os.path.join(folder, name))


def remove_temporaries_of(path: str) -> None:
    """Like `remove_temporaries`, for one file in a folder that others use too."""
    folder, final = os.path.split(path)
    for name in names_in(folder):
        if re.fullmatch(rf"{re.escape(final)}\.[0-9a-f]{{16}}{re.escape(TEMPORARY_SUFFIX)}", name):
            remove(os.path.join(folder, name))


def remove_folder(path: str) -> None:
    with as_output_error("remove", path), contextlib.suppress(FileNotFoundError):
        shutil.rmtree(path)


def remove_empty_folder(path: str) -> None:
    with contextlib.suppress(OSError):
        os.rmdir(path)


def names_in(folder: str) -> list[str]:
    with as_output_error("list", folder):
        return sorted(os.listdir(folder))


def folders_in(folder: str) -> list[str]:
    """The paths of the folder's subfolders, without links."""
    with as_output_error("list", folder), os.scandir(folder) as entries:
        return sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
