from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import orphans
import warm
from corpora import made_texts, write_corpus
from s3_server import NO_FAULTS, S3Server
from tally import Tally


def pytest_configure(config: pytest.Config) -> None:
    if not _is_controller(config):  # whose children, the processes of pytest-xdist, come here too
        _let_children_hear(signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
        orphans.mark_children()


def _let_children_hear(*signums: signal.Signals) -> None:
    """Have the programs that tests start be ended by signals that we were told to ignore.

    A shell's `&` ignores SIGINT for `make test`, and nohup SIGHUP. A program inherits that, but no
    handler. So we go on ignoring them, as we were told to, by a handler that does nothing.
    """
    for signum in signums:
        if signal.getsignal(signum) is signal.SIG_IGN:
            signal.signal(signum, lambda signum, frame: None)


def _is_controller(config: pytest.Config) -> bool:
    """Whether pytest-xdist runs the tests in other processes."""
    return not hasattr(config, "workerinput") and bool(config.getoption("numprocesses", None))


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk() -> Iterator[None]:
    """Power is lost in tests/faults/power.py alone, which pretends it, and a file that is not there
    is on no other machine that shows it late."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: None)
        patch.setattr("tokenmill.storage.local.LATE_SECONDS", 0.1)
        yield


@pytest.fixture(scope="session")
def texts() -> list[str]:
    return made_texts(400)


@pytest.fixture
def corpus(tmp_path: Path, texts: list[str]) -> str:
    return write_corpus("parquet", tmp_path / "corpus", list(texts))


@pytest.fixture
def read_files() -> Callable[[str | os.PathLike[str]], dict[str, bytes]]:
    """Every file of a folder, by name, without our own."""

    def read(folder: str | os.PathLike[str]) -> dict[str, bytes]:
        return {
            path.name: path.read_bytes()
            for path in sorted(Path(folder).iterdir())
            if not path.name.startswith((".", "tokenmill"))
        }

    return read


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """The server, undisturbed, with the environment set for this process and those it starts."""
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    s3_server.requests.clear()
    yield s3_server
    s3_server.faults = NO_FAULTS
    s3_server.hold = lambda request: None


@pytest.fixture
def bucket(s3: S3Server) -> str:
    """The name of a new bucket; s3://NAME is its URL."""
    return s3.new_bucket()


# The fault suite (tests/faults): `pytest tests/faults --tally FILE` writes what was counted.

_TALLY = Tally()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tally", help="write the counts of the fault suite to this file")
    parser.addoption(
        "--seed", type=int, default=0, help="of the fault suite; `make soak` varies it"
    )
    parser.addoption(
        "--fuzzed", type=int, default=300, help="documents for each vocabulary of a published model"
    )
    parser.addoption(
        "--all-faults", action="store_true", help="every trial, as `make reliability` has it"
    )
    parser.addoption(
        "--write-pages", action="store_true", help="the outputs shown in docs/, those of this run"
    )


# What tests left behind, as they are to be shown; of all processes of pytest-xdist.
_LEFT_BEHIND: list[str] = []


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if not _is_controller(session.config):
        warm.stop()
        _LEFT_BEHIND.extend(map(str, orphans.ended_orphans()))
    if hasattr(session.config, "workeroutput"):  # a process of pytest-xdist: to the one that asked
        session.config.workeroutput["tally"] = _TALLY.kinds
        session.config.workeroutput["left_behind"] = _LEFT_BEHIND
        return
    if _LEFT_BEHIND and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    path = session.config.getoption("--tally", None)
    if path and session.exitstatus == pytest.ExitCode.OK:
        Path(path).write_text(json.dumps(_TALLY.kinds, indent=1, sort_keys=True) + "\n")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if _LEFT_BEHIND:
        terminalreporter.section("processes left behind, now killed", red=True)
        for line in _LEFT_BEHIND:
            terminalreporter.write_line(line)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    output = getattr(node, "workeroutput", {})
    _TALLY.merge(output.get("tally", {}))
    _LEFT_BEHIND.extend(output.get("left_behind", []))


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """What random trials of the fault suite start from."""
    found: int = request.config.getoption("--seed")
    return found


@pytest.fixture
def share(request: pytest.FixtureRequest) -> int:
    """One of so many trials is made: all of them take longer than a test suite may.

    A commit is four operations on the disk, so every fifth one is each of these in turn.
    """
    return 1 if request.config.getoption("--all-faults") else 5


@pytest.fixture
def tally() -> Tally:
    return _TALLY


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder in memory where there is one: a trial then takes 20 ms and not 500."""
    parent = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = tempfile.mkdtemp(prefix="tokenmill-faults-", dir=parent)
    yield Path(folder)
    shutil.rmtree(folder, ignore_errors=True)
