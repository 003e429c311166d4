"""Real runs of the command line in processes of their own, with faults put into them.

`launched` starts a command; what is to go wrong in it, and where, is told to all its processes by
the environment (injected/sitecustomize.py). Everything a test waits for is an event: a pause that
was reached, a line in the trace, the end of a process. The runs are those of scenarios.py, so that
the oracle knows their bytes.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import scenarios
from scenarios import Files, differences, looks_complete

from tokenmill.dataset import convert_source
from tokenmill.dataset.manifest import MANIFEST_NAME
from tokenmill.storage import hashing

INJECTED = Path(__file__).parent / "injected"
# Every trial ends long before; a hang is a failure and not a longer wait.
TIMEOUT_SECONDS = 60.0
HANGS_SECONDS = 120.0  # only to end a hang: a loaded machine takes its time
COMMAND = [sys.executable, "-m", "tokenmill"]
SLICE_BYTES = 3000
PIECE_BYTES = 3000
READ_TOKENS = 1000
NUM_SLICES = 15
SMALL = {
    "tokenmill.config.Config.slice_bytes": SLICE_BYTES,
    "tokenmill.storage.hashing.PIECE_BYTES": PIECE_BYTES,
    "tokenmill.dataset.convert_source.READ_TOKENS": READ_TOKENS,
}


@dataclass(frozen=True)
class RealRun:
    """A command that is repeated until it succeeds. The arguments lack the number of workers."""

    name: str
    arguments: Callable[[str, str], list[str]]  # (source, out)
    expected: Callable[[], Files]
    call: Callable[[str, str], object]  # the same from Python, in this process

    def command(self, source: str, out: str, num_proc: int = 1) -> list[str]:
        given = self.arguments(source, out)
        return given if given[0] == "convert" else [*given, "--num-proc", str(num_proc)]


def prepare_arguments(*options: str) -> Callable[[str, str], list[str]]:
    fixed = ["--max-bad-fraction", "0.5", *options]
    return lambda source, out: ["prepare", source, "-o", out, *fixed]


def _convert(source: str, out: str) -> list[str]:
    made = os.path.join(os.path.dirname(source), "made")
    return ["convert", made, out, "--format", "datatrove", "--shard-tokens", "1500"]


def prepare_call(**options: object) -> Callable[[str, str], object]:
    return functools.partial(scenarios.prepared, slice_bytes=SLICE_BYTES, **options)


NPY = RealRun(
    "npy",
    prepare_arguments("--format", "npy", "--shard-tokens", "2000"),
    scenarios.npy_files,
    prepare_call(format="npy", shard_tokens=2000),
)
NANOGPT = RealRun(
    "nanogpt", prepare_arguments("--no-val"), scenarios.nanogpt_files, prepare_call(val="none")
)
MEGATRON = RealRun(
    "megatron",
    prepare_arguments("--format", "megatron", "--shard-tokens", "1500"),
    scenarios.megatron_files,
    prepare_call(format="megatron", shard_tokens=1500),
)
MDS = RealRun(
    "mds",
    prepare_arguments("--format", "mds", "--seq-len", "64", "--shard-tokens", "2048", "--no-val"),
    scenarios.mds_files,
    prepare_call(format="mds", seq_len=64, shard_tokens=2048, val="none"),
)
CONVERT = RealRun("convert", _convert, scenarios.datatrove_files, scenarios.converted)


def corpus(scratch: Path) -> str:
    """The corpus of the scenarios, and beside it the dataset that is converted."""
    source = scenarios.corpus(scratch)
    made = str(scratch / "made")
    scenarios.prepared(source, made, format="npy", val="none", shard_tokens=1500)
    return source


@contextlib.contextmanager
def small() -> Iterator[None]:
    """The sizes of SMALL for what is called in this process; the calls name their own slices."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hashing, "PIECE_BYTES", PIECE_BYTES)
        patch.setattr(convert_source, "READ_TOKENS", READ_TOKENS)
        yield


