"""llm.c and modded-nanogpt: `{name}_{split}_{index:06d}.bin`, a 1 KiB header, then the tokens.

The header is 256 int32: magic, version, number of tokens, zeros. uint16 tokens carry llm.c's GPT-2
magic (20240520, version 1), uint32 tokens its Llama 3 magic (20240801, version 7). The C loader
seeks with a 32-bit offset, so a file stays under 2 GiB.
"""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

from tokenmill.errors import ConfigError, IntegrityError
from tokenmill.formats import DTYPE_BYTES, Defaults

HEADER_BYTES = 1024
_MAGIC_AND_VERSION = {"uint16": (20240520, 1), "uint32": (20240801, 7)}
_MAX_FILE_BYTES = (1 << 31) - 1


class LlmcFormat:
    name = "llmc"
    trainers = "llm.c, modded-nanogpt"
    defaults = Defaults(
        eot="prepend", val="first-shard", empty="keep", shard_tokens=100_000_000, name="fineweb"
    )

    def shard_name(self, name: str, split: str, index: int) -> str:
        return f"{name}_{split}_{index:06d}.bin"

    def header(self, num_tokens: int, dtype: str) -> bytes:
        most = (_MAX_FILE_BYTES - HEADER_BYTES) // DTYPE_BYTES[dtype]
        if num_tokens > most:
            raise ConfigError(
                f"llm.c reads files of less than 2 GiB: {num_tokens:,} {dtype} tokens do not fit",
                hint=f"--shard-tokens {min(most, 1_000_000_000)}",
            )
        header = np.zeros(HEADER_BYTES // 4, dtype="<i4")
        header[:3] = (*_MAGIC_AND_VERSION[dtype], num_tokens)
        return header.tobytes()

    def tokens(self, path: str, dtype: str) -> npt.NDArray[np.unsignedinteger]:
        num_bytes = os.path.getsize(path)
        if num_bytes < HEADER_BYTES:
            raise IntegrityError(f"{path}: {num_bytes} bytes are too few for the 1,024-byte header")
        magic, version, num_tokens = np.fromfile(path, dtype="<i4", count=3).tolist()
        if (magic, version) != _MAGIC_AND_VERSION[dtype]:
            raise IntegrityError(
                f"{path}: magic {magic} version {version}, "
                f"expected {_MAGIC_AND_VERSION[dtype]} for {dtype}"
            )
        expected = HEADER_BYTES + num_tokens * DTYPE_BYTES[dtype]
        if num_bytes != expected:
            raise IntegrityError(
                f"{path}: {num_bytes:,} bytes, but its header promises {num_tokens:,} tokens "
                f"({expected:,} bytes)"
            )
        return np.memmap(path, np.dtype(dtype).newbyteorder("<"), "r", HEADER_BYTES, (num_tokens,))
