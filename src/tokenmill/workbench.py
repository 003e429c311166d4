"""The workbench: where shards grow on a disk, and how far they are. One attempt's at a time.

    WORK/bench-ID/              shards in the making, each file in the end under its final name
    WORK/bench-ID/cursor.json   how far they are: what the next attempt begins with

Every attempt takes the bench over by giving its folder a new ID. From then on the attempt before,
should it still be alive (locks do nothing on some network file systems), finds none of its files by
name: it cannot open, replace, remove or publish anything. What it holds open it may go on writing:
the bytes that belong there anyway.
"""

from __future__ import annotations

import json
import os
from typing import Any

from tokenmill import storage
from tokenmill.errors import IntegrityError
from tokenmill.seal import sealed, unsealed

PREFIX = "bench-"
CURSOR_NAME = "cursor.json"


class Workbench:
    """The folder, and the cursor that was last saved in it; empty if none was."""

    def __init__(self, work: str) -> None:
        self.folder = os.path.join(work, PREFIX + os.urandom(4).hex())
        kept = _bench_with_cursor(work)
        for bench in _benches(work):
            if bench != kept:
                storage.remove_folder(bench)
        if kept is None:
            storage.make_folder(self.folder)
        else:
            storage.rename(kept, self.folder)
        storage.remove_temporaries(self.folder)
        self.cursor = _loaded_cursor(self.folder)

    def save(self, cursor: dict[str, Any]) -> None:
        """Have the next attempt begin from here. What it builds on must be synced before."""
        data = sealed(json.dumps(cursor, sort_keys=True).encode())
        storage.write_file(os.path.join(self.folder, CURSOR_NAME), data)


def last_cursor(work: str) -> dict[str, Any]:
    """The cursor that the next attempt will begin with, for those who only want to know; empty if
    there is none."""
    bench = _bench_with_cursor(work)
    return {} if bench is None else _loaded_cursor(bench)


def _benches(work: str) -> list[str]:
    return [os.path.join(work, name) for name in storage.names_in(work) if name.startswith(PREFIX)]


def _bench_with_cursor(work: str) -> str | None:
    """There are several if two runs began at the same time. Each is sound; the first will do."""
    for bench in _benches(work):
        if os.path.exists(os.path.join(bench, CURSOR_NAME)):
            return bench
    return None


def _loaded_cursor(bench: str) -> dict[str, Any]:
    path = os.path.join(bench, CURSOR_NAME)
    if not os.path.exists(path):
        return {}
    try:
        return unsealed(storage.read_file(path))
    except ValueError as error:
        raise IntegrityError(
            f"{path} is damaged: {error}", hint="start anew with --overwrite"
        ) from error
