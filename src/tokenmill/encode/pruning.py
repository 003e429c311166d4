"""Writes a part again without copies of earlier documents (`--dedup exact`).

A slice is encoded before the contents of earlier slices are known. Once they are, a part that has
copies is written again without them, as the slice would have been encoded without those rows. The
new part has its own index, because a committed file never changes.
"""

from __future__ import annotations

import base64
import functools
import itertools
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.arrays import binary_array, indices
from tokenmill.corpus.spans import Slice
from tokenmill.encode.documents import shuffle_keys
from tokenmill.encode.job import Job
from tokenmill.encode.kept_file import KEPT, KeptFile, KeptReader
from tokenmill.encode.part import TOKENS, PartWriter, SplitChunk, bucket_of, split_chunks
from tokenmill.encode.part_sums import checked_stretch, twice
from tokenmill.encode.record import SPLITS, Counts, PartRecord, committed_record, part_path
from tokenmill.encode.text_hashes import Hashed, saved_hashes
from tokenmill.errors import DamagedWorkError
from tokenmill.formats import DTYPE_BYTES
from tokenmill.storage.store import store_of, wait_for

Flags = npt.NDArray[np.bool_]


def packed_flags(flags: Flags) -> str:
    """Flags as text, for `Slice.copies`."""
    return base64.b64encode(np.packbits(flags).tobytes()).decode()


def copies_of(job: Job, slice_: Slice) -> tuple[Hashed, Flags]:
    """The hashes of the original slice's documents, and which documents are copies."""
    assert slice_.original is not None
    rows = saved_hashes(job.work, job.plan_id, slice_.original)
    if rows is None:
        raise _gone(f"the hashes of slice {slice_.original}")
    bits = np.frombuffer(base64.b64decode(slice_.copies), np.uint8)
    return rows, np.unpackbits(bits, count=len(rows)).astype(np.bool_)


def pruned(job: Job, slice_: Slice) -> PartRecord:
    """Commit the part of the original slice again, without its copies."""
    assert slice_.original is not None
    record = committed_record(job.work, slice_.original, job.plan_id)
    if record is None:
        raise _gone(f"the record of slice {slice_.original}")
    rows, is_copy = copies_of(job, slice_)
    writer = PartWriter(
        job.work,
        slice_.index,
        job.dtype,
        job.num_buckets,
        job.seed,
        key_index=slice_.original,
        kept_types=job.read.kept_types,
    )
    try:
        at = 0
        for split, documents in _documents(job, record):
            positions = np.flatnonzero(~is_copy[at : at + len(documents)])
            if job.num_buckets:  # undo the sorting by key: the writer sorts by new keys
                keys = shuffle_keys(job.seed, slice_.original, at, len(documents))
                original = np.argsort(keys, kind="stable")[positions]
                positions = positions[np.argsort(original)]
            at += len(documents)
            writer.append(split, documents.take(indices(positions)))
        num_copies = int(np.count_nonzero(is_copy))
        counts = record.counts + Counts(
            num_written=-num_copies,
            num_duplicates=num_copies,
            text_bytes=-int(rows["num_bytes"][is_copy].sum()),
        )
        return writer.commit(job.plan_id, counts, record.quarantined, content=record.content)
    finally:
        writer.discard()


def _documents(job: Job, record: PartRecord) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The split and its documents, as PartWriter takes them, chunk by chunk, train before val, in
    the order of the part file."""
    num_chunks = len(record.chunks)
    chunks = [
        split_chunks(record.slice_index, record.chunks, split, job.dtype, job.num_buckets)
        for split in range(len(SPLITS))
    ]
    columns = [_kept_chunks(job, record, split) for split in range(len(SPLITS))]
    for number in range(num_chunks):
        for split in range(len(SPLITS)):
            if not record.chunks[number].num_documents[split]:
                continue
            chunk = next(chunks[split])
            path = part_path(job.work, record.slice_index, split)
            wait_for(path)
            try:
                data, found = _chunk(job, path, chunk)
            except FileNotFoundError:
                raise _gone(path) from None
            offsets = np.zeros(chunk.num_documents + 1, np.int64)
            np.cumsum(found, out=offsets[1:])
            documents = binary_array(offsets * DTYPE_BYTES[job.dtype], data)
            found_columns = {TOKENS: documents, **next(columns[split])}
            arrays, names = list(found_columns.values()), list(found_columns)
            yield split, pa.RecordBatch.from_arrays(arrays, names)


def _chunk(job: Job, path: str, chunk: SplitChunk) -> tuple[bytes, npt.NDArray[np.uint32]]:
    """The tokens and the lengths of a chunk."""
    work, index, width = job.work, chunk.slice_index, DTYPE_BYTES[job.dtype]
    if not job.num_buckets:
        data = b"".join(checked_stretch(work, index, path, chunk.place, *chunk.place))
        at = chunk.lengths_at - chunk.tokens_at
        return data[:at], np.frombuffer(data[at:], "<u4")
    with store_of(path).range_reader(path) as read:
        buckets = [
            twice(functools.partial(bucket_of, read, chunk, number, width), work, index, path)
            for number in range(job.num_buckets)
        ]
    lengths, _, tokens = zip(*buckets, strict=True)
    return b"".join(tokens), np.concatenate(lengths)


def _kept_chunks(job: Job, record: PartRecord, split: int) -> Iterator[dict[str, pa.Array]]:
    """What is kept of a split's documents, chunk by chunk."""
    if job.read.keep is None:
        yield from itertools.repeat({})
    types, num_buckets = job.read.kept_types, job.num_buckets
    num_chunks = sum(bool(chunk.num_documents[split]) for chunk in record.chunks)
    num_batches = max(1, num_buckets)  # of a chunk
    reader = KeptReader(job.work, split, types, bool(num_buckets))
    file = KeptFile(record.slice_index, num_chunks * num_batches, record.kept_bytes[split])
    for first in range(0, file.num_batches, num_batches):
        rows = pa.Table.from_batches(reader.batches(file, first, first + num_batches))
        [batch] = rows.combine_chunks().to_batches()
        names = (f"{KEPT}{name}" for name in batch.schema.names)
        yield dict(zip(names, batch.columns, strict=True))


def _gone(what: str) -> DamagedWorkError:
    return DamagedWorkError(
        f"{what} is missing or damaged, and is needed to leave out duplicates",
        hint="run the same command again: it resumes",
    )
