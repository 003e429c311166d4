"""Listing of folders and globs on disk: every file below them, or an error that names the obstacle.

`os.walk` and `glob.glob` silently skip unreadable folders and broken links, so the corpus would
silently shrink. Here both raise InputError. Hidden names are skipped, and so is
`lost+found`: it belongs to the file system, and only root may read it.
"""

from __future__ import annotations

import errno
import fnmatch
import glob
import os
import shlex
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tokenmill.errors import InputError

_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)
_FolderId = tuple[int, int]


@dataclass(slots=True)
class Listing:
    """The files found. `again` pairs a folder that was reached twice with its first name;
    `left_out` are the files of folders that were left out."""

    files: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    again: list[tuple[str, str]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def is_folder(path: str) -> bool | None:
    """Whether a path is a folder; None if it does not exist. InputError if the disk refuses to
    say."""
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except ValueError:  # a NUL byte in it
        return None
    except OSError as error:
        if os.path.islink(path) or error.errno not in _NOT_THERE:
            raise unreadable(path, error) from error
        return None


def unreadable(path: str, error: OSError, doing: str = "read") -> InputError:
    """The error for an existing file or folder that cannot be read."""
    name = shlex.quote(path)
    if os.path.islink(path) and not os.path.exists(path):
        return InputError(
            f"cannot read {path}: it is a link to {os.readlink(path)}, which cannot be reached",
            hint=f"restore its target, or remove the link: rm {name}",
        )
    hint = f"see: ls -ld {name}; to continue without it, name the other files and folders"
    if error.errno in (errno.EACCES, errno.EPERM):
        hint = f"chmod -R u+rX {name}; to continue without it, name the other files and folders"
    return InputError(f"cannot {doing} {path}: {error.strerror}", hint=hint)


def files_below(folder: str, is_left_out: Callable[[list[str]], bool]) -> Listing:
    """All files below a folder, through links too; each folder is read once.

    `is_left_out` decides from the names in a subfolder whether to skip that subfolder.
    """
    found = Listing()
    first_names: dict[_FolderId, str] = {}
    waiting = [folder]
    while waiting:
        here = waiting.pop()
        folder_id = _folder_id(here)
        if folder_id in first_names:
            found.again.append((here, first_names[folder_id]))
            continue
        first_names[folder_id] = here
        entries = _entries(here)
        names = [entry.name for entry in entries]
        if here != folder and is_left_out(names):
            found.left_out += [os.path.join(here, name) for name in names if not _is_hidden(name)]
            continue
        subfolders: list[str] = []
        for entry in entries:
            if not _is_hidden(entry.name):
                path = os.path.join(here, entry.name)
                (subfolders if _leads_to_folder(path, entry) else found.files).append(path)
        waiting += reversed(subfolders)
    return found


def matching(pattern: str) -> Listing:
    """What a glob matches, as `glob.glob(pattern, recursive=True)` does."""
    parts = [part for part in pattern.split("/") if part]
    found: dict[str, bool] = dict(_matches("/" if pattern.startswith("/") else "", parts))
    files = [] if pattern.endswith("/") else [path for path, is_dir in found.items() if not is_dir]
    return Listing(files, [path for path, is_dir in found.items() if is_dir])


def _matches(base: str, parts: list[str]) -> Iterator[tuple[str, bool]]:
    """(path, whether it is a folder) for each match of the pattern's parts below a folder."""
    part, *rest = parts
    if part == "**":
        yield from _matches_at_any_depth(base, rest, ())
        return
    for path, is_dir in _named(base, part):
        if not rest:
            yield path, is_dir
        elif is_dir:
            yield from _matches(path, rest)


def _named(base: str, part: str) -> Iterator[tuple[str, bool]]:
    if not glob.has_magic(part):
        path = os.path.join(base, part)
        is_dir = is_folder(path)
        if is_dir is not None:
            yield path, is_dir
        return
    for entry in _entries(base):
        if _is_hidden(entry.name) and not part.startswith("."):
            continue
        if fnmatch.fnmatch(entry.name, part):
            path = os.path.join(base, entry.name)
            yield path, _leads_to_folder(path, entry)


def _matches_at_any_depth(
    base: str, rest: list[str], above: tuple[_FolderId, ...]
) -> Iterator[tuple[str, bool]]:
    here = _folder_id(base)
    if here in above:  # a link leads back up
        return
    if rest:
        yield from _matches(base, rest)
    for entry in _entries(base):
        if _is_hidden(entry.name):
            continue
        path = os.path.join(base, entry.name)
        is_dir = _leads_to_folder(path, entry)
        if not rest:
            yield path, is_dir
        if is_dir:
            yield from _matches_at_any_depth(path, rest, (*above, here))


def _entries(folder: str) -> list[os.DirEntry[str]]:
    """The entries of a folder, sorted by name; "" is the current folder."""
    try:
        with os.scandir(folder or ".") as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError as error:
        raise unreadable(folder or ".", error, "list") from error
    return entries


def _leads_to_folder(path: str, entry: os.DirEntry[str]) -> bool:
    try:
        return bool(is_folder(path)) if entry.is_symlink() else entry.is_dir()
    except OSError as error:
        raise unreadable(path, error) from error


def _folder_id(folder: str) -> _FolderId:
    try:
        found = os.stat(folder or ".")
    except OSError as error:
        raise unreadable(folder or ".", error) from error
    return found.st_dev, found.st_ino


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name == "lost+found"
