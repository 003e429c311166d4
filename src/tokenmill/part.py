"""A part: one slice's encoded tokens and document lengths, committed to disk with its record.

A part file is a sequence of runs, nearly always one; a huge unsplittable slice (one .jsonl.gz of
20 GB) has one run per 64 MB of tokens, so that a worker's memory stays flat. A run is

    train tokens | val tokens | train lengths | val lengths                       always
    train keys   | val keys   | train bucket starts | val bucket starts           if shuffled

with lengths (in tokens) and keys as uint32, and the starts of each bucket as pairs of uint64
(documents, tokens). In a shuffled run the documents are sorted by key; a bucket is a range of keys.

The record, a small JSON file written after the part, is what counts: no record, no part.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from tokenmill import storage
from tokenmill.arrays import binary_array, binary_array_of, indices, offsets_of
from tokenmill.documents import data_of, shuffle_keys
from tokenmill.formats import DTYPE_BYTES
from tokenmill.record import (
    SPLITS,
    Counts,
    PartRecord,
    Quarantined,
    Run,
    part_path,
    record_path,
)
from tokenmill.seal import sealed

RUN_BYTES = 64 << 20
# Against accidents, not against people: 30 GB/s where sha256 does 1.8.
PART_CHECKSUM = xxhash.xxh3_128


class PartWriter:
    """Collects a slice's documents and commits them as its part and record."""

    def __init__(
        self, work: str, slice_index: int, dtype: str, num_buckets: int, seed: int
    ) -> None:
        self._work = work
        self._slice_index = slice_index
        self._dtype_bytes = DTYPE_BYTES[dtype]
        self._num_buckets = num_buckets  # 0: not shuffled
        self._seed = seed
        self._runs: list[Run] = []
        self._held: tuple[list[pa.LargeBinaryArray], ...] = ([], [])
        self._held_bytes = 0
        self._num_keys = 0
        path = part_path(work, slice_index)
        folder, name = os.path.split(path)
        self._file = storage.NewFile(folder, name, PART_CHECKSUM(), is_durable=False)

    def append(self, split: int, documents: pa.LargeBinaryArray) -> None:
        if len(documents):
            self._held[split].append(documents)
            self._held_bytes += len(data_of(documents))
        if self._held_bytes >= RUN_BYTES:
            self._write_run()

    def commit(
        self, plan_id: str, counts: Counts, quarantined: tuple[Quarantined, ...]
    ) -> PartRecord:
        if self._held_bytes or not self._runs:
            self._write_run()
        self._file.commit()
        record = PartRecord(
            self._slice_index,
            plan_id,
            self._file.num_bytes,
            self._file.digest,
            tuple(self._runs),
            counts,
            quarantined,
        )
        data = sealed(json.dumps(record.to_plain(), sort_keys=True).encode())
        storage.write_record(record_path(self._work, self._slice_index), data, is_durable=False)
        return record

    def discard(self) -> None:
        """Remove the temporary file; does nothing after `commit`."""
        self._file.__exit__(None, None, None)

    def _write_run(self) -> None:
        tails: list[npt.NDArray[Any]] = []
        directories: list[npt.NDArray[Any]] = []
        num_tokens, num_documents = [0, 0], [0, 0]
        all_lengths = []
        for split in range(len(SPLITS)):
            held = self._held[split]
            if self._num_buckets:
                held, keys, directory = self._sorted(held)
                tails.append(keys)
                directories.append(directory)
            lengths = [np.diff(offsets_of(documents)) // self._dtype_bytes for documents in held]
            for documents in held:
                self._file.write(data_of(documents))
            all_lengths.append(_joined(lengths, np.int64))
            num_tokens[split] = int(all_lengths[split].sum())
            num_documents[split] = len(all_lengths[split])
        for array in (*(lengths.astype("<u4") for lengths in all_lengths), *tails, *directories):
            self._file.write(array)
        self._runs.append(Run((num_tokens[0], num_tokens[1]), (num_documents[0], num_documents[1])))
        self._held = ([], [])
        self._held_bytes = 0

    def _sorted(
        self, held: list[pa.LargeBinaryArray]
    ) -> tuple[list[pa.LargeBinaryArray], npt.NDArray[np.uint32], npt.NDArray[np.uint64]]:
        """The documents sorted by key, their keys, and the bucket starts (documents, tokens)."""
        documents = pa.concat_arrays(held) if held else binary_array_of([])
        keys = shuffle_keys(self._seed, self._slice_index, self._num_keys, len(documents))
        self._num_keys += len(documents)
        order = np.argsort(keys, kind="stable")
        documents, keys = documents.take(indices(order)), keys[order]
        starts = np.searchsorted(keys, bucket_bounds(self._num_buckets))
        tokens = offsets_of(documents)[starts] // self._dtype_bytes
        directory = np.stack([starts, tokens - tokens[0]], axis=1).astype("<u8")
        return [documents], keys.astype("<u4"), directory


@dataclass(frozen=True, slots=True)
class PartRun:
    """One split's share of a run: where it stands in the part file."""

    tokens_at: int
    num_tokens: int
    lengths_at: int
    num_documents: int


@dataclass(frozen=True, slots=True)
class PartDirectory:
    """Where a split's buckets stand in a run: bucket b is rows b to b + 1 of `starts`, which are
    (documents, tokens) counted from these places."""

    tokens_at: int
    lengths_at: int
    keys_at: int
    starts: npt.NDArray[np.uint64]


class PartReader:
    """Reads back what PartWriter wrote: whole splits, or one bucket of them."""

    def __init__(self, work: str, record: PartRecord, dtype: str, num_buckets: int) -> None:
        self._path = part_path(work, record.slice_index)
        self._runs = record.runs
        self._dtype_bytes = DTYPE_BYTES[dtype]
        self._num_buckets = num_buckets

    def runs(self, split: int) -> list[PartRun]:
        """Where the split's tokens and lengths stand in the part file, in order."""
        found = []
        for start, run in self._run_starts():
            before = run.num_tokens[0] if split == 1 else 0
            documents_before = run.num_documents[0] if split == 1 else 0
            lengths_at = start + sum(run.num_tokens) * self._dtype_bytes
            if run.num_documents[split]:
                found.append(
                    PartRun(
                        start + before * self._dtype_bytes,
                        run.num_tokens[split],
                        lengths_at + 4 * documents_before,
                        run.num_documents[split],
                    )
                )
        return found

    def lengths(self, run: PartRun) -> npt.NDArray[np.uint32]:
        """In tokens, of the run's documents."""
        with open(self._path, "rb", buffering=0) as file:
            data = _pread(file.fileno(), 4 * run.num_documents, run.lengths_at)
        return np.frombuffer(data, "<u4")

    def directories(self, split: int) -> list[PartDirectory]:
        """Where each bucket of the split stands in the part file, a directory for each run."""
        if not self._num_buckets:
            return []
        count = 2 * (self._num_buckets + 1)
        found = [(start, run) for start, run in self._run_starts() if run.num_documents[split]]
        places = [self._places_of(start, run, split) for start, run in found]
        ranges = [(at, at + 8 * count) for _, _, _, at in places]
        tables = storage.read_ranges(self._path, ranges)
        return [
            PartDirectory(*place[:3], np.frombuffer(table, "<u8").reshape(-1, 2))
            for place, table in zip(places, tables, strict=True)
        ]

    def _places_of(self, start: int, run: Run, split: int) -> tuple[int, int, int, int]:
        """Where a shuffled run's tokens, lengths, keys and directory of a split begin."""
        tokens_at = start + (run.num_tokens[0] if split else 0) * self._dtype_bytes
        lengths_at = start + sum(run.num_tokens) * self._dtype_bytes
        keys_at = lengths_at + 4 * sum(run.num_documents)
        directory_at = keys_at + 4 * sum(run.num_documents) + split * 16 * (self._num_buckets + 1)
        skip = 4 * run.num_documents[0] if split else 0
        return tokens_at, lengths_at + skip, keys_at + skip, directory_at

    def bucket(self, split: int, bucket: int) -> list[PartBucket]:
        """Where one bucket's documents stand, run by run."""
        found = []
        with open(self._path, "rb", buffering=0) as file:
            for start, run in self._run_starts():
                if run.num_documents[split]:
                    found.append(self._bucket_of_run(file.fileno(), start, run, split, bucket))
        return found

    def _run_starts(self) -> list[tuple[int, Run]]:
        starts, start = [], 0
        for run in self._runs:
            starts.append((start, run))
            start += sum(run.num_tokens) * self._dtype_bytes + 4 * sum(run.num_documents)
            if self._num_buckets:
                start += 4 * sum(run.num_documents) + 2 * 16 * (self._num_buckets + 1)
        return starts

    def _bucket_of_run(self, fd: int, start: int, run: Run, split: int, bucket: int) -> PartBucket:
        tokens_at, lengths_at, keys_at, directory_at = self._places_of(start, run, split)
        bounds = np.frombuffer(_pread(fd, 32, directory_at + 16 * bucket), "<u8").tolist()
        first, first_token, last, last_token = bounds
        return PartBucket(
            self._path,
            keys_at + 4 * first,
            lengths_at + 4 * first,
            last - first,
            tokens_at + first_token * self._dtype_bytes,
            (last_token - first_token) * self._dtype_bytes,
        )


@dataclass(frozen=True, slots=True)
class PartBucket:
    """Where a bucket's documents stand in one run of a part file."""

    path: str
    keys_at: int
    lengths_at: int
    num_documents: int
    tokens_at: int
    num_bytes: int  # of the tokens

    def read_into(self, keys: Any, lengths: Any, tokens: Any) -> None:
        """Fill arrays of the right sizes."""
        with open(self.path, "rb", buffering=0) as file:
            for array, offset in (
                (keys, self.keys_at),
                (lengths, self.lengths_at),
                (tokens, self.tokens_at),
            ):
                if os.preadv(file.fileno(), [array], offset) != array.nbytes:
                    raise OSError(f"part file {self.path} ends too early")


class Bucket:
    """One bucket of every part, as one array: read into memory that is used again and again."""

    def __init__(self, dtype: str) -> None:
        self._dtype_bytes = DTYPE_BYTES[dtype]
        self._room = np.empty(0, np.uint8)

    def shuffled(self, found: list[PartBucket]) -> pa.LargeBinaryArray:
        """Their documents, sorted by key: a stretch of the corpus's shuffle."""
        num_documents = sum(one.num_documents for one in found)
        num_bytes = sum(one.num_bytes for one in found)
        if num_bytes > len(self._room):
            self._room = np.empty(num_bytes + num_bytes // 8, np.uint8)
        keys, lengths = (np.empty(num_documents, "<u4") for _ in range(2))
        document = byte = 0
        for one in found:
            some = slice(document, document + one.num_documents)
            one.read_into(keys[some], lengths[some], self._room[byte : byte + one.num_bytes])
            document, byte = some.stop, byte + one.num_bytes
        offsets = np.zeros(num_documents + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        documents = binary_array(offsets * self._dtype_bytes, self._room)
        return documents.take(indices(np.argsort(keys, kind="stable")))


def bucket_bounds(num_buckets: int) -> npt.NDArray[np.uint64]:
    """The first key of each bucket, and one past the last key of all."""
    return (np.arange(num_buckets + 1, dtype=np.uint64) << np.uint64(32)) // np.uint64(num_buckets)


def _pread(fd: int, size: int, offset: int) -> bytes:
    data = os.pread(fd, size, offset)
    if len(data) != size:
        raise OSError(f"part file ends {size - len(data)} bytes early")
    return data


def _joined(arrays: list[npt.NDArray[Any]], dtype: type) -> npt.NDArray[Any]:
    return np.concatenate(arrays) if arrays else np.empty(0, dtype)
