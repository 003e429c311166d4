"""A dataset in a store that is replaced: it stays whole until the new one is, whoever is late, is
killed, or uploads something else there."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

import tokenmill
from corpora import made_texts, write_corpus
from s3_server import Faults, S3Server, dataset_in
from tests.test_prepare_s3 import files_in, objects_in
from tokenmill.dataset.convert import Target, convert
from tokenmill.dataset.dataset import open_dataset
from tokenmill.dataset.verify import verify
from tokenmill.errors import ConfigError, ConflictError, NetworkError
from tokenmill.storage import retry
from tokenmill.storage.objects import s3 as s3_store

NPY = {"format": "npy", "shard_tokens": 2000}
SHUFFLED = {**NPY, "shuffle": True}
Writes = Callable[[str], bool]


@pytest.fixture(autouse=True)
def no_retries(monkeypatch):
    monkeypatch.setattr(retry, "LONGEST_PAUSE_SECONDS", 0.02)
    monkeypatch.setattr(retry, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(retry, "UNREACHABLE_SECONDS", 0.05)


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> str:
    return write_corpus("jsonl", tmp_path_factory.mktemp("corpus"), made_texts(12))


@pytest.fixture(scope="module")
def parquet(tmp_path_factory) -> str:
    return write_corpus("parquet", tmp_path_factory.mktemp("corpus"), made_texts(12))


@pytest.fixture(scope="module")
def nano(source, tmp_path_factory) -> str:
    out = str(tmp_path_factory.mktemp("nano") / "out")
    tokenmill.prepare(source, out, num_proc=1)
    return out


def prepared(source: str, out: str, **options: object) -> tokenmill.Manifest:
    return tokenmill.prepare(source, out, num_proc=1, **options)


def is_write(request: str) -> bool:
    return not request.startswith(("GET", "HEAD"))


def is_shard(request: str) -> bool:
    """Whether a shard, or a file beside it, is written: below the run's folder."""
    return re.match(r"P\w+ /.*out/[0-9a-f]{16}/(?!tokenmill.json)", request) is not None


def from_request(number: int, which: Writes) -> Writes:
    """Whether a request is the `number`-th of these, or any that follows it."""
    count = itertools.count()
    began: list[str] = []

    def is_from(request: str) -> bool:
        if not began and which(request) and next(count) == number:
            began.append(request)
        return bool(began)

    return is_from


def stopped_at(s3: S3Server, number: int, which: Writes, action: Callable[[], object]) -> bool:
    """Whether the store was reached no more from that request on, as after a kill."""
    faults = Faults(kinds=("cut before",), only=from_request(number, which))
    with s3.failing(faults):
        try:
            action()
        except NetworkError:
            return True
    return False


def require_whole(out: str, *manifests: tokenmill.Manifest) -> tokenmill.Manifest:
    """What tokenmill reads there is one of these datasets, and nothing is wrong with it."""
    report = verify(out)
    assert report.is_whole, report
    found = open_dataset(out).manifest
    assert found in manifests
    return found


# A late run


def held_at(s3: S3Server, number: int, action: Callable[[], object]) -> list[str]:
    """Have `action` done while write `number` is on its way; which one that was."""
    count, held = itertools.count(), []
    lock = threading.Lock()

    def hold(request: str) -> None:
        with lock:
            if held or not is_write(request) or next(count) != number:
                return
            held.append(request)
        action()

    s3.hold = hold
    return held


