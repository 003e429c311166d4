"""The disk is full, for real: a small tmpfs, one without inodes, a limit on the size of files. The
run ends with exit code 4, says what to do and keeps what it has; with room, it resumes."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from launch import (
    CONVERT,
    MEGATRON,
    NANOGPT,
    NPY,
    RealRun,
    corpus,
    finished,
    launched,
    looks_complete,
    records,
    resumes,
)
from scenarios import small_pieces

from hub_corpus import COMMIT, EXPECTED, FILES, FINEWEB, REPO, Here
from hub_server import HubServer
from xet_store import XetStore

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="mounts a tmpfs"),
    pytest.mark.timeout(120),
]

LIMITED = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
os.execvp(sys.argv[2], sys.argv[2:])
"""


@pytest.fixture(autouse=True)
def pieces(monkeypatch):
    small_pieces(monkeypatch)  # as in the processes that are started


def shown(value: object) -> str | None:
    return value.name if isinstance(value, RealRun) else None


@pytest.mark.parametrize(
    ("run", "num_proc", "limit_bytes"),
    [
        (NPY, 1, 1000),  # the plan is too large
        (NPY, 2, 2500),  # a part
        (NPY, 1, 3900),  # a shard
        (NANOGPT, 2, 9000),
        (MEGATRON, 1, 2700),
        (CONVERT, 1, 2000),
    ],
    ids=shown,
)
def test_file_size_limit_is_exit_4_and_resumes_without_it(
    run, num_proc, limit_bytes, scratch, tally
):
    source, out = corpus(scratch), str(scratch / "out")
    before = [sys.executable, "-S", "-c", LIMITED, str(limit_bytes)]
    command = run.command(source, out, num_proc)
    with launched(command, scratch, {"before": before}) as launch:
        launch.wait()
    assert launch.process.returncode == 4, launch.errors
    assert "File too large" in launch.errors and "hint: the file-size limit" in launch.errors
    assert "Traceback" not in launch.errors
    assert not looks_complete(out)
    launch.gone()
    tally.add("full disks", "refused, then identical", seconds=resumes(run, source, out))


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=50m", "tmpfs", str(folder)]
    try:
        subprocess.run(mount, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("may not mount a tmpfs here: needs root and mount(8)")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def remounted(folder: Path, **options: str) -> None:
    given = ",".join(f"{name}={value}" for name, value in options.items())
    subprocess.run(["mount", "-o", f"remount,{given}", str(folder)], check=True)


def test_full_disk_is_exit_4_and_resumes_after_making_room(scratch, tally):
    source = corpus(scratch)
    trials = [
        (NPY, 1, {"size": "8k"}),
        (NPY, 1, {"size": "40k"}),
        (NPY, 2, {"size": "96k"}),
        (MEGATRON, 1, {"size": "128k"}),
        (NPY, 2, {"nr_inodes": "12"}),
        (NPY, 1, {"nr_inodes": "24"}),
        (CONVERT, 1, {"size": "32k"}),
    ]
    with small_disk(scratch / "disk") as disk:
        out = str(disk / "out")
        for run, num_proc, limits in trials:
            remounted(disk, **limits)
            launch = finished(run.command(source, out, num_proc), scratch)
            assert launch.process.returncode == 4, (limits, launch.errors)
            assert "No space left on device" in launch.errors
            assert "hint: make room" in launch.errors and "Traceback" not in launch.errors
            assert not looks_complete(out)
            kept = records(out)
            remounted(disk, size="50m", nr_inodes="10000")
            assert records(out) == kept
            seconds = resumes(run, source, out)
            tally.add("full disks", "refused, then identical", seconds=seconds)
            shutil.rmtree(out)


def test_full_disk_again_and_again_needs_no_more_than_the_room_in_the_end(scratch, tally):
    """Room is made bit by bit; every attempt gets further, and none starts from the beginning."""
    source = corpus(scratch)
    with small_disk(scratch / "disk") as disk:
        out = str(disk / "out")
        done = 0
        for size in range(40, 400, 60):
            remounted(disk, size=f"{size}k")
            launch = finished(NPY.command(source, out), scratch)
            if launch.process.returncode == 0:
                break
            assert launch.process.returncode == 4, launch.errors
            assert len(records(out)) >= done
            done = len(records(out))
            tally.add("full disks", "refused, then identical")
        assert launch.process.returncode == 0, launch.errors
        resumes(NPY, source, out)


@pytest.mark.parametrize("has_xet", [False, True], ids=["http", "xet"])
def test_full_disk_of_the_hubs_cache_is_exit_4_naming_hf_home_and_resumes(has_xet, scratch):
    store = XetStore(scratch / "store") if has_xet else None
    with (
        small_disk(scratch / "disk") as disk,
        HubServer(FILES, repo=REPO, commit=COMMIT, xet=store) as server,
    ):
        here = Here(server, disk)
        here.environment["HF_HUB_DISABLE_XET"] = str(int(not has_xet))
        remounted(disk, size=f"{len(next(iter(FILES.values()))) // 4096 * 5}k")
        done = here.tokenmill(*FINEWEB, scratch / "out")
        assert done.returncode == 4, done.stderr
        assert "No space left on device" in done.stderr and "HF_HOME" in done.stderr
        assert "Traceback" not in done.stderr and "Warning" not in done.stderr
        remounted(disk, size="50m")
        done = here.tokenmill(*FINEWEB, scratch / "out")
        assert done.returncode == 0, done.stderr
    assert (scratch / "out" / "train.bin").read_bytes() == EXPECTED
