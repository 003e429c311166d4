"""--where, --sample and --limit-tokens, from files to shards, against a list and a loop."""

from __future__ import annotations

import json
import random
import re
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import oracle
import pages
import tokenmill
from corpora import made_texts, write_three_kinds
from tokenmill.config import Config, Partition
from tokenmill.dataset.manifest import Manifest
from tokenmill.errors import ConfigError, ConflictError, InputError
from tokenmill.estimate import estimate
from tokenmill.run import SilentWatch
from tokenmill.run.finish import finish
from tokenmill.run.partition import encode_partition
from tokenmill.runners.inline import InlineRunner

WHERE = 'int_score >= 3 and lang != "de" or len(text) < 20'
NUM_ROWS = 400


def passes(row: dict) -> bool:
    """WHERE in Python: what has a null in it does not pass."""
    score = row["int_score"] is not None and row["int_score"] >= 3
    lang = row["lang"] is not None and row["lang"] != "de"
    return (score and lang) or (row["text"] is not None and len(row["text"]) < 20)


@pytest.fixture(scope="module")
def rows() -> list[dict]:
    rng = random.Random(4)
    found = []
    for number, text in enumerate(made_texts(NUM_ROWS, seed=4)):
        text = rng.choice([text, text, text, text, None, ""]) if number % 9 == 0 else text
        score = rng.choice([1, 2, 3, 4, None]) if number < 300 else 1
        found.append({"text": text, "int_score": score, "lang": rng.choice(["en", "de", None])})
    return found


@pytest.fixture(scope="module")
def sources(rows, tmp_path_factory) -> list[str]:
    """The rows in three kinds of files; the last row groups of the first hold nothing to keep."""
    return write_three_kinds(tmp_path_factory.mktemp("corpus"), rows, (200, 300))


def tokens_of(out: Path) -> bytes:
    return (out / "train.bin").read_bytes()


def prepared(sources: list[str], out: Path, **options) -> tokenmill.Manifest:
    given = {"val": "none", "slice_bytes": 9000, "num_proc": 1, **options}
    return tokenmill.prepare(sources, out, **given)


def documents(rows: list[dict]) -> list[list[int]]:
    return oracle.ids([row["text"] for row in rows if row["text"]])


def until(documents: list[list[int]], num_tokens: int) -> list[list[int]]:
    found: list[list[int]] = []
    for document in documents:
        if sum(map(len, found)) >= num_tokens:
            break
        found.append(document)
    return found


@pytest.mark.parametrize("num_proc", [1, 2, 4])
def test_where_when_any_number_of_workers_then_the_oracles_documents(
    num_proc, rows, sources, tmp_path
):
    manifest = prepared(sources, tmp_path, where=WHERE, num_proc=num_proc)
    kept = [row for row in rows if passes(row)]
    assert tokens_of(tmp_path) == oracle.stream(documents(kept))
    counts = manifest.counts
    assert (counts.num_rows, counts.num_filtered) == (NUM_ROWS, NUM_ROWS - len(kept))
    assert counts.num_empty == sum(row["text"] == "" for row in kept)
    assert counts.num_null == sum(row["text"] is None for row in kept)
    assert counts.is_conserved and json.loads((tmp_path / "tokenmill.json").read_bytes())
    assert tokenmill.verify(tmp_path, full=True).is_whole


def test_where_when_it_changes_then_run_and_dataset_are_in_conflict(sources, tmp_path):
    prepared(sources, tmp_path, where=WHERE)
    with pytest.raises(ConflictError, match=r"options.where: was 'int_score.*, now \"lang"):
        prepared(sources, tmp_path, where="lang == 'en'")


def test_where_when_no_row_passes_then_says_so(sources, tmp_path):
    with pytest.raises(InputError, match="nothing to write: of 400 rows, 400 are filtered"):
        prepared(sources, tmp_path, where="int_score > 99")


def test_where_when_limit_docs_is_given_then_counts_rows_that_pass(rows, sources, tmp_path):
    manifest = prepared(sources, tmp_path, where=WHERE, limit_docs=90)
    kept = [row for row in rows if passes(row)][:90]
    assert tokens_of(tmp_path) == oracle.stream(documents(kept))
    assert manifest.counts.num_rows - manifest.counts.num_filtered == 90


