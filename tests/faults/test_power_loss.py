"""The power goes at a random operation, and with it, in any mixture, what was not synced."""

from __future__ import annotations

import random
import shutil

import pytest
from disk import Crash, Gone, disk
from power import LossyDisk
from scenarios import SCENARIOS, corpus, differences, looks_complete, small_pieces
from test_crash_points import num_operations

NUM_LOSSES = 80  # for each scenario


@pytest.fixture(autouse=True)
def pieces(monkeypatch):
    small_pieces(monkeypatch)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_power_loss_then_resume(scenario, seed, share, scratch, tally):
    source, out = corpus(scratch), str(scratch / "root" / "out")
    (scratch / "root").mkdir()
    most = num_operations(scenario, source, out)
    for number in range(seed * NUM_LOSSES, (seed + 1) * NUM_LOSSES, share):
        at = random.Random(f"{scenario.name} {number}").randrange(1, most + 1)
        lossy = LossyDisk(str(scratch / "root"), Crash(at, after=True))
        with pytest.raises(Gone), disk(lossy):
            scenario.run(source, out)
        lossy.lose(number)
        if looks_complete(out):
            assert not differences(out, scenario.expected()), f"complete too early: {number}"
        scenario.run(source, out)
        found = differences(out, scenario.expected())
        assert not found, f"{scenario.name}: loss {number}, operation {at}: {found}"
        tally.add("power losses", "identical")
        shutil.rmtree(out)


def test_the_model_has_teeth_a_file_renamed_without_fsync_can_be_lost(scratch):
    """The naive way to commit, write and rename, loses data in this model."""
    losses = 0
    for seed in range(50):
        root = scratch / str(seed)
        root.mkdir()
        lossy = LossyDisk(str(root), None)
        with disk(lossy) as os_:
            fd = os_.open(str(root / "a.tmp"), 0o101, 0o666)
            os_.write(fd, b"data" * 10)
            os_.close(fd)
            os_.replace(str(root / "a.tmp"), str(root / "a"))
        lossy.lose(seed)
        final = root / "a"
        losses += final.exists() and final.read_bytes() != b"data" * 10
    assert losses > 5
