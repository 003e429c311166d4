"""`--overwrite` over a finished dataset, interrupted at every moment: any command that opens the
folder finds the old dataset whole or the new one whole, and the same command ends with the new one
and nothing else. A command that fails leaves the old dataset as it is, byte for byte."""

from __future__ import annotations

import errno
import functools
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import scenarios
from disk import Crash, Failure, FaultyOs, Gone, disk
from power import LossyDisk
from scenarios import Files, Scenario, converted, corpus, differences, prepared, small_pieces

import tokenmill
from tokenmill.dataset import publication
from tokenmill.dataset.dataset import open_dataset
from tokenmill.dataset.inspect import look_into
from tokenmill.dataset.manifest import MANIFEST_NAME
from tokenmill.dataset.places import WORK_NAME
from tokenmill.errors import ConfigError, ConflictError, InputError, IntegrityError, OutputError
from tokenmill.storage.lock import lock

NUM_LOSSES = 40  # for each replacement
# Before publication, one of so many operations, which moves on with the seed.
EVERY = 8
ERRNOS = ["ENOSPC", "EIO"]
LOCK = f"{WORK_NAME}/lock"
JOURNAL = "publish.json"


@dataclass(frozen=True)
class Replacement:
    name: str
    old: Scenario
    new: Scenario

    def run(self, source: str, out: str) -> object:
        return self.new.run(source, out, overwrite=True)


def scenario(run: Callable[..., object], expected: Callable[[], Files], **options) -> Scenario:
    return Scenario("", functools.partial(run, **options), expected)


NANOGPT = scenario(prepared, scenarios.nanogpt_files, val="none")
PREPENDED = scenario(
    prepared, lambda: scenarios.nanogpt_files("prepend"), val="none", eot="prepend"
)
NPY = scenario(prepared, scenarios.npy_files, format="npy", shard_tokens=2000)
FEWER = scenario(prepared, lambda: scenarios.npy_files(5000), format="npy", shard_tokens=5000)
MDS = scenario(
    prepared, scenarios.mds_files, format="mds", seq_len=64, shard_tokens=2048, val="none"
)
CONVERTED = scenario(converted, scenarios.datatrove_files)
LONGER = scenario(converted, lambda: scenarios.datatrove_files(4000), shard_tokens=4000)

REPLACEMENTS = [
    Replacement("other options, same name and size", NANOGPT, PREPENDED),
    Replacement("fewer shards", NPY, FEWER),
    Replacement("another format", NPY, NANOGPT),
    Replacement("another format, folders", NANOGPT, MDS),
    Replacement("another format, no folders", MDS, FEWER),
    Replacement("the same", NPY, NPY),
    Replacement("convert, fewer shards", CONVERTED, LONGER),
    Replacement("convert over prepare", NPY, CONVERTED),
]
each_replacement = pytest.mark.parametrize("replacement", REPLACEMENTS, ids=lambda one: one.name)


@pytest.fixture(autouse=True)
def pieces(monkeypatch):
    small_pieces(monkeypatch)


def files_in(folder: str, hidden: bool = False) -> Files:
    """Every file; of the work folder only if asked."""
    found = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in Path(folder).rglob("*")
        if path.is_file()
    }
    return {name: data for name, data in found.items() if hidden or not name.startswith(".")}


