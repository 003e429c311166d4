"""`--lists`: a column of lists of strings, as one document per list or one per string.

A null among the strings is left out of a joined text; as a document it is a null row. An empty list
is an empty text either way, so that every row of the table is counted.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.arrays import binary_array_of, binary_scalar, indices, mask, null_scalar, nulls_of

DEFAULT_SEPARATOR = "\n\n"


def list_offsets(lists: pa.Array) -> npt.NDArray[np.int64]:
    """Where each list begins in `lists.values`, and where the last ends."""
    if not len(lists):
        return np.zeros(1, np.int64)
    width = 8 if pa.types.is_large_list(lists.type) else 4
    found = np.frombuffer(lists.buffers()[1], f"<i{width}", len(lists) + 1, lists.offset * width)
    return found.astype(np.int64, copy=False)


def joined_lists(lists: pa.Array, separator: bytes) -> pa.LargeBinaryArray:
    """The strings of each list with `separator` between them."""
    import pyarrow.compute as pc

    offsets, is_null = list_offsets(lists), nulls_of(lists)
    values = lists.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    is_valid = ~nulls_of(values)
    ends = np.concatenate([[0], np.cumsum(is_valid)])[offsets - offsets[0]]
    kept = pa.LargeListArray.from_arrays(indices(ends), values.filter(mask(is_valid)))
    texts = pc.binary_join(kept, binary_scalar(separator))
    return pc.if_else(mask(is_null), null_scalar(pa.large_binary()), texts)


def documents_of(
    lists: pa.Array, bad: Collection[int]
) -> tuple[pa.LargeBinaryArray, npt.NDArray[np.int64]]:
    """The strings, and the list of each. A list that is null, empty or bad gives one string, which
    is null or empty."""
    offsets, is_null = list_offsets(lists), nulls_of(lists)
    sizes = np.diff(offsets)
    is_null[list(bad)] = True
    sizes[is_null] = 0
    widths = np.maximum(sizes, 1)
    row_of = np.repeat(np.arange(len(lists)), widths)
    within = np.arange(len(row_of)) - np.repeat(np.cumsum(widths) - widths, widths)
    places = offsets[:-1][row_of] + within
    # Two more values, for lists without any: an empty one, and null.
    values = pa.concat_arrays([lists.values, binary_array_of([b"", None])])
    places[sizes[row_of] == 0] = len(lists.values)
    places[is_null[row_of]] = len(lists.values) + 1
    return values.take(indices(places)), row_of
