"""Shard tasks, carried out in any order and twice, against the cut rule said slowly with lists."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import itertools
import json
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import oracle
import shard_oracle
from corpora import write_corpus
from tokenmill import prepare
from tokenmill.arrays import binary_array
from tokenmill.assemble import writing
from tokenmill.assemble.books import Assembly, Output
from tokenmill.assemble.fitting import FittingOptions
from tokenmill.assemble.sources import task_of
from tokenmill.assemble.task import ShardTask
from tokenmill.assemble.writing import carry_out
from tokenmill.encode.part import TOKENS, PartWriter
from tokenmill.encode.record import Counts, PartRecord
from tokenmill.errors import DamagedWorkError
from tokenmill.formats import Layout, get_format
from tokenmill.runners import workload

EOT_ID = 50256
PIECE_BYTES = 4096
CHUNK_BYTES = 5000
MARK_TOKENS = 500
NUM_BUCKETS = 5
SEED = 7
# Numbers of tokens that fit nothing evenly.
LAYOUTS: dict[str, tuple[str, int | None, int, bool]] = {
    "nanogpt": ("nanogpt", None, 0, False),
    "npy": ("npy", 3_000, 0, False),
    "npy-first-shard": ("npy", 5_000, 0, True),
    "llmc": ("llmc", 3_001, 0, False),
    "llmc-first-shard": ("llmc", 1_000, 0, True),
    "megatron": ("megatron", 2_500, 0, False),
    "megatron-one": ("megatron", None, 0, False),
    "megatron-first-shard": ("megatron", 2_501, 0, True),
    "datatrove": ("datatrove", 1_700, 0, False),
    "olmo": ("olmo", 4_222, 0, False),
    "olmo-first-shard": ("olmo", 2_222, 0, True),
    "mds": ("mds", 2_048, 64, False),
    "mds-documents": ("mds", 2_000, 0, False),
    "litdata": ("litdata", 2_000, 0, False),
    "litdata-samples": ("litdata", 2_000, 100, False),
    "parquet": ("parquet", 2_000, 0, False),
    "parquet-samples": ("parquet", 77 * 30, 77, False),
}
APART = ("megatron", "olmo", "datatrove", "mds", "parquet")
Documents = list[list[int]]


@pytest.fixture(autouse=True)
def small_units(monkeypatch):
    monkeypatch.setattr("tokenmill.storage.hashing.PIECE_BYTES", PIECE_BYTES)
    monkeypatch.setattr("tokenmill.encode.part.CHUNK_BYTES", CHUNK_BYTES)
    monkeypatch.setattr("tokenmill.assemble.writing.MARK_TOKENS", MARK_TOKENS)


# The oracle: lists, and no code of tokenmill's.


@dataclass(frozen=True)
class Corpus:
    """Slices of documents, each with its split: 0 is train, 1 is val."""

    slices: list[list[tuple[int, list[int]]]]

    def in_order(self, split: int) -> Documents:
        return [ids for slice_ in self.slices for side, ids in slice_ if side == split]

    def shuffled(self, split: int) -> Documents:
        """By key; equal keys as they stand in the corpus."""
        keyed = [
            (key, ids)
            for number, slice_ in enumerate(self.slices)
            for side, key, ids in _with_keys(number, slice_)
            if side == split
        ]
        return [ids for _, ids in sorted(keyed, key=lambda pair: pair[0])]


def _with_keys(number: int, slice_: list[tuple[int, list[int]]]) -> Iterator[tuple]:
    """A slice's documents with their keys, which are numbered run by run, train before val."""
    count = 0
    for run in _runs_of(slice_):
        for side, ids in sorted(run, key=lambda pair: pair[0]):
            yield side, _key(SEED, number, count), ids
            count += 1


def _runs_of(slice_: list[tuple[int, list[int]]]) -> Iterator[list[tuple[int, list[int]]]]:
    run: list[tuple[int, list[int]]] = []
    for pair in slice_:
        run.append(pair)
        if sum(2 * len(ids) for _, ids in run) >= CHUNK_BYTES:
            yield run
            run = []
    yield run


