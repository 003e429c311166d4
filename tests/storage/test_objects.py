"""Object storage, against moto's S3 server behind a proxy that misbehaves (s3_server.py)."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest
import s3fs

from s3_server import KINDS, SECRET_KEY, Faults, S3Server
from tokenmill.dataset.places import WORK_NAME
from tokenmill.errors import ConfigError, IntegrityError, NetworkError
from tokenmill.storage import retry
from tokenmill.storage.address import is_url
from tokenmill.storage.checked_json import checksummed
from tokenmill.storage.objects import s3 as s3_module
from tokenmill.storage.objects import store as objects_module
from tokenmill.storage.store import store_of

MB = 1 << 20


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(retry, "LONGEST_PAUSE_SECONDS", 0.02)


@pytest.fixture
def url(bucket):
    return f"s3://{bucket}/some/folder"


@pytest.fixture
def big_file(tmp_path, monkeypatch) -> Path:
    """A file of three parts: S3 takes none below 5 MB, but for the last."""
    monkeypatch.setattr(s3_module, "MULTIPART_BYTES", 5 * MB)
    monkeypatch.setattr(s3_module, "UPLOAD_PART_BYTES", 5 * MB)
    path = tmp_path / "big"
    path.write_bytes(os.urandom(11 * MB))
    return path


def upload(url: str, path: object) -> str | None:
    """Put a copy of a local file there."""
    shutil.copyfile(str(path), f"{path}.copy")
    return store_of(url).put(f"{path}.copy", url)


def test_is_url_when_local_or_of_the_hub_then_no():
    for path in ("s3://b/k", "gs://b", "az://c/k", "memory://x", "abfs://c@account/k"):
        assert is_url(path), path
    for path in ("/a/b", "a", "hf://datasets/a/b", "C:\\x", "s3:/x", "://x", ""):
        assert not is_url(path), path


@pytest.mark.parametrize("data", [b"", b"x", b"0123456789" * 1000], ids=["empty", "one", "more"])
def test_read_when_written_then_the_same_bytes(url, data):
    store_of(url).write(f"{url}/a", data)
    assert store_of(url).read(f"{url}/a") == data
    info = store_of(url).look(f"{url}/a")
    assert info is not None and info.num_bytes == len(data)


def test_read_when_there_is_none_then_file_not_found(url):
    assert store_of(url).look(f"{url}/a") is None
    with pytest.raises(FileNotFoundError, match="some/folder/a"):
        store_of(url).read(f"{url}/a")
    store_of(url).write(f"{url}/below/b", b"x")
    assert store_of(url).look(f"{url}/below") is None  # a folder is no object


def test_look_when_the_content_changes_then_so_does_the_tag(url):
    store_of(url).write(f"{url}/a", b"one")
    one = store_of(url).look(f"{url}/a")
    store_of(url).write(f"{url}/a", b"two")
    assert store_of(url).look(f"{url}/a") != one
    store_of(url).write(f"{url}/a", b"one")
    assert store_of(url).look(f"{url}/a") == one


def test_read_ranges_when_many_then_each_in_order_and_exact(url, monkeypatch):
    data = os.urandom(5000)
    store_of(url).write(f"{url}/a", data)
    ranges = [(i * 7, i * 7 + i) for i in range(100)]
    assert store_of(url).fetch(f"{url}/a", ranges) == [data[a:b] for a, b in ranges]
    monkeypatch.setattr(objects_module, "RANGE_BYTES", 333)
    assert store_of(url).fetch(f"{url}/a", [(0, 5000), (1, 334)]) == [data, data[1:334]]


@pytest.mark.parametrize("wanted", [(5, 11), (10, 12), (20, 30)])
def test_read_ranges_when_the_object_is_shorter_then_integrity_error_at_once(url, s3, wanted):
    store_of(url).write(f"{url}/a", b"0123456789")
    with pytest.raises(IntegrityError, match=r"ends before byte .* it has 10"):
        store_of(url).fetch(f"{url}/a", [wanted])
    assert len(s3.requests) < 5


def test_read_when_it_has_a_checksum_then_one_request(url, s3):
    data = checksummed(b'{"number": 1}')
    store_of(url).write(f"{url}/a", data)
    s3.requests.clear()
    assert store_of(url).read(f"{url}/a", has_checksum=True) == data
    with pytest.raises(FileNotFoundError):
        store_of(url).read(f"{url}/b", has_checksum=True)
    assert len(s3.requests) == 2 and all(r.startswith("GET") for r in s3.requests)


def test_find_when_given_a_prefix_or_a_glob_then_sorted_by_bytes(bucket):
    names = ["d/b.txt", "d/a.txt", "d/B.txt", "d/sub/c.txt", "d/ü.txt", "d2/x.txt"]
    for name in names:
        store_of(f"s3://{bucket}/{name}").write(f"s3://{bucket}/{name}", name.encode())

    def found(pattern: str) -> list[str]:
        return [
            url.removeprefix(f"s3://{bucket}/")
            for url, info in store_of(f"s3://{bucket}/{pattern}").find(f"s3://{bucket}/{pattern}")
            if info.num_bytes
        ]

    assert found("d") == found("d/") == ["d/B.txt", "d/a.txt", "d/b.txt", "d/sub/c.txt", "d/ü.txt"]
    assert found("d/*.txt") == ["d/B.txt", "d/a.txt", "d/b.txt", "d/ü.txt"]
    assert found("d/a.txt") == ["d/a.txt"]
    assert found("**/c.txt") == ["d/sub/c.txt"]
    assert found("none/*.txt") == found("none") == []


def test_create_when_there_is_one_then_false_and_it_stays(url):
    assert store_of(url).create(f"{url}/a", b"one")
    assert not store_of(url).create(f"{url}/a", b"two")
    assert store_of(url).read(f"{url}/a") == b"one"


def test_swap_when_many_try_at_once_then_one_succeeds(url):
    store_of(url).create(f"{url}/a", b"before")
    outcomes: list[bool] = []

    def swap(number: int) -> None:
        outcomes.append(store_of(url).swap(f"{url}/a", b"before", str(number).encode()))

    threads = [threading.Thread(target=swap, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count(True) == 1 and store_of(url).read(f"{url}/a") != b"before"


@pytest.mark.parametrize("kind", ["cut after", "slow down", "cut before"])
def test_swap_when_an_answer_is_lost_then_the_truth(kind, url, s3):
    store_of(url).create(f"{url}/a", b"before")
    faults = Faults(kinds=(kind,), fraction=0.5, seed=3, only=lambda r: r.startswith("PUT"))
    with s3.failing(faults):
        for number in range(8):
            before = store_of(url).read(f"{url}/a")
            assert store_of(url).swap(f"{url}/a", before, str(number).encode())
            assert store_of(url).read(f"{url}/a") == str(number).encode()
    assert faults.num_injected


def test_create_when_many_try_at_once_then_one_succeeds(url):
    outcomes: list[bool] = []
    together = threading.Barrier(8)

    def attempt(number: int) -> None:
        together.wait()
        outcomes.append(store_of(url).create(f"{url}/a", str(number).encode()))

    threads = [threading.Thread(target=attempt, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == [False] * 7 + [True]


@pytest.mark.parametrize("kind", KINDS)
def test_everything_when_half_of_the_requests_fail_then_right_all_the_same(url, s3, kind, big_file):
    data = os.urandom(100_000)
    url = f"{url}/{WORK_NAME}/plan"  # where uploads whose beginning went unheard are aborted
    with s3.failing(Faults(seed=3, fraction=0.5, kinds=(kind,), slow_seconds=0.02)) as faults:
        for i in range(3):
            store_of(url).write(f"{url}/{i}", data)
            assert store_of(url).read(f"{url}/{i}") == data
            assert store_of(url).fetch(f"{url}/{i}", [(5, 50), (9, 99_999)])[1] == data[9:99999]
            store_of(url).create(f"{url}/created", data)
            assert store_of(url).read(f"{url}/created") == data
        upload(f"{url}/big", str(big_file))
        assert store_of(url).read(f"{url}/big") == big_file.read_bytes()
        assert len(store_of(url).find(url)) == 5
        store_of(url).remove(f"{url}/0")
        store_of(url).remove_folder(url)
    assert faults.num_injected > 10
    assert not s3.keys(url.split("/")[2]) and not s3.uploads(url.split("/")[2])


def test_read_when_an_answer_is_cut_to_zeros_by_s3fs_then_ours_is_not(url, s3, monkeypatch):
    """s3fs itself returns a whole object of the right length whose second half is zeros."""
    data = os.urandom(100_000)
    store_of(url).write(f"{url}/a", data)
    monkeypatch.setattr(objects_module, "RANGE_BYTES", 10_000)
    with s3.failing(Faults(fraction=0.5, kinds=("wrong length",), only=_is_get)):
        assert store_of(url).read(f"{url}/a") == data
        theirs = s3fs.S3FileSystem().cat_file(f"{url}/a", chunksize=10_000)
    assert len(theirs) == len(data) and theirs != data


def test_requests_when_the_budget_is_used_up_then_network_error(url, s3, monkeypatch):
    monkeypatch.setattr(retry, "RETRY_SECONDS", 1.0)
    store_of(url).write(f"{url}/a", b"x")
    tries = len(s3.requests)
    said = r"cannot read .*/a: .*reduce your request rate"
    with s3.failing(Faults(kinds=("slow down",))), pytest.raises(NetworkError, match=said):
        store_of(url).fetch(f"{url}/a", [(0, 1)])[0]
    assert len(s3.requests) - tries >= 2
    assert NetworkError.exit_code == 8
    assert store_of(url).read(f"{url}/a") == b"x"


def test_requests_when_another_bucket_has_answered_then_this_one_is_waited_for(
    url, s3, monkeypatch
):
    monkeypatch.setattr(retry, "UNREACHABLE_SECONDS", 0.0)
    other = f"s3://{s3.new_bucket()}/a"
    store_of(url).write(f"{url}/a", b"x")
    failed: list[str] = []

    def fails_first(request: str) -> bool:
        failed.append(request)
        return len(failed) <= 3

    with s3.failing(Faults(kinds=("cut before",), only=fails_first)):
        store_of(other).write(other, b"x")
    assert len(failed) > 3


@pytest.mark.parametrize("has_answered", [False, True])
def test_patience_when_nobody_answers_then_used_up_to_the_last_second(monkeypatch, has_answered):
    clock = [0.0]
    tries: list[float] = []
    monkeypatch.setattr(retry, "LONGEST_PAUSE_SECONDS", 60.0)
    monkeypatch.setattr(retry.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(retry.time, "sleep", lambda seconds: clock.append(clock.pop() + seconds))

    def request() -> None:
        tries.append(clock[0])
        raise ConnectionRefusedError("refused")

    patient = retry.Retry(lambda message: None, contact=retry.Contact(has_answered))
    with pytest.raises(ConnectionRefusedError):
        patient.result_of(request)
    budget = retry.RETRY_SECONDS if has_answered else retry.UNREACHABLE_SECONDS
    assert tries[-1] == pytest.approx(budget)
    assert len(tries) < 40


def test_requests_when_nobody_answers_then_network_error(tmp_path, s3):
    """A process of its own: clients are kept for as long as a process lives."""
    script = (
        "from tokenmill.storage import retry, store; retry.UNREACHABLE_SECONDS = 0.5\n"
        "try: store.store_of('s3://bucket/key').read('s3://bucket/key')\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    environment = {**os.environ, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True
    )
    assert found.stdout.startswith("NetworkError cannot look at s3://bucket/key: ")
    assert "hint: run the same command again: it resumes" in found.stdout


@pytest.mark.parametrize("kind", ["slow down", "cut after"])
def test_upload_when_it_fails_for_good_then_its_parts_are_aborted(
    url, bucket, s3, big_file, monkeypatch, kind
):
    monkeypatch.setattr(retry, "RETRY_SECONDS", 0.2)
    store_of(url).write(f"{url}/before", b"")
    only_parts = Faults(kinds=(kind,), only=lambda request: "partNumber=2" in request)
    with s3.failing(only_parts), pytest.raises(NetworkError):
        upload(f"{url}/big", str(big_file))
    assert not s3.uploads(bucket)
    assert s3.keys(bucket) == ["some/folder/before"]


def aborting(s3: S3Server, bucket: str, part: int, aborted: list[object]) -> Callable[[str], bool]:
    """Somebody else aborts the upload once, when a part of it is sent."""
    client = s3.client()

    def abort(request: str) -> bool:
        if f"partNumber={part}" in request and not aborted:
            [upload] = client.list_multipart_uploads(Bucket=bucket)["Uploads"]
            client.abort_multipart_upload(
                Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"]
            )
            aborted.append(upload)
        return False

    return abort


def test_upload_when_another_aborts_it_then_it_begins_again(url, bucket, s3, big_file):
    aborted: list[object] = []
    with s3.failing(Faults(only=aborting(s3, bucket, 2, aborted))):
        upload(f"{url}/big", str(big_file))
    assert aborted and store_of(url).read(f"{url}/big") == big_file.read_bytes()
    assert not s3.uploads(bucket)


def test_upload_when_another_aborts_it_at_its_end_then_the_old_object_is_not_taken_for_it(
    url, bucket, s3, big_file
):
    """An object of the same size has the name already."""
    store_of(url).write(f"{url}/big", bytes(big_file.stat().st_size))
    client = s3.client()
    aborted = []

    def abort(request: str) -> bool:
        if request.startswith("POST") and "uploadId=" in request and not aborted:
            [upload] = client.list_multipart_uploads(Bucket=bucket)["Uploads"]
            client.abort_multipart_upload(
                Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"]
            )
            aborted.append(upload)
        return False

    with s3.failing(Faults(only=abort)):
        upload(f"{url}/big", str(big_file))
    assert aborted and store_of(url).read(f"{url}/big") == big_file.read_bytes()


def test_upload_when_done_then_its_sha256_is_found_until_somebody_replaces_it(
    url, bucket, s3, big_file, tmp_path
):
    (tmp_path / "small").write_bytes(b"0123456789")
    for path in (big_file, tmp_path / "small"):
        sha256 = upload(f"{url}/a", str(path))
        assert sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
        info = store_of(url).look(f"{url}/a")
        assert info is not None and info.sha256 == sha256
        data = bytes(path.stat().st_size)  # as large
        s3.client().put_object(Bucket=bucket, Key="some/folder/a", Body=data)
        replaced = store_of(url).look(f"{url}/a")
        assert replaced is not None and replaced.sha256 is None
        assert replaced.num_bytes == info.num_bytes


def test_look_when_a_tool_left_an_object_for_a_folder_then_it_is_none(url, bucket, s3):
    s3.client().put_object(Bucket=bucket, Key="some/folder/", Body=b"")
    assert store_of(url).look(url) is None
    assert store_of(url).look(f"{url}/") is None
    assert store_of(f"s3://{bucket}").look(f"s3://{bucket}") is None
    assert store_of(f"s3://{bucket}/").look(f"s3://{bucket}/") is None


def test_abort_uploads_when_a_crash_left_some_then_only_those_of_the_plan_are_aborted(
    url, bucket, s3
):
    client = s3.client()
    work = f"some/folder/{WORK_NAME}"
    others = ["some/a", "some/folder/a", f"{work}/plan2/a", f"{work}/plan22/a", "some/folder2/d"]
    others.append("some/folder/0123456789abcdef")
    shards = "some/folder/0123456789abcdef"
    for key in (*others, f"{work}/plan/a", f"{work}/plan/parts/b", f"{shards}/train.bin"):
        client.create_multipart_upload(Bucket=bucket, Key=key)
    store_of(url).sweep(f"{url}/{WORK_NAME}/plan", ())
    store_of(url).sweep(f"{url}/0123456789abcdef", ())
    assert sorted(s3.uploads(bucket)) == sorted(others)
    for prefix in (f"s3://{bucket}", url, f"{url}/{WORK_NAME}", f"{url}/{WORK_NAME}/"):
        with pytest.raises(ValueError, match="not one run's prefix"):
            store_of(prefix).sweep(prefix, ())
    store_of(url).remove_folder(url)
    assert sorted(s3.uploads(bucket)) == sorted(others)
    store_of(url).remove_folder(f"{url}/{WORK_NAME}/plan2")
    assert sorted(s3.uploads(bucket)) == sorted(set(others) - {f"{work}/plan2/a"})


def test_remove_below_when_a_neighbour_begins_alike_then_it_stays(url, bucket, s3):
    for key in ("a", "sub/b"):
        store_of(url).write(f"{url}/{key}", b"x")
    store_of(url).write(f"{url}2/c", b"x")
    store_of(url).remove_folder(url)
    store_of(url).remove(f"{url}/never there")
    assert s3.keys(bucket) == ["some/folder2/c"]


SECRET_URLS = [
    f"s3://KEY:{SECRET_KEY}@bucket/x",
    f"s3://{SECRET_KEY}@bucket/x",
    f"s3://bucket/x?X-Amz-Signature={SECRET_KEY}",
    f"az://container/x?sv=2022&sig={SECRET_KEY}",
    f"https://user:{SECRET_KEY}@example.com/x",
]


@pytest.mark.parametrize("secret", SECRET_URLS)
def test_url_when_it_carries_credentials_then_refused_and_not_shown(secret):
    with pytest.raises(ConfigError, match="credentials do not belong in a URL") as caught:
        store_of(secret).read(secret)
    assert SECRET_KEY not in str(caught.value)
    assert "AWS_PROFILE" in str(caught.value)


@pytest.mark.parametrize(("scheme", "extra"), [("s3", "s3"), ("gs", "gs"), ("abfs", "az")])
def test_url_when_the_client_is_not_installed_then_says_what_to_install(scheme, extra, monkeypatch):
    for module in ("s3fs", "gcsfs", "adlfs"):
        monkeypatch.setitem(sys.modules, module, None)
    known = sys.modules[fsspec.filesystem.__module__]._registry
    monkeypatch.delitem(known, scheme, raising=False)
    with pytest.raises(ConfigError) as caught:
        store_of(f"{scheme}://not-asked-before/x").read(f"{scheme}://not-asked-before/x")
    assert caught.value.hint == f"pip install 'tokenmill[{extra}]'"


def test_url_when_its_scheme_is_unknown_then_config_error():
    with pytest.raises(ConfigError, match="nope:// is not known"):
        store_of("nope://bucket/x").read("nope://bucket/x")


def test_requests_when_there_are_no_credentials_then_says_how_to_give_some(s3):
    script = (
        "from tokenmill.storage import store\n"
        "try: store.store_of('s3://bucket/key').read('s3://bucket/key')\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    environment = {k: v for k, v in os.environ.items() if "KEY" not in k}
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True
    )
    assert found.stdout.startswith("ConfigError no credentials for s3://bucket")
    assert "AWS_PROFILE" in found.stdout


def test_another_client_when_it_is_fsspecs_own_then_it_works_alike(tmp_path):
    """Whatever fsspec knows: here its store in memory."""
    url = "memory:///somewhere/folder"
    assert store_of(url).create(f"{url}/a", b"one")
    assert not store_of(url).create(f"{url}/a", b"two")
    assert store_of(url).read(f"{url}/a") == b"one"
    (tmp_path / "file").write_bytes(b"0123456789")
    assert upload(f"{url}/b", str(tmp_path / "file")) is None
    info = store_of(url).look(f"{url}/b")
    assert info is not None and info.num_bytes == 10 and info.sha256 is None
    assert store_of(url).fetch(f"{url}/b", [(2, 4), (0, 1)]) == [b"23", b"0"]
    with pytest.raises(IntegrityError):
        store_of(url).fetch(f"{url}/b", [(5, 11)])[0]
    assert [found for found, _ in store_of(url).find(url)] == [f"{url}/a", f"{url}/b"]
    store_of(url).remove_folder(url)
    assert store_of(url).find(url) == []


def _is_get(request: str) -> bool:
    return request.startswith("GET")


def test_server_when_asked_for_faults_then_as_many_as_asked(s3: S3Server, bucket):
    with s3.failing(Faults(seed=1, fraction=0.05, kinds=("slow",), slow_seconds=0.0)) as faults:
        for i in range(200):
            store_of(f"s3://{bucket}/{i}").write(f"s3://{bucket}/{i}", b"x")
    assert 2 <= faults.num_injected <= 25


def test_server_when_a_client_dies_within_its_request_then_nothing_is_kept(s3: S3Server, bucket):
    host, port = s3.endpoint.removeprefix("http://").split(":")
    request = f"PUT /{bucket}/key HTTP/1.1\r\nHost: {host}\r\nContent-Length: 10\r\n\r\n12345"
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(request.encode())
        connection.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(1) == b""
    assert s3.keys(bucket) == []
