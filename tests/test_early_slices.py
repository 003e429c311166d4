"""Slices of a file that is still arriving: encoded early, recorded only once its hash is right."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import io
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import parquet_tree
import pyarrow.parquet as pq
import pytest
import thrift_tree

import oracle
from arriving_file import EXPECTED, FILE, NAME, NUM_GROUPS, TEXTS, is_near_end, wrong_text
from hub_client import connect
from hub_corpus import SHORT_PAUSES
from hub_server import COMMIT, HubServer, Request, Response, stall
from tokenmill.config import Config
from tokenmill.corpus.download.progress import DownloadProgress
from tokenmill.corpus.fetch import RemoteInputs
from tokenmill.corpus.plan import Plan
from tokenmill.corpus.spans import Slice
from tokenmill.encode.job import Step
from tokenmill.encode.record import PartRecord
from tokenmill.encodings.lookup import encoding_of
from tokenmill.run import SilentWatch, new_plan
from tokenmill.run.context import RunContext, all_inputs
from tokenmill.run.early_slices import EarlySlices
from tokenmill.runners import Stopped
from tokenmill.runners.inline import InlineRunner
from tokenmill.runners.start import started_runner
from tokenmill.settings import resolved

run = importlib.import_module("tokenmill.prepare").run


@pytest.fixture
def server(monkeypatch, tmp_path):
    """A Hub whose one file arrives in order, but its end only after half was encoded early."""
    enough = threading.Event()
    note = EarlySlices.note

    def noted(self: EarlySlices, record: PartRecord) -> None:
        note(self, record)
        found.early_records.append(record)
        if len(found.early_records) >= NUM_GROUPS // 2:
            enough.set()

    def held(right: Response) -> Response:
        enough.wait(60)
        return right

    monkeypatch.setattr(EarlySlices, "note", noted)
    for name in ("FIRST_CONNECTIONS", "MAX_CONNECTIONS"):
        monkeypatch.setattr(f"tokenmill.corpus.download.connection_count.{name}", 1)
    for name, value in SHORT_PAUSES.items():
        monkeypatch.setattr(name, value)
    with HubServer({"data.parquet": FILE}, repo=NAME) as found:
        connect(monkeypatch, found.url, tmp_path / "home")
        found.early_records = []
        found.enough = enough
        found.hold_end = lambda: found.fail(r"^GET /cdn/", held, only=is_near_end)
        found.hold_end()
        yield found


def config_for(out: Path, **options: Any) -> Config:
    options = {"num_proc": 1, "slice_bytes": 1, "val": "none", **options}
    return Config(sources=(f"hf://datasets/{NAME}/data.parquet",), out=str(out), **options)


class Seen(SilentWatch):
    """What happened before the file was complete. `at_first` is called at the first of it."""

    def __init__(self, out: Path, at_first: Callable[[], None] = lambda: None) -> None:
        self.begun_early: set[int] = set()
        self.num_records_early = 0
        self.recorded_all: list[int] = []
        self.notices: list[str] = []
        self._out = out
        self._at_first = at_first
        self._progress: Callable[[], DownloadProgress | None] = lambda: None

    def downloading(self, progress: Callable[[], DownloadProgress | None]) -> None:
        self._progress = progress

    def step(self, slice_: Slice, step: Step) -> None:
        num_records = len(list(self._out.glob(".tokenmill/*/records/*")))
        progress = self._progress()
        if progress is not None and progress.num_files < progress.total_files:
            if not self.begun_early:
                self._at_first()
            self.begun_early.add(slice_.index)
            self.num_records_early += num_records

    def recorded(self, record: PartRecord) -> None:
        assert list(self._out.glob(f".tokenmill/*/records/{record.slice_index:08d}.json"))
        self.recorded_all.append(record.slice_index)

    def notice(self, message: str) -> None:
        self.notices.append(message)


def made(config: Config, watch: SilentWatch) -> bytes:
    with started_runner(config) as runner:
        run(config, runner, watch)
    return Path(config.out, "train.bin").read_bytes()


def unreadable(right: Response) -> Response:
    return replace(right, body=memoryview(bytes(len(right.body))))


def is_first_range(request: Request) -> bool:
    return (request.range or "").startswith("bytes=0-")


@pytest.mark.parametrize("num_proc", [1, 2])
@pytest.mark.parametrize("keep_downloads", [True, False])
def test_slices_of_an_arriving_file_are_encoded_early_and_recorded_once_it_is_complete(
    num_proc, keep_downloads, server, tmp_path
):
    watch = Seen(tmp_path / "out")
    config = config_for(tmp_path / "out", num_proc=num_proc, keep_downloads=keep_downloads)
    assert made(config, watch) == EXPECTED
    assert all(record.chunks for record in server.early_records[: NUM_GROUPS // 2])
    assert len(watch.begun_early) >= NUM_GROUPS // 2
    assert not watch.num_records_early
    assert sorted(watch.recorded_all) == list(range(NUM_GROUPS))
    assert not watch.notices


class StoppedEarly(Seen):
    """Stops the run at the first slice of a file that is arriving."""

    def should_stop(self) -> bool:
        return bool(self.begun_early)


@pytest.mark.parametrize("num_proc", [1, 2])
def test_slices_of_an_arriving_file_are_encoded_early_also_when_a_run_is_resumed(
    num_proc, server, tmp_path
):
    config = config_for(tmp_path / "out", num_proc=num_proc)
    with pytest.raises(Stopped):
        made(config, StoppedEarly(tmp_path / "out"))
    assert len(server.early_records) < NUM_GROUPS // 2
    server.early_records.clear()
    server.hold_end()
    watch = Seen(tmp_path / "out")
    assert made(config, watch) == EXPECTED
    assert all(record.chunks for record in server.early_records[: NUM_GROUPS // 2])
    assert len(watch.begun_early) >= NUM_GROUPS // 2
    assert not watch.num_records_early
    assert not watch.notices


@pytest.mark.parametrize("fault", [wrong_text, unreadable])
def test_early_slices_of_wrong_bytes_are_encoded_again(fault, server, tmp_path):
    server.fail(r"^GET /cdn/", fault, only=is_first_range)
    watch = Seen(tmp_path / "out")
    assert made(config_for(tmp_path / "out"), watch) == EXPECTED
    assert not watch.num_records_early
    [notice] = watch.notices
    assert "again from its start" in notice


def test_early_slices_of_wrong_bytes_from_before_a_stop_are_encoded_again(server, tmp_path):
    server.fail(r"^GET /cdn/", wrong_text, only=is_first_range)
    config = config_for(tmp_path / "out")
    with pytest.raises(Stopped):
        made(config, StoppedEarly(tmp_path / "out"))
    server.early_records.clear()
    server.hold_end()
    watch = Seen(tmp_path / "out")
    assert made(config, watch) == EXPECTED
    assert len(server.early_records) >= NUM_GROUPS // 2
    assert not watch.num_records_early
    [notice] = watch.notices
    assert "again from its start" in notice


def test_an_early_slice_whose_worker_is_killed_waits_for_the_file(server, tmp_path):
    def children() -> set[int]:
        lists = Path(f"/proc/{os.getpid()}/task").glob("*/children")
        return {int(pid) for one in lists for pid in one.read_text().split()}

    others = children()

    def kill_workers() -> None:
        for pid in children() - others:
            os.kill(pid, signal.SIGKILL)

    watch = Seen(tmp_path / "out", kill_workers)
    assert made(config_for(tmp_path / "out", num_proc=2), watch) == EXPECTED
    assert any("it is tried again once its files are complete" in n for n in watch.notices)
    assert any(not record.chunks for record in server.early_records[: NUM_GROUPS // 2])


def test_a_slice_cannot_begin_before_its_bytes_are_here(server, tmp_path):
    config = config_for(tmp_path / "out")
    encoding = encoding_of(config)
    context = RunContext(config, encoding, InlineRunner(), SilentWatch(), str(tmp_path / "work"))
    remote = RemoteInputs(config, context.scratch, lambda message: None)
    with contextlib.closing(remote):
        slices = list(context.plan_of(all_inputs(config, remote), remote).slices)
        remote.begin(slices)
        while (early := [remote.from_partial_files(slice_) for slice_ in slices])[
            NUM_GROUPS // 2
        ] is None:
            time.sleep(0.01)
        # The server holds back what is from half a megabyte before the end on, and more.
        assert early[-1] is None
        for slice_ in filter(None, early):
            [span] = slice_.spans
            data = Path(span.input.path).read_bytes()
            assert span.input.path.endswith(".tokenmill-partial")
            assert len(data) == len(FILE)  # with its footer
            assert data[: span.end_byte] == FILE[: span.end_byte]


def test_a_resumed_run_waits_for_files_whose_first_row_groups_are_ruled_out(server, tmp_path):
    """It has the plan of its first attempt, and no footers."""

    class StoppedAtFirst(SilentWatch):
        num_stops = 0

        def planned(self, plan: Plan, done: Any) -> None:
            assert any(span.is_ruled_out for slice_ in plan.slices for span in slice_.spans)
            self.num_stops += not list((tmp_path / "out").glob("**/*.part"))

        def should_stop(self) -> bool:
            return self.num_stops == 1

    config = config_for(tmp_path / "out", where="id >= 60", slice_bytes=100_000_000)
    watch = StoppedAtFirst()
    with pytest.raises(Stopped):
        made(config, watch)
    server.enough.set()
    server.fail(r"^GET /cdn/", stall(1.0, 0), only=lambda request: True)
    assert made(config, watch) == oracle.stream(oracle.ids(TEXTS[60:]))


def test_a_file_with_a_damaged_column_that_is_not_read_is_not_early(tmp_path, monkeypatch):
    length = int.from_bytes(FILE[-8:-4], "little")
    footer, _ = thrift_tree.parsed(FILE, len(FILE) - 8 - length)
    for group in footer.get(4).items:
        unread = group.get(1).items[2].get(3)
        unread.set(7, (1 << 63) - 1)  # its size
        unread.set(9, (1 << 63) - 1)  # where it begins
    damaged = FILE[: -8 - length] + parquet_tree.footer_bytes(thrift_tree.written(footer))
    with HubServer({"data.parquet": damaged}, repo=NAME) as server:
        connect(monkeypatch, server.url, tmp_path / "home")
        assert made(config_for(tmp_path / "out"), SilentWatch()) == EXPECTED


def test_an_early_slice_cannot_read_the_partial_file_of_another_name_of_its_file(server, tmp_path):
    """Which does not hold its bytes yet. A worker may begin the slice late."""
    server.push({"a.parquet": FILE, "b.parquet": FILE}, COMMIT)
    server.fail(r"^GET /cdn/.*b\.parquet", stall(3.0, 100_000), only=is_first_range)
    config = replace(
        config_for(tmp_path / "out", keep_downloads=False), sources=(f"hf://datasets/{NAME}",)
    )
    context = RunContext(
        config, encoding_of(config), InlineRunner(), SilentWatch(), str(tmp_path / "work")
    )
    remote = RemoteInputs(config, context.scratch, lambda message: None)
    with contextlib.closing(remote):
        slices = list(context.plan_of(all_inputs(config, remote), remote).slices)
        remote.begin(slices)
        while (early := remote.from_partial_files(slices[0])) is None:
            time.sleep(0.01)
        [span] = early.spans
        opened = os.stat(span.input.path).st_ino
        server.enough.set()
        while not remote.has_arrived(slices[0]):
            time.sleep(0.01)
        while remote.progress().num_bytes == len(FILE):
            time.sleep(0.01)
        assert not remote.has_arrived(slices[-1])
        with contextlib.suppress(FileNotFoundError):  # then the early attempt fails
            assert os.stat(span.input.path).st_ino == opened


def test_an_early_part_replaces_none_that_another_run_has_recorded(server, tmp_path):
    """Where locks do nothing, two runs of a plan work at a time. Both write the same bytes."""
    parts = list[bytes]()

    class Other(Seen):
        def planned(self, plan: Plan, done: Any) -> None:
            [records] = (tmp_path / "out").glob(".tokenmill/*/records")
            self.part = records.parent / "parts" / "00000000.train.part"
            self.part.parent.mkdir(exist_ok=True)
            self.part.write_bytes(b"right")

        def step(self, slice_: Slice, step: Step) -> None:
            super().step(slice_, step)
            if len(self.begun_early) == NUM_GROUPS // 2 and not parts:
                parts.append(self.part.read_bytes())

    assert made(config_for(tmp_path / "out"), Other(tmp_path / "out")) == EXPECTED
    assert parts == [b"right"]


def test_options_give_the_same_bytes_for_early_slices(server, tmp_path):
    (tmp_path / "data.parquet").write_bytes(FILE)
    options = {"dedup": "exact", "keep": "id", "shuffle": True, "val": "fraction"}
    watch = Seen(tmp_path / "out")
    made(config_for(tmp_path / "out", **options), watch)
    assert len(watch.begun_early) >= NUM_GROUPS // 2
    local = replace(
        config_for(tmp_path / "local", **options), sources=(str(tmp_path / "data.parquet"),)
    )
    made(local, SilentWatch())
    for name in ("train.bin", "val.bin"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "local" / name).read_bytes()
    kept = [kept_rows(tmp_path / name) for name in ("out", "local")]
    assert kept[0] == kept[1]


def kept_rows(out: Path) -> list[Any]:
    """What --keep has of every document, but for the name of its file."""
    paths = sorted(out.glob("__kept__/*"))
    return [pq.read_table(path).drop_columns(["_file"]).to_pylist() for path in paths]


def test_a_span_ends_with_the_last_byte_of_all_columns_of_its_row_groups(server, tmp_path):
    config = config_for(tmp_path / "out", slice_bytes=20_000)
    encoding = encoding_of(config)
    plan = new_plan(resolved(config, encoding), encoding)
    metadata = pq.read_metadata(io.BytesIO(FILE))
    spans = [span for slice_ in plan.slices for span in slice_.spans]
    assert 1 < len(spans) < NUM_GROUPS
    for span in spans:
        chunks = [
            metadata.row_group(group).column(column)
            for group in range(span.start, span.stop)
            for column in range(3)
        ]
        starts = [c.dictionary_page_offset or c.data_page_offset for c in chunks]
        ends = [start + c.total_compressed_size for start, c in zip(starts, chunks, strict=True)]
        assert span.end_byte == max(ends)
    path = str(tmp_path / "plan.json")
    plan.create(path)
    loaded = Plan.load(path)
    assert loaded.slices == plan.slices
    assert [s.end_byte for slice_ in loaded.slices for s in slice_.spans] == [
        span.end_byte for span in spans
    ]
    assert loaded.plan_id == plan.plan_id == hashlib.sha256(plan.to_json()).hexdigest()
    assert b"end_byte" not in plan.to_json()
