"""The process ends at every single operation on the disk, before it and after it; then the same
command again. Every trial must come to the oracle's bytes, and never look complete before."""

from __future__ import annotations

import random
import re
import shutil
import time

import pytest
from disk import Crash, FaultyOs, Gone, disk
from scenarios import SCENARIOS, corpus, differences, looks_complete, small_pieces

from tokenmill.corpus.plan import Plan
from tokenmill.dataset.places import plan_path
from tokenmill.encode.ledger import saved_ledger
from tokenmill.encode.record import recorded_indices

NUM_CHAINS = 30  # for each scenario
# All operations of two scenarios, and of the others a share that moves on with the seed.
EVERY = {
    "nanogpt": 1,
    "megatron": 1,
    "npy": 3,
    "mds": 3,
    "convert": 3,
    "partition": 2,
    "one megatron": 2,
    "chosen": 3,
    "kept": 10,
    "named": 12,
    "dedup": 5,
}


@pytest.fixture(autouse=True)
def pieces(monkeypatch):
    small_pieces(monkeypatch)


def num_operations(scenario, source: str, out: str) -> int:
    scenario.run(source, out)  # what a first run makes beside `out` is not part of the trials
    shutil.rmtree(out)
    with disk(FaultyOs()) as counting:
        scenario.run(source, out)
    assert not differences(out, scenario.expected())
    shutil.rmtree(out)
    return len(counting.operations)


def crashed(scenario, source: str, out: str, fault: Crash) -> bool:
    """Run until the fault; whether it came to that."""
    try:
        with disk(FaultyOs(fault)):
            scenario.run(source, out)
    except Gone:
        return True
    return False


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_crash_at_every_operation_then_resume(scenario, after, seed, share, scratch, tally):
    source, out = corpus(scratch), str(scratch / "out")
    every = EVERY[scenario.name] * share
    for at in range(1 + (seed + after) % every, num_operations(scenario, source, out) + 1, every):
        assert crashed(scenario, source, out, Crash(at, after))
        if looks_complete(out):
            assert not differences(out, scenario.expected()), f"complete too early: {at}"
        began = time.monotonic()
        scenario.run(source, out)
        found = differences(out, scenario.expected())
        assert not found, f"{scenario.name}: Crash({at}, after={after}): {found}"
        tally.add("crash points", "identical", seconds=time.monotonic() - began)
        shutil.rmtree(out)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_crash_resume_crash_resume(scenario, seed, share, scratch, tally):
    """Chains of up to five crashes at random operations."""
    source, out = corpus(scratch), str(scratch / "out")
    most = num_operations(scenario, source, out)
    rng = random.Random(f"{scenario.name} {seed}")
    for _ in range(NUM_CHAINS // share):
        chain = [
            Crash(rng.randrange(1, most), rng.random() < 0.5) for _ in range(rng.randint(2, 5))
        ]
        for fault in chain:
            if not crashed(scenario, source, out, fault):
                break
        scenario.run(source, out)
        found = differences(out, scenario.expected())
        assert not found, f"{scenario.name}: {chain}: {found}"
        tally.add("chains of crashes", "identical")
        shutil.rmtree(out)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_crash_around_a_checkpoint_then_every_record_is_in_it_or_in_a_file(after, scratch):
    """The bytes would not tell: what has no record is encoded again."""
    source, out = corpus(scratch), scratch / "out"
    [run] = [scenario.run for scenario in SCENARIOS if scenario.name == "npy"]
    with disk(FaultyOs()) as counting:
        run(source, str(out))
    shutil.rmtree(out)
    places = [
        at
        for at, name in enumerate(counting.operations, 1)
        if "ledger.bin" in name or re.fullmatch(r"unlink \d{8}\.json", name)
    ]
    assert len(places) >= 20
    for at in places:
        with pytest.raises(Gone), disk(FaultyOs(Crash(at, after))) as crashed:
            run(source, str(out))
        committed = re.findall(r"replace (\d{8})\.json", " ".join(crashed.operations))
        [work] = [str(path.parent) for path in out.glob(".tokenmill/*/records")]
        saved = saved_ledger(work, Plan.load(plan_path(str(out))).plan_id)
        assert {*saved, *recorded_indices(work)} == set(map(int, committed)), at
        shutil.rmtree(out)
