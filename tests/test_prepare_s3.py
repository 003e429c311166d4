"""`prepare` into an object store: the same files and the same manifest as into a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tokenmill import patience, prepare

# Small enough for many slices, shards and buckets; fractions and lengths that fit no number evenly.
SMALL = {"slice_bytes": 20_000, "num_proc": 1}
LAYOUTS = {
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


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(patience, "LONGEST_PAUSE_SECONDS", 0.02)


def files_in(folder: str) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in Path(folder).rglob("*")
        if path.is_file()
    }


def objects_in(s3, bucket: str, prefix: str = "out/") -> dict[str, bytes]:
    return {
        key.removeprefix(prefix): s3.read(bucket, key)
        for key in s3.keys(bucket)
        if key.startswith(prefix)
    }


def prepared(corpus: str, out: str, **options: object):  # type: ignore[no-untyped-def]
    return prepare(corpus, out, **{**SMALL, **options})


@pytest.mark.parametrize("shuffle", [False, True], ids=["in-order", "shuffled"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_prepare_when_to_s3_then_the_same_files_as_in_a_folder(
    s3, bucket, corpus, tmp_path, monkeypatch, layout, shuffle
):
    monkeypatch.setattr("tokenmill.settings.BUCKET_BYTES", 20_000)
    options = {**LAYOUTS[layout], "shuffle": shuffle, "seed": 7}
    here, there = str(tmp_path / "out"), f"s3://{bucket}/out"
    manifest = prepared(corpus, here, **options)
    assert prepared(corpus, there, **options) == manifest
    assert objects_in(s3, bucket) == files_in(here)
    assert len(manifest.shards) > 3 or "-one" in layout or layout == "nanogpt"
    assert not s3.uploads(bucket)
    print(len(s3.requests), s3.requests)
