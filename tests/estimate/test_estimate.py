"""The estimate against the truth: tiktoken over every document, and what a run really writes.

Corpora are small and draws are kilobytes, so that a sample is a small part of the corpus here too.
"""

from __future__ import annotations

import dataclasses
import gzip
import importlib
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
from tokenmill.dataset.workspace import space_warning
from tokenmill.encodings.lookup import encoding_of
from tokenmill.errors import InputError
from tokenmill.estimate import Estimate, Sample, estimate
from tokenmill.run import new_plan
from tokenmill.settings import resolved
from tokenmill.storage import disk_space

estimate_module = importlib.import_module("tokenmill.estimate")  # the name is the function's

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
SMALL = Sample(num_draws=32, draw_bytes=4096, counted_bytes=0)


def num_tokens(texts: Sequence[str], name: str = "gpt2", eot: str = "append") -> int:
    return sum(map(len, oracle.ids(list(texts), eot, name)))


def estimated(source: object, seed: int = 0, **options: object) -> Estimate:
    config = Config(sources=(str(source),), num_proc=1, **options)
    return estimate(config, sample=dataclasses.replace(SMALL, seed=seed))


def separator_of(kind: str) -> dict[str, str]:
    return {"separator": SEPARATOR} if kind.startswith("txt") else {}


def spread(found: Estimate) -> float:
    assert found.num_tokens_high is not None
    return found.num_tokens_high / found.num_tokens - 1


def require_near(found: Sequence[Estimate], truth: int) -> None:
    """On the average very near, each within 3%, and the spread says how near."""
    assert {one.method for one in found} == {"sample"}
    assert sum(one.num_tokens for one in found) / len(found) == pytest.approx(truth, rel=0.01)
    for one in found:
        assert one.num_tokens == pytest.approx(truth, rel=0.03)
    errors = [abs(one.num_tokens / truth - 1) for one in found]
    covered = sum(error <= spread(one) for error, one in zip(errors, found, strict=True))
    assert covered >= 0.8 * len(found)
    assert max(map(spread, found)) < 0.08


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
    assert found.output_bytes == found.num_tokens * (4 if name != "gpt2" else 2)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dedup": "exact"},
        {"sample": 0.5},
        {"where": "n < 700", "empty": "keep", "eot": "both"},
        {"limit_docs": 100},
        {"template": "{n}: {text}"},
    ],
    ids=lambda options: "-".join(options),
)
@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_estimate_when_corpus_is_small_then_it_is_what_a_run_writes(kind, options, tmp_path):
    texts = [*ONE_LANGUAGE[:500], None, "", *ONE_LANGUAGE[:500]]
    rows = [{"n": n, "text": text} for n, text in enumerate(texts)]
    path = tmp_path / f"in.{kind}"
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=100)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = tokenmill.prepare(path, tmp_path / "out", num_proc=1, val="none", **options)
    found = estimate(Config(sources=(str(path),), **options))
    written = (made.num_tokens, made.num_documents, made.counts.text_bytes)
    assert (found.num_tokens, found.num_documents, found.text_bytes) == written
    assert found.output_bytes == os.path.getsize(tmp_path / "out" / "train.bin")


def test_null_and_empty_documents_do_not_count(tmp_path):
    texts = ["one text", None, "", "another"] * 10
    found = estimate(Config(sources=(write_corpus("parquet", tmp_path, texts),)))
    written = [text for text in texts if text]
    assert (found.num_documents, found.num_tokens) == (20, num_tokens(written))


