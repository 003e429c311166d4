"""Scratch folders of killed processes are removed by the next one on the same machine."""

from __future__ import annotations

import os
import platform
import signal
import tempfile
import time
from pathlib import Path

import pytest

from tokenmill.storage import scratch
from tokenmill.storage.store import new_file


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def aged(folder: Path) -> Path:
    """As if it had been there for an hour."""
    folder.mkdir(exist_ok=True)
    os.utime(folder, (time.time() - 3600, time.time() - 3600))
    return folder


def name_of_one_here() -> str:
    with scratch.scratch_folder() as folder:
        return os.path.basename(folder)


def test_folder_of_a_killed_process_is_removed(temporary):
    left = aged(temporary / name_of_one_here())
    with scratch.scratch_folder():
        assert not left.exists()


def test_folder_in_use_stays(temporary):
    with scratch.scratch_folder() as used:
        aged(Path(used))
        with scratch.scratch_folder():
            assert os.path.isdir(used)


def test_folder_of_another_machine_stays(temporary, monkeypatch):
    name = name_of_one_here()
    here = "".join(c if c.isalnum() else "_" for c in platform.node())
    assert here in name
    theirs = aged(temporary / name.replace(here, "elsewhere"))
    with scratch.scratch_folder():
        assert theirs.is_dir()  # its lock may not be seen from here


def test_file_for_a_bucket_when_its_process_is_killed_then_the_next_one_removes_it(temporary):
    pid = os.fork()
    if pid == 0:
        with new_file("memory://b/000000.part") as file:
            file.write(b"tokens")
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    [left] = temporary.iterdir()
    assert [file.name for file in left.iterdir()] == ["000000.part"]
    aged(left)
    with new_file("memory://b/000000.part") as file:
        file.commit()
    assert not list(temporary.iterdir())
