"""URLs as SOURCE, against moto's S3 server: the same bytes as from files, by ranges."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tokenmill
from corpora import SEPARATOR, made_texts, write_corpus
from s3_server import ACCESS_KEY, SECRET_KEY, Faults
from tokenmill.config import Config
from tokenmill.corpus import prefetch
from tokenmill.corpus.input_spans import cut
from tokenmill.corpus.inputs import in_order
from tokenmill.corpus.opening import opened, ranged_file
from tokenmill.corpus.planning import make_plan
from tokenmill.corpus.readers import ReadOptions
from tokenmill.corpus.source_files import inputs_of
from tokenmill.corpus.spans import Input, Slice
from tokenmill.dataset.verify import verify
from tokenmill.errors import (
    ConfigError,
    ConflictError,
    InputError,
    IntegrityError,
    NetworkError,
)
from tokenmill.estimate import Sample, estimate
from tokenmill.run import SilentWatch
from tokenmill.storage import retry
from tokenmill.storage.range_reader import MIN_READ_BYTES

KINDS = ["parquet", "arrow", "feather", "jsonl", "jsonl.gz", "jsonl.zst", "txt", "txt.gz"]
MANY_SLICES = {"slice_bytes": 20_000, "num_proc": 1, "val_fraction": 0.1}


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(retry, "LONGEST_PAUSE_SECONDS", 0.02)


@pytest.fixture
def upload(s3, bucket):
    """Put a file or a folder of the disk into the bucket; its URL."""

    def uploaded(path: str | os.PathLike[str], key: str | None = None) -> str:
        path = Path(path)
        if path.is_dir():
            for file in sorted(path.rglob("*")):
                if file.is_file():
                    uploaded(file, f"{path.name}/{file.relative_to(path)}")
            return f"s3://{bucket}/{path.name}/"
        key = key or path.name
        s3.client().upload_file(str(path), bucket, key)
        return f"s3://{bucket}/{key}"

    return uploaded


def options_of(kind: str) -> dict:
    return {**MANY_SLICES, "separator": SEPARATOR if kind.startswith("txt") else None}


def shards_of(manifest: tokenmill.Manifest) -> list:
    """All that is said of the output; nothing of that depends on where the inputs were."""
    return [*manifest.files, manifest.counts, manifest.slice_documents]


class StoppingWatch(SilentWatch):
    """Asks for a stop after the first slice."""

    def __init__(self) -> None:
        self.num_recorded = 0

    def recorded(self, record) -> None:
        self.num_recorded += 1

    def should_stop(self) -> bool:
        return self.num_recorded > 0


class PlannedWatch(SilentWatch):
    """Does something once the plan is made."""

    def __init__(self, action) -> None:
        self._action = action

    def planned(self, plan, done) -> None:
        self._action()


def stopped(source: str, out: Path, **options) -> None:
    """A run that ends after one slice, as one does that is interrupted."""
    with pytest.raises(Exception) as caught:
        tokenmill.prepare(source, out, watch=StoppingWatch(), **options)
    assert type(caught.value).__name__ == "Stopped"


# The same bytes


@pytest.mark.parametrize("kind", KINDS)
def test_prepare_when_source_is_an_object_then_as_from_a_file(
    kind, tmp_path, texts, upload, read_files
):
    path = write_corpus(kind, tmp_path / "corpus", list(texts))
    options = options_of(kind)
    local = tokenmill.prepare(path, tmp_path / "local", **options)
    url = upload(path)
    remote = tokenmill.prepare(url, tmp_path / "remote", **options)
    assert shards_of(remote) == shards_of(local)
    assert [source.path for source in remote.inputs] == [url]
    assert read_files(tmp_path / "remote") == read_files(tmp_path / "local")


@pytest.mark.parametrize("num_proc", [1, 2])
def test_prepare_when_source_is_a_prefix_of_many_objects_then_as_from_a_folder(
    num_proc, tmp_path, upload
):
    folder = tmp_path / "corpus"
    for number in range(3):
        pq.write_table(
            pa.table({"text": made_texts(120, number)}),
            _made(folder / f"part {number}" / "a=ä.parquet"),
            row_group_size=20,
        )
    (folder / "README.md").write_text("not corpus")
    _made(folder / ".hidden" / "a.parquet").write_bytes(b"not corpus")
    options = {**MANY_SLICES, "num_proc": num_proc, "shuffle": True, "seed": 5}
    local = tokenmill.prepare(folder, tmp_path / "local", **options)
    remote = tokenmill.prepare(upload(folder), tmp_path / "remote", **options)
    assert shards_of(remote) == shards_of(local)
    assert len(remote.inputs) == 3


def test_prepare_when_there_are_many_small_text_objects_then_each_is_a_document(
    tmp_path, texts, upload, s3
):
    folder = tmp_path / "corpus"
    for number, text in enumerate(texts[:70]):
        _made(folder / f"{number:03}.txt").write_text(text)
    local = tokenmill.prepare(folder, tmp_path / "local", num_proc=1)
    url = upload(folder)
    s3.requests.clear()
    remote = tokenmill.prepare(url, tmp_path / "remote", num_proc=1)
    assert shards_of(remote) == shards_of(local)
    # One request to plan, one to encode (of the last ones: none, they are kept), one look.
    assert sum(request.startswith("GET") and ".txt" in request for request in s3.requests) <= 140
    assert sum(request.startswith("HEAD") for request in s3.requests) == 70


def test_plan_when_source_is_an_object_then_the_slices_of_a_file(tmp_path, upload, monkeypatch):
    """Where no separator lies in the window that is fetched ahead, more is read."""
    texts = ["long " * 20_000 if number % 7 == 0 else "short" for number in range(60)]
    for kind in ("jsonl", "txt"):
        path = write_corpus(kind, tmp_path / "corpus", list(texts))
        config = Config(sources=(path,), slice_bytes=70_000, separator=SEPARATOR)
        plans = [
            make_plan({}, inputs_of([source], None), config) for source in (path, upload(path))
        ]
        spans = [[(s.start, s.stop) for one in p.slices for s in one.spans] for p in plans]
        assert spans[0] == spans[1]
        assert len(spans[0]) > 5


def test_inputs_when_object_prefix_or_glob_then_the_same_objects(tmp_path, texts, upload, bucket):
    for number in range(3):
        _made(tmp_path / "corpus" / f"{number}.jsonl").write_text('{"text": "a"}\n')
    upload(tmp_path / "corpus")
    ways = [
        [f"s3://{bucket}/corpus/"],
        [f"s3://{bucket}/corpus"],
        [f"s3://{bucket}"],
        [f"s3://{bucket}/corpus/*.jsonl"],
        [f"s3://{bucket}/**/[0-2].jsonl"],
        [f"s3://{bucket}/corpus/{number}.jsonl" for number in (2, 0, 1, 0)],
    ]
    found = [in_order(inputs_of(way, None)) for way in ways]
    assert all(inputs == found[0] for inputs in found)
    assert [source.name for source in found[0]] == [
        f"s3://{bucket}/corpus/{number}.jsonl" for number in range(3)
    ]


def test_inputs_when_a_dataset_of_ours_lies_below_then_it_is_no_corpus(tmp_path, upload):
    _made(tmp_path / "corpus" / "a.parquet").write_bytes(b"x")
    _made(tmp_path / "corpus" / "out" / "tokenmill.json").write_bytes(b"{}")
    _made(tmp_path / "corpus" / "out" / "train-0.parquet").write_bytes(b"x")
    _made(tmp_path / "corpus" / "unfinished" / ".tokenmill" / "plan.json").write_bytes(b"x")
    _made(tmp_path / "corpus" / "unfinished" / "train-0.parquet").write_bytes(b"x")
    [source] = inputs_of([upload(tmp_path / "corpus")], None)
    assert source.name.endswith("corpus/a.parquet")


def test_prepare_when_source_is_another_fsspec_url_then_as_from_a_file(tmp_path, texts):
    import fsspec

    path = write_corpus("parquet", tmp_path / "corpus", list(texts))
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/somewhere/corpus.parquet", Path(path).read_bytes())
    try:
        local = tokenmill.prepare(path, tmp_path / "local", **MANY_SLICES)
        remote = tokenmill.prepare("memory://somewhere/", tmp_path / "remote", **MANY_SLICES)
    finally:
        memory.rm("/somewhere", recursive=True)
    assert shards_of(remote) == shards_of(local)


# Only what is needed


def test_prepare_when_parquet_has_other_columns_then_these_are_not_read(
    tmp_path, texts, upload, s3
):
    blobs = pa.array([os.urandom(20_000) for _ in texts])
    path = tmp_path / "corpus.parquet"
    pq.write_table(pa.table({"blob": blobs, "text": texts}), path, row_group_size=100)
    text_bytes = sum(
        pq.ParquetFile(path).metadata.row_group(group).column(1).total_compressed_size
        for group in range(4)
    )
    url = upload(path)
    s3.served.clear()
    tokenmill.prepare(url, tmp_path / "out", num_proc=1)
    served = sum(num_bytes for request, num_bytes in s3.served if "corpus.parquet" in request)
    assert text_bytes <= served <= text_bytes + 2 * MIN_READ_BYTES
    assert served < path.stat().st_size / 20


def test_plan_when_jsonl_is_large_then_only_what_lies_around_the_cuts_is_read(tmp_path, upload, s3):
    line = json.dumps({"text": "word " * 200}).encode() + b"\n"
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(line * 16_000)  # 16 MB
    url = upload(path)
    s3.served.clear()
    config = Config(sources=(url,), slice_bytes=2 << 20)
    plan = make_plan({}, inputs_of([url], None), config)
    assert len(plan.slices) == 8
    assert sum(num_bytes for _, num_bytes in s3.served) < (1 << 20) + 9 * (MIN_READ_BYTES + 1000)


def test_prepare_when_an_object_has_many_slices_then_each_byte_is_read_once(tmp_path, upload, s3):
    path = write_corpus("jsonl", tmp_path / "corpus", made_texts(5000))
    url = upload(path)
    s3.served.clear()
    s3.requests.clear()
    manifest = tokenmill.prepare(url, tmp_path / "out", num_proc=1, slice_bytes=500_000)
    size = os.path.getsize(path)
    num_slices = len(manifest.slice_documents["train"])
    served = sum(num_bytes for request, num_bytes in s3.served if ".jsonl" in request)
    assert num_slices > 4
    assert served <= size + (2 << 20) + num_slices * (MIN_READ_BYTES + 1)
    assert sum(request.startswith("HEAD") for request in s3.requests) <= num_slices + 1


# What goes wrong


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "txt.gz"])
def test_prepare_when_one_request_in_20_fails_then_the_same_bytes(
    kind, tmp_path, texts, upload, s3
):
    path = write_corpus(kind, tmp_path / "corpus", list(texts))
    url = upload(path)
    options = {**options_of(kind), "num_proc": 2}
    local = tokenmill.prepare(path, tmp_path / "local", **options)
    with s3.failing(Faults(seed=3, fraction=0.05)):
        remote = tokenmill.prepare(url, tmp_path / "remote", **options)
    assert shards_of(remote) == shards_of(local)


@pytest.mark.parametrize("kind", KINDS)
def test_prepare_when_half_of_the_requests_fail_then_the_same_bytes(
    kind, tmp_path, texts, upload, s3
):
    path = write_corpus(kind, tmp_path / "corpus", list(texts))
    url = upload(path)
    local = tokenmill.prepare(path, tmp_path / "local", **options_of(kind))
    with s3.failing(Faults(seed=1, fraction=0.5, slow_seconds=0.01)) as faults:
        remote = tokenmill.prepare(url, tmp_path / "remote", **options_of(kind))
    assert faults.num_injected
    assert shards_of(remote) == shards_of(local)


@pytest.mark.parametrize("kind", KINDS)
def test_prepare_when_the_store_fails_for_too_long_then_network_error_and_it_resumes(
    kind, tmp_path, texts, upload, s3, monkeypatch
):
    """The error is the network's (exit 8), whichever library was reading when it happened."""
    path = write_corpus(kind, tmp_path / "corpus", list(texts))
    url = upload(path)
    monkeypatch.setattr(retry, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(retry, "UNREACHABLE_SECONDS", 0.05)

    def fail() -> None:
        s3.faults = Faults(kinds=("slow down",), only=lambda request: request.startswith("GET"))

    _forget_edges()
    with pytest.raises(NetworkError, match="run the same command again") as caught:
        watch = PlannedWatch(lambda: (_forget_edges(), fail()))
        tokenmill.prepare(url, tmp_path / "out", watch=watch, **options_of(kind))
    assert url in caught.value.message
    s3.faults = Faults(fraction=0.0)
    remote = tokenmill.prepare(url, tmp_path / "out", **options_of(kind))
    local = tokenmill.prepare(path, tmp_path / "local", **options_of(kind))
    assert shards_of(remote) == shards_of(local)


@pytest.mark.parametrize("kind", ["parquet", "feather", "jsonl", "txt.gz"])
def test_plan_when_the_store_fails_then_network_error(
    kind, tmp_path, texts, upload, s3, monkeypatch
):
    url = upload(write_corpus(kind, tmp_path / "corpus", list(texts)))
    monkeypatch.setattr(retry, "RETRY_SECONDS", 0.05)
    config = Config(sources=(url,), separator=SEPARATOR)
    inputs = inputs_of([url], None)
    _forget_edges()
    s3.faults = Faults(kinds=("slow down",))
    with pytest.raises(NetworkError):
        make_plan({}, inputs, config)


@pytest.mark.parametrize("num_proc", [1, 2])
def test_prepare_when_an_object_changed_since_then_conflict(num_proc, tmp_path, texts, upload):
    path = write_corpus("jsonl", tmp_path / "corpus", list(texts))
    options = {**MANY_SLICES, "num_proc": num_proc}
    url = upload(path)
    stopped(url, tmp_path / "out", **options)
    _swap_letters(path)
    upload(path)
    with pytest.raises(ConflictError, match="same size, different content"):
        tokenmill.prepare(url, tmp_path / "out", **options)


@pytest.mark.parametrize("kind", KINDS)
def test_prepare_when_an_object_changes_meanwhile_then_conflict(kind, tmp_path, texts, upload):
    path = write_corpus(kind, tmp_path / "corpus", list(texts))
    url = upload(path)

    def change() -> None:
        upload(write_corpus(kind, tmp_path / "other", texts[:100]), f"corpus.{kind}")
        _forget_edges()

    with pytest.raises(ConflictError, match="changed during the run") as caught:
        tokenmill.prepare(url, tmp_path / "out", watch=PlannedWatch(change), **options_of(kind))
    assert url in caught.value.message
    assert not list((tmp_path / "out" / ".tokenmill").glob("*/records/*"))


def test_prepare_when_an_object_is_gone_meanwhile_then_input_error(
    tmp_path, texts, upload, s3, bucket
):
    url = upload(write_corpus("parquet", tmp_path / "corpus", list(texts)))
    watch = PlannedWatch(lambda: s3.client().delete_object(Bucket=bucket, Key="corpus.parquet"))
    with pytest.raises(InputError, match="it is gone"):
        tokenmill.prepare(url, tmp_path / "out", watch=watch, **MANY_SLICES)


def test_prepare_when_an_object_is_damaged_then_its_url_is_named(tmp_path, texts, upload):
    path = Path(write_corpus("parquet", tmp_path / "corpus", list(texts)))
    data = bytearray(path.read_bytes())
    offset = pq.ParquetFile(path).metadata.row_group(3).column(1).data_page_offset
    data[offset : offset + 40] = bytes(40)
    path.write_bytes(data)
    url = upload(path)
    with pytest.raises(InputError, match="row group 3") as caught:
        tokenmill.prepare(url, tmp_path / "out", **MANY_SLICES)
    assert caught.value.message.startswith(url)
    cut = upload(_written(tmp_path / "cut.parquet", bytes(data[:-100])))
    with pytest.raises(InputError, match="not a readable parquet file") as caught:
        tokenmill.prepare(cut, tmp_path / "out2", **MANY_SLICES)
    assert caught.value.message.startswith(cut)


def test_prepare_when_rows_are_bad_then_quarantined_with_the_url(tmp_path, texts, upload):
    lines = [json.dumps({"text": text}) for text in texts]
    lines[1] = lines[300] = "{broken"
    path = _written(tmp_path / "corpus.jsonl", "\n".join(lines).encode())
    url = upload(path)
    options = {**MANY_SLICES, "max_bad_fraction": 0.1}
    remote = tokenmill.prepare(url, tmp_path / "remote", **options)
    local = tokenmill.prepare(path, tmp_path / "local", **options)
    assert remote.counts == local.counts
    rows = (tmp_path / "remote" / "tokenmill-quarantine.jsonl").read_text().splitlines()
    first, second = (json.loads(row) for row in rows)
    assert (first["path"], first["place"]) == (url, "line 2")
    # What lies before a slice is not fetched for the sake of a line's number.
    assert second["path"] == url
    assert " from byte " in second["place"]


@pytest.mark.parametrize("source", ["s3://no-such-bucket-anywhere/x/", "s3://{}/nothing/here"])
def test_prepare_when_there_is_no_such_thing_then_input_error_with_a_way_out(
    source, tmp_path, bucket
):
    with pytest.raises(InputError, match="nothing below it") as caught:
        tokenmill.prepare(source.format(bucket), tmp_path / "out", num_proc=1)
    assert "aws s3 ls" in caught.value.hint


def test_prepare_when_a_glob_matches_nothing_then_input_error(tmp_path, bucket):
    with pytest.raises(InputError, match="no object matches"):
        tokenmill.prepare(f"s3://{bucket}/*.parquet", tmp_path / "out", num_proc=1)


def test_prepare_when_objects_are_of_two_kinds_then_a_question(tmp_path, upload):
    _made(tmp_path / "corpus" / "a.txt").write_text("x")
    _made(tmp_path / "corpus" / "a.jsonl").write_text("{}")
    with pytest.raises(InputError, match="more than one kind"):
        tokenmill.prepare(upload(tmp_path / "corpus"), tmp_path / "out", num_proc=1)


def test_command_when_there_are_no_credentials_then_usage_error(tmp_path, s3, bucket):
    environment = {
        name: value for name, value in s3.environment.items() if not name.startswith("AWS_ACCESS")
    }
    environment.pop("AWS_SECRET_ACCESS_KEY")
    done = command("prepare", f"s3://{bucket}/x/", "-o", tmp_path / "out", env=environment)
    assert done.returncode == 2, done.stderr
    assert "no credentials" in done.stderr and "AWS_PROFILE" in done.stderr


def test_command_when_credentials_are_in_the_url_then_refused_and_not_shown(tmp_path, s3):
    done = command("prepare", f"s3://me:{SECRET_KEY}@bucket/x/", "-o", tmp_path / "out")
    assert done.returncode == 2
    assert SECRET_KEY not in done.stderr + done.stdout


def test_prepare_when_done_with_credentials_then_they_are_nowhere(tmp_path, texts, upload, s3):
    path = write_corpus("parquet", tmp_path / "corpus", list(texts))
    url = upload(path)
    stopped(url, tmp_path / "half", **{**MANY_SLICES, "num_proc": 2})
    with s3.failing(Faults(seed=2, fraction=0.3, slow_seconds=0.01)):
        done = command(
            "prepare", url, "-o", tmp_path / "out", "--num-proc", "2", "-v", env=s3.environment
        )
    assert done.returncode == 0, done.stderr
    written = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert any(file.name == "plan.json" for file in written)
    assert any(file.name == "tokenmill.json" for file in written)
    shown = [done.stdout.encode(), done.stderr.encode(), *(f.read_bytes() for f in written)]
    for secret in (ACCESS_KEY, SECRET_KEY):
        assert not any(secret.encode() in data for data in shown)


def test_inputs_when_the_reader_is_an_outside_packages_then_refused(
    bucket, upload, tmp_path, monkeypatch
):
    from tokenmill.corpus.readers import naming

    monkeypatch.setattr(naming, "kind_of", lambda name: ("warc", None))
    url = upload(_written(tmp_path / "a.warc", b"x"))
    with pytest.raises(ConfigError, match="reads only local files"):
        inputs_of([url], None)


def test_command_when_the_store_cannot_be_reached_then_network_error(tmp_path, s3):
    environment = {**s3.environment, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
    done = command("prepare", "s3://bucket/x/", "-o", tmp_path / "out", env=environment)
    assert done.returncode == 8, done.stderr
    assert "s3://bucket/x/" in done.stderr and "run the same command again" in done.stderr


def test_prepare_when_finished_and_the_store_does_not_answer_then_still_finished(
    tmp_path, texts, upload, s3, monkeypatch
):
    url = upload(write_corpus("parquet", tmp_path / "corpus", list(texts)))
    done = tokenmill.prepare(url, tmp_path / "out", num_proc=1)
    monkeypatch.setattr(retry, "RETRY_SECONDS", 0.05)
    s3.faults = Faults(kinds=("slow down",))
    assert tokenmill.prepare(url, tmp_path / "out", num_proc=1) == done


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "txt.gz"])
def test_prepare_when_limited_then_the_same_documents(kind, tmp_path, texts, upload):
    path = write_corpus(kind, tmp_path / "corpus", list(texts))
    options = {**options_of(kind), "limit_docs": 123}
    local = tokenmill.prepare(path, tmp_path / "local", **options)
    remote = tokenmill.prepare(upload(path), tmp_path / "remote", **options)
    assert remote.counts.num_rows == 123
    assert shards_of(remote) == shards_of(local)


