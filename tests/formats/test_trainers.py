"""One corpus in all nine formats, each read by its trainer's own loader: the same documents.

The loaders come from PyPI and run in an environment of their own (loader_env.py). nanoGPT,
build-nanogpt and llm.c are scripts without a package: what their loaders do is written out here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tokenmill
from corpora import made_texts, write_corpus
from loader_env import NO_WHEEL, loader
from tokenmill.formats import NAMES

TEXTS = made_texts(60, seed=11)
EOT = {"gpt2": 50256, "o200k_base": 199999}
DTYPE = {"gpt2": "uint16", "o200k_base": "uint32"}
OPTIONS = {
    "nanogpt": {},
    "npy": {"shard_tokens": 1000},
    "llmc": {"shard_tokens": 1000},
    "megatron": {"shard_tokens": 1000},
    "olmo": {"shard_tokens": 1000},
    "datatrove": {"shard_tokens": 1000},
    "mds": {"shard_tokens": 1000, "seq_len": 0},
    "litdata": {"shard_tokens": 1000},
    "parquet": {"shard_tokens": 1000},
}
Documents = list[list[int]]


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> str:
    return write_corpus("parquet", tmp_path_factory.mktemp("corpus"), TEXTS)


def by_eot(tokens: list[int], eot: int) -> Documents:
    documents: Documents = [[]]
    for token in tokens:
        documents[-1].append(token)
        if token == eot:
            documents.append([])
    assert documents.pop() == []
    return documents


# How each trainer reads a split: (folder, split, tokenizer) -> documents


def nanogpt(out: Path, split: str, tokenizer: str) -> Documents:
    tokens = np.memmap(out / f"{split}.bin", dtype=DTYPE[tokenizer], mode="r")
    return by_eot(tokens.tolist(), EOT[tokenizer])


def npy(out: Path, split: str, tokenizer: str) -> Documents:
    shards = sorted(path for path in out.iterdir() if split in path.name)
    tokens = [token for shard in shards for token in np.load(shard).astype(np.int32).tolist()]
    return by_eot(tokens, EOT[tokenizer])


def llmc(out: Path, split: str, tokenizer: str) -> Documents:
    tokens: list[int] = []
    for path in sorted(out.glob(f"*_{split}_*.bin")):
        data = path.read_bytes()
        magic, version, count = struct.unpack_from("<3i", data)
        wide = DTYPE[tokenizer] == "uint32"
        assert (magic, version) == ((20240801, 7) if wide else (20240520, 1))
        assert len(data) == 1024 + count * (4 if wide else 2)
        tokens += np.frombuffer(data, DTYPE[tokenizer], offset=1024).tolist()
    return by_eot(tokens, EOT[tokenizer])


def megatron(out: Path, split: str, tokenizer: str) -> Documents:
    found = megatron_by_its_specification(out, split)
    if not NO_WHEEL:  # where there is none, loader() would skip: the specification stands in
        assert loader("megatron", out, "--split", f"text_{split}")["documents"] == found
    return found


def megatron_by_its_specification(out: Path, split: str) -> Documents:
    documents: Documents = []
    for path in sorted(out.glob(f"text_{split}_*.idx")):
        index, tokens = path.read_bytes(), path.with_suffix(".bin").read_bytes()
        magic, version, code, sequences, entries = struct.unpack_from("<9sQBQQ", index)
        assert (magic, version, entries) == (b"MMIDIDX\0\0", 1, sequences + 1)
        dtype = {8: "<u2", 4: "<i4"}[code]
        lengths = np.frombuffer(index, "<i4", sequences, 34)
        pointers = np.frombuffer(index, "<i8", sequences, 34 + 4 * sequences)
        bounds = np.frombuffer(index, "<i8", entries, 34 + 12 * sequences)
        assert len(index) == 42 + 20 * sequences
        assert bounds.tolist() == list(range(sequences + 1))
        documents += [
            np.frombuffer(tokens, dtype, length, pointer).tolist()
            for length, pointer in zip(lengths, pointers, strict=True)
        ]
    return documents


def olmo(out: Path, split: str, tokenizer: str) -> Documents:
    vocabulary = ("--vocab-size", EOT[tokenizer] + 1)
    found = loader("olmo", out, "--split", split, "--eos", EOT[tokenizer], *vocabulary)
    assert found["documents"] == found["documents_by_eos"]
    assert found["dtype"] == DTYPE[tokenizer]
    return found["documents"]


def datatrove(out: Path, split: str, tokenizer: str) -> Documents:
    found = loader("datatrove", out / split, "--dtype", DTYPE[tokenizer], "--seq-len", 16)
    flat = [token for document in found["documents"] for token in document]
    windows = [token for window in found["samples"] for token in window]
    assert len(flat) - 17 * len(found["files"]) < len(windows) <= len(flat)
    return found["documents"]


def mds(out: Path, split: str, tokenizer: str) -> Documents:
    return loader("mds", out / split)["documents"]


def litdata(out: Path, split: str, tokenizer: str) -> Documents:
    blocks = loader("litdata", out / split, "--block-size", 1)["samples"]
    return by_eot([token for block in blocks for token in block], EOT[tokenizer])


def parquet(out: Path, split: str, tokenizer: str) -> Documents:
    return loader("parquet", out, "--split", split)["documents"]


READ: dict[str, Callable[[Path, str, str], Documents]] = {
    "nanogpt": nanogpt,
    "npy": npy,
    "llmc": llmc,
    "megatron": megatron,
    "olmo": olmo,
    "datatrove": datatrove,
    "mds": mds,
    "litdata": litdata,
    "parquet": parquet,
}


def test_every_format_is_read_here():
    assert set(READ) == set(OPTIONS) == set(NAMES)


@pytest.mark.parametrize("tokenizer", EOT)
@pytest.mark.parametrize("name", READ)
def test_the_trainers_own_loader_gives_the_source_texts(name, tokenizer, source, tmp_path):
    out = tmp_path / "out"
    tokenmill.prepare(
        source,
        out,
        tokenizer=tokenizer,
        format=name,
        eot="append",
        val_fraction=0.2,
        num_proc=1,
        **OPTIONS[name],
    )
    decode = tokenmill.get_encoding(tokenizer).decode
    texts = {}
    for split in ("train", "val"):
        documents = READ[name](out, split, tokenizer)
        assert {document[-1] for document in documents} == {EOT[tokenizer]}
        texts[split] = [decode(document[:-1]) for document in documents]
        assert texts[split] == sorted(texts[split], key=TEXTS.index)  # in the order of the corpus
    assert sorted(texts["train"] + texts["val"]) == sorted(TEXTS)
    assert texts["val"]


@pytest.mark.parametrize("name", ["mds", "litdata"])
def test_samples_of_a_fixed_length_are_the_stream_cut_evenly(name, source, tmp_path):
    options = {"seq_len": 32, "shard_tokens": 1000, "val": "none", "num_proc": 1}
    tokenmill.prepare(source, tmp_path / "out", format=name, **options)
    extra = ("--block-size", 32) if name == "litdata" else ()
    samples = loader(name, tmp_path / "out" / "train", *extra)["samples"]
    encoding = tokenmill.get_encoding("gpt2")
    stream = [i for text in TEXTS for i in [*encoding.encode_ordinary(text), EOT["gpt2"]]]
    whole = len(stream) - len(stream) % 32
    assert samples == [stream[i : i + 32] for i in range(0, whole, 32)]


def test_parquet_samples_of_a_fixed_length(source, tmp_path):
    options = {"seq_len": 32, "val": "none", "num_proc": 1}
    manifest = tokenmill.prepare(source, tmp_path / "out", format="parquet", **options)
    rows = loader("parquet", tmp_path / "out", "--split", "train")["documents"]
    assert {len(row) for row in rows} == {32}
    assert len(rows) * 32 == manifest.splits["train"].num_tokens
    assert 0 <= manifest.splits["train"].num_tail_tokens < 32