def _key(seed: int, slice_number: int, count: int) -> int:
    """The upper half of splitmix64, twice."""
    mask = (1 << 64) - 1
    state = count + (slice_number << 36) & mask
    for _ in range(2):
        state = state + (seed + 1) * 0x9E3779B97F4A7C15 & mask
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & mask
        state = (state ^ state >> 27) * 0x94D049BB133111EB & mask
        state ^= state >> 31
    return state >> 32


def _joined(documents: Documents) -> list[int]:
    return list(itertools.chain.from_iterable(documents))


def cut_through(documents: Documents, limit: int | None) -> Documents:
    """Shards that are full, whatever is cut by that."""
    tokens = _joined(documents)
    step = limit or len(tokens) or 1
    return [tokens[at : at + step] for at in range(0, len(tokens), step)]


def cut_between(documents: Documents, limit: int | None) -> list[Documents]:
    """Shards of whole documents. One that is larger than a shard has a shard for itself."""
    shards: list[Documents] = []
    num_tokens = 0
    for ids in documents:
        if not shards or num_tokens + len(ids) > (limit or 1 << 60):
            shards.append([])
            num_tokens = 0
        shards[-1].append(ids)
        num_tokens += len(ids)
    return shards


def wanted_shards(layout: Layout, documents: Documents) -> Documents:
    """The tokens of each shard of one stream."""
    if layout.has_boundaries:
        return [_joined(shard) for shard in cut_between(documents, layout.shard_tokens)]
    if layout.seq_len and layout.format in APART:  # what fills no sample is left out
        tokens = _joined(documents)
        documents = [tokens[: len(tokens) - len(tokens) % layout.seq_len]]
    return cut_through(documents, layout.shard_tokens)


def wanted_pieces(data: bytes, format_name: str) -> str | tuple[str, ...]:
    """The sha256 of a file, or of each of its pieces if there are several and it is raw."""
    step = len(data) if format_name in ("mds", "parquet") else PIECE_BYTES
    found = [data[at : at + step] for at in range(0, len(data), step)]
    digests = tuple(hashlib.sha256(piece).hexdigest() for piece in found)
    return digests if len(digests) > 1 else digests[0]


def wanted_marks(tokens: list[int], num_tokens_with_tail: int) -> list[tuple[int, int]]:
    return [
        (tokens[:at].count(EOT_ID), at)
        for at in range(MARK_TOKENS, num_tokens_with_tail, MARK_TOKENS)
    ]


# What is tested: parts, written by their writer, and the assembly of them.


def layout_named(name: str) -> Layout:
    format_name, shard_tokens, seq_len, first_shard_is_val = LAYOUTS[name]
    format_ = get_format(format_name)
    return Layout(
        format=format_name,
        name=format_.defaults.name or "",
        dtype="uint16",
        shard_tokens=shard_tokens,
        seq_len=seq_len,
        first_shard_is_val=first_shard_is_val,
        eot_id=EOT_ID,
        encoding="gpt2",
        has_boundaries=format_.traits.boundaries and not seq_len,
    )


def random_corpus(rng: random.Random, lengths: list[int], val_fraction: float) -> Corpus:
    slices = []
    for _ in range(rng.randint(1, 9)):
        slice_ = []
        for _ in range(rng.choice([0, 1, 2, 30, 60])):
            ids = [rng.randrange(50_000) for _ in range(rng.choice(lengths))]
            slice_.append((int(rng.random() < val_fraction), [*ids, EOT_ID]))
        slices.append(slice_)
    slices.append([(0, [1, EOT_ID])])  # something, in any case
    return Corpus(slices)


def corpus_for(layout: Layout, rng: random.Random, lengths: list[int]) -> Corpus:
    """Where the first shard is for validation, no document is held out."""
    return random_corpus(rng, lengths, 0 if layout.first_shard_is_val else rng.choice([0.1, 0.3]))


