"""Two runs into one folder. With locks, the second one names the first and leaves. Without them,
as on some network file systems, the two may get in each other's way, but never to wrong bytes."""

from __future__ import annotations

import random
import re
import signal
import sys
import time
from pathlib import Path

import pytest
from launch import (
    CONVERT,
    MEGATRON,
    NPY,
    RealRun,
    corpus,
    is_honest,
    launched,
    looks_complete,
    resumes,
    wrongs,
)

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc"),
    pytest.mark.timeout(120),
]


def shown(value: object) -> str | None:
    return value.name if isinstance(value, RealRun) else None


@pytest.mark.parametrize(
    ("run", "num_proc", "point"),
    [
        (NPY, 1, "plan written"),
        (NPY, 2, "part half"),
        (NPY, 1, "shard published"),
        (NPY, 2, "shard half"),
        (NPY, 1, "publication written"),
        (CONVERT, 1, "task recorded"),
    ],
    ids=shown,
)
def test_second_run_names_the_first_and_leaves(run, num_proc, point, scratch, tally):
    source, out = corpus(scratch), str(scratch / "out")
    command = run.command(source, out, num_proc)
    with launched(command, scratch, faults=[{"point": point, "act": "pause"}]) as first:
        first.paused(point)
        with launched(command, scratch) as second:
            assert second.wait() == 6, second.errors
            seconds = time.monotonic() - second.began
        said = rf"another tokenmill run is writing to .*: process {first.pid} on "
        assert re.search(said, second.errors), second.errors
        second.gone()
        first.go_on()
        assert first.wait() == 0, first.errors
    assert not wrongs(run, source, out)
    tally.add("two runs at once", "refused", seconds=seconds)


# Where the first stands while the second runs from its beginning to its end.
POINTS = [
    (NPY, 2, "part half", 1),
    (NPY, 1, "shard half", 5),
    (MEGATRON, 1, "shard half", 6),
    (NPY, 1, "task recorded", 2),
    (NPY, 2, "shard half", 3),
    (NPY, 2, "shard synced", 3),
    (NPY, 1, "publication written", 1),
    (NPY, 1, "shard published", 3),
    (CONVERT, 1, "shard half", 5),
]


@pytest.mark.parametrize(("run", "num_proc", "point", "nth"), POINTS, ids=shown)
def test_second_run_without_locks_while_the_first_stands_still(
    run, num_proc, point, nth, scratch, tally
):
    source, out = corpus(scratch), str(scratch / "out")
    command = run.command(source, out, num_proc)
    pause = {"point": point, "nth": nth, "act": "pause"}
    with launched(command, scratch, faults=[pause], no_lock=True) as first:
        first.paused(point)
        with launched(command, scratch, no_lock=True) as second:
            second.wait()
        assert is_honest(run, out), second.errors
        first.go_on()
        first.wait()
    check_both(run, source, out, [first, second])
    tally.add("two runs at once", "identical")


def check_both(run, source, out, launches) -> None:
    for launch in launches:
        assert launch.process.returncode in (0, 4, 5, 6), launch.errors
        assert "Traceback" not in launch.errors
    assert is_honest(run, out), [launch.errors for launch in launches]
    if any(launch.process.returncode == 0 for launch in launches):
        assert looks_complete(out)
    resumes(run, source, out)


@pytest.mark.parametrize("seed", range(6))
def test_two_runs_without_locks_side_by_side(seed, scratch, tally):
    source, out = corpus(scratch), str(scratch / "out")
    rng = random.Random(seed)
    run, num_proc = rng.choice([NPY, MEGATRON, CONVERT]), rng.choice([1, 2])
    command = run.command(source, out, num_proc)
    with launched(command, scratch, slow=0.004, no_lock=True) as first:
        first.until(Path(out, ".tokenmill", "plan.json").exists)
        time.sleep(rng.uniform(0.0, 0.3))
        with launched(command, scratch, slow=rng.choice([0.0, 0.004]), no_lock=True) as second:
            second.wait()
            first.wait()
    check_both(run, source, out, [first, second])
    tally.add("two runs at once", "identical")


@pytest.mark.parametrize(("run", "nth"), [(NPY, 5), (NPY, 8), (MEGATRON, 9)], ids=shown)
def test_first_run_without_locks_goes_on_after_the_second_began_and_died(run, nth, scratch, tally):
    """Both write the same staged files."""
    source, out = corpus(scratch), str(scratch / "out")
    command = run.command(source, out)
    pause = {"point": "shard half", "nth": nth, "act": "pause"}
    with launched(command, scratch, faults=[pause], no_lock=True) as first:
        first.paused("shard half")
        pause = {"point": "shard half", "act": "pause"}
        with launched(command, scratch, faults=[pause], no_lock=True) as second:
            second.paused("shard half")
            first.go_on()
            first.wait()
            assert is_honest(run, out), first.errors
            second.signal(signal.SIGKILL)
            second.wait()
    assert is_honest(run, out), first.errors
    resumes(run, source, out)
    tally.add("two runs at once", "identical")


# Where the first stands while the second, of another plan, replaces what it has done so far.
STANDS = [
    ("part half", 2, 1),
    ("record opened", 2, 2),
    ("shard half", 3, 1),
    ("shard synced", 2, 2),
    ("task recorded", 2, 2),
    ("publication written", 1, 1),
]


@pytest.mark.parametrize(("point", "nth", "num_proc"), STANDS)
def test_another_plan_without_locks_while_the_first_stands_still(
    point, nth, num_proc, scratch, tally
):
    """Each plan has a folder of its own: the first does no harm to the second, which is whole when
    it ends and stays so."""
    source, out = corpus(scratch), str(scratch / "out")
    pause = {"point": point, "nth": nth, "act": "pause"}
    command = NPY.command(source, out, num_proc)
    with launched(command, scratch, faults=[pause], no_lock=True) as first:
        first.paused(point)
        other = [*MEGATRON.command(source, out), "--overwrite"]
        with launched(other, scratch, no_lock=True) as second:
            assert second.wait() == 0, second.errors
        assert not wrongs(MEGATRON, source, out)
        first.go_on()
        assert first.wait() in (4, 5, 6), first.errors
        assert "Traceback" not in first.errors
    assert not wrongs(MEGATRON, source, out)
    tally.add("two runs at once", "identical")


@pytest.mark.parametrize("point", ["part half", "task recorded"])
def test_another_plan_without_locks_goes_on_after_the_first_has_failed(point, scratch, tally):
    """Both are under way when the first goes on: it notices, and the second finishes."""
    source, out = corpus(scratch), str(scratch / "out")
    pause = {"point": point, "nth": 2, "act": "pause"}
    command = NPY.command(source, out)
    with launched(command, scratch, faults=[pause], no_lock=True) as first:
        first.paused(point)
        other = [*MEGATRON.command(source, out), "--overwrite"]
        with launched(other, scratch, faults=[pause], no_lock=True) as second:
            second.paused(point)
            first.go_on()
            assert first.wait() in (4, 5, 6), first.errors
            assert "Traceback" not in first.errors
            second.go_on()
            assert second.wait() == 0, second.errors
    assert not wrongs(MEGATRON, source, out)
    tally.add("two runs at once", "identical")