def test_bad_rows_are_noted_with_the_limit_they_exceed(tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_bytes(b'{"text": "good"}\n' * 30 + b'{"text": \n' * 10)
    found = estimate(Config(sources=(str(path),)))
    assert found.num_documents == 30
    assert "25.00% of the rows that were read are bad" in found.notes[-1]
    assert "--max-bad-fraction" in found.notes[-1]


# A large one is sampled, and the spread means what it says


def test_estimate_when_no_row_is_good_then_says_which_is_bad_and_why(tmp_path):
    path = tmp_path / "latin.txt"
    path.write_bytes("à la recherche du temps perdu\n".encode("latin-1") * 100)
    with pytest.raises(InputError, match=r"latin\.txt, the file: invalid UTF-8 at byte 0 \(0xe0\)"):
        estimate(Config(sources=(str(path),)))


def write_files(kind: str, folder: Path, *corpora: list[str]) -> Path:
    for number, texts in enumerate(corpora):
        write_corpus(kind, folder / f"{number}", texts)
    return folder


@pytest.mark.parametrize("kind", ["parquet", "arrow", "jsonl", "jsonl.gz", "jsonl.zst", "txt"])
def test_sample_of_any_kind_of_file_is_near(kind, tmp_path):
    folder = write_files(kind, tmp_path, *(ONE_LANGUAGE[i::8] for i in range(8)))
    found = [estimated(folder, seed, **separator_of(kind)) for seed in range(10)]
    require_near(found, num_tokens(ONE_LANGUAGE))
    for one in found:
        assert one.num_documents == pytest.approx(len(ONE_LANGUAGE), rel=0.1)


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "jsonl.gz"])
def test_sample_is_near_when_files_differ_in_language(kind, tmp_path):
    english, other = LANGUAGES
    parts = [english[i::6] for i in range(6)] + [other[i::2] for i in range(2)]
    folder = write_files(kind, tmp_path, *parts)
    found = [estimated(folder, seed) for seed in range(10)]
    require_near(found, num_tokens([*english, *other]))


def test_same_seed_gives_the_same_estimate_and_another_seed_another(tmp_path):
    path = write_corpus("parquet", tmp_path, ONE_LANGUAGE)
    first, again, other = (estimated(path, seed) for seed in (1, 1, 2))
    assert first.num_tokens == again.num_tokens != other.num_tokens
    assert first.num_tokens_low == again.num_tokens_low


def test_larger_sample_has_a_smaller_spread(tmp_path):
    path = write_corpus("jsonl", tmp_path, ONE_LANGUAGE)
    few, many = (
        estimate(Config(sources=(path,)), sample=Sample(count, 1024, counted_bytes=0))
        for count in (16, 256)
    )
    assert spread(few) > 2 * spread(many) > 0


@pytest.mark.parametrize("separator", [None, SEPARATOR])
def test_one_giant_text_is_one_document(separator, tmp_path):
    text = "\n".join(ONE_LANGUAGE)
    (tmp_path / "giant.txt").write_text(text)
    found = [estimated(tmp_path / "giant.txt", seed, separator=separator) for seed in range(10)]
    assert {one.num_documents for one in found} == {1}
    require_near(found, num_tokens([text]))


def test_text_is_cut_between_characters(tmp_path):
    (tmp_path / "one.txt").write_text("東京🙂é" * 9000)
    found = [estimated(tmp_path / "one.txt", seed) for seed in range(5)]
    truth = num_tokens(["東京🙂é" * 9000])
    assert [one.num_tokens for one in found] == pytest.approx([truth] * 5, rel=0.03)


