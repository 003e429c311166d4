"""Where the documents of a dataset end, kept between processes: `~/.cache/tokenmill/index`.

Finding them may take a scan of all tokens. The result does not go beside the dataset, which may be
read-only, shared or in a bucket. The oldest are removed once there are more than 4 GiB.
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
    """The only place where a library of ours asks the environment: it decides no result."""
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
        """The numbers that were put there; None if there are none, or not all of them."""
        body = self._entries.get(key)
        return None if body is None else np.frombuffer(body, "<i8")

    def put(self, key: Any, numbers: Numbers) -> None:
        self._entries.put(key, np.ascontiguousarray(numbers, "<i8").tobytes())
