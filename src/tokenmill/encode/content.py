"""The hash of what a slice reads from local files, which shows later whether one was edited.

The digest of a local input covers its ends. To hash all of a corpus before a run would read it
twice; so each worker hashes the rows that it has just read, and the manifest keeps 16 digits for
each slice. A finished dataset whose inputs were modified since is compared with them, by reading
these inputs again (dataset/modified_inputs.py).

Not the file's bytes, but its rows are hashed: what the tokens were made from, no matter which
columns or row groups were read. No byte is read twice, which over a network would cost as much as
the first time. xxh3 hashes 20 GB/s of text that is in the processor's cache.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from tokenmill.arrays import mask, nulls_of, offsets_of, text_array_of
from tokenmill.corpus.readers import ReadOptions, reader_for
from tokenmill.corpus.rows import Rows, documents
from tokenmill.corpus.spans import Input, Slice
from tokenmill.encode.documents import data_of

_NULL, _BAD = -1, -2  # in place of a length


class SliceContent:
    """Collects a slice's rows, batch by batch. How they are divided into batches has no effect."""

    def __init__(self) -> None:
        self._num_rows: dict[int, int] = {}  # by span
        self._columns: dict[str, _Column] = defaultdict(_Column)

    def add(self, span: int, rows: Rows) -> None:
        """Add rows of the slice's span number `span`."""
        numbers = rows.numbers
        self._num_rows[span] = rows.stop
        self._columns[f"{span}"].add(numbers, rows.texts, rows.positions_of(rows.rejected))
        for key in rows.keys[2:]:
            name = "_row" if key == "file_row" else key.removeprefix("keep:")
            self._columns[f"{span} {name}"].add(numbers, _as_bytes(rows[key]))

    @property
    def digest(self) -> str:
        """As PartRecord.content; "" if nothing was added."""
        if not self._num_rows:
            return ""
        columns = [(name, column.digest) for name, column in sorted(self._columns.items())]
        return xxhash.xxh3_64_hexdigest(repr((sorted(self._num_rows.items()), columns)).encode())


class _Column:
    """A hash of values and of the rows that have them."""

    def __init__(self) -> None:
        self._layout, self._data = xxhash.xxh3_64(), xxhash.xxh3_64()

    def add(
        self,
        rows: npt.NDArray[np.int64],
        values: pa.Array,
        bad: Sequence[int] | npt.NDArray[np.int64] = (),
    ) -> None:
        lengths = np.diff(offsets_of(values))
        if values.null_count:
            null = nulls_of(values)
            lengths[null] = _NULL
            lengths[bad] = _BAD
            values = values.filter(mask(~null))  # the bytes beneath a null are unspecified
        self._layout.update(np.stack([rows, lengths], axis=1).data)
        self._data.update(data_of(values))

    @property
    def digest(self) -> str:
        return str(self._layout.hexdigest() + self._data.hexdigest())


def _as_bytes(values: pa.Array) -> pa.Array:
    """Values of any type as strings or bytes."""
    if pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type):
        return values
    return text_array_of([None if one is None else repr(one) for one in values.to_pylist()])


def content_of(slice_: Slice, options_of: Callable[[Input], ReadOptions]) -> str:
    """The digest of a slice, which is read for that alone. Raises InputError for a broken file."""
    content = SliceContent()
    for number, span in enumerate(slice_.spans):
        if span.input.has_unknown_middle:
            reader = reader_for(span.input.kind, options_of(span.input))
            for rows in documents(reader, span, options_of(span.input)):
                content.add(number, rows)
    return content.digest
