"""Files from Xet storage: the real hf_xet and a store in a folder, behind the Hub of the tests."""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import huggingface_hub.constants
import pytest

import hub_server
import oracle
from hub_corpus import Here, parquet
from hub_server import HubServer
from tokenmill.corpus.hub import Hub
from tokenmill.corpus.hub_names import HubFile, HubSource
from tokenmill.corpus.xet import Xet
from tokenmill.corpus.xet_process import ReceivedBytes
from xet_store import XetStore

TEXTS = [random.Random(seed).randbytes(600).hex() for seed in range(3_000)]
LARGE = parquet(TEXTS)  # 4 MB
NAME = "data/large.parquet"


@pytest.fixture(scope="module")
def uploaded(tmp_path_factory) -> tuple[Path, str]:
    store = XetStore(tmp_path_factory.mktemp("xet") / "store")
    [hash_] = store.upload([LARGE])
    assert len(store.xorbs) > 5
    return store.folder, hash_


@pytest.fixture
def store(uploaded, tmp_path) -> Iterator[XetStore]:
    """A store with LARGE in it, to be broken."""
    folder, hash_ = uploaded
    shutil.copytree(folder, tmp_path / "store")
    with contextlib.closing(XetStore(tmp_path / "store", {LARGE: hash_})) as copy:
        yield copy


class Machine:
    """The Hub of the tests as this process sees it."""

    def __init__(self, server: HubServer, folder: Path) -> None:
        self.server = server
        self.notices: list[str] = []
        self.hub = Hub(str(folder), self.notices.append)
        self.files = self.hub.files(HubSource("OWNER/NAME", "main", "data/*"))
        self.file = self.files[-1]

    def downloaded(self) -> bytes:
        self.hub.download(self.file)
        return Path(self.hub.local_path(self.file)).read_bytes()

    @property
    def http_ranges(self) -> list[str]:
        return [str(request.range) for request in self.server.asked("^GET /cdn/")]


@pytest.fixture
def machine(store, tmp_path, monkeypatch) -> Iterator[Machine]:
    with HubServer({NAME: LARGE}, xet=store) as server:
        ask(server, monkeypatch)
        made = Machine(server, tmp_path / "downloads")
        with contextlib.closing(made.hub):
            yield made


