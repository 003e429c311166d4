"""Formats beyond their contract: the trainers' own ways of reading, and golden hashes."""

from __future__ import annotations

import hashlib
import os

import numpy as np
import pytest

import tokenmill
from corpora import write_corpus
from tokenmill.errors import ConfigError
from tokenmill.formats import chosen_dtype, get_format


def test_header_of_npy_is_numpys_own(tmp_path):
    for count in (1, 10**8, 10**15):
        for dtype in ("uint16", "uint32"):
            header = get_format("npy").header(count, dtype)
            assert len(header) % 64 == 0
            path = tmp_path / "h.npy"
            path.write_bytes(header)
            with open(path, "rb") as file:
                assert np.lib.format.read_magic(file) == (1, 0)
                shape, fortran, found = np.lib.format.read_array_header_1_0(file)
            assert (shape, fortran, found) == ((count,), False, np.dtype(dtype))


def test_llmc_refuses_a_file_the_c_loader_cannot_seek(tmp_path, corpus):
    for options in ({"shard_tokens": 1_073_741_824}, {"shard_tokens": 10**9, "dtype": "uint32"}):
        with pytest.raises(ConfigError, match="2 GiB"):
            tokenmill.prepare(corpus, tmp_path / "out", format="llmc", num_proc=1, **options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("max_id", "dtype"), [(65535, "uint16"), (65536, "uint32")])
def test_auto_dtype_is_the_narrowest_that_holds_every_id(max_id, dtype):
    assert chosen_dtype("auto", max_id, "x", get_format("npy")) == dtype


# The trainers' own ways of reading


def test_nanogpt_get_batch_reads_train_bin(tmp_path, corpus):
    tokenmill.prepare(corpus, tmp_path / "out", val_fraction=0.1, num_proc=1)
    rng = np.random.default_rng(0)
    for split in ("train", "val"):
        data = np.memmap(tmp_path / "out" / f"{split}.bin", dtype=np.uint16, mode="r")
        block_size = 64
        starts = rng.integers(0, len(data) - block_size, 4)
        x = np.stack([data[i : i + block_size].astype(np.int64) for i in starts])
        y = np.stack([data[i + 1 : i + 1 + block_size].astype(np.int64) for i in starts])
        assert (x[:, 1:] == y[:, :-1]).all() and x.max() <= 50256


def test_build_nanogpt_loader_finds_its_shards_and_nothing_else(tmp_path, corpus):
    out = tmp_path / "out"
    tokenmill.prepare(corpus, out, format="npy", shard_tokens=10_000, num_proc=1)
    for split in ("train", "val"):
        shards = sorted(name for name in os.listdir(out) if split in name)
        assert shards and all(name.endswith(".npy") for name in shards)
        for name in shards:
            assert np.load(out / name).astype(np.int32).ndim == 1


def test_llmc_loader_accepts_the_header(tmp_path, corpus):
    out = tmp_path / "out"
    tokenmill.prepare(corpus, out, format="llmc", shard_tokens=10_000, num_proc=1)
    for name in sorted(os.listdir(out)):
        if name.endswith(".bin"):
            with open(out / name, "rb") as file:
                header = np.frombuffer(file.read(256 * 4), dtype=np.int32)
                tokens = np.frombuffer(file.read(), dtype=np.uint16)
            assert header[0] == 20240520 and header[1] == 1 and header[2] == len(tokens)


# Bytes are a promise: these change only together with BYTES_VERSION in settings.py.

GOLDEN = {
    ("nanogpt", "train.bin"): "698a5ec9524a6b5f",
    ("nanogpt", "val.bin"): "8ae098e785d83570",
    ("npy", "edufineweb_val_000000.npy"): "1a6ddb5950aca1af",
    ("npy", "edufineweb_train_000001.npy"): "3712522500906bf5",
    ("llmc", "fineweb_val_000000.bin"): "5e1691cbc4aaf3c9",
    ("llmc", "fineweb_train_000001.bin"): "9a9127b918be6d0e",
    ("shuffled", "train.bin"): "c718249d2693ea52",
}


def test_bytes_are_the_golden_ones(tmp_path):
    texts = [
        f"Document {number}: the mill ground {number * 7} sacks. 東京 🙂" for number in range(99)
    ]
    source = write_corpus("jsonl", tmp_path, texts)
    runs = {
        "nanogpt": {"val_fraction": 0.1},
        "npy": {"format": "npy", "shard_tokens": 1500},
        "llmc": {"format": "llmc", "shard_tokens": 1000, "tokenizer": "o200k_base"},
        "shuffled": {"val": "none", "shuffle": True, "seed": 42, "slice_bytes": 1000},
    }
    found = {}
    for name, options in runs.items():
        manifest = tokenmill.prepare(source, tmp_path / name, num_proc=1, **options)
        found.update({(name, file.name): file.sha256[:16] for file in manifest.files})
        for file in manifest.files:
            data = (tmp_path / name / file.name).read_bytes()
            assert hashlib.sha256(data).hexdigest() == file.sha256
    assert found == GOLDEN
