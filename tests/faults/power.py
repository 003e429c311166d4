"""Power loss: what was not synced is kept, dropped or garbled, each on its own.

The model is harsher than most file systems. Data of a file is safe once that file was fsynced; a
change of names (created, renamed, removed) is safe once one of the folders concerned was. The rest
may or may not have reached the platter, in any combination: a rename without its data, a later
removal without an earlier rename. Only a rename itself is never done by half.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from typing import Any

from disk import Crash, FaultyOs, is_folder

# A name in a folder, which may be renamed itself: (the folder's number, name).
Place = tuple[int, str]
# What one operation did to names, all of it or nothing: place -> file, None where it is gone.
Change = dict[Place, int | None]


class LossyDisk(FaultyOs):
    """Follows what is safe below `root`; `lose(seed)` takes the rest away.

    Files are known by numbers of our own, because the system gives a removed file's inode number
    to the next one.
    """

    def __init__(self, root: str, fault: Crash | None = None) -> None:
        super().__init__(fault)
        self._root = os.path.realpath(root)
        self._numbers: dict[int, int] = {}  # inode -> the file that has it now
        self._count = 0
        self._safe_data: dict[int, bytes] = {}  # file -> what was last synced
        self._last_data: dict[int, bytes] = {}  # file -> what was in it when it lost a name
        self._folders: set[int] = set()
        self._safe_names: dict[Place, int] = {}
        self._changes: list[Change] = []  # in order, those that are not safe yet
        self._root_number = self._new(self._root)
        for folder, folders, names in os.walk(self._root):  # what is there is safe
            for name in (*folders, *names):
                path = os.path.join(folder, name)
                self._safe_names[self._place(path)] = self._new(path)
                if name in names:
                    self._safe_data[self._safe_names[self._place(path)]] = _read(path)

    def _new(self, path: str) -> int:
        self._count += 1
        self._numbers[os.lstat(path).st_ino] = self._count
        if os.path.isdir(path):
            self._folders.add(self._count)
        return self._count

    def _number(self, path: str) -> int | None:
        return self._numbers[os.lstat(path).st_ino] if os.path.lexists(path) else None

    def _place(self, path: str) -> Place:
        folder, name = os.path.split(path)
        inode = os.lstat(folder).st_ino
        if inode not in self._numbers:  # made by `tempfile`, and not safe
            self._changes.append({self._place(folder): self._new(folder)})
        return self._numbers[inode], name

    def _apply(self, name: str, real: Callable[..., Any], arguments: Any, options: Any) -> Any:
        if name == "fsync":
            real(*arguments)
            self._synced(arguments[0])
            return None
        paths = [os.path.realpath(a) for a in arguments if isinstance(a, str)]
        if not all(path.startswith(self._root) for path in paths):
            return real(*arguments, **options)
        if name == "rmtree":
            for folder, _, names in os.walk(paths[0]):
                for one in names:
                    self._remember(os.path.join(folder, one))
                    self._changes.append({self._place(os.path.join(folder, one)): None})
        elif name in ("unlink", "replace"):
            for path in paths:
                self._remember(path)
        existed = {path for path in paths if os.path.lexists(path)}
        made = _missing(paths[0]) if name == "makedirs" else []
        moved = self._number(paths[0]) if name in ("replace", "link") else None
        result = real(*arguments, **options)
        if name == "open" and paths[0] not in existed:
            self._changes.append({self._place(paths[0]): self._new(paths[0])})
        elif name in ("unlink", "rmdir", "rmtree"):
            self._changes.append({self._place(paths[0]): None})
        elif name == "replace":
            self._changes.append({self._place(paths[0]): None, self._place(paths[1]): moved})
        elif name == "link":
            self._changes.append({self._place(paths[1]): moved})
        for path in made:
            self._changes.append({self._place(path): self._new(path)})
        return result

    def _remember(self, path: str) -> None:
        number = self._number(path)
        if number is not None and os.path.isfile(path):
            self._last_data[number] = _read(path)

    def _synced(self, fd: int) -> None:
        path = os.path.realpath(os.readlink(f"/proc/self/fd/{fd}"))
        if not path.startswith(self._root):
            return
        number = self._numbers[os.fstat(fd).st_ino]
        if not is_folder(fd):
            self._safe_data[number] = _read(f"/proc/self/fd/{fd}")
            return
        safe = [change for change in self._changes if number in (folder for folder, _ in change)]
        self._changes = [c for c in self._changes if c not in safe]
        for change in safe:
            _make(self._safe_names, change)

    def lose(self, seed: int) -> None:
        """Rebuild the folder as it may be found after the power came back."""
        rng = random.Random(seed)
        names = dict(self._safe_names)
        for change in self._changes:
            if rng.random() < 0.5:
                _make(names, change)
        for folder, _, files in os.walk(self._root):
            for name in files:
                self._remember(os.path.join(folder, name))
        found = self._found(self._root_number, self._root, names, rng)
        for name in os.listdir(self._root):
            path = os.path.join(self._root, name)
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)
        for path, data in found.items():
            if data is None:
                os.makedirs(path, exist_ok=True)
            else:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "wb") as file:
                    file.write(data)

    def _found(
        self, folder: int, at: str, names: dict[Place, int], rng: random.Random
    ) -> dict[str, bytes | None]:
        """Path -> data of what survives in a folder, found `at`, and below; None for folders."""
        found: dict[str, bytes | None] = {}
        for (_, name), number in sorted(item for item in names.items() if item[0][0] == folder):
            path = os.path.join(at, name)
            if number in self._folders:
                found[path] = None
                found.update(self._found(number, path, names, rng))
            else:
                found[path] = self._data_found(number, rng)
        return found

    def _data_found(self, number: int, rng: random.Random) -> bytes:
        safe = self._safe_data.get(number, b"")
        last = self._last_data.get(number)
        if last is None or last == safe:
            return safe
        choice = rng.randrange(4)
        if choice == 0:
            return safe
        if choice == 1:
            return last
        if choice == 2:  # the length was written, the data was not
            return safe[: len(last)] + bytes(max(0, len(last) - len(safe)))
        garbled = bytearray(last)
        start = rng.randrange(len(garbled) or 1)
        garbled[start : start + 512] = rng.randbytes(len(garbled[start : start + 512]))
        # What was synced and not written since stays what it is.
        for at, (before, after) in enumerate(zip(safe, last, strict=False)):
            if before == after:
                garbled[at] = before
        return bytes(garbled)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _missing(path: str) -> list[str]:
    """The folders that makedirs(path) has to make, the outermost first."""
    missing = []
    while not os.path.lexists(path):
        missing.insert(0, path)
        path = os.path.dirname(path)
    return missing


def _make(names: dict[Place, int], change: Change) -> None:
    for place, number in change.items():
        if number is None:
            names.pop(place, None)
        else:
            names[place] = number
