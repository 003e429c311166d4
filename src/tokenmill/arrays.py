"""Arrow arrays made of buffers, never of Python or NumPy objects.

`pa.array` and `pa.scalar` look whether their argument is a pandas object, and for that import
pandas where it is installed: 0.16 s in the parent and in every worker, before the first token.
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


def binary_array_of(rows: Sequence[bytes]) -> pa.LargeBinaryArray:
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, rows), np.int64, len(rows)), out=offsets[1:])
    return binary_array(offsets, b"".join(rows))


def binary_scalar(value: bytes) -> pa.LargeBinaryScalar:
    return binary_array_of([value])[0]


def mask(values: npt.NDArray[np.bool_]) -> pa.BooleanArray:
    bits = np.packbits(values, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(bits)])


def integers(values: npt.NDArray[np.uint32]) -> pa.UInt32Array:
    return pa.Array.from_buffers(pa.uint32(), len(values), [None, pa.py_buffer(values)])


def indices(values: npt.NDArray[np.int64]) -> pa.Int64Array:
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])
