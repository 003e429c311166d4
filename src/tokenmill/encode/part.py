"""A part: one slice's encoded tokens and document lengths, committed to disk with its record.

Each split has its own file, so that one can be removed while the other is still needed; a split
without documents has no file. A part file is a sequence of chunks, nearly always one. A huge
unsplittable slice (one .jsonl.gz of 20 GB) has a chunk for every 64 MB of tokens, so that a
worker's memory stays flat. A chunk is

    tokens | lengths | sums of blocks                in plan order
    tokens | lengths | keys | directory of buckets   shuffled

with lengths (in tokens) and keys as uint32. A shuffled chunk has its documents sorted by key; a
bucket is a range of keys. Its row in the directory has four uint64: the documents and the tokens
before it, the sum of its tokens, and the sum of its lengths and keys (part_sums.py).

The record, a small JSON file, is written after the part: without a record there is no part.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from tokenmill.arrays import indices, offsets_of
from tokenmill.encode.documents import data_of, shuffle_keys
from tokenmill.encode.kept_file import KEPT, KeptWriter
from tokenmill.encode.part_sums import (
    BlockSums,
    Different,
    num_sum_bytes,
    require_directory,
    require_sum,
    sum_of,
    with_sum,
)
from tokenmill.encode.record import (
    SPLITS,
    Counts,
    PartChunk,
    PartRecord,
    Quarantined,
    kept_path,
    part_path,
)
from tokenmill.encode.text_hashes import HASHED, Hashed, hashes_of, save_hashes
from tokenmill.formats import DTYPE_BYTES
from tokenmill.storage.local import RangeRead
from tokenmill.storage.new_file import NewFile
from tokenmill.storage.store import new_file

CHUNK_BYTES = 64 << 20
TOKENS = "tokens"  # the column of documents' tokens
DIRECTORY_ROW_BYTES = 32
# Protects against accidents, not against attackers: 30 GB/s, where sha256 does 1.8.
PART_CHECKSUM = xxhash.xxh3_128


class PartWriter:
    """Collects a slice's documents and commits them as its part and record."""

    def __init__(
        self,
        work: str,
        slice_index: int,
        dtype: str,
        num_buckets: int,
        seed: int,
        *,
        key_index: int | None = None,
        has_hashes: bool = False,
        kept_types: str | None = None,
    ) -> None:
        """`key_index` is the index that shuffle keys are made from, if it is not `slice_index`.
        With `has_hashes`, the documents' hashes are saved beside the part."""
        self._key_index = slice_index if key_index is None else key_index
        self._hashes: list[Hashed] | None = [] if has_hashes else None  # in the part's order
        self._work = work
        self._slice_index = slice_index
        self._dtype_bytes = DTYPE_BYTES[dtype]
        self._num_buckets = num_buckets  # 0: not shuffled
        self._seed = seed
        self._chunks: list[PartChunk] = []
        self._held: tuple[list[pa.RecordBatch], ...] = ([], [])  # by split
        self._held_bytes = 0
        self._num_keys = 0
        self._files: dict[int, NewFile] = {}  # by split
        self._kept: dict[int, KeptWriter] = {}  # by split
        self._kept_types = kept_types

    def append(self, split: int, documents: pa.RecordBatch) -> None:
        """Add documents: their TOKENS as bytes, their HASHES (--dedup), and columns that begin
        with KEPT (--keep)."""
        if len(documents):
            self._held[split].append(documents)
            self._held_bytes += len(data_of(documents.column(TOKENS)))
        if self._held_bytes >= CHUNK_BYTES:
            self._write_chunk()

    def commit(
        self,
        plan_id: str,
        counts: Counts,
        quarantined: tuple[Quarantined, ...],
        *,
        content: str = "",
        last_place: str = "",
    ) -> PartRecord:
        """Save the part's record, and return it."""
        if any(self._held) or not self._chunks:
            self._write_chunk()
        for file in self._files.values():
            file.commit()
        for writer in self._kept.values():
            writer.commit()
        kept = [self._kept[split].file if split in self._kept else None for split in range(2)]
        if self._hashes is not None:
            rows = np.concatenate([np.empty(0, HASHED), *self._hashes])
            save_hashes(self._work, plan_id, self._slice_index, rows)
        made = [self._files.get(split) for split in range(len(SPLITS))]
        record = PartRecord(
            self._slice_index,
            plan_id,
            (_size(made[0]), _size(made[1])),
            (_digest(made[0]), _digest(made[1])),
            tuple(self._chunks),
            counts,
            quarantined,
            last_place,
            (_size(kept[0]), _size(kept[1])),
            (_digest(kept[0]), _digest(kept[1])),
            content=content,
        )
        record.save(self._work)
        return record

    def discard(self) -> None:
        """Remove the temporary files; does nothing after `commit`."""
        for file in (*self._files.values(), *(writer.file for writer in self._kept.values())):
            file.__exit__(None, None, None)

    def _write_chunk(self) -> None:
        num_tokens, num_documents = [0, 0], [0, 0]
        for split, held in enumerate(self._held):
            if held:
                num_tokens[split], num_documents[split] = self._write_split(split, held)
        self._chunks.append(
            PartChunk((num_tokens[0], num_tokens[1]), (num_documents[0], num_documents[1]))
        )
        self._held = ([], [])
        self._held_bytes = 0

    def _write_split(self, split: int, held: list[pa.RecordBatch]) -> tuple[int, int]:
        """Append one split's chunk to its file; returns its numbers of tokens and documents."""
        tails: list[npt.NDArray[Any]] = []
        order: npt.NDArray[np.int64] | None = None
        arrays = [documents.column(TOKENS) for documents in held]
        if self._num_buckets:
            arrays, order, *tails = self._sorted(arrays)
        if self._hashes is not None:
            hashes = np.concatenate([hashes_of(documents) for documents in held])
            self._hashes.append(hashes if order is None else hashes[order])
        lengths = np.concatenate([np.diff(offsets_of(array)) for array in arrays])
        lengths //= self._dtype_bytes
        file, sums = self._file_of(split), BlockSums()
        for data in (*map(data_of, arrays), lengths.astype("<u4")):
            file.write(data)
            if order is None:
                sums.add(data)
        for tail in tails if tails else [sums.to_array()]:
            file.write(tail)
        names = [name for name in held[0].schema.names if name.startswith(KEPT)]
        if names:
            table = pa.Table.from_batches([documents.select(names) for documents in held])
            [kept] = table.combine_chunks().to_batches()
            self._write_kept(split, kept, lengths, order, tails)
        return int(lengths.sum()), len(lengths)

    def _write_kept(
        self,
        split: int,
        rows: pa.RecordBatch,
        lengths: npt.NDArray[Any],
        order: npt.NDArray[np.int64] | None,
        tails: list[npt.NDArray[Any]],
    ) -> None:
        """Write what is kept of the documents, in their order."""
        if split not in self._kept:
            path = kept_path(self._work, self._slice_index, split)
            file = new_file(path, PART_CHECKSUM(), is_durable=False)
            self._kept[split] = KeptWriter(file, self._kept_types)
        if order is None:
            self._kept[split].write(rows, lengths)
            return
        keys, directory = tails
        rows = rows.take(indices(order))
        self._kept[split].write(rows, lengths, keys, directory[:, 0].astype(np.int64).tolist())

    def _file_of(self, split: int) -> NewFile:
        if split not in self._files:
            path = part_path(self._work, self._slice_index, split)
            self._files[split] = new_file(path, PART_CHECKSUM(), is_durable=False)
        return self._files[split]

    def _sorted(
        self, held: list[pa.LargeBinaryArray]
    ) -> tuple[list[pa.LargeBinaryArray], Any, npt.NDArray[np.uint32], npt.NDArray[np.uint64]]:
        """The documents sorted by key, the position of each before that, their keys, and the
        directory of buckets."""
        documents = pa.concat_arrays(held)
        keys = shuffle_keys(self._seed, self._key_index, self._num_keys, len(documents))
        self._num_keys += len(documents)
        order = np.argsort(keys, kind="stable")
        documents, keys = documents.take(indices(order)), keys[order]
        starts = np.searchsorted(keys, bucket_bounds(self._num_buckets))
        offsets, keys = offsets_of(documents), keys.astype("<u4")
        data, lengths = data_of(documents), (np.diff(offsets) // self._dtype_bytes).astype("<u4")
        places = (offsets[starts] - offsets[0]).tolist()
        sums = np.zeros((len(starts), 2), "<u8")
        for bucket, (first, last) in enumerate(itertools.pairwise(starts.tolist())):
            sums[bucket, 0] = sum_of(data[places[bucket] : places[bucket + 1]])
            sums[bucket, 1] = sum_of(lengths[first:last], keys[first:last])
        tokens = np.array(places) // self._dtype_bytes
        directory = np.column_stack([starts, tokens]).astype("<u8")
        return [documents], order, keys, with_sum(np.hstack([directory, sums]))


def _size(file: NewFile | None) -> int:
    return 0 if file is None else file.num_bytes


def _digest(file: NewFile | None) -> str:
    return "" if file is None else file.digest


class SplitChunk(NamedTuple):
    """One split's part of a chunk: its byte positions in the split's part file."""

    slice_index: int
    num_tokens: int
    num_documents: int
    tokens_at: int
    lengths_at: int
    keys_at: int  # if shuffled
    directory_at: int  # if shuffled; else its sums are there

    @property
    def place(self) -> tuple[int, int]:
        """Where its tokens and lengths are, in plan order; their sums follow."""
        return self.tokens_at, self.keys_at


def split_chunks(
    slice_index: int, chunks: Iterable[PartChunk], split: int, dtype: str, num_buckets: int = 0
) -> Iterator[SplitChunk]:
    """The positions of a split's chunks in its part file; chunks without documents are left out."""
    at = 0
    for chunk in chunks:
        num_tokens, num_documents = chunk.num_tokens[split], chunk.num_documents[split]
        if not num_documents:
            continue
        lengths_at = at + num_tokens * DTYPE_BYTES[dtype]
        keys_at = lengths_at + 4 * num_documents
        directory_at = keys_at + 4 * num_documents if num_buckets else keys_at
        yield SplitChunk(
            slice_index, num_tokens, num_documents, at, lengths_at, keys_at, directory_at
        )
        directory_bytes = num_sum_bytes(keys_at - at)
        if num_buckets:
            directory_bytes = DIRECTORY_ROW_BYTES * (num_buckets + 1)
        at = directory_at + directory_bytes


def bucket_bounds(num_buckets: int) -> npt.NDArray[np.uint64]:
    """The first key of each bucket, and one past the last key."""
    return (np.arange(num_buckets + 1, dtype=np.uint64) << np.uint64(32)) // np.uint64(num_buckets)


# Reading a shuffled chunk


def directory_of(read: RangeRead, chunk: SplitChunk, num_buckets: int) -> npt.NDArray[np.uint64]:
    """The whole directory of a chunk. Raises Different."""
    rows = _directory_rows(read, chunk, 0, num_buckets + 1)
    require_directory(rows)
    return rows


def bucket_of(read: RangeRead, chunk: SplitChunk, bucket: int, token_bytes: int) -> tuple[Any, ...]:
    """(lengths, keys, tokens) of the documents in a bucket; without tokens if `token_bytes`, the
    size of one, is 0. Raises Different."""
    (first, first_token, of_tokens, of_rest), (last, last_token, *_) = _directory_rows(
        read, chunk, bucket, 2
    ).tolist()
    if not (0 <= first <= last <= chunk.num_documents and first_token <= last_token):
        raise Different
    if last_token > chunk.num_tokens:
        raise Different
    ranges = [
        (chunk.lengths_at + 4 * first, chunk.lengths_at + 4 * last),
        (chunk.keys_at + 4 * first, chunk.keys_at + 4 * last),
    ]
    if token_bytes:
        start = chunk.tokens_at
        ranges.append((start + first_token * token_bytes, start + last_token * token_bytes))
    lengths, keys, *tokens = read(ranges)
    require_sum(of_rest, lengths, keys)
    if token_bytes:
        require_sum(of_tokens, *tokens)
    return np.frombuffer(lengths, "<u4"), np.frombuffer(keys, "<u4"), *tokens


def _directory_rows(
    read: RangeRead, chunk: SplitChunk, first: int, count: int
) -> npt.NDArray[np.uint64]:
    at = chunk.directory_at + DIRECTORY_ROW_BYTES * first
    [data] = read([(at, at + DIRECTORY_ROW_BYTES * count)])
    return np.frombuffer(data, "<u8").reshape(-1, 4)
