"""Shard tasks in worker processes that die: while they write, and while they wait for the disk."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tokenmill
from corpora import made_texts, write_corpus
from spoilt import sitecustomize

# Gets into every process from outside, and is run with the `task` at hand.
SITE = """
def spoil(module):
    copy, commit = module._Writing._copy_tokens, module.Draft.commit
    def spoilt_copy(self, file):
        copy(self, file)
        task = self._task
        {writing}
    def spoilt_commit(self):
        task = self.task
        {committing}
        record = commit(self)
        {committed}
        return record
    module._Writing._copy_tokens, module.Draft.commit = spoilt_copy, spoilt_commit

SPOILT = {{"tokenmill.assemble.writing": spoil}}
"""
KILL = "os.kill(os.getpid(), signal.SIGKILL)"
NPY = ("--format", "npy", "--shard-tokens", "4k")
WHEN = ("writing", "committing", "committed")


def prepared(
    folder: Path, out: str, *options: str, **spoilt: str
) -> subprocess.CompletedProcess[str]:
    site = folder / f"site-{out}"
    site.mkdir(exist_ok=True)
    changes = SITE.format(**{when: spoilt.get(when, "pass") for when in WHEN})
    (site / "sitecustomize.py").write_text(sitecustomize(changes))
    paths = [str(site), str(Path(tokenmill.__file__).parents[1])]
    command = [sys.executable, "-m", "tokenmill", "prepare", "corpus.jsonl", "-o", out, *NPY]
    return subprocess.run(
        [*command, "--num-proc", "2", *options],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        timeout=100,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_corpus("jsonl", tmp_path, made_texts(100))
    return tmp_path


def sums(out: Path) -> dict[str, str]:
    files = json.loads((out / "tokenmill.json").read_text())["files"]
    return {file["name"]: file["sha256"] for file in files}


@pytest.mark.parametrize("when", ["writing", "committing"])
def test_worker_killed_at_a_shard_is_explained_and_changes_no_byte(folder, when):
    assert prepared(folder, "expected").returncode == 0
    done = prepared(folder, "out", **{when: f"task.shard == 2 and times('kill') < 3 and {KILL}"})
    assert done.returncode == 0, done.stderr
    assert sums(folder / "out") == sums(folder / "expected")
    assert "died" in done.stderr
    if when == "writing":
        # Another shard may have been on its way to the disk in the same worker.
        said = r"died while writing edufineweb_train_000002\.npy( and writing \S+)?: SIGKILL"
        assert re.search(said, done.stderr), done.stderr
        assert "attempt 3 of 3" in done.stderr


@pytest.mark.parametrize("when", ["writing", "committing"])
def test_shard_that_kills_every_worker_ends_the_run_and_the_same_command_continues(folder, when):
    assert prepared(folder, "expected").returncode == 0
    done = prepared(folder, "out", **{when: f"task.shard == 6 and {KILL}"})
    assert done.returncode == 7, done.stderr
    assert "error: workers keep dying while writing edufineweb_train_000006.npy" in done.stderr
    assert prepared(folder, "out").returncode == 0
    assert sums(folder / "out") == sums(folder / "expected")


def deaths(stderr: str) -> list[str]:
    """What each worker was doing when it died."""
    return re.findall(r"worker \d+ died while (.*?): ", stderr)


@pytest.mark.parametrize("when", ["writing", "committing"])
def test_every_shard_kills_a_worker_once_and_the_run_finishes(folder, when):
    """A death counts neither for shards that wait nor twice for what runs beside it."""
    assert prepared(folder, "expected").returncode == 0
    done = prepared(folder, "out", **{when: f"times(f'kill {{task.shard}}') < 2 and {KILL}"})
    assert done.returncode == 0, done.stderr
    assert sums(folder / "out") == sums(folder / "expected")
    assert len(deaths(done.stderr)) == len(sums(folder / "out")) > 6
    assert "attempt 3 of 3" not in done.stderr, done.stderr
    assert "document by document" not in done.stderr


@pytest.mark.parametrize("options", [(), ("--runner", "processes", "--num-proc", "1")])
def test_shard_that_gets_further_is_tried_three_times_more(folder, options):
    assert prepared(folder, "expected").returncode == 0
    done = prepared(
        folder,
        "out",
        *options,
        writing=f"task.shard == 2 and times('write') < 3 and {KILL}",
        committing=f"task.shard == 2 and times('commit') < 3 and {KILL}",
    )
    assert done.returncode == 0, done.stderr
    assert sums(folder / "out") == sums(folder / "expected")
    assert len(deaths(done.stderr)) == 4
    assert "it got further than before and it is tried again, attempt 2 of 3" in done.stderr


def test_task_whose_worker_died_is_alone_in_the_next_one(folder):
    """So the second and the third death are certainly its own."""
    # While a shard is committed, the next one is being written, and others are still to be.
    kill = f"time.sleep(0.2); task.shard == 2 and {KILL}"
    many = ("--shard-tokens", "1k")
    done = prepared(folder, "out", *many, writing="time.sleep(0.5)", committing=kill)
    assert done.returncode == 7, done.stderr
    first, *others = deaths(done.stderr)
    assert "writing edufineweb_train_000002.npy" in first
    assert others == ["writing edufineweb_train_000002.npy"]


def test_workers_that_die_after_every_shard_end_the_run(folder):
    """No task dies twice, because the next worker finds it whole; yet it must not go on so."""
    assert prepared(folder, "expected").returncode == 0
    done = prepared(folder, "out", committed=f"times(f'kill {{task.shard}}') < 2 and {KILL}")
    assert done.returncode == 7, done.stderr
    assert "error: workers keep dying while they write shards: 6 in a row\n" in done.stderr
    assert len(deaths(done.stderr)) == 5
    assert prepared(folder, "out").returncode == 0
    assert sums(folder / "out") == sums(folder / "expected")


def test_shard_that_waits_for_ever_is_the_only_one_charged(folder):
    """Neither are the shards behind it, nor the slice that cannot begin before them."""
    hang = "task.shard == 1 and times('hang') < 2 and time.sleep(1000)"
    done = prepared(folder, "out", "--stall-timeout", "5", committing=hang)
    assert done.returncode == 0, done.stderr
    assert deaths(done.stderr) == ["writing edufineweb_train_000001.npy"]
    assert "document by document" not in done.stderr
