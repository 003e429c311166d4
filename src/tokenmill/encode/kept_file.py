"""The kept rows of a part (--keep): where each document comes from, and the columns that were asked
for, in the order of the part's documents.

Each split has its own file beside its part, `parts/00000000.train.kept`: Arrow record batches
without their schema, then a directory: for each batch, and for the end, three uint64 with its first
byte, the number of rows before it, and its sum (part_sums.py). A batch has the rows of a chunk, or,
if shuffled, of one bucket of a chunk. So a bucket can be read alone, also over a network.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.arrays import binary_array_of, indices, integers
from tokenmill.corpus.columns import schema_of
from tokenmill.corpus.readers import BYTE_KINDS
from tokenmill.corpus.rows import Rows
from tokenmill.corpus.spans import Span
from tokenmill.encode.part_sums import Different, require_sum, sum_of, twice
from tokenmill.encode.record import kept_path
from tokenmill.errors import DamagedWorkError
from tokenmill.storage.local import RangeRead
from tokenmill.storage.new_file import NewFile
from tokenmill.storage.store import store_of, wait_for

_ROW_BYTES = 24  # of the directory
KEPT = "keep:"  # begins the names of what is kept in batches of documents
KEY = "\n"  # the column of shuffle keys, only in parts; --keep refuses this name
# The OWN_COLUMNS, of every document. Columns of the corpus come after these.
_PLACE = [
    pa.field("_source", pa.large_string()),  # the name of the source, if it has one
    pa.field("_file", pa.large_string()),
    pa.field("_byte", pa.int64()),  # rows are counted from here; 0: the start of the file
    pa.field("_row", pa.int64()),
]
_TOKENS = pa.field("_tokens", pa.uint32())


def kept_schema(types: str | None) -> pa.Schema:
    """The columns of a sidecar; `types` has those of the corpus (corpus/columns.py)."""
    return pa.schema([*_PLACE, _TOKENS, *_columns(types)])


def _columns(types: str | None) -> list[pa.Field]:
    return [] if types is None else list(schema_of(types))


def _part_schema(types: str | None, is_shuffled: bool) -> pa.Schema:
    return pa.schema([*kept_schema(types), *([pa.field(KEY, pa.uint32())] if is_shuffled else [])])


def with_kept(span: Span, rows: Rows, types: str | None) -> pa.RecordBatch:
    """A span's rows with what is kept of them, except the number of tokens."""
    count, fields = len(rows), _columns(types)
    name, first_byte = span.input.source, span.start if span.input.kind in BYTE_KINDS else 0
    place = [
        _repeated(name, count) if name else pa.nulls(count, pa.large_string()),
        _repeated(shown_name(span.input.name), count),
        indices(np.full(count, first_byte, np.int64)),
        indices(span.first_row + rows.file_rows),
    ]
    names = [f"{KEPT}{field.name}" for field in (*_PLACE, *fields)]
    found = [
        rows[key] if key in rows.keys else pa.nulls(count, field.type)
        for key, field in zip(names[len(_PLACE) :], fields, strict=True)
    ]
    return pa.RecordBatch.from_arrays(
        [rows["row"], rows.texts, *place, *found], ["row", "text", *names]
    )


def shown_name(name: str) -> str:
    """A file's name as valid text."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _repeated(text: str, count: int) -> pa.Array:
    return binary_array_of([text.encode()] * count).view(pa.large_string())


class KeptWriter:
    """Writes the kept file of one split of a part."""

    def __init__(self, file: NewFile, types: str | None) -> None:
        self.file = file
        self._types = types
        self._begins: list[tuple[int, int, int]] = []  # of batches: byte, row, sum
        self._num_rows = 0

    def write(
        self,
        rows: pa.RecordBatch,
        lengths: npt.NDArray[np.uint32],
        keys: npt.NDArray[np.uint32] | None = None,
        starts: Sequence[int] | None = None,
    ) -> None:
        """Write a chunk's rows. If shuffled, `starts` has the first row of each bucket, and the
        end."""
        schema = _part_schema(self._types, keys is not None)
        names = (name.removeprefix(KEPT) for name in rows.schema.names)
        arrays = dict(zip(names, rows.columns, strict=True))
        arrays[_TOKENS.name] = integers(np.ascontiguousarray(lengths, np.uint32))
        if keys is not None:
            arrays[KEY] = integers(np.ascontiguousarray(keys, np.uint32))
        batch = pa.record_batch([arrays[name] for name in schema.names], schema=schema)
        bounds = [0, len(rows)] if starts is None else starts
        for first, last in itertools.pairwise(bounds):
            data = batch.slice(first, last - first).serialize() if last > first else b""
            self._begins.append((self.file.num_bytes, self._num_rows, sum_of(data)))
            self.file.write(data)
            self._num_rows += last - first

    def commit(self) -> None:
        ends = [*self._begins, (self.file.num_bytes, self._num_rows, 0)]
        self.file.write(np.array(ends, "<u8"))
        self.file.commit()


class KeptFile(NamedTuple):
    """The kept file of one split of a part, as its record describes it."""

    slice_index: int
    num_batches: int
    num_bytes: int


class KeptReader:
    """Reads kept files of a work folder."""

    def __init__(self, work: str, split: int, types: str | None, is_shuffled: bool) -> None:
        self._work = work
        self._split = split
        self._schema = _part_schema(types, is_shuffled)

    def batches(self, file: KeptFile, first: int, last: int) -> Iterator[pa.RecordBatch]:
        """Batches `first` to `last` of a file; those without rows are left out."""
        path = kept_path(self._work, file.slice_index, self._split)
        wait_for(path)
        try:
            with store_of(path).range_reader(path) as read:
                read_batches = functools.partial(_batches, read, file, first, last)
                for data in twice(read_batches, self._work, file.slice_index, path):
                    yield pa.ipc.read_record_batch(pa.py_buffer(data), self._schema)
        except FileNotFoundError as error:
            raise DamagedWorkError(
                f"{path} is gone, but its rows are not written yet",
                hint="run the same command again: its slice is encoded again",
            ) from error


def _batches(read: RangeRead, file: KeptFile, first: int, last: int) -> list[bytes]:
    """The bytes of batches `first` to `last` that have rows. Raises Different."""
    directory_at = file.num_bytes - _ROW_BYTES * (file.num_batches + 1)
    at, until = directory_at + _ROW_BYTES * first, directory_at + _ROW_BYTES * (last + 1)
    [found] = read([(at, until)])
    rows = np.frombuffer(found, "<u8").reshape(-1, 3).tolist()
    places = [(a, b, wanted) for (a, _, wanted), (b, _, _) in itertools.pairwise(rows) if a != b]
    if any(not 0 <= a <= b <= directory_at for a, b, _ in places):
        raise Different
    batches = read([(a, b) for a, b, _ in places]) if places else []
    for data, (_, _, wanted) in zip(batches, places, strict=True):
        require_sum(wanted, data)
    return batches
