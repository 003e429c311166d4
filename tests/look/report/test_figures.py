"""The figures of a report: what a list and a loop find in the same documents."""

from __future__ import annotations

import collections
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oracle
import tokenmill
from corpora import made_texts, write_corpus
from tokenmill.cli import main
from tokenmill.dataset.inspect import LookedInto, lengths, look_into
from tokenmill.dataset.split import Split
from tokenmill.formats import NAMES, get_format
from tokenmill.look.report import survey, tally
from tokenmill.look.report.document_keys import PROBES
from tokenmill.look.report.figures import Figures, SplitFigures
from tokenmill.look.report.measured import bin_edges
from tokenmill.look.report.page import report_page
from tokenmill.look.report.survey import SurveyOptions
from tokenmill.look.report.token_use import kind_of_text

GPT2 = oracle.reference()
EOT = 50256
# Two that have the same length and the same tokens at both ends.
LOOKALIKES = [" a" * 30 + f" {word}" + " a" * 30 for word in ("bread", "flour")]
TEXTS = [
    *made_texts(120),
    "the same again",
    *made_texts(30, seed=7),
    *LOOKALIKES,
    *["the same again"] * 2,
]


def prepared(folder: Path, texts: list[str], **options: Any) -> str:
    source, out = write_corpus("jsonl", folder / "corpus", list(texts)), str(folder / "out")
    if options.get("format") in NAMES and get_format(options["format"]).traits.samples:
        options = {"seq_len": 0, **options}
    tokenmill.prepare(source, out, **{"val": "none", "num_proc": 1, **options})
    return out


def surveyed(folder: str, **reading: Any) -> Figures:
    return survey.survey(look_into(folder), SurveyOptions(**reading))


def surveyed_split(looked: LookedInto) -> SplitFigures:
    [split] = survey.survey(looked, SurveyOptions()).splits
    return split


def documents_of(texts: list[str], eot: str) -> list[list[int]]:
    encoded = [GPT2.encode_ordinary(text) for text in texts]
    return [[*ids, EOT] if eot == "append" else [EOT, *ids] for ids in encoded]


def num_bytes_of(token: int) -> int:
    return 0 if token == EOT else len(GPT2.decode_single_token_bytes(token))


