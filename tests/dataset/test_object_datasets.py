"""`inspect`, `verify` and `convert` of datasets on object storage, against moto's S3 server."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import tokenmill
from corpora import SEPARATOR, made_texts, write_corpus
from s3_server import Faults, S3Server
from tests.look.view.served import asked, served
from tokenmill.cli import main
from tokenmill.cli.demo import show_sample
from tokenmill.dataset.convert import Target, convert
from tokenmill.dataset.dataset import open_dataset
from tokenmill.dataset.files import files_at
from tokenmill.dataset.inspect import document, glance, look_into, token_offset
from tokenmill.dataset.manifest import MANIFEST_NAME
from tokenmill.dataset.verify import verify
from tokenmill.errors import ConfigError, ConflictError, IntegrityError, NetworkError
from tokenmill.formats import NAMES
from tokenmill.look.report import survey as survey_module
from tokenmill.look.report.survey import SurveyOptions, survey
from tokenmill.look.view.steps import steps_of_file
from tokenmill.storage import retry

ALL = 1 << 30
LARGE = ["nanogpt", "npy", "megatron", "olmo", "parquet", "mds"]
Upload = Callable[..., str]


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(retry, "LONGEST_PAUSE_SECONDS", 0.02)


@pytest.fixture
def upload(s3: S3Server, bucket: str) -> Upload:
    """Put a folder into the bucket, past the proxy; its URL."""

    def uploaded(folder: str | os.PathLike[str], prefix: str = "some/data") -> str:
        client = s3.client()
        for path in sorted(Path(folder).rglob("*")):
            if path.is_file():
                client.upload_file(str(path), bucket, f"{prefix}/{path.relative_to(folder)}")
        s3.requests.clear()
        s3.served.clear()
        return f"s3://{bucket}/{prefix}"

    return uploaded


@pytest.fixture(scope="module")
def corpus_path(tmp_path_factory) -> str:
    return write_corpus("jsonl", tmp_path_factory.mktemp("small"), made_texts(300, seed=3))


@pytest.fixture(scope="module")
def small(tmp_path_factory, corpus_path) -> Callable[[str], str]:
    """A small dataset of a format, of several shards where it has them; its folder."""
    made: dict[str, str] = {}

    def folder_of(name: str) -> str:
        if name not in made:
            out = str(tmp_path_factory.mktemp(name) / "out")
            shards = {} if name == "nanogpt" else {"shard_tokens": 20_000}
            splits = {"val": "fraction", "val_fraction": 0.2}
            tokenmill.prepare(corpus_path, out, format=name, num_proc=1, **splits, **shards)
            made[name] = out
        return made[name]

    return folder_of


@pytest.fixture(scope="module")
def large(tmp_path_factory) -> Callable[[str], str]:
    """A dataset whose shard has 20 MB of tokens; its folder."""
    parent = tmp_path_factory.mktemp("large")
    made: dict[str, str] = {}

    def folder_of(name: str) -> str:
        if "nanogpt" not in made:
            texts = made_texts(2000, seed=9)
            corpus = write_corpus("jsonl", parent / "corpus", texts * 26)
            made["nanogpt"] = str(parent / "nanogpt")
            tokenmill.prepare(corpus, made["nanogpt"], val="none", num_proc=1)
        if name not in made:
            made[name] = str(parent / name)
            target = Target(out=made[name], format=name, drop=("tail",))
            convert(open_dataset(made["nanogpt"]), target)
        return made[name]

    return folder_of


def served_bytes(s3: S3Server) -> int:
    return sum(num_bytes for _, num_bytes in s3.served)


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


def run(*arguments: str) -> Done:
    """The command, in this process: to start one takes longer than most of these do."""
    before = [(signum, signal.getsignal(signum)) for signum in (signal.SIGINT, signal.SIGTERM)]
    out, err = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(arguments)
    finally:
        for signum, handler in before:
            signal.signal(signum, handler)
    return Done(code, out.getvalue(), err.getvalue())


def files_of(folder: str | os.PathLike[str]) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in Path(folder).rglob("*")
        if path.is_file()
    }


def damage(s3: S3Server, bucket: str, key: str, change: Callable[[bytearray], None]) -> None:
    data = bytearray(s3.read(bucket, key))
    change(data)
    s3.client().put_object(Bucket=bucket, Key=key, Body=bytes(data))


def first_shard(folder: str) -> str:
    return tokenmill.Manifest.load(folder).shards[0].name


# As a local folder


@pytest.mark.parametrize("name", NAMES)
def test_verify_when_url_then_the_report_of_the_folder(name, small, upload):
    folder = small(name)
    local, remote = verify(folder), verify(upload(folder))
    assert remote.is_whole and remote.folder.startswith("s3://")
    assert (remote.checks, remote.num_bytes, remote.num_tokens) == (
        local.checks,
        local.num_bytes,
        local.num_tokens,
    )


@pytest.mark.parametrize("name", NAMES)
def test_inspect_when_url_then_the_documents_of_the_folder(name, small, upload):
    folder = small(name)
    local, remote = look_into(folder), look_into(upload(folder))
    for split in ("train", "val"):
        for number in (0, 7, 40):
            view = document(remote, split, number, ALL)
            assert view == document(local, split, number, ALL)
        token = local.stream(split).num_tokens // 2
        assert token_offset(remote, split, token, ALL) == token_offset(local, split, token, ALL)
    found, expected = glance(remote), glance(local)
    assert found.folder.startswith("s3://")
    assert (found.num_tokens, found.num_documents, found.num_bytes, found.dtype) == (
        expected.num_tokens,
        expected.num_documents,
        expected.num_bytes,
        expected.dtype,
    )


@pytest.mark.parametrize("name", ["nanogpt", "npy", "megatron", "parquet", "mds"])
def test_open_when_url_then_the_tokens_and_documents_of_the_folder(name, small, upload):
    here, there = tokenmill.open(small(name)), tokenmill.open(upload(small(name)))
    assert here.splits == there.splits and there.num_tokens == here.num_tokens
    for split in here:
        ours, theirs = here[split], there[split]
        assert len(ours) == len(theirs) and np.array_equal(ours.tokens(), theirs.tokens())
        for number in (0, 7, len(ours) - 1):
            assert np.array_equal(ours.document(number), theirs.document(number))
            assert ours.text(number) == theirs.text(number)


@pytest.mark.parametrize("shuffle", ["full", "block"])
@pytest.mark.parametrize("name", ["npy", "parquet"])
def test_loader_when_url_then_the_rows_of_the_folder(name, shuffle, small, upload):
    options = {"seq_len": 64, "batch_size": 24, "shuffle": shuffle, "epochs": 1}
    here, there = (
        tokenmill.Loader(place, **options) for place in (small(name), upload(small(name)))
    )
    for ours, theirs in zip(here, there, strict=True):
        assert np.array_equal(ours.tokens, theirs.tokens)
    assert here.state_dict() == there.state_dict()


def test_loader_when_an_object_is_replaced_at_equal_size_then_its_state_is_refused(
    small, upload, bucket, s3
):
    url, options = upload(small("npy")), {"seq_len": 64, "batch_size": 24}
    state = tokenmill.Loader(url, **options).state_dict()

    def reverse(data: bytearray) -> None:
        data[128:] = np.frombuffer(data[128:], np.uint16)[::-1].tobytes()

    damage(s3, bucket, f"some/data/{first_shard(small('npy'))}", reverse)
    with pytest.raises(ConflictError, match=r"the content of data was \w+, is"):
        tokenmill.Loader(url, **options).load_state_dict(state)


@pytest.mark.parametrize("name", ["nanogpt", "npy", "megatron", "parquet", "mds"])
def test_convert_when_source_is_a_url_then_the_bytes_of_the_folder(name, small, upload, tmp_path):
    other = "parquet" if name != "parquet" else "megatron"
    folder = small(name)
    options = ("--format", other, "--drop", "boundaries", "--drop", "tail", "-q")
    for source, out in ((folder, "local"), (upload(folder), "remote")):
        done = run("convert", source, str(tmp_path / out), *options)
        assert done.returncode == 0, done.stderr
    assert files_of(tmp_path / "remote") == files_of(tmp_path / "local")


@pytest.mark.parametrize("name", ["npy", "megatron", "datatrove", "mds", "litdata", "parquet"])
def test_strangers_when_url_without_manifest_then_as_the_folder(name, small, upload, tmp_path):
    strangers = tmp_path / "strangers"
    for file, data in files_of(small(name)).items():
        if file != MANIFEST_NAME:
            (strangers / file).parent.mkdir(parents=True, exist_ok=True)
            (strangers / file).write_bytes(data)
    url = upload(strangers)
    gpt2 = tokenmill.get_encoding("gpt2").identity
    local, remote = (verify(folder, format_name=name, encoding=gpt2) for folder in (strangers, url))
    assert remote.is_whole and remote.checks == local.checks
    found, expected = (
        token_offset(look_into(folder, tokenizer="gpt2"), "train", 100, ALL)
        for folder in (url, str(strangers))
    )
    assert found == expected


def test_verify_when_url_and_sample_then_compared_with_the_sources(small, upload):
    report = verify(upload(small("npy")), sample=20)
    checks = {check.name: check for check in report.checks}
    assert report.is_whole and checks["sources"].status == "passed"


def test_verify_when_another_fsspec_url_then_as_the_folder(small):
    import fsspec

    memory = fsspec.filesystem("memory")
    for name, data in files_of(small("mds")).items():
        memory.pipe_file(f"/somewhere/{name}", data)
    try:
        assert verify("memory://somewhere/").is_whole
        memory.rm(f"/somewhere/{MANIFEST_NAME}")
        assert verify("memory://somewhere", format_name="mds").is_whole
    finally:
        memory.rm("/somewhere", recursive=True)


# Only what is shown


@pytest.mark.parametrize("name", LARGE)
def test_inspect_when_the_shard_is_large_then_little_of_it_is_read(name, large, upload, s3):
    folder = large(name)
    num_bytes = os.path.getsize(os.path.join(folder, first_shard(folder)))
    most = 1 << 20
    if name == "parquet":  # a row group is a quarter of it
        most = num_bytes // 2
    else:
        assert num_bytes > 18 << 20
    url = upload(folder)
    assert glance(look_into(url)).splits[0].lengths.num_documents > 50
    assert served_bytes(s3) < most
    s3.served.clear()
    if name == "megatron":  # whose index is read for a document's number
        most += os.path.getsize(os.path.join(folder, first_shard(folder)[:-3] + "idx"))
    for arguments in (("--doc", "30"), ("--token-offset", "5_000_000"), ("--random",)):
        done = run("inspect", url, *arguments)
        assert done.returncode == 0 and done.stdout, done.stderr
        assert served_bytes(s3) < most, arguments
        s3.served.clear()


def test_inspect_when_the_format_has_an_index_then_any_document_is_read_alone(large, upload, s3):
    view = document(look_into(upload(large("megatron"))), "train", 40_000, ALL)
    assert view == document(look_into(large("megatron")), "train", 40_000, ALL)
    assert served_bytes(s3) < 2 << 20


def test_verify_when_the_shard_is_large_then_each_byte_is_read_about_once(large, upload, s3):
    folder = large("megatron")
    assert verify(upload(folder)).is_whole
    size = sum(len(data) for data in files_of(folder).values())
    index_bytes = os.path.getsize(os.path.join(folder, first_shard(folder)[:-3] + "idx"))
    assert size <= served_bytes(s3) < size + index_bytes + (2 << 20)


def test_verify_and_convert_when_shards_are_hashed_and_read_then_fetched_once(
    small, upload, s3, tmp_path
):
    folder = small("parquet")
    size = sum(len(data) for data in files_of(folder).values())
    url = upload(folder)
    assert verify(url).is_whole
    assert served_bytes(s3) < size * 1.1 + 2000
    s3.served.clear()
    assert run("convert", url, str(tmp_path / "out"), "--format", "npy", "-q").returncode == 0
    assert served_bytes(s3) < size * 1.1 + 2000


# What is wrong


@pytest.mark.parametrize("name", ["nanogpt", "npy", "megatron", "parquet", "mds"])
def test_verify_when_a_byte_is_flipped_then_the_object_is_named(name, small, upload, s3, bucket):
    url, shard = upload(small(name)), first_shard(small(name))

    def flip(data: bytearray) -> None:
        data[len(data) // 2] ^= 1

    damage(s3, bucket, f"some/data/{shard}", flip)
    done = run("verify", url)
    assert done.returncode == 5
    assert f"wrong: {shard}: its bytes have changed" in done.stderr
    assert f"error: {url} failed verification" in done.stderr
    assert tempfile.gettempdir() + "/tokenmill-" not in done.stderr
    with pytest.raises(IntegrityError, match="its sha256 differs") as caught:
        out = os.path.join(tempfile.mkdtemp(), "out")
        convert(open_dataset(url), Target(out=out, format="llmc", drop=("boundaries",)))
    assert caught.value.message.startswith(f"{url}/{shard} ")
    assert caught.value.hint == f"tokenmill verify {url}"


@pytest.mark.parametrize("name", ["nanogpt", "megatron", "mds"])
def test_when_an_object_is_missing_or_truncated_then_exit_5(name, small, upload, s3, bucket):
    url, shard = upload(small(name)), first_shard(small(name))
    size = os.path.getsize(os.path.join(small(name), shard))
    damage(s3, bucket, f"some/data/{shard}", lambda data: data.__delitem__(slice(-10, None)))
    verified, inspected = run("verify", url), run("inspect", url)
    assert verified.returncode == inspected.returncode == 5
    assert f"{shard}, byte {size - 10:,}: has {size - 10:,} bytes, but" in verified.stderr
    assert f"error: {url}/{shard} has {size - 10:,} bytes, but" in inspected.stderr
    s3.client().delete_object(Bucket=bucket, Key=f"some/data/{shard}")
    verified, inspected = run("verify", url), run("inspect", url)
    assert verified.returncode == inspected.returncode == 5
    assert f"wrong: {shard}: is missing" in verified.stderr
    assert f"error: {url}/{shard} is missing" in inspected.stderr


def test_verify_when_another_object_looks_like_a_shard_then_exit_5(small, upload, s3, bucket):
    url = upload(small("npy"))
    shard = first_shard(small("npy"))
    other = shard.replace("000000", "000999")
    s3.client().put_object(
        Bucket=bucket, Key=f"some/data/{other}", Body=s3.read(bucket, f"some/data/{shard}")
    )
    s3.client().put_object(Bucket=bucket, Key="some/data/deeper/and/deeper", Body=b"x")
    [failure] = verify(url).failures
    assert failure.file == other


@pytest.mark.parametrize("command", ["verify", "inspect", "convert"])
def test_when_nothing_can_be_read_at_the_url_then_what_and_where(
    command, small, upload, s3, bucket, tmp_path
):
    def failed(url: str) -> tuple[int, str]:
        more = (str(tmp_path / "out"), "--format", "npy") if command == "convert" else ()
        done = run(command, url, *more)
        return done.returncode, done.stderr

    code, said = failed(f"s3://{bucket}/nothing")
    assert code == 2 and f"error: there is nothing at s3://{bucket}/nothing/" in said
    code, said = failed("s3://there-is-no-such-bucket/data")
    assert code == 2 and "nothing at s3://there-is-no-such-bucket/data/" in said
    place, name = "unfinished/.tokenmill", "0123456789abcdef"
    latest = json.dumps({"run": name, "replaced": []}).encode()
    s3.client().put_object(Bucket=bucket, Key=f"{place}/run.json", Body=latest)
    s3.client().put_object(Bucket=bucket, Key=f"{place}/{name}/plan.json", Body=b"{}")
    code, said = failed(f"s3://{bucket}/unfinished")
    assert code == 5 and f"error: s3://{bucket}/unfinished is not finished" in said
    s3.client().put_object(Bucket=bucket, Key=f"broken/{MANIFEST_NAME}", Body=b"{}")
    code, said = failed(f"s3://{bucket}/broken")
    assert code == 5 and "is not a manifest" in said and "/tokenmill-" not in said
    code, said = failed("s3://key:secret@bucket/data")
    assert code == 2 and "secret" not in said


@pytest.mark.parametrize("name", ["nanogpt", "olmo", "megatron", "parquet", "mds", "litdata"])
def test_when_the_store_fails_for_too_long_then_network_error(
    name, small, upload, s3, monkeypatch, tmp_path
):
    """The shard is not called damaged for it, whoever was reading."""
    monkeypatch.setattr(retry, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(retry, "UNREACHABLE_SECONDS", 0.05)
    url = upload(small(name))
    is_of_manifest = lambda request: MANIFEST_NAME in request  # noqa: E731
    only_shards = Faults(
        kinds=("slow down",),
        only=lambda request: request.startswith("GET") and not is_of_manifest(request),
    )
    with s3.failing(only_shards):
        for work in (
            lambda: document(look_into(url), "train", 3, ALL),
            lambda: convert(
                open_dataset(url), Target(out=str(tmp_path / "out"), format="npy", drop=("tail",))
            ),
        ):
            with pytest.raises(NetworkError, match=url):
                work()
    listed = lambda request: "list-type" in request or is_of_manifest(request)  # noqa: E731
    faults = Faults(kinds=("slow down",), only=lambda r: "HEAD" not in r and not listed(r))
    with s3.failing(faults), pytest.raises(NetworkError, match=url):
        verify(url)
    with s3.failing(Faults(kinds=("slow down",))), pytest.raises(NetworkError, match=url):
        verify(url)


def test_verify_when_one_request_in_5_fails_then_nothing_wrong(small, upload, s3):
    url = upload(small("parquet"))
    with s3.failing(Faults(seed=2, fraction=0.2, slow_seconds=0.01)) as faults:
        assert verify(url).is_whole
    assert faults.num_injected


# The objects themselves


@pytest.mark.parametrize("name", NAMES)
def test_objects_when_read_then_never_zeros_and_nothing_on_disk(
    name, small, upload, tmp_path, monkeypatch
):
    """Even root, who may read a file of mode 0, gets the object's bytes or an error of ours."""
    folder, scratch = small(name), tmp_path / "scratch"
    url = upload(folder)
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    local, remote = open_dataset(folder), open_dataset(url)
    for split, stream in local.streams.items():
        expected = np.asarray(stream.tokens(0, stream.num_tokens))
        found = np.asarray(remote.streams[split].tokens(0, stream.num_tokens))
        assert expected.any() and np.array_equal(found, expected)
    for file in files_of(folder):
        for read in (remote.files.open, remote.files.in_order):
            with read(file) as opened:
                assert opened.read() == Path(folder, file).read_bytes()
        assert remote.files.local_path(file) is None
    for command in ("verify", "inspect"):
        assert run(command, url).returncode == 0
    other = "npy" if name != "npy" else "llmc"
    more = ("--format", other, "--drop", "boundaries", "--drop", "tail", "-q")
    assert run("convert", url, str(tmp_path / "out"), *more).returncode == 0
    assert not list(scratch.iterdir())


