"""An input that is edited or touched after its dataset is finished: the same command, its tasks and
`verify` notice an edit anywhere in the file, and do not mistake a new time for one."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tokenmill
from tokenmill.config import Config, Partition
from tokenmill.dataset.manifest import Manifest
from tokenmill.prepare import run
from tokenmill.run import SilentWatch
from tokenmill.run.finish import finish
from tokenmill.run.partition import encode_partition
from tokenmill.runners import Stopped
from tokenmill.runners.inline import InlineRunner
from warm import tokenmill as command

ROWS = 2000
MIDDLE = ROWS // 2  # more than 64 KiB from both ends
SMALL_SLICES = {"slice_bytes": 40_000}  # each file has several
Rows = list[dict[str, object]]


def rows_of(seed: int) -> Rows:
    rng = random.Random(seed)
    return [
        {"text": " ".join(f"{rng.randrange(9999):04}" for _ in range(30)), "id": f"{number:05}"}
        for number in range(ROWS)
    ]


def edited(rows: Rows, column: str = "text") -> Rows:
    found = list(rows)
    value = str(found[MIDDLE][column])
    found[MIDDLE] = {**found[MIDDLE], column: value[::-1].replace("0", "1")}
    assert len(str(found[MIDDLE][column])) == len(value) and found != rows
    return found


def as_text(rows: Rows) -> bytes:
    return "\n".join(str(row["text"]) for row in rows).encode()


def as_jsonl(rows: Rows) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def as_gzip(rows: Rows) -> bytes:
    """In members, so that the checksum of an edited row is not at the end of the file."""
    thirds = [rows[at : at + ROWS // 3] for at in range(0, ROWS, ROWS // 3)]
    return b"".join(gzip.compress(as_jsonl(some), compresslevel=0, mtime=0) for some in thirds)


def as_csv(rows: Rows) -> bytes:
    return ("text,id\n" + "".join(f"{row['text']},{row['id']}\n" for row in rows)).encode()


def as_parquet(rows: Rows) -> bytes:
    file, plain = (
        io.BytesIO(),
        {"compression": "none", "use_dictionary": False, "write_statistics": False},
    )
    pq.write_table(pa.Table.from_pylist(rows), file, row_group_size=100, **plain)
    return file.getvalue()


def as_arrow(rows: Rows) -> bytes:
    file, table = io.BytesIO(), pa.Table.from_pylist(rows)
    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=100)
    return file.getvalue()


KINDS: dict[str, Callable[[Rows], bytes]] = {
    "txt": as_text,
    "jsonl": as_jsonl,
    "jsonl.gz": as_gzip,
    "csv": as_csv,
    "parquet": as_parquet,
    "arrow": as_arrow,
}


def edit(path: Path, data: bytes) -> None:
    """Write other bytes, of which size and ends are the same."""
    before = path.read_bytes()
    assert len(before) == len(data) > 1 << 17 and before != data
    assert (before[: 1 << 16], before[-1 << 16 :]) == (data[: 1 << 16], data[-1 << 16 :])
    path.write_bytes(data)


def prepare(source: object, out: Path, *options: object) -> tuple[int, str]:
    done = command("prepare", source, "-o", out, "--num-proc", 1, "--no-val", *options)
    return done.returncode, done.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_finished_dataset_when_its_input_is_edited_in_the_middle_then_a_conflict(kind, tmp_path):
    rows, path, out = rows_of(1), tmp_path / f"corpus.{kind}", tmp_path / "out"
    path.write_bytes(KINDS[kind](rows))
    assert prepare(path, out)[0] == 0
    edit(path, KINDS[kind](edited(rows)))
    code, said = prepare(path, out)
    assert code == 6
    assert f"input changed: {path}: same size, different content" in said
    assert prepare(path, out, "--overwrite")[0] == 0
    assert prepare(path, out)[0] == 0


@pytest.mark.parametrize("kind", KINDS)
def test_finished_dataset_when_its_input_is_only_touched_then_complete_and_it_says_why(
    kind, tmp_path
):
    path, out = tmp_path / f"corpus.{kind}", tmp_path / "out"
    path.write_bytes(KINDS[kind](rows_of(1)))
    assert "read again" not in prepare(path, out)[1]
    assert "read again" not in prepare(path, out)[1]
    os.utime(path)
    code, said = prepare(path, out)
    assert code == 0
    assert "1 input modified or moved after the dataset was made" in said
    assert "the rows are the same" in said
    assert "already complete" in said


@pytest.mark.parametrize("way", ["moved over it", "a link to it"])
def test_finished_dataset_when_its_input_is_replaced_by_an_older_file_then_a_conflict(
    way, tmp_path
):
    """As `cp -p`, `mv` and `rsync -a` do: the other file's time of modification is kept."""
    rows, path, out = rows_of(1), tmp_path / "corpus.jsonl", tmp_path / "out"
    older = tmp_path / "older.data"
    for file, data in ((path, as_jsonl(rows)), (older, as_jsonl(edited(rows)))):
        file.write_bytes(data)
        os.utime(file, ns=(10**18, 10**18))
    assert prepare(path, out)[0] == 0
    if way == "moved over it":
        older.rename(path)
    else:
        path.unlink()
        path.symlink_to(older)
    code, said = prepare(path, out)
    assert code == 6
    assert f"input changed: {path}: same size, different content" in said
    assert not tokenmill.verify(out, sources=[path])


