"""A cache on disk, shared by processes, up to a number of bytes.

An entry's name is a hash of its key, so entries are never updated; each has a checksum, so half an
entry is a miss. The least recently used ones are removed to make room. A folder that cannot be
written is not an error.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from typing import Any

import xxhash

from tokenmill.errors import OutputError
from tokenmill.storage import disk
from tokenmill.storage.store import store_of

_HEAD_BYTES = 8


class CacheFolder:
    """`suffix` distinguishes its entries from other files in the folder."""

    def __init__(self, folder: str, max_bytes: int, suffix: str) -> None:
        self.folder = folder
        self._max_bytes = max_bytes
        self._suffix = suffix
        self._num_new_bytes = max_bytes  # since the folder was last listed

    def get(self, key: Any) -> memoryview | None:
        """The body of an entry; None if it is missing or damaged."""
        path = self._path(key)
        try:
            with open(path, "rb") as file:
                data = file.read()
        except OSError:
            return None
        body = memoryview(data)[_HEAD_BYTES:]
        if len(data) < _HEAD_BYTES or data[:_HEAD_BYTES] != xxhash.xxh3_64_digest(body):
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # it was used
        return body

    def put(self, key: Any, body: bytes) -> None:
        with contextlib.suppress(OutputError, OSError):
            disk.make_folder(self.folder)
            self._num_new_bytes += len(body)
            if self._num_new_bytes > self._max_bytes // 64:
                self._make_room(len(body))
                self._num_new_bytes = 0
            data = xxhash.xxh3_64_digest(body) + body
            store_of(self.folder).write(self._path(key), data, is_durable=False)

    def _path(self, key: Any) -> str:
        name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:32]
        return os.path.join(self.folder, name + self._suffix)

    def _make_room(self, num_bytes: int) -> None:
        found = []
        with os.scandir(self.folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # another process made room
                    if entry.name.endswith(self._suffix):
                        found.append((entry.stat().st_mtime_ns, entry.stat().st_size, entry.path))
        total = num_bytes + sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total <= self._max_bytes:
                return
            disk.remove(path)
            total -= size
