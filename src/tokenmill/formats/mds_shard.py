"""Reads MDS shards, ours and foreign ones; mds.py describes the format.

Samples are found by their offsets, which are all checked when a shard is opened: 1M in 0.1 s.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from tokenmill.arrays import binary_array, indices
from tokenmill.errors import IntegrityError
from tokenmill.formats.format import Files, ShardReader
from tokenmill.formats.index_json import MAX_OFFSET, checked_offsets, parsed_json, shown
from tokenmill.formats.mapped import mapped_tokens

COLUMN = "tokens"
MAX_CONFIG_BYTES = 1 << 20
BLOCK_SAMPLES = 1 << 16  # checked together
_MAX_COLUMNS = 1000
# Of so many samples one length is no coincidence: they are cut, and are not documents. Shards with
# fewer samples are what the others are (Dataset: all store boundaries, or none does).
_ENOUGH_SAMPLES = 64
_NDARRAY = re.compile(r"ndarray:(u?int(?:8|16|32|64))(?::(\d{1,10}(?:,\d{1,10}){0,3}))?")
# A key in the JSON of a shard that the library never reads: samples are documents, even if all
# happen to have one length.
DOCUMENTS_MARK = {"tokenmill": "documents"}

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]


def open_shard(files: Files, name: str, dtype: str | None) -> ShardReader:
    """A shard, ours or foreign; `dtype` is for a column of plain bytes."""
    path, data = files.path_of(name), cast("Bytes", mapped_tokens(files, name, "uint8"))
    if isinstance(data, np.memmap):
        data = np.asarray(data)  # faster to index
    offsets, config = _checked_header(data, path)
    column = _token_column(config, dtype or "int64", path)
    starts, lengths = _Samples(data, offsets, column, path).located()
    is_fixed = column.length is not None or (
        len(lengths) >= _ENOUGH_SAMPLES and np.ptp(lengths) == 0
    )
    is_documents = config.get("tokenmill") == DOCUMENTS_MARK["tokenmill"] or not is_fixed
    return _MdsShard(data, starts, lengths, column.dtype, is_documents)


class _MdsShard:
    """Tokens with other bytes between the samples; gathered on access."""

    def __init__(
        self, data: Bytes, starts: Numbers, lengths: Numbers, dtype: str, is_documents: bool
    ) -> None:
        self.dtype = dtype
        self._kind = np.dtype(dtype).newbyteorder("<")
        self._data = data
        self._starts = starts  # in bytes
        self._bounds = np.zeros(len(lengths) + 1, np.int64)  # in tokens
        np.cumsum(lengths, out=self._bounds[1:])
        self.num_tokens = int(self._bounds[-1])
        self.has_boundaries = is_documents

    def tokens(self, start: int, stop: int) -> npt.NDArray[np.integer]:
        start, stop, _ = slice(start, stop).indices(self.num_tokens)
        if start >= stop:
            return np.empty(0, self._kind)
        first = int(np.searchsorted(self._bounds, start, "right")) - 1
        last = int(np.searchsorted(self._bounds, stop, "left"))
        bounds, width = self._bounds[first : last + 1], self._kind.itemsize
        begins, ends = np.maximum(bounds[:-1], start), np.minimum(bounds[1:], stop)
        # Samples and the bytes between them are alternate rows; Arrow takes every other row.
        rows = np.empty(2 * len(begins), np.int64)
        rows[0::2] = self._starts[first:last] + (begins - bounds[:-1]) * width
        rows[1::2] = rows[0::2] + (ends - begins) * width
        data = self._data[rows[0] : rows[-1]]
        if len(data) == (stop - start) * width:
            return data.view(self._kind)
        every_other = indices(np.arange(0, len(rows), 2))
        taken = binary_array(rows - rows[0], data).take(every_other)
        return np.frombuffer(taken.buffers()[2], self._kind, stop - start)

    def ends(self) -> Numbers | None:
        return self._bounds[1:] if self.has_boundaries else None


def _checked_header(data: Bytes, path: str) -> tuple[npt.NDArray[np.uint32], dict[str, Any]]:
    """The offsets, which ascend to the file's end, and the JSON about the columns."""
    offsets = checked_offsets(data, path, "an MDS shard", "samples")
    json_at, first = 4 + 4 * len(offsets), int(offsets[0])
    if first - json_at > MAX_CONFIG_BYTES:
        raise IntegrityError(f"{path}: its header has over {MAX_CONFIG_BYTES:,} bytes of JSON")
    config = parsed_json(data[json_at:first].tobytes(), path)
    if not isinstance(config, dict) or config.get("format") != "mds":
        raise IntegrityError(f"{path}: its header is not that of an MDS shard")
    return offsets, config


@dataclass(frozen=True)
class _Column:
    """How tokens are stored in a sample."""

    number: int
    dtype: str
    length: int | None  # of every sample, in tokens; None: each has its own
    has_shape: bool  # stored before its tokens
    sizes: list[int]  # of all columns, in bytes; 0: each sample has its own, in its first bytes


