"""A run into an object store, killed at a random request, and the same command again."""

from __future__ import annotations

import functools
import os
import random
import signal
from pathlib import Path

import launch
import pytest

from s3_server import dataset_in
from tokenmill.dataset.verify import verify
from tokenmill.storage import hashing

QUICK = {"tokenmill.storage.retry.LONGEST_PAUSE_SECONDS": 0.05}


@pytest.fixture(autouse=True)
def same_pieces(monkeypatch):
    """Files are hashed here as in the processes that are started."""
    monkeypatch.setattr(hashing, "PIECE_BYTES", launch.PIECE_BYTES)


@pytest.mark.parametrize("trial", range(2))
@pytest.mark.parametrize("run", [launch.NPY, launch.MDS, launch.CONVERT], ids=lambda run: run.name)
def test_kill_when_at_any_request_then_the_same_command_finishes_with_the_same_bytes(
    run, trial, s3, bucket, scratch, seed, tally
):
    source = launch.corpus(scratch)
    here, there = str(scratch / "here"), f"s3://{bucket}/out"
    run.call(source, here)

    def is_at(number: int) -> bool:
        return len(s3.requests) >= number or "out/tokenmill.json" in s3.keys(bucket)

    numbers = random.Random(f"{seed} {run.name} {trial}")
    command = run.command(source, there, num_proc=1 + trial % 2)
    for _ in range(2):
        s3.requests.clear()
        at = numbers.randrange(1, 90)
        with launch.launched(command, scratch, values=QUICK) as launched:
            launched.until(functools.partial(is_at, at))
            os.kill(launched.pid, signal.SIGKILL)
            launched.wait()
            launched.gone()
    finished = launch.finished(command, scratch, values=QUICK)
    assert finished.process.returncode == 0, finished.errors
    expected = {
        path.relative_to(here).as_posix(): path.read_bytes()
        for path in Path(here).rglob("*")
        if path.is_file()
    }
    assert dataset_in(s3, bucket) == expected
    tally.add("kill of a run into an object store", "identical", 2)
    assert not s3.uploads(bucket)


@pytest.mark.parametrize("trial", range(4))
def test_kill_when_overwriting_then_one_of_the_two_datasets_is_whole_and_it_continues(
    trial, s3, bucket, scratch, seed, tally
):
    source = launch.corpus(scratch)
    old, new = (launch.MDS, launch.NPY) if trial % 2 else (launch.NPY, launch.MDS)
    command = [*new.command(source, f"s3://{bucket}/out"), "--overwrite"]
    new.call(source, f"s3://{bucket}/undisturbed")
    num_requests = len(s3.requests)
    expected = dataset_in(s3, bucket, "undisturbed/")
    old.call(source, f"s3://{bucket}/out")
    numbers = random.Random(f"{seed} overwriting {trial}")
    for _ in range(3):
        s3.requests.clear()
        at = numbers.randrange(1, num_requests)
        with launch.launched(command, scratch, values=QUICK) as launched:
            process = launched.process
            launched.until(lambda at=at, p=process: len(s3.requests) >= at or p.poll() is not None)
            process.kill()
            launched.wait()
            launched.gone()
        assert verify(f"s3://{bucket}/out").is_whole
    finished = launch.finished(command, scratch, values=QUICK)
    assert finished.process.returncode == 0, finished.errors
    assert dataset_in(s3, bucket) == expected
    tally.add("kill of a run that replaces a dataset in an object store", "identical", 3)
