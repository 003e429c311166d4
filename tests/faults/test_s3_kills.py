"""A run into an object store, killed at a random request, and the same command again."""

from __future__ import annotations

import functools
import os
import random
import signal
from pathlib import Path

import launch
import pytest

QUICK = {"tokenmill.patience.LONGEST_PAUSE_SECONDS": 0.05}


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
            launched.gone_within(5.0)
    finished = launch.finished(command, scratch, values=QUICK)
    assert finished.process.returncode == 0, finished.errors
    expected = {
        path.relative_to(here).as_posix(): path.read_bytes()
        for path in Path(here).rglob("*")
        if path.is_file()
    }
    found = {key.removeprefix("out/"): s3.read(bucket, key) for key in s3.keys(bucket)}
    assert found == expected
    tally.add("kill of a run into an object store", "identical", 2)
    assert not s3.uploads(bucket)
