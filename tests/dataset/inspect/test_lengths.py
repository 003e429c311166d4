"""`tokenmill inspect`: a sample of documents favours neither short nor long ones."""

from __future__ import annotations

import numpy as np
import pytest

from inspected import prepared
from tokenmill.dataset.inspect import (
    lengths,
    look_into,
)
from tokenmill.dataset.stream import Stream, StreamShard
from tokenmill.formats.mapped import MappedShard


def stream_of(tokens: np.ndarray, eot: str) -> Stream:
    shard = StreamShard("x", lambda: MappedShard(tokens), len(tokens))
    return Stream("train", [shard], False, eot, 0)


@pytest.mark.parametrize("eot", ["append", "prepend", "both"])
@pytest.mark.parametrize("size", [1, 2, 7, 64, 10_000])
def test_documents_that_start_in_blocks_are_all_documents_once(eot, size):
    rng = np.random.default_rng(0)
    true = rng.integers(1, 40, 200) + (eot == "both")
    before, after = eot in ("prepend", "both"), eot in ("append", "both")
    tokens = np.concatenate(
        [[0] * before + [1] * (n - before - after) + [0] * after for n in true.tolist()]
    ).astype(np.uint16)
    stream = stream_of(tokens, eot)
    spans = [
        span
        for start in range(0, len(tokens), size)
        for span in lengths._starting_in(stream, start, min(start + size, len(tokens)), eot, 0)
    ]
    found = [length for _, length in spans]
    if eot == "both":  # a block that begins between two EOT ids cannot tell what they are
        assert len(found) >= len(true) * (1 - 2 / size) - 1 and set(found) <= set(true.tolist())
    else:
        assert found == true.tolist()
        assert [start for start, _ in spans] == (np.cumsum(true) - true).tolist()


@pytest.mark.parametrize("eot", ["append", "prepend", "both"])
@pytest.mark.parametrize("name", ["nanogpt", "megatron", "parquet"])
def test_sample_of_lengths_favours_neither_short_nor_long_documents(
    eot, name, tmp_path, monkeypatch
):
    texts = ["mill " * (200 if number % 4 == 0 else 2) for number in range(2000)]
    out = prepared(tmp_path, texts, format=name, val="none", eot=eot, shuffle=True)
    for constant, value in {
        "EXACT_TOKENS": 1000,
        "UNPACKED_EXACT_TOKENS": 1000,
        "BLOCK_TOKENS": 128,
        "UNPACKED_BLOCK_TOKENS": 512,
        "SAMPLE_TOKENS": 4096,
    }.items():
        monkeypatch.setattr(lengths, constant, value)
    monkeypatch.setattr(lengths, "FEW_DOCUMENTS", 50)
    looked = look_into(out)
    shares, means = [], []
    for seed in range(40):
        found = lengths.document_lengths(looked.dataset, "train", seed)
        assert not found.is_exact and 20 < found.num_documents < 1000
        shares.append((found.mean - 3) / 200)
        means.append(found.percentiles["p50"])
    # A document at a random token is a long one 97 times in 100; one at random, 25 times.
    assert 0.2 < np.mean(shares) < 0.3
    assert set(means) <= set(range(3, 6))