class Trials:
    """The old dataset to begin with, again and again, and what may be found in its place."""

    def __init__(self, replacement: Replacement, scratch: Path) -> None:
        self.replacement = replacement
        self.source = corpus(scratch)
        (scratch / "root").mkdir()
        self.out = str(scratch / "root" / "out")
        self._kept = str(scratch / "kept")
        replacement.old.run(self.source, self._kept)
        assert not differences(self._kept, replacement.old.expected())
        self.old = files_in(self._kept)
        self.begin()
        self.run()  # what a first run makes beside `out` is not part of the trials
        self.begin()
        with disk(FaultyOs()) as counting:
            self.run()
        assert not differences(self.out, replacement.new.expected())
        assert tokenmill.verify(self.out).is_whole
        assert not os.path.exists(os.path.join(self.out, WORK_NAME))
        self.new = files_in(self.out)
        self.operations = counting.operations
        self.publication = next(
            number for number, one in enumerate(self.operations, 1) if f" {JOURNAL}" in one
        )

    def begin(self) -> None:
        shutil.rmtree(self.out, ignore_errors=True)
        shutil.copytree(self._kept, self.out)

    def run(self) -> None:
        self.replacement.run(self.source, self.out)

    def crash(self, fault: Crash) -> None:
        self.begin()
        with pytest.raises(Gone), disk(FaultyOs(fault)):
            self.run()

    def moments(self, seed: int, every: int) -> list[int]:
        """Operations up to the publication, of which a share is enough, and those of it."""
        before = range(1 + seed % EVERY, self.publication, EVERY * every)
        first = self.publication + seed % every
        return [*before, *range(first, len(self.operations) + 1, every)]

    def check_manifest(self, trial: object) -> None:
        """Before anybody completes anything: a manifest that is there has all its files."""
        found = files_in(self.out)
        if (manifest := found.get(MANIFEST_NAME)) is None:
            return
        whole = [one for one in (self.old, self.new) if one[MANIFEST_NAME] == manifest]
        assert whole, f"{trial}: a manifest of neither"
        assert whole[0].items() <= found.items(), f"{trial}: a manifest of a mixture"

    def check_one_is_whole(self, trial: object) -> str:
        self.check_manifest(trial)
        dataset = open_dataset(self.out)
        found = files_in(self.out)
        is_new = found == self.new
        assert is_new or found == self.old, f"{trial}: {sorted(found)}"
        assert dataset.manifest is not None
        assert dataset.manifest.to_json() == found[MANIFEST_NAME]
        return "the new one" if is_new else "the old one"

    def check_ends_well(self, trial: object) -> None:
        self.run()
        assert files_in(self.out, hidden=True) == self.new, trial
        assert not os.path.exists(os.path.join(self.out, WORK_NAME))


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@each_replacement
def test_crash_at_every_operation_then_one_is_whole_and_the_command_continues(
    replacement, after, seed, share, scratch, tally
):
    trials = Trials(replacement, scratch)
    seen = set()
    for at in trials.moments(seed + after, share):
        trial = f"Crash({at}, {after}) at {trials.operations[at - 1]}"
        trials.crash(Crash(at, after))
        seen.add(trials.check_one_is_whole(trial))
        trials.check_ends_well(trial)
        tally.add("crash points of --overwrite", "old or new, then identical")
    assert seen == {"the old one", "the new one"} or trials.old == trials.new


@each_replacement
def test_crash_in_publication_then_the_command_continues_though_nobody_opened_it(
    replacement, seed, share, scratch, tally
):
    """The command itself completes what it finds, and repeats crashes on the way."""
    trials = Trials(replacement, scratch)
    rng = random.Random(replacement.name)
    last = len(trials.operations) + 1
    for at in range(trials.publication + seed % share, last, share):
        trials.crash(Crash(at))
        try:
            with disk(FaultyOs(Crash(rng.randrange(1, last - trials.publication), after=True))):
                trials.run()
        except Gone:
            trials.check_manifest(at)
        trials.check_ends_well(at)
        tally.add("crash points of --overwrite", "old or new, then identical")


@pytest.mark.parametrize("for_good", [False, True], ids=["once", "for good"])
@pytest.mark.parametrize("name", ERRNOS)
@each_replacement
def test_every_operation_fails_then_one_is_whole_and_the_command_continues(
    replacement, name, for_good, seed, share, scratch, tally
):
    trials = Trials(replacement, scratch)
    # Half of them for each: every operation fails with both errnos, once or for good.
    number = seed + for_good + ERRNOS.index(name)
    for at in trials.moments(number, 2 * share):
        trials.begin()
        fault = Failure(at, getattr(errno, name), for_good)
        trial = f"{fault} at {trials.operations[at - 1]}"
        faulty = FaultyOs(fault)
        try:
            with disk(faulty):
                trials.run()
        except OutputError as error:
            assert error.exit_code == 4 and error.hint, trial
        check_reader_is_told(trials, faulty, trial)
        trials.check_one_is_whole(trial)
        trials.check_ends_well(trial)
        tally.add("disk errors of --overwrite", "old or new, then identical")