def test_sample_when_fraction_grows_then_contains_the_smaller_sample(rows, sources, tmp_path):
    found = []
    for number, fraction in enumerate((0.1, 0.3, 0.3, 0.9)):
        out, num_proc = tmp_path / str(number), 1 + (number == 2)
        manifest = prepared(sources, out, sample=fraction, num_proc=num_proc)
        assert manifest.counts.num_rows == NUM_ROWS and manifest.counts.is_conserved
        assert tokenmill.verify(out, full=True).is_whole
        # Every text ends with its number, so that each document occurs once in the corpus.
        stream = tokens_of(out)
        found.append([d for d in documents(rows) if oracle.stream([d]) in stream])
        assert oracle.stream(found[-1]) == stream
    assert found[1] == found[2]
    assert all(document in found[1] for document in found[0])
    shares = [len(some) / len(documents(rows)) for some in found]
    assert shares == pytest.approx([0.1, 0.3, 0.3, 0.9], abs=0.08)


def test_sample_when_corpus_moves_or_seed_changes_then_only_the_seed_matters(sources, tmp_path):
    moved = []
    for source in sources:
        (tmp_path / "moved").mkdir(exist_ok=True)
        moved.append(str(tmp_path / "moved" / Path(source).name))
        Path(moved[-1]).write_bytes(Path(source).read_bytes())
    outs = [tmp_path / name for name in ("a", "b", "c")]
    prepared(sources, outs[0], sample=0.5, where=WHERE)
    prepared(moved, outs[1], sample=0.5, where=WHERE)
    prepared(sources, outs[2], sample=0.5, where=WHERE, seed=1)
    assert tokens_of(outs[0]) == tokens_of(outs[1]) != tokens_of(outs[2])


@pytest.mark.parametrize("num_proc", [1, 2, 4])
def test_limit_tokens_when_any_number_of_workers_then_the_same_whole_documents(
    num_proc, rows, sources, tmp_path
):
    manifest = prepared(sources, tmp_path, limit_tokens="20K", num_proc=num_proc)
    assert tokens_of(tmp_path) == oracle.stream(until(documents(rows), 20_000))
    assert manifest.counts.is_conserved and manifest.counts.num_rows < NUM_ROWS
    [note] = [note for note in manifest.notes if "--limit-tokens" in note]
    assert note.startswith("--limit-tokens 20,000 is reached: the last document is ")
    assert tokenmill.verify(tmp_path, full=True).is_whole


@pytest.mark.parametrize("limit", [1, 700, 10**9])
def test_limit_tokens_when_with_where_and_partitions_then_the_same_documents(
    limit, rows, sources, tmp_path
):
    options = {"val": "none", "slice_bytes": 9000, "where": WHERE, "limit_tokens": limit}
    for number in (3, 1, 2):
        config = Config(sources=tuple(sources), out=str(tmp_path), num_proc=1, **options)
        encode_partition(config, Partition(number, 3), InlineRunner(), SilentWatch())
    manifest = finish(str(tmp_path), num_proc=1)
    kept = [row for row in rows if passes(row)]
    expected = until(documents(kept), limit)
    assert tokens_of(tmp_path) == oracle.stream(expected)
    prepared(sources, tmp_path / "whole", where=WHERE, limit_tokens=limit)
    assert tokens_of(tmp_path / "whole") == oracle.stream(expected)
    assert manifest.counts == Manifest.load(str(tmp_path / "whole")).counts


@pytest.mark.parametrize("slice_bytes", [9000, 32 << 20], ids=["many slices", "one slice"])
def test_limit_tokens_when_in_the_last_slice_then_ends_there(slice_bytes, rows, sources, tmp_path):
    limit = sum(map(len, documents(rows))) - len(documents(rows)[-1]) - 1
    options = {"limit_tokens": limit, "slice_bytes": slice_bytes, "num_proc": 2}
    prepared(sources, tmp_path, **options)
    assert tokens_of(tmp_path) == oracle.stream(documents(rows)[:-1])


