"""The estimate against the truth: tiktoken over every document, and what a run really writes.

Corpora are small and cells are kilobytes, so that a sample is a small part of the corpus here too.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import oracle
import tokenmill
import warm
from corpora import SEPARATOR, made_texts, write_corpus
from hub_server import HubServer
from tokenmill.cli import main
from tokenmill.cli.estimate import report
from tokenmill.config import Config
from tokenmill.corpus.readers import ReadOptions
from tokenmill.corpus.source_files import inputs_of
from tokenmill.encodings.lookup import encoding_of
from tokenmill.errors import InputError
from tokenmill.estimate import (
    Estimate,
    Sample,
    cells,
    disk_check,
    estimate,
    estimation,
    sample,
    stretches,
)
from tokenmill.estimate.bounds import most_of
from tokenmill.estimate.cells import Reading, numbers_in_head, table_cells
from tokenmill.estimate.ratio import Design, ratio_total
from tokenmill.estimate.sample import drawing_of, num_cells
from tokenmill.estimate.sampling_frame import frame_of
from tokenmill.estimate.stretches import plain_cells
from tokenmill.formats import NAMES
from tokenmill.run import new_plan
from tokenmill.settings import resolved
from tokenmill.storage import disk_space, files

ENGLISH = ["the", "mill", "grinds", "grain", "under", "a", "heavy", "stone", "while", "water"]
OTHER = ["東京", "大学", "мельница", "зерно", "水車", "石臼", "🙂", "小麦粉", "Ünïcödé"]
NUM_SEEDS = 50


def written_in(words: Sequence[str], count: int, seed: int) -> list[str]:
    """Documents of very different lengths, each with a taste for some of the words."""
    rng = random.Random(seed)
    return [
        " ".join(
            rng.choices(rng.sample(words, rng.randint(3, len(words))), k=rng.choice([5, 20, 60]))
        )
        for _ in range(count)
    ]


ONE_LANGUAGE = written_in(ENGLISH, 4000, seed=1)
LANGUAGES = (written_in(ENGLISH, 3000, seed=2), written_in(OTHER, 1000, seed=3))


def num_tokens(texts: Sequence[str], name: str = "gpt2", eot: str = "append") -> int:
    return sum(map(len, oracle.ids(list(texts), eot, name)))


def estimated(
    source: object, sample: Sample | None = None, seed: int = 0, **options: object
) -> Estimate:
    sample = sample or Sample(num_cells=32, cell_bytes=4096, seed=seed)
    return estimate(Config(sources=(str(source),), num_proc=1, **options), sample)


def separator_of(kind: str) -> dict[str, str]:
    return {"separator": SEPARATOR} if kind.startswith("txt") else {}


def covers(found: Estimate, truth: int) -> bool:
    assert found.num_tokens_low is not None and found.num_tokens_high is not None
    return found.num_tokens_low <= truth <= found.num_tokens_high


def reach(found: Estimate) -> float:
    assert found.num_tokens_low is not None and found.num_tokens_high is not None
    return (found.num_tokens_high - found.num_tokens_low) / 2 / found.num_tokens


# A small corpus is counted


@pytest.mark.parametrize(
    "kind", ["parquet", "arrow", "feather", "jsonl", "jsonl.gz", "jsonl.zst", "txt", "txt.gz"]
)
def test_corpus_no_larger_than_the_sample_is_counted(kind, tmp_path, texts):
    path = write_corpus(kind, tmp_path, list(texts))
    found = estimate(Config(sources=(path,), **separator_of(kind)))
    assert found.method == "counted"
    assert found.num_tokens == found.num_tokens_low == found.num_tokens_high == num_tokens(texts)
    assert found.num_documents == len(texts)
    assert f": {len(texts):,} documents, " in report(found)[0]
    assert found.text_bytes == sum(len(text.encode()) for text in texts)


@pytest.mark.parametrize(
    ("options", "name", "eot"),
    [
        ({"eot": "none"}, "gpt2", "none"),
        ({"eot": "both"}, "gpt2", "both"),
        ({"tokenizer": "cl100k_base"}, "cl100k_base", "append"),
    ],
)
def test_eot_policy_and_tokenizer_count(options, name, eot, corpus, texts):
    found = estimate(Config(sources=(corpus,), **options))
    assert found.num_tokens == num_tokens(texts, name, eot)
    assert found.output_bytes["nanogpt"] == found.num_tokens * (4 if name != "gpt2" else 2)


def test_null_and_empty_documents_do_not_count(tmp_path):
    texts = ["one text", None, "", "another"] * 10
    found = estimated(write_corpus("parquet", tmp_path, texts))
    written = [text for text in texts if text]
    assert (found.num_documents, found.num_tokens) == (20, num_tokens(written))


def test_bad_rows_are_noted_with_the_limit_they_exceed(tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_bytes(b'{"text": "good"}\n' * 30 + b'{"text": \n' * 10)
    found = estimated(path)
    assert found.num_documents == 30
    assert "25.00% of the sampled rows are bad" in found.notes[-1]
    assert "--max-bad-fraction" in found.notes[-1]


# A large one is sampled, and the interval means what it says


def write_files(kind: str, folder: Path, *corpora: list[str]) -> Path:
    for number, texts in enumerate(corpora):
        write_corpus(kind, folder / f"{number}", texts)
    return folder


@pytest.mark.parametrize("kind", ["parquet", "arrow", "jsonl", "jsonl.gz", "jsonl.zst", "txt"])
def test_interval_covers_the_truth_in_nine_of_ten_samples(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(stretches, "HEAD_BYTES", 128 << 10)
    folder = write_files(kind, tmp_path, *(ONE_LANGUAGE[i::8] for i in range(8)))
    truth = num_tokens(ONE_LANGUAGE)
    found = [estimated(folder, seed=seed, **separator_of(kind)) for seed in range(NUM_SEEDS)]
    assert {one.method for one in found} == {"sample"}
    assert sum(covers(one, truth) for one in found) >= 0.9 * NUM_SEEDS
    assert sum(one.num_tokens for one in found) / NUM_SEEDS == pytest.approx(truth, rel=0.02)
    assert max(map(reach, found)) < 0.2


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "jsonl.gz"])
def test_interval_covers_the_truth_when_files_differ_in_language(kind, tmp_path):
    english, other = LANGUAGES
    parts = [english[i::6] for i in range(6)] + [other[i::2] for i in range(2)]
    folder = write_files(kind, tmp_path, *parts)
    truth = num_tokens([*english, *other])
    found = [estimated(folder, seed=seed) for seed in range(NUM_SEEDS)]
    assert sum(covers(one, truth) for one in found) >= 0.9 * NUM_SEEDS
    assert sum(one.num_tokens for one in found) / NUM_SEEDS == pytest.approx(truth, rel=0.03)


def test_interval_shrinks_as_the_sample_grows(tmp_path):
    path = write_corpus("jsonl", tmp_path, ONE_LANGUAGE)
    few, some, many = (
        estimated(path, Sample(num_cells=count, cell_bytes=1024)) for count in (16, 64, 256)
    )
    assert reach(few) > 1.5 * reach(some) > 2 * reach(many) > 0


def test_same_seed_gives_the_same_estimate_and_another_seed_another(tmp_path):
    path = write_corpus("parquet", tmp_path, ONE_LANGUAGE)
    first, again, other = (estimated(path, seed=seed) for seed in (1, 1, 2))
    assert first.num_tokens == again.num_tokens != other.num_tokens
    assert first.num_tokens_low == again.num_tokens_low


def test_rows_of_tables_are_exact_and_their_text_close(tmp_path):
    path = write_corpus("parquet", tmp_path, ONE_LANGUAGE)
    found = estimated(path)
    assert found.num_documents == len(ONE_LANGUAGE)
    text_bytes = sum(len(text.encode()) for text in ONE_LANGUAGE)
    assert found.text_bytes == pytest.approx(text_bytes, rel=0.1)
    assert found.bytes_per_token == pytest.approx(text_bytes / num_tokens(ONE_LANGUAGE), rel=0.02)


def test_one_giant_text_without_separators_is_one_document(tmp_path):
    text = "\n".join(ONE_LANGUAGE)
    (tmp_path / "giant.txt").write_text(text)
    found = estimated(tmp_path / "giant.txt")
    assert found.num_documents == 1
    assert covers(found, num_tokens([text])) and found.method == "sample"


def test_separator_that_never_occurs_leaves_one_document(tmp_path):
    text = "\n".join(ONE_LANGUAGE)
    (tmp_path / "giant.txt").write_text(text)
    found = estimated(tmp_path / "giant.txt", separator=SEPARATOR)
    assert found.num_documents == 1


def test_large_row_group_is_sampled_from_its_start_and_that_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(cells, "MAX_READ_BYTES", 64 << 10)
    path = tmp_path / "one.parquet"
    pq.write_table(pa.table({"text": ONE_LANGUAGE}), path, row_group_size=len(ONE_LANGUAGE))
    found = [estimated(path, seed=seed) for seed in range(20)]
    assert sum(covers(one, num_tokens(ONE_LANGUAGE)) for one in found) >= 16
    assert "1 compressed file or large row group read from the start only" in found[0].notes[0]


def test_repeated_texts_in_a_dictionary_are_all_counted(tmp_path):
    texts = [text for text in ONE_LANGUAGE[:400] for _ in range(10)]
    path = tmp_path / "repeated.parquet"
    pq.write_table(pa.table({"text": texts}), path, row_group_size=200)
    small = [Sample(num_cells=16, cell_bytes=512, seed=seed) for seed in range(20)]
    found = [estimated(path, sample) for sample in small]
    assert {one.method for one in found} == {"sample"}
    assert sum(covers(one, num_tokens(texts)) for one in found) >= 17
    assert os.path.getsize(path) < found[0].text_bytes / 3


# Cells share out their unit: nothing is left out, nothing is there twice


def units_of(path: object, cell_bytes: int, **options: object):
    config = Config(sources=(str(path),), **options)
    frame = frame_of(config, Sample(num_cells=8, cell_bytes=cell_bytes))
    return frame.units, Reading(ReadOptions.of(config), keeps_empty=True, cell_bytes=cell_bytes)


@pytest.mark.parametrize("cell_bytes", [64, 1000, 70_000])
@pytest.mark.parametrize(
    ("kind", "separator"), [("jsonl", None), ("txt", SEPARATOR), ("txt", "<|endoftext|>")]
)
def test_cells_of_a_plain_file_are_all_of_it(kind, separator, cell_bytes, tmp_path):
    texts = [text.replace("<|endoftext|>", "") for text in made_texts(120, seed=4)]
    path = write_corpus(kind, tmp_path, texts)
    if separator is not None:
        Path(path).write_text(separator.join(texts))
    [unit], reading = units_of(path, cell_bytes, separator=separator)
    found = plain_cells(unit, range(num_cells(unit, cell_bytes)), reading)
    assert [text for cell in found for text in cell.texts.to_pylist()] == texts
    assert sum(cell.frame_bytes for cell in found) == os.path.getsize(path)


def test_cells_without_separators_cut_between_characters(tmp_path):
    (tmp_path / "one.txt").write_text("東京🙂é" * 999)
    [unit], reading = units_of(tmp_path / "one.txt", 100)
    found = plain_cells(unit, range(num_cells(unit, 100)), reading)
    assert "".join(text for cell in found for text in cell.texts.to_pylist()) == "東京🙂é" * 999
    assert sum(len(cell.texts) - cell.num_cut for cell in found) == 1
    assert reading.num_bad == 0


@pytest.mark.parametrize("kind", ["parquet", "arrow", "feather"])
@pytest.mark.parametrize("cell_bytes", [256, 3000])
def test_cells_of_a_table_are_all_of_it(kind, cell_bytes, tmp_path, texts):
    units, reading = units_of(write_corpus(kind, tmp_path, list(texts)), cell_bytes)
    found = [
        cell
        for unit in units
        for cell in table_cells(unit, range(num_cells(unit, cell_bytes)), reading)
    ]
    assert [text for cell in found for text in cell.texts.to_pylist()] == texts
    total = sum(cell.frame_bytes for cell in found)
    assert total == pytest.approx(sum(unit.text_bytes for unit in units))
    assert {cell.weight for cell in found} == {1.0}


def test_many_small_files_share_cells(tmp_path):
    for number, text in enumerate(ONE_LANGUAGE[:300]):
        (tmp_path / f"{number:03d}.txt").write_text(text)
    found = estimated(tmp_path, Sample(num_cells=16, cell_bytes=1000))
    assert found.method == "sample" and found.num_documents == 300
    assert ": about 300 documents, " in report(found)[0]
    assert covers(found, num_tokens(ONE_LANGUAGE[:300]))


def test_cells_in_a_head_are_different_and_in_order():
    found = numbers_in_head([0, 1, 2, 900, 999], nominal=1000, count=10)
    assert found == [0, 1, 2, 8, 9]
    assert numbers_in_head([997, 998, 999], nominal=1000, count=3) == [0, 1, 2]


def test_drawing_takes_two_cells_from_every_stratum(tmp_path):
    units, _ = units_of(write_corpus("parquet", tmp_path, ONE_LANGUAGE), 1024)
    drawing = drawing_of(units, Sample(num_cells=40, cell_bytes=1024))
    assert drawing is not None
    total = sum(num_cells(unit, 1024) for unit in units)
    assert sum(draw.weight for draws in drawing.values() for draw in draws) == total
    places = [(unit, draw.number) for unit, draws in drawing.items() for draw in draws]
    assert len(set(places)) == 40 and places == sorted(places)


def test_large_files_are_groups_of_their_own_and_small_ones_share(tmp_path):
    big, small = ONE_LANGUAGE[:1000], ONE_LANGUAGE[:20]
    folder = write_files("parquet", tmp_path, small, small, big, big, small)
    units, _ = units_of(folder, 1024)
    drawing = drawing_of(units, Sample(num_cells=40, cell_bytes=1024))
    assert drawing is not None
    groups: dict[int, set[str]] = {}
    for unit, draws in drawing.items():
        for draw in draws:
            paths = {os.path.basename(os.path.dirname(s.input.path)) for s in units[unit].spans}
            groups.setdefault(draw.group, set()).update(paths)
    assert groups.pop(0) <= {"0", "1"}
    assert list(groups.values()) == [{"2"}, {"3"}, {"4"}]


def test_ratio_of_amounts_that_follow_the_measure_has_no_error():
    measures = pytest.importorskip("numpy").array([1.0, 2.0, 3.0, 4.0])
    found = ratio_total(2 * measures, measures, Design.of([5.0] * 4, [0, 0, 1, 1]), 100.0)
    assert (found.value, found.error) == (200.0, 0.0)


# The publisher's column


def write_counted(path: Path, texts: list[str], counts: list[int | None]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({"text": texts, "token_count": pa.array(counts, pa.int64())})
    pq.write_table(table, path, row_group_size=50)
    return path


def test_token_count_sharpens_the_estimate_and_its_own_error_does_not_matter(tmp_path):
    english, other = LANGUAGES
    texts = [*english, *other]
    rng = random.Random(0)
    counts = [round(len(ids) * rng.uniform(1.02, 1.04)) for ids in oracle.ids(texts, "none")]
    plain = write_corpus("parquet", tmp_path / "plain", texts)
    counted = write_counted(tmp_path / "counted" / "a.parquet", texts, counts)
    without = [estimated(plain, seed=seed) for seed in range(20)]
    found = [estimated(counted, seed=seed) for seed in range(20)]
    assert {one.method for one in found} == {"sample and token_count"}
    assert max(map(reach, found)) < min(map(reach, without)) / 3
    assert sum(covers(one, num_tokens(texts)) for one in found) >= 18
    assert f"the column token_count sums to {sum(counts):,}; in the sample" in found[0].notes[0]
    assert "another tokenizer" not in found[0].notes[0]


def test_token_count_of_another_tokenizer_is_said_to_be_one(tmp_path):
    counts = [len(ids) for ids in oracle.ids(ONE_LANGUAGE, "none")]
    path = write_counted(tmp_path / "a.parquet", ONE_LANGUAGE, counts)
    found = estimated(path, tokenizer="cl100k_base")
    assert "counts the tokens of another tokenizer than cl100k_base" in found.notes[0]
    assert covers(found, num_tokens(ONE_LANGUAGE, "cl100k_base"))


def test_token_count_that_tells_nothing_is_not_used(tmp_path):
    rng = random.Random(1)
    counts = [rng.choice([1, 10, 10_000]) for _ in ONE_LANGUAGE]
    path = write_counted(tmp_path / "a.parquet", ONE_LANGUAGE, counts)
    found = estimated(path)
    assert found.method == "sample" and "not used" in found.notes[0]
    assert covers(found, num_tokens(ONE_LANGUAGE))


def test_token_count_in_some_files_only_or_not_a_number_is_ignored(tmp_path):
    half = len(ONE_LANGUAGE) // 2
    write_counted(tmp_path / "a.parquet", ONE_LANGUAGE[:half], [7] * half)
    pq.write_table(pa.table({"text": ONE_LANGUAGE[half:]}), tmp_path / "b.parquet")
    found = estimated(tmp_path)
    assert found.method == "sample" and found.notes == ()
    table = pa.table({"text": ONE_LANGUAGE, "token_count": ["many"] * len(ONE_LANGUAGE)})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=50)
    assert estimated(tmp_path / "a.parquet").notes == ()


def test_null_token_counts_do_not_disturb(tmp_path):
    counts = [None if i % 3 else len(text) for i, text in enumerate(ONE_LANGUAGE)]
    found = estimated(write_counted(tmp_path / "a.parquet", ONE_LANGUAGE, counts))
    assert covers(found, num_tokens(ONE_LANGUAGE))


# What follows for a run


@pytest.mark.parametrize("val", [None, "none"])
@pytest.mark.parametrize("name", NAMES)
def test_output_size_is_what_a_run_writes(name, val, tmp_path):
    path = write_corpus("parquet", tmp_path / "corpus", ONE_LANGUAGE)
    found = estimate(Config(sources=(path,), format=name, val=val))
    tokenmill.prepare(path, tmp_path / "out", format=name, num_proc=1, val=val)
    written = sum(
        file.stat().st_size
        for file in (tmp_path / "out").rglob("*")
        if file.is_file() and file.name != "tokenmill.json"
    )
    # Headers and indexes weigh more here than in a corpus worth estimating; parquet and the index
    # of olmo are compressed.
    expected = found.output_bytes[name]
    near = {"parquet": 0.3, "olmo": 0.05}.get(name, 0.03)
    assert expected == pytest.approx(written, rel=near, abs=2000)
    assert found.max_output_bytes is not None and written <= found.max_output_bytes


def test_time_and_disk_follow_from_the_sample(corpus, tmp_path):
    found = estimate(Config(sources=(corpus,), num_proc=3, out=str(tmp_path / "not" / "there")))
    assert found.seconds is not None and found.seconds > 0
    assert found.text_bytes_per_second is not None and found.text_bytes_per_second > 10_000
    output = found.output_bytes["nanogpt"]
    assert output is not None and output < found.disk_bytes <= found.shuffled_disk_bytes
    assert found.free_bytes is not None and found.free_bytes > 0
    assert not (tmp_path / "not").exists()


def test_workers_are_no_more_than_slices(corpus, tmp_path):
    found = estimate(Config(sources=(corpus,), num_proc=1000))
    assert (found.num_slices, found.num_proc) == (1, 1)
    small = {"sources": (corpus,), "out": str(tmp_path), "num_proc": 3, "slice_bytes": 20_000}
    plan = new_plan(Config(**small), encoding_of(Config(**small)))
    found = estimate(Config(**small), plan=plan)
    assert (found.num_slices, found.num_proc) == (len(plan.slices), 3)


WORST = {  # what makes many tokens, or many bytes, of few
    "random characters": "".join(map(chr, random.Random(5).choices(range(0x4E00, 0x9FFF), k=9000))),
    "one letter a document": "q\n" * 9000,
    "emoji": "\U0001f9ff\U0001fae5\u200d" * 3000,
}
OPTIONS = {
    "plain": {},
    "both": {"eot": "both"},
    "wide": {"tokenizer": "o200k_base", "eot": "both"},
    "kept": {"empty": "keep", "eot": "both"},
    "shuffled": {"shuffle": True},
    "replaced": {"on_bad_document": "replace"},
}


def peak_of_run(path: Path, out: Path, monkeypatch, **options: object) -> int:
    """The most that is in the folder before anything is removed from it, or moved."""
    peak = 0

    def measured(original):
        def measure(*arguments, **named):
            nonlocal peak
            found = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
            peak = max(peak, found)
            return original(*arguments, **named)

        return measure

    with monkeypatch.context() as patch:
        for name in ("remove", "remove_folder", "write_record"):
            patch.setattr(files, name, measured(getattr(files, name)))
        tokenmill.prepare(path, out, num_proc=1, **options)
    return peak


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("text", WORST.values(), ids=WORST)
def test_at_most_is_at_most_whatever_the_text(text, options, tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_bytes(text.encode() + b"\n\xff\n\xfe" * 500)
    config = Config(sources=(str(path),), separator="\n", max_bad_fraction=1.0, **options)
    encoding = encoding_of(config)
    full = resolved(config, encoding)
    most = most_of(inputs_of(full.sources, None), full, encoding)
    assert most is not None
    out = tmp_path / "out"
    found = estimate(config)
    given = {"separator": "\n", "max_bad_fraction": 1.0, "val": "none", **options}
    peak = peak_of_run(path, out, monkeypatch, **given)
    made = tokenmill.Manifest.load(str(out))
    assert made.num_tokens == found.num_tokens <= most.num_tokens
    assert made.num_documents <= most.num_documents
    assert made.counts.num_quarantined <= most.num_bad
    assert found.max_disk_bytes is not None and 0 < peak <= found.max_disk_bytes


@pytest.mark.parametrize("name", NAMES)
def test_peak_of_the_disk_is_as_estimated(name, tmp_path, monkeypatch):
    path = Path(write_corpus("jsonl", tmp_path / "corpus", ONE_LANGUAGE))
    found = estimate(Config(sources=(str(path),), format=name))
    peak = peak_of_run(path, tmp_path / "out", monkeypatch, format=name)
    assert found.max_disk_bytes is not None
    assert found.disk_bytes / 3 < peak <= found.max_disk_bytes


def test_bound_of_a_sampled_plain_corpus_holds_and_compressed_ones_have_none(tmp_path):
    plain = estimated(write_corpus("jsonl", tmp_path / "plain", ONE_LANGUAGE))
    packed = estimated(write_corpus("jsonl.gz", tmp_path / "packed", ONE_LANGUAGE))
    assert (plain.method, packed.method) == ("sample", "sample")
    assert plain.max_disk_bytes is not None and plain.disk_bytes <= plain.max_disk_bytes
    assert packed.max_disk_bytes is None


def test_limit_of_documents_is_the_limit_of_the_estimate(tmp_path):
    for kind in ("parquet", "jsonl", "jsonl.gz", "txt"):
        path = write_corpus(kind, tmp_path / kind, ONE_LANGUAGE)
        found = estimate(Config(sources=(path,), limit_docs=700, **separator_of(kind)))
        assert found.num_documents == 700
        assert found.num_tokens == num_tokens(ONE_LANGUAGE[:700])
        sampled = estimated(path, limit_docs=700, **separator_of(kind))
        assert sampled.num_documents == pytest.approx(700, rel=0.15)
        assert sampled.num_tokens == pytest.approx(num_tokens(ONE_LANGUAGE[:700]), rel=0.15)


def test_estimate_by_a_plan_is_that_without(tmp_path):
    for kind in ("parquet", "jsonl"):
        path = write_corpus(kind, tmp_path / kind, ONE_LANGUAGE)
        config = Config(sources=(path,), out=str(tmp_path / "out"))
        small = Sample(num_cells=32, cell_bytes=4096)
        by_plan = estimate(config, small, new_plan(config, encoding_of(config)))
        without = estimate(config, small)
        for name in ("num_tokens", "num_tokens_high", "num_slices", "output_bytes", "disk_bytes"):
            assert getattr(by_plan, name) == getattr(without, name)


# Many small files: as few are opened as tell enough


def test_sample_opens_few_of_many_small_files(tmp_path, monkeypatch):
    monkeypatch.setattr(sample, "CELL_FILES", 4)
    for number, text in enumerate(ONE_LANGUAGE[:600]):
        (tmp_path / f"{number:03d}.txt").write_text(text)
    opened = []
    original = stretches.opened
    monkeypatch.setattr(
        stretches, "opened", lambda *given: opened.append(given) or original(*given)
    )
    found = estimated(tmp_path, Sample(num_cells=16))
    assert found.method == "sample" and covers(found, num_tokens(ONE_LANGUAGE[:600]))
    assert len(opened) <= 16 * (4 + 2)


# The start of a run: is there room?


def started(corpus: str, out: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return warm.tokenmill("prepare", corpus, "-o", out, *more)


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 1 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if (
        sys.platform != "linux"
        or subprocess.run(mount, check=False, capture_output=True).returncode
    ):
        pytest.skip("may not mount a tmpfs here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=False)


def test_run_begins_with_a_warning_when_the_disk_is_too_small(small_disk, tmp_path):
    texts = ["".join(random.Random(n).choices("水車石臼東京", k=500)) for n in range(900)]
    path = write_corpus("jsonl", tmp_path, texts)
    done = started(path, small_disk / "out", "-q")
    first, hint, *rest = done.stderr.splitlines()
    assert first.startswith("warning: the disk may be too small") and "1.0 MB free" in first
    assert hint.startswith("hint: make room") and done.returncode == 4
    assert "No space left" in rest[0]
    shown = started(path, small_disk / "out", "--dry-run").stderr
    assert "THIS MAY NOT FIT" in shown


def test_run_that_fits_is_not_warned_of_although_a_token_a_byte_would_not(small_disk, tmp_path):
    path = write_corpus("jsonl", tmp_path, ["water under the mill " * 20] * 900)
    done = started(path, small_disk / "out")
    assert done.returncode == 0 and "warning" not in done.stderr
    text_bytes = 900 * 20 * len("water under the mill ")
    assert text_bytes * 2 * 2 > 1 << 20, "or the disk is no question"


def test_question_whether_it_fits_survives_what_kills_the_sample(tmp_path, monkeypatch):
    path = write_corpus("jsonl", tmp_path, ONE_LANGUAGE)
    monkeypatch.setattr(disk_space, "free_bytes", lambda folder: 1000)
    monkeypatch.setattr(disk_check.sys, "executable", "/bin/false")
    config = Config(sources=(path,), out=str(tmp_path / "out"), num_proc=1)
    encoding = encoding_of(config)
    full = resolved(config, encoding)
    said = disk_check.space_warning(full, new_plan(full, encoding))
    assert said is not None and "1.0 kB free" in said


def test_what_an_unfinished_run_holds_is_not_needed_again(tmp_path, corpus):
    out = tmp_path / "out"
    before = estimate(Config(sources=(corpus,), out=str(out)))
    (out / ".tokenmill" / "parts").mkdir(parents=True)
    (out / ".tokenmill" / "parts" / "00000000.part").write_bytes(bytes(100_000))
    after = estimate(Config(sources=(corpus,), out=str(out)))
    assert after.needed_bytes == before.needed_bytes - 100_000


def test_a_compressed_file_is_the_work_of_one_worker(tmp_path):
    path = write_corpus("jsonl.gz", tmp_path, ONE_LANGUAGE)
    seconds = [estimate(Config(sources=(path,), num_proc=count)).seconds or 0 for count in (1, 64)]
    assert seconds[1] > seconds[0] / 8


# The command


COMMAND = [sys.executable, "-m", "tokenmill", "estimate"]


def test_command_prints_the_estimate_on_stdout_and_writes_nothing(corpus, texts, tmp_path):
    done = subprocess.run(
        [*COMMAND, corpus, "-o", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert f"{num_tokens(texts):,}, counted; gpt2, EOT append" in done.stdout
    said = ("400 documents", "bytes per token", "nanogpt", "1 worker", "--shuffle", "free")
    for expected in said:
        assert expected in done.stdout
    assert not (tmp_path / "out").exists()


def test_command_shows_an_interval_for_a_sampled_corpus(tmp_path, capsys, monkeypatch):
    path = write_corpus("parquet", tmp_path, ONE_LANGUAGE)
    small = Sample(num_cells=32, cell_bytes=4096)
    monkeypatch.setattr(estimation, "default_sample", lambda encoding: small)
    assert main(["estimate", path]) == 0
    shown = capsys.readouterr().out
    assert " ± " in shown and "95%: " in shown and "in 32 pieces" in shown


def test_json_is_one_object_with_every_field(corpus, texts, capsys):
    assert main(["estimate", corpus, "--json", "--eot", "none"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["num_tokens"] == num_tokens(texts, eot="none")
    assert set(found["output_bytes"]) == set(NAMES)
    assert found["method"] == "counted" and found["free_bytes"] is None
    assert found["confidence"] == 0.95 and found["dtype"] == "uint16"


def test_quiet_prints_the_number_alone(corpus, texts, capsys):
    assert main(["estimate", corpus, "-q"]) == 0
    assert capsys.readouterr().out == f"{num_tokens(texts)}\n"


def test_other_options_are_those_of_prepare(tmp_path, texts, capsys):
    path = tmp_path / "corpus.dat"
    path.write_text("".join(json.dumps({"body": text}) + "\n" for text in texts))
    reading = ["--input-format", "jsonl", "--text-column", "body"]
    encoding = ["--tokenizer", "cl100k_base", "--eot", "prepend", "--format", "llmc"]
    assert main(["estimate", str(path), "-q", *reading, *encoding]) == 0
    assert capsys.readouterr().out == f"{num_tokens(texts, 'cl100k_base')}\n"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["nowhere"], 3, "no such file"),
        (["CORPUS", "--text-column", "nope"], 2, "no column 'nope'"),
        (["CORPUS", "--tokenizer", "gpt9"], 2, "gpt9"),
        (["CORPUS", "--format", "wrong"], 2, "unknown format"),
        (["CORPUS", "--num-proc", "0"], 2, "--num-proc must be positive"),
        (["EMPTY"], 3, "no documents in"),
        (["NULLS"], 3, "nothing to encode"),
    ],
)
def test_wrong_input_is_an_error_with_its_code(arguments, code, said, corpus, tmp_path, capsys):
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), tmp_path / "empty.parquet")
    nulls = write_corpus("parquet", tmp_path / "nulls", [None, ""] * 5)
    names = {"CORPUS": corpus, "EMPTY": str(tmp_path / "empty.parquet"), "NULLS": nulls}
    assert main(["estimate", *(names.get(a, a) for a in arguments)]) == code
    shown = capsys.readouterr()
    assert shown.out == "" and said in shown.err and "Traceback" not in shown.err


def test_damaged_file_and_broken_stream_are_input_errors(tmp_path):
    whole = Path(write_corpus("parquet", tmp_path, ONE_LANGUAGE)).read_bytes()
    (tmp_path / "cut.parquet").write_bytes(whole[:-100])
    with pytest.raises(InputError, match=r"cut\.parquet"):
        estimated(tmp_path / "cut.parquet")
    packed = Path(write_corpus("jsonl.gz", tmp_path, ONE_LANGUAGE)).read_bytes()
    middle = len(packed) // 2
    (tmp_path / "cut.jsonl.gz").write_bytes(packed[:middle] + b"\0" * 99 + packed[middle + 99 :])
    with pytest.raises(InputError, match=r"cut\.jsonl\.gz: broken gzip stream"):
        estimated(tmp_path / "cut.jsonl.gz")


# Files on the Hub


HUB_TEXTS = [made_texts(300, seed=seed) for seed in range(3)]


@pytest.fixture
def hub(tmp_path):
    """(server, environment) of a Hub with three parquet files and one of JSON lines."""
    files = {}
    for number, texts in enumerate(HUB_TEXTS):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table({"text": texts}), path, row_group_size=50)
        files[f"data/{number}.parquet"] = path.read_bytes()
    files["lines/0.jsonl"] = b'{"text": "some text"}\n' * 5000
    with HubServer(files, repo="OWNER/NAME") as server:
        yield (
            server,
            {
                **{k: v for k, v in os.environ.items() if not k.startswith("HF_")},
                "HF_ENDPOINT": server.url,
                "HF_HOME": str(tmp_path / "home"),
                "HF_HUB_DISABLE_XET": "1",
                "HF_HUB_DISABLE_TELEMETRY": "1",
            },
        )


def estimated_on(hub, source: str) -> dict[str, object]:
    done = warm.tokenmill("estimate", source, "--json", env=hub[1])
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_files_on_the_hub_are_known_by_their_footers_and_not_fetched(hub):
    found = estimated_on(hub, "hf://datasets/OWNER/NAME/data/*.parquet")
    assert (found["method"], found["num_tokens_low"], found["seconds"]) == ("assumed", None, None)
    assert found["num_documents"] == 900
    text_bytes = sum(len(text.encode()) for texts in HUB_TEXTS for text in texts)
    assert found["text_bytes"] == pytest.approx(text_bytes, rel=0.3)
    assert "no text was read" in found["notes"][0]
    assert hub[0].num_file_bytes_sent < found["input_bytes"] / 5
    assert found["download_bytes"] == found["input_bytes"]


def test_files_that_are_not_parquet_are_not_fetched_either(hub):
    found = estimated_on(hub, "hf://datasets/OWNER/NAME/lines/*.jsonl")
    assert found["method"] == "assumed" and found["text_bytes"] == 22 * 5000
    assert hub[0].num_file_bytes_sent == 0


def test_files_in_the_cache_stand_for_those_that_are_not(hub, tmp_path):
    first = "hf://datasets/OWNER/NAME/data/0.parquet"
    done = warm.tokenmill("prepare", first, "-o", tmp_path / "out", "-q", env=hub[1])
    assert done.returncode == 0, done.stderr
    found = estimated_on(hub, "hf://datasets/OWNER/NAME/data/*.parquet")
    assert found["method"] == "sample" and found["num_documents"] == 900
    truth = num_tokens([text for texts in HUB_TEXTS for text in texts])
    assert found["num_tokens"] == pytest.approx(truth, rel=0.15)
    assert "2 of 3 files are on the Hub" in found["notes"][-1]
    assert found["num_tokens_low"] is None and found["seconds"] is not None


def test_with_dedup_what_is_said_is_an_upper_bound(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "one text"}\n' * 50)
    found = estimate(Config(sources=(str(tmp_path),), dedup="exact"))
    assert found.num_documents == 50
    assert [note for note in found.notes if "a sample cannot find duplicates" in note]
