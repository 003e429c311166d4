"""The lock of a work folder, held by one run or shared by the tasks of one run. The kernel releases
it when the process dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator

from tokenmill.errors import ConflictError
from tokenmill.storage.output_errors import as_output_error


@contextlib.contextmanager
def lock(path: str, is_shared: bool = False) -> Iterator[None]:
    """Hold `path` as this run's lock, or raise ConflictError naming who holds it. `is_shared`:
    together with other tasks, whose files are the same no matter which task writes them; no task
    waits for another.

    Advisory and released by the kernel when the process dies. Correctness does not rest on it
    (flock is a no-op on some network file systems): it turns a confusing waste into a message.
    Correctness rests on deterministic names and bytes: a part or record of one name has the same
    bytes from any writer, and a shard task writes the same bytes to the same place (assemble/).
    """
    fd = _locked_descriptor(path, fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX)
    try:
        if not is_shared:
            with as_output_error("write", path):
                os.ftruncate(fd, 0)
                os.pwrite(fd, _owner(), 0)
        yield
    finally:
        os.close(fd)


@contextlib.contextmanager
def folder_lock(folder: str) -> Iterator[bool]:
    """Wait until no other process holds this lock of the folder itself, which needs no file. False:
    this file system has no locks, or not of folders."""
    fd = None
    try:
        with contextlib.suppress(OSError):
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        is_held = False
        if fd is not None:
            with contextlib.suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_EX)
                is_held = True
        yield is_held
    finally:
        if fd is not None:
            os.close(fd)


def require_lock(path: str) -> None:
    """Raise ConflictError unless this process was the last to take the lock."""
    try:
        with open(path, "rb") as file:
            owner = file.read(200)
    except FileNotFoundError:
        folder = os.path.dirname(os.path.dirname(path))
        raise ConflictError(
            f"{folder} was removed or renamed while the run was writing to it",
            hint="put it back, then run the same command again: it resumes",
        ) from None
    if owner != _owner():
        raise _held_by(owner, path)


# Process ids repeat, on other machines and after a restart.
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
        f"tasks with --partition are running in {os.path.dirname(os.path.dirname(path))}",
        hint="wait until they have finished, then run the same command again",
    )


def _is_shared(fd: int) -> bool:
    """Whether the lock's holders share it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _locked_descriptor(path: str, how: int) -> int:
    while True:
        with as_output_error("create", path):
            fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(fd, how | fcntl.LOCK_NB)
        except BlockingIOError:
            is_shared, owner = _is_shared(fd), os.pread(fd, 200, 0)
            os.close(fd)
            raise (_shared_by_tasks(path) if is_shared else _held_by(owner, path)) from None
        except OSError:
            return fd  # this file system has no locks
        # The previous holder may have removed the file between our open and our lock.
        with contextlib.suppress(FileNotFoundError):
            if os.stat(path).st_ino == os.fstat(fd).st_ino:
                return fd
        os.close(fd)
