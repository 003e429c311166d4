"""The promise of docs/scale.md: one corpus, the same shards, wherever and by whom it is encoded.

The corpus and the output both on a local disk, or both in an object store, where one request in
twenty fails. Each runner is the real one; Ray starts a cluster of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pages
import tokenmill
from corpora import made_texts, plain_texts, write_mixed
from s3_server import Faults
from tokenmill.config import Config, Partition
from tokenmill.run import SilentWatch
from tokenmill.run.finish import finish
from tokenmill.run.partition import encode_partition
from tokenmill.runners.start import started_runner
from tokenmill.storage import retry
from tokenmill.storage.store import store_of

OPTIONS = {"format": "megatron", "shard_tokens": 20_000, "slice_bytes": 60_000, "shuffle": True}


def upload(url: str, path: object) -> str | None:
    """Put a copy of a local file there."""
    shutil.copyfile(str(path), f"{path}.copy")
    return store_of(url).put(f"{path}.copy", url)


def by_runner(source: object, out: str, **chosen: object) -> list[list[object]]:
    return shards_of(tokenmill.prepare(source, out, **OPTIONS, **chosen))


def shards_of(manifest: tokenmill.Manifest) -> list[list[object]]:
    return [[file.name, file.num_bytes, file.sha256] for file in manifest.files]


def by_ray(source: object, out: str, **chosen: object) -> list[list[object]]:
    """In a process of its own: Ray leaves files and threads behind in the one it was used in."""
    code = """
import json, sys, tokenmill
options = json.loads(sys.argv[1])
manifest = tokenmill.prepare(runner="ray", ray_address="local", num_proc=2, **options)
print(json.dumps([(file.name, file.num_bytes, file.sha256) for file in manifest.files]))
"""
    options = json.dumps({"sources": source, "out": out, **OPTIONS | chosen})
    command = [sys.executable, "-c", code, options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: list[list[object]] = json.loads(done.stdout)
    return found


def by_tasks(source: object, out: str, **chosen: object) -> list[list[object]]:
    config = Config(sources=source, out=out, num_proc=1, **OPTIONS | chosen)
    for number in (3, 1, 2, 1):
        with started_runner(config) as runner:
            encode_partition(config, Partition(number, 3), runner, SilentWatch())
    return shards_of(finish(out))


WAYS = {
    "inline": lambda source, out: by_runner(source, out, runner="inline"),
    "processes": lambda source, out: by_runner(source, out, num_proc=2),
    "ray": by_ray,
    "partitions": by_tasks,
}


@pytest.fixture(scope="module")
def expected(texts, tmp_path_factory):
    from corpora import write_corpus

    folder = tmp_path_factory.mktemp("expected")
    source = write_corpus("parquet", folder / "corpus", list(texts))
    return source, by_runner(source, str(folder / "out"), runner="inline")


@pytest.mark.parametrize("way", WAYS)
def test_shards_on_a_local_disk_are_the_same(way, expected, tmp_path):
    source, shards = expected
    assert WAYS[way](source, str(tmp_path / "out")) == shards


@pytest.mark.parametrize("way", [by_ray, by_tasks], ids=["ray", "partitions"])
def test_shards_of_chosen_rows_are_the_same(way, expected, s3, bucket, tmp_path):
    source, shards = expected
    chosen = {"where": "len(text) > 40", "limit_tokens": 120_000, "val_fraction": 0.1}

    def named(path: str) -> dict[str, object]:
        twice = {"paths": path, "where": "len(text) < 90", "repeat": 2}
        return {"some": {"paths": path, "sample": 0.8}, "short": twice, "all": path}

    one = by_runner(named(source), str(tmp_path / "out"), runner="inline", **chosen)
    assert one != shards
    sources = tokenmill.open(tmp_path / "out").manifest.sources
    assert all(found.counts.num_written for found in sources.values())
    upload(f"s3://{bucket}/corpus/{os.path.basename(source)}", source)
    assert way(named(f"s3://{bucket}/corpus/"), f"s3://{bucket}/out", **chosen) == one


@pytest.mark.parametrize("way", [by_ray, by_tasks], ids=["ray", "partitions"])
def test_shards_without_copies_are_the_same(way, texts, s3, bucket, tmp_path):
    from corpora import write_corpus

    copied = [texts[number // 2] if number % 3 else text for number, text in enumerate(texts)]
    source = write_corpus("parquet", tmp_path / "corpus", copied)
    chosen = {"where": "len(text) > 40", "sample": 0.8, "limit_tokens": 40_000, "dedup": "exact"}
    chosen |= {"keep": "text"}
    one = by_runner(source, str(tmp_path / "out"), runner="inline", **chosen)
    assert tokenmill.Manifest.load(str(tmp_path / "out")).counts.num_duplicates > 20
    upload(f"s3://{bucket}/corpus/{os.path.basename(source)}", source)
    other = way(f"s3://{bucket}/corpus/", f"s3://{bucket}/out", **chosen)
    assert without_kept(other) == without_kept(one) != one
    kept = [kept_of(out) for out in (str(tmp_path / "out"), f"s3://{bucket}/out")]
    assert kept[0] == kept[1] and len(kept[0]) > 20
    assert tokenmill.verify(f"s3://{bucket}/out").is_whole


def without_kept(files: list[list[object]]) -> list[list[object]]:
    """The files but for sidecars, in which the names of inputs differ."""
    return [file for file in files if not str(file[0]).startswith("__kept__/")]


def kept_of(out: str) -> list[object]:
    """What is kept of some documents, except the name of the input."""
    split = tokenmill.open(out)["train"]
    return [{**split.kept(i), "_file": None} for i in range(len(split))]


@pytest.mark.parametrize("way", [by_ray, by_tasks], ids=["ray", "partitions"])
def test_shards_of_files_of_many_kinds_are_the_same(way, s3, bucket, tmp_path):
    paths = write_mixed(tmp_path / "corpus", made_texts(90, seed=5))
    chosen = {"text_column": "meta.text", "where": "n >= 9", "slice_bytes": 4000}
    one = shards_of(tokenmill.prepare(paths, tmp_path / "out", num_proc=1, **OPTIONS | chosen))
    for path in paths:
        upload(f"s3://{bucket}/corpus/{os.path.basename(path)}", path)
    source = f"s3://{bucket}/corpus/*"
    assert way(source, f"s3://{bucket}/out", **chosen) == one


@pytest.mark.parametrize("way", WAYS)
def test_shards_in_an_object_store_that_fails_now_and_then_are_the_same(
    way, expected, s3, bucket, monkeypatch
):
    monkeypatch.setattr(retry, "LONGEST_PAUSE_SECONDS", 0.05)
    source, shards = expected
    upload(f"s3://{bucket}/corpus/a.parquet", source)
    s3.faults = Faults(seed=7, fraction=0.05)
    assert WAYS[way](f"s3://{bucket}/corpus/", f"s3://{bucket}/out") == shards
    assert s3.faults.num_injected
    assert not s3.uploads(bucket)


def test_how_to_page_about_ray_and_s3_shows_what_it_says(s3, tmp_path, pytestconfig):
    with contextlib.suppress(s3.client().exceptions.BucketAlreadyOwnedByYou):
        s3.client().create_bucket(Bucket="bucket")
    pq.write_table(pa.table({"text": plain_texts(400)}), tmp_path / "a.parquet")
    s3.client().upload_file(str(tmp_path / "a.parquet"), "bucket", "corpus/a.parquet")
    page, write = pages.DOCS / "how-to" / "ray-and-s3.md", pytestconfig.getoption("--write-pages")
    pages.follow(page, tmp_path, write)