def wrongs(run: RealRun, source: str, out: str) -> list[str]:
    """What is not as it must be after a run that succeeded. The oracle knows the shards; a run
    that nobody disturbed knows the manifest, and the manifest every other file."""
    found = differences(out, run.expected())
    undisturbed = os.path.join(os.path.dirname(source), f"undisturbed {run.name}")
    if not looks_complete(undisturbed):
        with small():
            run.call(source, undisturbed)
    if manifest_bytes(out) != manifest_bytes(undisturbed):
        found.append("another manifest")
    for file in json.loads(manifest_bytes(out))["files"]:
        data = Path(out, file["name"]).read_bytes()
        pieces = [data[at : at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES)]
        digests = [hashlib.sha256(piece).hexdigest() for piece in pieces]
        if file["sha256"] not in (hashlib.sha256(data).hexdigest(), digests):
            found.append(f"{file['name']}: not what the manifest says")
    if os.path.exists(os.path.join(out, ".tokenmill")):
        found.append("the work folder is still there")
    return found


def records(out: str) -> set[int]:
    """The slices that have a record."""
    return {int(path.name[:8]) for path in Path(out).glob(".tokenmill/*/records/*.json")}


def snapshot(out: str) -> dict[str, bytes]:
    """Every byte below a folder, but for who holds the lock."""
    return {
        str(path): path.read_bytes()
        for path in Path(out).rglob("*")
        if path.is_file() and path.name != "lock"
    }


@dataclass(frozen=True)
class Traced:
    at: float  # time.monotonic, which all processes share
    role: str
    pid: int
    what: str


class Launch:
    """One process of the command line, its workers, and what they say."""

    def __init__(
        self, arguments: list[str], folder: Path, asked: dict[str, Any], popen: dict[str, Any]
    ) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        given = {"folder": str(folder), **asked, "values": {**SMALL, **asked.get("values", {})}}
        paths = [str(INJECTED), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {
            **os.environ,
            **popen.pop("env", {}),
            "PYTHONPATH": os.pathsep.join(paths),
            "TOKENMILL_FAULTS": json.dumps(given),
        }
        self.began = time.monotonic()
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **popen}
        command = [*options.pop("before", []), *COMMAND, *arguments]
        self.process = subprocess.Popen(command, env=environment, start_new_session=True, **options)
        self.pid = self.process.pid
        self.lines: list[tuple[float, str]] = []  # of stderr, and when each came
        self.stdout = b""
        self._readers = [
            threading.Thread(target=reader, daemon=True)
            for reader, pipe in (
                (self._read_errors, self.process.stderr),
                (self._read_output, self.process.stdout),
            )
            if pipe is not None
        ]
        for reader in self._readers:
            reader.start()

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append((time.monotonic(), line.decode(errors="replace").rstrip("\n")))

    def _read_output(self) -> None:
        assert self.process.stdout is not None
        self.stdout = self.process.stdout.read()

    @property
    def errors(self) -> str:
        return "\n".join(line for _, line in self.lines)

    def wait(self, seconds: float = TIMEOUT_SECONDS) -> int:
        """The exit code; negative for a signal."""
        code = self.process.wait(seconds)
        for reader in self._readers:
            reader.join(TIMEOUT_SECONDS)
        return code

    def until(self, happened: Callable[[], Any], seconds: float = TIMEOUT_SECONDS) -> Any:
        """Wait until something is true, or fail if the process ends without it."""
        deadline = time.monotonic() + seconds
        while True:
            is_over = self.process.poll() is not None
            if found := happened():
                return found
            if is_over:
                self.wait()
                raise AssertionError(f"ended with {self.process.returncode}: {self.errors}")
            assert time.monotonic() < deadline, f"nothing happened: {self.errors}"
            time.sleep(0.002)

    def paused(self, point: str) -> None:
        """Wait until a process of the run stands at this point."""
        self.until((self.folder / f"paused {point}").exists)

    def go_on(self) -> None:
        (self.folder / "go on").touch()

    def signal(self, signum: int) -> float:
        """Send it to the parent; when that was."""
        now = time.monotonic()
        os.kill(self.pid, signum)
        return now

    def trace(self) -> list[Traced]:
        with contextlib.suppress(FileNotFoundError):
            lines = (self.folder / "trace").read_text().splitlines()
            fields = [line.split(" ", 3) for line in lines]
            return [Traced(float(at), role, int(pid), what) for at, role, pid, what in fields]
        return []

    def begun(self) -> list[int]:
        """The slices that were begun, one entry for each attempt."""
        return [int(t.what.split()[1]) for t in self.trace() if t.what.startswith("begin")]

    def acts(self) -> list[Traced]:
        return [t for t in self.trace() if not t.what.startswith("begin")]

    def left(self) -> list[int]:
        """Processes of this run that live: all have its folder in their environment."""
        mark = json.dumps(str(self.folder)).encode()
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if mark in Path(f"/proc/{name}/environ").read_bytes():
                    found.append(int(name))
        return found

    def workers(self) -> list[int]:
        return [pid for pid in self.left() if pid != self.pid]

    def gone(self) -> float:
        """How long it took from now until no process of the run was left."""
        began = time.monotonic()
        while self.left():
            assert time.monotonic() - began < HANGS_SECONDS, f"processes are left: {self.left()}"
            time.sleep(0.005)
        return time.monotonic() - began

    def end(self) -> None:
        """End whatever is left of it."""
        for pid in {self.pid, *self.left()} if self.process.poll() is None else self.left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(TIMEOUT_SECONDS)
        for reader in self._readers:
            reader.join(TIMEOUT_SECONDS)
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