def ask(server: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Hub of this process is the server."""
    constants = huggingface_hub.constants
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, server.url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "ENDPOINT", server.url)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", False)
    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 1.5)


# Blocks are fetched one after the other, so that those before a broken one arrive.
IN_SMALL_STEPS = {
    "HF_XET_RECONSTRUCTION_MIN_RECONSTRUCTION_FETCH_SIZE": "500kb",
    "HF_XET_RECONSTRUCTION_MAX_RECONSTRUCTION_FETCH_SIZE": "500kb",
    "HF_XET_RECONSTRUCTION_MIN_PREFETCH_BUFFER": "1kb",
    "HF_XET_RECONSTRUCTION_TARGET_BLOCK_COMPLETION_TIME": "1ms",
    "HF_XET_RECONSTRUCTION_DOWNLOAD_BUFFER_SIZE": "1kb",
    "HF_XET_RECONSTRUCTION_DOWNLOAD_BUFFER_PERFILE_SIZE": "1kb",
    "HF_XET_RECONSTRUCTION_DOWNLOAD_BUFFER_LIMIT": "1kb",
}


def hang(store: XetStore) -> None:
    store.hang_at(store.xorbs[4])


def never_answer(store: XetStore) -> None:
    store.endpoint = store.silent_server()


def lose(store: XetStore) -> None:
    store.xorbs[4].unlink()


def truncate(store: XetStore) -> None:
    os.truncate(store.xorbs[4], 1000)


def forget(store: XetStore) -> None:
    shutil.rmtree(store.folder)


def test_a_file_in_xet_storage_comes_from_there(machine):
    assert machine.downloaded() == LARGE
    assert not machine.http_ranges and not machine.notices
    assert len(machine.server.asked("xet-read-token")) == 1


def test_several_files_share_a_token_and_two_come_at_a_time(tmp_path, monkeypatch):
    contents = {f"data/{i}.jsonl": random.Random(i).randbytes(200_000) for i in range(5)}
    at_once, lock = [0], threading.Lock()
    stream = Xet.stream

    def count(change: int) -> None:
        with lock:
            at_once.append(at_once[-1] + change)

    def counted(xet: Xet, file: HubFile, start: int, stop: int) -> Iterator[memoryview]:
        count(1)
        for data in stream(xet, file, start, stop):
            start += len(data)
            if start == stop:
                count(-1)  # the next may begin as soon as the last byte is written
            yield data

    monkeypatch.setattr(Xet, "stream", counted)
    with HubServer(contents, xet=XetStore(tmp_path / "store")) as server:
        ask(server, monkeypatch)
        machine = Machine(server, tmp_path / "downloads")
        downloads = machine.hub.downloads(machine.files)
        with contextlib.closing(machine.hub), contextlib.closing(downloads):
            downloads.wait()
        for file in machine.files:
            assert Path(machine.hub.local_path(file)).read_bytes() == contents[file.path]
        assert not machine.http_ranges and not machine.notices
        assert len(server.asked("xet-read-token")) <= 2
    assert max(at_once) == 2


@pytest.mark.parametrize("broken", [hang, never_answer, lose, truncate, forget])
def test_xet_that_hangs_or_fails_is_followed_by_http_from_the_same_byte(
    broken, machine, store, monkeypatch
):
    for name, value in IN_SMALL_STEPS.items():
        monkeypatch.setenv(name, value)
    broken(store)
    assert machine.downloaded() == LARGE
    [notice] = machine.notices
    start = min(int(re.findall(r"\d+", asked)[0]) for asked in machine.http_ranges)
    assert f"over HTTP from byte {start:,} of {machine.file.url}" in notice
    assert (start > 0) == (broken in (hang, lose, truncate))


def test_the_users_token_goes_to_the_hub_and_not_to_the_storage(machine, store, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_CANARY")
    never_answer(store)
    assert machine.downloaded() == LARGE
    [asked] = machine.server.asked("xet-read-token")
    assert asked.authorization == "Bearer hf_CANARY"
    request = store.request()
    assert b"Bearer xet_made-up" in request and b"hf_CANARY" not in request


def test_a_token_that_the_hub_refuses_leaves_http(machine):
    machine.server.fail("xet-read-token", hub_server.status(500))
    assert machine.downloaded() == LARGE
    assert "gives no token" in machine.notices[0] and machine.http_ranges


def test_wrong_bytes_from_xet_are_noticed_and_fetched_over_http(machine, store):
    xorb = store.xorbs[0]
    data = bytearray(xorb.read_bytes())
    data[len(data) // 2] ^= 1
    xorb.write_bytes(data)
    assert machine.downloaded() == LARGE
    assert machine.notices and machine.http_ranges


def test_disabled_xet_is_not_asked_for(machine, tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
    disabled = Machine(machine.server, tmp_path / "other")
    with contextlib.closing(disabled.hub):
        assert disabled.downloaded() == LARGE
    assert disabled.http_ranges and not disabled.notices
    assert not machine.server.asked("xet-read-token")


def test_a_mirror_that_repeats_the_hubs_offer_sends_the_file_itself(machine):
    machine.server.xet_url = "https://huggingface.co"
    assert machine.downloaded() == LARGE
    assert machine.http_ranges and not machine.notices
    assert not machine.server.asked("xet-read-token")


def test_bytes_on_their_way_count_as_progress_before_a_block_is_whole():
    received = ReceivedBytes()
    received.update()
    before = received.total
    listener = socket.create_server(("127.0.0.1", 0))
    ours = socket.create_connection(listener.getsockname())
    with listener, ours, listener.accept()[0] as theirs:
        theirs.sendall(b"x" * 1000)
        assert len(ours.recv(1000, socket.MSG_WAITALL)) == 1000
        assert received.update() and received.total == before + 1000
        assert not received.update()


def arguments(out: Path) -> list[str]:
    source = f"hf://datasets/OWNER/NAME/{NAME}"
    return ["prepare", source, "-o", str(out), "--num-proc", "1", "--no-val"]


def interrupted(here: Here, out: Path, home: Path, number: int) -> None:
    """A run that gets a signal while the storage does not answer, in the middle of the file."""
    command = [sys.executable, "-m", "tokenmill", *arguments(out)]
    environment = {**here.environment, **IN_SMALL_STEPS, "HF_HUB_DOWNLOAD_TIMEOUT": "60"}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    while num_bytes_here(home) < 2_000_000 or not xet_processes(process.pid):
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.02)
    [child] = xet_processes(process.pid)
    began = time.monotonic()
    process.send_signal(number)
    errors = process.communicate(timeout=20)[1]
    assert process.returncode == -number, errors
    assert "Xet" not in errors and "trying again" not in errors
    while child.exists():
        assert time.monotonic() - began < 120, "hf_xet outlives the run"
        time.sleep(0.02)


def num_bytes_here(home: Path) -> int:
    return sum(512 * path.stat().st_blocks for path in home.rglob("*.tokenmill-partial"))


def xet_processes(parent: int) -> list[Path]:
    lists = [path.read_text().split() for path in Path(f"/proc/{parent}/task").glob("*/children")]
    children = [Path("/proc", child) for pids in lists for child in pids]
    return [child for child in children if "xet_process" in (child / "cmdline").read_text()]


def test_interrupted_while_xet_hangs_then_run_again_continues_from_the_byte(store, tmp_path):
    home, out = tmp_path / "home", tmp_path / "out"
    first, *_, hanging = store.xorbs[:5]
    content = hanging.read_bytes()
    store.hang_at(hanging)
    with HubServer({NAME: LARGE}, xet=store) as server:
        here = Here(server, home)
        here.environment["HF_HUB_DISABLE_XET"] = "0"
        interrupted(here, out, home, signal.SIGINT)
        first.unlink()  # these bytes are here
        interrupted(here, out, home, signal.SIGKILL)
        hanging.unlink()
        hanging.write_bytes(content)
        done = here.tokenmill(*arguments(out))
        assert done.returncode == 0, done.stderr
        assert "Xet" not in done.stderr
        assert (out / "train.bin").read_bytes() == oracle.stream(oracle.ids(TEXTS))
        assert server.num_file_bytes_sent < 500_000  # footers, for the plan
    assert not (home / "xet").exists()
