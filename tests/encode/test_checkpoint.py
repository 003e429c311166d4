"""The checkpoint of a ledger: it says what the record files said, or nothing."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import pytest

from tokenmill.encode.ledger import Ledger, save_if_grown, saved_ledger
from tokenmill.encode.record import (
    Counts,
    PartChunk,
    PartRecord,
    Quarantined,
    record_path,
    recorded_indices,
)

PLAN = "f" * 64


@pytest.fixture(autouse=True)
def early(monkeypatch):
    monkeypatch.setattr("tokenmill.encode.ledger.MIN_RECORDS", 3)


@pytest.fixture
def work(tmp_path) -> str:
    (tmp_path / "records").mkdir()
    return str(tmp_path)


def random_record(rng: random.Random, index: int) -> PartRecord:
    """One in four has a bad row, which no row of the ledger holds."""
    tokens, documents, sizes = ((rng.randrange(1 << 40), rng.randrange(2)) for _ in range(3))
    digests = (rng.randbytes(16).hex(), rng.randbytes(16).hex() if sizes[1] else "")
    bad = (Quarantined("a.txt", "row 7", "torn"),) if rng.random() < 0.25 else ()
    counts = Counts(*(rng.randrange(1 << 30) for _ in Counts.__slots__))
    chunks, content = (PartChunk(tokens, documents),), rng.choice(["", rng.randbytes(8).hex()])
    return PartRecord(index, PLAN, sizes, digests, chunks, counts, bad, content=content)


def write_file(work: str, index: int) -> None:
    Path(record_path(work, index)).write_bytes(b"{}")


def saved(work: str, records: list[PartRecord]) -> Ledger:
    ledger = Ledger()
    for record in records:
        write_file(work, record.slice_index)
        ledger.add(record)
    save_if_grown(work, ledger)
    return ledger


def test_records_when_saved_then_they_come_back_and_their_files_go(work, seed):
    rng = random.Random(seed)
    records = [random_record(rng, index) for index in rng.sample(range(60), 40)]
    ledger = saved(work, records)
    plain = {record.slice_index: record for record in records if not record.quarantined}
    assert dict(saved_ledger(work, PLAN)) == plain
    assert recorded_indices(work) == sorted(r.slice_index for r in records if r.quarantined)
    assert dict(ledger) == {record.slice_index: record for record in records}
    assert all(ledger.is_saved(r.slice_index) == (not r.quarantined) for r in records)


def test_checkpoint_when_any_byte_differs_or_is_missing_then_it_says_nothing(work):
    rng = random.Random(1)
    saved(work, [random_record(rng, index) for index in range(6)])
    path = Path(work, "records", "ledger.bin")
    good = path.read_bytes()
    assert saved_ledger(work, PLAN)
    for at in range(len(good)):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        assert not saved_ledger(work, PLAN), at
        path.write_bytes(good[:at])
        assert not saved_ledger(work, PLAN), at


def test_checkpoint_when_of_another_plan_then_it_says_nothing(work):
    rng = random.Random(1)
    saved(work, [random_record(rng, index) for index in range(6)])
    assert not saved_ledger(work, "0" * 64) and not saved_ledger(work, PLAN[:-1])


def test_ledger_when_it_grows_then_few_files_stay_and_little_is_written(work, monkeypatch):
    """A resumed run reads at most a ninth from files; all checkpoints are at most ten ledgers."""
    sizes, rng, ledger = [], random.Random(1), Ledger()
    real = Ledger.to_save
    monkeypatch.setattr(Ledger, "to_save", lambda self: (sizes.append(len(self)), real(self))[1])
    for index in range(1000):
        write_file(work, index)
        ledger.add(random_record(rng, index))
        save_if_grown(work, ledger)
        assert ledger.num_unsaved < max(3, len(ledger) / 9)
    assert sum(sizes) < 10 * len(ledger)
    assert len(recorded_indices(work)) == ledger.num_unsaved + len(list(ledger.quarantined))


def test_checkpoint_when_a_ledger_has_fewer_records_then_is_not_replaced(work):
    """As a resumed run with --limit-tokens, which passes records on in plan order."""
    rng = random.Random(1)
    records = [plain_record(rng, index) for index in range(12)]
    saved(work, records[:4] + records[8:])
    before = saved_ledger(work, PLAN)
    resumed = before.emptied()
    for record in records[:8]:
        resumed.add(record)
        save_if_grown(work, resumed)
    assert list(saved_ledger(work, PLAN)) == [*range(4), *range(8, 12)]
    for record in records[8:]:
        resumed.add(record)
        save_if_grown(work, resumed)
    assert list(saved_ledger(work, PLAN)) == list(range(12))


def plain_record(rng: random.Random, index: int) -> PartRecord:
    return dataclasses.replace(random_record(rng, index), quarantined=())
