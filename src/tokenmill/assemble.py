"""Assembly: parts in plan order, or in the seeded shuffle's order, become shards.

Parts are taken in as they are ready and cut into shards wherever the format says, through documents
if need be: the cuts are a function of the token stream alone. A shard is written once, front to
back, hashed on the way; the parts it swallowed are deleted, so that the disk never holds the
output twice (a shuffle needs every part until the end).

What is done is in `cursor.json`: the next part (or bucket), the finished shards, and how long each
unfinished one is. It is replaced atomically, after the shards were synced and before any part is
deleted, so a crash at any moment resumes from it. Shards stay in the work folder until all are
finished; `publish` then moves them to the output folder, and the manifest follows.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tokenmill import storage
from tokenmill.arrays import indices
from tokenmill.documents import data_of
from tokenmill.errors import IntegrityError
from tokenmill.formats import DTYPE_BYTES, get_format
from tokenmill.part import PartReader
from tokenmill.record import SPLITS, PartRecord, part_path

# Small enough to stay in the cache between read, hash and write: 4 MB took three times the CPU.
COPY_BYTES = 256 << 10
CHECKPOINT_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Layout:
    """How the token streams become shards: plain values."""

    format: str
    name: str
    dtype: str
    shard_tokens: int | None
    first_shard_is_val: bool
    eot_id: int
    num_buckets: int  # 0: not shuffled


@dataclass(frozen=True, slots=True)
class Shard:
    """A finished shard."""

    name: str
    split: str
    num_tokens: int
    num_eot: int
    num_bytes: int
    sha256: str


class Assembler:
    """Takes records in any order, writes shards in the one right order."""

    def __init__(self, work: str, layout: Layout) -> None:
        self._work = work
        self._layout = layout
        self._cursor_path = os.path.join(work, "cursor.json")
        cursor = self._loaded_cursor()
        self.next = int(cursor["next"])  # the next part (or bucket) to take in
        self._deleted = self.next
        self._ready: dict[int, PartRecord] = {}
        self._unsynced_bytes = 0
        folder = os.path.join(work, "shards")
        self._streams = [
            _ShardStream(layout, folder, split, cursor["streams"].get(split)) for split in SPLITS
        ]

    def add(self, record: PartRecord) -> None:
        """Take in a part, and whatever else was waiting for it."""
        self._ready[record.slice_index] = record
        if self._layout.num_buckets:
            return
        while self.next in self._ready:
            self._copy(self._ready.pop(self.next))
            self._advance()

    def finish(self) -> list[Shard]:
        """Write what is left, close the last shards, and return all, sorted by name."""
        if self._layout.num_buckets:
            while self.next < self._layout.num_buckets:
                self._copy_bucket(self.next)
                self._advance()
        for stream in self._streams:
            stream.finish()
        self._checkpoint()
        return sorted((s for stream in self._streams for s in stream.shards), key=lambda s: s.name)

    def close(self) -> None:
        for stream in self._streams:
            stream.close()

    def _advance(self) -> None:
        self.next += 1
        if self._unsynced_bytes >= CHECKPOINT_BYTES:
            self._checkpoint()

    def _copy(self, record: PartRecord) -> None:
        reader = PartReader(self._work, record, self._layout.dtype, self._layout.num_buckets)
        with open(part_path(self._work, record.slice_index), "rb", buffering=0) as file:
            for split, stream in enumerate(self._streams):
                for offset, size in reader.token_ranges(split):
                    for start in range(offset, offset + size, COPY_BYTES):
                        wanted = min(COPY_BYTES, offset + size - start)
                        data = os.pread(file.fileno(), wanted, start)
                        if len(data) < wanted:
                            raise IntegrityError(f"{file.name} ends too early")
                        self._write(stream, data)

    def _copy_bucket(self, bucket: int) -> None:
        """One bucket of every part, sorted by key: that stretch of the corpus's shuffle."""
        for split, stream in enumerate(self._streams):
            pairs = []
            for index in sorted(self._ready):
                record = self._ready[index]
                reader = PartReader(
                    self._work, record, self._layout.dtype, self._layout.num_buckets
                )
                pairs += reader.bucket(split, bucket)
            if pairs:
                keys = np.concatenate([keys for keys, _ in pairs])
                documents = pa.concat_arrays([documents for _, documents in pairs])
                order = np.argsort(keys, kind="stable")
                self._write(stream, data_of(documents.take(indices(order))))

    def _write(self, stream: _ShardStream, data: Any) -> None:
        stream.write(memoryview(data))
        self._unsynced_bytes += len(data)

    def _checkpoint(self) -> None:
        for stream in self._streams:
            stream.sync()
        cursor = {
            "next": self.next,
            "streams": {stream.split: stream.state() for stream in self._streams},
        }
        storage.write_file(self._cursor_path, json.dumps(cursor, sort_keys=True).encode())
        self._unsynced_bytes = 0
        if not self._layout.num_buckets:
            while self._deleted < self.next:
                storage.remove(part_path(self._work, self._deleted))
                self._deleted += 1

    def _loaded_cursor(self) -> dict[str, Any]:
        try:
            with open(self._cursor_path, "rb") as file:
                cursor: dict[str, Any] = json.loads(file.read())
                return cursor
        except FileNotFoundError:
            return {"next": 0, "streams": {}}
        except ValueError as error:
            raise IntegrityError(
                f"{self._cursor_path} is damaged: {error}", hint="start anew with --overwrite"
            ) from error


