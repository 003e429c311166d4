"""The disk says no: every operation fails in turn, once or for good; then it works again and the
same command resumes. Either the run still comes to the right bytes, or it ends with exit code 4."""

from __future__ import annotations

import shutil

import pytest
from disk import ERRNOS, Failure, FaultyOs, Short, disk
from scenarios import SCENARIOS, corpus, differences, looks_complete, small_pieces
from test_crash_points import num_operations

from tokenmill.errors import OutputError

# A share of each scenario's operations, another one for each errno, which moves on with the seed.
EVERY = {
    "nanogpt": 2,
    "megatron": 12,
    "mds": 12,
    "npy": 12,
    "convert": 12,
    "chosen": 12,
    "kept": 30,
    "dedup": 12,
    "named": 24,
    "partition": 12,
    "one megatron": 12,
}


@pytest.fixture(autouse=True)
def pieces(monkeypatch):
    small_pieces(monkeypatch)


@pytest.mark.parametrize("for_good", [False, True], ids=["once", "for good"])
@pytest.mark.parametrize("name", ERRNOS)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_every_operation_fails_then_resume(scenario, name, for_good, seed, share, scratch, tally):
    source, out = corpus(scratch), str(scratch / "out")
    most = num_operations(scenario, source, out)
    every = EVERY[scenario.name] * share
    first = 1 + (seed + list(ERRNOS).index(name) + for_good) % every
    for at in range(first, most + 1, every):
        shows(scenario, source, out, Failure(at, ERRNOS[name], for_good), tally)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_an_operation_that_succeeds_and_reports_failure(scenario, scratch, tally):
    """As NFS does when an answer is lost: the rename happened, and EIO comes back."""
    source, out = corpus(scratch), str(scratch / "out")
    for at in range(1, num_operations(scenario, source, out) + 1, EVERY[scenario.name]):
        shows(scenario, source, out, Failure(at, ERRNOS["EIO"], after=True), tally)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_writes_that_take_only_part_of_the_data(scenario, scratch, tally):
    source, out = corpus(scratch), str(scratch / "out")
    with disk(FaultyOs(Short(1))):
        scenario.run(source, out)
    assert not differences(out, scenario.expected())
    tally.add("disk errors", "identical")


def shows(scenario, source: str, out: str, fault: Failure, tally) -> None:
    try:
        with disk(FaultyOs(fault)):
            scenario.run(source, out)
        outcome = "identical"
    except OutputError as error:
        assert error.exit_code == 4 and error.hint, error
        outcome = "refused, then identical"
    if looks_complete(out):
        assert not differences(out, scenario.expected()), fault
    scenario.run(source, out)
    found = differences(out, scenario.expected())
    assert not found, f"{scenario.name}: {fault}: {found}"
    tally.add("disk errors", outcome)
    shutil.rmtree(out)
