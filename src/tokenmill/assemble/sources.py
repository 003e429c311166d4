"""Where a shard task's tokens come from: parts, in plan order or shuffled, as blocks.

A source travels as plain data, and keeps nothing that would not be the same in another process.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill import storage
from tokenmill.arrays import binary_array, indices
from tokenmill.assemble.task import Block, ShardTask, Stretch
from tokenmill.documents import data_of
from tokenmill.errors import ConflictError, IntegrityError
from tokenmill.formats import DTYPE_BYTES
from tokenmill.objectstore import in_parallel, is_url
from tokenmill.part import PartRun, part_runs
from tokenmill.record import PartRecord, part_path

# Of a file on disk, what stays in the cache between read, hash and write: 4 MB took three times the
# CPU. Of an object, a request.
COPY_BYTES = 256 << 10
REQUEST_BYTES = 32 << 20
RUNS_NAME = "runs.bin"
_RUN_FIELDS = tuple(PartRun.__slots__)


def task_of(plain: dict[str, Any]) -> ShardTask:
    """The task that `to_plain` made plain."""
    kinds: dict[str, Any] = {"parts": PartsInOrder, "buckets": ShuffledParts}
    given = dict(plain["source"])
    return ShardTask.from_plain(plain, kinds[given.pop("kind")](**given))


def _seen_part(work: str, slice_index: int, split: int) -> str:
    """Where a part is that has a record; whoever made it may have been another machine."""
    path = part_path(work, slice_index, split)
    if not is_url(path):
        storage.wait_for(path)
    return path


@dataclass(frozen=True)
class PartsInOrder:
    """One split of the parts in plan order. A block is a run: (slice, tokens at, lengths at)."""

    work: str
    split: int
    dtype: str

    def to_plain(self) -> dict[str, Any]:
        return {"kind": "parts", "work": self.work, "split": self.split, "dtype": self.dtype}

    def blocks(self, record: PartRecord) -> Iterator[Block]:
        for run in part_runs(record, self.split, self.dtype, 0):
            key = (run.slice_index, run.tokens_at, run.lengths_at)
            yield Block(key, run.num_tokens, run.num_documents)

    def tokens(self, stretch: Stretch) -> Iterator[bytes]:
        slice_index, tokens_at, _ = stretch.key
        width = DTYPE_BYTES[self.dtype]
        start, stop = tokens_at + stretch.start * width, tokens_at + stretch.stop * width
        path = _seen_part(self.work, slice_index, self.split)
        step = REQUEST_BYTES if is_url(path) else COPY_BYTES
        ranges = ((at, min(at + step, stop)) for at in range(start, stop, step))
        with _part_expected(path):
            yield from storage.read_in_order(path, ranges)

    def lengths(self, stretch: Stretch) -> npt.NDArray[np.uint32]:
        slice_index, _, lengths_at = stretch.key
        wanted = lengths_at + 4 * stretch.first, lengths_at + 4 * stretch.last
        path = _seen_part(self.work, slice_index, self.split)
        with _part_expected(path):
            return np.frombuffer(storage.read_ranges(path, [wanted])[0], "<u4")


@contextlib.contextmanager
def _part_expected(path: str) -> Iterator[None]:
    """Explain why a part is not there. On a disk it is removed once every shard task that needs it
    has its record; in an object store, when the dataset is complete."""
    try:
        yield
    except FileNotFoundError as error:
        if is_url(path):
            raise ConflictError(
                f"{path} was removed while the run was under way",
                hint="by another run? Once that has ended, run the same command again: it resumes",
            ) from error
        raise IntegrityError(
            f"{path} is gone, although a shard that needs it is not written",
            hint="start again with --overwrite",
        ) from error


@dataclass(frozen=True)
class ShuffledParts:
    """One split of all parts, sorted by key. A block is a bucket of every part.

    Which runs there are is in one file of the work folder, because a task that named them all would
    be as long as the run is.
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

    def save_runs(self, records: Iterable[PartRecord]) -> None:
        rows = [
            [getattr(run, name) for name in _RUN_FIELDS]
            for record in records
            for run in part_runs(record, self.split, self.dtype, self.num_buckets)
        ]
        data = np.array(rows, "<i8").tobytes()
        storage.write_record(self._runs_path, data)

    def blocks(self) -> Iterator[Block]:
        """The buckets, once `save_runs` was called."""
        totals = np.zeros((self.num_buckets + 1, 2), np.int64)
        for directory in in_parallel(self._directory, self._runs):
            totals += directory.astype(np.int64)
        for bucket, (num_documents, num_tokens) in enumerate(np.diff(totals, axis=0).tolist()):
            yield Block((bucket,), num_tokens, num_documents)

    def tokens(self, stretch: Stretch) -> Iterable[Any]:
        documents = self._sorted(stretch.key)
        width = DTYPE_BYTES[self.dtype]
        data = data_of(documents)[stretch.start * width : stretch.stop * width]
        return (data[at : at + COPY_BYTES] for at in range(0, len(data), COPY_BYTES))

    def lengths(self, stretch: Stretch) -> npt.NDArray[np.uint32]:
        lengths, keys, _ = self._bucket(stretch.key[0], has_tokens=False)
        sorted_lengths: npt.NDArray[np.uint32] = lengths[np.argsort(keys, kind="stable")]
        return sorted_lengths[stretch.first : stretch.last]

    def _sorted(self, key: tuple[int, ...]) -> pa.LargeBinaryArray:
        lengths, keys, data = self._bucket(key[0], has_tokens=True)
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        documents = binary_array(offsets * DTYPE_BYTES[self.dtype], data)
        return documents.take(indices(np.argsort(keys, kind="stable")))

    def _bucket(self, bucket: int, has_tokens: bool) -> tuple[Any, Any, Any]:
        """Lengths, keys and tokens of a bucket's documents, run after run."""
        room = _Room() if has_tokens and not is_url(self.work) else None
        read = functools.partial(self._read_run, bucket, has_tokens, room)
        found = list((map if room or not is_url(self.work) else in_parallel)(read, self._runs))
        data = b"".join(one[2] for one in found) if room is None else room.filled
        lengths, keys = (np.concatenate([one[i] for one in found]) for i in (0, 1))
        return lengths, keys, data

    def _read_run(
        self, bucket: int, has_tokens: bool, room: _Room | None, run: PartRun
    ) -> tuple[Any, Any, bytes]:
        """(lengths, keys, tokens) of the bucket's documents in a run. If there is room, the tokens
        go there."""
        width = DTYPE_BYTES[self.dtype]
        with _part_expected(self._path(run)), storage.RangeReader(self._path(run)) as file:
            (first, first_token), (last, last_token) = _starts(file, run, bucket, 2).tolist()
            start, stop = (run.tokens_at + token * width for token in (first_token, last_token))
            ranges = [
                (run.lengths_at + 4 * first, run.lengths_at + 4 * last),
                (run.keys_at + 4 * first, run.keys_at + 4 * last),
                (start, stop if has_tokens and room is None else start),
            ]
            lengths, keys, tokens = file.read(ranges)
            if room is not None:
                file.read_into(room.more(stop - start), start)
        return np.frombuffer(lengths, "<u4"), np.frombuffer(keys, "<u4"), tokens

    def _directory(self, run: PartRun) -> npt.NDArray[np.uint64]:
        with _part_expected(self._path(run)), storage.RangeReader(self._path(run)) as file:
            return _starts(file, run, 0, self.num_buckets + 1)

    def _path(self, run: PartRun) -> str:
        return _seen_part(self.work, run.slice_index, self.split)

    @property
    def _runs_path(self) -> str:
        return f"{self.work}/{self.split}-{RUNS_NAME}"

    @functools.cached_property
    def _runs(self) -> Sequence[PartRun]:
        if not is_url(self.work):
            storage.wait_for(self._runs_path)
        rows = np.frombuffer(storage.read_file(self._runs_path), "<i8")
        if len(rows) % len(_RUN_FIELDS):
            raise IntegrityError(f"{self._runs_path} is damaged", hint="start again: --overwrite")
        return [PartRun(*row) for row in rows.reshape(-1, len(_RUN_FIELDS)).tolist()]


def _starts(
    file: storage.RangeReader, run: PartRun, first: int, count: int
) -> npt.NDArray[np.uint64]:
    """Where buckets `first` and so on begin in a run: (documents, tokens) each."""
    at = run.directory_at + 16 * first
    [data] = file.read([(at, at + 16 * count)])
    return np.frombuffer(data, "<u8").reshape(-1, 2)


class _Room:
    """A bucket's tokens, one after the other, in memory that this thread keeps for the next bucket:
    fresh memory would cost more than the bytes that are read into it."""

    _kept = threading.local()

    def __init__(self) -> None:
        self._data: Any = getattr(self._kept, "data", np.empty(0, np.uint8))
        self._num_bytes = 0

    def more(self, num_bytes: int) -> memoryview:
        """Where the next bytes go."""
        start, stop = self._num_bytes, self._num_bytes + num_bytes
        if stop > len(self._data):
            larger = np.empty(stop + stop // 2, np.uint8)
            larger[:start] = self._data[:start]
            self._data = self._kept.data = larger
        self._num_bytes = stop
        return memoryview(self._data)[start:stop]

    @property
    def filled(self) -> memoryview:
        return memoryview(self._data)[: self._num_bytes]
