"""The only code that creates, renames, syncs or removes files.

Every commit here is the same four steps: write a file under a temporary name, fsync it, rename it
to its final name, fsync the folder. A reader therefore sees nothing or the whole, and what it sees
survives power loss. Output never goes through mmap, where a full disk is SIGBUS instead of ENOSPC.
An fsync that failed is never repeated on the same descriptor: the kernel may have dropped the
dirty pages already, so the whole file is written again.

A path may also be a URL: then it is an object, which is there whole or not at all, and there is no
folder to make or sync (objects/). What is to become an object is written to a local file
first.

Errors of the storage itself come out as OutputError (exit 4) naming the path and what to do.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import hashlib
import os
import re
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any

from tokenmill.errors import (
    ConflictError,
    DamagedWorkError,
    IntegrityError,
    OutputError,
    TokenmillError,
)
from tokenmill.storage import heartbeat, objects
from tokenmill.storage.objects import is_url

TEMPORARY_SUFFIX = ".tmp"
# What a file is hashed in: a larger one has several sha256, so that several can compute them.
PIECE_BYTES = 256 << 20
_WRITE_BYTES = 256 << 10
FLUSH_BYTES = 16 << 20  # what is written before the disk is asked to begin
# What a file system without hard links says to `link`.
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)

_ADVICE = {
    errno.ENOSPC: "make room on that disk, then run the same command again: it resumes",
    errno.EDQUOT: "your quota is used up: make room, then run the same command again: it resumes",
    errno.EFBIG: "the file-size limit was hit: raise it (ulimit -f), or lower --shard-tokens",
    errno.EACCES: "choose a folder you may write to with -o, or change its permissions",
    errno.EPERM: "choose a folder you may write to with -o, or change its permissions",
    errno.EROFS: "that file system is read-only: choose another folder with -o",
    errno.EIO: "the disk reported an error: check it (dmesg), then run the same command again",
    errno.ENOTDIR: "a part of that path is a file: choose another folder with -o",
    errno.ENAMETOOLONG: "choose a shorter path with -o or a shorter --name",
    errno.EMFILE: "too many open files: raise the limit (ulimit -n)",
}


@contextlib.contextmanager
def _as_output_error(doing: str, path: str) -> Iterator[None]:
    try:
        yield
    except TokenmillError:
        raise
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        hint = _ADVICE.get(error.errno or 0, "fix the storage, then run the same command again")
        if objects.has_buckets(path):
            hint = "check that the bucket exists, and that you may read, write, list and delete"
        raise OutputError(f"cannot {doing} {path}: {reason}", hint=hint) from error


class NewFile:
    """A file that exists under its final name only once it is whole and durable.

    Use as a context manager; without `commit()` the temporary file is removed on the way out.
    `digest` (sha256, unless another hash is given) and `num_bytes` are of all that was written.
    One that is not `durable` is whole under its final name, but power loss may take it or garble
    it: for what has a checksum elsewhere and can be made again.
    """

    def __init__(self, folder: str, name: str, hasher: Any = None, is_durable: bool = True) -> None:
        self.final_path = os.path.join(folder, name)
        # Two attempts at one file (a retry while the first still lives) must not share a name.
        unique = f"{os.urandom(8).hex()}{TEMPORARY_SUFFIX}"
        self.path = f"{self.final_path}.{unique}"
        mode = 0o666  # the umask decides
        if is_url(folder):
            self.path = os.path.join(tempfile.gettempdir(), f"tokenmill-{name}.{unique}")
            mode = 0o600  # others use that folder, too
        self.num_bytes = 0
        self._hash = hashlib.sha256() if hasher is None else hasher
        self._is_durable = is_durable
        with _as_output_error("create", self.path):
            self._fd = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, mode)

    def write(self, data: Any) -> None:
        """Append anything with the buffer protocol."""
        with _as_output_error("write", self.path):
            self.num_bytes += _write_hashed(self._fd, data, self._hash)

    @property
    def digest(self) -> str:
        return str(self._hash.hexdigest())

    def commit(self) -> None:
        self._finish()
        if is_url(self.final_path):
            put_file(self.path, self.final_path)
        else:
            rename(self.path, self.final_path, self._is_durable)

    def commit_new(self) -> bool:
        """As `commit`, but False, and nothing is changed, if the final name exists already."""
        self._finish()
        try:
            with _as_output_error("create", self.final_path):
                os.link(self.path, self.final_path)
        except OutputError as error:
            cause = error.__cause__
            if isinstance(cause, FileExistsError):
                return False
            if not isinstance(cause, OSError) or cause.errno not in _NO_LINKS:
                raise
            rename(self.path, self.final_path)
            return True
        fsync_folder(os.path.dirname(self.final_path))
        return True

    def _finish(self) -> None:
        fd, self._fd = self._fd, -1
        with _as_output_error("write", self.path):
            try:
                if self._is_durable and not is_url(self.final_path):
                    os.fsync(fd)
            finally:
                os.close(fd)

    def __enter__(self) -> NewFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        with contextlib.suppress(OSError):
            os.unlink(self.path)


class PieceHash:
    """The sha256 of each piece of PIECE_BYTES of what it is given."""

    def __init__(self) -> None:
        self._done: list[str] = []
        self._hash = hashlib.sha256()
        self._room = PIECE_BYTES

    def update(self, data: Any) -> None:
        view = memoryview(data)
        while len(view) > self._room:
            self._hash.update(view[: self._room])
            view = view[self._room :]
            self._done.append(self._hash.hexdigest())
            self._hash, self._room = hashlib.sha256(), PIECE_BYTES
        self._hash.update(view)
        self._room -= len(view)

    @property
    def digests(self) -> tuple[str, ...]:
        """One for a file of up to one piece, however small."""
        return (*self._done, self._hash.hexdigest())


class FilePiece:
    """Known bytes at a known place of a file, in which others may stand before and after.

    Written in order; whoever writes the same bytes there, now or later, does no harm. `digests` are
    of what was written, piece by piece. Nothing is durable before `sync`.
    """

    def __init__(self, path: str, offset: int) -> None:
        self.path = path
        self.num_bytes = 0
        self._num_flushed = 0
        self._hash = PieceHash()
        self._offset = offset
        with _as_output_error("open", path):
            self._fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o666)
            os.lseek(self._fd, offset, os.SEEK_SET)

    def write(self, data: Any) -> None:
        with _as_output_error("write", self.path):
            self.num_bytes += _write_hashed(self._fd, data, self._hash)
        if self.num_bytes - self._num_flushed >= FLUSH_BYTES:
            self._flush()

    def _flush(self) -> None:
        """Have the kernel begin to write to disk what it holds, so that `sync` waits less for it:
        the advice that it is not needed does just that, on Linux."""
        if hasattr(os, "posix_fadvise"):
            at, size = self._offset + self._num_flushed, self.num_bytes - self._num_flushed
            with contextlib.suppress(OSError):
                os.posix_fadvise(self._fd, at, size, os.POSIX_FADV_DONTNEED)
        self._num_flushed = self.num_bytes

    @property
    def digests(self) -> tuple[str, ...]:
        return self._hash.digests

    def sync(self) -> None:
        with _as_output_error("sync", self.path):
            os.fsync(self._fd)
        fsync_folder(os.path.dirname(self.path))

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class PartialFile:
    """A file being fetched, appended to across attempts. What a crash leaves of it is a beginning
    that is trusted only once the whole has the right hash, so it is never synced. `digest` is of
    all that is in it, by a hash that `new_hash` makes."""

    def __init__(self, path: str, new_hash: Callable[[], Any]) -> None:
        self._path = path
        self._new_hash = new_hash
        self._hash = new_hash()
        self.num_bytes = 0
        with _as_output_error("open", path):
            self._fd = self._opened()
            while block := os.pread(self._fd, 1 << 22, self.num_bytes):
                self._hash.update(block)
                self.num_bytes += len(block)

    @property
    def digest(self) -> str:
        return str(self._hash.hexdigest())

    def _opened(self) -> int:
        """The file, held by us alone: another run that fetches the same file is waited for."""
        while True:
            flags = os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC
            fd = os.open(self._path, flags, 0o666)
            with contextlib.suppress(OSError):  # no locks on this file system
                fcntl.flock(fd, fcntl.LOCK_EX)
            with contextlib.suppress(FileNotFoundError):
                if os.stat(self._path).st_ino == os.fstat(fd).st_ino:
                    return fd
            os.close(fd)  # the other run has finished it and given it its name

    def write(self, data: bytes) -> None:
        with _as_output_error("write", self._path):
            _write_all(self._fd, memoryview(data))
        self._hash.update(data)
        self.num_bytes += len(data)

    def restart(self) -> None:
        with _as_output_error("write", self._path):
            os.ftruncate(self._fd, 0)
        self._hash = self._new_hash()
        self.num_bytes = 0

    def __enter__(self) -> PartialFile:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def _write_hashed(fd: int, data: Any, hash_: Any) -> int:
    """Write a buffer and hash it, bit by bit: the kernel copies what is in the cache then."""
    view = memoryview(data).cast("B")
    for start in range(0, len(view), _WRITE_BYTES):
        piece = view[start : start + _WRITE_BYTES]
        hash_.update(piece)
        _write_all(fd, piece)
        heartbeat.beat()
    return len(view)


def _write_all(fd: int, view: memoryview) -> None:
    while view:
        view = view[os.write(fd, view) :]


def write_file(path: str, data: bytes, is_durable: bool = True) -> None:
    """Create or replace a small file, atomically; see NewFile for `is_durable`."""
    if is_url(path):
        with _as_output_error("write", path):
            objects.write(path, data)
        return
    folder, name = os.path.split(path)
    with NewFile(folder, name, is_durable=is_durable) as file:
        file.write(data)
        file.commit()


def create_file(path: str, data: bytes) -> bool:
    """Create a small file, atomically and durably, unless it exists; whether it was created.

    By a second link to a finished file: of any number of processes, on any number of machines,
    exactly one is told that it was the one. Where there are no links, the last one wins instead.
    """
    if is_url(path):
        with _as_output_error("create", path):
            return objects.create(path, data)
    with NewFile(os.path.dirname(path), os.path.basename(path)) as file:
        file.write(data)
        return file.commit_new()


def write_record(path: str, data: bytes, is_durable: bool = True) -> None:
    """Create a small file that says what is done. If it exists, its contents must be identical."""
    if not is_url(path):
        write_file(path, data, is_durable)
        return
    if create_file(path, data) or read_file(path) == data:
        return
    raise DamagedWorkError(
        f"{path} was written before, and says something else: the same work had two results",
        hint="was it edited, or are machines at work that are not alike? Start again: --overwrite",
    )


def put_file(path: str, target: str) -> str | None:
    """Upload a finished local file, which is removed then; the sha256 that the store keeps of it,
    if it keeps one."""
    with _as_output_error("write", target):
        sha256 = objects.upload(target, path)
    remove(path)
    return sha256


def move(source: str, target: str) -> bool:
    """Give a finished file its final name; False if there is no such file any more, as after an
    earlier attempt. An object is copied by its store, and the copy stands for it from then on."""
    if is_url(target):
        try:
            with _reading(target, "copy to"):
                objects.copy(source, target)
        except FileNotFoundError:
            return False
        return True
    try:
        with _as_output_error("rename to", target):
            os.replace(source, target)
    except OutputError as error:
        if isinstance(error.__cause__, FileNotFoundError) and not os.path.exists(source):
            return False
        raise
    fsync_folder(os.path.dirname(target))
    return True


def read_file(path: str) -> bytes:
    """All of a file that fits into memory. FileNotFoundError if there is none."""
    if is_url(path):
        with _reading(path):
            return objects.read(path)
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # half the cost of `open`, a million times
    try:
        pieces: list[bytes] = []
        while piece := os.read(fd, 1 << 20 if pieces else 1 << 12):
            pieces.append(piece)
        return b"".join(pieces)
    finally:
        os.close(fd)


def read_files(paths: Sequence[str]) -> Iterator[bytes | None]:
    """Small sealed files, in order; None where there is none. Many at a time, where that helps."""
    if paths and is_url(paths[0]):
        with _reading(paths[0]):
            yield from objects.read_sealed(paths)
        return
    for path in paths:
        try:
            yield read_file(path)
        except FileNotFoundError:
            yield None


LATE_SECONDS = 2.0


def wait_for(path: str) -> None:
    """Wait a little for a file that another machine has made, if it is not seen here yet: clients
    of a network file system may be late. Whether it is there then is found out by opening it."""
    deadline = time.monotonic() + LATE_SECONDS
    while not os.path.exists(path) and time.monotonic() < deadline:
        time.sleep(0.05)


def read_in_order(path: str, ranges: Iterable[tuple[int, int]]) -> Iterator[bytes]:
    """Bytes `start` to `stop` of each range, one after the other. IntegrityError if the file is
    shorter."""
    if is_url(path):
        for one in ranges:
            yield from read_ranges(path, [one])
        return
    with range_reader(path) as read:
        for one in ranges:
            yield from read([one])


def read_ranges(path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
    """Bytes `start` to `stop` of each range. IntegrityError if the file is shorter."""
    with range_reader(path) as read:
        return read(ranges)


RangeRead = Callable[[Sequence[tuple[int, int]]], list[bytes]]


@contextlib.contextmanager
def range_reader(path: str) -> Iterator[RangeRead]:
    """As `read_ranges`, several times, where what is read says what to read next."""
    if is_url(path):
        with _reading(path):
            yield functools.partial(objects.read_ranges, path)
        return
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield lambda ranges: [_read_at(fd, path, *one) for one in ranges]
    finally:
        os.close(fd)


def _read_at(fd: int, path: str, start: int, stop: int) -> bytes:
    data = os.pread(fd, stop - start, start)
    if len(data) != stop - start:
        raise IntegrityError(f"{path} ends before byte {stop:,}")
    heartbeat.beat()
    return data


@contextlib.contextmanager
def _reading(url: str, doing: str = "read") -> Iterator[None]:
    """An object that is not there is the caller's to explain; all else is the storage's fault."""
    with _as_output_error(doing, url):
        try:
            yield
        except FileNotFoundError as error:
            missing = error
        else:
            return
    raise missing


def write_sparse_file(path: str, num_bytes: int, pieces: dict[int, bytes]) -> None:
    """A file of `num_bytes` with only these pieces (offset -> bytes) in it. Not durable."""
    with _as_output_error("write", path):
        fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            os.ftruncate(fd, num_bytes)
            for offset, data in pieces.items():
                os.pwrite(fd, data, offset)
        finally:
            os.close(fd)


def write_stand_in(path: str, num_bytes: int) -> None:
    """A file of that size, with nothing in it, that may not be opened."""
    write_sparse_file(path, num_bytes, {})
    with _as_output_error("write", path):
        os.chmod(path, 0)


def rename(source: str, target: str, is_durable: bool = True) -> None:
    """Rename a file that is already synced, and make the new name durable."""
    with _as_output_error("rename to", target):
        os.replace(source, target)
    if is_durable:
        fsync_folder(os.path.dirname(target))


def sync_files(folder: str, names: Iterable[str]) -> None:
    """Make files durable that were written without."""
    for name in names:
        path = os.path.join(folder, name)
        with _as_output_error("sync", path):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
    fsync_folder(folder)


def link(points_to: str, path: str) -> None:
    """Make `path` a symbolic link, replacing what is there."""
    temporary = f"{path}.{os.urandom(8).hex()}{TEMPORARY_SUFFIX}"
    with _as_output_error("create", path):
        os.symlink(points_to, temporary)
        os.replace(temporary, path)


def fsync_folder(path: str) -> None:
    with _as_output_error("sync", path):
        fd = os.open(path or ".", os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        except OSError as error:
            # Some network file systems refuse fsync on a folder; they order renames themselves.
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                raise
        finally:
            os.close(fd)


def make_folder(path: str) -> None:
    if is_url(path):
        return
    with _as_output_error("create the folder", path):
        os.makedirs(path, exist_ok=True)
        parent = os.path.dirname(os.path.abspath(path))
    fsync_folder(parent)


def remove(path: str) -> None:
    if is_url(path):
        with _as_output_error("remove", path):
            objects.remove(path)
        return
    with _as_output_error("remove", path), contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def remove_for_good(path: str) -> None:
    """Remove a file that must not come back after a power loss, if it is there."""
    if exists(path):
        remove(path)
    if not is_url(path):
        fsync_folder(os.path.dirname(path))


def remove_all(paths: Sequence[str]) -> None:
    if paths and is_url(paths[0]):
        with _as_output_error("remove", paths[0]):
            objects.remove_all(paths)
        return
    for path in paths:
        remove(path)


def remove_folder(path: str) -> None:
    if is_url(path):
        with _as_output_error("remove", path):
            objects.remove_below(path)
        return
    with _as_output_error("remove", path), contextlib.suppress(FileNotFoundError):
        shutil.rmtree(path)


def remove_empty_folder(path: str) -> None:
    """Remove a folder if nothing is in it; of objects there is none to remove."""
    if is_url(path):
        return
    with contextlib.suppress(OSError):
        os.rmdir(path)


def remove_temporaries(folder: str) -> None:
    """Remove what crashed attempts left behind. Only for the holder of the lock.

    Of an object store: what uploads left that were never completed, below one plan's prefix.
    """
    if is_url(folder):
        with _as_output_error("clean up", folder):
            objects.abort_uploads_below(folder)
        return
    for name in names_in(folder):
        if name.endswith(TEMPORARY_SUFFIX):
            remove(os.path.join(folder, name))


def remove_temporaries_of(path: str) -> None:
    """As `remove_temporaries`, of one file in a folder that is not ours alone."""
    if is_url(path):
        return
    folder, final = os.path.split(path)
    for name in names_in(folder):
        if re.fullmatch(rf"{re.escape(final)}\.[0-9a-f]{{16}}{re.escape(TEMPORARY_SUFFIX)}", name):
            remove(os.path.join(folder, name))


def names_in(folder: str) -> list[str]:
    with _as_output_error("list", folder):
        return sorted(os.listdir(folder))


def folders_in(folder: str) -> list[str]:
    """The paths of its subfolders; no link is followed."""
    paths = [os.path.join(folder, name) for name in names_in(folder)]
    return [path for path in paths if os.path.isdir(path) and not os.path.islink(path)]


def size(path: str) -> int | None:
    """The size of a regular file, or None if there is none."""
    if is_url(path):
        with _as_output_error("look at", path):
            info = objects.look(path)
        return None if info is None else info.num_bytes
    try:
        return os.stat(path).st_size
    except (FileNotFoundError, NotADirectoryError):
        return None


def exists(path: str) -> bool:
    return size(path) is not None if is_url(path) else os.path.exists(path)


def sizes(paths: Sequence[str]) -> list[int | None]:
    """As `size`, of many at a time."""
    return list(
        objects.in_parallel(size, paths) if paths and is_url(paths[0]) else map(size, paths)
    )


def names_below(folder: str) -> list[str]:
    """Files in a folder and in its subfolders, relative to it, sorted; no link is followed."""
    if is_url(folder):
        with _as_output_error("list", folder):
            found = [url for url, _ in objects.find(folder.rstrip("/") + "/")]
        # A client has its own name for the scheme: what is listed of s3a:// is s3://.
        start = len(objects.key_of(folder.rstrip("/") + "/"))
        names = [objects.key_of(url)[start:] for url in found]
        return [name for name in names if not name.startswith(".") and name.count("/") < 2]
    if not os.path.isdir(folder):
        return []
    names = []
    for name in names_in(folder):
        path = os.path.join(folder, name)
        if os.path.isdir(path) and not os.path.islink(path):
            if not name.startswith("."):
                names += [f"{name}/{below}" for below in names_in(path)]
        else:
            names.append(name)
    return names


def sha256_of(file: Any, in_pieces: bool = False) -> str | tuple[str, ...]:
    """Of all that is in an open file, or of each piece of it."""
    hasher: Any = PieceHash() if in_pieces else hashlib.sha256()
    block = memoryview(bytearray(1 << 20))
    while num_bytes := file.readinto(block):
        hasher.update(block[:num_bytes])
    return hasher.digests if in_pieces else str(hasher.hexdigest())


def sha256_at(path: str, start: int, stop: int, in_pieces: bool) -> tuple[str, ...] | None:
    """Of these bytes of a local file, or of each piece of them; None if it does not have them."""
    hasher: Any = PieceHash() if in_pieces else hashlib.sha256()
    try:
        with open(path, "rb", buffering=0) as file:
            while start < stop:
                data = os.pread(file.fileno(), min(_WRITE_BYTES, stop - start), start)
                if not data:
                    return None
                hasher.update(data)
                start += len(data)
                heartbeat.beat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return hasher.digests if in_pieces else (hasher.hexdigest(),)


_SCRATCH_PREFIX = "tokenmill-scratch-"


@contextlib.contextmanager
def scratch_folder() -> Iterator[str]:
    """A local folder for what is on its way elsewhere. What a killed process left of its own is
    removed by the next who asks for one: the kernel has let go of the lock."""
    parent = tempfile.gettempdir()
    for name in names_in(parent):
        if name.startswith(_SCRATCH_PREFIX):
            _remove_if_abandoned(os.path.join(parent, name))
    with _as_output_error("create a folder in", parent):
        folder = tempfile.mkdtemp(prefix=_SCRATCH_PREFIX)
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # no locks on this file system
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield folder
    finally:
        with contextlib.suppress(OutputError):
            remove_folder(folder)
        os.close(fd)


def _remove_if_abandoned(folder: str) -> None:
    with contextlib.suppress(OSError, OutputError):  # another user's, or gone by now
        fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # One that was made just now has no lock yet.
            if time.time() - os.fstat(fd).st_mtime > _SCRATCH_SECONDS:
                remove_folder(folder)
        finally:
            os.close(fd)


_SCRATCH_SECONDS = 60.0


def free_bytes(path: str) -> int:
    """Free space where `path` is or would be; of an object store, for what is on its way there."""
    if is_url(path):
        path = tempfile.gettempdir()
    return shutil.disk_usage(_nearest(path)).free


def on_one_disk(path: str, other: str) -> bool:
    """Whether both are, or would be, on the same file system."""
    if is_url(path) or is_url(other):
        return False
    return os.stat(_nearest(path)).st_dev == os.stat(_nearest(other)).st_dev


def _nearest(path: str) -> str:
    """The path, or the folder nearest to it that is there."""
    path = os.path.abspath(path)
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path


@contextlib.contextmanager
def lock(path: str) -> Iterator[None]:
    """Hold `path` as this run's lock, or raise ConflictError naming who holds it.

    Advisory and released by the kernel when the process dies. Correctness does not rest on it
    (flock is a no-op on some network file systems): it turns a confusing waste into a message.
    What correctness rests on there is that names of parts and records stand for the same bytes
    whoever wrote them, and that a shard task writes the same bytes to the same place (assemble/).
    """
    fd = _locked_descriptor(path, fcntl.LOCK_EX)
    try:
        with _as_output_error("write", path):
            os.ftruncate(fd, 0)
            os.pwrite(fd, _owner(), 0)
        yield
    finally:
        os.close(fd)


@contextlib.contextmanager
def shared_lock(path: str) -> Iterator[None]:
    """Hold `path` together with others who share it, or raise ConflictError naming who has it for
    himself. For those who only add what is the same whoever adds it; nobody waits for anybody."""
    fd = _locked_descriptor(path, fcntl.LOCK_SH)
    try:
        yield
    finally:
        os.close(fd)


def require_lock(path: str) -> None:
    """Raise ConflictError unless we are the last who took this lock."""
    try:
        with open(path, "rb") as file:
            owner = file.read(200)
    except FileNotFoundError:
        folder = os.path.dirname(os.path.dirname(path))
        raise ConflictError(
            f"{folder} was removed or renamed while the run was writing to it",
            hint="if it is in its place again, run the same command again: it resumes",
        ) from None
    if owner != _owner():
        raise _held_by(owner, path)


# Process numbers come again, on other machines and after a restart.
_TOKEN = os.urandom(8).hex()


def _owner() -> bytes:
    return f"process {os.getpid()} on {socket.gethostname()}\n{_TOKEN}".encode()


def _held_by(owner: bytes, path: str) -> ConflictError:
    name = owner.partition(b"\n")[0].decode(errors="replace") or "another process"
    return ConflictError(
        f"another tokenmill run is writing to {os.path.dirname(os.path.dirname(path))}: {name}",
        hint="wait for it, stop it, or choose another folder with -o",
    )


def _shared_by_tasks(path: str) -> ConflictError:
    return ConflictError(
        f"tasks with --partition are at work in {os.path.dirname(os.path.dirname(path))}",
        hint="wait until they have ended, then run the same command again",
    )


def _is_shared(fd: int) -> bool:
    """Whether those who hold the lock share it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _locked_descriptor(path: str, how: int) -> int:
    while True:
        with _as_output_error("create", path):
            fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(fd, how | fcntl.LOCK_NB)
        except BlockingIOError:
            is_shared, owner = _is_shared(fd), os.pread(fd, 200, 0)
            os.close(fd)
            raise (_shared_by_tasks(path) if is_shared else _held_by(owner, path)) from None
        except OSError:
            return fd  # this file system has no locks
        # The holder before us may have removed the file between our open and our lock.
        with contextlib.suppress(FileNotFoundError):
            if os.stat(path).st_ino == os.fstat(fd).st_ino:
                return fd
        os.close(fd)