@pytest.mark.parametrize("has_old", [False, True], ids=["new", "old"])
@pytest.mark.parametrize(
    ("late", "other", "in_parts"),
    [
        ({**SHUFFLED, "seed": 1}, {**SHUFFLED, "seed": 2}, False),
        (NPY, {"format": "megatron"}, False),
        ({**SHUFFLED, "seed": 1}, {**SHUFFLED, "seed": 2}, True),
    ],
    ids=["shuffled", "formats", "in parts"],
)
def test_late_run_when_held_at_any_write_then_the_newer_dataset_is_whole(
    has_old, late, other, in_parts, source, s3, bucket, share, monkeypatch
):
    """Even a request that was sent before the other run began, and arrives after it has ended: an
    upload, its last request if it is in parts, the pointer, a removal."""
    if in_parts:
        monkeypatch.setattr(s3_store, "MULTIPART_BYTES", 1000)
        monkeypatch.setattr(s3_store, "UPLOAD_PART_BYTES", 5 << 20)  # S3's least
    num_late = 0
    for number in itertools.count(has_old, share):
        out = f"s3://{bucket}/{number}/out"
        if has_old:
            prepared(source, out, **{**late, "seed": 7})
        newer: list[tokenmill.Manifest] = []
        held = held_at(
            s3,
            number,
            lambda out=out, newer=newer: newer.append(
                prepared(source, out, **other, overwrite=True)
            ),
        )
        finished = None
        try:
            finished = prepared(source, out, **late, overwrite=has_old)
        except ConflictError as error:
            assert error.exit_code == 6
            num_late += 1
            left = objects_in(s3, bucket, f"{number}/out/")
            folder = json.loads(left["tokenmill.json"])["folder"]
            others = {name for name in left if not name.startswith(f"{folder}/")}
            assert others == {"tokenmill.json", ".tokenmill/run.json"}, held
        s3.hold = lambda request: None
        if not held:
            break
        assert require_whole(out, *newer) == newer[0], held
        if finished is not None:
            assert "delete" in held[0], held  # all was done, but for what goes then
    assert num_late > 8 // share


def test_late_run_when_stopped_by_a_signal_then_exit_6_and_the_newer_dataset_is_whole(
    source, s3, bucket
):
    out = f"s3://{bucket}/out"
    command = ["prepare", source, "-o", out, "--format", "npy", "--shard-tokens", "2000"]
    command += ["--shuffle", "--seed", "1", "--num-proc", "1"]
    reached = threading.Event()

    def hold(request: str) -> None:
        if is_shard(request) and not reached.is_set():
            os.kill(late.pid, signal.SIGSTOP)
            reached.set()

    s3.hold = hold
    late = subprocess.Popen(
        [sys.executable, "-m", "tokenmill", *command], stderr=subprocess.PIPE, text=True
    )
    try:
        assert reached.wait(60)
        newer = prepared(source, out, **SHUFFLED, seed=2, overwrite=True)
        require_whole(out, newer)
    finally:
        os.kill(late.pid, signal.SIGCONT)
    _, errors = late.communicate(timeout=60)
    assert late.returncode == 6, errors
    require_whole(out, newer)
    assert prepared(source, out, **SHUFFLED, seed=2) == newer


def test_run_when_another_began_while_it_planned_then_it_does_not_displace_it(
    source, s3, bucket, monkeypatch
):
    """Two runs without --overwrite: the second continues the first, or is in conflict with it."""
    from tokenmill.dataset.workspace import Workspace

    begun = Workspace._begun
    for number, (options, is_same) in enumerate([(NPY, True), ({"format": "llmc"}, False)]):
        place, first = f"s3://{bucket}/{number}/out", []

        def late(workspace, plan, seen, place=place, first=first):
            if not first:
                first.append(None)
                assert stopped_at(s3, 0, is_shard, lambda: prepared(source, place, **NPY))
            return begun(workspace, plan, seen)

        monkeypatch.setattr(Workspace, "_begun", late)
        if is_same:
            require_whole(place, prepared(source, place, **options))
            parts = [r for r in s3.requests if "/parts/" in r and r.startswith("PUT")]
            assert len(parts) == len(set(parts)) > 0  # no slice was encoded twice
        else:
            with pytest.raises(ConflictError, match="was started differently"):
                prepared(source, place, **options)
            require_whole(place, prepared(source, place, **NPY))


def test_overwrite_when_it_is_refused_then_the_old_dataset_is_no_success(source, s3, bucket):
    """A damaged dataset that was copied there: it cannot be replaced, and that is said."""
    out = f"s3://{bucket}/out"
    prepared(source, f"s3://{bucket}/made", **NPY)
    for name, data in dataset_in(s3, bucket, "made/").items():
        s3.client().put_object(Bucket=bucket, Key=f"out/{name}", Body=data)
    with pytest.raises(ConflictError, match="was copied there"):
        prepared(source, out, **NPY, overwrite=True)
    s3.client().put_object(Bucket=bucket, Key="out/tokenmill.json", Body=b"")
    with pytest.raises(ConflictError, match="remove it, or choose another folder"):
        prepared(source, out, **NPY, overwrite=True)


