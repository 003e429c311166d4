"""One contract for all formats, the trainers' own ways of reading, and golden hashes."""

from __future__ import annotations

import hashlib
import os

import numpy as np
import pytest

import tokenmill
from conftest import write_corpus
from tokenmill.errors import ConfigError, IntegrityError
from tokenmill.formats import NAMES, chosen_dtype, get_format

TOKENS = np.array([50256, 0, 1, 65535, 42], "<u2")


def shard(tmp_path, name: str, tokens: np.ndarray, dtype: str) -> str:
    path = tmp_path / get_format(name).shard_name("stem", "train", 3)
    path.write_bytes(get_format(name).header(len(tokens), dtype) + tokens.tobytes())
    return os.fspath(path)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
@pytest.mark.parametrize("count", [1, 5])
def test_tokens_reads_back_what_header_and_tokens_wrote(name, dtype, count, tmp_path):
    tokens = TOKENS[:count].astype(np.dtype(dtype).newbyteorder("<"))
    found = get_format(name).tokens(shard(tmp_path, name, tokens, dtype), dtype)
    assert found.tolist() == tokens.tolist() and found.dtype == tokens.dtype


@pytest.mark.parametrize("name", NAMES)
def test_tokens_of_a_truncated_shard_is_refused(name, tmp_path):
    path = shard(tmp_path, name, TOKENS, "uint16")
    with open(path, "r+b") as file:
        file.truncate(os.path.getsize(path) - 1)
    with pytest.raises(IntegrityError, match=os.path.basename(path)):
        get_format(name).tokens(path, "uint16")


@pytest.mark.parametrize("name", ["llmc", "npy"])
def test_tokens_of_another_dtype_or_of_garbage_is_refused(name, tmp_path):
    path = shard(tmp_path, name, TOKENS, "uint16")
    with pytest.raises(IntegrityError):
        get_format(name).tokens(path, "uint32")
    with open(path, "r+b") as file:
        file.write(b"garbage!")
    with pytest.raises(IntegrityError):
        get_format(name).tokens(path, "uint16")


@pytest.mark.parametrize("name", NAMES)
def test_names_of_splits_and_indices_differ_where_shards_do(name):
    found = get_format(name)
    names = {found.shard_name("stem", split, i) for split in ("train", "val") for i in range(3)}
    assert len(names) == (2 if found.defaults.shard_tokens is None else 6)


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


def test_llmc_refuses_a_file_the_c_loader_cannot_seek():
    assert get_format("llmc").header(1_000_000_000, "uint16")
    with pytest.raises(ConfigError, match="2 GiB"):
        get_format("llmc").header(1_073_741_824, "uint16")
    with pytest.raises(ConfigError, match="2 GiB"):
        get_format("llmc").header(1_000_000_000, "uint32")


@pytest.mark.parametrize(("max_id", "dtype"), [(65535, "uint16"), (65536, "uint32")])
def test_auto_dtype_is_the_narrowest_that_holds_every_id(max_id, dtype):
    assert chosen_dtype("auto", max_id, "x", "npy") == dtype


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
