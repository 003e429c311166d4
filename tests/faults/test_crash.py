"""kill -9 anywhere, then the same command: the oracle's bytes, and never half taken for whole."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import oracle
import tokenmill
import tokenmill.run
from corpora import made_texts, write_corpus
from tokenmill.errors import ConflictError, IntegrityError, OutputError

TEXTS = made_texts(6000, seed=3)
PLAN_AND_RECORDS_BYTES = 200_000 + 1000 * 200


@pytest.fixture(scope="module")
def big(tmp_path_factory) -> str:
    return write_corpus("parquet", tmp_path_factory.mktemp("big"), TEXTS)


@pytest.fixture(scope="module")
def expected() -> dict[str, bytes]:
    return oracle.npy_files(oracle.ids(TEXTS, "prepend"), 100_000, "edufineweb")


SCRIPT = """
import sys, tokenmill
tokenmill.prepare(sys.argv[1], sys.argv[2], num_proc=int(sys.argv[3]), slice_bytes=100_000,
                  format="npy", shard_tokens=100_000)
"""  # no __main__ guard, on purpose


def start(source: str, out: Path, num_proc: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", SCRIPT, source, str(out), str(num_proc)]
    return subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE)


def workers_of(pid: int) -> list[int]:
    """The children of any of the process's threads."""
    try:
        lists = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return []
    return [int(child) for text in lists for child in text.split()]


def looks_complete(out: Path) -> bool:
    return (out / "tokenmill.json").exists()


@pytest.mark.parametrize("num_proc", [1, 2, 4])
def test_parent_killed_at_random_then_run_again_gives_the_oracles_bytes(
    num_proc, tmp_path, big, expected, read_files, share
):
    out = tmp_path / "out"
    rng = random.Random(num_proc)
    kills = 0
    for attempt in range(40):
        process = start(big, out, num_proc)
        try:
            # Later each time, so that slow machines get there, too.
            process.wait(timeout=rng.uniform(0.1, 0.5) + attempt * share / 8)
        except subprocess.TimeoutExpired:
            children = workers_of(process.pid)
            process.kill()
            kills += 1
            process.communicate()
            assert all_gone_within(120.0, children)
            if not looks_complete(out) and out.exists():
                assert read_files(out).keys() <= expected.keys()
        else:
            errors = process.communicate()[1]
            assert process.returncode == 0, errors.decode()
            break
    assert kills > 0
    process = start(big, out, num_proc)  # a slow machine may not have come to the end before
    assert process.communicate()[1] == b"" and process.returncode == 0
    assert read_files(out) == expected
    assert not (out / ".tokenmill").exists()


def all_gone_within(seconds: float, pids: list[int]) -> bool:
    until = time.monotonic() + seconds
    while any(is_running(pid) for pid in pids):
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_workers_killed_at_random_are_replaced_and_the_run_finishes(
    tmp_path, big, expected, read_files
):
    out = tmp_path / "out"
    process = start(big, out, 2)
    rng = random.Random(0)
    kills = records_at_kill = 0
    # With four, three that start and the only one that works may be hit: the run would give up.
    while process.poll() is None:
        time.sleep(0.02)
        num_records = len(list(out.glob(".tokenmill/*/records/*.json")))
        if kills < 3 and num_records > records_at_kill and (workers := workers_of(process.pid)):
            records_at_kill, kills = num_records, kills + 1
            os.kill(rng.choice(workers), signal.SIGKILL)
    errors = process.communicate()[1].decode()
    assert process.returncode == 0, errors
    assert kills > 0
    assert read_files(out) == expected


def killed_midway(source: str, out: Path, when: str) -> None:
    """Kill a run as soon as there are some files of this kind."""
    process = start(source, out, 1)
    while process.poll() is None and len(list(out.glob(f".tokenmill/*/{when}/*"))) <= 3:
        time.sleep(0.005)
    process.kill()
    process.communicate()


def work_of(out: Path) -> Path:
    """The folder of the one run that is under way."""
    [parts] = out.glob(".tokenmill/*/parts")
    return parts.parent


def records_of(out: Path) -> set[str]:
    return {path.name for path in (work_of(out) / "records").glob("*.json")}


def resume(source: str, out: Path, **changes: object) -> tokenmill.Manifest:
    options = {"slice_bytes": 100_000, "format": "npy", "shard_tokens": 100_000, **changes}
    return tokenmill.prepare(source, out, num_proc=1, **options)


def test_resume_does_not_encode_again_what_has_a_record(tmp_path, big, expected, read_files):
    out = tmp_path / "out"
    killed_midway(big, out, "records")
    kept = records_of(out)
    assert kept

    class Count(tokenmill.run.SilentWatch):
        done = 0
        fresh: list[int] = []  # noqa: RUF012

        def planned(self, plan, done):
            self.done = len(done)

        def recorded(self, record):
            self.fresh.append(record.slice_index)

    watch = Count()
    resume(big, out, watch=watch)
    assert watch.done == len(kept)
    assert not {f"{index:08d}.json" for index in watch.fresh} & kept
    assert read_files(out) == expected


