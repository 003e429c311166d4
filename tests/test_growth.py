"""Work grows with the corpus, not with its square: calls are counted at N and 2N files, no clock.

Every Python function and every step of a generator is a call, so a sum inside a loop shows as a
factor of four where there should be two. Sums of C alone over plain lists do not show, and do not
hurt before a corpus has millions of files.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from tokenmill.cli import main

NUM_FILES = 250
MANY_SHARDS = ["--format", "datatrove", "--shard-tokens", "80"]
# Of the second half of the work to the first: 1 where work is linear, 3 where it is quadratic.
MAX_GROWTH = 1.4


def calls_during(work: Callable[[], int]) -> int:
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += 1

    sys.setprofile(note)
    try:
        code = work()
    finally:
        sys.setprofile(None)
    assert code == 0
    return count


def files_in(folder: Path, count: int) -> str:
    folder.mkdir(parents=True)
    for number in range(count):
        (folder / f"{number:05d}.txt").write_text(
            f"text number {number}, which is a short one. " * 8
        )
    return str(folder)


def growth(prepared: Callable[[int], list[str]]) -> float:
    """How much more the second NUM_FILES files cost than the first, beyond what none costs."""
    main(prepared(1))  # what is loaded and cached once
    few, some, many = (
        calls_during(lambda count=count: main(prepared(count)))
        for count in (1, NUM_FILES + 1, 2 * NUM_FILES + 1)
    )
    return (many - some) / (some - few)


@pytest.fixture
def corpora(tmp_path) -> Callable[[int], str]:
    made: dict[int, str] = {}

    def corpus(count: int) -> str:
        if count not in made:
            made[count] = files_in(tmp_path / f"corpus-{count}", count)
        return made[count]

    return corpus


@pytest.mark.parametrize(
    "command",
    [
        ["estimate", "CORPUS"],
        ["prepare", "CORPUS", "-o", "OUT", "--num-proc", "1", "--dry-run"],
        ["prepare", "CORPUS", "-o", "OUT", "--num-proc", "1"],
        ["prepare", "CORPUS", "-o", "OUT", "--num-proc", "1", "--shuffle"],
        [*["prepare", "CORPUS", "-o", "OUT", "--num-proc", "1"], *MANY_SHARDS],
    ],
    ids=["estimate", "dry-run", "prepare", "shuffle", "many-shards"],
)
def test_work_grows_with_the_number_of_files(command, corpora, tmp_path):
    made = iter(range(100))

    def arguments(count: int) -> list[str]:
        names = {"CORPUS": corpora(count), "OUT": str(tmp_path / f"out-{next(made)}")}
        return [names.get(word, word) for word in command]

    assert growth(arguments) < MAX_GROWTH


@pytest.mark.parametrize(
    "command",
    [["verify", "OUT"], ["inspect", "OUT"], ["convert", "OUT", "TO", "--format", "llmc"]],
    ids=["verify", "inspect", "convert"],
)
def test_work_grows_with_the_number_of_shards(command, corpora, tmp_path):
    """A shard a file, about."""
    outs: dict[int, str] = {}
    made = iter(range(100))

    def arguments(count: int) -> list[str]:
        if count not in outs:
            outs[count] = str(tmp_path / f"out-{count}")
            given = ["prepare", corpora(count), "-o", outs[count], "--format", "npy", "--no-val"]
            assert main([*given, "--shard-tokens", "80", "--num-proc", "1", "-q"]) == 0
        names = {"OUT": outs[count], "TO": str(tmp_path / f"to-{next(made)}")}
        return [names.get(word, word) for word in command]

    assert growth(arguments) < MAX_GROWTH


def test_texts_of_small_files_are_counted_once_each(corpora, monkeypatch):
    counted = []
    estimate = importlib.import_module("tokenmill.estimate")  # the name is the function's
    data_of = estimate.data_of
    monkeypatch.setattr(estimate, "data_of", lambda texts: counted.append(1) or data_of(texts))
    assert main(["estimate", corpora(NUM_FILES), "-q"]) == 0
    assert len(counted) <= 2 * NUM_FILES + 2
