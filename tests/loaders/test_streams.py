"""The trainers' own readers and our Loader, on the same shards, give the same tokens in windows."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tokenmill
from corpora import made_texts
from loader_env import loader

SEQ_LEN = 16


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("streams") / "texts.parquet"
    pq.write_table(pa.table({"text": made_texts(40, 0)}), path)
    return str(path)


def windows(tokens) -> list[list[int]]:
    """Side by side, as long as they are full."""
    count = len(tokens) // SEQ_LEN * SEQ_LEN
    return np.reshape(tokens[:count], (-1, SEQ_LEN)).tolist()


def theirs(name: str, folder) -> list[list[int]]:
    if name == "litdata":
        return loader(name, folder / "train", "--block-size", SEQ_LEN)["samples"]
    if name == "mds":
        return loader(name, folder / "train")["samples"]
    if name == "olmo":
        return loader(name, folder, "--eos", 50256, "--seq-len", SEQ_LEN)["samples"]
    if name == "megatron":
        documents = loader(name, folder, "--split", "text_train")["documents"]
        return windows([*itertools.chain.from_iterable(documents)])
    return windows(np.memmap(folder / "train.bin", np.uint16, "r"))  # nanoGPT's


@pytest.mark.parametrize("name", ["litdata", "mds", "olmo", "megatron", "nanogpt"])
def test_loader_gives_the_windows_of_the_formats_own_reader(name, corpus, tmp_path):
    more = {"seq_len": SEQ_LEN} if name == "mds" else {}
    options = {"runner": "inline", "format": name, "val": "none", **more}
    tokenmill.prepare(corpus, tmp_path / name, **options)
    ours = tokenmill.Loader(
        tmp_path / name, seq_len=SEQ_LEN, batch_size=1, epochs=1, shuffle=None, prefetch=0
    )
    batches = list(ours)
    found = [batch.tokens[0].tolist() for batch in batches]
    expected = theirs(name, tmp_path / name)
    assert len(found) > 40 and found == expected[: len(found)]
    assert len(expected) - len(found) <= 1  # a last window has no target after it
    targets = list(itertools.chain.from_iterable(batch.targets[0].tolist() for batch in batches))
    assert targets[:-1] == list(itertools.chain.from_iterable(found))[1:]
