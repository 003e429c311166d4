"""Each option that says what goes in, with the process ended at random operations on the disk; and
all of them together in a run of two workers that is killed, on a disk and in a bucket. The hashes
of --dedup and the rows of --keep are state that an attempt leaves to the next."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import launch
import pytest
from disk import Crash, FaultyOs, Gone, disk
from scenarios import small_pieces

import option_scenarios
import tokenmill
from option_scenarios import SCENARIOS, TOGETHER
from tokenmill.dataset.recipe import toml_text
from tokenmill.storage import hashing

QUICK = {"tokenmill.storage.retry.LONGEST_PAUSE_SECONDS": 0.05}
NUM_CHAINS = 2


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_option_when_the_process_ends_anywhere_then_the_oracles_documents(
    scenario, seed, scratch, tally, monkeypatch
):
    small_pieces(monkeypatch)
    base = option_scenarios.write_files(scratch / "files")
    with disk(FaultyOs()) as counting:
        scenario.prepared(base, str(scratch / "whole"))
    rng = random.Random(f"{scenario.name} {seed}")
    for number in range(NUM_CHAINS):
        out = str(scratch / str(number))
        for _ in range(4):
            at = rng.randrange(1, len(counting.operations))
            try:
                with disk(FaultyOs(Crash(at, rng.random() < 0.5))):
                    scenario.prepared(base, out)
                break
            except Gone:
                continue
        scenario.prepared(base, out)
        scenario.check(out)
        assert tokenmill.verify(out).is_whole
        tally.add("chains of crashes with an option", "identical")


def configured(base: str, folder: Path) -> str:
    """A tokenmill.toml with all options."""
    tables = {f"source.{name}": given for name, given in TOGETHER.sources(base).items()}
    path = folder / "tokenmill.toml"
    path.write_text(toml_text({**TOGETHER.options, "val": "none"}, tables))
    return str(path)


@pytest.mark.parametrize("place", ["disk", "bucket"])
def test_options_together_when_the_run_is_killed_then_the_oracles_documents(
    place, s3, bucket, scratch, tally, monkeypatch
):
    monkeypatch.setattr(hashing, "PIECE_BYTES", launch.PIECE_BYTES)  # as in the killed processes
    base = option_scenarios.write_files(scratch / "files")
    out = str(scratch / "out") if place == "disk" else f"s3://{bucket}/out"
    command = ["prepare", "--config", configured(base, scratch), "-o", out, "--num-proc", "2"]

    def num_records() -> int:
        if place == "disk":
            return len(launch.records(out))
        return sum("/records/" in key for key in s3.keys(bucket))

    for at in (2, 6):
        with launch.launched(command, scratch, values=QUICK) as launched:
            launched.until(lambda at=at: num_records() >= at)
            os.kill(launched.pid, signal.SIGKILL)
            launched.wait()
            launched.gone()
    finished = launch.finished(command, scratch, values=QUICK)
    assert finished.process.returncode == 0, finished.errors
    TOGETHER.check(out)
    assert tokenmill.verify(out).is_whole
    tally.add("kill of a run with all options", "identical", 2)