def check_reader_is_told(trials: Trials, faulty: FaultyOs, trial: str) -> None:
    """While the disk still fails: a whole dataset, or the reason why there is none."""
    try:
        with disk(faulty):
            open_dataset(trials.out)
    except OutputError as error:
        assert "was not completely moved into place" in error.message, trial
        assert "tokenmill inspect" in (error.hint or ""), trial
        return
    assert files_in(trials.out) in (trials.old, trials.new), trial


@each_replacement
def test_power_loss_then_one_is_whole_and_the_command_continues(
    replacement, seed, share, scratch, tally
):
    trials = Trials(replacement, scratch)
    first, last = trials.publication, len(trials.operations)
    for number in range(seed * NUM_LOSSES, (seed + 1) * NUM_LOSSES, share):
        rng = random.Random(f"{replacement.name} {number}")
        at = rng.randint(1 if number % 4 == 0 else first, last)
        trials.begin()
        lossy = LossyDisk(str(scratch / "root"), Crash(at, after=True))
        with pytest.raises(Gone), disk(lossy):
            trials.run()
        lossy.lose(number)
        trial = f"loss {number} at {at}: {trials.operations[at - 1]}"
        trials.check_one_is_whole(trial)
        trials.check_ends_well(trial)
        tally.add("power losses of --overwrite", "old or new, then identical")


# Commands that only read


def inspected(out: str, scratch: Path) -> None:
    # As cli/inspect.py does, which would keep the signals to itself.
    assert look_into(out).dataset.num_tokens


def verified(out: str, scratch: Path) -> None:
    assert tokenmill.verify(out).is_whole


def converted_on(out: str, scratch: Path) -> None:
    tokenmill.convert(out, scratch / "other", format="npy")


def opened(out: str, scratch: Path) -> None:
    assert open_dataset(out).num_tokens


READERS = [inspected, verified, converted_on, opened]
each_reader = pytest.mark.parametrize("reader", READERS)


@pytest.fixture
def trials(scratch) -> Trials:
    return Trials(REPLACEMENTS[2], scratch)


def operation(trials: Trials, what: str) -> int:
    """The number of the last operation that is called like this."""
    found = [number for number, one in enumerate(trials.operations, 1) if one == what]
    return found[-1]


@each_reader
def test_reader_when_publication_was_interrupted_then_it_completes_it(reader, trials, scratch):
    trials.crash(Crash(operation(trials, "unlink tokenmill.json"), after=True))
    assert MANIFEST_NAME not in files_in(trials.out)
    reader(trials.out, scratch)
    assert files_in(trials.out, hidden=True) == trials.new


@each_reader
def test_reader_when_the_new_dataset_is_not_complete_then_it_sees_the_old_one(
    reader, trials, scratch
):
    trials.crash(Crash(trials.publication))
    before = files_in(trials.out, hidden=True)
    reader(trials.out, scratch)
    assert files_in(trials.out, hidden=True) == before
    assert trials.old.items() <= before.items()


def test_reader_when_a_live_run_publishes_then_conflict(trials):
    trials.crash(Crash(operation(trials, "unlink tokenmill.json"), after=True))
    with lock(os.path.join(trials.out, LOCK)):
        for read in (open_dataset, tokenmill.verify):
            with pytest.raises(ConflictError, match="is being replaced by a new dataset") as caught:
                read(trials.out)
            assert "process" in caught.value.message and "wait" in (caught.value.hint or "")
    assert trials.check_one_is_whole("lock") == "the new one"