def test_limit_tokens_when_shuffled_and_split_then_limits_the_corpus_before(
    rows, sources, tmp_path
):
    options = {"limit_tokens": 30_000, "val": "fraction", "val_fraction": 0.3, "shuffle": True}
    for num_proc in (1, 2):
        prepared(sources, tmp_path / str(num_proc), num_proc=num_proc, **options)
        assert tokenmill.verify(tmp_path / str(num_proc), full=True).is_whole
    expected = until(documents(rows), 30_000)
    found = []
    for split in ("train.bin", "val.bin"):
        data = (tmp_path / "1" / split).read_bytes()
        assert data == (tmp_path / "2" / split).read_bytes()
        ends = oracle.stream([[oracle.EOT["gpt2"]]])
        found += [data[i : i + 2] for i in range(0, len(data), 2)]
        assert data.endswith(ends)
    assert sorted(found) == sorted(
        oracle.stream([[token]]) for document in expected for token in document
    )


def test_estimate_when_rows_are_chosen_then_honours_it(rows, sources):
    kept = [row for row in rows if passes(row)]
    total = sum(map(len, documents(kept)))
    found = estimate(Config(sources=tuple(sources), where=WHERE))
    assert (found.num_tokens, found.method) == (total, "counted")
    assert estimate(Config(sources=tuple(sources), limit_tokens=5000)).num_tokens == 5000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sample": 0.0}, "--sample must lie between 0 and 1"),
        ({"sample": 10}, "--sample must lie between 0 and 1"),
        ({"limit_tokens": 0}, "--limit-tokens must be positive"),
        ({"limit_tokens": "many"}, "--limit-tokens takes a whole number"),
    ],
)
def test_option_when_value_is_wrong_then_says_so(options, message):
    with pytest.raises(ConfigError, match=message):
        Config(sources=("a",), out="b", **options)


