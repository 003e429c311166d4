"""A run shared out among tasks: any number of them, repeated, twice at once, killed; then `finish`.
The same bytes as one run by itself, or the right error and what to type."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import oracle
import tokenmill
from corpora import made_texts, write_corpus
from s3_server import dataset_in
from tokenmill.assemble.task import ShardRecord
from tokenmill.config import Partition
from tokenmill.corpus.plan import Plan
from tokenmill.encode.ledger import Ledger
from tokenmill.encode.record import Counts, PartChunk, PartRecord, Quarantined
from tokenmill.errors import ConfigError, ConflictError, InputError, IntegrityError
from tokenmill.run import SilentWatch
from tokenmill.run.finish import finish
from tokenmill.run.partition import PartitionReport, encode_partition
from tokenmill.runners.inline import InlineRunner
from tokenmill.storage import disk
from tokenmill.storage.local import LocalStore
from tokenmill.storage.lock import lock
from tokenmill.storage.store import store_of

TEXTS = made_texts(600, seed=11)
OPTIONS = {"slice_bytes": 60_000, "format": "npy", "shard_tokens": 30_000, "num_proc": 1}
COMMAND = [sys.executable, "-m", "tokenmill"]


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> str:
    return write_corpus("parquet", tmp_path_factory.mktemp("source"), TEXTS)


@pytest.fixture(scope="module")
def alone(source, tmp_path_factory) -> Path:
    """What one ordinary run makes of it."""
    out = tmp_path_factory.mktemp("alone") / "out"
    tokenmill.prepare(source, out, **OPTIONS)
    expected = oracle.npy_files(oracle.ids(TEXTS, "prepend"), 30_000, "edufineweb")
    assert {name: (out / name).read_bytes() for name in expected} == expected
    return out


def everything(out: Path) -> dict[str, bytes]:
    return {str(p.relative_to(out)): p.read_bytes() for p in out.rglob("*") if p.is_file()}


def task(source: str, out: Path | str, partition: str, **options: object) -> PartitionReport:
    config = tokenmill.Config(sources=(source,), out=str(out), **{**OPTIONS, **options})
    return encode_partition(config, Partition.parsed(partition), InlineRunner(), SilentWatch())


def num_slices(out: Path) -> int:
    return len(Plan.load(str(out / ".tokenmill" / "plan.json")).slices)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 50])
def test_any_number_of_tasks_when_finished_then_the_bytes_of_one_run(
    count, source, alone, tmp_path
):
    reports = [task(source, tmp_path, f"{i}/{count}") for i in range(count, 0, -1)]
    total = reports[0].num_slices
    assert total == num_slices(tmp_path) > 7
    assert sum(report.num_own for report in reports) == total
    assert [report.num_missing for report in reports][-1] == 0
    assert sum(report.counts.num_written for report in reports) == len(TEXTS)
    finish(str(tmp_path))
    assert everything(tmp_path) == everything(alone)


def test_partitions_when_put_together_then_every_slice_once():
    for total in (0, 1, 2, 9, 100):
        for count in (1, 2, 3, 7, 101):
            shares = [Partition(i, count).of(total) for i in range(1, count + 1)]
            assert [index for share in shares for index in share] == list(range(total))
            assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize("options", [{"shuffle": True, "seed": 3}, {"format": "megatron"}])
def test_options_when_partitioned_then_the_bytes_of_one_run(options, source, tmp_path):
    given = {**options, "shard_tokens": 20_000}
    tokenmill.prepare(source, tmp_path / "alone", **{**OPTIONS, **given})
    for i in (2, 3, 1):
        task(source, tmp_path / "out", f"{i}/3", **given)
    finish(str(tmp_path / "out"))
    assert everything(tmp_path / "out") == everything(tmp_path / "alone")


def test_task_when_repeated_then_nothing_is_encoded_again(source, tmp_path):
    first = task(source, tmp_path, "2/3")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.part")}
    assert task(source, tmp_path, "2/3") == first
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.part")} == before


def test_different_numbers_of_tasks_when_one_after_the_other_then_the_same_bytes(
    source, alone, tmp_path
):
    for partition in ("1/2", "7/7", "3/4", "2/3"):
        task(source, tmp_path, partition)
    assert task(source, tmp_path, "2/2").num_missing == 0
    finish(str(tmp_path))
    assert everything(tmp_path) == everything(alone)


def test_ordinary_run_when_tasks_began_it_then_it_goes_on_from_there(source, alone, tmp_path):
    task(source, tmp_path, "2/3")

    class Count(SilentWatch):
        done = 0

        def planned(self, plan, done):
            self.done = len(done)

    watch = Count()
    expected = task(source, tmp_path, "2/3").num_own
    tokenmill.prepare(source, tmp_path, watch=watch, **OPTIONS)
    assert watch.done == expected > 0
    assert everything(tmp_path) == everything(alone)


class Stop(SilentWatch):
    """Stops a run after a few slices; `done` are those that earlier attempts encoded."""

    def __init__(self, num_slices: int) -> None:
        self.num_left = num_slices
        self.done: list[int] = []

    def planned(self, plan, done):
        self.done = list(done)

    def recorded(self, record):
        self.num_left -= 1

    def should_stop(self):
        return self.num_left <= 0


def stop_after(num_slices: int, source: str, out: Path | str) -> list[int]:
    watch = Stop(num_slices)
    with pytest.raises(tokenmill.runners.Stopped):
        tokenmill.prepare(source, out, watch=watch, **OPTIONS)
    return watch.done


def test_tasks_when_an_ordinary_run_began_it_then_they_go_on_from_there(source, alone, tmp_path):
    stop_after(3, source, tmp_path)
    assert task(source, tmp_path, "1/1").num_missing == 0
    finish(str(tmp_path))
    assert everything(tmp_path) == everything(alone)


def test_tasks_when_an_ordinary_run_left_a_checkpoint_then_they_go_on_from_there(
    source, alone, tmp_path, monkeypatch
):
    monkeypatch.setattr("tokenmill.encode.ledger.MIN_RECORDS", 2)
    stop_after(3, source, tmp_path)
    records = work_of(tmp_path) / "records"
    assert sorted(path.name for path in records.iterdir()) == ["00000002.json", "ledger.bin"]
    total = num_slices(tmp_path)
    report = task(source, tmp_path, f"1/{total}")  # a slice that is in the checkpoint
    assert (report.num_own, report.num_missing) == (1, total - 3)
    assert not list(records.glob("00000000*"))
    task(source, tmp_path, "2/2")
    with pytest.raises(ConflictError, match="is not encoded yet: 3"):
        finish(str(tmp_path))
    task(source, tmp_path, "1/2")
    finish(str(tmp_path))
    assert everything(tmp_path) == everything(alone)


def test_plan_when_there_is_one_then_it_is_not_made_again(source, tmp_path, monkeypatch):
    task(source, tmp_path, "1/3")
    monkeypatch.setattr("tokenmill.run.context.make_plan", None)
    task(source, tmp_path, "2/3")


def test_plan_when_another_task_was_first_then_that_one_counts(source, alone, tmp_path):
    """The other one writes its plan after this one looked for one, and before it wrote its own."""
    real = LocalStore.create
    rival = []

    def create(store: LocalStore, path: str, data: bytes) -> bool:
        if not rival:
            rival.append(None)
            task(source, tmp_path, "1/2")
        return real(store, path, data)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(LocalStore, "create", create)
        task(source, tmp_path, "2/2")
    finish(str(tmp_path))
    assert everything(tmp_path) == everything(alone)


@pytest.mark.parametrize(
    "options", [{"shard_tokens": 10_000}, {"tokenizer": "cl100k_base"}, {"shuffle": True}]
)
def test_task_when_its_options_differ_then_conflict_and_nothing_is_changed(
    options, source, tmp_path
):
    task(source, tmp_path, "1/3")
    before = everything(tmp_path)
    with pytest.raises(ConflictError, match="started differently"):
        task(source, tmp_path, "2/3", **options)
    assert everything(tmp_path) == before


def test_task_when_the_corpus_differs_then_conflict(source, tmp_path):
    task(source, tmp_path / "out", "1/3")
    other = write_corpus("parquet", tmp_path / "other", TEXTS[:500])
    with pytest.raises(ConflictError, match=r"input removed[^$]*input added"):
        task(other, tmp_path / "out", "2/3")


def test_task_when_the_run_is_finished_then_it_says_so(source, alone):
    before = everything(alone)
    report = task(source, alone, "2/3")
    assert report.is_finished and report.num_missing == 0
    assert everything(alone) == before


def test_task_when_planning_fails_then_nothing_is_left(source, tmp_path):
    with pytest.raises(ConfigError, match="nope"):
        task(source, tmp_path / "out", "1/3", text_column="nope")
    assert not (tmp_path / "out").exists()


def test_task_when_asked_to_overwrite_then_refused(source, tmp_path):
    with pytest.raises(ConfigError, match="every task would remove the work of the others"):
        task(source, tmp_path / "out", "1/3", overwrite=True)


def test_task_when_a_part_was_damaged_then_it_is_encoded_again(source, alone, tmp_path):
    task(source, tmp_path, "1/1")
    [damaged, *_] = sorted((work_of(tmp_path) / "parts").iterdir())
    good = damaged.read_bytes()
    damaged.write_bytes(good[:-1] + b"\xff")
    with pytest.raises(ConflictError) as caught:
        finish(str(tmp_path))
    assert caught.value.message == (
        f"{tmp_path} lacks slices of --partition 1/1\n"
        f"  1 of {num_slices(tmp_path)} slices is damaged: 0"
    )
    assert caught.value.hint == (
        "run the same `tokenmill prepare` command with --partition 1/1, "
        f"then: tokenmill finish {tmp_path}"
    )
    task(source, tmp_path, "1/1")
    assert damaged.read_bytes() == good
    finish(str(tmp_path))
    assert everything(tmp_path) == everything(alone)


def test_task_when_it_has_ended_then_what_it_did_is_durable(source, tmp_path, monkeypatch):
    synced = []
    real = os.fsync

    def fsync(fd: int) -> None:
        synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{fd}")))
        real(fd)

    monkeypatch.setattr(disk.os, "fsync", fsync)
    report = task(source, tmp_path, "2/3")
    for folder in ("parts", "records"):
        names = {path.name for path in (work_of(tmp_path) / folder).iterdir()}
        assert len(names) == report.num_own and {*names, folder} <= set(synced)


def test_records_when_they_are_of_another_plan_then_they_do_not_count(source, alone, tmp_path):
    """As a task leaves them that began before the run was removed, where locks do not work."""
    task(source, tmp_path / "old", "1/1", seed=1)
    task(source, tmp_path / "new", "1/2")
    records = work_of(tmp_path / "new") / "records"
    for record in (work_of(tmp_path / "old") / "records").iterdir():
        if not (records / record.name).exists():
            shutil.copy(record, records)
    with pytest.raises(ConflictError, match="are not encoded yet"):
        finish(str(tmp_path / "new"))
    task(source, tmp_path / "new", "2/2")
    finish(str(tmp_path / "new"))
    assert everything(tmp_path / "new") == everything(alone)


# finish


def test_finish_when_the_checkpoint_is_damaged_then_it_says_so_before_what_is_missing(
    source, tmp_path, monkeypatch
):
    monkeypatch.setattr("tokenmill.encode.ledger.MIN_RECORDS", 2)
    stop_after(3, source, tmp_path)
    saved = work_of(tmp_path) / "records" / "ledger.bin"
    saved.write_bytes(saved.read_bytes()[:-1])
    task(source, tmp_path, "2/2")
    notices: list[str] = []
    watch = SilentWatch()
    monkeypatch.setattr(watch, "notice", notices.append)
    with pytest.raises(ConflictError, match="of --partition 1/2"):
        finish(str(tmp_path), watch)
    assert [notice.partition(":")[0] for notice in notices] == ["records/ledger.bin is damaged"]


def test_finish_when_slices_are_missing_then_conflict_that_names_them(source, alone, tmp_path):
    task(source, tmp_path, "2/3")
    total = num_slices(tmp_path)
    missing = total - len(Partition(2, 3).of(total))
    with pytest.raises(ConflictError) as caught:
        finish(str(tmp_path))
    assert f"{missing} of {total} slices" in caught.value.message
    assert "of --partition 1/3, 3/3" in caught.value.message.partition("\n")[0]
    assert "--partition 1/3" in str(caught.value.hint)
    assert f"tokenmill finish {tmp_path}" in str(caught.value.hint)
    for partition in ("1/3", "3/3"):
        task(source, tmp_path, partition)
    finish(str(tmp_path))
    assert everything(tmp_path) == everything(alone)


def test_finish_when_repeated_then_the_same(source, alone, tmp_path):
    task(source, tmp_path, "1/1")
    assert finish(str(tmp_path)) == finish(str(tmp_path))
    assert everything(tmp_path) == everything(alone)


def test_finish_when_the_sources_are_gone_then_it_needs_nothing_but_the_folder(tmp_path, alone):
    moved = write_corpus("parquet", tmp_path / "source", TEXTS)
    task(moved, tmp_path / "out", "1/1")
    shutil.rmtree(tmp_path / "source")
    (tmp_path / "out").rename(tmp_path / "elsewhere")
    finish(str(tmp_path / "elsewhere"))
    shards = [name for name in everything(alone) if name.endswith(".npy")]
    found = everything(tmp_path / "elsewhere")
    assert [found[name] for name in shards] == [everything(alone)[name] for name in shards]


@pytest.mark.parametrize("num_killed_at", [1, 2, 3])
@pytest.mark.parametrize("shuffle", [False, True])
def test_finish_when_killed_in_the_middle_then_the_same_command_goes_on(
    shuffle, num_killed_at, source, tmp_path, monkeypatch
):
    """And a task that is repeated in between finds nothing to do."""
    options = {"shuffle": shuffle, "slice_bytes": 30_000}
    tokenmill.prepare(source, tmp_path / "alone", **{**OPTIONS, **options})
    out = tmp_path / "out"
    task(source, out, "1/1", **options)
    parts = work_of(out) / "parts"
    all_parts = sorted(path.name for path in parts.iterdir())
    real, num_calls = ShardRecord.save, 0

    class Killed(BaseException):
        pass

    def save(record: ShardRecord, work: str) -> None:
        nonlocal num_calls
        num_calls += 1
        if num_calls > num_killed_at:
            raise Killed
        real(record, work)

    monkeypatch.setattr(ShardRecord, "save", save)
    with pytest.raises(Killed):
        finish(str(out), num_proc=1)
    monkeypatch.setattr(ShardRecord, "save", real)
    left = sorted(path.name for path in parts.iterdir())
    assert left == all_parts if shuffle else set(left) < set(all_parts)
    task(source, out, "1/1", **options)
    assert sorted(path.name for path in parts.iterdir()) == left
    finish(str(out))
    assert everything(out) == everything(tmp_path / "alone")


@pytest.mark.parametrize("num_proc", [1, 2, 3])
def test_finish_when_by_several_workers_then_the_same_bytes(num_proc, source, alone, tmp_path):
    task(source, tmp_path, "1/1")
    done = command("finish", tmp_path, "--num-proc", num_proc)
    assert done.returncode == 0, done.stderr
    assert everything(tmp_path) == everything(alone)


def test_finish_when_the_number_of_workers_is_not_positive_then_exit_2(tmp_path):
    done = command("finish", tmp_path, "--num-proc", 0)
    assert done.returncode == 2 and "--num-proc must be positive" in done.stderr


def work_of(out: Path) -> Path:
    """The folder of the one run that is under way."""
    [parts] = out.glob(".tokenmill/*/parts")
    return parts.parent


def test_finish_when_there_is_no_run_then_what_to_type(tmp_path):
    with pytest.raises(ConfigError, match="nothing to finish") as caught:
        finish(str(tmp_path / "nowhere"))
    assert "--partition 1/N" in str(caught.value.hint)
    assert not (tmp_path / "nowhere").exists()


def test_finish_when_the_plan_was_edited_then_it_is_not_believed(source, tmp_path):
    task(source, tmp_path, "1/1")
    path = tmp_path / ".tokenmill" / "plan.json"
    path.write_text(path.read_text().replace("30000", "40000"))
    with pytest.raises(IntegrityError, match=r"plan\.json"):
        finish(str(tmp_path))


def test_finish_when_too_many_rows_are_bad_then_told_and_allowed_by_its_own_option(tmp_path):
    source = tmp_path / "bad.jsonl"
    source.write_text('{"text": "good"}\n{"text": broken\n' * 20)
    task(str(source), tmp_path / "out", "1/2")
    task(str(source), tmp_path / "out", "2/2")
    with pytest.raises(InputError, match="20 of 40 rows are bad"):
        finish(str(tmp_path / "out"))
    manifest = finish(str(tmp_path / "out"), max_bad_fraction=0.5)
    assert manifest.counts.num_quarantined == 20


# The lock


def test_tasks_when_one_holds_the_lock_then_they_share_it_and_others_wait(source, alone, tmp_path):
    task(source, tmp_path, "1/2")
    path = str(tmp_path / ".tokenmill" / "lock")
    with lock(path, is_shared=True):
        task(source, tmp_path, "2/2")
        for refused in (
            lambda: finish(str(tmp_path)),
            lambda: tokenmill.prepare(source, tmp_path, **OPTIONS),
            lambda: tokenmill.prepare(source, tmp_path, **OPTIONS, overwrite=True, seed=1),
        ):
            with pytest.raises(ConflictError, match="tasks with --partition are running in"):
                refused()
    with lock(path), pytest.raises(ConflictError, match=f"process {os.getpid()} on"):
        task(source, tmp_path, "2/2")
    finish(str(tmp_path))
    assert everything(tmp_path) == everything(alone)


def test_task_when_others_write_then_their_temporaries_stay(source, tmp_path):
    task(source, tmp_path, "1/2")
    temporary = work_of(tmp_path) / "parts" / "00000001.train.part.0123.tmp"
    temporary.write_bytes(b"half of it")
    task(source, tmp_path, "2/2")
    task(source, tmp_path, "1/2")
    assert temporary.exists()


def test_create_file_when_it_exists_then_it_stays_and_nothing_else_is_left(tmp_path):
    path = tmp_path / "plan.json"
    assert store_of(str(path)).create(str(path), b"first")
    assert not store_of(str(path)).create(str(path), b"second")
    assert path.read_bytes() == b"first" and os.listdir(tmp_path) == ["plan.json"]


def test_create_file_when_there_are_no_links_then_by_a_rename(tmp_path, monkeypatch):
    def link(*paths: str) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(disk.os, "link", link)
    assert store_of(str(tmp_path / "plan.json")).create(str(tmp_path / "plan.json"), b"whole")
    assert (tmp_path / "plan.json").read_bytes() == b"whole"
    assert os.listdir(tmp_path) == ["plan.json"]


# Real processes

SCRIPT = """
import sys, tokenmill
from tokenmill.cli import main
from tokenmill.config import Config
from tokenmill.storage.store import store_of
Config.__init__.__kwdefaults__["slice_bytes"] = int(sys.argv[1])
sys.exit(main(sys.argv[2:]))
"""


def start(*arguments: object, slice_bytes: int = 60_000) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SCRIPT, str(slice_bytes), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def arguments_of(source: str, out: Path | str, partition: str) -> list[object]:
    shards = ["--format", "npy", "--shard-tokens", "30k"]
    return ["prepare", source, "-o", out, "--partition", partition, *shards, "--num-proc", 1]


def test_all_tasks_twice_at_once_when_finished_then_the_bytes_of_one_run(source, alone, tmp_path):
    partitions = ["1/2", "2/2"] * 2
    processes = [start(*arguments_of(source, tmp_path, partition)) for partition in partitions]
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        assert f"when all tasks have finished: tokenmill finish {tmp_path}" in errors
    process = start("finish", tmp_path)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0 and "600 documents" in errors, errors
    assert everything(tmp_path) == everything(alone)


def test_task_when_it_is_running_already_then_it_says_so_and_works_all_the_same(
    source, alone, tmp_path
):
    notices: dict[str, list[str]] = {}

    class First(SilentWatch):
        def recorded(self, record):
            for partition in ("1/2", "2/2"):
                if partition not in notices:
                    second = SilentWatch()
                    notices[partition] = found = []
                    second.notice = found.append
                    config = tokenmill.Config(sources=(source,), out=str(tmp_path), **OPTIONS)
                    own = Partition.parsed(partition)
                    assert encode_partition(config, own, InlineRunner(), second).num_own > 1

    config = tokenmill.Config(sources=(source,), out=str(tmp_path), **OPTIONS)
    encode_partition(config, Partition.parsed("1/2"), InlineRunner(), First())
    owner = f"process {os.getpid()} on {socket.gethostname()}"
    assert notices == {
        "1/2": [
            f"--partition 1/2 is already running, as {owner}: both encode the same slices; "
            "stop one of them"
        ],
        "2/2": [],
    }
    finish(str(tmp_path))
    assert everything(tmp_path) == everything(alone)


def test_task_when_killed_and_repeated_then_the_bytes_of_one_run(source, tmp_path):
    small = 4_000  # many slices, so that it is killed among them
    records = tmp_path / "out" / ".tokenmill"
    for least in (1, 20, 40):
        process = start(*arguments_of(source, tmp_path / "out", "1/1"), slice_bytes=small)
        while process.poll() is None:
            if len(list(records.glob("*/records/*.json"))) >= least:
                process.send_signal(signal.SIGKILL)
                break
            time.sleep(0.002)
        process.communicate(timeout=120)
    kept = {path.name for path in records.glob("*/records/*.json")}
    assert kept
    process = start(*arguments_of(source, tmp_path / "out", "1/1"), slice_bytes=small)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert f"resuming: {len(kept)} of" in errors
    finish(str(tmp_path / "out"))
    tokenmill.prepare(source, tmp_path / "alone", **{**OPTIONS, "slice_bytes": small})
    assert everything(tmp_path / "out") == everything(tmp_path / "alone")


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    given = [*COMMAND, *map(str, arguments)]
    return subprocess.run(given, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("partition", ["0/3", "4/3", "x/y", "1/0", "3", "1/3/5", "-1/3", "1/2.5"])
def test_wrong_partition_when_given_then_exit_2_and_what_to_type(partition, source, tmp_path):
    done = command("prepare", source, "-o", tmp_path / "out", f"--partition={partition}")
    assert done.returncode == 2
    assert done.stderr.startswith("error: ") and "hint: --partition 1/" in done.stderr
    assert not (tmp_path / "out").exists()


def test_command_line_when_too_early_then_exit_6_and_when_done_exit_0(source, tmp_path):
    done = command("prepare", source, "-o", tmp_path, "--partition", "2/2", "--num-proc", 1)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    done = command("prepare", source, "-o", tmp_path, "--partition", "1/2", "--json", "-q")
    found = json.loads(done.stdout)
    assert found["partition"] == "1/2" and found["num_missing"] == 0
    assert found["finish"] == f"tokenmill finish {tmp_path}"
    record = work_of(tmp_path) / "records" / "00000000.json"
    record.rename(tmp_path / "hidden")
    done = command("finish", tmp_path)
    assert done.returncode == 6 and "1 of 1 slices" in done.stderr, done.stderr
    (tmp_path / "hidden").rename(record)
    done = command("finish", tmp_path, "--json", "-q")
    assert json.loads(done.stdout)["counts"]["num_written"] == len(TEXTS), done.stderr
    done = command("finish", tmp_path)
    assert done.returncode == 0 and "is already complete" in done.stderr
    assert command("verify", tmp_path, "--full").returncode == 0


# In an object store


@pytest.mark.parametrize("options", [{}, {"shuffle": True}, {"format": "megatron"}], ids=str)
def test_partitions_when_in_s3_then_the_objects_are_the_files(
    options, s3, bucket, source, tmp_path
):
    tokenmill.prepare(source, tmp_path / "alone", **{**OPTIONS, **options})
    out = f"s3://{bucket}/out"
    for partition in ("3/3", "1/3", "2/3", "2/3"):
        assert task(source, out, partition, **options).num_missing is None
    manifest = finish(out)
    assert dataset_in(s3, bucket) == everything(tmp_path / "alone")
    assert not s3.uploads(bucket)
    assert finish(out) == manifest and task(source, out, "1/3", **options).is_finished
    assert dataset_in(s3, bucket) == everything(tmp_path / "alone")


def test_finish_when_slices_are_missing_in_s3_then_conflict_and_uploads_go_on(
    s3, bucket, source, alone, monkeypatch
):
    out = f"s3://{bucket}/out"
    task(source, out, "1/2")
    cleaned = []
    monkeypatch.setattr(
        "tokenmill.storage.objects.store.ObjectStore.sweep", lambda *asked: cleaned.append(asked)
    )
    with pytest.raises(ConflictError, match=r"of --partition 2/2\n.* are not encoded yet: "):
        finish(out)
    assert not cleaned  # a task may be uploading
    monkeypatch.undo()
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    task(source, out, "2/2")
    finish(out)
    assert dataset_in(s3, bucket) == everything(alone)


def test_run_when_it_left_a_checkpoint_in_s3_then_it_resumes_with_few_requests(
    s3, bucket, source, alone, monkeypatch
):
    """By the checkpoint, and by the record since; then `finish` goes on from there."""
    monkeypatch.setattr("tokenmill.encode.ledger.MIN_RECORDS", 2)
    out = f"s3://{bucket}/out"
    stop_after(3, source, out)
    left = [key.split("/")[-1] for key in s3.keys(bucket) if "/records/" in key]
    assert sorted(left) == ["00000002.json", "ledger.bin"]
    s3.requests.clear()
    assert stop_after(2, source, out) == [0, 1, 2]
    read = [request for request in s3.requests if "GET" in request and ".json" in request]
    assert not [request for request in read if "/records/00000000" in request]
    task(source, out, "1/1")
    finish(out)
    assert dataset_in(s3, bucket) == everything(alone)


def test_task_when_its_options_differ_in_s3_then_conflict(s3, bucket, source):
    out = f"s3://{bucket}/out"
    task(source, out, "1/2")
    before = {key: s3.read(bucket, key) for key in s3.keys(bucket)}
    with pytest.raises(ConflictError, match="started differently"):
        task(source, out, "2/2", seed=5)
    assert {key: s3.read(bucket, key) for key in s3.keys(bucket)} == before


def test_all_tasks_twice_at_once_when_in_s3_then_the_bytes_of_one_run(s3, bucket, source, alone):
    out = f"s3://{bucket}/out"
    processes = [start(*arguments_of(source, out, partition)) for partition in ["1/2", "2/2"] * 2]
    for process in processes:
        _, errors = process.communicate(timeout=240)
        assert process.returncode == 0, errors
        assert f"when all tasks have finished: tokenmill finish {out}" in errors
    process = start("finish", out)
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    assert dataset_in(s3, bucket) == everything(alone)


# What keeps a million slices small


def test_ledger_when_asked_then_it_gives_back_what_it_was_given():
    plain = PartRecord(
        3, "p", 7, f"{5:032x}", (PartChunk((1, 2), (3, 4)),), Counts(10, 9, 1, 0, 0, 2, 99)
    )
    several = PartRecord(
        1, "p", 8, f"{6:032x}", (PartChunk((1, 0), (1, 0)),) * 2, Counts(5, 2, 0, 3, 0, 0, 50)
    )
    bad = PartRecord(
        90,
        "p",
        9,
        f"{7:032x}",
        (PartChunk((0, 0), (0, 0)),),
        Counts(1, 0, 0, 0, 1),
        (Quarantined(*"abc"),),
    )
    ledger = Ledger()
    for record in (plain, bad, several):
        ledger.add(record)
    assert list(ledger.values()) == [several, plain, bad] and list(ledger) == [1, 3, 90]
    assert ledger.counts == several.counts + plain.counts + bad.counts
    assert list(ledger.quarantined) == [Quarantined(*"abc")]
    ledger.discard(3)
    ledger.discard(1)
    assert list(ledger.values()) == [bad] and len(ledger) == 1
    assert ledger.counts == bad.counts and 3 not in ledger and 5_000 not in ledger
    with pytest.raises(KeyError):
        ledger[3]


def test_plan_when_saved_and_loaded_then_the_same_plan_and_id(source, tmp_path):
    task(source, tmp_path, "1/2")
    path = str(tmp_path / ".tokenmill" / "plan.json")
    plan = Plan.load(path)
    assert plan.create(str(tmp_path / "again.json"))
    again = Plan.load(str(tmp_path / "again.json"))
    assert again == plan and again.plan_id == plan.plan_id
    assert Plan(plan.identity, plan.inputs, plan.slices).plan_id == plan.plan_id
    assert list(plan.slices[2:5]) == [plan.slices[2], plan.slices[3], plan.slices[4]]
    assert [slice_.index for slice_ in plan.slices] == list(range(len(plan.slices)))
    assert sum(slice_.text_bytes for slice_ in plan.slices) == plan.text_bytes
