"""nanoGPT: `train.bin` and `val.bin`, nothing but tokens.

nanoGPT's `train.py` maps the file as uint16 and takes random crops, so there is one file per split
whatever its size, and the file says nothing about its dtype. A wide vocabulary needs uint32 here
and one changed line there.
"""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

from tokenmill.errors import IntegrityError
from tokenmill.formats import DTYPE_BYTES, Defaults


class NanogptFormat:
    name = "nanogpt"
    trainers = "nanoGPT"
    defaults = Defaults(eot="append", val="fraction")

    def shard_name(self, name: str, split: str, index: int) -> str:
        return f"{split}.bin"

    def header(self, num_tokens: int, dtype: str) -> bytes:
        return b""

    def tokens(self, path: str, dtype: str) -> npt.NDArray[np.unsignedinteger]:
        num_bytes = os.path.getsize(path)
        if num_bytes % DTYPE_BYTES[dtype]:
            raise IntegrityError(f"{path}: {num_bytes} bytes are not whole {dtype} tokens")
        if not num_bytes:
            return np.empty(0, np.dtype(dtype).newbyteorder("<"))
        return np.memmap(path, dtype=np.dtype(dtype).newbyteorder("<"), mode="r")