GUIDE = pages.DOCS / "choosing-rows.md"
COMMANDS = pages.texts_of(GUIDE, "sh")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a reader of the guide is: with some of FineWeb-Edu in fineweb-edu/."""
    (tmp_path / "fineweb-edu").mkdir()
    rng = random.Random(7)
    for number in range(2):
        texts = made_texts(300, seed=number)
        columns = {
            "text": texts,
            "id": [f"<urn:{number}:{i}>" for i in range(300)],
            "dump": ["CC-MAIN-2024-10"] * 300,
            "url": [f"https://{rng.choice(['mit.edu', 'example.com'])}/{i}" for i in range(300)],
            "language": ["en"] * 300,
            "int_score": sorted(rng.choices([2, 3, 4, 5], [4, 3, 2, 1], k=300)),
        }
        path = tmp_path / "fineweb-edu" / f"{number:03d}.parquet"
        pq.write_table(pa.table(columns), path, row_group_size=50)
    return tmp_path


def test_script_in_the_guide_prints_what_was_kept(folder):
    [script] = pages.texts_of(GUIDE, "python")
    shown = pages.ran(["bash", "-euc", COMMANDS[0]], folder).stderr
    assert re.search(r"^    url +https://", shown, re.M) and "_row " in shown
    assert pages.ran([sys.executable, "-c", script], folder).stdout.startswith("https://")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda text: text.splitlines()[0][:60])
def test_command_in_the_guide_runs(command, folder):
    done = pages.ran(["bash", "-euc", command], folder)
    if "prepare" in command:
        [out] = (folder / "data").iterdir()
        counts = Manifest.load(str(out)).counts
        assert counts.num_rows == 600 and counts.is_conserved
        assert (counts.num_filtered > 300) == ("--where" in command)
        assert f"600 rows = {counts.num_written:,} written + " in done.stderr


def test_where_when_a_decimal_is_beyond_2_to_53_then_is_compared_exactly(tmp_path):
    lines = [json.dumps({"text": f"{n}", "big": (1 << 53) + n}) for n in range(4)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    pq.write_table(
        pa.Table.from_pylist([json.loads(line) for line in lines]), tmp_path / "b.parquet"
    )
    for number, name in enumerate(("a.jsonl", "b.parquet")):
        out = tmp_path / str(number)
        prepared([str(tmp_path / name)], out, where="big > 9007199254740993.5")
        assert tokens_of(out) == oracle.stream(oracle.ids(["2", "3"]))


def test_sample_when_written_as_percent_then_is_that_share(rows, sources, tmp_path):
    prepared(sources, tmp_path / "a", sample="10%")
    prepared(sources, tmp_path / "a", sample=0.1)  # the same dataset
    with pytest.raises(ConfigError, match=r"--sample takes a number, .* got 'ten'"):
        prepared(sources, tmp_path / "b", sample="ten")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"val_fraction": "0.1"}, "val_fraction takes a number or None, got '0.1'"),
        ({"seed": "7"}, "seed takes a whole number, got '7'"),
        ({"seed": True}, "seed takes a whole number, got True"),
        ({"where": 5}, "where takes text or None, got 5"),
        ({"shuffle": "yes"}, "shuffle takes True or False, got 'yes'"),
        ({"sample": [0.1]}, r"sample takes a number or text or None, got \[0.1\]"),
        ({"limit_tokens": "-5"}, "--limit-tokens must be positive, got -5"),
        ({"stall_timeout": None}, "stall_timeout takes a number, got None"),
    ],
)
def test_options_when_of_a_wrong_type_then_error_names_the_option(
    options, message, sources, tmp_path
):
    with pytest.raises(ConfigError, match=message):
        prepared(sources, tmp_path, **options)


@pytest.mark.parametrize(
    ("expression", "hint"),
    [
        ("n between 1 and 5", "column >= 1 and column <= 5"),
        ("len(text) between 1 and 5", "column >= 1 and column <= 5"),
        ('text contains "a"', 'column matches "part of the text"'),
        ("len text > 5", r"len\(column\) >= 100"),
        ("length(text) > 5", r"len\(column\) >= 100"),
        ('startswith(text, "a")', 'column matches "\\^beginning"'),
    ],
)
def test_where_when_written_as_elsewhere_then_hint_says_how_here(expression, hint, sources):
    with pytest.raises(ConfigError) as raised:
        tokenmill.estimate(sources, where=expression)
    assert re.search(hint, raised.value.hint or "")


def test_estimate_when_no_row_passes_then_names_the_choice(sources):
    with pytest.raises(InputError, match="passes --where and --sample") as raised:
        tokenmill.estimate(sources, where="int_score > 99")
    assert "another --where" in (raised.value.hint or "")


def test_finish_when_the_limit_needs_a_vocabulary_file_then_finds_it(rows, sources, tmp_path):
    vocabulary = tmp_path / "own.tiktoken"
    vocabulary.write_bytes((Path(oracle.VOCAB) / "r50k_base.tiktoken").read_bytes() + b"\n")
    given = {"tokenizer": str(vocabulary), "pattern": "gpt2", "eot_token": "<|end|>=50256"}
    config = Config(
        sources=tuple(sources),
        out=str(tmp_path / "out"),
        val="none",
        slice_bytes=9000,
        limit_tokens=9000,
        **given,
    )
    for number in (1, 2):
        encode_partition(config, Partition(number, 2), InlineRunner(), SilentWatch())
    finish(config.out, num_proc=1)
    assert tokens_of(tmp_path / "out") == oracle.stream(until(documents(rows), 9000))


def test_partition_when_the_same_task_runs_elsewhere_then_its_slices_count(sources, tmp_path):
    config = Config(sources=tuple(sources), out=str(tmp_path / "out"), val="none", slice_bytes=9000)
    one = Partition(1, 1)

    class Elsewhere(SilentWatch):
        num_recorded = 0
        num_steps = 0

        def step(self, slice_, step) -> None:
            Elsewhere.num_steps += step.num_rows > 0

        def recorded(self, record) -> None:
            Elsewhere.num_recorded += 1
            if Elsewhere.num_recorded == 2:
                encode_partition(config, one, InlineRunner(), SilentWatch())

    report = encode_partition(config, one, InlineRunner(), Elsewhere())
    assert report.num_own == report.num_slices > 8
    again = Elsewhere.num_steps
    assert again < report.num_slices, "the other one's slices were encoded again"
