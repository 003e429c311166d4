"""Formats: how shards are named and laid out. One format, one file: it writes and reads back.

A shard is a header, which may depend on the number of tokens, and the tokens as little-endian
unsigned integers. A format says what surrounds the tokens and what the trainer that reads it
expects by default; assemble.py does the writing, alike for all.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tokenmill.errors import ConfigError, unknown_name

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

DTYPE_BYTES = {"uint16": 2, "uint32": 4}


@dataclass(frozen=True, slots=True)
class Defaults:
    """What the format's own trainer expects, where the user says nothing else."""

    eot: str
    val: str
    empty: str = "drop"
    val_fraction: float = 0.0005
    shard_tokens: int | None = None  # None: one shard per split
    name: str | None = None  # the stem of shard names; None: the names are fixed


class Format(Protocol):
    name: str
    trainers: str
    defaults: Defaults

    def shard_name(self, name: str, split: str, index: int) -> str:
        """The file name of a stream's shard number `index`; `name` is the stem."""

    def header(self, num_tokens: int, dtype: str) -> bytes:
        """What stands before the tokens. Raises ConfigError for what the format cannot hold."""

    def tokens(self, path: str, dtype: str) -> npt.NDArray[np.unsignedinteger]:
        """The tokens of one shard, mapped read-only. Raises IntegrityError if it is not whole."""


_FORMATS = {
    "llmc": "tokenmill.formats.llmc:LlmcFormat",
    "nanogpt": "tokenmill.formats.nanogpt:NanogptFormat",
    "npy": "tokenmill.formats.npy:NpyFormat",
}
NAMES = tuple(_FORMATS)


def get_format(name: str) -> Format:
    if name not in _FORMATS:
        raise unknown_name("format", name, NAMES)
    module, _, attribute = _FORMATS[name].partition(":")
    found: Format = getattr(importlib.import_module(module), attribute)()
    return found


def chosen_dtype(asked: str, max_id: int, encoding_name: str, format_name: str) -> str:
    """The narrowest dtype that holds every id, or the one asked for if it does."""
    if asked == "auto":
        return "uint16" if max_id <= 0xFFFF else "uint32"
    if asked == "uint16" and max_id > 0xFFFF:
        also = (
            ", and in nanoGPT's train.py read both files with dtype=np.uint32"
            if format_name == "nanogpt"
            else ""
        )
        raise ConfigError(
            f"{encoding_name} has ids up to {max_id:,}, and uint16 holds at most 65,535",
            hint=f"--dtype uint32{also}",
        )
    return asked