def test_finished_dataset_when_another_input_is_edited_then_only_that_one_is_named(tmp_path):
    paths = [tmp_path / "corpus" / f"{name}.jsonl" for name in "abc"]
    paths[0].parent.mkdir()
    for seed, path in enumerate(paths):
        path.write_bytes(as_jsonl(rows_of(seed)))
    out = tmp_path / "out"
    config = tmp_path / "small.toml"
    config.write_text("slice_bytes = 40000\n")
    assert prepare(paths[0].parent, out, "--config", config)[0] == 0
    edit(paths[1], as_jsonl(edited(rows_of(1))))
    code, said = prepare(paths[0].parent, out, "--config", config)
    assert code == 6
    assert f"input changed: {paths[1]}: same size, different content" in said
    assert str(paths[0]) not in said and str(paths[2]) not in said


def test_finished_dataset_when_an_unread_column_is_edited_then_complete(tmp_path):
    rows, path, out = rows_of(1), tmp_path / "corpus.parquet", tmp_path / "out"
    path.write_bytes(as_parquet(rows))
    assert prepare(path, out)[0] == 0
    edit(path, as_parquet(edited(rows, "id")))
    assert prepare(path, out)[0] == 0


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet", "arrow"])
def test_kept_column_when_it_is_edited_then_a_conflict(kind, tmp_path):
    rows, path, out = rows_of(1), tmp_path / f"corpus.{kind}", tmp_path / "out"
    path.write_bytes(KINDS[kind](rows))
    assert prepare(path, out, "--keep", "id")[0] == 0
    os.utime(path)
    assert prepare(path, out, "--keep", "id")[0] == 0
    edit(path, KINDS[kind](edited(rows, "id")))
    assert prepare(path, out, "--keep", "id")[0] == 6


def test_finished_dataset_when_its_edited_input_cannot_be_read_then_a_conflict(tmp_path):
    path, out = tmp_path / "corpus.jsonl.gz", tmp_path / "out"
    data = gzip.compress(as_jsonl(rows_of(1)), mtime=0)
    path.write_bytes(data)
    assert len(data) > 1 << 17
    assert prepare(path, out)[0] == 0
    edit(path, data[:70_000] + bytes(100) + data[70_100:])
    code, said = prepare(path, out)
    assert code == 6
    assert f"input changed: {path}: " in said


def test_finished_dataset_in_a_bucket_when_a_local_input_is_edited_then_a_conflict(tmp_path):
    rows, path = rows_of(1), tmp_path / "corpus.jsonl"
    path.write_bytes(as_jsonl(rows))
    out = f"memory://{tmp_path.name}/out"
    tokenmill.prepare(path, out, runner="inline", val="none")
    os.utime(path)
    tokenmill.prepare(path, out, runner="inline", val="none")
    edit(path, as_jsonl(edited(rows)))
    with pytest.raises(tokenmill.ConflictError, match="same size, different content"):
        tokenmill.prepare(path, out, runner="inline", val="none")


@pytest.mark.parametrize("modified_ns", [0, 1_600_000_000_000_000_000])
def test_run_when_an_input_is_edited_after_it_was_read_then_it_does_not_finish(
    modified_ns, tmp_path
):
    rows, path, out = rows_of(1), tmp_path / "corpus.jsonl", tmp_path / "out"
    path.write_bytes(as_jsonl(rows))
    os.utime(path, ns=(modified_ns, modified_ns))

    class EditAtTheEnd(SilentWatch):
        num_records = 0

        def recorded(self, record: object, *rest: object) -> None:
            self.num_records += 1
            if self.num_records == num_slices:
                edit(path, as_jsonl(edited(rows)))

    tokenmill.prepare(path, tmp_path / "before", num_proc=1, val="none", **SMALL_SLICES)
    num_slices = len(content(tmp_path / "before")) // 16
    with pytest.raises(tokenmill.ConflictError, match="changed during the run"):
        run(config_of(path, out, {}), InlineRunner(), EditAtTheEnd())
    assert not (out / "tokenmill.json").exists()