class _ShardStream:
    """One split's tokens on their way into shards."""

    def __init__(
        self, layout: Layout, folder: str, split: str, state: dict[str, Any] | None
    ) -> None:
        self.split = split
        self._layout = layout
        self._format = get_format(layout.format)
        self._folder = folder
        self._token_bytes = DTYPE_BYTES[layout.dtype]
        self._dtype = np.dtype(layout.dtype).newbyteorder("<")
        # A shard is opened with the header of a full one; finish() corrects that of the last.
        self._header = self._format.header(layout.shard_tokens or 0, layout.dtype)
        self._file: storage.GrowingFile | None = None
        state = state or {"num_tokens": 0, "num_eot": 0, "is_open": False, "shards": []}
        self._num_tokens = state["num_tokens"]  # of the open shard
        self._num_eot = state["num_eot"]
        self.shards = [Shard(**shard) for shard in state["shards"]]
        for shard in self.shards:
            if storage.size(os.path.join(folder, shard.name)) not in (None, shard.num_bytes):
                raise IntegrityError(
                    f"{os.path.join(folder, shard.name)} changed since it was written",
                    hint="start anew with --overwrite",
                )
        if state["is_open"]:
            done = len(self._header) + self._num_tokens * self._token_bytes
            self._file = storage.GrowingFile(os.path.join(folder, self._shard_name()), done)

    def write(self, data: memoryview) -> None:
        data = data.cast("B")
        while data:
            if self._file is None:
                self._open()
            assert self._file is not None
            room = len(data)
            if self._layout.shard_tokens is not None:
                room = (self._layout.shard_tokens - self._num_tokens) * self._token_bytes
            piece, data = data[:room], data[room:]
            self._file.write(piece)
            self._num_tokens += len(piece) // self._token_bytes
            self._num_eot += int(
                np.count_nonzero(np.frombuffer(piece, self._dtype) == self._layout.eot_id)
            )
            if self._num_tokens == self._layout.shard_tokens:
                self._complete()

    def finish(self) -> None:
        if self._file is not None:
            header = self._format.header(self._num_tokens, self._layout.dtype)
            if header != self._header:
                self._file.replace_start(header)
            self._complete()

    def sync(self) -> None:
        if self._file is not None:
            self._file.sync()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def state(self) -> dict[str, Any]:
        return {
            "num_tokens": self._num_tokens,
            "num_eot": self._num_eot,
            "is_open": self._file is not None,
            "shards": [asdict(shard) for shard in self.shards],
        }

    def _shard_split(self) -> str:
        return "val" if self._layout.first_shard_is_val and not self.shards else self.split

    def _shard_name(self) -> str:
        return self._format.shard_name(self._layout.name, self._shard_split(), len(self.shards))

    def _open(self) -> None:
        self._file = storage.GrowingFile(os.path.join(self._folder, self._shard_name()), 0)
        self._file.write(self._header)

    def _complete(self) -> None:
        assert self._file is not None
        self._file.sync()
        self._file.close()
        self.shards.append(
            Shard(
                self._shard_name(),
                self._shard_split(),
                self._num_tokens,
                self._num_eot,
                self._file.num_bytes,
                self._file.sha256,
            )
        )
        self._file = None
        self._num_tokens = self._num_eot = 0


def publish(work: str, out: str, shards: list[Shard]) -> None:
    """Move finished shards to the output folder. May be repeated after a crash in the middle."""
    for shard in shards:
        source, target = os.path.join(work, "shards", shard.name), os.path.join(out, shard.name)
        if storage.size(source) is not None:
            storage.rename(source, target)
        elif storage.size(target) != shard.num_bytes:
            raise IntegrityError(
                f"{target} is missing or has changed size since it was written",
                hint="start anew with --overwrite",
            )