_NUMBERS = itertools.count()


@contextlib.contextmanager
def launched(
    arguments: list[str], scratch: Path, popen: dict[str, Any] | None = None, **asked: Any
) -> Iterator[Launch]:
    """Start a command; nothing of it is left afterwards."""
    folder = scratch / "launches" / str(next(_NUMBERS))
    launch = Launch(arguments, folder, asked, dict(popen or {}))
    try:
        yield launch
    finally:
        launch.end()


def finished(arguments: list[str], scratch: Path, **asked: Any) -> Launch:
    """Run a command to its end."""
    with launched(arguments, scratch, **asked) as launch:
        launch.wait()
    return launch


def succeeds(run: RealRun, source: str, out: str, scratch: Path, num_proc: int = 1) -> float:
    """The same command once more: it must come to the oracle's bytes. How long it took."""
    launch = finished(run.command(source, out, num_proc), scratch)
    assert launch.process.returncode == 0, launch.errors
    assert not wrongs(run, source, out)
    return time.monotonic() - launch.began


def resumes(run: RealRun, source: str, out: str) -> float:
    """As `succeeds`, by a call from Python: what one way began, the other continues."""
    began = time.monotonic()
    with small():
        run.call(source, out)
    assert not wrongs(run, source, out)
    return time.monotonic() - began


def deaths(launch: Launch) -> list[tuple[float, str]]:
    """For each act in a worker: how long until the parent said that this worker died, and what."""
    found = []
    for traced in launch.acts():
        said = [(at, line) for at, line in launch.lines if f"worker {traced.pid} died" in line]
        assert len(said) == 1, f"nothing is said of worker {traced.pid}: {launch.errors}"
        [(at, line)] = said
        assert at - traced.at < 5.0  # the promise is 1; a busy machine is given more
        found.append((at - traced.at, line))
    return found


def is_honest(run: RealRun, out: str) -> bool:
    """Whether the folder does not look complete, unless it is."""
    return not looks_complete(out) or not differences(out, run.expected())


def manifest_bytes(out: str) -> bytes:
    return Path(out, MANIFEST_NAME).read_bytes()