def test_plan_when_a_folder_was_copied_to_a_bucket_then_it_is_not_a_runs(source, s3, bucket):
    key = "out/.tokenmill/plan.json"
    s3.client().put_object(Bucket=bucket, Key=key, Body=b"of a run on a disk")
    require_whole(f"s3://{bucket}/out", prepared(source, f"s3://{bucket}/out", **NPY))


# Killed midway


def test_overwrite_when_killed_midway_then_the_first_command_finds_its_dataset_whole(
    source, s3, bucket
):
    out = f"s3://{bucket}/out"
    first = prepared(source, out, **NPY)
    before = objects_in(s3, bucket)
    second = {"format": "llmc", "shard_tokens": 1500, "overwrite": True}
    is_stopped = stopped_at(s3, 2, is_shard, lambda: prepared(source, out, **second))
    assert is_stopped
    require_whole(out, first)
    s3.requests.clear()
    assert prepared(source, out, **NPY) == first
    assert not [r for r in s3.requests if is_write(r)]
    found = objects_in(s3, bucket)
    del before[".tokenmill/run.json"]
    assert {name: found[name] for name in before} == before
    s3.requests.clear()
    replaced = prepared(source, out, **second)
    assert not [r for r in s3.requests if is_write(r) and "/parts/" in r]  # it continues
    require_whole(out, replaced)
    assert set(dataset_in(s3, bucket)) == {"tokenmill.json", *(f.name for f in replaced.files)}


@pytest.mark.parametrize("other", [{"format": "megatron"}, {**NPY, "seed": 2, "shuffle": True}])
def test_overwrite_when_killed_at_any_write_then_one_of_the_two_is_whole(
    other, source, s3, bucket, share
):
    new = prepared(source, f"s3://{bucket}/new", **other)
    for number in itertools.count(0, share):
        out = f"s3://{bucket}/{number}/out"
        old = prepared(source, out, **NPY)
        run = lambda out=out: prepared(source, out, **other, overwrite=True)  # noqa: E731
        if not stopped_at(s3, number, is_write, run):
            break
        if require_whole(out, old, new) == old:
            assert prepared(source, out, **NPY) == old
        assert run() == new
        require_whole(out, new)
        names = {"tokenmill.json", *(file.name for file in new.files)}
        assert set(dataset_in(s3, bucket, f"{number}/out/")) == names
    assert number > 12


# What was staged is not what the record says


@pytest.mark.parametrize("harm", ["removed", "replaced", "replaced with the same length"])
@pytest.mark.parametrize("layout", [NPY, {"format": "megatron"}], ids=["npy", "megatron"])
def test_resume_when_a_staged_file_was_changed_then_it_is_written_again(
    harm, layout, source, s3, bucket, tmp_path
):
    out = f"s3://{bucket}/out"
    run = lambda: prepared(source, out, **layout)  # noqa: E731
    assert stopped_at(s3, 0, lambda r: "tokenmill.json" in r and is_write(r), run)
    staged = [key for key in s3.keys(bucket) if ".tokenmill" not in key]
    assert len(staged) > 1
    for key in staged[:2]:
        data = s3.read(bucket, key)
        s3.client().delete_object(Bucket=bucket, Key=key)
        if harm != "removed":
            body = data[:-1] if harm == "replaced" else data[:-1] + bytes([data[-1] ^ 1])
            s3.client().put_object(Bucket=bucket, Key=key, Body=body)
    s3.requests.clear()
    run()
    again = {r.split(" ")[1] for r in s3.requests if is_shard(r)}
    assert {f"/{bucket}/{key}" for key in staged[:2]} <= again
    assert not [r for r in s3.requests if is_write(r) and "/parts/" in r]
    prepared(source, str(tmp_path / "out"), **layout)
    assert dataset_in(s3, bucket) == files_in(str(tmp_path / "out"))


def test_resume_when_a_part_was_removed_then_its_slice_is_encoded_again(
    source, s3, bucket, tmp_path
):
    out, options = f"s3://{bucket}/out", {**NPY, "slice_bytes": 5000}
    run = lambda: prepared(source, out, **options)  # noqa: E731
    assert stopped_at(s3, 0, is_shard, run)
    part = next(key for key in s3.keys(bucket) if "/parts/" in key)
    s3.client().delete_object(Bucket=bucket, Key=part)
    run()
    prepared(source, str(tmp_path / "out"), **options)
    assert dataset_in(s3, bucket) == files_in(str(tmp_path / "out"))


