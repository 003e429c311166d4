"""`prepare` into an object store: the same files and the same manifest as into a folder."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tokenmill
from s3_server import SECRET_KEY, Faults, dataset_in, require_no_secret
from tokenmill.assemble import writing
from tokenmill.errors import (
    ConflictError,
    InputError,
    IntegrityError,
    NetworkError,
    OutputError,
)
from tokenmill.storage import retry
from tokenmill.storage.checked_json import checksummed

SMALL = {"slice_bytes": 20_000, "num_proc": 1}
LAYOUTS: dict[str, dict[str, object]] = {
    "npy": {"format": "npy", "shard_tokens": 3_000},
    "megatron": {"format": "megatron", "shard_tokens": 2_500},
    "datatrove": {"format": "datatrove", "shard_tokens": 1_700, "val_fraction": 0.1},
    "mds": {"format": "mds", "seq_len": 64, "shard_tokens": 2_048, "val_fraction": 0.3},
    "parquet": {"format": "parquet", "shard_tokens": 2_000, "val_fraction": 0.1},
}


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(retry, "LONGEST_PAUSE_SECONDS", 0.02)


def prepared(corpus: str, out: str, **options: object) -> tokenmill.Manifest:
    return tokenmill.prepare(corpus, out, **{**SMALL, **options})


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


@pytest.mark.parametrize(
    ("layout", "shuffle"), [("npy", False), ("mds", True), ("megatron", False), ("parquet", True)]
)
def test_prepare_when_to_s3_then_the_same_files_as_in_a_folder(
    s3, bucket, corpus, tmp_path, monkeypatch, layout, shuffle
):
    monkeypatch.setattr("tokenmill.encode.buckets.BUCKET_BYTES", 40_000)
    options = {**LAYOUTS[layout], "shuffle": shuffle, "slice_bytes": 50_000}
    here, there = str(tmp_path / "out"), f"s3://{bucket}/out"
    manifest = prepared(corpus, here, **options)
    assert prepared(corpus, there, **options) == manifest
    assert dataset_in(s3, bucket) == files_in(here)
    assert not s3.uploads(bucket)
    listed = [r for r in s3.requests if "list-type=2" in r and "max-keys=1&" not in r]
    # What might be replaced, and what is to be removed: never what we wrote.
    assert len(listed) == 2


def test_prepare_when_complete_already_then_nothing_is_written(s3, bucket, corpus):
    out = f"s3://{bucket}/out"
    manifest = prepared(corpus, out, **LAYOUTS["npy"], slice_bytes=100_000)
    before = objects_in(s3, bucket)
    s3.requests.clear()
    assert prepared(corpus, out, **LAYOUTS["npy"], slice_bytes=100_000) == manifest
    assert objects_in(s3, bucket) == before
    assert not [r for r in s3.requests if r.startswith("PUT")]

    with pytest.raises(ConflictError, match="shard_tokens: was 3000, now 4000"):
        prepared(corpus, out, format="npy", shard_tokens=4_000, slice_bytes=100_000)
    s3.client().put_object(Bucket=bucket, Key="out/notes.txt", Body=b"mine")
    options = {"format": "llmc", "shard_tokens": 4_000, "slice_bytes": 100_000}
    with pytest.raises(ConflictError):
        prepared(corpus, out, **options)
    other = prepared(corpus, out, **options, overwrite=True)
    assert s3.read(bucket, "out/notes.txt") == b"mine"
    s3.client().delete_object(Bucket=bucket, Key="out/notes.txt")
    found = dataset_in(s3, bucket)
    assert set(found) == {"tokenmill.json", *(file.name for file in other.files)}
    assert found["tokenmill.json"] == other.to_json()


def test_prepare_when_the_prefix_holds_shards_of_others_then_they_stay_and_are_not_in_the_dataset(
    s3, bucket, corpus
):
    """Also one that appears while the run is at work: the dataset has a folder of its own."""
    name = "edufineweb_train_000001.npy"  # as one of the run's own

    def appears(request: str) -> None:
        if "PUT" in request and "/tasks/" in request:
            s3.client().put_object(Bucket=bucket, Key=f"out/{name}", Body=b"x")

    s3.hold = appears
    manifest = prepared(corpus, f"s3://{bucket}/out", **LAYOUTS["npy"])
    assert s3.read(bucket, f"out/{name}") == b"x"
    assert any(file.name == name for file in manifest.files)
    found = tokenmill.open(f"s3://{bucket}/out")
    assert {split: found[split].num_tokens for split in found} == {
        split: totals.num_tokens for split, totals in manifest.splits.items()
    }


def test_prepare_when_a_copied_dataset_is_there_then_it_is_read_and_never_replaced(
    s3, bucket, corpus, tmp_path
):
    """Such as one that `aws s3 sync` brought: nothing that no run wrote there is removed."""
    manifest = prepared(corpus, str(tmp_path / "out"), **LAYOUTS["npy"])
    for name, data in files_in(str(tmp_path / "out")).items():
        s3.client().put_object(Bucket=bucket, Key=f"out/{name}", Body=data)
    before, out = objects_in(s3, bucket), f"s3://{bucket}/out"
    assert prepared(corpus, out, **LAYOUTS["npy"]) == manifest
    with pytest.raises(ConflictError, match="holds a dataset that was copied there"):
        prepared(corpus, out, format="llmc", overwrite=True)
    assert objects_in(s3, bucket) == before


def test_open_when_a_bucket_was_copied_to_a_disk_then_it_is_read(s3, bucket, corpus, tmp_path):
    manifest = prepared(corpus, f"s3://{bucket}/out", **LAYOUTS["npy"])
    for name, data in objects_in(s3, bucket).items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    assert tokenmill.Manifest.load(str(tmp_path)) == manifest
    assert tokenmill.verify(str(tmp_path)).is_whole


def test_prepare_when_there_is_no_such_bucket_then_output_error(s3, corpus):
    with pytest.raises(OutputError, match="bucket does not exist") as caught:
        prepared(corpus, "s3://there-is-none/out")
    assert "check that the bucket exists" in str(caught.value)


def test_prepare_when_the_url_has_a_password_then_refused_and_not_shown(corpus, capsys):
    from tokenmill.cli import main

    assert main(["prepare", corpus, "-o", f"s3://key:{SECRET_KEY}@bucket/out"]) == 2
    shown = capsys.readouterr()
    assert SECRET_KEY not in shown.err + shown.out and "credentials" in shown.err


def test_prepare_when_nothing_is_written_then_nothing_is_left(s3, bucket, tmp_path):
    path = tmp_path / "empty.jsonl"
    path.write_text('{"text": ""}\n')
    with pytest.raises(InputError, match="nothing to write"):
        prepared(str(path), f"s3://{bucket}/out")
    assert s3.keys(bucket) == ["out/.tokenmill/run.json"]


def test_prepare_when_a_record_says_something_else_then_integrity_error(
    s3, bucket, corpus, monkeypatch
):
    """Two machines that are not alike: the second finds another record where its own should be."""
    out = f"s3://{bucket}/out"
    with s3.failing(Faults(kinds=("slow down",), only=lambda r: "PUT" in r and "/tasks/" in r)):
        monkeypatch.setattr(retry, "RETRY_SECONDS", 0.1)
        with pytest.raises(NetworkError):
            prepared(corpus, out, **LAYOUTS["npy"])
    [key] = [key for key in s3.keys(bucket) if key.endswith("records/00000000.json")]
    s3.client().put_object(Bucket=bucket, Key=key, Body=checksummed(b"{}"))
    with pytest.raises(IntegrityError, match="the same work had two results"):
        prepared(corpus, out, **LAYOUTS["npy"])
    s3.client().put_object(Bucket=bucket, Key=key, Body=b"{}")  # a damaged one is replaced
    prepared(corpus, out, **LAYOUTS["npy"])
    assert tokenmill.verify(out).is_whole


def test_prepare_when_one_request_in_20_fails_then_the_same_files(s3, bucket, corpus, tmp_path):
    options = {**LAYOUTS["datatrove"], "shard_tokens": 10_000, "num_proc": 2}
    manifest = prepared(corpus, str(tmp_path / "out"), **options)
    with s3.failing(Faults(seed=5, fraction=0.05, slow_seconds=0.1)) as faults:
        assert prepared(corpus, f"s3://{bucket}/out", **options) == manifest
    assert faults.num_injected > 5
    assert dataset_in(s3, bucket) == files_in(str(tmp_path / "out"))
    assert not s3.uploads(bucket)


def test_prepare_when_uploads_were_left_then_only_those_of_its_own_plan_are_aborted(
    s3, bucket, corpus
):
    """Whoever uploads something else to the same prefix, at the same time, is left alone."""
    out, options = f"s3://{bucket}/out", {**LAYOUTS["npy"], "slice_bytes": 100_000}
    client = s3.client()
    others = ["out/train.bin", "out/sub/backup.tar", "out2/a", "output/of-another"]
    for key in others:
        client.create_multipart_upload(Bucket=bucket, Key=key)
    with (
        s3.failing(Faults(kinds=("slow down",), only=lambda r: "PUT" in r and "/tasks/" in r)),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(retry, "RETRY_SECONDS", 0.1)
        with pytest.raises(NetworkError):
            prepared(corpus, out, **options)
    [record] = [key for key in s3.keys(bucket) if key.endswith("records/00000000.json")]
    work = record.removesuffix("/records/00000000.json")
    client.create_multipart_upload(Bucket=bucket, Key=f"{work}/parts/00000000.train")
    run = work.rpartition("/")[2]
    client.create_multipart_upload(Bucket=bucket, Key=f"out/{run}/train-00000.npy")
    assert len(s3.uploads(bucket)) == len(others) + 2
    with pytest.raises(ConflictError):  # another plan's run touches nothing of this one's
        prepared(corpus, out, **{**options, "seed": 5, "shuffle": True})
    assert len(s3.uploads(bucket)) == len(others) + 2
    prepared(corpus, out, **options)
    assert sorted(s3.uploads(bucket)) == sorted(others)


def test_prepare_when_the_budget_is_used_up_then_exit_8_and_it_resumes_without_secrets(
    s3, bucket, corpus, tmp_path
):
    out = f"s3://{bucket}/out"
    command = [*("prepare", corpus, "-o", out, "--format", "npy", "--shard-tokens", "20000", "-v")]
    script = (
        "import sys, tokenmill.storage.retry as p; "
        "p.RETRY_SECONDS = p.LONGEST_PAUSE_SECONDS = 1.0; "
        "from tokenmill.cli import main; sys.exit(main(sys.argv[1:]))"
    )

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", script, *command, "--num-proc", "1", "--json"],
            capture_output=True,
            text=True,
            check=False,
        )

    is_shard = re.compile(r"PUT /[^/]+/out/[0-9a-f]{16}/").match
    with s3.failing(Faults(kinds=("slow down",), only=lambda r: is_shard(r) is not None)):
        failed = run()
    assert failed.returncode == 8, failed.stderr
    assert "cannot write s3://" in failed.stderr
    assert "run the same command again: it resumes" in failed.stderr
    left = objects_in(s3, bucket)
    assert ".tokenmill/run.json" in left and "tokenmill.json" not in left
    s3.requests.clear()
    done = run()
    assert done.returncode == 0, done.stderr
    assert not [r for r in s3.requests if r.startswith("PUT") and "/parts/" in r]
    manifest = prepared(corpus, str(tmp_path / "out"), format="npy", shard_tokens=20_000, **SLICES)
    found = dataset_in(s3, bucket)
    assert found == files_in(str(tmp_path / "out"))
    assert json.loads(done.stdout)["files"] == json.loads(manifest.to_json())["files"]
    shown = "".join([failed.stderr, failed.stdout, done.stderr, done.stdout]).encode()
    require_no_secret(shown, *left.values(), *found.values())


def test_prepare_when_workers_get_no_answer_at_first_then_they_wait_as_the_driver_does(
    s3, bucket, corpus, tmp_path
):
    """The driver was answered, so there is a network. Who was never answered does not wait here."""
    site = "import tokenmill.storage.retry\ntokenmill.storage.retry.UNREACHABLE_SECONDS = 0.0\n"
    (tmp_path / "sitecustomize.py").write_text(site)
    refused: list[str] = []

    def is_refused(request: str) -> bool:
        if "PUT" in request and "/parts/" in request and len(refused) < 4:
            refused.append(request)
            return True
        return False

    command = ["prepare", corpus, "-o", f"s3://{bucket}/out", "--num-proc", "2"]
    command += ["--runner", "processes"]
    with s3.failing(Faults(kinds=("cut before",), only=is_refused)):
        done = subprocess.run(
            [sys.executable, "-m", "tokenmill", *command],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
        )
    assert done.returncode == 0, done.stderr
    assert len(refused) == 4


def test_prepare_when_another_run_finishes_and_cleans_up_then_its_result_is_taken(
    s3, bucket, corpus, monkeypatch
):
    out, options = f"s3://{bucket}/out", {**LAYOUTS["npy"], "slice_bytes": 100_000}
    carry_out, others = writing.carry_out, []

    def overtaken(task):
        if not others:
            others.append(None)  # the other run is not overtaken
            others[0] = prepared(corpus, out, **options)
        return carry_out(task)

    monkeypatch.setattr(writing, "carry_out", overtaken)
    assert prepared(corpus, out, **options) == others[0]
    files = {file.name for file in others[0].files}
    assert set(dataset_in(s3, bucket)) == {"tokenmill.json", *files}


def test_prepare_when_two_run_at_once_then_both_succeed_with_the_same_files(
    s3, bucket, corpus, tmp_path
):
    options = {**LAYOUTS["megatron"], "slice_bytes": 30_000}
    script = (
        "import sys, json, tokenmill; "
        "tokenmill.prepare(sys.argv[1], sys.argv[2], num_proc=1, **json.loads(sys.argv[3]))"
    )
    command = [sys.executable, "-c", script, corpus, f"s3://{bucket}/out", json.dumps(options)]
    runs = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(2)]
    for run in runs:
        _, errors = run.communicate()
        assert run.returncode == 0, errors.decode()
    prepared(corpus, str(tmp_path / "out"), **options)
    assert dataset_in(s3, bucket) == files_in(str(tmp_path / "out"))


SLICES = {"slice_bytes": 32 << 20}  # as the command line has it