def written_parts(work: str, corpus: Corpus, num_buckets: int) -> list[PartRecord]:
    for name in ("parts", "records"):
        os.makedirs(os.path.join(work, name))
    records = []
    for number, slice_ in enumerate(corpus.slices):
        writer = PartWriter(work, number, "uint16", num_buckets, SEED)
        for split, ids in slice_:
            data = np.array(ids, "<u2")
            writer.append(
                split, pa.record_batch([binary_array(np.array([0, data.nbytes]), data)], [TOKENS])
            )
        records.append(writer.commit("plan", Counts(), ()))
    return records


def travelled(task: ShardTask) -> ShardTask:
    """A task as a worker on another machine gets it."""
    return task_of(json.loads(json.dumps(task.to_plain())))


class Disorder:
    """Hands records and tasks over in random order, some tasks twice; may give up at any moment."""

    def __init__(
        self,
        work: str,
        layout: Layout,
        records: list[PartRecord],
        num_buckets: int,
        options: FittingOptions | None = None,
    ):
        self._options = options or FittingOptions()
        self._work = work
        self._layout = layout
        self._records = records
        self._num_buckets = num_buckets

    def new_assembly(self) -> Assembly:
        layout, num_slices = self._layout, len(self._records)
        return Assembly(self._work, "plan", layout, self._options, num_slices, self._num_buckets)

    def carried_out(self, rng: random.Random, num_steps: int | None = None) -> Output | None:
        """All of it; or None if it was given up after so many steps."""
        assembly = self.new_assembly()
        todo: list[PartRecord | ShardTask] = list(self._records)
        done: list[ShardTask] = []
        for step in itertools.count():
            todo += assembly.due
            assembly.due.clear()
            if not todo:
                break
            if step == num_steps:
                return None
            item = todo.pop(rng.randrange(len(todo)))
            if isinstance(item, PartRecord):
                assembly.add(item)
                continue
            record = self._written(item, rng)
            done.append(item)
            assembly.done(record)
            again = rng.choice(done)  # by a worker that was thought to be dead
            assert carry_out(travelled(again)).place == (again.stream, again.shard, again.piece)
        assert assembly.is_done
        return assembly.finished()

    @staticmethod
    def _written(task: ShardTask, rng: random.Random):  # type: ignore[no-untyped-def]
        is_new = not os.path.exists(task.path)  # else, what it was made of may be gone
        record = carry_out(travelled(task))
        if (
            is_new and rng.random() < 0.3
        ):  # killed before its record was there: the bytes are written again
            os.remove(task.path)
            assert carry_out(travelled(task)) == record
        return record


def require_wanted(
    folder: str, layout: Layout, corpus: Corpus, shuffle: bool, output: Output
) -> None:
    """Compare files and records with what the oracle says."""
    found_shards = shard_oracle.shards(Path(folder), layout.format)
    streams = [(corpus.shuffled if shuffle else corpus.in_order)(side) for side in (0, 1)]
    wanted: dict[str, Documents] = {"train": [], "val": []}
    for split, documents in zip(("train", "val"), streams, strict=True):
        shards = wanted_shards(layout, documents)
        if layout.first_shard_is_val and split == "train":
            wanted["val"] += shards[:1]
            shards = shards[1:]
        wanted[split] += shards
    assert found_shards == wanted
    if layout.has_boundaries:
        require_documents(folder, layout, streams)
    require_described(folder, layout, wanted, output)


def require_documents(folder: str, layout: Layout, streams: list[Documents]) -> None:
    train, val = (cut_between(documents, layout.shard_tokens) for documents in streams)
    if layout.first_shard_is_val:
        train, val = train[1:], train[:1]
    found = shard_oracle.shards_apart(Path(folder), layout.format)
    assert found == {"train": train, "val": val}
    if layout.format == "olmo":  # which numbers the documents of a split
        for split, shards in (("train", train), ("val", val)):
            paths = sorted(Path(folder).glob(f"*-{split}-?????.csv.gz"))
            data = b"".join(gzip.decompress(path.read_bytes()) for path in paths)
            ids = [int(row.split(",")[2]) for row in data.decode().splitlines()]
            assert ids == list(range(sum(map(len, shards))))