def test_overwrite_continues_the_very_run_that_it_began(tmp_path, big, expected, read_files):
    out = tmp_path / "out"
    killed_midway(big, out, "records")
    kept = records_of(out)

    class Done(tokenmill.run.SilentWatch):
        done = 0

        def planned(self, plan, done):
            self.done = len(done)

    watch = Done()
    resume(big, out, watch=watch, overwrite=True)
    assert watch.done == len(kept) > 0
    assert read_files(out) == expected


def damage(path: Path, how: str) -> None:
    """Change a file's bytes but not its size, shorten it, or remove it."""
    data = path.read_bytes()
    if how == "removed":
        path.unlink()
    else:
        path.write_bytes(data[:-5] if how == "shortened" else data[:-5] + b"\xff" * 5)


DAMAGES = ["changed", "shortened", "removed"]


@pytest.mark.parametrize("how", DAMAGES)
def test_staged_shard_damaged_after_its_parts_went_is_said_and_overwrite_starts_again(
    how, tmp_path, big, expected, read_files
):
    out = tmp_path / "out"
    killed_midway(big, out, "tasks")
    shards = sorted((work_of(out) / "shards").glob("*_train_*.npy"))
    assert not (work_of(out) / "parts" / "00000000.train.part").exists()
    damage(shards[0], how)
    with pytest.raises(IntegrityError, match=r"npy changed since it was written") as caught:
        resume(big, out)
    assert caught.value.hint == "start again with --overwrite"
    assert not looks_complete(out)
    resume(big, out, overwrite=True)
    assert read_files(out) == expected


@pytest.mark.parametrize("how", DAMAGES)
def test_staged_shard_damaged_while_its_parts_are_there_is_written_again(
    how, tmp_path, big, expected, read_files
):
    out = tmp_path / "out"
    killed_midway(big, out, "records")
    work = work_of(out)
    kept = {path.name: path.read_bytes() for path in (work / "parts").glob("*.part")}
    killed_midway(big, out, "tasks")
    for name, data in kept.items():  # as if the run had died before it removed them
        (work / "parts" / name).write_bytes(data)
    (work / "used.json").unlink()
    first = work / "shards" / "edufineweb_val_000000.npy"
    assert first.read_bytes() == expected[first.name]
    damage(first, how)
    resume(big, out)
    assert read_files(out) == expected


@pytest.mark.parametrize("how", DAMAGES)
def test_damaged_record_of_a_shard_task_is_never_believed(how, tmp_path, big, expected, read_files):
    """Without its record the task is done again; if its parts are gone, that is said."""
    out = tmp_path / "out"
    killed_midway(big, out, "tasks")
    damage(max((work_of(out) / "tasks").glob("*.json")), how)
    try:
        resume(big, out)
    except IntegrityError as error:
        assert error.hint == "start again with --overwrite"
        assert not looks_complete(out)
        resume(big, out, overwrite=True)
    assert read_files(out) == expected


def test_resume_with_a_damaged_part_or_record_does_that_slice_again(
    tmp_path, big, expected, read_files
):
    out = tmp_path / "out"
    killed_midway(big, out, "records")
    work = work_of(out)
    parts = sorted((work / "parts").glob("*.part"))
    records = sorted((work / "records").glob("*.json"))
    parts[0].write_bytes(b"\0" * parts[0].stat().st_size)  # right size, wrong bytes
    parts[1].write_bytes(parts[1].read_bytes()[:-5])
    records[2].write_text(records[2].read_text()[:40])
    resume(big, out)
    assert read_files(out) == expected


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"shard_tokens": 50_000}, "options.shard_tokens: was 100000, now 50000"),
        ({"tokenizer": "r50k_base"}, "encoding.name"),
        ({"limit_docs": 10}, "options.limit_docs"),
        ({"slice_bytes": 50_000}, "options.slice_bytes"),
    ],
)
def test_resume_with_another_config_stops_before_touching_anything(change, said, tmp_path, big):
    out = tmp_path / "out"
    killed_midway(big, out, "records")
    before = snapshot(out)
    with pytest.raises(ConflictError, match=said):
        resume(big, out, **change)
    assert snapshot(out) == before


def snapshot(out: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in out.rglob("*") if p.is_file() and p.name != "lock"}


