"""Where the documents of a dataset end, kept between processes: `~/.cache/tokenmill/index`.

Finding them may take a scan of all tokens. The result does not go beside the dataset, which may be
read-only, shared or in a bucket. An entry's name is a hash of what it was made from, so there is
nothing to update; it carries a checksum, so half of one is no entry. The oldest are removed once
there are more than 4 GiB. A folder that cannot be written is no error: the scan is made again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from tokenmill.errors import OutputError
from tokenmill.storage import files

MAX_BYTES = 4 << 30
_SUFFIX = ".ends"
_HEAD_BYTES = 8

Numbers = npt.NDArray[np.int64]


def cache_folder() -> str:
    """The only place where a library of ours asks the environment: it decides no result."""
    return os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "tokenmill", "index"
    )


class IndexCache:
    def __init__(self, folder: str | None = None, max_bytes: int = MAX_BYTES) -> None:
        self.folder = cache_folder() if folder is None else folder
        self._max_bytes = max_bytes
        self._num_new_bytes = max_bytes  # since the folder was last looked through

    def get(self, key: Any) -> Numbers | None:
        """The numbers that were put there; None if there are none, or not all of them."""
        try:
            with open(self._path(key), "rb") as file:
                data = file.read()
        except OSError:
            return None
        body = memoryview(data)[_HEAD_BYTES:]
        if len(data) < _HEAD_BYTES or data[:_HEAD_BYTES] != xxhash.xxh3_64_digest(body):
            return None
        return np.frombuffer(body, "<i8")

    def put(self, key: Any, numbers: Numbers) -> None:
        body = np.ascontiguousarray(numbers, "<i8").tobytes()
        with contextlib.suppress(OutputError, OSError):
            files.make_folder(self.folder)
            self._num_new_bytes += len(body)
            if self._num_new_bytes > self._max_bytes // 64:
                self._make_room(len(body))
                self._num_new_bytes = 0
            files.write_file(self._path(key), xxhash.xxh3_64_digest(body) + body, is_durable=False)

    def _path(self, key: Any) -> str:
        name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:32]
        return os.path.join(self.folder, name + _SUFFIX)

    def _make_room(self, num_bytes: int) -> None:
        with os.scandir(self.folder) as entries:
            found = sorted(
                (entry.stat().st_mtime_ns, entry.stat().st_size, entry.path)
                for entry in entries
                if entry.name.endswith(_SUFFIX)
            )
        total = num_bytes + sum(size for _, size, _ in found)
        for _, size, path in found:
            if total <= self._max_bytes:
                return
            files.remove(path)
            total -= size
