"""Shard orders, carried out in any order, make what the Assembler makes, for every format."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest
from tokenmill.fulfil import OrderAssembler, write_shard
from tokenmill.orders import ShardOrder

from conftest import write_corpus
from tokenmill import prepare
from tokenmill.settings import layout_of, num_buckets

# Small enough for many slices, shards and buckets; fractions and lengths that fit no number evenly.
SMALL = {"slice_bytes": 20_000, "num_proc": 1}
LAYOUTS: dict[str, dict[str, object]] = {
    "nanogpt": {"format": "nanogpt", "val_fraction": 0.1},
    "npy": {"format": "npy", "shard_tokens": 3_000},
    "llmc": {"format": "llmc", "shard_tokens": 3_001, "val_fraction": 0.07},
    "megatron": {"format": "megatron", "shard_tokens": 2_500},
    "megatron-one": {"format": "megatron", "val_fraction": 0.2},
    "datatrove": {"format": "datatrove", "shard_tokens": 1_700, "val_fraction": 0.1},
    "olmo": {"format": "olmo", "shard_tokens": 2_222},
    "mds": {"format": "mds", "seq_len": 64, "shard_tokens": 2_048, "val_fraction": 0.3},
    "mds-documents": {"format": "mds", "seq_len": 0, "shard_tokens": 2_000},
    "litdata": {"format": "litdata", "shard_tokens": 2_000, "val_fraction": 0.1},
    "litdata-samples": {"format": "litdata", "seq_len": 100, "shard_tokens": 2_000},
    "parquet": {"format": "parquet", "shard_tokens": 2_000, "val_fraction": 0.1},
    "parquet-samples": {"format": "parquet", "seq_len": 77, "shard_tokens": 2_000},
}


def files_in(folder: str) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in Path(folder).rglob("*")
        if path.is_file()
    }


def prepared(corpus: str, out: str, **options: object):  # type: ignore[no-untyped-def]
    return prepare(corpus, out, **{**SMALL, **options})


@pytest.fixture
def by_orders(monkeypatch):
    """Runs on a local disk assemble by shard orders, as runs into an object store do."""

    def assembler(config, encoding, plan, work, runner, watch):
        return OrderAssembler(
            work,
            os.path.join(work, "shards"),
            layout_of(config, encoding),
            num_buckets(config, plan),
            lambda orders: map(write_shard, as_they_travel(orders)),
        )

    def as_they_travel(orders):
        orders = [ShardOrder.from_plain(json.loads(json.dumps(o.to_plain()))) for o in orders]
        random.Random(1).shuffle(orders)
        return orders

    monkeypatch.setattr("tokenmill.run.assembler_of", assembler)


@pytest.mark.parametrize("shuffle", [False, True], ids=["in-order", "shuffled"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_shard_orders_when_carried_out_in_any_order_then_the_assemblers_bytes(
    corpus, tmp_path, monkeypatch, request, layout, shuffle
):
    monkeypatch.setattr("tokenmill.settings.BUCKET_BYTES", 20_000)
    monkeypatch.setattr("tokenmill.shards.MARK_TOKENS", 500)
    monkeypatch.setattr("tokenmill.part.RUN_BYTES", 5_000)  # more than one run a part
    options = {**LAYOUTS[layout], "shuffle": shuffle, "seed": 7}
    manifest = prepared(corpus, str(tmp_path / "one"), **options)
    request.getfixturevalue("by_orders")
    assert prepared(corpus, str(tmp_path / "other"), **options) == manifest
    assert files_in(str(tmp_path / "other")) == files_in(str(tmp_path / "one"))
    assert any(shard.marks for shard in manifest.shards)
    assert len(manifest.shards) > 3 or layout in ("nanogpt", "megatron-one")


@pytest.mark.parametrize("shuffle", [False, True], ids=["in-order", "shuffled"])
@pytest.mark.parametrize("name", ["megatron", "datatrove", "parquet", "npy"])
def test_shard_orders_when_documents_are_larger_than_shards_then_the_assemblers_bytes(
    tmp_path, monkeypatch, request, name, shuffle
):
    monkeypatch.setattr("tokenmill.settings.BUCKET_BYTES", 20_000)
    lengths = [1, 900, 3, 400, 401, 5000, 2, 1, 1, 399, 1, 1300, 1300, 7, 400, 1]
    texts = [" the" * length for length in lengths * 3]
    corpus = write_corpus("parquet", tmp_path / "corpus", list(texts))
    options = {"format": name, "shard_tokens": 401, "shuffle": shuffle, "slice_bytes": 9_000}
    manifest = prepared(corpus, str(tmp_path / "one"), **options)
    request.getfixturevalue("by_orders")
    assert prepared(corpus, str(tmp_path / "other"), **options) == manifest
    assert files_in(str(tmp_path / "other")) == files_in(str(tmp_path / "one"))
    if name != "npy":  # a document that is larger than a shard has one for itself
        assert all(s.num_tokens <= 401 or s.num_documents == 1 for s in manifest.shards)
