"""Files that sources name but a run does not read, collected and reported once, in the summary.

None of this changes the output, so none of it is part of a plan's identity.
"""

from __future__ import annotations

import collections
import os
from collections.abc import Iterable

from tokenmill.corpus.readers.naming import ending

_SHOWN_ENDINGS = 5


class Skipped:
    """Collects them while sources are listed; `notes` is the report."""

    def __init__(self, input_format: str | None) -> None:
        self._input_format = input_format
        self._endings: collections.Counter[str] = collections.Counter()
        self._first_file = ""
        self._again: list[tuple[str, str]] = []
        self._folders: list[str] = []
        self._ours: list[str] = []

    def add_files(self, paths: Iterable[str]) -> None:
        """Add files of other kinds in a folder."""
        for path in paths:
            self._first_file = self._first_file or path
            self._endings[ending(path) or os.path.basename(path)] += 1

    def add_again(self, name: str, first_name: str) -> None:
        """Add a file or folder that was named before, perhaps under another name."""
        self._again.append((name, first_name))

    def add_folders(self, paths: Iterable[str]) -> None:
        """Add folders that match a glob."""
        self._folders += paths

    def add_ours(self, paths: Iterable[str]) -> None:
        """Add inputs that are beside a dataset of tokenmill's, or an unfinished run."""
        self._ours += paths

    def notes(self) -> tuple[str, ...]:
        found = []
        if self._endings:
            number, why = sum(self._endings.values()), ""
            if set(self._endings) == {".json"}:
                why = ", taken for metadata (a glob reads them)"
            elif self._input_format is not None:
                why = f", because of --input-format {self._input_format}"
            found.append(
                f"{_counted(number, 'file')} not read{why}: {shown_endings(self._endings)} "
                f"({_first(number)}{self._first_file})"
            )
        if self._folders:
            number = len(self._folders)
            found.append(
                f"{_counted(number, 'folder')} matched by a glob and not read, because a glob "
                f"names files ({_first(number)}{self._folders[0]}); for any depth use **"
            )
        if self._ours:
            number = len(self._ours)
            found.append(
                f"{_counted(number, 'file')} not read, because a dataset or an unfinished run is "
                f"in the same folder ({_first(number)}{self._ours[0]}); a glob reads such files"
            )
        if self._again:
            number, (name, first_name) = len({first for _, first in self._again}), self._again[0]
            which = name if name == first_name else f"{name} is {first_name}"
            found.append(
                f"{_counted(number, 'path')} named more than once and read once "
                f"({_first(number)}{which})"
            )
        return tuple(found)


def shown_endings(endings: collections.Counter[str]) -> str:
    """The number of files of each extension, the most frequent first."""
    shown = [f"{number:,} {end}" for end, number in endings.most_common(_SHOWN_ENDINGS)]
    rest = sum(endings.values()) - sum(n for _, n in endings.most_common(_SHOWN_ENDINGS))
    return ", ".join([*shown, *([f"{rest:,} more"] if rest else [])])


def _counted(number: int, what: str) -> str:
    return f"1 {what} was" if number == 1 else f"{number:,} {what}s were"


def _first(number: int) -> str:
    return "" if number == 1 else "first: "
