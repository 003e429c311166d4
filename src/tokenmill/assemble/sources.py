"""Where a shard task's tokens come from: parts, in plan order or shuffled, as blocks.

A source is sent to workers as plain data, and caches only what any process would read the same.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.arrays import binary_array, indices
from tokenmill.assemble.parts_in_use import are_removed_early
from tokenmill.assemble.sidecars import KeptParts
from tokenmill.assemble.task import Block, ShardTask, Stretch
from tokenmill.encode.documents import data_of
from tokenmill.encode.part import SplitChunk, bucket_of, directory_of, split_chunks
from tokenmill.encode.part_sums import checked_stretch, twice
from tokenmill.encode.record import PartChunk, PartRecord, part_path
from tokenmill.errors import ConflictError, DamagedWorkError
from tokenmill.formats import DTYPE_BYTES
from tokenmill.storage.objects import in_parallel
from tokenmill.storage.store import each, save_record, store_of, wait_for

# Small enough to stay in the CPU cache between read, hash and write: 4 MB took three times the CPU.
COPY_BYTES = 256 << 10
CHUNKS_NAME = "runs.bin"


def task_of(plain: dict[str, Any]) -> ShardTask:
    """The task that `ShardTask.to_plain` turned into plain data."""
    kinds: dict[str, Any] = {"parts": PartsInOrder, "buckets": ShuffledParts, "kept": KeptParts}
    given = dict(plain["source"])
    return ShardTask.from_plain(plain, kinds[given.pop("kind")](**given))


def _visible_part(work: str, slice_index: int, split: int) -> str:
    """The path of a part that has a record, once it is visible here: another machine may have
    written it."""
    path = part_path(work, slice_index, split)
    wait_for(path)
    return path


@dataclass(frozen=True)
class PartsInOrder:
    """One split of the parts in plan order. A block is a chunk: (slice, tokens at, lengths at, sums
    at)."""

    work: str
    split: int
    dtype: str

    def to_plain(self) -> dict[str, Any]:
        return {"kind": "parts", "work": self.work, "split": self.split, "dtype": self.dtype}

    def blocks(self, slice_index: int, chunks: Iterable[PartChunk]) -> Iterator[Block]:
        for chunk in split_chunks(slice_index, chunks, self.split, self.dtype):
            key = (chunk.slice_index, chunk.tokens_at, chunk.lengths_at, chunk.directory_at)
            yield Block(key, chunk.num_tokens, chunk.num_documents)

    def tokens(self, stretch: Stretch) -> Iterator[memoryview]:
        tokens_at, width = stretch.key[1], DTYPE_BYTES[self.dtype]
        return self._bytes(
            stretch.key, tokens_at + stretch.start * width, tokens_at + stretch.stop * width
        )

    def lengths(self, stretch: Stretch) -> npt.NDArray[np.uint32]:
        at = stretch.key[2]
        found = self._bytes(stretch.key, at + 4 * stretch.first, at + 4 * stretch.last)
        return np.frombuffer(b"".join(found), "<u4")

    def _bytes(self, key: tuple[int, ...], start: int, stop: int) -> Iterator[memoryview]:
        slice_index, tokens_at, _, sums_at = key
        path = _visible_part(self.work, slice_index, self.split)
        with _part_expected(path):
            chunk = tokens_at, sums_at
            yield from checked_stretch(self.work, slice_index, path, chunk, start, stop)


@contextlib.contextmanager
def _part_expected(path: str) -> Iterator[None]:
    """Explain why a part is missing."""
    try:
        yield
    except FileNotFoundError as error:
        if not are_removed_early(path):
            raise ConflictError(
                f"{path} was removed while the run was working, perhaps by another run",
                hint="when no other run is active, run the same command again: it resumes",
            ) from error
        raise DamagedWorkError(
            f"{path} is gone, but a shard that needs it is not written yet",
            hint="start again with --overwrite",
        ) from error


@dataclass(frozen=True)
class ShuffledParts:
    """One split of all parts, sorted by key. A block is one bucket of every part.

    A file of the work folder lists the chunks: a task that listed them would grow with the run.
    """

    work: str
    split: int
    dtype: str
    num_buckets: int

    def to_plain(self) -> dict[str, Any]:
        return {
            "kind": "buckets",
            "work": self.work,
            "split": self.split,
            "dtype": self.dtype,
            "num_buckets": self.num_buckets,
        }

    def save_chunks(self, records: Iterable[PartRecord]) -> None:
        rows = [
            chunk
            for record in records
            for chunk in split_chunks(
                record.part, record.chunks, self.split, self.dtype, self.num_buckets
            )
        ]
        data = np.array(rows, "<i8").tobytes()
        save_record(self._chunks_path, data)

    def blocks(self) -> Iterator[Block]:
        """The buckets; call `save_chunks` first."""
        totals = np.zeros((self.num_buckets + 1, 2), np.int64)
        for directory in in_parallel(self._directory, self._chunks):
            totals += directory.astype(np.int64)
        for bucket, (num_documents, num_tokens) in enumerate(np.diff(totals, axis=0).tolist()):
            yield Block((bucket,), num_tokens, num_documents)

    def tokens(self, stretch: Stretch) -> Iterable[Any]:
        documents = self._sorted(stretch.key)
        width = DTYPE_BYTES[self.dtype]
        data = data_of(documents)[stretch.start * width : stretch.stop * width]
        return (data[at : at + COPY_BYTES] for at in range(0, len(data), COPY_BYTES))

    def lengths(self, stretch: Stretch) -> npt.NDArray[np.uint32]:
        lengths, keys = zip(*self._read(stretch.key, has_tokens=False), strict=True)
        order = np.argsort(np.concatenate(keys), kind="stable")
        sorted_lengths: npt.NDArray[np.uint32] = np.concatenate(lengths)[order]
        return sorted_lengths[stretch.first : stretch.last]

    def _sorted(self, key: tuple[int, ...]) -> pa.LargeBinaryArray:
        width = DTYPE_BYTES[self.dtype]
        found = list(self._read(key, has_tokens=True))
        offsets = np.zeros(sum(len(one[0]) for one in found) + 1, np.int64)
        np.cumsum(np.concatenate([one[0] for one in found]), out=offsets[1:])
        data = b"".join(one[2] for one in found)
        documents = binary_array(offsets * width, data)
        keys = np.concatenate([one[1] for one in found])
        return documents.take(indices(np.argsort(keys, kind="stable")))

    def _read(self, key: tuple[int, ...], has_tokens: bool) -> Iterator[tuple[Any, ...]]:
        """(lengths, keys, tokens) of the bucket's documents, chunk by chunk."""
        read = functools.partial(self._read_chunk, key[0], has_tokens)
        return each(store_of(self.work), read, self._chunks)

    def _read_chunk(self, bucket: int, has_tokens: bool, chunk: SplitChunk) -> tuple[Any, ...]:
        path = self._path(chunk)
        with _part_expected(path), store_of(self.work).range_reader(path) as read:
            read_bucket = functools.partial(
                bucket_of, read, chunk, bucket, DTYPE_BYTES[self.dtype] if has_tokens else 0
            )
            return twice(read_bucket, self.work, chunk.slice_index, path)

    def _directory(self, chunk: SplitChunk) -> npt.NDArray[np.uint64]:
        """The documents and tokens before each bucket, and in all."""
        path = self._path(chunk)
        with _part_expected(path), store_of(self.work).range_reader(path) as read:
            read_directory = functools.partial(directory_of, read, chunk, self.num_buckets)
            return twice(read_directory, self.work, chunk.slice_index, path)[:, :2]

    def _path(self, chunk: SplitChunk) -> str:
        return _visible_part(self.work, chunk.slice_index, self.split)

    @property
    def _chunks_path(self) -> str:
        return f"{self.work}/{self.split}-{CHUNKS_NAME}"

    @functools.cached_property
    def _chunks(self) -> Sequence[SplitChunk]:
        wait_for(self._chunks_path)
        rows = np.frombuffer(store_of(self.work).read(self._chunks_path), "<i8")
        if len(rows) % len(SplitChunk._fields):
            raise DamagedWorkError(
                f"{self._chunks_path} is damaged", hint="start again: --overwrite"
            )
        return [SplitChunk(*row) for row in rows.reshape(-1, len(SplitChunk._fields)).tolist()]