def test_reader_when_a_live_run_only_cleans_up_then_it_sees_the_new_one(trials):
    trials.crash(Crash(operation(trials, "unlink plan.json")))
    assert files_in(trials.out) == trials.new
    with lock(os.path.join(trials.out, LOCK)):
        assert open_dataset(trials.out).num_tokens
        assert tokenmill.verify(trials.out).is_whole


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_reader_when_the_folder_cannot_be_written_then_it_says_so(number, trials):
    trials.crash(Crash(operation(trials, "unlink tokenmill.json"), after=True))
    with disk(FaultyOs(Failure(1, number, for_good=True))):
        for read in (open_dataset, tokenmill.verify):
            with pytest.raises(OutputError, match="was not completely moved into place"):
                read(trials.out)
    assert trials.check_one_is_whole(number) == "the new one"


def test_reader_when_the_folder_cannot_be_written_and_only_cleaning_is_left_then_it_reads(trials):
    trials.crash(Crash(operation(trials, "unlink plan.json")))
    with disk(FaultyOs(Failure(1, errno.EROFS, for_good=True))):
        assert open_dataset(trials.out).num_tokens
        assert tokenmill.verify(trials.out).is_whole


def test_overwrite_when_the_publication_is_damaged_then_it_starts_again(scratch):
    trials = Trials(REPLACEMENTS[1], scratch)
    trials.crash(Crash(operation(trials, "unlink tokenmill.json"), after=True))
    journal = Path(trials.out, WORK_NAME, JOURNAL)
    journal.write_bytes(journal.read_bytes()[:-20])
    with pytest.raises(IntegrityError) as caught:
        open_dataset(trials.out)
    assert caught.value.hint == "start again with --overwrite"
    trials.check_ends_well("damaged")


def test_overwrite_when_the_same_dataset_is_damaged_then_its_shards_are_replaced(scratch):
    """The manifest is the same to the byte; what it describes is not."""
    trials = Trials(REPLACEMENTS[5], scratch)
    assert trials.old == trials.new
    name = next(name for name in trials.old if name.endswith(".npy"))
    for at in (None, Crash(trials.publication + 4, after=True)):
        trials.begin()
        damaged = bytearray(trials.old[name])
        damaged[-1] ^= 1
        Path(trials.out, name).write_bytes(damaged)
        if at is not None:
            with pytest.raises(Gone), disk(FaultyOs(at)):
                trials.run()
        trials.check_ends_well(at)


# Commands that fail


def blank(folder: Path) -> str:
    """Rows of which nothing is written."""
    path = folder / "blank.jsonl"
    path.write_text('{"text": ""}\n' * 5)
    return str(path)


def empty(folder: Path) -> str:
    path = folder / "empty.txt"
    path.write_bytes(b"")
    return str(path)


FAILING = {
    "empty input": lambda folder, out: prepared(empty(folder), out, overwrite=True),
    "nothing to write": lambda folder, out: prepared(blank(folder), out, overwrite=True),
    "wrong column": lambda folder, out: prepared(
        corpus(folder), out, text_column="body", overwrite=True
    ),
    "wrong column, inputs found": lambda folder, out: prepared(
        blank(folder), out, text_column="body", overwrite=True, format="npy"
    ),
}


@pytest.mark.parametrize("what", FAILING)
def test_command_that_fails_then_the_old_dataset_is_what_it_was(what, trials, scratch):
    trials.begin()
    with pytest.raises((ConfigError, InputError)):
        FAILING[what](scratch, trials.out)
    assert files_in(trials.out, hidden=True) == trials.old
    assert not os.path.exists(os.path.join(trials.out, WORK_NAME))
    trials.check_ends_well(what)


def test_command_that_cannot_be_planned_then_the_run_under_way_is_what_it_was(trials, scratch):
    trials.crash(Crash(trials.publication - 10))
    before = files_in(trials.out, hidden=True)
    with pytest.raises(ConfigError):
        FAILING["wrong column"](scratch, trials.out)
    assert files_in(trials.out, hidden=True) == before
    trials.check_ends_well("wrong column")


def test_too_many_bad_rows_then_the_old_dataset_is_what_it_was_and_the_run_resumes(trials):
    trials.begin()
    with pytest.raises(InputError, match="--max-bad-fraction"):
        prepared(trials.source, trials.out, val="none", max_bad_fraction=0.0, overwrite=True)
    assert files_in(trials.out) == trials.old
    assert trials.check_one_is_whole("bad rows") == "the old one"
    trials.check_ends_well("bad rows")


