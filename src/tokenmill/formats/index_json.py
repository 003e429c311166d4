"""What mds and litdata share: an `index.json` that lists the shards, and shards that begin with the
offsets of their samples."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.errors import IntegrityError
from tokenmill.formats.format import Files, FoundShard
from tokenmill.formats.mapped import by_number, split_of, start_of

INDEX_NAME = "index.json"
# Enough for 150,000 shards; what it parses to can take twenty times as much memory.
MAX_INDEX_BYTES = 64 << 20
MAX_OFFSET = (1 << 32) - 1  # both formats point into a shard with uint32


def listed_shards(
    files: Files,
    names: Sequence[str],
    key: str,
    looks: re.Pattern[str],
    file_of: Callable[[Any], Any],
) -> list[FoundShard]:
    """The shards that a dataset's index.json files list under `key`, in their order.

    `file_of` gives the file of an entry. Only files among `names` are returned. Raises
    IntegrityError for an entry whose file is missing, and for files that look like such shards in a
    folder without a valid index.
    """
    there, found = set(names), dict[str, None]()
    faults: dict[str, IntegrityError] = {}
    for place in sorted({os.path.dirname(name) for name in names}, key=by_number):
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
        raise IntegrityError(f"{path} is not valid JSON: {error}") from error


def shown(value: object) -> str:
    """A JSON value, shortened for a message; it may be nested deeper than repr can go."""
    if isinstance(value, list):
        return "[" + ", ".join(shown(one) for one in value[:10] if isinstance(one, str)) + "]"
    return repr(value[:60]) if isinstance(value, str) else type(value).__name__


def index_bytes(files: Files, name: str) -> bytes:
    path = files.path_of(name)
    if files.size(name) is None:
        raise IntegrityError(f"{path} is missing, and nothing else lists the shards")
    data = start_of(files, name, MAX_INDEX_BYTES + 1)
    if len(data) > MAX_INDEX_BYTES:
        raise IntegrityError(f"{path} has over {MAX_INDEX_BYTES:,} bytes")
    return data


def checked_offsets(
    data: npt.NDArray[np.integer], path: str, what: str, items: str
) -> npt.NDArray[np.uint32]:
    """The offsets at the start of a shard: a count n, then n + 1 offsets that ascend to the end of
    the file. The first must not lie within the offsets themselves."""
    num_items = int(data[:4].view("<u4")[0]) if len(data) >= 8 else 0
    header_bytes = 4 + 4 * (num_items + 1)
    if len(data) < header_bytes:
        raise IntegrityError(
            f"{path}: {len(data):,} bytes, but {what} of {num_items:,} {items} begins with "
            f"{header_bytes:,}"
        )
    offsets = data[4:header_bytes].view("<u4")
    if int(offsets[0]) < header_bytes or (offsets[1:] < offsets[:-1]).any():
        raise IntegrityError(f"{path}: its offsets do not ascend from the end of its header")
    if int(offsets[-1]) != len(data):
        raise IntegrityError(
            f"{path}: {len(data):,} bytes, but its offsets promise {int(offsets[-1]):,}"
        )
    return offsets


def _entries(files: Files, name: str, key: str) -> list[Any]:
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
        raise IntegrityError(f"{path} has an entry whose file name is not a string")
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
                f"{path} lists {name}, which exists only compressed, as {packed}",
                hint=f"unpack all of them first: zstd -d {packed} -o {name}",
            )
        raise IntegrityError(f"{path} lists {shown(name)}, which is not in the folder")
