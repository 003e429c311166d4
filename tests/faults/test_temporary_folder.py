"""A machine whose folders for temporary files cannot be written to: commands say so, or do without.

No process may write a byte to any file (RLIMIT_FSIZE), as on a disk that is full: then Python finds
no temporary folder, whatever the user's permissions.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

import tokenmill

HINT = "hint: name a folder with room: mkdir -p ~/tmp && export TMPDIR=~/tmp"


def without_files(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tokenmill", *map(str, words)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
        input='{"text": "from a pipe"}\n',
        capture_output=True,
        text=True,
        cwd=cwd,
        check=False,
    )


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "docs.jsonl"
    path.write_text('{"text": "some words"}\n' * 9)
    return path


@pytest.mark.parametrize(
    "command",
    [
        "estimate docs.jsonl",
        "prepare docs.jsonl -o out --dry-run",
        "prepare docs.jsonl -o out --partition 1/2",
        "prepare - --input-format jsonl -o out",
        "tokenizer train docs.jsonl -o own.json --vocab-size 300",
    ],
)
def test_command_that_needs_a_temporary_folder_says_how_to_name_another(corpus, tmp_path, command):
    done = without_files(*command.split(), cwd=tmp_path)
    assert done.returncode == 4, done.stderr
    *_, error, hint = done.stderr.splitlines()
    assert error.startswith("error: cannot write temporary files: No usable temporary directory")
    assert hint == HINT and "Traceback" not in done.stderr


def test_command_that_needs_none_works_and_doctor_has_a_finding(corpus, tmp_path):
    tokenmill.prepare(corpus, tmp_path / "out", num_proc=1)
    for command in ("verify out", "inspect out"):
        done = without_files(*command.split(), cwd=tmp_path)
        assert done.returncode == 0 and "error" not in done.stderr, done.stderr
    shown = without_files("doctor", cwd=tmp_path).stdout
    assert "temporary files  cannot write temporary files: No usable" in shown
    assert f"-> {HINT.removeprefix('hint: ')}" in shown
