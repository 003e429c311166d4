"""Folders whose `index.json` says which shards there are: what mds and litdata have in common."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from typing import Any

from tokenmill.errors import IntegrityError
from tokenmill.formats.format import DatasetFiles, FoundShard
from tokenmill.formats.mapped import split_of, start_of

INDEX_NAME = "index.json"
# Enough for 150,000 shards; what it parses to can take twenty times as much memory.
MAX_INDEX_BYTES = 64 << 20
MAX_OFFSET = (1 << 32) - 1  # both formats point into a shard with uint32


def listed_shards(
    files: DatasetFiles,
    names: Sequence[str],
    key: str,
    looks: re.Pattern[str],
    file_of: Callable[[Any], Any],
) -> list[FoundShard]:
    """The shards that a dataset's index.json files list under `key`, in their order.

    `file_of` gives the file of an entry. Whatever an entry says, nothing is found that is not among
    `names`. Raises IntegrityError for an entry without its file, and for files that look like such
    shards where there is no sound index.
    """
    there, found = set(names), dict[str, None]()
    faults: dict[str, IntegrityError] = {}
    for place in sorted({os.path.dirname(name) for name in names}):
        index = os.path.join(place, INDEX_NAME)
        path = files.path_of(index)
        try:
            entries = _entries(files, index, key)
        except IntegrityError as fault:
            faults[place] = fault
            continue
        listed = [os.path.join(place, name) for name in _files_of(entries, file_of, path)]
        _require_there(listed, there, path)
        found.update(dict.fromkeys(listed))
    for name in names:
        if looks.search(name) and name not in found and os.path.dirname(name) in faults:
            raise faults[os.path.dirname(name)]
    return [FoundShard(name, split_of(name)) for name in found]


def parsed_json(data: bytes, path: str) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise IntegrityError(f"{path} does not hold sound JSON: {error}") from error


def shown(value: object) -> str:
    """A value from JSON, for a message: of any size, and nested deeper than repr can go."""
    if isinstance(value, list):
        return "[" + ", ".join(shown(one) for one in value[:10] if isinstance(one, str)) + "]"
    return repr(value[:60]) if isinstance(value, str) else type(value).__name__


def index_bytes(files: DatasetFiles, name: str) -> bytes:
    path = files.path_of(name)
    if files.size(name) is None:
        raise IntegrityError(f"{path} is not there, and only it says which shards there are")
    data = start_of(files, name, MAX_INDEX_BYTES + 1)
    if len(data) > MAX_INDEX_BYTES:
        raise IntegrityError(f"{path} has over {MAX_INDEX_BYTES:,} bytes")
    return data


def _entries(files: DatasetFiles, name: str, key: str) -> list[Any]:
    path = files.path_of(name)
    data = parsed_json(index_bytes(files, name), path)
    entries = data.get(key) if isinstance(data, dict) else None
    if not isinstance(entries, list):
        raise IntegrityError(f"{path} does not list any {key}")
    return entries


def _files_of(entries: list[Any], file_of: Callable[[Any], Any], path: str) -> list[str]:
    try:
        listed = [file_of(entry) for entry in entries]
    except (KeyError, TypeError) as error:
        raise IntegrityError(f"{path} has an entry that names no file: {error!r}") from error
    if not all(isinstance(name, str) for name in listed):
        raise IntegrityError(f"{path} has an entry whose file is not named by a text")
    return listed


def _require_there(listed: list[str], there: set[str], path: str) -> None:
    if len(set(listed)) < len(listed):
        raise IntegrityError(f"{path} lists a shard twice")
    for name in listed:
        if name in there:
            continue
        packed = min((other for other in there if other.startswith(f"{name}.")), default=None)
        if packed is not None:
            raise IntegrityError(
                f"{path} lists {name}, which is only there compressed, as {packed}",
                hint=f"unpack all of them first: zstd -d {packed} -o {name}",
            )
        raise IntegrityError(f"{path} lists {shown(name)}, which is not in the folder")
