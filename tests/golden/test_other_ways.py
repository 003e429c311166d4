"""The fence, for runs of several slices: whatever way a run takes, the bytes that one process made.

Processes, tasks, Ray, a bucket, kill -9 and the same command again. The commands are real ones,
except for tasks.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.golden import run
from tests.golden.cases import PREPARE, SEVERAL
from tests.golden.run import installed

several = pytest.mark.parametrize("case", SEVERAL)

# The Nth time that a process gives a file its name, it ends: a record, a part or a shard.
KILLER = """
import os, signal

left = int(os.environ["FENCE_KILL_AT"])
for name in ("replace", "rename", "link"):
    def dying(*given, call=getattr(os, name), **options):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*given, **options)
    setattr(os, name, dying)
"""


@several
@pytest.mark.parametrize("num_proc", [2, 3])
def test_files_when_by_processes_then_the_golden_bytes(case, num_proc, place, tmp_path):
    out = tmp_path / "out"
    chosen = ["--num-proc", num_proc, "-q"]
    place.run("prepare", *place.words(PREPARE[case]), "-o", out, *chosen, by=installed)
    assert run.differences(case, out) == []
    assert len(json.loads((out / "tokenmill.json").read_text())["slice_documents"]["train"]) > 8


@several
def test_files_when_by_tasks_then_the_golden_bytes(case, place, tmp_path):
    out = tmp_path / "out"
    given = ["prepare", *place.words(PREPARE[case]), "-o", out, "--num-proc", 1, "-q"]
    for task in ("3/3", "1/3", "2/3"):
        place.run(*given, "--partition", task)
    place.run("finish", out, "--max-bad-fraction", 0.2, "--num-proc", 1, "-q")
    assert run.differences(case, out) == []


@several
def test_files_when_killed_again_and_again_then_the_golden_bytes(case, place, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(KILLER)
    given = ["prepare", *place.words(PREPARE[case]), "-o", tmp_path / "out", "--num-proc", 1, "-q"]
    for at in (4, 9, 14):
        env = {**os.environ, "PYTHONPATH": str(tmp_path), "FENCE_KILL_AT": str(at)}
        killed = installed(*given, cwd=place.folder, env=env)
        assert killed.returncode == -signal.SIGKILL, f"at {at}: {killed.stderr}"
    place.run(*given, by=installed)
    assert run.differences(case, tmp_path / "out") == []


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[tuple[str, dict[str, str]]]:
    """A cluster of its own, with a token made up here: its address, and the environment for it."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder:
        env = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        env |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "fence" * 13, "HOME": folder}
        head = subprocess.Popen(
            [Path(sys.executable).with_name("ray"), "start", "--head", "--block", f"--port={port}",
             f"--temp-dir={folder}", "--num-cpus=2", "--include-dashboard=false",
             "--disable-usage-stats"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env,
        )  # fmt: skip
        try:
            assert any("Ray runtime started" in line for line in head.stdout)
            yield f"127.0.0.1:{port}", env
        finally:
            head.terminate()
            head.communicate()


@several
def test_files_when_by_ray_then_the_golden_bytes(case, ray_cluster, place, tmp_path):
    out, (address, env) = tmp_path / "out", ray_cluster
    given = [*place.words(PREPARE[case]), "-o", out, "--num-proc", 2, "-q"]
    chosen = ["--runner", "ray", "--ray-address", address]
    place.run("prepare", *given, *chosen, by=installed, env=env)
    assert run.differences(case, out) == []


@several
def test_files_when_corpus_and_output_are_in_a_bucket_then_the_golden_bytes(
    case, s3, bucket, place, tmp_path
):
    words = place.words(PREPARE[case], inputs=f"s3://{bucket}/in")
    for path in (place.folder / "in").iterdir():
        if path.is_file() and path.stat().st_size < 1 << 20:  # none of SEVERAL reads a larger one
            s3.client().put_object(Bucket=bucket, Key=f"in/{path.name}", Body=path.read_bytes())
    place.run("prepare", *words, "-o", f"s3://{bucket}/out", "--num-proc", 1, "-q", by=installed)
    for key in filter(lambda key: key.startswith("out/"), s3.keys(bucket)):
        target = tmp_path / key
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(s3.read(bucket, key))
    assert run.differences(case, folder_of_shards(tmp_path / "out"), is_elsewhere=True) == []


def folder_of_shards(out: Path) -> Path:
    """Where the shards of a dataset in a bucket are."""
    return out / json.loads((out / "tokenmill.json").read_text())["folder"]