def test_verify_when_an_input_was_edited_then_it_is_not_unchanged(tmp_path):
    rows, path, out = rows_of(1), tmp_path / "corpus.jsonl", tmp_path / "out"
    path.write_bytes(as_jsonl(rows))
    assert prepare(path, out, "--limit-tokens", 100_000)[0] == 0
    for asked in (["--sample", 3], ["--source", path]):
        assert "1 file, unchanged\n" in command("verify", out, *asked).stderr
    os.utime(path)
    done = command("verify", out, "--sample", 3)
    assert done.returncode == 0
    assert "1 file, unchanged (1 input modified or moved after the dataset was made" in done.stderr
    edit(path, as_jsonl(edited(rows)))
    for asked in (["--sample", 3], ["--full"], ["--source", path]):
        done = command("verify", out, *asked)
        assert done.returncode == 9
        assert f"input changed: {path}: same size, different content" in done.stderr
    assert command("verify", out).returncode == 0  # nobody asked for the inputs


OPTIONS: dict[str, dict[str, object]] = {
    "plain": {},
    "limit_tokens": {"limit_tokens": 150_000},
    "dedup": {"dedup": "exact"},
    "dedup, limit_tokens": {"dedup": "exact", "limit_tokens": 150_000},
    "keep, where": {"keep": ("id",), "where": "id < '01900'"},
    "limit_docs": {"limit_docs": 1500},
}


class StopAfterOne(SilentWatch):
    num_records = 0

    def recorded(self, record: object, *rest: object) -> None:
        self.num_records += 1

    def should_stop(self) -> bool:
        return self.num_records > 1


def content(out: Path) -> str:
    return Manifest.load(str(out)).content


def config_of(source: Path, out: Path, options: dict[str, object]) -> Config:
    given = {"num_proc": 1, "val": "none", **SMALL_SLICES, **options}
    return Config(sources=(str(source),), out=str(out), **given)


def stopped_and_resumed(config: Config) -> None:
    for _ in range(100):
        try:
            run(config, InlineRunner(), StopAfterOne())
            return
        except Stopped:
            pass
    raise AssertionError("it never ends")


def in_tasks(config: Config) -> None:
    for number in (2, 1, 3):
        encode_partition(config, Partition(number, 3), InlineRunner(), SilentWatch())
    finish(config.out)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_content_when_a_run_takes_another_way_then_the_same_and_an_edit_is_found(options, tmp_path):
    rows = rows_of(1)
    rows[3] = rows[7]  # a copy, and one in a later slice
    rows[1200] = rows[7]
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(as_jsonl(rows))
    outs = [tmp_path / name for name in ("alone", "workers", "resumed", "tasks")]
    given = {**SMALL_SLICES, "val": "none", **options}
    tokenmill.prepare(path, outs[0], num_proc=1, **given)
    tokenmill.prepare(path, outs[1], num_proc=2, **given)
    stopped_and_resumed(config_of(path, outs[2], options))
    in_tasks(config_of(path, outs[3], options))
    assert content(outs[0]).strip("0")
    assert len(content(outs[0])) == 16 * len(Manifest.load(str(outs[0])).slice_documents["train"])
    assert {content(out) for out in outs} == {content(outs[0])}
    os.utime(path)
    for out in outs:
        tokenmill.prepare(path, out, num_proc=2, **given)
    edit(path, as_jsonl(edited(rows)))
    for out in outs:
        with pytest.raises(tokenmill.ConflictError, match="same size, different content"):
            tokenmill.prepare(path, out, num_proc=2, **given)
        with pytest.raises(tokenmill.ConflictError, match="same size, different content"):
            encode_partition(
                config_of(path, out, options), Partition(1, 2), InlineRunner(), SilentWatch()
            )


def test_named_sources_when_one_is_edited_then_it_is_named(tmp_path):
    paths = [tmp_path / "web.jsonl", tmp_path / "code.txt"]
    rows = rows_of(2)
    paths[0].write_bytes(as_jsonl(rows_of(1)))
    paths[1].write_bytes(as_text(rows))
    sources = {"web": str(paths[0]), "code": str(paths[1])}
    given = {"num_proc": 1, "val": "none", "separator": "\n", **SMALL_SLICES}
    tokenmill.prepare(sources, tmp_path / "out", **given)
    for path in paths:
        os.utime(path)
    tokenmill.prepare(sources, tmp_path / "out", **given)
    edit(paths[1], as_text(edited(rows)))
    with pytest.raises(tokenmill.ConflictError) as caught:
        tokenmill.prepare(sources, tmp_path / "out", **given)
    assert f"input changed: code={paths[1]}: same size, different content" in str(caught.value)
    assert f"web={paths[0]}" not in str(caught.value)


def test_manifest_when_inputs_are_known_by_all_their_bytes_then_it_has_no_content(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("both ends cover a small file")
    tokenmill.prepare(path, tmp_path / "out", num_proc=1, val="none")
    assert "content" not in json.loads((tmp_path / "out" / "tokenmill.json").read_text())
