"""A plan that was interrupted anywhere is the old one or whole; the same call finishes the rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from disk import Crash, FaultyOs, Gone, disk

import tokenmill
from corpora import made_texts
from tokenmill.loader.packing.row_plan import plan_name


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("pack")
    (folder / "c.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in made_texts(30)))
    tokenmill.prepare(folder / "c.jsonl", folder / "out", runner="inline", val="none")
    return folder / "out"


def test_pack_killed_at_every_operation_leaves_the_old_plan_or_a_whole_one(dataset):
    plan = dataset / plan_name(32)
    tokenmill.pack(dataset, seq_len=32, long="drop")
    old = plan.read_bytes()
    with disk(FaultyOs()) as counted:
        tokenmill.pack(dataset, seq_len=32, overwrite=True)
    new = plan.read_bytes()
    assert old != new and any(name.startswith("fsync") for name in counted.operations)
    for at in range(1, len(counted.operations) + 1):
        plan.write_bytes(old)
        with pytest.raises(Gone), disk(FaultyOs(Crash(at))):
            tokenmill.pack(dataset, seq_len=32, overwrite=True)
        assert plan.read_bytes() in (old, new), counted.operations[at - 1]
        tokenmill.pack(dataset, seq_len=32, overwrite=True)
        assert plan.read_bytes() == new


def test_written_rows_killed_anywhere_are_finished_by_the_same_call(dataset, tmp_path, share):
    def contents(folder: Path) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}

    tokenmill.pack(dataset, seq_len=32)  # the plan beside the data, which `write` makes, too
    with disk(FaultyOs()) as counted:
        tokenmill.pack(dataset, seq_len=32, write=tmp_path / "whole")
    expected = contents(tmp_path / "whole")
    assert plan_name(32) in expected
    for at in range(1, len(counted.operations) + 1, share):
        out = tmp_path / f"at-{at}"
        with pytest.raises(Gone), disk(FaultyOs(Crash(at))):
            tokenmill.pack(dataset, seq_len=32, write=out)
        tokenmill.pack(dataset, seq_len=32, write=out)
        assert contents(out) == expected, counted.operations[at - 1]