# Inputs are never replaced


def spellings(bucket: str, prefix: str) -> list[str]:
    return [
        f"s3://{bucket}/{prefix}",
        f"s3://{bucket}/{prefix}/",
        f"s3a://{bucket}/{prefix}",
    ]


@pytest.mark.parametrize("below", ["in", "train", ".tokenmill/in", "a/b"])
def test_convert_when_the_source_is_inside_the_output_then_refused_and_untouched(
    below, nano, s3, bucket
):
    convert(open_dataset(nano), Target(out=f"s3://{bucket}/out/{below}", **NPY))
    s3.client().put_object(Bucket=bucket, Key="out/train.bin", Body=b"old")
    before = objects_in(s3, bucket)
    for url in spellings(bucket, f"out/{below}"):
        for out in (*spellings(bucket, "out"), f"s3://{bucket}//out/x/.."):
            source = open_dataset(url)
            with pytest.raises(ConfigError, match="is inside"):
                convert(source, Target(out=out, format="nanogpt", overwrite=True))
    assert objects_in(s3, bucket) == before


def test_prepare_when_an_input_would_be_replaced_then_refused_and_untouched(
    parquet, s3, bucket, capsys
):
    from tokenmill.cli import main

    keys = ["train-00000.parquet", "val-00000.parquet", "other.parquet"]
    for key in keys:
        s3.client().upload_file(parquet, bucket, f"out/{key}")
    before = objects_in(s3, bucket)
    for given in spellings(bucket, "out"):
        for out in spellings(bucket, "out"):
            command = ["prepare", given, "-o", out, "--format", "parquet", "--overwrite"]
            assert main(command) == 2
            assert main([*command, "--dry-run"]) == 2
            assert "is an input of this command" in capsys.readouterr().err
    assert objects_in(s3, bucket) == before


def test_prepare_when_an_input_is_beside_the_output_then_it_stays(parquet, s3, bucket):
    s3.client().upload_file(parquet, bucket, "out/raw/other.parquet")
    out = f"s3://{bucket}/out"
    for options in ({"format": "npy", "shard_tokens": 2000}, {"format": "megatron"}):
        prepared(f"{out}/raw/", out, **options, overwrite=True)
    with open(parquet, "rb") as file:
        assert s3.read(bucket, "out/raw/other.parquet") == file.read()


# Another format


@pytest.mark.parametrize("is_finished", [True, False])
def test_overwrite_when_another_format_then_nothing_of_the_old_is_left(
    is_finished, source, s3, bucket
):
    out = f"s3://{bucket}/out"
    s3.client().create_multipart_upload(Bucket=bucket, Key="out/somebody/elses")
    if is_finished:
        prepared(source, out, format="datatrove", shard_tokens=1500)
    else:
        run = lambda: prepared(source, out, format="datatrove", shard_tokens=1500)  # noqa: E731
        assert stopped_at(s3, 3, is_shard, run)
    new = prepared(source, out, format="llmc", shard_tokens=1500, overwrite=True)
    assert set(dataset_in(s3, bucket)) == {"tokenmill.json", *(file.name for file in new.files)}
    report = verify(out)
    assert report.is_whole
    assert s3.uploads(bucket) == ["out/somebody/elses"]


# Who writes


def parts_and_shards(requests: list[str]) -> Iterator[str]:
    for request in requests:
        if request.startswith("PUT") and ("/parts/" in request or is_shard(request)):
            yield "part" if "/parts/" in request else "shard"


@pytest.mark.parametrize("num_proc", [2, 3])
def test_prepare_when_processes_then_shards_are_uploaded_while_others_encode(
    num_proc, tmp_path, s3, bucket
):
    source = write_corpus("jsonl", tmp_path, made_texts(400))
    options = {**NPY, "slice_bytes": 10_000, "runner": "processes", "num_proc": num_proc}
    here = tokenmill.prepare(source, str(tmp_path / "out"), **options)
    assert tokenmill.prepare(source, f"s3://{bucket}/out", **options) == here
    found = list(parts_and_shards(s3.requests))
    assert found.count("shard") == len(here.files)
    before_the_end = found[: len(found) - 1 - found[::-1].index("part")]
    assert before_the_end.count("shard") > 1, found
