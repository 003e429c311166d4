"""LitData and LitGPT: `{split}/chunk-0-{index}.bin` and `{split}/index.json`.

A chunk is the number of its items, the offsets of their starts and of the end (all uint32), then
the items. TokensLoader treats everything after the offsets as one run of tokens, cuts it into
blocks and never reads the rest at a chunk's end. So a chunk here is one item, 12 bytes and its
tokens, and --seq-len (TokensLoader's block_size) only makes it a whole number of blocks.

uint16 tokens are `no_header_tensor:20`, torch.uint16, which litdata has read since 0.2.48. uint32
tokens are `no_header_tensor:16`, torch.int32: ids below 2^31 are the same bytes, LitGPT writes the
same, and litdata knows no torch.uint32.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tokenmill.errors import IntegrityError
from tokenmill.formats.format import (
    DTYPE_BYTES,
    Defaults,
    Files,
    Format,
    FoundShard,
    Layout,
    Shard,
    ShardReader,
    Traits,
    require_shards_fit,
)
from tokenmill.formats.index_json import (
    INDEX_NAME,
    MAX_OFFSET,
    checked_offsets,
    index_bytes,
    listed_shards,
    parsed_json,
    shown,
)
from tokenmill.formats.mapped import MappedShard, mapped_tokens

_HEADER_BYTES = 12
_CHUNK = re.compile(r"(^|/)chunk-\d+-\d+\.")
_DATA_FORMATS = {"uint16": "no_header_tensor:20", "uint32": "no_header_tensor:16"}
# litdata's numbers for dtypes. Those that torch has two names for have two.
_TORCH = {
    **{11: "uint8", 12: "int8", 13: "int16", 14: "int16", 15: "int32", 16: "int32"},
    **{17: "int64", 18: "int64", 20: "uint16"},
}
_NUMPY = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_DTYPES = {
    **{f"no_header_tensor:{number}": dtype for number, dtype in _TORCH.items()},
    **{f"no_header_numpy:{number}": dtype for number, dtype in enumerate(_NUMPY)},
}


class LitdataFormat(Format):
    name = "litdata"
    trainers = "LitData, LitGPT"
    files = "train/chunk-0-0.bin ..., train/index.json"
    pattern = r"(train|val)/(chunk-0-\d+\.bin|index\.json)"
    # LitGPT cuts at 200 MB, of int32.
    defaults = Defaults(eot="append", val="fraction", shard_tokens=50_000_000)
    traits = Traits(samples=True)

    def shard_name(self, name: str, split: str, index: int) -> str:
        return f"{split}/chunk-0-{index}.bin"

    def check(self, layout: Layout) -> None:
        most = (MAX_OFFSET - _HEADER_BYTES) // DTYPE_BYTES[layout.dtype]
        require_shards_fit(layout, most, "a litdata chunk holds less than 4 GiB")

    def header(self, num_tokens: int, dtype: str) -> bytes:
        end = _HEADER_BYTES + num_tokens * DTYPE_BYTES[dtype]
        return np.array([1, _HEADER_BYTES, end], "<u4").tobytes()

    def index(self, split: str, shards: Sequence[Shard], layout: Layout) -> dict[str, bytes]:
        chunks = [
            {
                "chunk_bytes": shard.num_bytes,
                "chunk_size": 1,
                "dim": shard.num_tokens,
                "filename": os.path.basename(shard.name),
            }
            for shard in shards
        ]
        config = {
            "chunk_bytes": None,
            "chunk_size": None,
            "compression": None,
            "data_format": [_DATA_FORMATS[layout.dtype]],
            "data_spec": '[1, {"type": null, "context": null, "children_spec": []}]',
            "encryption": None,
            "item_loader": "TokensLoader",
        }
        # litdata discards its copies of remote chunks when this changes; it need not be a time.
        all_sha256 = "".join("".join(shard.sha256) for shard in shards)
        version = hashlib.sha256(all_sha256.encode()).hexdigest()
        data = {"chunks": chunks, "config": config, "updated_at": version[:16]}
        return {f"{split}/{INDEX_NAME}": json.dumps(data, sort_keys=True).encode()}

    def find(self, files: Files, names: Sequence[str]) -> list[FoundShard]:
        return listed_shards(files, names, "chunks", _CHUNK, lambda entry: entry["filename"])

    def open(self, files: Files, name: str, dtype: str | None) -> ShardReader:
        index = _index_beside(files, name)
        if dtype is None and index is None:
            raise IntegrityError(
                f"{files.path_of(name)}: no {INDEX_NAME} beside it says what its tokens are",
                hint="--dtype uint16, if that is what they are",
            )
        # The index may say int32 where we say uint32; only the width of a token matters.
        if index is not None and (dtype is None or _width(dtype) != _width(index.dtype)):
            dtype = index.dtype
        assert dtype is not None
        num_items, first = _checked_header(files, name, _width(dtype))
        tokens = mapped_tokens(files, name, dtype, first)
        if index is not None:
            index.require(os.path.basename(name), num_items, tokens.nbytes)
        return MappedShard(tokens)


def _width(dtype: str) -> int:
    return np.dtype(dtype).itemsize


def _checked_header(files: Files, name: str, token_bytes: int) -> tuple[int, int]:
    """The number of items and where the first begins."""
    path, data = files.path_of(name), mapped_tokens(files, name, "uint8")
    offsets = checked_offsets(data, path, "a litdata chunk", "items")
    first = int(offsets[0])
    if first != 4 + 4 * len(offsets):
        raise IntegrityError(f"{path}: its first item does not begin at the end of its header")
    if ((offsets - offsets[0]) % token_bytes).any():
        raise IntegrityError(f"{path}: its items are not whole tokens of {token_bytes} bytes")
    return len(offsets) - 1, first


@dataclass(frozen=True)
class _Index:
    path: str
    dtype: str
    chunks: dict[str, tuple[int, int]]  # items and tokens, by file name

    def require(self, name: str, num_items: int, num_bytes: int) -> None:
        """Raise IntegrityError unless the chunk matches its entry in the index."""
        listed = self.chunks.get(name)
        if listed is None:
            raise IntegrityError(f"{self.path} does not list {name}")
        if (num_items, num_bytes) != (listed[0], listed[1] * np.dtype(self.dtype).itemsize):
            raise IntegrityError(
                f"{self.path}: {name} should have {listed[0]:,} items, {listed[1]:,} {self.dtype} "
                f"tokens in all, but has {num_items:,} items in {num_bytes:,} bytes"
            )


def _index_beside(files: Files, name: str) -> _Index | None:
    index = os.path.join(os.path.dirname(name), INDEX_NAME)
    if not files.has(index):
        return None
    return _parsed_index(index_bytes(files, index), files.path_of(index))


@functools.lru_cache(maxsize=2)  # every chunk needs the index that lists it
def _parsed_index(data: bytes, path: str) -> _Index:
    parsed = parsed_json(data, path)
    try:
        config, chunks = parsed["config"], parsed["chunks"]
        for key in ("compression", "encryption"):
            if config.get(key) is not None:
                raise IntegrityError(
                    f"{path}: its chunks have {key}, which tokenmill cannot read",
                    hint="write them again without it (litdata.optimize)",
                )
        loader, formats = config.get("item_loader", "TokensLoader"), config["data_format"]
        if loader != "TokensLoader" or len(formats) != 1 or formats[0] not in _DTYPES:
            raise IntegrityError(
                f"{path}: its chunks hold {shown(formats)} for {shown(loader)}, not tokens for "
                "TokensLoader"
            )
        counts = {one["filename"]: (one["chunk_size"], one["dim"]) for one in chunks}
        if not all(type(count) is int for pair in counts.values() for count in pair):
            raise TypeError("chunk_size and dim must be whole numbers")
        return _Index(path, _DTYPES[formats[0]], counts)
    except (KeyError, TypeError, AttributeError) as error:
        raise IntegrityError(f"{path} is not an index of litdata chunks: {error!r}") from error
