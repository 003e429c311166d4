"""`prepare` into an object store: the same files and the same manifest as into a folder."""

from __future__ import annotations

import pytest

from test_orders import LAYOUTS, files_in, prepared
from tokenmill import patience


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(patience, "LONGEST_PAUSE_SECONDS", 0.02)


def objects_in(s3, bucket: str, prefix: str = "out/") -> dict[str, bytes]:
    return {
        key.removeprefix(prefix): s3.read(bucket, key)
        for key in s3.keys(bucket)
        if key.startswith(prefix)
    }


@pytest.mark.parametrize(
    ("layout", "shuffle"), [("npy", False), ("mds", True), ("megatron", False), ("parquet", True)]
)
def test_prepare_when_to_s3_then_the_same_files_as_in_a_folder(
    s3, bucket, corpus, tmp_path, monkeypatch, layout, shuffle
):
    monkeypatch.setattr("tokenmill.settings.BUCKET_BYTES", 40_000)
    options = {**LAYOUTS[layout], "shuffle": shuffle, "slice_bytes": 50_000}
    here, there = str(tmp_path / "out"), f"s3://{bucket}/out"
    manifest = prepared(corpus, here, **options)
    assert prepared(corpus, there, **options) == manifest
    assert objects_in(s3, bucket) == files_in(here)
    assert not s3.uploads(bucket)
    listed = [r for r in s3.requests if "list-type=2" in r and "max-keys=1&" not in r]
    assert len(listed) == 2  # is there room, and what is to be removed: never what we wrote
