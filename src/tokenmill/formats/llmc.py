"""llm.c and modded-nanogpt: `{name}_{split}_{index:06d}.bin`, a 1 KiB header, then the tokens.

The header is 256 int32: magic, version, number of tokens, zeros. uint16 tokens carry llm.c's GPT-2
magic (20240520, version 1), uint32 tokens its Llama 3 magic (20240801, version 7). The C loader
seeks with a 32-bit offset, so a file stays under 2 GiB.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tokenmill.errors import IntegrityError
from tokenmill.formats.format import (
    DTYPE_BYTES,
    Defaults,
    Files,
    Format,
    FoundShard,
    Layout,
    ShardReader,
    Traits,
    require_shards_fit,
)
from tokenmill.formats.mapped import MappedShard, mapped_tokens, split_of, start_of

HEADER_BYTES = 1024
_MAGIC_AND_VERSION = {"uint16": (20240520, 1), "uint32": (20240801, 7)}
_MAX_FILE_BYTES = (1 << 31) - 1


class LlmcFormat(Format):
    name = "llmc"
    trainers = "llm.c, modded-nanogpt"
    files = "fineweb_train_000001.bin ..."
    pattern = r"{name}_(train|val)_\d{6,}\.bin"
    defaults = Defaults(
        eot="prepend", val="first-shard", empty="keep", shard_tokens=100_000_000, name="fineweb"
    )
    traits = Traits()

    def shard_name(self, name: str, split: str, index: int) -> str:
        return f"{name}_{split}_{index:06d}.bin"

    def check(self, layout: Layout) -> None:
        most = (_MAX_FILE_BYTES - HEADER_BYTES) // DTYPE_BYTES[layout.dtype]
        require_shards_fit(layout, most, "llm.c reads files of less than 2 GiB")

    def header(self, num_tokens: int, dtype: str) -> bytes:
        header = np.zeros(HEADER_BYTES // 4, dtype="<i4")
        header[:3] = (*_MAGIC_AND_VERSION[dtype], num_tokens)
        return header.tobytes()

    def find(self, files: Files, names: Sequence[str]) -> list[FoundShard]:
        return [
            FoundShard(name, split_of(name, self.pattern))
            for name in names
            if name.endswith(".bin") and _dtype_of(files, name) is not None
        ]

    def open(self, files: Files, name: str, dtype: str | None) -> ShardReader:
        path, found = files.path_of(name), _dtype_of(files, name)
        if found is None or (files.size(name) or 0) < HEADER_BYTES:
            raise IntegrityError(f"{path} does not begin with llm.c's header of 1,024 bytes")
        num_tokens = int(np.frombuffer(start_of(files, name, 12), "<i4")[2])
        if num_tokens < 0:
            raise IntegrityError(f"{path}: its header promises {num_tokens:,} tokens")
        return MappedShard(mapped_tokens(files, name, found, HEADER_BYTES, num_tokens))


def _dtype_of(files: Files, name: str) -> str | None:
    """What the header says the tokens are; None if it is not llm.c's header."""
    try:
        start = start_of(files, name, 8)
    except IntegrityError:
        return None
    found = tuple(np.frombuffer(start, "<i4")) if len(start) == 8 else ()
    return next((dtype for dtype, magic in _MAGIC_AND_VERSION.items() if magic == found), None)