@pytest.mark.parametrize("kind", ["jsonl.gz", "jsonl.zst", "txt.gz"])
def test_large_compressed_file_is_read_from_its_start_only(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(estimate_module, "READ_BYTES", 64 << 10)
    rng = random.Random(7)
    texts = [f"{rng.random()} {text}" for text in ONE_LANGUAGE * 4]
    path = write_corpus(kind, tmp_path, texts)
    config = Config(sources=(path,), **separator_of(kind))
    found = estimate(config, sample=dataclasses.replace(SMALL, draw_bytes=32 << 10))
    assert found.num_tokens == pytest.approx(num_tokens(texts), rel=0.05)
    assert found.num_documents == pytest.approx(len(texts), rel=0.05)
    assert "only the start of 1 compressed file was read" in found.notes[0]


def test_large_compressed_array_is_read_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(estimate_module, "READ_BYTES", 8 << 10)
    path = tmp_path / "in.json.gz"
    path.write_bytes(gzip.compress(json.dumps([{"text": t} for t in ONE_LANGUAGE]).encode()))
    assert estimated(path).num_documents == len(ONE_LANGUAGE)


def test_large_row_group_is_read_from_its_start_only(tmp_path, monkeypatch):
    monkeypatch.setattr(estimate_module, "READ_BYTES", 64 << 10)
    path = tmp_path / "one.parquet"
    pq.write_table(pa.table({"text": ONE_LANGUAGE}), path, row_group_size=len(ONE_LANGUAGE))
    found = estimated(path)
    assert found.num_documents == pytest.approx(len(ONE_LANGUAGE), rel=0.01)
    assert found.num_tokens == pytest.approx(num_tokens(ONE_LANGUAGE), rel=0.05)


def test_repeated_texts_in_a_dictionary_are_all_counted(tmp_path):
    texts = [text for text in ONE_LANGUAGE[:400] for _ in range(10)]
    path = tmp_path / "repeated.parquet"
    pq.write_table(pa.table({"text": texts}), path, row_group_size=200)
    found = estimated(path)
    assert found.num_tokens == pytest.approx(num_tokens(texts), rel=0.1)
    assert os.path.getsize(path) < found.text_bytes / 3


def test_sample_opens_few_of_many_small_files(tmp_path, monkeypatch):
    monkeypatch.setattr(estimate_module, "MAX_FILES", 2)
    for number, text in enumerate(ONE_LANGUAGE[:600]):
        (tmp_path / f"{number:03d}.txt").write_text(text)
    opened = []
    reader_for = estimate_module.reader_for
    monkeypatch.setattr(
        estimate_module, "reader_for", lambda *given: opened.append(given) or reader_for(*given)
    )
    found = estimated(tmp_path)
    assert found.num_tokens == pytest.approx(num_tokens(ONE_LANGUAGE[:600]), rel=0.1)
    assert len(opened) <= 32 * 2


def test_limit_of_documents_is_the_limit_of_the_estimate(tmp_path):
    for kind in ("parquet", "jsonl", "jsonl.gz", "txt"):
        path = write_corpus(kind, tmp_path / kind, ONE_LANGUAGE)
        found = estimated(path, limit_docs=700, **separator_of(kind))
        assert found.num_documents == pytest.approx(700, rel=0.15)
        assert found.num_tokens == pytest.approx(num_tokens(ONE_LANGUAGE[:700]), rel=0.15)


def test_estimate_by_a_plan_is_that_without(tmp_path):
    for kind in ("parquet", "jsonl"):
        path = write_corpus(kind, tmp_path / kind, ONE_LANGUAGE)
        config = Config(sources=(path,), out=str(tmp_path / "out"))
        by_plan = estimate(config, new_plan(config, encoding_of(config)), SMALL)
        without = estimate(config, sample=SMALL)
        for name in ("num_tokens", "num_tokens_high", "output_bytes", "needed_bytes"):
            assert getattr(by_plan, name) == getattr(without, name)


def test_sample_when_copies_are_left_out_then_says_that_it_found_none(tmp_path):
    path = write_corpus("jsonl", tmp_path, ONE_LANGUAGE)
    found = estimated(path, dedup="exact")
    assert [note for note in found.notes if "a sample cannot find duplicates" in note]


def test_time_and_disk_follow_from_the_sample(corpus, tmp_path):
    found = estimate(Config(sources=(corpus,), num_proc=3, out=str(tmp_path / "not" / "there")))
    assert found.seconds is not None and found.seconds > 0
    assert 0 < found.output_bytes < found.needed_bytes
    assert found.free_bytes is not None and found.free_bytes > 0 and found.num_proc == 1
    assert not (tmp_path / "not").exists()


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
    texts = ["".join(random.Random(n).choices("水車石臼東京", k=500)) for n in range(1500)]
    path = write_corpus("jsonl", tmp_path, texts)
    done = started(path, small_disk / "out", "-q")
    first, hint, *rest = done.stderr.splitlines()
    assert first.startswith("warning: the disk may be too small") and "1.0 MB free" in first
    assert hint.startswith("hint: make room") and done.returncode == 4
    assert "No space left" in rest[0]
    shown = started(path, small_disk / "out", "--dry-run").stderr
    assert "THIS MAY NOT FIT" in shown


def test_run_that_fits_is_not_warned_of(small_disk, tmp_path):
    path = write_corpus("jsonl", tmp_path, ["water under the mill " * 20] * 900)
    done = started(path, small_disk / "out")
    assert done.returncode == 0 and "warning" not in done.stderr


@pytest.mark.parametrize(
    ("options", "free", "is_warned"),
    [
        ({}, 1000, True),
        ({}, 1 << 30, False),
        ({"limit_tokens": 100}, 1000, False),
        ({"sample": 0.001}, 1000, False),
    ],
)
def test_warning_goes_by_the_text_of_the_plan(options, free, is_warned, tmp_path, monkeypatch):
    path = write_corpus("jsonl", tmp_path, ONE_LANGUAGE)
    monkeypatch.setattr(disk_space, "free_bytes", lambda folder: free)
    config = Config(sources=(path,), out=str(tmp_path / "out"), num_proc=1, **options)
    encoding = encoding_of(config)
    full = resolved(config, encoding)
    said = space_warning(full, new_plan(full, encoding))
    assert (said is not None) == is_warned
    assert said is None or "1.0 kB free" in said or "1000 B free" in said


def test_what_an_unfinished_run_holds_is_not_needed_again(tmp_path, corpus):
    out = tmp_path / "out"
    before = estimate(Config(sources=(corpus,), out=str(out)))
    (out / ".tokenmill" / "parts").mkdir(parents=True)
    (out / ".tokenmill" / "parts" / "00000000.part").write_bytes(bytes(100_000))
    after = estimate(Config(sources=(corpus,), out=str(out)))
    assert after.needed_bytes == before.needed_bytes - 100_000


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
    said = ("400 documents", "bytes per token", "as nanogpt (uint16)", "1 worker", "free")
    for expected in said:
        assert expected in done.stdout
    assert not (tmp_path / "out").exists()


def test_command_shows_the_spread_of_a_sampled_corpus(tmp_path):
    path = write_corpus("parquet", tmp_path, ONE_LANGUAGE)
    tokens = report(estimated(path))[1]
    assert tokens.startswith("tokens  about ") and " ± " in tokens and "counted" not in tokens


def test_json_is_one_object_with_every_field(corpus, texts, capsys):
    assert main(["estimate", corpus, "--json", "--eot", "none"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["num_tokens"] == num_tokens(texts, eot="none")
    assert set(found) == {field.name for field in dataclasses.fields(Estimate)}
    assert found["method"] == "counted" and found["free_bytes"] is None
    assert found["dtype"] == "uint16"


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


def test_damaged_file_and_broken_stream_are_input_errors(tmp_path, monkeypatch):
    whole = Path(write_corpus("parquet", tmp_path, ONE_LANGUAGE)).read_bytes()
    (tmp_path / "cut.parquet").write_bytes(whole[:-100])
    with pytest.raises(InputError, match=r"cut\.parquet"):
        estimated(tmp_path / "cut.parquet")
    packed = Path(write_corpus("jsonl.gz", tmp_path, ONE_LANGUAGE)).read_bytes()
    middle = len(packed) // 2
    (tmp_path / "cut.jsonl.gz").write_bytes(packed[:middle] + b"\0" * 99 + packed[middle + 99 :])
    for read_bytes in (32 << 20, 8 << 10):
        monkeypatch.setattr(estimate_module, "READ_BYTES", read_bytes)
        with pytest.raises(InputError, match=r"cut\.jsonl\.gz: broken gzip stream"):
            estimate(
                Config(sources=(str(tmp_path / "cut.jsonl.gz"),)),
                sample=dataclasses.replace(SMALL, draw_bytes=1 << 20),
            )


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


def test_some_footers_stand_for_those_of_many_files(hub):
    script = """
import importlib, json
from tokenmill.config import Config
module = importlib.import_module("tokenmill.estimate")
module.MAX_FOOTERS = 1
found = module.estimate(Config(sources=("hf://datasets/OWNER/NAME/data/*.parquet",)))
print(json.dumps(found.to_plain()))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], env=hub[1], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    assert found["num_documents"] == pytest.approx(900, rel=0.1)
    text_bytes = sum(len(text.encode()) for texts in HUB_TEXTS for text in texts)
    assert found["text_bytes"] == pytest.approx(text_bytes, rel=0.3)


def test_files_that_are_not_parquet_are_not_fetched_either(hub):
    found = estimated_on(hub, "hf://datasets/OWNER/NAME/lines/*.jsonl")
    assert found["method"] == "assumed" and found["text_bytes"] == 22 * 5000
    assert hub[0].num_file_bytes_sent == 0


def test_files_in_the_cache_stand_for_those_that_are_not(hub, tmp_path):
    first = "hf://datasets/OWNER/NAME/data/0.parquet"
    done = warm.tokenmill("prepare", first, "-o", tmp_path / "out", "-q", env=hub[1])
    assert done.returncode == 0, done.stderr
    found = estimated_on(hub, "hf://datasets/OWNER/NAME/data/*.parquet")
    assert found["method"] == "sample"
    assert found["num_documents"] == pytest.approx(900, rel=0.15)
    truth = num_tokens([text for texts in HUB_TEXTS for text in texts])
    assert found["num_tokens"] == pytest.approx(truth, rel=0.15)
    assert "2 of 3 files on the Hub" in found["notes"][-1]
    assert found["num_tokens_low"] is None and found["seconds"] is not None