def test_resume_with_a_changed_input_stops_before_touching_anything(tmp_path, big):
    source = shutil.copy(big, tmp_path / "copy.parquet")
    out = tmp_path / "out"
    killed_midway(source, out, "records")
    before = snapshot(out)
    data = bytearray(Path(source).read_bytes())
    data[len(data) // 2] ^= 1  # same size, same edges: the modification time tells
    Path(source).write_bytes(data)
    with pytest.raises(ConflictError, match=r"input changed: .*copy\.parquet: modified since"):
        resume(source, out)
    assert snapshot(out) == before


def test_resume_with_more_workers_is_no_change(tmp_path, big, expected, read_files):
    out = tmp_path / "out"
    killed_midway(big, out, "records")
    process = start(big, out, 3)
    assert process.communicate()[1] == b"" and process.returncode == 0
    assert read_files(out) == expected


def test_two_runs_into_one_folder_the_second_stops_naming_the_first(tmp_path, big):
    out = tmp_path / "out"
    process = start(big, out, 1)
    while not (out / ".tokenmill" / "plan.json").exists():
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGSTOP)
    try:
        with pytest.raises(
            ConflictError, match=rf"another tokenmill run .*process {process.pid} on"
        ):
            resume(big, out)
    finally:
        process.kill()
        process.communicate()
    resume(big, out)


def test_killed_after_the_manifest_the_leftovers_are_removed(tmp_path, big):
    out = tmp_path / "out"
    manifest = resume(big, out)
    (out / ".tokenmill" / "0123456789abcdef" / "shards").mkdir(parents=True)
    (out / ".tokenmill" / "lock").write_bytes(b"")
    assert resume(big, out) == manifest
    assert not (out / ".tokenmill").exists()


def test_killed_while_shards_were_being_published_the_rest_follows(
    tmp_path, big, expected, read_files
):
    out = tmp_path / "out"
    killer = SCRIPT.replace(
        "tokenmill.prepare(",
        "from tokenmill.storage import disk\n"
        "import os\n"
        "def move(source, target, real=disk.rename_if_there, left=[3]):\n"
        "    left[0] or os.kill(os.getpid(), 9)\n"
        "    left[0] -= 1\n"
        "    return real(source, target)\n"
        "disk.rename_if_there = move\n"
        "tokenmill.prepare(",
    )
    command = [sys.executable, "-c", killer, big, str(out), "1"]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert len(read_files(out)) == 3 and not looks_complete(out)
    resume(big, out)
    assert read_files(out) == expected


@pytest.mark.parametrize("num_proc", [1, 2])
def test_disk_full_is_exit_4_and_after_making_room_the_same_command_finishes(
    num_proc, tmp_path, big, expected, read_files
):
    out = tmp_path / "out"
    # A file-size limit stands in for a full disk: write() fails with EFBIG in the same place.
    limited = (
        "import resource, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))\n"
    )
    command = [sys.executable, "-c", limited + SCRIPT, big, str(out), str(num_proc)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "OutputError" in done.stderr, done.stderr
    assert "File too large" in done.stderr
    assert not looks_complete(out)
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    resume(big, out)
    assert read_files(out) == expected


def test_real_full_disk_is_an_output_error_and_resumes_after_making_room(
    tmp_path, big, expected, read_files
):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1500k", "tmpfs", str(disk)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("may not mount a tmpfs here")
    try:
        with pytest.raises(OutputError, match="No space left on device") as caught:
            resume(big, disk / "out")
        assert "make room" in str(caught.value.hint)
        assert not looks_complete(disk / "out")
        subprocess.run(["mount", "-o", "remount,size=50m", str(disk)], check=True)
        resume(big, disk / "out")
        assert read_files(disk / "out") == expected
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize(("shuffle", "factor"), [(False, 1.2), (True, 2.2)])
def test_peak_disk_stays_near_the_output(shuffle, factor, tmp_path, big):
    out = tmp_path / "out"

    class Disk(tokenmill.run.SilentWatch):
        peak = 0

        def recorded(self, record):
            found = sum(p.stat().st_size for p in out.rglob("*") if p.is_file())
            self.peak = max(self.peak, found)

    disk = Disk()
    manifest = resume(big, out, watch=disk, shuffle=shuffle)
    assert disk.peak < factor * manifest.num_bytes + PLAN_AND_RECORDS_BYTES
    # What is replaced stays until the new dataset is complete.
    disk = Disk()
    resume(big, out, watch=disk, shuffle=shuffle, overwrite=True)
    assert disk.peak < (1 + factor) * manifest.num_bytes + PLAN_AND_RECORDS_BYTES


def test_no_pickle_and_nothing_executable_is_left_on_disk(tmp_path, big):
    out = tmp_path / "out"
    killed_midway(big, out, "records")
    for path in out.rglob("*"):
        if path.is_file():
            assert (
                path.suffix in (".json", ".part", ".npy", ".tmp", "")
                and path.stat().st_mode & 0o111 == 0
            )
            if path.suffix == ".json":
                json.loads(path.read_text())
