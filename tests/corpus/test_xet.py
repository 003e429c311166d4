"""Files from Xet storage: the real hf_xet and a store in a folder, behind the Hub of the tests."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import hub_server
import oracle
from hub_corpus import Here, is_download, parquet
from hub_server import HubServer, Request
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


# What `tokenmill` does, without the minute and a half that a silent download is waited for.
TOKENMILL = """
import sys
from tokenmill.storage import hub
hub.SILENT_SECONDS = 3.0
from tokenmill.cli import main
sys.exit(main(sys.argv[1:]))
"""


class Machine:
    """A machine that prepares the file: the real command, in a process of its own."""

    def __init__(self, server: HubServer, folder: Path) -> None:
        self.server = server
        self.home, self.out = folder / "home", folder / "out"
        self.environment = {**Here(server, self.home).environment, "HF_HUB_DISABLE_XET": "0"}

    def started(self, *options: str, **environment: str) -> subprocess.Popen[str]:
        source = f"hf://datasets/OWNER/NAME/{NAME}"
        command = [sys.executable, "-c", TOKENMILL, "prepare", source, "-o", str(self.out)]
        command += ["--num-proc", "1", "--no-val", *options]
        env = {**self.environment, **environment}
        return subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)

    def prepared(self, *options: str, **environment: str) -> str:
        """What the command says; its tokens are right."""
        process = self.started(*options, **environment)
        errors = process.communicate(timeout=100)[1]  # also of a process that cannot exit
        assert process.returncode == 0, errors
        assert (self.out / "train.bin").read_bytes() == oracle.stream(oracle.ids(TEXTS))
        return errors


@pytest.fixture
def machine(store, tmp_path) -> Iterator[Machine]:
    with HubServer({NAME: LARGE}, xet=store) as server:
        yield Machine(server, tmp_path)


def http_downloads(server: HubServer) -> list[Request]:
    return [request for request in server.asked("^GET /cdn/") if is_download(request)]


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


@pytest.mark.parametrize("options", [(), ("--no-keep-downloads",)], ids=str)
def test_a_file_in_xet_storage_comes_from_there(options, machine):
    assert "Xet" not in machine.prepared(*options)
    assert not http_downloads(machine.server)
    assert len(machine.server.asked("xet-read-token")) == 1
    kept = list(machine.home.rglob("*.parquet"))
    assert len(kept) == (0 if options else 1)
    assert not (machine.home / "xet" / "logs").exists()


@pytest.mark.parametrize("broken", [hang, never_answer, lose, truncate, forget])
def test_xet_that_hangs_or_fails_is_followed_by_http_and_the_process_ends(broken, machine, store):
    broken(store)
    errors = machine.prepared()
    assert errors.count("Xet") == 1 and len(http_downloads(machine.server)) == 1, errors
    assert "plain HTTP is used from now on" in errors


def test_a_cache_with_shared_blobs_is_read_also_without_the_hub(machine, tmp_path):
    """As `snapshot_download` fills it, with Xet on."""
    script = "import huggingface_hub as h; h.snapshot_download('OWNER/NAME', repo_type='dataset')"
    done = subprocess.run([sys.executable, "-c", script], env=machine.environment, check=False)
    assert done.returncode == 0
    sent = machine.server.num_file_bytes_sent
    machine.prepared()
    assert machine.server.num_file_bytes_sent == sent
    shutil.rmtree(machine.out)
    machine.prepared("--no-keep-downloads", HF_HUB_OFFLINE="1")
    assert list(machine.home.rglob("*.parquet"))  # it was there before, and stays


def test_wrong_bytes_in_a_shared_blob_are_fetched_again(machine):
    machine.prepared()
    [path] = machine.home.rglob("*.parquet")
    blob = path.resolve()
    data = bytearray(blob.read_bytes())
    data[1000] ^= 1
    blob.chmod(0o644)
    blob.write_bytes(data)
    shutil.rmtree(machine.out)
    assert "other bytes in the cache" in machine.prepared()
    assert path.read_bytes() == LARGE


def test_the_users_token_goes_to_the_hub_and_not_to_the_storage(machine, store):
    never_answer(store)
    machine.prepared(HF_TOKEN="hf_CANARY")
    asked = machine.server.asked("xet-read-token")
    assert asked and {request.authorization for request in asked} == {"Bearer hf_CANARY"}
    request = store.request()
    assert b"Bearer xet_made-up" in request and b"hf_CANARY" not in request


def test_a_token_that_the_hub_refuses_leaves_http(machine):
    machine.server.fail("xet-read-token", *[hub_server.status(403)] * 20)
    assert machine.prepared().count("Xet") == 1
    assert http_downloads(machine.server)


def test_wrong_bytes_from_xet_are_noticed_and_fetched_over_http(machine, store):
    xorb = store.xorbs[0]
    data = bytearray(xorb.read_bytes())
    data[len(data) // 2] ^= 1
    xorb.write_bytes(data)
    machine.prepared()
    assert http_downloads(machine.server)


def test_disabled_xet_is_not_asked_for(machine):
    assert "Xet" not in machine.prepared(HF_HUB_DISABLE_XET="1")
    assert http_downloads(machine.server) and not machine.server.asked("xet-read-token")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_interrupted_while_xet_hangs_then_ends_and_the_same_command_resumes(number, machine, store):
    hanging = store.xorbs[4]
    content = hanging.read_bytes()
    store.hang_at(hanging)
    process = machine.started()
    while not machine.server.asked("xet-read-token"):
        assert process.poll() is None
        time.sleep(0.02)
    time.sleep(0.5)
    process.send_signal(number)
    errors = process.communicate(timeout=100)[1]
    assert process.returncode == -number, errors
    assert "Xet" not in errors and "trying again" not in errors
    hanging.unlink()
    hanging.write_bytes(content)
    assert "Xet" not in machine.prepared()
    assert not http_downloads(machine.server)
