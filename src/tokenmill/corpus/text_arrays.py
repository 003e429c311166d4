"""Text in Arrow's layouts: first safe to access, then valid UTF-8.

String columns of parquet and Arrow may hold any bytes, so every row is checked. Arrow's cast from
binary to large_string checks them and widens the offsets in one pass without copying the text:
23 GB/s for English, 2.5 for Chinese, 1.4 for text with an accent in every word. Python's decode
does 0.4 to 1.1. Rows are checked one by one only in a piece that failed.

A list of strings becomes one text, or one of each string (--lists). A null among the strings is
left out of a joined text; as a document it is a null row. An empty list is an empty text either
way, so that every row of the table is counted.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.arrays import (
    binary_array_of,
    binary_scalar,
    indices,
    mask,
    null_scalar,
    nulls_of,
    numbers_of,
    offsets_of,
    text_array_of,
)


def sound_binary(array: pa.Array) -> pa.Array:
    """The same buffers as bytes, which may not be valid UTF-8, but are safe to access.

    Offsets and dictionary indices come from the file; if they are out of bounds, this raises
    ArrowInvalid. The cost is negligible beside the UTF-8 check.
    """
    binary = _as_binary(array)
    binary.validate(full=True)
    return binary


def _as_binary(array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        array.validate(full=True)
        values = _as_binary(array.values).cast(pa.large_binary())
        valid = None if not array.null_count else mask(~nulls_of(array))
        buffers = [valid and valid.buffers()[1], pa.py_buffer(list_offsets(array))]
        made = pa.large_list(pa.large_binary())
        return pa.Array.from_buffers(made, len(array), buffers, children=[values])
    if pa.types.is_dictionary(kind):
        values = _as_binary(array.dictionary)
        return pa.DictionaryArray.from_arrays(array.indices, values, safe=False)
    if pa.types.is_string(kind):
        return array.view(pa.binary())
    if pa.types.is_large_string(kind):
        return array.view(pa.large_binary())
    if pa.types.is_string_view(kind):
        return array.view(pa.binary_view())
    return array


def checked_texts(
    raw: pa.Array, replace: bool
) -> tuple[pa.LargeStringArray, dict[int, str], list[int]]:
    """Bytes of any layout as valid text; which of them are not UTF-8, and null, and why; and in
    which something was replaced. Text of the type large_string was checked before."""
    if pa.types.is_large_string(raw.type):
        return raw, {}, []
    if pa.types.is_dictionary(raw.type) or pa.types.is_binary_view(raw.type):
        raw = plain_binary(raw)
    try:
        return raw.cast(pa.large_string()), {}, []
    except pa.ArrowInvalid:
        return _repaired(raw.cast(pa.large_binary()), replace)


def plain_binary(raw: pa.Array) -> pa.LargeBinaryArray:
    """Bytes of any layout as a plain array."""
    if pa.types.is_dictionary(raw.type):
        raw = raw.dictionary.take(raw.indices)
    return _without_views(raw) if pa.types.is_binary_view(raw.type) else raw.cast(pa.large_binary())


def _repaired(
    raw: pa.LargeBinaryArray, replace: bool
) -> tuple[pa.LargeStringArray, dict[int, str], list[int]]:
    texts: list[str | None] = []
    bad: dict[int, str] = {}
    replaced: list[int] = []
    for row, value in enumerate(raw.to_pylist()):
        try:
            texts.append(None if value is None else value.decode())
        except UnicodeDecodeError as error:
            if replace:
                texts.append(value.decode(errors="replace"))
                replaced.append(row)
            else:
                texts.append(None)
                bad[row] = f"invalid UTF-8 at byte {error.start} (0x{value[error.start]:02x})"
    return text_array_of(texts), bad, replaced


def _without_views(array: pa.Array) -> pa.LargeBinaryArray:
    # Not by a cast: pyarrow 17 has none, and pyarrow 26 uses the length beneath a null, which no
    # validation checks; a negative one segfaults.
    return binary_array_of(array.to_pylist())


def byte_lengths(array: pa.Array) -> npt.NDArray[np.int64]:
    """The rows' sizes in memory; a null counts as the bytes beneath it, or as nothing."""
    if pa.types.is_dictionary(array.type):
        numbers, nulls = numbers_of(array.indices), nulls_of(array.indices)
        lengths = np.zeros(len(array), np.int64)
        lengths[~nulls] = byte_lengths(array.dictionary)[numbers[~nulls]]
        return lengths
    if pa.types.is_binary_view(array.type):
        return _view_lengths(array)
    if pa.types.is_large_list(array.type):
        ends = offsets_of(array.values)[list_offsets(array)]
        return np.diff(ends)
    return np.diff(offsets_of(array))


def _view_lengths(array: pa.Array) -> npt.NDArray[np.int64]:
    """A view is 16 bytes, and the first 4 are its length; beneath a null they are arbitrary."""
    views = array.buffers()[1]
    if not len(array) or views is None:
        return np.zeros(len(array), np.int64)
    lengths = np.frombuffer(views, "<i4")[4 * array.offset :: 4][: len(array)].astype(np.int64)
    lengths[nulls_of(array)] = 0
    return lengths


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


def divided_lists(
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