# Rows that are chosen


@pytest.mark.parametrize("is_sorted", [True, False], ids=["statistics", "column"])
def test_where_when_a_tenth_passes_then_little_else_is_fetched(is_sorted, tmp_path, upload, s3):
    rng = random.Random(2)
    texts = ["".join(rng.choices("abcdefgh ", k=4000)) for _ in range(1000)]  # hardly compressible
    # Where other groups have 0 and 9, their statistics do not rule 5 out, but the column does.
    others = (0, 0) if is_sorted else (0, 9)
    scores = [5 if number // 100 == 7 else others[number % 2] for number in range(1000)]
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": texts, "score": scores}), path, row_group_size=50)
    url = upload(str(path))
    where = "score == 5"
    amounts = []
    for number, options in enumerate(({}, {"where": where, "val": "none"})):
        _forget_edges()
        s3.served.clear()
        found = tokenmill.prepare(url, tmp_path / str(number), num_proc=1, **options)
        amounts.append(sum(size for request, size in s3.served if request.startswith("GET")))
    assert found.counts.num_written == 100 and found.counts.num_filtered == 900
    assert amounts[0] > path.stat().st_size * 0.9
    assert amounts[1] <= 0.16 * amounts[0]  # whole blocks are fetched
    local = tokenmill.prepare(path, tmp_path / "local", num_proc=1, where=where, val="none")
    assert shards_of(found) == shards_of(local)


# What is begun ahead


@pytest.mark.parametrize("kind", KINDS)
def test_prefetch_when_a_span_was_begun_then_it_is_read_once_and_the_same(
    kind, tmp_path, texts, upload, s3
):
    path = write_corpus(kind, tmp_path / "corpus", list(texts))
    url = upload(path)
    options = ReadOptions(separator=SEPARATOR)
    spans = [cut(source, options).spans[0] for source in inputs_of([path, url], None)]
    rows = [batch.texts.to_pylist() for batch in prefetch.documents_of(spans[0], options)[1]]
    _forget_edges()
    s3.requests.clear()
    prefetch.begin(spans[1], options)
    reader, batches = prefetch.documents_of(spans[1], options)
    assert [batch.texts.to_pylist() for batch in batches] == rows
    assert reader.place(spans[1], 0) in ("row 0", "line 1", "document 1")
    assert not prefetch._begun


def test_prefetch_when_reading_fails_then_the_slice_says_so(tmp_path, upload, s3, bucket):
    url = upload(_written(tmp_path / "a.jsonl", b'{"text": "a"}\n'))
    [span] = cut(inputs_of([url], None)[0], ReadOptions()).spans
    s3.client().delete_object(Bucket=bucket, Key="a.jsonl")
    _forget_edges()
    prefetch.begin(span, ReadOptions())
    _, batches = prefetch.documents_of(span, ReadOptions())
    with pytest.raises(InputError, match="cannot be read"):
        list(batches)


def test_prefetch_when_nobody_comes_for_them_then_two_are_kept(tmp_path, upload):
    spans = []
    for number in range(4):
        url = upload(_written(tmp_path / f"{number}.jsonl", b'{"text": "a"}\n'))
        spans += cut(inputs_of([url], None)[0], ReadOptions()).spans
        prefetch.begin(spans[-1], ReadOptions())
    assert list(prefetch._begun) == [(span, ReadOptions()) for span in spans[2:]]
    prefetch._begun.clear()


def test_worker_when_a_slice_is_encoded_with_caution_then_nothing_else_is_begun(
    tmp_path, upload, monkeypatch
):
    from tokenmill.runners import worker
    from tokenmill.runners.attempts import Attempts

    url = upload(_written(tmp_path / "a.jsonl", b'{"text": "a"}\n'))
    [span] = cut(inputs_of([url], None)[0], ReadOptions()).spans
    begun = []
    monkeypatch.setattr(prefetch, "begin", lambda span, options: begun.append(span))
    job = Namespace(read_of=lambda source: None)
    monkeypatch.setattr("tokenmill.encode.job.Job.from_plain", lambda plain: job)
    attempts = Attempts(Namespace(to_plain=dict), Slice(0, (span,)))
    plain = attempts.order()
    careful = {**plain, "caution": {"skip": [], "one_by_one": True}}
    was_careful = False
    for order in (plain, careful, plain, plain):
        was_careful = worker._prefetch(order, was_careful)
        begun.append(order["caution"]["one_by_one"])
    assert begun == [span, False, True, False, span, False]


def test_order_when_a_slice_is_on_this_disk_then_it_is_not_prefetched(tmp_path):
    from tokenmill.runners.attempts import Attempts

    [source] = inputs_of([str(_written(tmp_path / "a.jsonl", b'{"text": "a://b"}\n'))], None)
    attempts = Attempts(Namespace(to_plain=dict), Slice(0, cut(source, ReadOptions()).spans))
    assert attempts.order()["prefetch"] is False


def test_worker_when_the_store_is_slow_then_its_parent_hears_of_it_now_and_then():
    from tokenmill.runners.worker import Wire

    read, write = os.pipe()
    wire = Wire(write)
    for number in range(3):
        wire.notice(f"slow {number}")
    os.close(write)
    with open(read) as told:
        assert told.read().splitlines() == ['["notice", "slow 0"]']


# The other commands


SMALL_SAMPLE = Sample(num_draws=8, draw_bytes=8 << 10, counted_bytes=0)


@pytest.mark.parametrize("kind", ["parquet", "feather", "jsonl", "jsonl.gz", "txt"])
@pytest.mark.parametrize("sample", [SMALL_SAMPLE, Sample()], ids=["sampled", "counted"])
def test_estimate_when_source_is_an_object_then_as_of_a_file(kind, sample, tmp_path, upload):
    path = write_corpus(kind, tmp_path / "corpus", made_texts(1500))
    config = Config(sources=(path,), separator=SEPARATOR if kind == "txt" else None)
    local = estimate(config, sample=sample)
    remote = estimate(dataclasses.replace(config, sources=(upload(path),)), sample=sample)
    assert remote.num_tokens == local.num_tokens
    assert remote.num_tokens_high == local.num_tokens_high
    assert (remote.method, remote.num_inputs) == (local.method, 1)


@pytest.mark.parametrize("kind", ["parquet", "arrow", "jsonl", "txt.gz"])
def test_verify_when_sources_are_objects_then_encoded_again_and_the_same(
    kind, tmp_path, texts, upload
):
    path = write_corpus(kind, tmp_path / "corpus", list(texts))
    url = upload(path)
    tokenmill.prepare(url, tmp_path / "out", **options_of(kind))
    report = verify(str(tmp_path / "out"), full=True)
    assert report.is_whole
    [said] = [check.detail for check in report.checks if check.name == "sources"]
    assert "400 documents encoded again" in said


# RangedFile


@pytest.fixture
def ranged(tmp_path, upload):
    """An object of 3 MB and its bytes."""
    data = os.urandom(3 << 20)
    [source] = inputs_of([upload(_written(tmp_path / "object.bin", data))], "text")
    return source, data


def test_ranged_file_when_read_anywhere_then_as_a_file(ranged):
    source, data = ranged
    with opened(source, [(5, 100), (1 << 20, 2 << 20)]) as file:
        for start, size in [(0, 10), (7, 50), (1 << 20, 1 << 19), (90, 1 << 20), (3 << 20, 5)]:
            file.seek(start)
            assert file.read(size) == data[start : start + size]
        file.seek(-100, 2)
        assert file.read() == data[-100:]
        file.seek(10)
        assert file.read() == data[10:]


def test_ranged_file_when_a_range_is_nonsense_then_only_what_is_there_is_fetched(ranged):
    source, data = ranged
    file = ranged_file(source)
    file.expect([(-5, 3), (10, 5), (1 << 20, 1 << 40), (1 << 50, 1 << 51)])
    file.seek(1 << 20)
    assert file.read(10) == data[1 << 20 :][:10]
    assert [file[0], file[1 << 21]] == [data[0], data[1 << 21]]
    with pytest.raises(IndexError):
        _ = file[3 << 20]


def test_ranged_file_when_the_object_is_shorter_than_planned_then_an_error(ranged):
    source, _ = ranged
    longer = dataclasses.replace(source, num_bytes=source.num_bytes + 5, digest="tag:x")
    with opened(longer) as file, pytest.raises(IntegrityError):
        file.seek(source.num_bytes - 5)
        file.read()


def _forget_edges() -> None:
    from tokenmill.storage import range_reader

    range_reader._forget()


def _made(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def _swap_letters(path: str) -> None:
    data = Path(path).read_bytes()
    Path(path).write_bytes(data.replace(b"mill", b"llim"))


def command(*arguments, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return subprocess.run(
        [sys.executable, "-m", "tokenmill", *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**clean, **(env or {})},
    )


def test_input_when_it_is_an_object_then_its_name_is_the_url(upload, tmp_path):
    url = upload(_written(tmp_path / "a.txt", b"x"))
    [source] = inputs_of([url], None)
    assert isinstance(source, Input)
    assert (source.name, source.path, source.origin) == (url, url, None)
    assert source.digest.startswith("tag:")
