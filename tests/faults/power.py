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

# What one operation did to names, all of it or nothing: path -> file, None where it is gone.
Change = dict[str, int | None]


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
        self._safe_names: dict[str, dict[str, int]] = {}  # folder -> name -> file
        self._changes: list[Change] = []  # in order, those that are not safe yet
        for folder, folders, names in os.walk(self._root):  # what is there is safe
            self._safe_names[folder] = {
                name: self._new(os.path.join(folder, name)) for name in (*folders, *names)
            }
            for name in names:
                self._safe_data[self._safe_names[folder][name]] = _read(os.path.join(folder, name))

    def _new(self, path: str) -> int:
        self._count += 1
        self._numbers[os.lstat(path).st_ino] = self._count
        if os.path.isdir(path):
            self._folders.add(self._count)
        return self._count

    def _number(self, path: str) -> int | None:
        return self._numbers[os.lstat(path).st_ino] if os.path.lexists(path) else None

    def _apply(self, name: str, real: Callable[..., Any], arguments: Any, options: Any) -> Any:
        if name == "fsync":
            real(*arguments)
            self._synced(arguments[0])
            return None
        paths = [os.path.realpath(a) for a in arguments if isinstance(a, str)]
        if name == "rmtree":
            for folder, _, names in os.walk(paths[0]):
                for one in names:
                    self._remember(os.path.join(folder, one))
                    self._changes.append({os.path.join(folder, one): None})
        elif name in ("unlink", "replace"):
            for path in paths:
                self._remember(path)
        existed = {path for path in paths if os.path.lexists(path)}
        made = _missing(paths[0]) if name == "makedirs" else []
        moved = self._number(paths[0]) if name in ("replace", "link") else None
        result = real(*arguments, **options)
        if name == "open" and paths[0] not in existed:
            self._changes.append({paths[0]: self._new(paths[0])})
        elif name in ("unlink", "rmdir", "rmtree"):
            self._changes.append({paths[0]: None})
        elif name == "replace":
            self._changes.append({paths[0]: None, paths[1]: moved})
        elif name == "link":
            self._changes.append({paths[1]: moved})
        for path in made:
            self._changes.append({path: self._new(path)})
            self._safe_names[path] = {}
        return result

    def _remember(self, path: str) -> None:
        number = self._number(path)
        if number is not None and os.path.isfile(path):
            self._last_data[number] = _read(path)

    def _synced(self, fd: int) -> None:
        path = os.path.realpath(os.readlink(f"/proc/self/fd/{fd}"))
        if not path.startswith(self._root):
            return
        if not is_folder(fd):
            self._safe_data[self._numbers[os.fstat(fd).st_ino]] = _read(f"/proc/self/fd/{fd}")
            return
        safe = [c for c in self._changes if path in map(os.path.dirname, c)]
        self._changes = [c for c in self._changes if c not in safe]
        for change in safe:
            _make(self._safe_names, change)

    def lose(self, seed: int) -> None:
        """Rebuild the folder as it may be found after the power came back."""
        rng = random.Random(seed)
        names = {folder: dict(entries) for folder, entries in self._safe_names.items()}
        for change in self._changes:
            if rng.random() < 0.5:
                _make(names, change)
        found = self._found(self._root, names, rng)
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
        self, folder: str, names: dict[str, dict[str, int]], rng: random.Random
    ) -> dict[str, bytes | None]:
        """Path -> data of what survives in a folder and below; None for folders."""
        found: dict[str, bytes | None] = {}
        for name, number in sorted(names.get(folder, {}).items()):
            path = os.path.join(folder, name)
            if number in self._folders:
                found[path] = None
                found.update(self._found(path, names, rng))
            else:
                found[path] = self._data_found(number, path, rng)
        return found

    def _data_found(self, number: int, path: str, rng: random.Random) -> bytes:
        safe = self._safe_data.get(number, b"")
        last = self._last_data.get(number)
        if os.path.isfile(path) and self._number(path) == number:
            last = _read(path)
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


def _make(names: dict[str, dict[str, int]], change: Change) -> None:
    for path, number in change.items():
        folder, name = os.path.split(path)
        if number is None:
            names.get(folder, {}).pop(name, None)
        else:
            names.setdefault(folder, {})[name] = number