def test_conversion_of_a_damaged_dataset_then_the_old_one_is_what_it_was(scratch):
    trials = Trials(REPLACEMENTS[7], scratch)
    trials.begin()
    made = Path(trials.source).parent / "made"
    path = next(iter(sorted(made.glob("*.npy"))))
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(IntegrityError):
        trials.run()
    assert files_in(trials.out) == trials.old
    assert trials.check_one_is_whole("damaged source") == "the old one"
    path.write_bytes(whole)
    trials.check_ends_well("damaged source")


# What an attempt that died has staged


def test_overwrite_when_a_staged_shard_is_gone_after_a_kill_then_the_old_one_does_not_pass_for_it(
    tmp_path, monkeypatch
):
    """The old shards have the new ones' names and sizes, because only the order differs."""
    source, out = corpus(tmp_path), str(tmp_path / "out")
    options = {"format": "npy", "shard_tokens": 2000, "shuffle": True}
    prepared(source, out, **options, seed=1)
    run = functools.partial(prepared, source, out, **options, seed=2, overwrite=True)
    with monkeypatch.context() as patch:
        patch.setattr(publication, "_move_files", functools.partial(raise_, KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            run()
    staged = sorted(Path(out).glob(f"{WORK_NAME}/*/shards/*.npy"))
    staged[-1].unlink()
    with pytest.raises(IntegrityError, match="is missing or has changed"):
        prepared(source, out, **options, seed=2)
    with pytest.raises(IntegrityError, match="is missing or has changed"):
        tokenmill.open(out)
    manifest = run()
    assert tokenmill.verify(out).is_whole
    assert manifest == prepared(source, str(tmp_path / "new"), **options, seed=2)


def interrupted(source: str, out: str, num_moved: int, monkeypatch, **options: object) -> None:
    """A run with --overwrite that died after it had moved `num_moved` files."""
    move, left = publication.disk.rename_if_there, [num_moved]

    def some(*arguments: str) -> bool:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return move(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(publication.disk, "rename_if_there", some)
        with pytest.raises(KeyboardInterrupt):
            prepared(source, out, overwrite=True, **options)


def test_resume_when_a_staged_shard_was_changed_after_a_kill_then_it_is_not_published(
    tmp_path, monkeypatch
):
    source, out = corpus(tmp_path), str(tmp_path / "out")
    options = {"format": "npy", "shard_tokens": 2000, "shuffle": True}
    prepared(source, out, **options, seed=1)
    interrupted(source, out, 2, monkeypatch, **options, seed=2)
    staged = sorted(Path(out).glob(f"{WORK_NAME}/*/shards/*.npy"))[-1]
    data = bytearray(staged.read_bytes())
    data[-3] ^= 1
    staged.write_bytes(data)
    with pytest.raises(IntegrityError, match="has changed since it was written"):
        prepared(source, out, **options, seed=2)
    prepared(source, out, **options, seed=2, overwrite=True)
    assert tokenmill.verify(out).is_whole


@pytest.mark.parametrize(
    "formats", [("npy", "megatron", "nanogpt"), ("nanogpt", "npy", "megatron")]
)
def test_overwrite_when_a_publication_is_abandoned_then_nothing_of_it_is_left(
    formats, tmp_path, monkeypatch
):
    source, out = corpus(tmp_path), str(tmp_path / "out")
    first, second, third = formats
    prepared(source, out, format=first)
    interrupted(source, out, 1, monkeypatch, format=second)
    journal = Path(out, WORK_NAME, JOURNAL)
    for path in Path(out).glob(f"{WORK_NAME}/*/shards/*"):
        path.unlink()
    assert journal.exists()
    manifest = prepared(source, out, format=third, overwrite=True)
    names = {"tokenmill.json", *(file.name for file in manifest.files)}
    assert {p.relative_to(out).as_posix() for p in Path(out).rglob("*") if p.is_file()} == names


def raise_(error: BaseException, *_: object) -> None:
    raise error
