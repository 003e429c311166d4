"""The cache of document ends, shared by processes: `~/.cache/tokenmill/index`.

Finding them may take a scan of all tokens. They are not stored beside the dataset, which may be
read-only, shared or in a bucket. The oldest are removed when there are more than 4 GiB.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.dataset.cache_folder import CacheFolder

MAX_BYTES = 4 << 30

Numbers = npt.NDArray[np.int64]


def cache_folder() -> str:
    """The only place outside cli/ that reads the environment; it affects no result."""
    return os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "tokenmill", "index"
    )


class IndexCache:
    def __init__(self, folder: str | None = None, max_bytes: int = MAX_BYTES) -> None:
        self._entries = CacheFolder(folder or cache_folder(), max_bytes, ".ends")

    @property
    def folder(self) -> str:
        return self._entries.folder

    def get(self, key: Any) -> Numbers | None:
        """The numbers of an entry; None if it is missing or damaged."""
        body = self._entries.get(key)
        return None if body is None else np.frombuffer(body, "<i8")

    def put(self, key: Any, numbers: Numbers) -> None:
        self._entries.put(key, np.ascontiguousarray(numbers, "<i8").tobytes())
