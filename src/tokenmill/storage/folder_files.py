"""The files of a dataset in a local folder (the seam: `DatasetFiles` of formats/format.py).

A dataset's local files are opened only here, because the folder may come from anyone: a link that
leads out of it is refused, and so is anything that is not a regular file. Opening a pipe would wait
for its other end.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Sequence
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from tokenmill.errors import IntegrityError
from tokenmill.storage.files import names_below


class FolderFiles:
    is_far = False

    def __init__(self, folder: str, within: str | None = None) -> None:
        """Links may lead to files below `within`; by default, below the folder."""
        self.label = folder
        self._real = os.path.realpath(within or folder)

    def path_of(self, name: str) -> str:
        return os.path.join(self.label, name)

    def names(self) -> list[str]:
        return names_below(self.label)

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
        return found.st_size if stat.S_ISREG(found.st_mode) else None

    def sizes(self, names: Sequence[str]) -> list[int | None]:
        plain: dict[str, int] = {}
        for folder in {os.path.dirname(name) for name in names}:
            with contextlib.suppress(OSError), os.scandir(self._inside(folder)) as entries:
                for entry in entries:
                    if entry.is_file(follow_symlinks=False):
                        num_bytes = entry.stat(follow_symlinks=False).st_size
                        plain[os.path.join(folder, entry.name)] = num_bytes
        return [plain[name] if name in plain else self.size(name) for name in names]

    def stamp(self, name: str) -> str:
        found = os.stat(self._inside(name))
        return f"{found.st_size}-{found.st_mtime_ns}-{found.st_ino}"

    def local_path(self, name: str) -> str:
        path = self._inside(name)
        if os.path.exists(path) and not os.path.isfile(path):
            raise IntegrityError(f"{path} is not a regular file")
        return path

    def open(self, name: str) -> IO[bytes]:
        return open(self._inside(name), "rb", opener=_regular_file)

    def in_order(self, name: str) -> IO[bytes]:
        return open(self._inside(name), "rb", buffering=0, opener=_regular_file)

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


def _regular_file(path: str, flags: int) -> int:
    fd = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise IntegrityError(f"{path} is not a regular file")
    return fd
