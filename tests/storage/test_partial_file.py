from __future__ import annotations

import random
import sys
import threading

import pytest

from tokenmill.storage.byte_ranges import ByteRanges
from tokenmill.storage.partial_file import JOURNAL_SUFFIX, InUse, PartialFile


def test_ranges_are_those_of_a_set():
    for seed in range(200):
        chance, oracle, ranges = random.Random(seed), set(), ByteRanges()
        for _ in range(chance.randrange(12)):
            start = chance.randrange(40)
            stop = start + chance.randrange(12)
            ranges.add(start, stop)
            oracle |= set(range(start, stop))
        assert {at for start, stop in ranges for at in range(start, stop)} == oracle
        missing = {at for start, stop in ranges.gaps(45) for at in range(start, stop)}
        assert missing == set(range(45)) - oracle
        assert ranges.num_bytes == len(oracle)
        assert ranges.prefix == next(at for at in range(60) if at not in oracle)
        assert ranges.stop == max(oracle, default=-1) + 1
        bounds = [bound for pair in ranges for bound in pair]
        assert bounds == sorted(set(bounds))  # as few as possible


def reopened(path: str) -> list[tuple[int, int]]:
    partial = PartialFile(path)
    try:
        return list(partial.ranges)
    finally:
        partial.close()


@pytest.fixture
def path(tmp_path) -> str:
    return str(tmp_path / "x.partial")


def test_partial_file_when_opened_again_then_knows_its_pieces(path):
    partial = PartialFile(path)
    for offset, data in ((50, b"c" * 10), (0, b"a" * 10), (10, b"b" * 5)):
        partial.write(memoryview(data), offset)
    assert partial.read(5, 10) == b"b" * 5
    with pytest.raises(InUse):
        PartialFile(path)
    partial.close()
    assert reopened(path) == [(0, 15), (50, 60)]


def test_journal_that_was_cut_short_then_its_last_range_is_forgotten(path):
    partial = PartialFile(path)
    partial.write(memoryview(b"a" * 10), 0)
    partial.write(memoryview(b"b" * 10), 10)
    partial.close()
    with open(path + JOURNAL_SUFFIX, "r+b") as journal:
        journal.truncate(20)
    assert reopened(path) == [(0, 10)]


def test_journal_that_outlived_its_file_then_is_not_believed_even_when_the_file_grows(
    path, tmp_path
):
    partial = PartialFile(path)
    partial.write(memoryview(b"a" * 100), 0)
    partial.close()
    (tmp_path / "x.partial").rename(tmp_path / "done")
    partial = PartialFile(path)
    assert list(partial.ranges) == []
    partial.write(memoryview(b"b"), 99)
    partial.close()
    assert reopened(path) == [(99, 100)]


def test_partial_file_of_an_older_tokenmill_then_its_bytes_count(path, tmp_path):
    (tmp_path / "x.partial").write_bytes(b"a" * 70)
    assert reopened(path) == [(0, 70)]


def test_num_bytes_while_another_thread_writes_then_never_falls(tmp_path):
    partial = PartialFile(str(tmp_path / "file"))
    starts = range(0, 40_000, 4)
    for start in starts:  # many, so that counting them takes a while
        partial.ranges.add(start, start + 1)

    def write() -> None:
        for start in starts[:5000]:
            partial.write(memoryview(b"x"), start + 2)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        writing = threading.Thread(target=write)
        writing.start()
        found = [partial.num_bytes]
        while writing.is_alive():
            found.append(partial.num_bytes)
        writing.join()
    finally:
        sys.setswitchinterval(before)
        partial.close()
    assert found == sorted(found) and len(found) > 10
