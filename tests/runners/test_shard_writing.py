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
        return commit(self)
    module._Writing._copy_tokens, module.Draft.commit = spoilt_copy, spoilt_commit

SPOILT = {{"tokenmill.assemble.writing": spoil}}
"""
KILL = "os.kill(os.getpid(), signal.SIGKILL)"
NPY = ("--format", "npy", "--shard-tokens", "4k")


def prepared(
    folder: Path, out: str, writing: str = "pass", committing: str = "pass"
) -> subprocess.CompletedProcess[str]:
    site = folder / f"site-{out}"
    site.mkdir(exist_ok=True)
    spoilt = sitecustomize(SITE.format(writing=writing, committing=committing))
    (site / "sitecustomize.py").write_text(spoilt)
    paths = [str(site), str(Path(tokenmill.__file__).parents[1])]
    command = [sys.executable, "-m", "tokenmill", "prepare", "corpus.jsonl", "-o", out, *NPY]
    return subprocess.run(
        [*command, "--num-proc", "2"],
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