def require_described(
    folder: str, layout: Layout, wanted: dict[str, Documents], output: Output
) -> None:
    for split in ("train", "val"):
        shards = [shard for shard in output.shards if shard.split == split]
        assert [shard.num_tokens for shard in shards] == [len(tokens) for tokens in wanted[split]]
        for number, (shard, tokens) in enumerate(zip(shards, wanted[split], strict=True)):
            data = (Path(folder) / shard.name).read_bytes()
            assert shard.num_bytes == len(data)
            assert shard.sha256 == wanted_pieces(data, layout.format), shard.name
            assert shard.num_eot == tokens.count(EOT_ID)
            with_tail = len(tokens)
            if number == len(shards) - 1:
                with_tail += output.tails[split].num_tokens
            marks = wanted_marks(tokens, with_tail)
            if with_tail == len(tokens):
                assert list(shard.marks) == marks
            else:
                assert list(shard.marks)[: len(marks) - 1] == marks[:-1]
            if layout.has_boundaries:
                assert (shard.num_documents or 0) >= 1
            for side in shard.side_files:
                beside = (Path(folder) / side.name).read_bytes()
                assert (side.num_bytes, side.sha256) == (
                    len(beside),
                    hashlib.sha256(beside).hexdigest(),
                )


def assembled(
    folder: Path, layout: Layout, corpus: Corpus, shuffle: bool, rng: random.Random, stops: int = 0
) -> tuple[str, Output]:
    """Shards of the corpus, made in disorder, after so many attempts that were given up."""
    work = str(folder)
    num_buckets = NUM_BUCKETS if shuffle else 0
    disorder = Disorder(work, layout, written_parts(work, corpus, num_buckets), num_buckets)
    for _ in range(stops):
        output = disorder.carried_out(rng, rng.randrange(2, 40))
        if output is not None:
            break
    output = disorder.carried_out(rng)
    assert output is not None
    return os.path.join(work, "shards"), output


SHUFFLES = pytest.mark.parametrize("shuffle", [False, True], ids=["in-order", "shuffled"])


@SHUFFLES
@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("seed", range(4))
def test_tasks_when_carried_out_in_any_order_and_twice_then_the_oracles_shards(
    scratch, name, shuffle, seed
):
    rng = random.Random(f"{name} {shuffle} {seed}")
    layout = layout_named(name)
    corpus = corpus_for(layout, rng, [0, 1, 20, 60, 300, 1_000])
    folder, output = assembled(scratch / "work", layout, corpus, shuffle, rng)
    require_wanted(folder, layout, corpus, shuffle, output)


@SHUFFLES
@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("seed", range(2))
def test_tasks_when_documents_are_larger_than_shards_then_the_oracles_shards(
    scratch, name, shuffle, seed
):
    rng = random.Random(f"large {name} {shuffle} {seed}")
    layout = layout_named(name)
    limit = layout.shard_tokens or 2_048
    lengths = [limit - 2, limit - 1, limit, limit + 1, 2 * limit, 3 * limit + 7, 0, 1, 5]
    corpus = corpus_for(layout, rng, lengths)
    corpus = Corpus([slice_[:8] for slice_ in corpus.slices])
    folder, output = assembled(scratch / "work", layout, corpus, shuffle, rng)
    require_wanted(folder, layout, corpus, shuffle, output)


@SHUFFLES
@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("seed", range(3))
def test_tasks_when_attempts_are_given_up_then_the_next_one_ends_with_the_oracles_shards(
    scratch, name, shuffle, seed
):
    """A new attempt knows nothing but the records; parts that were used are gone."""
    rng = random.Random(f"stops {name} {shuffle} {seed}")
    layout = layout_named(name)
    corpus = corpus_for(layout, rng, [0, 1, 20, 60, 300, 6_000])
    corpus = Corpus([slice_[:25] for slice_ in corpus.slices])
    folder, output = assembled(scratch / "work", layout, corpus, shuffle, rng, stops=3)
    require_wanted(folder, layout, corpus, shuffle, output)


