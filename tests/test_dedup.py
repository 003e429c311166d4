"""--dedup exact, from files to shards, against a set and a loop."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import oracle
import tokenmill
from corpora import made_texts
from tokenmill.config import Config, Partition
from tokenmill.dataset.manifest import Manifest
from tokenmill.encodings import Encoding, TokenArray
from tokenmill.errors import ConflictError
from tokenmill.prepare import run
from tokenmill.run import SilentWatch
from tokenmill.run.finish import finish
from tokenmill.run.partition import encode_partition
from tokenmill.runners import Stopped
from tokenmill.runners.inline import InlineRunner
from tokenmill.runners.supervisor import Supervisor
from tokenmill.storage import disk

NUM_ROWS = 400


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """Every third text is a copy, of a close or of a distant one; some are empty."""
    rng = random.Random(5)
    found: list[str] = []
    for number, text in enumerate(made_texts(NUM_ROWS, seed=5)):
        is_copy = found and rng.random() < 0.35
        found.append(rng.choice(found[-20:] if number % 2 else found) if is_copy else text)
    return found


@pytest.fixture(scope="module")
def sources(texts, tmp_path_factory) -> list[str]:
    folder = tmp_path_factory.mktemp("corpus")
    paths = [str(folder / name) for name in ("a.parquet", "b.jsonl")]
    score = [number % 5 for number in range(NUM_ROWS)]
    table = pa.table({"text": texts, "score": score})
    pq.write_table(table.slice(0, 250), paths[0], row_group_size=25)
    lines = [json.dumps({"text": t, "score": s}) for t, s in zip(texts, score, strict=True)]
    Path(paths[1]).write_text("\n".join(lines[250:]) + "\n")
    return paths


def firsts(texts: list[str]) -> list[str]:
    return list(dict.fromkeys(text for text in texts if text))


def options(**more) -> dict:
    return {"val": "none", "slice_bytes": 4000, "num_proc": 1, "dedup": "exact", **more}


def prepared(sources: list[str], out: Path, **more) -> Manifest:
    return tokenmill.prepare(sources, out, **options(**more))


def tokens_of(out: Path) -> bytes:
    return (out / "train.bin").read_bytes()


@pytest.mark.parametrize("num_proc", [1, 2, 4])
def test_dedup_when_any_number_of_workers_then_the_first_of_each_text(
    num_proc, texts, sources, tmp_path
):
    manifest = prepared(sources, tmp_path, num_proc=num_proc)
    assert tokens_of(tmp_path) == oracle.stream(oracle.ids(firsts(texts)))
    counts, num_empty = manifest.counts, texts.count("")
    assert len(manifest.slice_documents["train"]) > 5
    assert counts.is_conserved and counts.num_rows == NUM_ROWS
    assert counts.num_duplicates == NUM_ROWS - num_empty - len(firsts(texts)) > 100
    assert counts.text_bytes == sum(len(text.encode()) for text in firsts(texts))
    assert f" + {counts.num_duplicates} duplicates" in counts.shown_sum
    report = tokenmill.verify(tmp_path, full=True)
    assert report.is_whole, str(report)
    assert tokenmill.verify(tmp_path, sample=50).is_whole


@pytest.mark.parametrize(
    "more",
    [
        {"shuffle": True, "val": "fraction", "val_fraction": 0.2},
        {"val": "fraction", "val_fraction": 0.2, "format": "megatron"},
        {"shuffle": True, "format": "parquet"},
    ],
)
def test_dedup_when_shuffled_and_split_then_the_documents_are_the_oracles(
    more, texts, sources, tmp_path
):
    prepared(sources, tmp_path / "a", **more)
    prepared(sources, tmp_path / "b", **more, num_proc=2)
    for path in (tmp_path / "a").iterdir():
        if path.is_file() and path.name != "tokenmill.json":
            assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()
    opened = tokenmill.open(tmp_path / "a")
    found = [
        split.text(i) for split in map(opened.__getitem__, opened.splits) for i in range(len(split))
    ]
    assert sorted(found) == sorted(firsts(texts))
    report = tokenmill.verify(tmp_path / "a", full=True)
    assert report.is_whole, str(report)


@pytest.mark.parametrize("num_proc", [1, 2])
def test_dedup_when_rows_are_filtered_and_tokens_limited_then_in_this_order(
    num_proc, texts, sources, tmp_path
):
    manifest = prepared(
        sources, tmp_path, where="score != 2", limit_tokens=20000, num_proc=num_proc
    )
    chosen = [text for number, text in enumerate(texts) if number % 5 != 2]
    kept: list[list[int]] = []
    for document in oracle.ids(firsts(chosen)):
        kept += [document] if sum(map(len, kept)) < 20000 else []
    assert tokens_of(tmp_path) == oracle.stream(kept)
    assert manifest.counts.is_conserved and manifest.counts.num_duplicates
    report = tokenmill.verify(tmp_path, full=True)
    assert report.is_whole, str(report)


class KillsIdleWorkers(SilentWatch):
    """Holds the last planned record back until the workers have nothing to do, and ends them."""

    def __init__(self, monkeypatch) -> None:
        self.num_left = 0
        self.num_killed = 0
        begin = Supervisor.begin

        def noted(supervisor, job, work) -> None:
            self.supervisor = supervisor
            begin(supervisor, job, work)

        monkeypatch.setattr(Supervisor, "begin", noted)

    def planned(self, plan, done) -> None:
        self.num_left = len(plan.slices) - len(done)

    def recorded(self, record) -> None:
        self.num_left -= 1
        if self.num_left:
            return
        num_idle = 0
        while num_idle < 20:  # one record handed in, the next slice is handed out at once
            time.sleep(0.02)
            children = list(self.supervisor._children)
            is_idle = not any(child.is_busy or not child.is_ready for child in children)
            num_idle = num_idle + 1 if is_idle else 0
        self.num_killed = len(children)
        for child in children:
            os.kill(child.pid, signal.SIGKILL)
        while set(children) & set(self.supervisor._children):
            time.sleep(0.02)


@pytest.mark.timeout(60)
def test_dedup_when_all_workers_die_while_idle_then_others_take_their_place(tmp_path, monkeypatch):
    texts: list[str] = []
    (tmp_path / "corpus").mkdir()
    for number in range(8):
        here = [f"text {number} of its own", *(f"the same text {i}" for i in range(5))]
        lines = "".join(json.dumps({"text": text}) + "\n" for text in here)
        (tmp_path / "corpus" / f"{number}.jsonl").write_text(lines)
        texts += here
    watch = KillsIdleWorkers(monkeypatch)
    more = options(slice_bytes=1, num_proc=2, runner="processes", watch=watch)
    tokenmill.prepare(tmp_path / "corpus", tmp_path / "out", **more)
    assert watch.num_killed > 0
    assert tokens_of(tmp_path / "out") == oracle.stream(oracle.ids(firsts(texts)))


@pytest.mark.parametrize("more", [{}, {"limit_tokens": 20000}])
def test_dedup_when_partitioned_then_finish_gives_the_same_bytes(more, sources, tmp_path):
    prepared(sources, tmp_path / "one", **more)
    out = str(tmp_path / "many")
    config = Config(sources=tuple(sources), out=out, **options(**more))
    for number in (2, 1):
        encode_partition(config, Partition(number, 3), InlineRunner(), SilentWatch())
    with pytest.raises(ConflictError, match="of --partition 3/3"):
        finish(out, num_proc=1)
    encode_partition(config, Partition(3, 3), InlineRunner(), SilentWatch())
    manifest = finish(out, num_proc=1)
    assert tokens_of(tmp_path / "many") == tokens_of(tmp_path / "one")
    assert manifest.counts == Manifest.load(str(tmp_path / "one")).counts


@pytest.mark.parametrize("lost", [None, b"", b"torn"])
def test_partition_when_hashes_are_lost_then_the_task_encodes_their_slices_again(
    lost, sources, tmp_path
):
    prepared(sources, tmp_path / "one")
    out = tmp_path / "many"
    config = Config(sources=tuple(sources), out=str(out), **options())
    for number in (1, 2):
        encode_partition(config, Partition(number, 2), InlineRunner(), SilentWatch())
    path = max(out.rglob("*.hashes"))
    path.unlink() if lost is None else path.write_bytes(lost)
    with pytest.raises(ConflictError, match="of --partition 2/2"):
        finish(str(out), num_proc=1)
    encode_partition(config, Partition(2, 2), InlineRunner(), SilentWatch())
    finish(str(out), num_proc=1)
    assert tokens_of(out) == tokens_of(tmp_path / "one")


def test_partition_when_a_task_ends_then_its_hashes_are_durable(sources, tmp_path, monkeypatch):
    synced: list[str] = []
    monkeypatch.setattr(disk, "sync_files", lambda folder, names: synced.extend(names))
    config = Config(sources=tuple(sources), out=str(tmp_path / "out"), **options())
    encode_partition(config, Partition(1, 1), InlineRunner(), SilentWatch())
    made = [path.name for path in (tmp_path / "out").rglob("*.hashes")]
    assert made and set(made) <= set(synced)


class StopAfter(SilentWatch):
    def __init__(self, num_records: int) -> None:
        self.num_left = num_records

    def recorded(self, record) -> None:
        self.num_left -= 1

    def should_stop(self) -> bool:
        return self.num_left <= 0


@pytest.mark.parametrize("more", [{}, {"limit_tokens": 20000}, {"shuffle": True}])
def test_dedup_when_stopped_again_and_again_then_state_is_found_in_the_hash_files(
    more, sources, tmp_path
):
    prepared(sources, tmp_path / "whole", **more)
    config = Config(sources=tuple(sources), out=str(tmp_path / "out"), **options(**more))
    rng = random.Random(1)
    for _ in range(60):
        try:
            run(config, InlineRunner(), StopAfter(2))
            break
        except Stopped:
            path = rng.choice(sorted((tmp_path / "out").rglob("*.hashes")))
            data = path.read_bytes()
            rows = len(data) - data.index(b"\n") - 1 - 16
            garbled = data[: -16 - rows] + bytes(rows) + data[-16:]  # every text the same
            path.write_bytes(rng.choice([b"", data[: len(data) // 2], garbled]))
    assert tokens_of(tmp_path / "out") == tokens_of(tmp_path / "whole")


class Bookkeeper(StopAfter):
    """Notes which slices an attempt finds done, and which it encodes."""

    def planned(self, plan, done) -> None:
        self.num_slices, self.done = len(plan.slices), set(done)
        self.encoded: set[int] = set()

    def recorded(self, record) -> None:
        super().recorded(record)
        self.encoded.add(record.slice_index)


@pytest.mark.parametrize("more", [{}, {"shuffle": True}])
def test_dedup_when_stopped_again_and_again_then_what_is_encoded_stays_done(
    more, sources, tmp_path
):
    config = Config(sources=tuple(sources), out=str(tmp_path / "out"), **options(**more))
    done: set[int] = set()
    for _ in range(60):
        watch = Bookkeeper(3)
        try:
            run(config, InlineRunner(), watch)
            break
        except Stopped:
            assert watch.done == done and not watch.encoded & done
            done |= watch.encoded
    assert watch.done | watch.encoded == set(range(watch.num_slices))


def test_finish_when_dedup_and_copies_then_all_slices_are_done(sources, tmp_path):
    config = Config(sources=tuple(sources), out=str(tmp_path / "out"), **options())
    encode_partition(config, Partition(1, 1), InlineRunner(), SilentWatch())
    watch = Bookkeeper(1)
    finish(config.out, watch, num_proc=1)
    assert watch.done == set(range(watch.num_slices))


def test_dedup_when_it_changes_then_the_run_is_another(sources, tmp_path):
    prepared(sources, tmp_path)
    with pytest.raises(ConflictError, match=r"options\.dedup"):
        tokenmill.prepare(sources, tmp_path, **options() | {"dedup": None})


def test_dedup_when_unused_then_leaves_no_trace(sources, tmp_path):
    tokenmill.prepare(sources, tmp_path, **options() | {"dedup": None})
    plain = json.loads((tmp_path / "tokenmill.json").read_bytes())
    assert "num_duplicates" not in plain["counts"]


def test_dedup_when_empty_texts_are_kept_then_only_the_first(sources, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": ""}\n{"text": "a"}\n{"text": ""}\n')
    manifest = prepared([str(tmp_path / "a.jsonl")], tmp_path / "out", empty="keep")
    assert (manifest.counts.num_written, manifest.counts.num_duplicates) == (2, 1)
    assert np.fromfile(tmp_path / "out" / "train.bin", "<u2").tolist() == [50256, 64, 50256]


def test_dedup_when_a_text_cannot_be_encoded_then_each_copy_is_quarantined(tmp_path, monkeypatch):
    real = Encoding.encode_array

    def refusing(self, texts, dtype="uint32"):
        tokens = real(self, texts, dtype)
        failed = {i: "refused" for i, text in enumerate(texts.to_pylist()) if text == "bad"}
        return TokenArray(tokens.ids, tokens.offsets, failed)

    monkeypatch.setattr(Encoding, "encode_array", refusing)
    rows = ["a", "bad", "a", "bad", "b", "bad", "b", "c", "bad"]
    table = pa.table({"text": rows})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=3)
    out = tmp_path / "out"
    manifest = prepared([str(tmp_path / "a.parquet")], out, max_bad_fraction=1.0, slice_bytes=6)
    assert tokens_of(out) == oracle.stream(oracle.ids(["a", "b", "c"]))
    counts = manifest.counts
    assert (counts.num_quarantined, counts.num_duplicates, counts.num_written) == (4, 2, 3)
    assert tokenmill.verify(out, full=True).is_whole


def test_dedup_when_bytes_are_replaced_then_copies_count_as_replaced(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\x01".join([b"bad \xff"] * 3 + [b"worse \xff\xff"]))
    out = tmp_path / "out"
    more = {"on_bad_document": "replace", "separator": "\x01", "slice_bytes": 6}
    counts = prepared([str(tmp_path / "a.txt")], out, **more).counts
    assert (counts.num_replaced, counts.num_written, counts.num_duplicates) == (4, 2, 2)
    report = tokenmill.verify(out, full=True)
    assert report.is_whole, str(report)