def test_objects_when_the_command_is_interrupted_then_nothing_on_disk(small, upload, s3, tmp_path):
    url = upload(small("npy"))
    only_shards = Faults(
        kinds=("slow",), slow_seconds=30, only=lambda r: r.startswith("GET") and ".npy" in r
    )
    for command in ("verify", "inspect"):
        with s3.failing(only_shards):
            process = subprocess.Popen(
                [sys.executable, "-m", "tokenmill", command, url],
                env={**os.environ, "TMPDIR": str(tmp_path)},
                stderr=subprocess.DEVNULL,
            )
            deadline = time.monotonic() + 30
            while not any(".npy" in r for r in s3.requests if r.startswith("GET")):
                assert time.monotonic() < deadline and process.poll() is None
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            assert process.wait(15) == -signal.SIGINT
        assert not list(tmp_path.iterdir())
        s3.requests.clear()


def test_objects_when_blocks_are_read_again_then_they_are_not_fetched_again(small, upload, s3):
    folder = small("nanogpt")
    data = Path(folder, "train.bin").read_bytes()
    files = files_at(upload(folder))
    with files.open("train.bin") as file:
        file.seek(5)
        assert file.read(10) == data[5:15]
    s3.requests.clear()
    array = files.array("train.bin", np.dtype("<u2"), 0, len(data) // 2)
    assert array[1:9].tobytes() == data[2:18]
    assert not s3.requests


def test_verify_when_url_and_samples_are_documents_then_as_the_folder(small, upload, tmp_path):
    """Whose lengths are found by picking numbers out of the whole object."""
    target = Target(out=str(tmp_path / "out"), format="mds", seq_len=0, shard_tokens=20_000)
    convert(open_dataset(small("nanogpt")), target)
    assert verify(upload(target.out)).is_whole


def test_files_when_local_then_named_as_the_user_does(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in (str(tmp_path), ".", f"{tmp_path}/"):
        files = files_at(folder)
        assert files.label == folder and files.path_of("x") == os.path.join(folder, "x")
    with pytest.raises(ConfigError, match="is not a folder"):
        verify(tmp_path / "nothing")


def test_inspect_when_url_and_json_then_the_url_is_in_it(small, upload):
    url = upload(small("npy"))
    assert json.loads(run("inspect", url, "--json").stdout)["folder"] == url
    assert json.loads(run("inspect", url, "--json", "--doc", "1").stdout)["folder"] == url
    assert json.loads(run("verify", url, "--json").stdout)["folder"] == url


def test_verify_and_inspect_when_prepared_into_the_url_then_nothing_wrong(corpus_path, bucket):
    url = f"s3://{bucket}/prepared"
    tokenmill.prepare(corpus_path, url, format="megatron", num_proc=1)
    assert verify(url).is_whole
    assert run("inspect", url, "--doc", "7").stdout


def test_demo_when_out_is_a_url_then_its_first_tokens_are_shown(small, upload, capsys):
    url = upload(small("nanogpt"))
    show_sample(tokenmill.Config(sources=("somewhere",), out=url))
    assert f"the first tokens of {url}/train.bin: [" in capsys.readouterr().err


@pytest.mark.parametrize("name", NAMES)
def test_view_of_a_bucket_shows_what_that_of_the_folder_shows(name, small, upload):
    def places(folder: str) -> list[dict[str, object]]:
        with served(folder) as server:
            found = [asked(server, "place", split="train", document=number) for number in (0, 5)]
            found += [asked(server, "place", split="train", token=token) for token in (0, 700)]
            found.append(asked(server, "random", split="train"))
        assert found.pop()["page"]["pieces"]
        wanted = ("start", "stop", "token", "num_bytes", "page")
        return [{key: one[key] for key in wanted} for one in found]

    assert places(upload(small(name))) == places(small(name))


KINDS = ("a.parquet", "b.arrow", "c.jsonl", "d.jsonl.gz", "e.txt")


@pytest.fixture
def sources(upload, tmp_path) -> list[str]:
    """Two documents in each of some objects."""
    folder = tmp_path / "corpus"
    for number, name in enumerate(KINDS):
        texts = [f"{text} #{number}#" for text in made_texts(2, seed=number)]
        stem, _, kind = name.partition(".")
        made = write_corpus(kind.removesuffix(".gz"), folder / stem, texts)
        data = Path(made).read_bytes()
        folder.joinpath(name).write_bytes(gzip.compress(data) if kind.endswith("gz") else data)
    url = upload(folder, "corpus")
    return [f"{url}/{name}" for name in KINDS]


@pytest.mark.parametrize("keep", ["", None])
@pytest.mark.parametrize("is_far", [True, False])
def test_document_of_a_bucket_leads_to_its_row_in_the_bucket(
    keep, is_far, sources, bucket, tmp_path, s3
):
    out = f"s3://{bucket}/out" if is_far else str(tmp_path / "out")
    tokenmill.prepare(sources, out, runner="inline", keep=keep, val="none", separator=SEPARATOR)
    with served(out) as server:
        for number in range(2 * len(KINDS)):
            found = asked(server, "source", split="train", document=number)
            assert found["verdict"] == "same", found
            assert found["file"] == [sources[number // 2]]
            assert "".join(found["text"]).endswith(f"#{number // 2}#")
        s3.requests.clear()
        assert asked(server, "source", split="train", document=1)["verdict"] == "same"
        assert len(s3.requests) < 10


@pytest.mark.parametrize("keep", ["", None])
def test_object_that_changed_or_is_gone_is_not_read_as_a_source(keep, sources, bucket, s3):
    out = f"s3://{bucket}/out"
    tokenmill.prepare(sources, out, runner="inline", keep=keep, val="none", separator=SEPARATOR)
    key = sources[2].partition(bucket + "/")[2]
    data = s3.read(bucket, key)
    s3.client().put_object(Bucket=bucket, Key=key, Body=data[::-1])
    with served(out) as server:
        found = asked(server, "source", split="train", document=4)
    assert found["verdict"] == "not found"
    assert f"{sources[2]} has changed since it was read: it has another tag" in found["why"][0]
    assert "--source DIR" in found["hint"][0]
    s3.client().delete_object(Bucket=bucket, Key=key)
    with served(out) as server:
        found = asked(server, "source", split="train", document=4)
    assert found["verdict"] == "not found" and "there is no object" in found["why"][0]
    # The same object, elsewhere in the store: its tag says so.
    s3.client().put_object(Bucket=bucket, Key="moved/c.jsonl", Body=data)
    moved = [*sources[:2], f"s3://{bucket}/moved/c.jsonl", *sources[3:]]
    with served(out, sources=moved) as server:
        found = asked(server, "source", split="train", document=4)
    assert found["verdict"] == "same", found


@pytest.mark.parametrize("reader", ["loader", "shards"])
def test_step_of_a_bucket_saw_what_that_of_the_folder_saw(reader, small, upload, s3):
    def rows(folder: str) -> list[dict[str, object]]:
        with served(folder) as server:
            options = {"split": "train", "reader": reader, "seq_len": 32, "batch": 4}
            found = [asked(server, "step", step=step, **options) for step in (0, 7)]
        wanted = ("rank", "start", "stop", "epoch", "shard", "is_here", "text")
        return [{key: row[key] for key in wanted} for one in found for row in one["rows"]]

    url = upload(small("npy"))
    assert rows(url) == rows(small("npy")) != []


def test_steps_of_a_loader_over_a_bucket_and_a_folder_say_which_is_open(small, upload, tmp_path):
    url, here = upload(small("nanogpt")), small("npy")
    options = {"seq_len": 32, "batch_size": 8, "seed": 1}
    run = {"sources": {"far": url, "near": here}, **options}
    (tmp_path / "run.json").write_text(json.dumps(run))
    with served(url, run=steps_of_file(str(tmp_path / "run.json"))) as server:
        rows = asked(server, "step", split="train", step=3, reader="run")["rows"]
    assert {row["source"] for row in rows} == {"far", "near"}
    for row in rows:
        assert row["is_here"] == (row["source"] == "far")
        assert row["command"].split()[2] == (url if row["is_here"] else here)


@pytest.mark.parametrize("name", ["nanogpt", "parquet"])
def test_report_of_a_bucket_says_what_that_of_the_folder_says(name, small, upload):
    def figures(place: str) -> dict[str, object]:
        reading = SurveyOptions(is_exact=True)
        plain = survey(look_into(place), reading).to_plain()
        splits = [
            {key: one[key] for key in ("split", "num_tokens", "num_read", "lengths")}
            | {"num_duplicates": one["duplicates"]["num_duplicates"]}
            for one in plain["splits"]
        ]
        return {"splits": splits, "tokens": plain["tokens"], "proof": plain["proof"]}

    assert figures(upload(small(name))) == figures(small(name))


def test_sampled_report_of_a_bucket_reads_little_and_its_places_are_found(
    large, upload, s3, capsys, monkeypatch
):
    monkeypatch.setattr(survey_module, "QUICK_FAR_TOKENS", 1 << 20)
    url = upload(large("nanogpt"))
    looked = look_into(url)
    found = survey(looked, SurveyOptions())
    assert not found.is_exact and found.documents
    assert served_bytes(s3) < looked.dataset.num_tokens  # of two bytes each
    for one in found.documents[:3]:
        assert main(shlex.split(one.place.command)[1:]) == 0
