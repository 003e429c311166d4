"""A disk that fails on command: stands in for `os` and `shutil` inside tokenmill.storage.

Five modules there are the only code that changes files, so replacing their `os` puts every change
under our hand. Each change is an operation with a number; a fault is what happens at one of them.

    Crash       the process is gone: nothing reaches the disk from then on, clean-up included
    Failure     the operation raises an errno, once or for good, without or after its effect
    Short       a write takes only part of its data

`PowerLoss` (power.py) goes further and takes back what was not synced.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from tokenmill.storage import disk as disk_module
from tokenmill.storage import file_piece, lock, new_file

CHANGING_MODULES: tuple[Any, ...] = (disk_module, file_piece, lock, new_file)

# What changes the disk. Reads, stat, listings and locks are not operations.
CHANGES = (
    *("open", "write", "pwrite", "fsync", "ftruncate", "replace", "unlink", "rmdir"),
    *("link", "makedirs", "symlink", "rmtree"),
)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Gone(BaseException):
    """The process ended here. A BaseException: nothing may handle it."""


@dataclass(frozen=True)
class Crash:
    at: int
    after: bool = False  # whether the operation itself still happened


@dataclass(frozen=True)
class Failure:
    at: int
    errno: int
    for_good: bool = False
    after: bool = False  # the operation happened, and is reported as failed


@dataclass(frozen=True)
class Short:
    at: int


Fault = Crash | Failure | Short | None


class FaultyOs:
    """`os` and `shutil` in one, with a fault."""

    def __init__(self, fault: Fault = None) -> None:
        self.fault = fault
        self.operations: list[str] = []  # what was done, for people: "rename 0000.part"
        self.is_gone = False

    def __getattr__(self, name: str) -> Any:
        real = getattr(shutil if name in ("rmtree", "disk_usage") else os, name)
        if name not in CHANGES:
            return real

        def operation(*arguments: Any, **options: Any) -> Any:
            if name == "open" and not arguments[1] & _WRITING:
                return real(*arguments, **options)
            return self._do(name, real, arguments, options)

        return operation

    def _do(self, name: str, real: Callable[..., Any], arguments: Any, options: Any) -> Any:
        if self.is_gone:
            raise Gone
        self.operations.append(f"{name} {_shown(arguments[0])}")
        number, fault = len(self.operations), self.fault
        if isinstance(fault, Failure):
            hits = number == fault.at or (fault.for_good and number > fault.at)
            if hits:
                if fault.after and name in ("replace", "fsync", "unlink"):
                    real(*arguments, **options)
                raise OSError(fault.errno, os.strerror(fault.errno))
        if isinstance(fault, Crash) and number == fault.at:
            if fault.after:
                with suppress(OSError):
                    self._apply(name, real, arguments, options)
            self.is_gone = True
            raise Gone
        if isinstance(fault, Short) and number >= fault.at and name == "write":
            fd, data = arguments
            return real(fd, memoryview(data)[: max(1, len(data) // 2)])
        return self._apply(name, real, arguments, options)

    def _apply(self, name: str, real: Callable[..., Any], arguments: Any, options: Any) -> Any:
        return real(*arguments, **options)


@contextmanager
def disk(faulty: FaultyOs) -> Iterator[FaultyOs]:
    """Put a disk under tokenmill.storage."""
    disk_module.shutil = faulty  # type: ignore[assignment]
    for module in CHANGING_MODULES:
        module.os = faulty
    try:
        yield faulty
    finally:
        disk_module.shutil = shutil
        for module in CHANGING_MODULES:
            module.os = os


def _shown(target: Any) -> str:
    if isinstance(target, int):
        try:
            target = os.readlink(f"/proc/self/fd/{target}")
        except OSError:
            return str(target)
    return os.path.basename(os.fspath(target))


def is_folder(fd: int) -> bool:
    return stat.S_ISDIR(os.fstat(fd).st_mode)


ERRNOS = {name: getattr(errno, name) for name in ("ENOSPC", "EIO", "EDQUOT", "EACCES")}