@pytest.mark.parametrize("name", NAMES)
def test_figures_are_those_of_a_list_and_a_loop(name, tmp_path):
    eot = "prepend" if get_format(name).defaults.eot == "prepend" else "append"
    found = surveyed(prepared(tmp_path, TEXTS, format=name, eot=eot))
    documents = documents_of(TEXTS, eot)
    flat = [token for document in documents for token in document]
    [split] = found.splits
    assert found.is_exact and split.num_tokens == split.num_read == len(flat)

    by_length = sorted(map(len, documents))
    assert split.lengths is not None
    for name_, value in split.lengths.percentiles.items():  # nearest rank
        assert value == by_length[-(-int(name_[1:]) * len(by_length) // 100) - 1]
    assert (split.lengths.min, split.lengths.max) == (by_length[0], by_length[-1])
    assert split.lengths.mean == pytest.approx(sum(by_length) / len(by_length))
    for one in split.lengths.bins:
        assert one.num_documents == sum(one.low <= length < one.high for length in by_length)
    assert sum(one.num_documents for one in split.lengths.bins) == len(documents)

    for one in split.stretches:
        text = sum(map(num_bytes_of, flat[one.start : one.stop]))
        assert one.num_bytes == text and one.bytes_per_token == text / (one.stop - one.start)
    assert [one.stop for one in split.stretches][-1] == len(flat)

    counts = collections.Counter(flat)
    assert found.tokens is not None and found.tokens.num_seen == len(counts)
    assert {one.token: one.num_times for one in found.tokens.most}.items() <= counts.items()
    assert [one.num_times for one in found.tokens.most] == sorted(counts.values())[::-1][:30]
    running = itertools.accumulate(sorted(counts.values())[::-1])
    assert found.tokens.half == next(
        number for number, total in enumerate(running, 1) if 2 * total >= len(flat)
    )
    assert sum(one.num_ids for one in found.tokens.kinds) == found.tokens.num_ids == 50257
    assert sum(one.num_seen for one in found.tokens.kinds) == len(counts)

    assert split.duplicates is not None and split.duplicates.is_exact
    assert split.duplicates.num_duplicates == len(documents) - len(set(map(tuple, documents))) == 2
    [same] = split.duplicates.repeated
    assert same.num_times == 3 and same.first.document == TEXTS.index("the same again")

    shown = {one.why: one for one in found.documents}
    assert shown["longest"].place.num_tokens == by_length[-1]
    assert shown["shortest"].place.num_tokens == by_length[0]
    rated = [document for document in documents if len(document) >= 64]
    ratios = sorted(sum(map(num_bytes_of, one)) / len(one) for one in rated)
    assert shown["fewest bytes per token"].bytes_per_token == ratios[0]
    assert shown["most bytes per token"].bytes_per_token == ratios[-1]
    for one in found.documents:
        assert one.place.document is not None
        assert list(one.ids) == documents[one.place.document][:160]
    assert len(report_page(found)) < 300_000


FORKED = """
import os, sys
from tokenmill.runners.spawn import may_fork, stay_single_threaded
stay_single_threaded()
from tokenmill.dataset.inspect import look_into
from tokenmill.look.report import survey, tally

alone, told = survey.survey(look_into(sys.argv[1]), survey.SurveyOptions(is_exact=True)), []
survey.MIN_TOKENS_APART = 1
reading = survey.SurveyOptions(is_exact=True, num_proc=3, progress=lambda *now: told.append(now))
assert may_fork()
assert survey.survey(look_into(sys.argv[1]), reading) == alone

parent, of = os.getpid(), tally.Tallying.of
def dies_once(self, stretches, advance):
    if os.getpid() != parent and stretches[0].start:
        os.kill(os.getpid(), 9)
    return of(self, stretches, advance)
tally.Tallying.of = dies_once
assert survey.survey(look_into(sys.argv[1]), reading) == alone
"""


def test_forks_count_what_one_process_counts_also_if_some_die(tmp_path):
    out = prepared(tmp_path, TEXTS, format="megatron")
    subprocess.run([sys.executable, "-c", FORKED, out], check=True, timeout=60)


def test_threads_count_what_one_process_counts(tmp_path, monkeypatch):
    out = prepared(tmp_path, TEXTS)
    alone = surveyed(out, is_exact=True)
    monkeypatch.setattr(survey, "MIN_TOKENS_APART", 1)
    monkeypatch.setattr(survey, "may_fork", lambda: False)
    assert surveyed(out, is_exact=True, num_proc=3) == alone


def key_by_a_loop(ids: list[int]) -> int:
    key, mask = len(ids), (1 << 64) - 1
    for probe in range(PROBES if ids else 0):
        for at in (min(probe, len(ids) - 1), max(len(ids) - 1 - probe, 0)):
            key = (key * 0x9E3779B97F4A7C15 + ids[at]) & mask
            key ^= key >> 29
    return key


@pytest.mark.parametrize("size", [1, 5, 16, 100])
def test_keys_of_documents_are_those_of_a_loop_wherever_stretches_end(size, tmp_path, monkeypatch):
    """Documents of no tokens, of a few, and of several stretches, in shards of another tool."""
    rng = np.random.RandomState(size)
    documents = [rng.randint(9, size=n).tolist() for n in [0, 0, *rng.randint(40, size=60), 900, 0]]
    (tmp_path / "train").mkdir()
    tokens = np.array([token for one in documents for token in one], "<u2")
    tokens.tofile(tmp_path / "train" / "00000_tokens.ds")
    ends = np.cumsum([len(one) for one in documents])
    ends.astype("<u8").tofile(tmp_path / "train" / "00000_tokens.ds.index")
    looked = look_into(str(tmp_path), format_name="datatrove", dtype="uint16")
    monkeypatch.setattr(tally, "MIN_STRETCH_TOKENS", size)
    monkeypatch.setattr(tally, "BLOCK_TOKENS", 7)
    split = Split(looked, "train", lambda: None, None)
    stretches = tally.stretches_of(len(tokens), is_exact=True, is_local=True)
    how = tally.Tallying(split, 50, None, with_documents=True)
    for num_groups in (1, 3):
        groups = survey._neighbours(stretches, num_groups)
        found = tally.SplitTally.joined(how.of(group, lambda count: None) for group in groups)
        assert found.ends.tolist() == ends.tolist()
        assert found.keys.tolist() == [key_by_a_loop(one) for one in documents]
    duplicates = surveyed_split(looked).duplicates
    assert duplicates is not None
    assert duplicates.num_duplicates == len(documents) - len(set(map(tuple, documents)))


@pytest.mark.parametrize(("name", "eot"), [("nanogpt", "append"), ("llmc", "prepend")])
def test_ends_by_eot_ids_are_those_of_a_loop_wherever_stretches_end(
    name, eot, tmp_path, monkeypatch
):
    texts = ["a", *made_texts(5), "the end"]
    looked = look_into(prepared(tmp_path, texts, format=name, eot=eot))
    documents = documents_of(texts, eot)
    monkeypatch.setattr(tally, "MIN_STRETCH_TOKENS", 2)
    monkeypatch.setattr(tally, "NUM_STRETCHES", 10_000)
    split = Split(looked, "train", lambda: None, None)
    stretches = tally.stretches_of(split.num_tokens, is_exact=True, is_local=True)
    how = tally.Tallying(split, 50257, None, with_documents=True)
    for num_groups in (1, 7):
        groups = survey._neighbours(stretches, num_groups)
        found = tally.SplitTally.joined(how.of(group, lambda count: None) for group in groups)
        assert found.ends.tolist() == list(itertools.accumulate(map(len, documents)))
        assert found.keys.tolist() == [key_by_a_loop(one) for one in documents]


@pytest.fixture
def sampled(tmp_path, monkeypatch) -> Figures:
    """Of a dataset that counts as large: an odd stretch in the middle of ordinary text."""
    monkeypatch.setattr(survey, "QUICK_TOKENS", 1000)
    monkeypatch.setattr(lengths, "EXACT_TOKENS", 1000)
    monkeypatch.setattr(tally, "MIN_STRETCH_TOKENS", 512)
    monkeypatch.setattr(tally, "WINDOW_TOKENS", 128)
    monkeypatch.setattr(lengths, "BLOCK_TOKENS", 256)
    monkeypatch.setattr(lengths, "SAMPLE_TOKENS", 1 << 14)
    usual = [f"The miller counts his sacks of grain, number {n}, and sleeps." for n in range(3000)]
    odd = ["\u4e2d\u6587\u7cfb\u7edf\u8bcd\u6c47" * 60] * 12
    out = prepared(tmp_path, [*usual[:1500], *odd, *usual[1500:]])
    return surveyed(out)


def test_sample_is_measured_where_it_says_and_finds_what_stands_out(sampled):
    [split] = sampled.splits
    assert not sampled.is_exact and 0 < split.num_read < split.num_tokens / 3
    for one in split.stretches:
        assert one.start <= one.read_start and one.read_start + one.num_read <= one.stop
    assert split.outliers
    ratios = [one.bytes_per_token or 0 for one in split.stretches]
    for number, command in split.outliers:
        assert abs(ratios[number] - np.median(ratios)) > 0.1 * np.median(ratios)
        assert f"--token-offset {split.stretches[number].read_start}" in command
    assert split.lengths is not None and not split.lengths.is_exact
    assert split.duplicates is not None and not split.duplicates.is_exact
    said = report_page(sampled).decode()
    assert "train: not known. Among" in said and " 0 have the same" not in said
    assert "never used" not in said and "longest of" in said.lower() and "≥" in said


def test_what_is_read_in_seconds_is_read_whole(tmp_path):
    """19M tokens: 83% of its documents are there twice, and the longest is found by luck alone."""
    rng, count = np.random.default_rng(0), 190_000
    documents = rng.integers(0, 50_000, (count // 6 + 1, 100), np.uint16)[np.arange(count) // 6]
    documents[:, -1] = 50256
    tokens = documents.reshape(-1)
    tokens[9_000_099:9_300_000:100] = 0  # one document of 300,100 tokens
    tokens.tofile(tmp_path / "train.bin")
    looked = look_into(str(tmp_path), tokenizer="gpt2", dtype="uint16", eot="append")
    found = survey.survey(looked, survey.SurveyOptions())
    [split] = found.splits
    assert found.is_exact and split.duplicates is not None and split.lengths is not None
    assert split.duplicates.num_duplicates > 0.8 * split.duplicates.num_documents
    assert split.lengths.max == 300_100
    assert found.documents[0].why == "longest"
    assert found.documents[0].place.num_tokens == split.lengths.max


def test_comparison_when_one_has_to_be_sampled_then_both_are(tmp_path, monkeypatch, capsys):
    small, large = (
        prepared(tmp_path / name, [f"The miller counts sack {n}." for n in range(count)])
        for name, count in (("a", 900), ("b", 3000))
    )
    monkeypatch.setattr(survey, "QUICK_TOKENS", 15_000)
    monkeypatch.setattr(lengths, "EXACT_TOKENS", 1000)
    monkeypatch.setattr(tally, "MIN_STRETCH_TOKENS", 512)
    monkeypatch.setattr(tally, "WINDOW_TOKENS", 128)

    def reported(*arguments: str) -> str:
        assert main(["report", *arguments]) == 0
        return capsys.readouterr().out

    assert json.loads(reported(small, "--json"))["is_exact"]
    both = json.loads(reported(small, large, "--json"))
    assert [one["is_exact"] for one in both] == [False, False]
    page = reported(small, large, "-o", "-")
    assert "not in the sample" in page and "never used" not in page and "≥" in page


def test_ids_beyond_the_vocabulary_and_below_zero_are_counted_apart():
    tokens = np.array([0, 3, 70_000, -1, 2], np.int32)
    assert tally._counted(tokens, 4).tolist() == [1, 0, 1, 1, 2]
    assert tally._counted(np.array([9, 1], np.uint16), 4).tolist() == [0, 1, 0, 0, 1]


@pytest.mark.parametrize("shortest", [0, 1, 2, 5, 100])
def test_bins_hold_every_length_once(shortest):
    edges = bin_edges(shortest, 5000)
    assert edges == sorted(set(edges)) and edges[0] <= shortest and edges[-1] > 5000
    assert all(b <= max(2 * a, 1) for a, b in itertools.pairwise(edges))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (" the", "word after a space"),
        ("ing", "word or piece of one"),
        (" 東京", "other scripts"),
        ("2026", "number"),
        ("();", "signs"),
        ("\n\n", "white space"),
        (" ", "white space"),
        ("v2", "mixed"),
    ],
)
def test_kind_of_a_token(text, kind):
    assert kind_of_text(text) == kind


def test_nothing_is_written_beside_the_dataset(tmp_path):
    out = prepared(tmp_path, TEXTS)
    before = {name: os.stat(os.path.join(out, name)).st_mtime_ns for name in os.listdir(out)}
    surveyed(out)
    assert before == {n: os.stat(os.path.join(out, n)).st_mtime_ns for n in os.listdir(out)}
