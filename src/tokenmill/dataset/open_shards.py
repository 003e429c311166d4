"""The open shards of a split, for random access.

A map keeps a file descriptor, and processes have few (often 1,024), so the least recently used
shards are closed. Reading a map beyond the end of a file that was truncated since kills the process
with SIGBUS, so a local file is looked at again once a second.
"""

from __future__ import annotations

import collections
import resource
import threading
import time

import numpy as np
import numpy.typing as npt

from tokenmill.dataset.stream import Stream, Tokens
from tokenmill.errors import ConfigError, IntegrityError
from tokenmill.formats import Files, ShardReader
from tokenmill.formats.mapped import MappedShard

MAX_OPEN = 1024
CHECK_SECONDS = 1.0


class OpenShards:
    """Thread-safe: maps are read in parallel, shards that must be decoded one at a time."""

    def __init__(self, files: Files, stream: Stream) -> None:
        self._files = files
        self._shards = stream.shards
        self._limit = min(MAX_OPEN, _max_descriptors() // 2)
        self._open: collections.OrderedDict[int, _OpenShard] = collections.OrderedDict()
        self._lock = threading.RLock()
        self._is_closed = False

    def close(self) -> None:
        with self._lock:
            self._open.clear()
            self._is_closed = True

    def array(self, position: int) -> npt.NDArray[np.integer] | None:
        """All tokens of a shard as one mapped array; None if it has to be decoded or fetched."""
        return self._opened(position).array

    def tokens(self, position: int, start: int, stop: int) -> Tokens:
        opened = self._opened(position)
        if opened.array is not None:
            return opened.array[start:stop]
        if isinstance(opened.reader, MappedShard):
            return opened.reader.tokens(start, stop)
        with opened.lock:
            found = opened.reader.tokens(start, stop).view()
        found.flags.writeable = False  # it may be the reader's own buffer
        return found

    def ends(self, position: int) -> npt.NDArray[np.int64]:
        opened = self._opened(position)
        with opened.lock:
            found = opened.reader.ends()
        if found is None:
            raise IntegrityError(
                f"{self._shards[position].name} does not say where its documents end"
            )
        return found

    def _opened(self, position: int) -> _OpenShard:
        with self._lock:
            found = self._open.get(position)
            if found is None:
                found = self._newly_opened(position)
            elif time.monotonic() - found.checked_at > CHECK_SECONDS:
                self._require_size(position, found)
            self._open.move_to_end(position)
            return found

    def _newly_opened(self, position: int) -> _OpenShard:
        if self._is_closed:
            raise ConfigError(f"{self._files.label} was closed", hint="open it again")
        shard = self._shards[position]
        num_bytes, reader = self._files.size(shard.name), shard.open()
        if reader.num_tokens != shard.num_tokens:
            raise IntegrityError(
                f"{shard.name} holds {reader.num_tokens:,} tokens, but should hold "
                f"{shard.num_tokens:,}",
                hint=f"tokenmill verify {self._files.label}",
            )
        self._open[position] = found = _OpenShard(reader, num_bytes)
        if len(self._open) > self._limit:
            self._open.popitem(last=False)
        return found

    def _require_size(self, position: int, found: _OpenShard) -> None:
        name = self._shards[position].name
        if self._files.is_local and self._files.size(name) != found.num_bytes:
            raise IntegrityError(
                f"{self._files.path_of(name)} was changed while it was read: it is missing",
                hint=f"what else is wrong? tokenmill verify {self._files.label}",
            )
        found.checked_at = time.monotonic()


class _OpenShard:
    __slots__ = ("array", "checked_at", "lock", "num_bytes", "reader")

    def __init__(self, reader: ShardReader, num_bytes: int | None) -> None:
        self.reader = reader
        self.num_bytes = num_bytes
        self.checked_at = time.monotonic()
        self.lock = threading.Lock()
        mapped = reader.array if isinstance(reader, MappedShard) else None
        # A plain array: slices of np.memmap cost twice as much.
        self.array = np.asarray(mapped) if isinstance(mapped, np.ndarray) else None


def _max_descriptors() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_OPEN * 2 if soft == resource.RLIM_INFINITY else soft
