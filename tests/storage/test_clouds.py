"""gs:// and az://: what storage/objects promises, and whole runs, against emulators of both.

Azure's comes from npm: `make azurite` (cloud_servers.py)."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import tokenmill
from cloud_servers import DENIED, AzureServer, GoogleServer
from s3_server import KINDS, NO_FAULTS, Faults
from tokenmill.cli import main
from tokenmill.dataset.places import dataset_folder
from tokenmill.errors import NetworkError, OutputError
from tokenmill.storage import retry
from tokenmill.storage.store import store_of
from tokenmill.testing.store_contract import StoreContract

Server = GoogleServer | AzureServer
SMALL = {"format": "npy", "shard_tokens": 20_000, "slice_bytes": 100_000, "num_proc": 1}
MB = 1 << 20
# What aiohttp says of gcsfs.
pytestmark = pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")


@pytest.fixture(scope="module", params=[GoogleServer, AzureServer], ids=["gs", "az"])
def running(request) -> Iterator[Server]:
    with request.param() as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        yield server


@pytest.fixture
def cloud(running, monkeypatch) -> Iterator[Server]:
    monkeypatch.setattr(retry, "LONGEST_PAUSE_SECONDS", 0.02)
    running.requests.clear()
    yield running
    running.faults = NO_FAULTS


@pytest.fixture
def url(cloud) -> str:
    return f"{cloud.scheme}://{cloud.new_bucket()}/some/folder"


def upload(url: str, path: object) -> str | None:
    """Put a copy of a local file there."""
    shutil.copyfile(str(path), f"{path}.copy")
    return store_of(url).put(f"{path}.copy", url)


class TestCloud(StoreContract):
    @pytest.fixture(autouse=True)
    def place(self, cloud: Server) -> None:
        self.folder = f"{cloud.scheme}://{cloud.new_bucket()}/out/.tokenmill/0123456789abcdef"
        self.refused = f"{cloud.scheme}://{DENIED}/a"


def objects_below(url: str) -> dict[str, bytes]:
    return {
        found.removeprefix(f"{url}/"): store_of(found).read(found)
        for found, _ in store_of(url).find(url)
    }


def files_in(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def command(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tokenmill", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def outcome(*arguments: str) -> str:
    """What a command that succeeds shows, in this process."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        assert main([*arguments]) == 0
    return shown.getvalue()


# What a sender puts between marks may hold one, or end like a line.
TRICKY = {"return": b"x\r", "lines": b"x\r\n\r\n", "mark": b"x\n--==0==\ny", "end": b"x\n--==0==--"}
CONTENTS = {"empty": b"", "one": b"x", "more": b"0123456789" * 1000, **TRICKY}


@pytest.mark.parametrize("data", CONTENTS.values(), ids=CONTENTS)
def test_read_when_written_then_the_same_bytes(url, tmp_path, data):
    (tmp_path / "file").write_bytes(data)
    store_of(url).write(f"{url}/a", data)
    upload(f"{url}/b", str(tmp_path / "file"))
    assert store_of(url).create(f"{url}/c", data)
    assert store_of(url).create(f"{url}/d", b"before") and store_of(url).swap(
        f"{url}/d", b"before", data
    )
    assert [store_of(url).read(f"{url}/{name}") for name in "abcd"] == [data] * 4
    info = store_of(url).look(f"{url}/a")
    assert info is not None and info.num_bytes == len(data)


def test_read_when_there_is_none_then_file_not_found(url):
    assert store_of(url).look(f"{url}/a") is None
    with pytest.raises(FileNotFoundError, match="some/folder/a"):
        store_of(url).read(f"{url}/a")
    store_of(url).write(f"{url}/below/b", b"x")
    assert store_of(url).look(f"{url}/below") is None  # a folder is no object


def test_find_when_given_a_prefix_a_glob_or_an_object_then_sorted_by_bytes_as_typed(url):
    for name in ["d/b.txt", "d/a.txt", "d/B.txt", "d/sub/c.txt", "d/ü.txt", "d2/x.txt"]:
        store_of(url).write(f"{url}/{name}", name.encode())

    def found(pattern: str) -> list[str]:
        return [name.removeprefix(f"{url}/") for name, _ in store_of(url).find(f"{url}/{pattern}")]

    assert found("d") == found("d/") == ["d/B.txt", "d/a.txt", "d/b.txt", "d/sub/c.txt", "d/ü.txt"]
    assert found("d/*.txt") == ["d/B.txt", "d/a.txt", "d/b.txt", "d/ü.txt"]
    assert found("d/a.txt") == ["d/a.txt"]
    assert found("**/c.txt") == ["d/sub/c.txt"]
    assert found("none/*.txt") == found("none") == []
    [(name, listed)] = store_of(url).find(f"{url}/d2")
    assert store_of(name).look(name) == listed  # the tag, too
    store_of(name).write(name, b"d2/y.txt")
    changed = store_of(name).look(name)
    assert changed is not None and changed.tag != listed.tag


@pytest.mark.parametrize("num_bytes", [0, 10, 11 * MB])
def test_upload_when_done_then_the_same_bytes_and_sha256_until_replaced(url, tmp_path, num_bytes):
    data = os.urandom(num_bytes)
    (tmp_path / "file").write_bytes(data)
    for name in ("a", "b c/ü#%+&=", "dots/..a"):
        sha256 = upload(f"{url}/{name}", str(tmp_path / "file"))
        assert sha256 == hashlib.sha256(data).hexdigest()
        info = store_of(url).look(f"{url}/{name}")
        assert info is not None and (info.num_bytes, info.sha256) == (num_bytes, sha256)
        assert store_of(url).read(f"{url}/{name}") == data
    store_of(url).write(f"{url}/a", bytes(num_bytes))
    replaced = store_of(url).look(f"{url}/a")
    assert replaced is not None and replaced.sha256 is None


