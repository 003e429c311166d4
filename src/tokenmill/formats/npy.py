"""build-nanogpt: numbered NumPy files, `{name}_{split}_{index:06d}.npy`, shard 0 for validation.

The bytes equal what `np.save` writes for a 1-D array (NPY 1.0, header padded to 64 bytes), so
`np.load` and build-nanogpt's DataLoaderLite read them; the loader takes every file whose name
contains the split's name, so tokenmill's own files have neither train nor val in their names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from tokenmill.errors import ConfigError, IntegrityError
from tokenmill.formats.format import (
    Defaults,
    Files,
    Format,
    FoundShard,
    Layout,
    ShardReader,
    Traits,
)
from tokenmill.formats.mapped import (
    MappedShard,
    begins_with,
    mapped_tokens,
    split_of,
    start_of,
)

MAGIC = b"\x93NUMPY"
# We parse the header with our own expression: NumPy's reader evaluates it as Python.
_HEADER = re.compile(
    MAGIC + rb"\x01\x00..\{'descr': '(<u2|<u4|<i4|<i8)', 'fortran_order': False, "
    rb"'shape': \((\d{1,18}),\), \} *\n",
    re.DOTALL,
)
_MAX_HEADER_BYTES = 256


class NpyFormat(Format):
    name = "npy"
    trainers = "build-nanogpt, anything that calls np.load"
    files = "edufineweb_train_000001.npy ..."
    pattern = r"{name}_(train|val)_\d{6,}\.npy"
    defaults = Defaults(
        eot="prepend", val="first-shard", empty="keep", shard_tokens=100_000_000, name="edufineweb"
    )
    traits = Traits()

    def shard_name(self, name: str, split: str, index: int) -> str:
        return f"{name}_{split}_{index:06d}.npy"

    def check(self, layout: Layout) -> None:
        held = next((split for split in ("train", "val") if split in layout.name), None)
        if held is not None:
            raise ConfigError(
                f"--name {layout.name} contains {held!r}, and build-nanogpt's loader takes every "
                f"file whose name contains it for a {held} shard: the splits would be mixed",
                hint="--name edufineweb, or another without train and val",
            )

    def header(self, num_tokens: int, dtype: str) -> bytes:
        descr = np.dtype(dtype).newbyteorder("<").str
        fields = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': ({num_tokens},), }}"
        # Magic, version and length take 10 bytes; a newline ends the header on a multiple of 64.
        padded = fields + " " * (-(10 + len(fields) + 1) % 64) + "\n"
        return MAGIC + b"\x01\x00" + len(padded).to_bytes(2, "little") + padded.encode("latin1")

    def find(self, files: Files, names: Sequence[str]) -> list[FoundShard]:
        return [
            FoundShard(name, split_of(name, self.pattern))
            for name in names
            if name.endswith(".npy") and begins_with(files, name, MAGIC)
        ]

    def open(self, files: Files, name: str, dtype: str | None) -> ShardReader:
        start = start_of(files, name, _MAX_HEADER_BYTES)
        match = _HEADER.match(start)
        if match is None or match.end() != 10 + int.from_bytes(start[8:10], "little"):
            raise IntegrityError(
                f"{files.path_of(name)} does not begin with the header of a 1-D NumPy array "
                "of integers"
            )
        found = np.dtype(match[1].decode()).name
        return MappedShard(mapped_tokens(files, name, found, match.end(), int(match[2])))
