"""kill -9, for real: of workers and of parents, at named points and at any time, up to five times
in a row. No folder looks complete that is not; the same command then gives the oracle's bytes; no
process survives; and no more than one slice per worker is done twice."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

import pytest
from launch import (
    CONVERT,
    MDS,
    MEGATRON,
    NANOGPT,
    NPY,
    NUM_SLICES,
    Launch,
    RealRun,
    corpus,
    deaths,
    finished,
    is_honest,
    launched,
    records,
    succeeds,
    wrongs,
)

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc"),
    pytest.mark.timeout(120),
]

# Where the parent is killed, one attempt after the other; then an attempt that is left alone.
INLINE = [
    ("plan written", 1),
    ("part opened", 1),
    ("part half", 3),
    ("part whole", 2),
    ("part renamed", 2),
    ("record opened", 2),
    ("record renamed", 2),
    ("task recorded", 1),
    ("shard half", 4),
    ("shard synced", 2),
    ("task recorded", 3),
    ("publication written", 1),
    ("shard published", 2),
    ("manifest temporary", 1),
    ("manifest renamed", 1),
    ("cleanup", 1),
]
ASSEMBLY = [
    *[("plan written", 1), ("task recorded", 2), ("shard half", 5), ("shard published", 1)],
    *[("manifest temporary", 1), ("manifest renamed", 1), ("cleanup", 1)],
]
# Of a run whose workers write the shards, what the parent does itself.
PUBLICATION = [
    *[("plan written", 1), ("publication written", 1), ("shard published", 1)],
    *[("shard published", 3), ("manifest temporary", 1), ("manifest renamed", 1), ("cleanup", 1)],
]
CONVERSION = [
    *[("plan written", 1), ("shard half", 3), ("shard synced", 2), ("task recorded", 2)],
    *[("publication written", 1), ("shard published", 3), ("manifest temporary", 1)],
    *[("manifest renamed", 1), ("cleanup", 1)],
]


def chains(points: list[tuple[str, int]], most: int = 5) -> list[list[tuple[str, int]]]:
    return [points[i : i + most] for i in range(0, len(points), most)]


TRIALS = [
    *[(NPY, 1, chain) for chain in chains(INLINE)],
    *[(MEGATRON, 1, chain) for chain in chains(ASSEMBLY)],
    *[(MEGATRON, 2, chain) for chain in chains(PUBLICATION)],
    (NANOGPT, 1, [ASSEMBLY[1], ASSEMBLY[2], ("publication written", 1), ASSEMBLY[4]]),
    (MDS, 1, [ASSEMBLY[1], ASSEMBLY[2], ASSEMBLY[3]]),
    *[(CONVERT, 1, chain) for chain in chains(CONVERSION)],
]


class Attempts:
    """One command, killed again and again; checks what must be so after every kill."""

    def __init__(self, run: RealRun, num_proc: int, scratch: Path) -> None:
        self.run = run
        self.num_proc = num_proc
        self.scratch = scratch
        self.source = corpus(scratch)
        self.out = str(scratch / "out")
        self.recorded: set[int] = set()  # what earlier attempts have encoded
        self.longest_seconds = 0.0  # from a parent's death to its last worker's

    def command(self) -> list[str]:
        return self.run.command(self.source, self.out, self.num_proc)

    def check_killed(self, launch: Launch) -> None:
        """After the parent of this launch was killed."""
        assert launch.wait() == -signal.SIGKILL, launch.errors
        self.longest_seconds = max(self.longest_seconds, launch.gone())
        assert is_honest(self.run, self.out)
        begun, found = set(launch.begun()), records(self.out)
        assert not begun & self.recorded, "a slice that has a record was encoded again"
        if not os.path.exists(os.path.join(self.out, "tokenmill.json")):
            assert found >= self.recorded
            assert len(begun - found) <= self.num_proc, "more than one slice per worker is lost"
            self.recorded = found

    def finish(self) -> float:
        return succeeds(self.run, self.source, self.out, self.scratch, self.num_proc)


def shown(value: object) -> str | None:
    if isinstance(value, RealRun):
        return value.name
    return value[0][0].replace(" ", "-") if isinstance(value, list) else None


@pytest.mark.parametrize(("run", "num_proc", "chain"), TRIALS, ids=shown)
def test_parent_killed_at_named_points_then_finishes(run, num_proc, chain, scratch, tally):
    attempts = Attempts(run, num_proc, scratch)
    for point, nth in chain:
        fault = {"point": point, "nth": nth, "role": "parent", "act": "kill"}
        launch = finished(attempts.command(), scratch, faults=[fault])
        assert [traced.what for traced in launch.acts()] == [f"kill at {point}"], launch.errors
        attempts.check_killed(launch)
    seconds = attempts.finish()
    tally.add("real kills", "identical", len(chain), seconds)
    tally.add("parent's death to no process", "gone", len(chain), attempts.longest_seconds)


@pytest.mark.parametrize(("run", "num_proc"), [(NPY, 1), (MEGATRON, 2)], ids=shown)
def test_parent_killed_at_any_time_then_finishes(run, num_proc, scratch, tally):
    """Five times, at a random moment after the first slice was begun."""
    attempts = Attempts(run, num_proc, scratch)
    rng = random.Random(f"{run.name} {num_proc}")
    for _ in range(5):
        with launched(attempts.command(), scratch, slow=0.01) as launch:
            launch.until(launch.begun)
            time.sleep(rng.uniform(0.0, 0.1))
            launch.signal(signal.SIGKILL)
            attempts.check_killed(launch)
    seconds = attempts.finish()
    tally.add("real kills", "identical", 5, seconds)
    tally.add("parent's death to no process", "gone", 5, attempts.longest_seconds)


def test_parent_killed_while_its_workers_start_leaves_no_process(scratch, tally):
    attempts = Attempts(NPY, 2, scratch)
    delays = [0.0, 0.02, 0.05, 0.1, 0.2, 0.4]
    for delay in delays:
        with launched(attempts.command(), scratch, slow=0.05) as launch:
            launch.until(launch.workers)
            time.sleep(delay)
            launch.signal(signal.SIGKILL)
            attempts.check_killed(launch)
    tally.add("real kills", "identical", len(delays), attempts.finish())
    tally.add("parent's death to no process", "gone", len(delays), attempts.longest_seconds)


# The last two are in the thread that commits, while the worker does something else.
SHARD_POINTS = [("shard half", 2), ("shard synced", 3), ("task recorded", 4)]


@pytest.mark.parametrize(("run", "num_proc"), [(NPY, 2), (MEGATRON, 2), (NANOGPT, 3)], ids=shown)
def test_parent_killed_while_a_worker_writes_a_shard_then_finishes(run, num_proc, scratch, tally):
    attempts = Attempts(run, num_proc, scratch)
    for point, nth in SHARD_POINTS:
        pause = {"point": point, "nth": nth, "role": "worker", "act": "pause"}
        with launched(attempts.command(), scratch, faults=[pause]) as launch:
            launch.paused(point)
            launch.signal(signal.SIGKILL)
            assert launch.wait() == -signal.SIGKILL, launch.errors
            attempts.longest_seconds = max(attempts.longest_seconds, launch.gone())
        assert is_honest(run, attempts.out)
    tally.add("real kills", "identical", len(SHARD_POINTS), attempts.finish())
    tally.add("parent's death to no process", "gone", 3, attempts.longest_seconds)


@pytest.mark.parametrize(("run", "num_proc"), [(NPY, 2), (MEGATRON, 3), (MDS, 2)], ids=shown)
def test_workers_killed_while_they_write_shards_are_replaced(run, num_proc, scratch, tally):
    """The task is given to another worker; no slice that has a record is encoded again."""
    source, out = corpus(scratch), str(scratch / "out")
    faults = [
        {"point": point, "nth": nth, "role": "worker", "act": "kill"} for point, nth in SHARD_POINTS
    ]
    launch = finished(run.command(source, out, num_proc), scratch, faults=faults)
    assert launch.process.returncode == 0, launch.errors
    assert not wrongs(run, source, out)
    assert len(launch.acts()) == len(SHARD_POINTS)
    assert len(launch.begun()) <= NUM_SLICES + 2 * len(launch.acts())
    for _, (seconds, notice) in zip(launch.acts(), deaths(launch), strict=True):
        tally.add("real kills", "identical")
        tally.add("worker's death to message", "said", seconds=seconds)
        assert "died while " in notice and "writing " in notice and "SIGKILL" in notice, notice


@pytest.mark.parametrize("point", ["shard half", "shard synced", "task recorded"])
def test_worker_that_dies_at_every_attempt_of_a_shard_ends_the_run(point, scratch, tally):
    """Also where it dies in the thread that commits. Nothing is lost: the same command finishes."""
    source, out = corpus(scratch), str(scratch / "out")
    fault = {"point": point, "role": "worker", "act": "kill", "times": 1000}
    launch = finished(NPY.command(source, out, 2), scratch, faults=[fault])
    assert launch.process.returncode == 7, launch.errors
    assert "workers keep dying while " in launch.errors and "hint: " in launch.errors
    launch.gone()
    assert is_honest(NPY, out)
    tally.add("real kills", "identical", len(launch.acts()), succeeds(NPY, source, out, scratch))


WORKER_POINTS = [
    *["part opened", "part half", "part whole", "part renamed"],
    *["record opened", "record renamed"],
]


@pytest.mark.parametrize(("run", "num_proc"), [(NPY, 2), (MEGATRON, 3)], ids=shown)
def test_workers_killed_at_named_points_are_replaced(run, num_proc, scratch, tally):
    """Each point at another slice; the run itself goes on and finishes."""
    source, out = corpus(scratch), str(scratch / "out")
    faults = [
        {"point": point, "slice": 2 * number, "role": "worker", "act": "kill"}
        for number, point in enumerate(WORKER_POINTS)
    ]
    launch = finished(run.command(source, out, num_proc), scratch, faults=faults)
    assert launch.process.returncode == 0, launch.errors
    assert not wrongs(run, source, out)
    assert len(launch.acts()) == len(WORKER_POINTS)
    begun = launch.begun()
    assert sorted(set(begun)) == list(range(NUM_SLICES))
    assert len(begun) <= NUM_SLICES + len(launch.acts()), "work was repeated that nobody lost"
    for traced, (seconds, notice) in zip(launch.acts(), deaths(launch), strict=True):
        tally.add("real kills", "identical")
        tally.add("worker's death to message", "said", seconds=seconds)
        assert f"worker {traced.pid} died while encoding slice" in notice
        assert "SIGKILL" in notice


@pytest.mark.parametrize(("run", "num_proc"), [(NPY, 2), (MEGATRON, 3)], ids=shown)
def test_workers_killed_at_any_time_are_replaced(run, num_proc, scratch, tally):
    """One after the other, each when another slice was begun since; the run finishes."""
    source, out = corpus(scratch), str(scratch / "out")
    rng = random.Random(num_proc)
    killed: list[int] = []
    with launched(run.command(source, out, num_proc), scratch, slow=0.02) as launch:
        while len(killed) < 6:
            before = len(launch.begun())
            launch.until(lambda before=before: len(launch.begun()) > before)
            time.sleep(rng.uniform(0.0, 0.05))
            alive = [pid for pid in launch.workers() if pid not in killed]
            if alive:
                killed.append(rng.choice(alive))
                os.kill(killed[-1], signal.SIGKILL)
        assert launch.wait() == 0, launch.errors
    assert not wrongs(run, source, out)
    assert len(launch.begun()) <= NUM_SLICES + len(killed)
    tally.add("real kills", "identical", len(killed))


def test_workers_and_parent_killed_in_one_chain(scratch, tally):
    """Each attempt loses a worker first, then the parent."""
    attempts = Attempts(NPY, 2, scratch)
    for point in ["part half", "part renamed", "record renamed"]:
        faults = [
            {"point": point, "role": "worker", "act": "kill"},
            {"point": "part opened", "nth": 4, "role": "worker", "act": "pause"},
        ]
        with launched(attempts.command(), scratch, faults=faults) as launch:
            launch.paused("part opened")
            launch.until(lambda launch=launch: len(launch.acts()) == 2)
            launch.signal(signal.SIGKILL)
            assert launch.wait() == -signal.SIGKILL
        launch.gone()
        assert is_honest(NPY, attempts.out)
        tally.add("real kills", "identical", len(launch.acts()))
    attempts.finish()
