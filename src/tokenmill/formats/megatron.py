"""Megatron-LM, NeMo, gpt-neox: `{name}_{split}_{index:05d}_document.bin`, only tokens, and an
`.idx` beside it that describes them. Trainers take the path without its suffix.

    34 bytes     magic, version 1, dtype code, number of sequences S, number of entries D
    int32[S]     length of each sequence, in tokens
    int64[S]     where it begins in the .bin, in bytes
    int64[D]     the sequence with which each document begins, and S at the end
    int8[S]      modes, only in multimodal datasets; only the file's size shows them

We write one sequence per document: 20 bytes each. We read any file with consecutive sequences;
opening checks the header and the sizes, `ends()` checks every entry (24 bytes of memory per
document). Megatron has no uint32, but ids below 2^31 are the same bytes as int32. Its default
loader cannot map an empty .bin.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from tokenmill.errors import InputError, IntegrityError
from tokenmill.formats.format import (
    Contents,
    Create,
    Defaults,
    Files,
    Format,
    FoundShard,
    ShardReader,
    Traits,
)
from tokenmill.formats.mapped import (
    PIECE_DOCUMENTS,
    MappedShard,
    begins_with,
    bounds_in_pieces,
    by_number,
    mapped_tokens,
    require_increasing,
    split_of,
)

MAGIC = b"MMIDIDX\x00\x00"
_HEADER = struct.Struct("<9sQBQQ")
_VERSION = 1
_CODES = {"uint16": 8, "uint32": 4}
# Megatron's dtype codes that tokens can have; 2 is int8, 6 and 7 are floats.
_DTYPES = {1: "uint8", 3: "int16", 4: "int32", 5: "int64", 8: "uint16"}
_MAX_LENGTH = (1 << 31) - 1


class MegatronFormat(Format):
    name = "megatron"
    trainers = "Megatron-LM, NeMo, gpt-neox"
    files = "text_train_00000_document.bin, .idx ..."
    pattern = r"{name}_(train|val)_\d{5,}_document\.(bin|idx)"
    # Trainers make their own split (--split), and blend any number of prefixes.
    defaults = Defaults(eot="append", val="none", name="text")
    # Megatron writes uint16 for vocabularies of fewer than 65,500 ids.
    traits = Traits(boundaries=True, narrow_vocab=65_499)

    def shard_name(self, name: str, split: str, index: int) -> str:
        return f"{name}_{split}_{index:05d}_document.bin"

    def write(self, contents: Contents, create: Create) -> None:
        lengths, dtype = contents.lengths, contents.layout.dtype
        assert lengths is not None
        token_bytes = np.dtype(dtype).itemsize
        with create(_index_name(contents.name)) as file:
            file.write(_HEADER.pack(MAGIC, _VERSION, _CODES[dtype], len(lengths), len(lengths) + 1))
            for starts, ends in bounds_in_pieces(lengths):
                _require_short(ends - starts, contents.name)
                file.write((ends - starts).astype("<i4"))
            for starts, _ in bounds_in_pieces(lengths):
                file.write((starts * token_bytes).astype("<i8", copy=False))
            for number in range(0, len(lengths) + 1, PIECE_DOCUMENTS):
                stop = min(number + PIECE_DOCUMENTS, len(lengths) + 1)
                file.write(np.arange(number, stop, dtype="<i8"))

    def find(self, files: Files, names: Sequence[str]) -> list[FoundShard]:
        there = set(names)
        return [
            FoundShard(name, split_of(name, self.pattern))
            for name in sorted(there, key=by_number)
            if name.endswith(".bin")
            and _index_name(name) in there
            and begins_with(files, _index_name(name), MAGIC)
        ]

    def open(self, files: Files, name: str, dtype: str | None) -> ShardReader:
        index = _mapped_index(files, _index_name(name))
        tokens = mapped_tokens(files, name, index.dtype)
        return MappedShard(tokens, lambda: index.document_ends(len(tokens)))


@dataclass(frozen=True)
class _Index:
    """An `.idx` whose parts are as long as its header says. Their content is not checked yet."""

    path: str
    dtype: str
    data: npt.NDArray[np.uint8]
    num_sequences: int
    num_entries: int

    @functools.cached_property
    def lengths(self) -> npt.NDArray[np.int32]:
        return self.data[_HEADER.size : self._pointers_at].view("<i4")

    @functools.cached_property
    def pointers(self) -> npt.NDArray[np.int64]:
        return self.data[self._pointers_at : self._firsts_at].view("<i8")

    @functools.cached_property
    def firsts(self) -> npt.NDArray[np.int64]:
        """Sequences: one for each document and one more."""
        return self.data[self._firsts_at : self._firsts_at + 8 * self.num_entries].view("<i8")

    @property
    def _pointers_at(self) -> int:
        return _HEADER.size + 4 * self.num_sequences

    @property
    def _firsts_at(self) -> int:
        return self._pointers_at + 8 * self.num_sequences

    def document_ends(self, num_tokens: int) -> npt.NDArray[np.int64]:
        bounds = self._sequence_bounds(num_tokens)
        firsts = self.firsts
        if firsts[0] != 0 or firsts[-1] != len(self.lengths) or (firsts[1:] < firsts[:-1]).any():
            raise IntegrityError(
                f"{self.path}: its document indices do not ascend from 0 to its "
                f"{len(self.lengths):,} sequences"
            )
        ends = bounds[firsts[1:]]
        require_increasing(ends, num_tokens, self.path)
        return ends

    def _sequence_bounds(self, num_tokens: int) -> npt.NDArray[np.int64]:
        """Where sequences start, in tokens, and the end of the last."""
        bounds = np.zeros(len(self.lengths) + 1, np.int64)
        number = 0
        for starts, ends in bounds_in_pieces(self.lengths):
            is_within = (starts <= ends) & (ends <= num_tokens)
            self._require(is_within, number, "does not lie within the .bin")
            pointers = self.pointers[number : number + len(starts)]
            expected = starts * np.dtype(self.dtype).itemsize
            self._require(pointers == expected, number, "does not begin where the one before ends")
            bounds[number + 1 : number + len(ends) + 1] = ends
            number += len(ends)
        return bounds

    def _require(self, is_right: npt.NDArray[np.bool_], number: int, otherwise: str) -> None:
        if not is_right.all():
            raise IntegrityError(
                f"{self.path}: sequence {number + int(np.argmin(is_right))} {otherwise}"
            )


def _mapped_index(files: Files, name: str) -> _Index:
    path = files.path_of(name)
    data = cast("npt.NDArray[np.uint8]", mapped_tokens(files, name, "uint8"))
    if len(data) < _HEADER.size or bytes(data[: len(MAGIC)]) != MAGIC:
        raise IntegrityError(
            f"{path} does not begin with Megatron's header of {_HEADER.size} bytes"
        )
    _, version, code, num_sequences, num_entries = _HEADER.unpack(bytes(data[: _HEADER.size]))
    if version != _VERSION:
        raise IntegrityError(f"{path} has version {version}, expected {_VERSION}")
    if code not in _DTYPES:
        known = ", ".join(f"{code} ({dtype})" for code, dtype in _DTYPES.items())
        raise IntegrityError(f"{path} has dtype code {code}; tokens have one of {known}")
    num_bytes = _HEADER.size + 12 * num_sequences + 8 * num_entries
    if len(data) not in (num_bytes, num_bytes + num_sequences) or not num_entries:
        raise IntegrityError(
            f"{path}: {len(data):,} bytes, but its header promises {num_sequences:,} sequences and "
            f"{num_entries:,} document indices ({num_bytes:,} bytes)"
        )
    return _Index(path, _DTYPES[code], data, num_sequences, num_entries)


def _index_name(name: str) -> str:
    return name.removesuffix(".bin") + ".idx"


def _require_short(lengths: npt.NDArray[np.int64], name: str) -> None:
    longest = int(lengths.max())
    if longest > _MAX_LENGTH:
        raise InputError(
            f"a document in {name} has {longest:,} tokens, and Megatron's index holds lengths up "
            f"to {_MAX_LENGTH:,}",
            hint="cut that document, or choose another --format",
        )
