"""Checksums inside the files of a part, so that every byte is compared when it is read.

A shard task reads stretches of parts, often over a network, long after they were written. The
record's checksum covers a whole file, which no task reads. So what is written has a checksum
(xxh3_64) for each block: 256 KiB of a part in plan order, a bucket of a shuffled one, a batch of
kept rows. They cost 8 bytes a block and a pass at 30 GB/s.

A block that differs is read once more, because the fault may be the network's. If it still differs,
the file has changed: its record is emptied, so that the next attempt encodes the slice again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import xxhash

from tokenmill.encode.record import record_path
from tokenmill.errors import DamagedWorkError
from tokenmill.storage.local import RangeRead
from tokenmill.storage.store import read_in_order, store_of

BLOCK_BYTES = 256 << 10
Found = TypeVar("Found")


class Different(Exception):
    """What was read is not what was written."""


def sum_of(*buffers: Any) -> int:
    hasher = xxhash.xxh3_64()
    for buffer in buffers:
        hasher.update(buffer)
    return hasher.intdigest()


def require_sum(expected: int, *buffers: Any) -> None:
    """Raise Different unless the bytes have this sum."""
    if sum_of(*buffers) != expected:
        raise Different


class BlockSums:
    """The sums of consecutive blocks of what is added."""

    def __init__(self) -> None:
        self._sums: list[int] = []
        self._hash = xxhash.xxh3_64()
        self._room = BLOCK_BYTES

    def add(self, data: Any) -> None:
        view = memoryview(data).cast("B")
        while len(view) >= self._room:
            self._hash.update(view[: self._room])
            view = view[self._room :]
            self._sums.append(self._hash.intdigest())
            self._hash, self._room = xxhash.xxh3_64(), BLOCK_BYTES
        self._hash.update(view)
        self._room -= len(view)

    def to_array(self) -> npt.NDArray[np.uint64]:
        rest = [self._hash.intdigest()] if self._room < BLOCK_BYTES else []
        return np.array([*self._sums, *rest], "<u8")


def with_sum(rows: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """A directory whose last number, which must be 0, becomes the sum of all others."""
    rows.reshape(-1)[-1] = sum_of(rows.tobytes()[:-8])
    return rows


def require_directory(rows: npt.NDArray[np.uint64]) -> None:
    """Raise Different unless the directory has its own sum (`with_sum`)."""
    require_sum(int(rows.reshape(-1)[-1]), rows.tobytes()[:-8])


def twice(read: Callable[[], Found], work: str, slice_index: int, path: str) -> Found:
    """What `read` returns, tried again if it raises Different; then the slice is given up."""
    try:
        return read()
    except Different:
        try:
            return read()
        except Different:
            raise _given_up(work, slice_index, path) from None


def _given_up(work: str, slice_index: int, path: str) -> DamagedWorkError:
    store_of(work).write(record_path(work, slice_index), b"")
    return DamagedWorkError(
        f"{path} is not what was written there",
        hint="run the same command again: it encodes that slice again",
    )


def checked_stretch(
    work: str, slice_index: int, path: str, chunk: tuple[int, int], start: int, stop: int
) -> Iterator[memoryview]:
    """Bytes `start` to `stop` of a file, block by block. `chunk` is the place of the chunk that has
    them, whose sums follow it."""
    begin, end = chunk
    first, last = (start - begin) // BLOCK_BYTES, -(-(stop - begin) // BLOCK_BYTES)
    if first >= last:
        return
    at, until = begin + first * BLOCK_BYTES, min(end, begin + last * BLOCK_BYTES)
    with store_of(path).range_reader(path) as read:
        expected = _sums(read, end, first, last)
        for data in read_in_order(path, at, until, BLOCK_BYTES):
            view = memoryview(data)
            for offset in range(0, len(view), BLOCK_BYTES):
                block, wanted = view[offset : offset + BLOCK_BYTES], next(expected)
                if sum_of(block) != wanted:
                    block = _again(work, slice_index, path, read, begin, end, at)
                yield block[max(0, start - at) : max(0, stop - at)]
                at += len(block)


def _sums(read: RangeRead, end: int, first: int, last: int) -> Iterator[int]:
    [data] = read([(end + 8 * first, end + 8 * last)])
    return iter(np.frombuffer(data, "<u8").tolist())


def _again(
    work: str, slice_index: int, path: str, read: RangeRead, begin: int, end: int, at: int
) -> memoryview:
    """A block that was read wrong, or whose sum was."""
    number = (at - begin) // BLOCK_BYTES
    [block] = read([(at, min(at + BLOCK_BYTES, end))])
    if sum_of(block) != next(_sums(read, end, number, number + 1)):
        raise _given_up(work, slice_index, path)
    return memoryview(block)


def num_sum_bytes(num_bytes: int) -> int:
    """The length of the sums of a chunk."""
    return 8 * -(-num_bytes // BLOCK_BYTES)