@pytest.mark.parametrize("is_fitted", [False, True], ids=["by documents", "by tokens"])
@pytest.mark.parametrize("name", [name for name in LAYOUTS if name.startswith(APART)])
@pytest.mark.parametrize("seed", range(3))
def test_tasks_when_a_slice_is_a_document_and_attempts_are_given_up_then_the_next_one_ends(
    scratch, name, seed, is_fitted
):
    """Where a shard ends is then seen in a part that it has no token of: that part must stay, or
    the next attempt cannot find the end again."""
    rng = random.Random(f"slices {name} {seed}")
    layout = layout_named(name)
    limit = layout.shard_tokens or 3_000
    documents = [[9] * rng.randrange(limit // 4, limit // 2) + [EOT_ID] for _ in range(30)]
    corpus = Corpus([[(0, document)] for document in documents])
    is_split = is_fitted and not layout.first_shard_is_val
    options = FittingOptions(is_split=is_split, val_fraction=0.3)
    records = written_parts(str(scratch / "work"), corpus, 0)
    disorder = Disorder(str(scratch / "work"), layout, records, 0, options)
    for stop in (45, 45, 45, None):
        output = disorder.carried_out(rng, stop)
    assert output is not None
    written = sum(shard.num_tokens for shard in output.shards)
    left = sum(tail.num_tokens for tail in output.tails.values())
    assert written + left == sum(map(len, documents))


@SHUFFLES
@pytest.mark.parametrize("name", ["nanogpt", "npy", "megatron", "megatron-one", "olmo"])
def test_tasks_when_pieces_end_with_documents_and_shards_then_the_oracles_shards(
    scratch, name, shuffle
):
    """Documents, runs, pieces and shards that all end at once, and just not."""
    layout = layout_named(name)
    piece = PIECE_BYTES // 2
    if layout.shard_tokens:
        layout = dataclasses.replace(layout, shard_tokens=2 * piece)
    for difference in (-1, 0, 1):
        lengths = [piece, piece // 2, piece // 4, piece + difference, 2 * piece, piece, 1, piece]
        documents = [(0, [9] * (length - 1) + [EOT_ID]) for length in lengths * 2]
        corpus = Corpus([documents[:5], [], documents[5:6], documents[6:]])
        rng = random.Random(difference)
        folder, output = assembled(scratch / f"{difference}", layout, corpus, shuffle, rng, 2)
        require_wanted(folder, layout, corpus, shuffle, output)


@pytest.mark.parametrize("name", LAYOUTS)
def test_tasks_when_all_are_done_then_no_part_is_left(scratch, name):
    """In order, a part goes with the last task that needs it."""
    rng = random.Random(name)
    layout = layout_named(name)
    work = scratch / "work"
    folder, _ = assembled(work, layout, corpus_for(layout, rng, [20, 300]), False, rng)
    assert list((work / "parts").iterdir()) == []
    assert Path(folder) == work / "shards"


@pytest.mark.parametrize("name", LAYOUTS)
def test_task_when_another_run_does_it_meanwhile_then_its_record_counts(scratch, name, monkeypatch):
    """Where locks do nothing: the other one has removed the parts that this one needs."""
    rng = random.Random(name)
    layout = layout_named(name)
    corpus = corpus_for(layout, rng, [20, 300])
    draft, done = writing._Writing.draft, set()

    def late(self: Any) -> Any:
        task = self._task
        place = (task.stream, task.shard, task.piece)
        if place in done:
            return draft(self)
        done.add(place)
        writing.carry_out(task)
        raise DamagedWorkError("a part is gone")

    monkeypatch.setattr(writing._Writing, "draft", late)
    folder, output = assembled(scratch / "work", layout, corpus, False, rng)
    require_wanted(folder, layout, corpus, False, output)
    assert done


# The same by way of `prepare`, where the encoder makes the parts.


@pytest.fixture
def disorderly(monkeypatch):
    """Workers are given due tasks in random order, by way of JSON, and some of them twice."""
    rng = random.Random(3)
    handed_out: list[ShardTask] = []
    given = workload.Workload.__next__

    def scrambled(self):  # type: ignore[no-untyped-def]
        rng.shuffle(self._due)
        item = given(self)
        if isinstance(item, ShardTask):
            item = travelled(item)
            if rng.random() < 0.3:
                carry_out(item)
            handed_out.append(item)
        return item

    monkeypatch.setattr(workload.Workload, "__next__", scrambled)
    return handed_out


def options_of(name: str) -> dict[str, object]:
    format_name, shard_tokens, seq_len, first_shard_is_val = LAYOUTS[name]
    options: dict[str, object] = {"format": format_name, "eot": "append"}
    if get_format(format_name).traits.samples:
        options["seq_len"] = seq_len
    if shard_tokens:
        options["shard_tokens"] = shard_tokens
    return options | {"val": "first-shard" if first_shard_is_val else "none"}


def files_in(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@SHUFFLES
@pytest.mark.parametrize("name", LAYOUTS)
def test_prepare_when_tasks_are_carried_out_in_any_order_then_the_oracles_tokens(
    corpus, texts, tmp_path, monkeypatch, request, name, shuffle
):
    monkeypatch.setattr("tokenmill.encode.buckets.BUCKET_BYTES", 20_000)
    options = options_of(name) | {"shuffle": shuffle, "seed": SEED}
    options |= {"slice_bytes": 20_000, "num_proc": 1}
    manifest = prepare(corpus, str(tmp_path / "one"), **options)
    handed_out = request.getfixturevalue("disorderly")
    assert prepare(corpus, str(tmp_path / "other"), **options) == manifest
    assert files_in(tmp_path / "other") == files_in(tmp_path / "one")
    assert len(handed_out) > 3
    layout = layout_named(name)
    documents = oracle.ids(texts)
    found = shard_oracle.shards(tmp_path / "one", layout.format)
    shards = found["val"] + found["train"]
    if not shuffle:
        assert shards == wanted_shards(layout, documents)
    elif layout.has_boundaries:
        apart = shard_oracle.shards_apart(tmp_path / "one", layout.format)
        in_shards = [document for shard in apart["val"] + apart["train"] for document in shard]
        assert sorted(in_shards) == sorted(documents) != in_shards
        assert shards == wanted_shards(layout, in_shards)
    else:
        num_tokens = sum(map(len, wanted_shards(layout, documents)))
        assert sum(map(len, shards)) == num_tokens
        assert [len(shard) for shard in shards] == [
            len(shard) for shard in wanted_shards(layout, documents)
        ]


@SHUFFLES
@pytest.mark.parametrize("name", ["megatron", "datatrove", "olmo", "parquet", "npy", "nanogpt"])
def test_prepare_when_documents_are_larger_than_shards_then_the_oracles_tokens(
    tmp_path, monkeypatch, name, shuffle, disorderly
):
    monkeypatch.setattr("tokenmill.encode.buckets.BUCKET_BYTES", 20_000)
    lengths = [1, 900, 3, 400, 401, 5000, 2, 1, 1, 399, 1, 1300, 1300, 7, 400, 1]
    texts = [" the" * length for length in lengths * 3]
    corpus = write_corpus("parquet", tmp_path / "corpus", list(texts))
    options = options_of(name) | {"shuffle": shuffle, "slice_bytes": 9_000, "num_proc": 1}
    if "shard_tokens" in options:
        options["shard_tokens"] = 401
    manifest = prepare(corpus, str(tmp_path / "out"), **options)
    layout = dataclasses.replace(layout_named(name), shard_tokens=options.get("shard_tokens"))
    found = shard_oracle.shards(tmp_path / "out", layout.format)["train"]
    if not shuffle:
        assert found == wanted_shards(layout, oracle.ids(texts))
    assert sorted(_joined(found)) == sorted(_joined(oracle.ids(texts)))
    if layout.has_boundaries:  # a document that is larger than a shard has one for itself
        assert all(s.num_tokens <= 401 or s.num_documents == 1 for s in manifest.shards)
