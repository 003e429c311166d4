"""Tasks with --partition and `finish`, in real processes: killed at named points, stopped for a
while, side by side without locks. Repeating what failed always gives the oracle's bytes."""

from __future__ import annotations

import os
import signal
import sys

import pytest
from launch import NPY, corpus, finished, is_honest, launched, looks_complete, records, wrongs

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc"),
    pytest.mark.timeout(240),
]


def task(source: str, out: str, partition: str, num_proc: int = 1) -> list[str]:
    return [*NPY.command(source, out, num_proc), "--partition", partition]


def finish(out: str, num_proc: int = 1) -> list[str]:
    return ["finish", out, "--max-bad-fraction", "0.5", "--num-proc", str(num_proc)]


def comes_to_the_oracles_bytes(source: str, out: str, scratch) -> None:
    for command in (task(source, out, "1/2"), task(source, out, "2/2"), finish(out)):
        launch = finished(command, scratch)
        assert launch.process.returncode == 0, launch.errors
        assert is_honest(NPY, out)
    assert not wrongs(NPY, source, out)


def test_task_killed_at_every_point_then_repeated(scratch, tally):
    source, out = corpus(scratch), str(scratch / "out")
    points = ["plan written", "part half", "part renamed", "record opened", "record renamed"]
    for point in points:
        before = records(out)
        launch = finished(
            task(source, out, "1/2"), scratch, faults=[{"point": point, "act": "kill"}]
        )
        assert launch.process.returncode == -signal.SIGKILL, (point, launch.errors)
        assert before <= records(out) and not looks_complete(out)
        tally.add("kills", "identical")
    comes_to_the_oracles_bytes(source, out, scratch)


def test_finish_killed_at_every_point_then_repeated(scratch, tally):
    source, out = corpus(scratch), str(scratch / "out")
    for partition in ("2/2", "1/2"):
        assert finished(task(source, out, partition), scratch).process.returncode == 0
    points = ["task recorded", "shard half", "shard published", "manifest temporary"]
    for point in [*points, "manifest renamed", "cleanup"]:
        fault = {"point": point, "act": "kill"}
        launch = finished(finish(out), scratch, faults=[fault])
        # Once there is a manifest, all that is left to do is to remove the work folder.
        assert launch.process.returncode == -signal.SIGKILL, (point, launch.errors)
        assert is_honest(NPY, out)
        tally.add("kills", "identical")
        if point == "manifest renamed":
            assert looks_complete(out) and os.path.exists(os.path.join(out, ".tokenmill"))
    comes_to_the_oracles_bytes(source, out, scratch)


@pytest.mark.parametrize("point", ["task recorded", "shard half"])
def test_finish_when_a_worker_dies_then_another_writes_its_shard(point, scratch, tally):
    source, out = corpus(scratch), str(scratch / "out")
    for partition in ("2/2", "1/2"):
        assert finished(task(source, out, partition), scratch).process.returncode == 0
    launch = finished(finish(out, 2), scratch, faults=[{"point": point, "act": "kill"}])
    assert launch.process.returncode == 0 and "died while writing" in launch.errors
    tally.add("kills", "identical")
    assert not wrongs(NPY, source, out)


def test_finish_while_a_task_is_at_work_then_it_says_so_and_leaves(scratch, tally):
    source, out = corpus(scratch), str(scratch / "out")
    assert finished(task(source, out, "1/2"), scratch).process.returncode == 0
    pause = {"point": "part half", "act": "pause"}
    with launched(task(source, out, "2/2"), scratch, faults=[pause]) as slow:
        slow.paused("part half")
        # The same task once more, while that one stands still: it holds nobody up.
        assert finished(task(source, out, "2/2"), scratch).process.returncode == 0
        for command in (finish(out), NPY.command(source, out)):
            refused = finished(command, scratch)
            assert refused.process.returncode == 6, refused.errors
            assert f"tasks with --partition are running in {out}" in refused.errors
        slow.go_on()
        assert slow.wait() == 0, slow.errors
    tally.add("two runs at once", "refused", 2)
    comes_to_the_oracles_bytes(source, out, scratch)


@pytest.mark.parametrize("point", ["part half", "part renamed", "record opened"])
def test_finish_without_locks_while_a_task_stands_still(point, scratch, tally):
    """Its twin has done what it was at; it goes on when all is assembled and gone."""
    source, out = corpus(scratch), str(scratch / "out")
    assert finished(task(source, out, "1/2"), scratch).process.returncode == 0
    pause = {"point": point, "nth": 2, "act": "pause"}
    with launched(task(source, out, "2/2"), scratch, faults=[pause], no_lock=True) as slow:
        slow.paused(point)
        twin = finished(task(source, out, "2/2"), scratch, no_lock=True)
        assert twin.process.returncode == 0, twin.errors
        last = finished(finish(out), scratch, no_lock=True)
        assert last.process.returncode == 0, last.errors
        assert not wrongs(NPY, source, out)
        slow.go_on()
        assert slow.wait() in (0, 4, 6), slow.errors
        assert "Traceback" not in slow.errors
    assert not wrongs(NPY, source, out)
    tally.add("two runs at once", "identical")


def test_tasks_without_locks_side_by_side_then_the_oracles_bytes(scratch, tally):
    source, out = corpus(scratch), str(scratch / "out")
    commands = [task(source, out, "1/2"), task(source, out, "2/2"), task(source, out, "1/1")]
    with launched(commands[0], scratch, slow=0.002, no_lock=True) as first:
        with launched(commands[1], scratch, slow=0.002, no_lock=True) as second:
            third = finished(commands[2], scratch, no_lock=True)
            assert third.process.returncode == 0, third.errors
            assert second.wait() == 0, second.errors
        assert first.wait() == 0, first.errors
    comes_to_the_oracles_bytes(source, out, scratch)
    tally.add("two runs at once", "identical")
