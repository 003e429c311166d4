"""The hashes of a slice's documents, for `--dedup exact`, beside its part: `parts/00000042.hashes`.

    head (plan, slice), one row per document, checksum

in the order of the part's documents: chunk by chunk, train before val. Texts with the same 128-bit
hash are taken as equal: among 10 billion different texts, two have the same hash with a probability
of 1 in 7 * 10^18. xxh3 takes 1.1 µs for a document of 4.5 kB, blake2b 14. An attacker can make
texts with equal xxh3 hashes, but these could only remove each other.

The file stays until the dataset is complete, even after its part is removed: a resumed run finds
out from these files which documents are the first of their kind.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from tokenmill.arrays import offsets_of
from tokenmill.encode.record import PARTS_NAME
from tokenmill.storage.store import store_of

# Of a document: its hash, and the size of its text.
HASHED = np.dtype([("hash", "<u8", (2,)), ("num_bytes", "<u8")])
HASHES = "hashes"  # the column of these beside documents
Hashed = npt.NDArray[np.void]
Hashes = npt.NDArray[np.uint64]  # two numbers each
_HEAD = b"tokenmill hashes 1 %s %d\n"
_CHECKSUM_BYTES = 16


def hashed(texts: pa.LargeStringArray) -> Hashed:
    offsets = offsets_of(texts)
    data = memoryview(texts.buffers()[2] or b"")
    digest = xxhash.xxh3_128_digest
    digests = b"".join(digest(data[a:b]) for a, b in itertools.pairwise(offsets.tolist()))
    found = np.empty(len(texts), HASHED)
    found["hash"] = np.frombuffer(digests, "<u8").reshape(-1, 2)
    found["num_bytes"] = np.diff(offsets)
    return found


def hashes_array(rows: Hashed) -> pa.FixedSizeBinaryArray:
    """As a column beside the documents."""
    buffers = [None, pa.py_buffer(rows.tobytes())]
    return pa.Array.from_buffers(pa.binary(HASHED.itemsize), len(rows), buffers)


def hashes_of(batch: pa.RecordBatch) -> Hashed:
    """The column of hashes, of which there are none without documents."""
    if not len(batch):
        return np.empty(0, HASHED)
    array = batch.column(HASHES)
    return np.frombuffer(array.buffers()[1], HASHED)[array.offset : array.offset + len(array)]


def hashes_path(work: str, slice_index: int) -> str:
    return f"{work}/{PARTS_NAME}/{slice_index:08d}.hashes"


def save_hashes(work: str, plan_id: str, slice_index: int, rows: Hashed) -> None:
    body = _HEAD % (plan_id.encode(), slice_index) + rows.tobytes()
    data = body + xxhash.xxh3_128_digest(body)
    store_of(work).write(hashes_path(work, slice_index), data, is_durable=False)


def saved_hashes(work: str, plan_id: str, slice_index: int) -> Hashed | None:
    """A slice's rows; None if the file is missing, damaged or of another plan."""
    try:
        data = store_of(work).read(hashes_path(work, slice_index))
    except FileNotFoundError:
        return None
    head = _HEAD % (plan_id.encode(), slice_index)
    body: Any = memoryview(data)[:-_CHECKSUM_BYTES]
    is_whole = xxhash.xxh3_128_digest(body) == data[-_CHECKSUM_BYTES:]
    if not is_whole or not data.startswith(head) or (len(body) - len(head)) % HASHED.itemsize:
        return None
    return np.frombuffer(body[len(head) :], HASHED)
