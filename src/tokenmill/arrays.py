"""Arrow arrays, built from buffers and read through their buffers, never as Python objects.

`pa.array` and `pa.scalar` check whether their argument is a pandas object and import pandas for
that, if it is installed: 0.16 s in the parent and in every worker, before the first token.
`to_numpy`, `np.asarray` and `fill_null` do the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def binary_array(offsets: npt.NDArray[np.int64], data: object) -> pa.LargeBinaryArray:
    """Rows of bytes: row i is `data[offsets[i]:offsets[i + 1]]`."""
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def binary_array_of(rows: Sequence[bytes | None]) -> pa.LargeBinaryArray:
    valid = validity(rows)
    data = [row or b"" for row in rows]
    offsets = np.zeros(len(data) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, data), np.int64, len(data)), out=offsets[1:])
    buffers = [valid, pa.py_buffer(offsets), pa.py_buffer(b"".join(data))]
    return pa.Array.from_buffers(pa.large_binary(), len(data), buffers)


def text_array_of(rows: Sequence[str | None]) -> pa.LargeStringArray:
    """Raises UnicodeEncodeError for a surrogate."""
    data = binary_array_of([None if row is None else row.encode() for row in rows])
    return data.view(pa.large_string())


def number_array_of(rows: Sequence[float | None], type_: pa.DataType) -> pa.Array:
    """Of 64-bit numbers. Raises OverflowError for an integer that is not one."""
    values = np.array([0 if row is None else row for row in rows], type_.to_pandas_dtype())
    return pa.Array.from_buffers(type_, len(rows), [validity(rows), pa.py_buffer(values)])


def boolean_array_of(rows: Sequence[bool | None]) -> pa.BooleanArray:
    bits = np.packbits(np.array([row is True for row in rows], np.bool_), bitorder="little")
    buffers = [validity(rows), pa.py_buffer(bits)]
    return pa.Array.from_buffers(pa.bool_(), len(rows), buffers)


def validity(rows: Sequence[object]) -> pa.Buffer | None:
    """The bits that say which rows are not None; None: all."""
    if None not in rows:
        return None
    return mask(np.array([row is not None for row in rows], np.bool_)).buffers()[1]


def binary_scalar(value: bytes) -> pa.LargeBinaryScalar:
    return binary_array_of([value])[0]


def scalar(value: float | bool | str, type_: pa.DataType) -> pa.Scalar:
    """A number, a truth value, or a text of the type large_string."""
    if isinstance(value, str):
        return binary_array_of([value.encode()]).view(pa.large_string())[0]
    if isinstance(value, bool):
        return mask(np.array([value]))[0]
    number = np.array([value], type_.to_pandas_dtype())
    return pa.Array.from_buffers(type_, 1, [None, pa.py_buffer(number)])[0]


def decimal_scalar(steps: int, type_: pa.DataType) -> pa.Scalar:
    """That many units of the last digit of a decimal128 or decimal256."""
    data = steps.to_bytes(type_.bit_width // 8, "little", signed=True)
    return pa.Array.from_buffers(type_, 1, [None, pa.py_buffer(data)])[0]


def null_scalar(type_: pa.DataType) -> pa.Scalar:
    return pa.nulls(1, type_)[0]


def mask(values: npt.NDArray[np.bool_]) -> pa.BooleanArray:
    bits = np.packbits(values, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(bits)])


def integers(values: npt.NDArray[np.uint32]) -> pa.UInt32Array:
    return pa.Array.from_buffers(pa.uint32(), len(values), [None, pa.py_buffer(values)])


def indices(values: npt.NDArray[np.int64]) -> pa.Int64Array:
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


def taken(rows: pa.Array, positions: npt.NDArray[np.int64]) -> pa.Array:
    """`rows.take`, also for binary views, which pyarrow cannot take: each view has 16 bytes."""
    if pa.types.is_struct(rows.type):
        fields = [taken(rows.field(i), positions) for i in range(rows.type.num_fields)]
        return pa.StructArray.from_arrays(fields, [field.name for field in rows.type])
    if not pa.types.is_binary_view(rows.type):
        return rows.take(indices(positions))
    valid, views, *data = rows.buffers()
    fixed = pa.Array.from_buffers(pa.binary(16), len(rows), [valid, views], offset=rows.offset)
    found = fixed.take(indices(positions))
    buffers = [*found.buffers(), *data]
    return pa.Array.from_buffers(rows.type, len(found), buffers, offset=found.offset)


def offsets_of(rows: pa.Array) -> npt.NDArray[np.int64]:
    """Where each row of strings or bytes starts in its data buffer, and the end of the last."""
    if not len(rows):
        return np.zeros(1, np.int64)
    width = 8 if pa.types.is_large_binary(rows.type) or pa.types.is_large_string(rows.type) else 4
    found = np.frombuffer(rows.buffers()[1], f"<i{width}", len(rows) + 1, rows.offset * width)
    return found.astype(np.int64, copy=False)


def numbers_of(values: pa.Array) -> npt.NDArray[np.integer]:
    """An integer array's values; those beneath a null are unspecified."""
    dtype = np.dtype(values.type.to_pandas_dtype())
    if not len(values):
        return np.empty(0, dtype)
    return np.frombuffer(values.buffers()[1], dtype, len(values), values.offset * dtype.itemsize)


def nulls_of(array: pa.Array) -> npt.NDArray[np.bool_]:
    """Which rows are null."""
    valid = array.buffers()[0]
    if valid is None or not array.null_count:
        return np.zeros(len(array), np.bool_)
    bits = np.unpackbits(np.frombuffer(valid, np.uint8), bitorder="little")
    found: npt.NDArray[np.bool_] = bits[array.offset : array.offset + len(array)] == 0
    return found