def test_remove_below_when_a_neighbour_begins_alike_then_it_stays(url):
    for i in range(40):
        store_of(url).write(f"{url}/sub/{i}", b"x")
    store_of(url).write(f"{url}2/c", b"x")
    store_of(url).remove_folder(url)
    store_of(url).remove(f"{url}/never there")
    assert store_of(url).find(url) == [] and len(store_of(url).find(f"{url}2")) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_everything_when_a_quarter_of_the_requests_fail_then_right_all_the_same(
    url, cloud, tmp_path, kind
):
    data = os.urandom(100_000)
    (tmp_path / "big").write_bytes(data * 60)
    with cloud.failing(Faults(seed=3, fraction=0.25, kinds=(kind,), slow_seconds=0.02)) as faults:
        for i in range(3):
            store_of(url).write(f"{url}/{i}", data)
            assert store_of(url).read(f"{url}/{i}") == data
            assert store_of(url).fetch(f"{url}/{i}", [(5, 50), (9, 99_999)])[1] == data[9:99999]
            store_of(url).create(f"{url}/created", data)
            assert store_of(url).read(f"{url}/created") == data
        upload(f"{url}/big", str(tmp_path / "big"))
        assert store_of(url).read(f"{url}/big") == data * 60
        assert len(store_of(url).find(url)) == 5
        store_of(url).remove_folder(url)
    assert faults.num_injected > 3
    assert store_of(url).find(url) == []


@pytest.mark.parametrize("running", [GoogleServer], ids=["gs"], indirect=True)
@pytest.mark.parametrize("num_bytes", [1000, 6 * MB], ids=["small", "in pieces"])
def test_upload_when_the_answer_has_another_size_then_it_is_repeated(
    url, cloud, tmp_path, monkeypatch, num_bytes
):
    data = os.urandom(num_bytes)
    (tmp_path / "file").write_bytes(data)
    forward, answers = cloud.forward, []

    def wrong_at_first(method: str, path: str, headers: dict[str, str], body: bytes):
        status, answered, found = forward(method, path, headers, body)
        if method == "POST" and b'"size"' in found:
            answers.append(found)
            if len(answers) <= 2:
                found = found.replace(str(num_bytes).encode(), str(num_bytes - 1).encode())
        return status, answered, found

    monkeypatch.setattr(cloud, "forward", wrong_at_first)
    assert upload(f"{url}/a", str(tmp_path / "file")) is not None
    assert len(answers) == 3 and store_of(url).read(f"{url}/a") == data


def test_requests_when_the_budget_is_used_up_then_network_error(url, cloud, monkeypatch):
    """Neither client repeats anything by a rule of its own."""
    store_of(url).write(f"{url}/a", b"x")
    monkeypatch.setattr(retry, "RETRY_SECONDS", 0.0)
    cloud.requests.clear()
    faults = Faults(kinds=("slow down", "cut before"))
    with cloud.failing(faults), pytest.raises(NetworkError, match="cannot read"):
        store_of(url).fetch(f"{url}/a", [(0, 1)])[0]
    assert len(cloud.requests) <= 2  # aiohttp itself asks again where an idle connection was cut


def test_prepare_when_there_is_no_such_bucket_then_output_error(cloud, corpus):
    with pytest.raises(OutputError, match="there-is-none") as caught:
        tokenmill.prepare(corpus, f"{cloud.scheme}://there-is-none/out", **SMALL)
    assert "check that the bucket exists" in str(caught.value)


def test_prepare_when_input_and_output_are_there_then_the_same_files_as_here(url, corpus, tmp_path):
    manifest = tokenmill.prepare(corpus, tmp_path / "out", **SMALL)
    upload(f"{url}/in/corpus.parquet", corpus)
    made = tokenmill.prepare(f"{url}/in/", f"{url}/out", **SMALL)
    assert made.files == manifest.files
    found = objects_below(dataset_folder(f"{url}/out"))
    assert {name: found[name] for name in found if name != "tokenmill.json"} == {
        name: data for name, data in files_in(tmp_path / "out").items() if name != "tokenmill.json"
    }


def test_prepare_when_killed_then_it_resumes_and_every_command_reads_it(
    url, cloud, corpus, tmp_path
):
    arguments = ["prepare", corpus, "--format", "npy", "--shard-tokens", "20000", "--num-proc", "2"]
    here = str(tmp_path / "out")
    outcome(*arguments, "-o", here)
    killed = command(*arguments, "-o", f"{url}/out")
    while not any("/tasks" in request or "tasks%2F" in request for request in cloud.requests):
        assert killed.poll() is None, killed.communicate()
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert store_of(url).look(f"{url}/out/tokenmill.json") is None
    resumed = command(*arguments, "-o", f"{url}/out")
    assert (resumed.communicate()[0], resumed.returncode) == ("", 0)
    assert objects_below(dataset_folder(f"{url}/out")) == files_in(tmp_path / "out")
    outcome("verify", f"{url}/out")
    assert "npy" in outcome("inspect", f"{url}/out")
    outcome("convert", f"{url}/out", f"{url}/converted", "--format", "nanogpt")
    outcome("convert", here, str(tmp_path / "converted"), "--format", "nanogpt")
    converted = (tmp_path / "converted" / "train.bin").read_bytes()
    path = f"{dataset_folder(f'{url}/converted')}/train.bin"
    assert store_of(path).read(path) == converted
