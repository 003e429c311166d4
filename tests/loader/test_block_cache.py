"""Rows fetched ahead: the same rows, a bound on memory, and errors that pass."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import loader_oracle as oracle
import tokenmill
from tokenmill.errors import NetworkError
from tokenmill.loader import block_cache
from tokenmill.loader.block_cache import BlockCache, block_tokens_of

TOKENS = [(7919 * i) % 50000 for i in range(40_001)]


def span(row: int) -> tuple[int, int]:
    """The tokens of a row of 16, and its last target."""
    return 16 * row, 16 * row + 17


@pytest.fixture
def split(tmp_path):
    return tokenmill.open(oracle.write_shards(tmp_path / "data", TOKENS, [999, 20_000]))["train"]


@pytest.mark.parametrize("is_scattered", [True, False])
def test_rows_are_those_of_the_split_and_few_blocks_stay(split, is_scattered, monkeypatch):
    monkeypatch.setattr(block_cache, "MAX_BYTES", 3 * 256 * 16 * 2)
    monkeypatch.setattr(block_cache, "MIN_TOKENS", 256 * 16)
    cache = BlockCache(split, block_tokens_of(16, is_scattered))
    for row in np.random.default_rng(0).integers(0, 2500, 300).tolist():
        cache.expect([span(row), span(min(row + 300, 2499))])
        assert cache.tokens(*span(row)).tolist() == TOKENS[16 * row : 16 * row + 17]
        assert len(cache._blocks) <= 3
    cache.close()


def test_block_is_requested_once_and_before_it_is_read(split, monkeypatch):
    asked = []
    fetched = BlockCache._fetched
    monkeypatch.setattr(
        BlockCache, "_fetched", lambda self, block: asked.append(block) or fetched(self, block)
    )
    cache = BlockCache(split, block_tokens_of(16, False))
    cache.expect([span(row) for row in (600, 3, 700, 5)])
    cache._pool.shutdown(wait=True)
    assert asked == [2, 0]
    assert cache.tokens(*span(5)).tolist() == TOKENS[80:97] and asked == [2, 0]


def test_request_that_failed_is_made_again(split, monkeypatch):
    failures = iter([NetworkError("gone for a moment")])
    fetched = BlockCache._fetched

    def once(self, block):
        for error in failures:
            raise error
        return fetched(self, block)

    monkeypatch.setattr(BlockCache, "_fetched", once)
    cache = BlockCache(split, block_tokens_of(16, True))
    with pytest.raises(NetworkError, match="gone for a moment"):
        cache.tokens(*span(7))
    assert cache.tokens(*span(7)).tolist() == TOKENS[112:129]
    cache.close()


def test_loader_that_reads_far_files_gives_the_rows_of_near_ones(tmp_path, monkeypatch):
    path = oracle.write_shards(tmp_path / "data", TOKENS, [999, 20_000])
    options = {"seq_len": 16, "batch_size": 40, "epochs": 1}
    near, far = tokenmill.open(path), tokenmill.open(path)
    monkeypatch.setattr(far["train"].files, "is_local", False)
    for shuffle in ("full", "block"):
        expected = [b.tokens.tolist() for b in tokenmill.Loader(near, shuffle=shuffle, **options)]
        loader = tokenmill.Loader(far, shuffle=shuffle, **options)
        assert [batch.tokens.tolist() for batch in loader] == expected
        again = tokenmill.Loader(far, shuffle=shuffle, **options)
        list(itertools.islice(again, 3))
        assert again.state_dict()["rows"] == 120  # what was requested ahead does not count
