"""What is in a folder of shards, said slowly and plainly: NumPy, json, gzip, and a list.

Shares no code with tokenmill. Of its manifest nothing is read but how wide a token is, where the
files of the format do not say so themselves.
"""

from __future__ import annotations

import gzip
import itertools
import json
import struct
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

Documents = list[list[int]]


def tokens(folder: Path, format_name: str, dtype: str = "uint16") -> dict[str, list[int]]:
    """Each split's tokens, in the order in which a trainer meets them."""
    found: dict[str, list[int]] = {}
    for split in ("train", "val"):
        pieces = list(_READERS[format_name](Path(folder), split, dtype))
        if pieces:
            found[split] = [token for piece in pieces for token in piece]
    return found


def shards(folder: Path, format_name: str, dtype: str = "uint16") -> dict[str, list[list[int]]]:
    """Each split's shards, in order: the tokens of each."""
    return {
        split: list(_READERS[format_name](Path(folder), split, dtype)) for split in ("train", "val")
    }


def shards_apart(folder: Path, format_name: str, dtype: str = "uint16") -> dict[str, list]:
    """The same of a format that keeps documents apart: the documents of each shard."""
    return {
        split: list(_APART[format_name](Path(folder), split, dtype)) for split in ("train", "val")
    }


def documents(folder: Path, format_name: str, dtype: str = "uint16") -> dict[str, Documents]:
    """Each split's documents, of a format that keeps them apart."""
    found: dict[str, Documents] = {}
    for split in ("train", "val"):
        pieces = list(_APART[format_name](Path(folder), split, dtype))
        if pieces:
            found[split] = [document for piece in pieces for document in piece]
    return found


def _nanogpt(folder: Path, split: str, dtype: str):
    if (folder / f"{split}.bin").exists():
        yield np.fromfile(folder / f"{split}.bin", dtype).tolist()


def _npy(folder: Path, split: str, dtype: str):
    for path in sorted(folder.glob(f"*_{split}_??????.npy")):
        yield np.load(path).tolist()


def _llmc(folder: Path, split: str, dtype: str):
    for path in sorted(folder.glob(f"*_{split}_??????.bin")):
        magic, _, count = np.fromfile(path, "<i4", 3).tolist()
        kind = {20240520: "<u2", 20240801: "<u4"}[magic]
        found = np.fromfile(path, kind, offset=1024)
        assert len(found) == count
        yield found.tolist()


def _litdata(folder: Path, split: str, dtype: str):
    if not (folder / split / "index.json").exists():
        return
    index = json.loads((folder / split / "index.json").read_bytes())
    [said] = index["config"]["data_format"]
    kind = {"no_header_tensor:20": "<u2", "no_header_tensor:16": "<i4"}[said]
    for chunk in index["chunks"]:
        data = (folder / split / chunk["filename"]).read_bytes()
        num_items, start, end = struct.unpack("<3I", data[:12])
        assert (num_items, start, end) == (1, 12, len(data))
        yield np.frombuffer(data[12:], kind).tolist()


def _megatron(folder: Path, split: str, dtype: str):
    for path in sorted(folder.glob(f"*_{split}_?????_document.bin")):
        data = path.with_suffix(".idx").read_bytes()
        magic, version, code, count, entries = struct.unpack("<9sQBQQ", data[:34])
        assert (magic, version, entries) == (b"MMIDIDX\x00\x00", 1, count + 1)
        lengths = np.frombuffer(data, "<i4", count, 34)
        pointers = np.frombuffer(data, "<i8", count, 34 + 4 * count)
        found = np.fromfile(path, {8: "<u2", 4: "<i4"}[code])
        starts = pointers // found.itemsize
        assert int(lengths.sum()) == len(found)
        yield [found[s : s + n].tolist() for s, n in zip(starts, lengths, strict=True)]


def _olmo(folder: Path, split: str, dtype: str):
    for path in sorted(folder.glob(f"*-{split}-?????.npy")):
        found = np.fromfile(path, dtype)
        rows = gzip.decompress(path.with_suffix(".csv.gz").read_bytes()).decode().splitlines()
        bounds = [tuple(map(int, row.split(",")[:2])) for row in rows]
        assert sum(end - start for start, end in bounds) == len(found)
        yield [found[start:end].tolist() for start, end in bounds]


def _datatrove(folder: Path, split: str, dtype: str):
    for path in sorted((folder / split).glob("*.ds")):
        found = np.fromfile(path, dtype)
        ends = np.fromfile(f"{path}.index", "<u8").tolist()
        assert ends[-1] == len(found)
        starts = [0, *ends[:-1]]
        yield [found[a:b].tolist() for a, b in zip(starts, ends, strict=True)]


def _mds(folder: Path, split: str, dtype: str):
    if not (folder / split / "index.json").exists():
        return
    for shard in json.loads((folder / split / "index.json").read_bytes())["shards"]:
        [said] = shard["column_encodings"]
        _, kind, *shape = said.split(":")
        data = (folder / split / shard["raw_data"]["basename"]).read_bytes()
        count = struct.unpack("<I", data[:4])[0]
        assert count == shard["samples"]
        offsets = struct.unpack(f"<{count + 1}I", data[4 : 8 + 4 * count])
        samples = []
        for start, end in itertools.pairwise(offsets):
            if not shape:
                size, marks = struct.unpack("<IB", data[start : start + 5])
                assert start + 4 + size == end
                start += 5 + (1 << (marks & 3))
            samples.append(np.frombuffer(data[start:end], kind).tolist())
            assert not shape or len(samples[-1]) == int(shape[0])
        yield samples


def _parquet(folder: Path, split: str, dtype: str):
    for path in sorted(folder.glob(f"{split}-?????.parquet")):
        yield pq.read_table(path)["input_ids"].to_pylist()


_APART = {
    "megatron": _megatron,
    "olmo": _olmo,
    "datatrove": _datatrove,
    "mds": _mds,
    "parquet": _parquet,
}


def _joined(read):
    def tokens_of(folder: Path, split: str, dtype: str):
        for some in read(folder, split, dtype):
            yield [token for document in some for token in document]

    return tokens_of


_READERS = {
    "nanogpt": _nanogpt,
    "npy": _npy,
    "llmc": _llmc,
    "litdata": _litdata,
    **{name: _joined(read) for name, read in _APART.items()},
}
