"""nanoGPT: `train.bin` and `val.bin`, which hold only tokens.

nanoGPT's `train.py` maps the file as uint16 and takes random crops, so there is one file per split
of any size, and the file does not state its dtype. A wide vocabulary needs uint32 here and one
changed line there.
"""

from __future__ import annotations

from collections.abc import Sequence

from tokenmill.formats.format import (
    Defaults,
    Files,
    Format,
    FoundShard,
    ShardReader,
    Traits,
)
from tokenmill.formats.mapped import MappedShard, mapped_tokens, split_of


class NanogptFormat(Format):
    name = "nanogpt"
    trainers = "nanoGPT"
    files = "train.bin, val.bin"
    pattern = r"(train|val)\.bin"
    defaults = Defaults(eot="append", val="fraction")
    traits = Traits(one_file=True)

    def shard_name(self, name: str, split: str, index: int) -> str:
        return f"{split}.bin"

    def find(self, files: Files, names: Sequence[str]) -> list[FoundShard]:
        return [
            FoundShard(n, split_of(n, self.pattern))
            for n in names
            if n.endswith(".bin") and "/" not in n
        ]

    def open(self, files: Files, name: str, dtype: str | None) -> ShardReader:
        return MappedShard(mapped_tokens(files, name, dtype or "uint16"))
