"""The files of a dataset in a local folder (the seam: `Files` of formats/format.py).

A dataset's local files are opened only here, because the folder may come from anyone: a link that
leads out of it is refused, and so is anything that is not a regular file. Opening a pipe would wait
for its other end. The folder may also get another dataset while this one is read, with files of the
same names and sizes: a file that is not the one that was first seen is refused, too.
"""

from __future__ import annotations

import contextlib
import functools
import os
import stat
from collections.abc import Sequence
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from tokenmill.errors import IntegrityError
from tokenmill.storage.local import stat_of
from tokenmill.storage.store import store_of


class FolderFiles:
    is_local = True

    def __init__(self, folder: str, within: str | None = None) -> None:
        """Links may lead to files below `within`; by default, below the folder."""
        self.label = folder
        self._real = os.path.realpath(within or folder)
        self._seen: dict[str, tuple[int, int]] = {}

    def path_of(self, name: str) -> str:
        return os.path.join(self.label, name)

    def names(self) -> list[str]:
        return store_of(self.label).names(self.label)

    def has(self, name: str) -> bool:
        return os.path.lexists(self.path_of(name))

    def size(self, name: str) -> int | None:
        if os.path.isdir(self.path_of(name)):  # such as a link to a folder elsewhere
            return None
        path = self._inside(name)
        try:
            found = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise IntegrityError(f"{path} cannot be read: {error.strerror}") from error
        if not stat.S_ISREG(found.st_mode):
            return None
        self._require_same(name, found)
        return found.st_size

    def sizes(self, names: Sequence[str]) -> list[int | None]:
        plain: dict[str, int] = {}
        for folder in {os.path.dirname(name) for name in names}:
            with contextlib.suppress(OSError), os.scandir(self._inside(folder)) as entries:
                for entry in entries:
                    if entry.is_file(follow_symlinks=False):
                        name, found = os.path.join(folder, entry.name), entry.stat()
                        self._require_same(name, found)
                        plain[name] = found.st_size
        return [plain[name] if name in plain else self.size(name) for name in names]

    def stamp(self, name: str) -> str:
        return stat_of(os.stat(self._inside(name))).tag

    def local_path(self, name: str) -> str:
        path = self._inside(name)
        if self.size(name) is None and os.path.exists(path):
            raise IntegrityError(f"{path} is not a regular file")
        return path

    def open(self, name: str) -> IO[bytes]:
        return open(self._inside(name), "rb", opener=functools.partial(self._opened, name))

    def in_order(self, name: str) -> IO[bytes]:
        opener = functools.partial(self._opened, name)
        return open(self._inside(name), "rb", buffering=0, opener=opener)

    def array(
        self, name: str, dtype: np.dtype[Any], offset: int, count: int
    ) -> npt.NDArray[np.integer]:
        try:
            with self.open(name) as file:
                return np.memmap(file, dtype, "r", offset, (count,))
        except IntegrityError:
            raise
        except (OSError, ValueError) as error:
            raise IntegrityError(f"cannot map {self.path_of(name)}: {error}") from error

    def held(self, name: str) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def _inside(self, name: str) -> str:
        path = self.path_of(name)
        if os.path.commonpath([self._real, os.path.realpath(path)]) != self._real:
            raise IntegrityError(
                f"{path} is a link that leads out of the folder",
                hint="put the file itself there",
            )
        return path

    def _opened(self, name: str, path: str, flags: int) -> int:
        fd = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if not stat.S_ISREG((found := os.fstat(fd)).st_mode):
                raise IntegrityError(f"{path} is not a regular file")
            self._require_same(name, found)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _require_same(self, name: str, found: os.stat_result) -> None:
        stamp = (found.st_size, found.st_mtime_ns)
        if self._seen.setdefault(name, stamp) != stamp:
            raise IntegrityError(
                f"{self.path_of(name)} was changed while it was read",
                hint="is the dataset being replaced? Open it again when that is done",
            )
