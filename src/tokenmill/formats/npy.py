"""build-nanogpt: numbered NumPy files, `{name}_{split}_{index:06d}.npy`, shard 0 for validation.

The bytes equal what `np.save` writes for a 1-D array (NPY 1.0, header padded to 64 bytes), so
`np.load` and build-nanogpt's DataLoaderLite read them; the loader takes every file whose name
contains the split's, which is why tokenmill's own files are named neither train nor val.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tokenmill.errors import IntegrityError
from tokenmill.formats import Defaults


class NpyFormat:
    name = "npy"
    trainers = "build-nanogpt, anything that calls np.load"
    defaults = Defaults(
        eot="prepend", val="first-shard", empty="keep", shard_tokens=100_000_000, name="edufineweb"
    )

    def shard_name(self, name: str, split: str, index: int) -> str:
        return f"{name}_{split}_{index:06d}.npy"

    def header(self, num_tokens: int, dtype: str) -> bytes:
        descr = np.dtype(dtype).newbyteorder("<").str
        fields = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': ({num_tokens},), }}"
        # Magic, version and length take 10 bytes; a newline ends the header on a multiple of 64.
        padded = fields + " " * (-(10 + len(fields) + 1) % 64) + "\n"
        return b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded.encode("latin1")

    def tokens(self, path: str, dtype: str) -> npt.NDArray[np.unsignedinteger]:
        try:
            found: npt.NDArray[np.unsignedinteger] = np.load(
                path, mmap_mode="r", allow_pickle=False
            )
        except (ValueError, EOFError) as error:
            raise IntegrityError(f"{path} is not a whole .npy file: {error}") from error
        if found.ndim != 1 or found.dtype != np.dtype(dtype).newbyteorder("<"):
            raise IntegrityError(f"{path} holds {found.dtype}{found.shape}, expected 1-D {dtype}")
        return found
