"""What earlier attempts left: a checkpoint and the record files since, held against parts."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tokenmill.arrays import binary_array
from tokenmill.assemble.parts_in_use import UsedParts
from tokenmill.assemble.resume import earlier_records
from tokenmill.encode.job import Job
from tokenmill.encode.ledger import Ledger, save_if_grown
from tokenmill.encode.part import TOKENS, PartWriter
from tokenmill.encode.record import Counts, PartRecord, part_path, record_path

NUM_SLICES, PLAN = 8, "f" * 64
ALL = range(NUM_SLICES)


def job_in(work: str, plan_id: str = PLAN) -> Job:
    given = {field.name: None for field in dataclasses.fields(Job)}
    return Job(**{**given, "work": work, "plan_id": plan_id})


def encoded(work: str, index: int, ids: list[int]) -> PartRecord:
    writer = PartWriter(work, index, "uint16", 0, 0)
    data = np.array(ids, "<u2")
    writer.append(0, pa.record_batch([binary_array(np.array([0, data.nbytes]), data)], [TOKENS]))
    return writer.commit(PLAN, Counts(num_rows=1, num_written=1), ())


@pytest.fixture
def work(tmp_path, monkeypatch) -> str:
    """Eight slices are encoded; the first six records are in the checkpoint."""
    monkeypatch.setattr("tokenmill.encode.ledger.MIN_RECORDS", 6)
    work, ledger = str(tmp_path), Ledger()
    for name in ("parts", "records"):
        os.makedirs(os.path.join(work, name))
    for index in ALL:
        ledger.add(encoded(work, index, [index] * 9))
        save_if_grown(work, ledger)
    assert not os.path.exists(record_path(work, 5)) and os.path.exists(record_path(work, 6))
    return work


def found(work: str, indices: range = ALL) -> list[int]:
    return list(earlier_records(job_in(work), indices))


def test_records_when_in_checkpoint_or_file_then_all_are_found(work):
    assert found(work) == list(ALL)
    assert found(work, range(4, 7)) == [4, 5, 6]
    assert len(earlier_records(job_in(work), range(4, 7))) == 3


@pytest.mark.parametrize("index", [2, 7], ids=["in the checkpoint", "in a file"])
def test_record_when_its_part_is_damaged_or_gone_then_it_does_not_count(work, index):
    path = Path(part_path(work, index, 0))
    path.write_bytes(bytes(path.stat().st_size))
    assert found(work) == [other for other in ALL if other != index]
    path.unlink()
    assert found(work) == [other for other in ALL if other != index]
    used = UsedParts()
    used.add(0, index)
    used.save(work)
    assert found(work) == list(ALL)  # nobody needs that part any more


def test_record_when_encoded_again_then_its_file_counts_and_not_its_row(work):
    """Even if its part is used by now: the shard was made of the newer one."""
    newer = encoded(work, 2, [7])
    assert earlier_records(job_in(work), ALL)[2] == newer
    used = UsedParts()
    used.add(0, 2)
    used.save(work)
    assert earlier_records(job_in(work), ALL)[2] == newer
    Path(record_path(work, 2)).write_bytes(b"{}")  # as a power loss may leave it
    assert 2 not in earlier_records(job_in(work), ALL)


def test_checkpoint_when_damaged_then_its_slices_are_missing(work):
    path = Path(work, "records", "ledger.bin")
    path.write_bytes(path.read_bytes()[:-1])
    assert found(work) == [6, 7]


def test_checkpoint_when_of_another_plan_then_nothing_is_found(work):
    assert not earlier_records(job_in(work, "0" * 64), ALL)


def test_checkpoint_when_saved_again_then_newer_files_go_and_their_records_stay(work, monkeypatch):
    newer = encoded(work, 2, [7])
    records = earlier_records(job_in(work), ALL)
    monkeypatch.setattr("tokenmill.encode.ledger.MIN_RECORDS", 1)
    save_if_grown(work, records)
    assert not [name for name in os.listdir(f"{work}/records") if name.endswith(".json")]
    assert earlier_records(job_in(work), ALL)[2] == newer
    assert found(work) == list(ALL)


def test_first_slices_when_all_their_parts_are_used_then_nothing_of_them_is_read(work):
    used = UsedParts([[[0, 4]], [[0, 5], [6, 8]]])
    assert used.num_first == 4
    assert UsedParts([[[1, 4]], [[0, 8]]]).num_first == UsedParts().num_first == 0
    used.save(work)
    for index in range(5):
        os.remove(part_path(work, index, 0))
    assert found(work) == [0, 1, 2, 3, 5, 6, 7]


def test_checkpoint_that_cannot_be_used_is_said(work):
    path, said = Path(work, "records", "ledger.bin"), []
    earlier_records(job_in(work), ALL, said.append)
    assert said == []
    data = path.read_bytes()
    for changed in (data.replace(b"ledger 3", b"ledger 2", 1), data[:-1]):
        path.write_bytes(changed)
        assert list(earlier_records(job_in(work), ALL, said.append)) == [6, 7]
    assert [message.partition(":")[0] for message in said] == [
        "records/ledger.bin was not written by this version",
        "records/ledger.bin is damaged",
    ]
