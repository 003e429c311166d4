"""Assembly: parts in plan order, or in the seeded shuffle's order, become shards.

Parts are taken in as they are ready and handed to the shards (shards.py), which are written front
to back; the parts they swallowed are deleted, so that the disk never holds the output twice (a
shuffle needs every part until the end).

What is done is in the workbench's cursor: the next part (or bucket), the finished shards, and how
long each unfinished one is. It is replaced atomically, after the shards were synced and before any
part is deleted, so a crash at any moment resumes from it. Shards stay on the workbench until all
are finished; `publish` then moves them to the output folder, and the manifest follows.
"""

from __future__ import annotations

import functools
import io
import os
from collections.abc import Iterator
from concurrent import futures

import numpy as np
import pyarrow as pa

from tokenmill import storage
from tokenmill.arrays import offsets_of
from tokenmill.documents import data_of
from tokenmill.errors import IntegrityError
from tokenmill.formats import DTYPE_BYTES, Layout
from tokenmill.ledger import Ledger
from tokenmill.part import Bucket, PartReader
from tokenmill.record import SPLITS, PartRecord, part_path, record_path
from tokenmill.shards import Batch, Output, ShardSet
from tokenmill.workbench import Workbench, last_cursor

# Small enough to stay in the cache between read, hash and write: 4 MB took three times the CPU.
COPY_BYTES = 256 << 10
CHECKPOINT_BYTES = 256 << 20


class Assembler:
    """Takes records in any order, writes shards in the one right order."""

    def __init__(self, work: str, layout: Layout, num_buckets: int) -> None:
        self._work = work
        self._layout = layout
        self._num_buckets = num_buckets  # 0: not shuffled
        self._token_bytes = DTYPE_BYTES[layout.dtype]
        self._bench = Workbench(work)
        self.folder = self._bench.folder
        cursor = self._bench.cursor
        self.next = int(cursor.get("next", 0))  # the next part (or bucket) to take in
        self._deleted = self.next
        self._ready = Ledger()
        self._unsynced_bytes = 0
        self._shards = ShardSet(self.folder, layout, cursor.get("streams", {}))

    def add(self, record: PartRecord) -> None:
        """Take in a part, and whatever else was waiting for it."""
        self._ready.add(record)
        if self._num_buckets:
            return
        while self.next in self._ready:
            self._copy(self._ready[self.next])
            self._ready.discard(self.next)
            self._advance()

    def finish(self) -> Output:
        """Write what is left, close the last shards, and list all that was made."""
        if self.next < self._num_buckets:
            self._copy_buckets()
        output = self._shards.finish()
        self._checkpoint()
        return output

    def close(self) -> None:
        self._shards.close()

    def _advance(self) -> None:
        self.next += 1
        if self._unsynced_bytes >= CHECKPOINT_BYTES:
            self._checkpoint()

    def _copy(self, record: PartRecord) -> None:
        reader = PartReader(self._work, record, self._layout.dtype, self._num_buckets)
        with open(part_path(self._work, record.slice_index), "rb", buffering=0) as file:
            for split in range(len(SPLITS)):
                for run in reader.runs(split):
                    lengths = reader.lengths(run) if self._layout.has_boundaries else None
                    pieces = functools.partial(self._pieces_of, file, run.tokens_at)
                    self._put(split, Batch(run.num_tokens, pieces, lengths))

    def _pieces_of(self, file: io.FileIO, tokens_at: int, first: int, last: int) -> Iterator[bytes]:
        stop = tokens_at + last * self._token_bytes
        for start in range(tokens_at + first * self._token_bytes, stop, COPY_BYTES):
            wanted = min(COPY_BYTES, stop - start)
            data = os.pread(file.fileno(), wanted, start)
            if len(data) < wanted:
                raise IntegrityError(f"{file.name!r} ends too early")
            yield data

    def _copy_buckets(self) -> None:
        """Bucket by bucket, the next one read and sorted while this one is written."""
        bucket = Bucket(self._layout.dtype)

        def read(number: int) -> list[Batch]:
            return [self._shuffled(bucket, split, number) for split in range(len(SPLITS))]

        with futures.ThreadPoolExecutor(1) as thread:
            ahead = thread.submit(read, self.next)
            while self.next < self._num_buckets:
                batches = ahead.result()
                if self.next + 1 < self._num_buckets:
                    ahead = thread.submit(read, self.next + 1)
                for split, batch in enumerate(batches):
                    self._put(split, batch)
                self._advance()

    def _shuffled(self, bucket: Bucket, split: int, number: int) -> Batch:
        found = []
        for record in self._ready.values():
            reader = PartReader(self._work, record, self._layout.dtype, self._num_buckets)
            found += reader.bucket(split, number)
        return self._as_batch(bucket.shuffled(found))

    def _as_batch(self, documents: pa.LargeBinaryArray) -> Batch:
        data, width = data_of(documents), self._token_bytes

        def pieces(first: int, last: int) -> Iterator[memoryview]:
            for start in range(first * width, last * width, COPY_BYTES):
                yield data[start : min(start + COPY_BYTES, last * width)]

        lengths = np.diff(offsets_of(documents)) // width
        return Batch(len(data) // width, pieces, lengths.astype(np.uint32))

    def _put(self, split: int, batch: Batch) -> None:
        self._shards.put(split, batch)
        self._unsynced_bytes += batch.num_tokens * self._token_bytes

    def _checkpoint(self) -> None:
        self._shards.sync()
        self._sync_records()
        self._bench.save({"next": self.next, "streams": self._shards.state()})
        self._unsynced_bytes = 0
        self._shards.retire()
        if not self._num_buckets:
            while self._deleted < self.next:
                storage.remove(part_path(self._work, self._deleted))
                self._deleted += 1

    def _sync_records(self) -> None:
        """From here on they stand for their parts, which go."""
        if self._deleted < self.next and not self._num_buckets:
            paths = [record_path(self._work, index) for index in range(self._deleted, self.next)]
            storage.sync_files(os.path.dirname(paths[0]), map(os.path.basename, paths))


def num_assembled(work: str) -> int:
    """How many parts (or buckets) are in the shards already."""
    return int(last_cursor(work).get("next", 0))