def _token_column(config: dict[str, Any], bytes_dtype: str, path: str) -> _Column:
    names, encodings, sizes = (
        config.get(f"column_{what}") for what in ("names", "encodings", "sizes")
    )
    if not (isinstance(names, list) and isinstance(encodings, list) and isinstance(sizes, list)):
        raise IntegrityError(f"{path}: its header does not describe its columns")
    sizes = [size or 0 for size in sizes]
    are_sizes = all(type(size) is int and 0 <= size <= MAX_OFFSET for size in sizes)
    if not _MAX_COLUMNS >= len(names) == len(encodings) == len(sizes) or not are_sizes:
        raise IntegrityError(f"{path}: its header describes impossible columns")
    number = next((names.index(name) for name in (COLUMN, "input_ids") if name in names), None)
    if number is None:
        raise IntegrityError(f"{path} has columns {shown(names)}, expected tokens or input_ids")
    encoding = encodings[number]
    if encoding == "bytes":
        return _Column(number, bytes_dtype, None, False, sizes)
    match = _NDARRAY.fullmatch(encoding) if isinstance(encoding, str) else None
    if match is None:
        raise IntegrityError(
            f"{path}: its tokens are encoded as {shown(encoding)}, expected ndarray:uint16 and the "
            "like, or bytes"
        )
    dtype, shape = match.groups()
    length = math.prod(map(int, shape.split(","))) if shape else None
    if sizes[number] != (length or 0) * np.dtype(dtype).itemsize or length == 0:
        raise IntegrityError(f"{path}: {encoding} cannot have {sizes[number]:,} bytes")
    return _Column(number, dtype, length, length is None, sizes)


class _Samples:
    """Finds the tokens in the samples of a shard, and checks that each sample is whole."""

    def __init__(
        self, data: Bytes, offsets: npt.NDArray[np.uint32], column: _Column, path: str
    ) -> None:
        self._data = data
        self._offsets = offsets
        self._column = column
        self._path = path
        self._first = 0  # sample of the current block

    def located(self) -> tuple[Numbers, Numbers]:
        """Where the tokens of each sample start, in bytes, and how many they are."""
        num_samples = len(self._offsets) - 1
        starts, lengths = np.empty(num_samples, np.int64), np.empty(num_samples, np.int64)
        width = np.dtype(self._column.dtype).itemsize
        for self._first in range(0, num_samples, BLOCK_SAMPLES):
            block = slice(self._first, self._first + BLOCK_SAMPLES)
            start, stop = self._column_bounds()
            promised = None
            if self._column.has_shape:
                start, promised = self._after_shape(start, stop)
            found, rest = np.divmod(stop - start, width)
            self._require(rest == 0, f"does not hold whole {self._column.dtype} tokens")
            if promised is not None:
                self._require(found == promised, "does not have as many tokens as its shape says")
            starts[block], lengths[block] = start, found
        return starts, lengths

    def _column_bounds(self) -> tuple[Numbers, Numbers]:
        """The bounds of the token column in the block's samples."""
        sizes = self._column.sizes
        bounds = self._offsets[self._first : self._first + BLOCK_SAMPLES + 1].astype(np.int64)
        size_at, stop = bounds[:-1], bounds[1:]
        start = size_at + 4 * sizes.count(0)
        self._require(start + sum(sizes) <= stop, "is too short for its columns")
        found = start, stop
        for number, size in enumerate(sizes):
            end = start + (size or self._numbers(size_at, 4))
            if number == self._column.number:
                found = start, end
            start, size_at = end, size_at if size else size_at + 4
        self._require(start == stop, "is not as long as its columns")
        return found

    def _after_shape(self, start: Numbers, stop: Numbers) -> tuple[Numbers, Numbers]:
        """Where the values start, and how many the shape says there are."""
        self._require(start < stop, "has no shape")
        kind = self._data[start]
        shape_bytes = np.int64(1) << (kind & 3)
        values = start + 1 + shape_bytes
        self._require((kind >> 2 == 1) & (values <= stop), "is not one-dimensional")
        lengths = np.empty(len(start), np.int64)
        for width in (1, 2, 4, 8):
            those = shape_bytes == width
            lengths[those] = self._numbers(start[those] + 1, width)
        return values, lengths

    def _numbers(self, at: Numbers, width: int) -> Numbers:
        """The unsigned numbers of `width` bytes at these places."""
        data = self._data[at[:, None] + np.arange(width)]
        numbers: Numbers = data.view(f"<u{width}").astype(np.int64).reshape(-1)
        return numbers

    def _require(self, is_right: npt.NDArray[np.bool_], otherwise: str) -> None:
        if not is_right.all():
            number = self._first + int(np.argmin(is_right))
            raise IntegrityError(f"{self._path}: sample {number:,} {otherwise}")
