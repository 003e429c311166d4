"""`convert` into an object store: the same files and the same manifest as into a folder."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import tokenmill
from corpora import made_texts, write_corpus
from s3_server import SECRET_KEY, Faults, dataset_in, require_no_secret
from tests.dataset.test_object_datasets import run
from tests.test_prepare_s3 import files_in, objects_in
from tokenmill.assemble import task as task_module
from tokenmill.dataset.convert import Target, convert
from tokenmill.dataset.dataset import open_dataset
from tokenmill.dataset.verify import verify
from tokenmill.errors import ConfigError, ConflictError, IntegrityError, NetworkError, OutputError
from tokenmill.formats import NAMES, get_format
from tokenmill.runners import Stopped
from tokenmill.storage import retry
from tokenmill.storage.address import place_of
from tokenmill.storage.checked_json import checksummed
from tokenmill.storage.objects import s3 as s3_store
from tokenmill.storage.objects.store import ObjectStore

SAMPLES = {"seq_len": 64, "shard_tokens": 2048, "drop": ("tail",)}


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(retry, "LONGEST_PAUSE_SECONDS", 0.02)


@pytest.fixture
def small_batches(monkeypatch):
    monkeypatch.setattr("tokenmill.dataset.convert_source.READ_TOKENS", 700)


@pytest.fixture
def no_retries(monkeypatch):
    monkeypatch.setattr(retry, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(retry, "UNREACHABLE_SECONDS", 0.05)


@pytest.fixture(scope="module")
def nano(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("nano")
    corpus = write_corpus("jsonl", folder, [*made_texts(60), "", "one"])
    tokenmill.prepare(corpus, folder / "out", val_fraction=0.2, num_proc=1)
    return str(folder / "out")


@pytest.fixture(scope="module")
def apart(tmp_path_factory) -> str:
    """Documents kept apart by the format alone, in several shards."""
    folder = tmp_path_factory.mktemp("apart")
    corpus = write_corpus("jsonl", folder, made_texts(60))
    options = {"format": "megatron", "eot": "none", "empty": "drop", "val_fraction": 0.2}
    tokenmill.prepare(corpus, folder / "out", shard_tokens=4000, num_proc=1, **options)
    return str(folder / "out")


def target_of(out: str, name: str, **options: object) -> Target:
    """Small shards, and nothing left out."""
    traits = get_format(name).traits
    defaults = {} if traits.one_file else {"shard_tokens": 3000}
    defaults |= {"seq_len": 0} if traits.samples else {}
    return Target(out=out, format=name, **{**defaults, **options})


def converted(source: str, out: str, name: str, /, **options: object) -> tokenmill.Manifest:
    return convert(open_dataset(source), target_of(out, name, **options))


def puts_from(number: int) -> Callable[[str], bool]:
    """Whether a request is PUT number `number` or a later one."""
    count = itertools.count(1)
    return lambda request: request.startswith("PUT") and next(count) >= number


# The same bytes


@pytest.mark.parametrize("name", NAMES)
def test_convert_when_to_s3_then_the_same_files_as_in_a_folder(
    name, nano, s3, bucket, tmp_path, small_batches
):
    here, there = str(tmp_path / "out"), f"s3://{bucket}/out"
    manifest = converted(nano, here, name)
    assert converted(nano, there, name) == manifest
    assert set(manifest.splits) == {"train", "val"}
    assert dataset_in(s3, bucket) == files_in(here)
    assert not s3.uploads(bucket)
    listed = [r for r in s3.requests if "list-type=2" in r and "max-keys=1&" not in r]
    # What might be replaced, and what is to be removed: never what we wrote.
    assert len(listed) == 2
    [last] = [i for i, r in enumerate(s3.requests) if r == f"PUT /{bucket}/out/tokenmill.json"]
    assert not [r for r in s3.requests[last + 1 :] if r.startswith("PUT")]


@pytest.mark.parametrize("name", ["mds", "parquet"])
def test_convert_when_samples_then_the_tail_is_counted_as_in_a_folder(
    name, nano, s3, bucket, tmp_path, small_batches
):
    manifest = converted(nano, str(tmp_path / "out"), name, **SAMPLES)
    assert converted(nano, f"s3://{bucket}/out", name, **SAMPLES) == manifest
    assert manifest.splits["train"].num_tail_tokens
    assert dataset_in(s3, bucket) == files_in(str(tmp_path / "out"))


def test_convert_when_long_shards_have_marks_then_the_same_after_every_stop(
    nano, bucket, s3, tmp_path, small_batches, monkeypatch
):
    """Marks follow from where batches begin, which a resumed attempt must not move."""
    monkeypatch.setattr("tokenmill.assemble.writing.MARK_TOKENS", 1000)
    here = str(tmp_path / "out")
    manifest = converted(nano, here, "npy")
    assert any(file.marks for file in manifest.files)
    target = target_of(f"s3://{bucket}/out", "npy")
    for _ in stops(nano, target):
        pass
    assert dataset_in(s3, bucket) == files_in(here)


def test_convert_when_another_fsspec_url_then_the_same_files(nano, tmp_path, small_batches):
    import fsspec

    memory = fsspec.filesystem("memory")
    try:
        converted(nano, "memory://conversion/out", "megatron")
        converted(nano, str(tmp_path / "out"), "megatron")
        found = memory.find("/conversion/out")
        expected = files_in(str(tmp_path / "out"))
        shards = {p.split("/", 4)[4]: memory.cat_file(p) for p in found if p.count("/") > 3}
        del shards["run.json"]
        assert shards == expected
    finally:
        memory.rm("/conversion", recursive=True)


def test_convert_when_from_url_to_url_then_the_same_files(nano, s3, bucket, tmp_path):
    one, two, three = (f"s3://{bucket}/{name}" for name in ("one", "two", "three"))
    converted(nano, one, "parquet")
    converted(one, two, "nanogpt")
    done = run("convert", two + "/", three + "/", "--format", "mds", "--seq-len", "document")
    assert done.returncode == 0 and "nanogpt -> mds: " in done.stderr
    assert verify(three).is_whole
    back = str(tmp_path / "back")
    converted(three, back, "nanogpt")
    there, here, expected = dataset_in(s3, bucket, "two/"), files_in(back), files_in(nano)
    for found in (there, here, expected):
        del found["tokenmill.json"]
    assert there == here == expected


# Stopped, and continued


def stops(source: str, target: Target):
    """The conversion, stopped after one batch, after three of what is then left, after five ..."""
    for stop_after in itertools.count(1, 2):
        calls = itertools.count(1)
        try:
            convert(open_dataset(source), target, None, lambda done: next(calls) == stop_after)  # noqa: B023
        except Stopped:
            yield stop_after
        else:
            return


@pytest.mark.parametrize("name", NAMES)
def test_convert_when_stopped_anywhere_then_continued_to_the_same_bytes(
    name, nano, s3, bucket, tmp_path, small_batches
):
    converted(nano, str(tmp_path / "out"), name)
    target = target_of(f"s3://{bucket}/out", name, num_proc=1)
    for _ in stops(nano, target):
        assert "out/tokenmill.json" not in s3.keys(bucket)
    assert dataset_in(s3, bucket) == files_in(str(tmp_path / "out"))
    puts = [r for r in s3.requests if r.startswith("PUT")]
    puts = [r for r in puts if "/.tokenmill/" not in r]
    assert len(puts) == len(set(puts))  # nothing was uploaded twice


@pytest.mark.parametrize("kind", ["slow down", "cut after"])
@pytest.mark.parametrize(
    ("source", "name", "options"),
    [
        ("nano", "npy", {}),
        ("nano", "mds", SAMPLES),
        ("apart", "datatrove", {}),
        ("apart", "litdata", {"shard_tokens": 2000, "drop": ("boundaries",)}),
    ],
)
def test_convert_when_the_store_is_gone_from_any_put_on_then_the_same_command_resumes(
    source, name, options, kind, request, s3, bucket, tmp_path, small_batches, no_retries, share
):
    """Also if what was asked for was done, and only the answer was lost."""
    source = request.getfixturevalue(source)
    here = str(tmp_path / "out")
    converted(source, here, name, **options)
    expected = files_in(here)
    converted(source, f"s3://{bucket}/whole", name, **options)
    num_puts = sum(r.startswith("PUT") for r in s3.requests)
    assert num_puts > 10
    numbers = sorted({1, 2, 3, 5, num_puts // 2, *range(num_puts - 3, num_puts + 1)})
    for number in numbers[(kind == "cut after") :: share]:
        out = f"s3://{bucket}/{number}/out"
        faults = Faults(kinds=(kind,), only=puts_from(number))
        with s3.failing(faults), pytest.raises(NetworkError, match="cannot"):
            converted(source, out, name, **options)
        if f"{number}/out/tokenmill.json" in s3.keys(bucket):
            open_dataset(out)
        else:
            with pytest.raises((ConfigError, IntegrityError)):
                open_dataset(out)
        converted(source, out, name, **options)
        assert dataset_in(s3, bucket, f"{number}/out/") == expected, number


def test_convert_when_a_record_says_something_else_then_integrity_error_until_overwritten(
    nano, s3, bucket, small_batches, no_retries
):
    out = f"s3://{bucket}/out"
    with s3.failing(Faults(kinds=("slow down",), only=puts_from(7))), pytest.raises(NetworkError):
        converted(nano, out, "npy", num_proc=1)
    [key] = [key for key in s3.keys(bucket) if key.endswith("tasks/train-00000001-000000.json")]
    s3.client().put_object(Bucket=bucket, Key=key, Body=checksummed(b"{}"))
    with pytest.raises(IntegrityError, match="the same work had two results"):
        converted(nano, out, "npy")
    converted(nano, out, "npy", overwrite=True)
    assert verify(out).is_whole


def test_convert_when_one_request_in_20_fails_then_the_same_files(
    nano, s3, bucket, tmp_path, small_batches
):
    converted(nano, str(tmp_path / "out"), "datatrove", shard_tokens=1000)
    with s3.failing(Faults(seed=3, fraction=0.05, slow_seconds=0.05)) as faults:
        converted(nano, f"s3://{bucket}/out", "datatrove", shard_tokens=1000)
    assert faults.num_injected > 5
    assert dataset_in(s3, bucket) == files_in(str(tmp_path / "out"))
    assert not s3.uploads(bucket)


def test_convert_when_the_budget_is_used_up_then_exit_8_and_it_resumes_without_secrets(
    nano, s3, bucket, tmp_path
):
    out = f"s3://{bucket}/out"
    options = ("--format", "npy", "--shard-tokens", "3000", "--json", "-v")
    script = (
        "import sys, tokenmill.storage.retry as p; "
        "p.RETRY_SECONDS = p.LONGEST_PAUSE_SECONDS = 0.5; "
        "from tokenmill.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", script, "convert", nano, out, *options]

    def attempt() -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, capture_output=True, text=True, check=False)

    with s3.failing(Faults(kinds=("slow down",), only=puts_from(6))):
        failed = attempt()
    assert failed.returncode == 8, failed.stderr
    assert "cannot write s3://" in failed.stderr or "cannot create s3://" in failed.stderr
    assert "run the same command again: it resumes" in failed.stderr
    left = objects_in(s3, bucket)
    assert ".tokenmill/run.json" in left and "tokenmill.json" not in left
    done = attempt()
    assert done.returncode == 0, done.stderr
    manifest = converted(nano, str(tmp_path / "out"), "npy")
    found = dataset_in(s3, bucket)
    assert found == files_in(str(tmp_path / "out"))
    assert json.loads(done.stdout)["files"] == json.loads(manifest.to_json())["files"]
    shown = "".join([failed.stderr, failed.stdout, done.stderr, done.stdout]).encode()
    require_no_secret(shown, *left.values(), *found.values())


def test_convert_when_others_upload_beside_it_then_they_are_left_alone(
    nano, s3, bucket, tmp_path, monkeypatch
):
    monkeypatch.setattr(s3_store, "MULTIPART_BYTES", 1000)
    monkeypatch.setattr(s3_store, "UPLOAD_PART_BYTES", 5 << 20)  # S3's least
    others = ["out/backup.tar", "output/of-another"]
    for key in others:
        s3.client().create_multipart_upload(Bucket=bucket, Key=key)
    converted(nano, f"s3://{bucket}/out", "llmc")
    assert s3.uploads(bucket) == others
    converted(nano, str(tmp_path / "out"), "llmc")
    assert dataset_in(s3, bucket) == files_in(str(tmp_path / "out"))


@pytest.mark.parametrize("name", ["npy", "parquet"])
def test_convert_when_to_s3_then_the_scratch_folder_holds_a_shard_or_two(
    name, nano, bucket, tmp_path, small_batches, monkeypatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    seen, both = [], threading.Barrier(2)

    def looked(store: ObjectStore, path: str, target: str) -> str | None:
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(1)  # for the other thread's shard, until there is none
        seen.append(sum(len(data) for data in files_in(str(tmp_path)).values()))
        return put(store, path, target)

    put = ObjectStore.put
    monkeypatch.setattr(ObjectStore, "put", looked)
    source = open_dataset(nano)
    convert(source, target_of(f"s3://{bucket}/out", name))
    # Two shards of parquet, each compressed to at most 2,715 bytes, or one of another format.
    least = 4000 if name == "parquet" else 5000
    assert source.num_tokens > 5 * 3000 and least < max(seen) < 3 * 2 * 3000
    assert not os.listdir(tmp_path)


# What is there already


def test_convert_when_complete_already_then_nothing_is_written(nano, s3, bucket):
    out = f"s3://{bucket}/out"
    manifest = converted(nano, out, "npy")
    before = objects_in(s3, bucket)
    run = json.loads(before["tokenmill.json"])["folder"]
    for left in ("plan.json", "tasks/train-00000000-000000.json"):
        s3.client().put_object(Bucket=bucket, Key=f"out/.tokenmill/{run}/{left}", Body=b"of a kill")
    s3.requests.clear()
    assert converted(nano, out, "npy") == manifest
    assert objects_in(s3, bucket) == before
    assert not [r for r in s3.requests if r.startswith("PUT")]


def test_convert_when_another_dataset_is_there_then_conflict_until_overwritten(
    nano, apart, s3, bucket, tmp_path
):
    out = f"s3://{bucket}/out"
    converted(nano, out, "npy")
    before = objects_in(s3, bucket)
    with pytest.raises(ConflictError, match="shard_tokens: was 3000, now 4000"):
        converted(nano, out, "npy", shard_tokens=4000)
    with pytest.raises(ConflictError):
        converted(apart, out, "olmo")
    other = str(tmp_path / "other")
    converted(nano, other, "megatron")
    with pytest.raises(ConflictError, match="made from a dataset other"):
        converted(other, out, "npy")
    assert objects_in(s3, bucket) == before

    s3.client().put_object(Bucket=bucket, Key="out/notes.txt", Body=b"mine")
    manifest = converted(apart, out, "olmo", overwrite=True)
    assert s3.read(bucket, "out/notes.txt") == b"mine"
    s3.client().delete_object(Bucket=bucket, Key="out/notes.txt")
    assert set(dataset_in(s3, bucket)) == {"tokenmill.json", *(f.name for f in manifest.files)}
    assert verify(out).is_whole


def test_convert_when_begun_differently_then_conflict_until_overwritten(
    nano, apart, s3, bucket, tmp_path, no_retries
):
    out = f"s3://{bucket}/out"
    with s3.failing(Faults(kinds=("slow down",), only=puts_from(6))), pytest.raises(NetworkError):
        converted(nano, out, "npy")
    left = objects_in(s3, bucket)
    with pytest.raises(ConflictError, match="was started differently") as caught:
        converted(nano, out, "npy", shard_tokens=4000)
    assert out in str(caught.value)
    with pytest.raises(ConflictError, match="was started differently"):
        converted(apart, out, "datatrove")
    assert objects_in(s3, bucket) == left
    converted(nano, out, "npy", shard_tokens=4000, overwrite=True)
    converted(nano, str(tmp_path / "out"), "npy", shard_tokens=4000)
    assert dataset_in(s3, bucket) == files_in(str(tmp_path / "out"))


def test_convert_when_a_run_of_prepare_is_under_way_there_then_conflict(
    nano, s3, bucket, tmp_path, no_retries
):
    out, corpus = f"s3://{bucket}/out", write_corpus("jsonl", tmp_path, made_texts(20))
    with s3.failing(Faults(kinds=("slow down",), only=puts_from(3))), pytest.raises(NetworkError):
        tokenmill.prepare(corpus, out, format="npy", num_proc=1)
    with pytest.raises(ConflictError, match="is from an unfinished `tokenmill prepare`"):
        converted(nano, out, "npy")


def test_convert_when_the_url_is_the_input_then_refused(nano, s3, bucket):
    url = f"s3://{bucket}/one"
    converted(nano, url, "npy")
    before = objects_in(s3, bucket, "one/")
    for same in (url, url + "/", f"s3a://{bucket}/one", f"s3://{bucket}//one/../one"):
        with pytest.raises(ConfigError, match="output folder is the input folder"):
            converted(url, same, "llmc", overwrite=True)
    assert objects_in(s3, bucket, "one/") == before
    with pytest.raises(ConfigError, match="output folder is the input folder"):
        converted(nano, Path(nano).as_uri(), "llmc", overwrite=True)
    assert place_of("gs://a/b") != place_of("s3://a/b")


def test_convert_when_the_store_refuses_then_what_and_where(nano, s3):
    with pytest.raises(OutputError, match="bucket does not exist"):
        converted(nano, "s3://there-is-none/out", "npy")
    secret = f"s3://key:{SECRET_KEY}@bucket/out"
    done = run("convert", nano, secret, "--format", "npy")
    assert done.returncode == 2
    assert SECRET_KEY not in done.stderr + done.stdout and "credentials" in done.stderr


# Two at once


@pytest.mark.parametrize("module, moment", [(ObjectStore, "put"), (task_module, "save_record")])
def test_convert_when_another_is_faster_then_its_result_is_taken(
    module, moment, nano, s3, bucket, tmp_path, small_batches, monkeypatch
):
    """Before there is a record of a shard that is uploaded, and right after a record."""
    target = target_of(f"s3://{bucket}/out", "npy")
    do = getattr(module, moment)
    others = []

    def overtaken(*arguments):
        result = do(*arguments)
        if not others and "plan.json" not in str(arguments):
            others.append(None)  # the other one is not overtaken
            others[0] = convert(open_dataset(nano), target)
        return result

    monkeypatch.setattr(module, moment, overtaken)
    assert convert(open_dataset(nano), target) == others[0]
    converted(nano, str(tmp_path / "out"), "npy")
    assert dataset_in(s3, bucket) == files_in(str(tmp_path / "out"))


def test_convert_when_another_cleans_up_while_a_record_is_compared_then_its_result_is_taken(
    nano, s3, bucket, monkeypatch
):
    target = target_of(f"s3://{bucket}/out", "npy")
    create, others = ObjectStore.create, []

    def overtaken(store: ObjectStore, url: str, data: bytes) -> bool:
        is_new = create(store, url, data)
        if not others and "/tasks/" in url:
            others.append(None)
            others[0] = convert(open_dataset(nano), target)
            return False
        return is_new

    monkeypatch.setattr(ObjectStore, "create", overtaken)
    assert convert(open_dataset(nano), target) == others[0]
    assert verify(target.out).is_whole
    assert set(dataset_in(s3, bucket)) == {"tokenmill.json", *(f.name for f in others[0].files)}


def test_convert_when_another_overwrites_then_conflict_and_the_other_one_stays(
    nano, s3, bucket, small_batches
):
    out = f"s3://{bucket}/out"
    overwritten = []

    def watch(num_tokens: int) -> bool:
        if not overwritten:
            overwritten.append(converted(nano, out, "npy", shard_tokens=4000, overwrite=True))
        return False

    with pytest.raises(ConflictError):
        convert(open_dataset(nano), target_of(out, "npy"), None, watch)
    assert verify(out).is_whole
    assert tokenmill.Manifest.load(out) == overwritten[0]


def test_convert_when_two_run_at_once_then_both_succeed_with_the_same_files(
    nano, s3, bucket, tmp_path
):
    script = (
        "import sys; from tokenmill.dataset import convert_source as source; "
        "source.READ_TOKENS = 700; "
        "from tokenmill.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    options = ("--format", "megatron", "--shard-tokens", "1000")
    command = [sys.executable, "-c", script, "convert", nano, f"s3://{bucket}/out", *options]
    runs = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(2)]
    for one in runs:
        _, errors = one.communicate()
        assert one.returncode == 0, errors.decode()
        assert b"nanogpt -> megatron" in errors
    converted(nano, str(tmp_path / "out"), "megatron", shard_tokens=1000)
    assert dataset_in(s3, bucket) == files_in(str(tmp_path / "out"))
