"""A small corpus leaves something to train on and something to validate with, by default, for every
format whose trainer needs both; and the summary says by which rule."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import xxhash

import oracle
import shard_oracle
import tokenmill
from tokenmill.cli import main
from tokenmill.dataset.manifest import Manifest
from tokenmill.formats import format_names, get_format

WORDS = "To be, or not to be: that is the question; whether the mill grinds or stands still. "
# Formats whose default is to hold something out.
NEED_VAL = [name for name in format_names() if get_format(name).defaults.val != "none"]
BY_DOCUMENTS = [name for name in NEED_VAL if get_format(name).defaults.val == "fraction"]
BY_SHARD = [name for name in NEED_VAL if name not in BY_DOCUMENTS]
APART = ("parquet",)  # keeps documents apart by default


def texts_of(num_documents: int) -> list[str]:
    """As much text each time, as few documents as that."""
    return [f"{number} " + WORDS * (1_500 // num_documents) for number in range(num_documents)]


def corpus_of(folder: Path, num_documents: int) -> str:
    """One text file, or JSON lines."""
    texts = texts_of(num_documents)
    if num_documents == 1:
        (folder / "input.txt").write_text(texts[0])
        return str(folder / "input.txt")
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    (folder / "input.jsonl").write_text(lines)
    return str(folder / "input.jsonl")


def require_trainable(out: Path, format_name: str, num_documents: int) -> dict[str, list[int]]:
    """Both splits hold tokens enough for a batch, and together they are the corpus."""
    found = shard_oracle.tokens(out, format_name)
    assert set(found) == {"train", "val"}
    assert min(len(found["train"]), len(found["val"])) >= 1024
    eot = Manifest.load(str(out)).identity["options"]["eot"]
    wanted = [token for ids in oracle.ids(texts_of(num_documents), eot) for token in ids]
    if format_name == "mds":  # samples: what fills none is the end
        wanted = wanted[: len(wanted) - len(wanted) % 2048]
    first, second = ("val", "train") if format_name in BY_SHARD else ("train", "val")
    assert found[first] + found[second] == wanted
    return found


def held_out_by_chance(num_documents: int, fraction: float) -> int:
    hashes = [xxhash.xxh3_64_intdigest(text.encode(), 0) for text in texts_of(num_documents)]
    return sum(value < int(fraction * (1 << 64)) for value in hashes)


def test_the_formats_that_need_both_are_those_that_are_tested_here():
    assert set(BY_DOCUMENTS) == {"nanogpt", "mds", "litdata", "parquet"}
    assert set(BY_SHARD) == {"npy", "llmc"}


@pytest.mark.parametrize("num_documents", [1, 2, 10])
@pytest.mark.parametrize("name", NEED_VAL)
def test_prepare_when_the_corpus_is_small_then_both_splits_can_be_used(
    name, num_documents, tmp_path, capsys
):
    source, out = corpus_of(tmp_path, num_documents), tmp_path / "out"
    assert held_out_by_chance(num_documents, 0.0005) == 0
    code = main(["prepare", source, "-o", str(out), "--format", name, "--num-proc", "1"])
    said = capsys.readouterr().err
    assert code == 0, said
    manifest = Manifest.load(str(out))
    if name in APART and num_documents == 1:  # a document is not cut where it is a row
        assert set(manifest.splits) == {"train"}
        assert "nothing is held out for validation" in said
    else:
        require_trainable(out, name, num_documents)
        rule = "tokens" if name in BY_DOCUMENTS else "first-shard"
        assert manifest.split_rule == rule
        num_val = manifest.splits["val"].num_tokens
        tail = manifest.splits["val"].num_tail_tokens
        if rule == "tokens":
            assert f"note: val is the last {num_val:,} tokens of the corpus" in said or tail
        else:
            assert f"note: val is the first shard, {num_val:,} tokens" in said
    assert main(["verify", str(out), "--full", "--num-proc", "1"]) == 0, capsys.readouterr().out
    capsys.readouterr()
    assert main(["inspect", str(out)]) == 0
    rules = {"tokens": "the last tokens", "first-shard": "the first shard"}
    assert rules.get(manifest.split_rule, "") in capsys.readouterr().out


@pytest.mark.parametrize("fraction", ["0.05", "0.3", "0.5", "0.9"])
@pytest.mark.parametrize("num_documents", [1, 2])
@pytest.mark.parametrize("name", BY_DOCUMENTS)
def test_prepare_when_a_fraction_is_asked_for_then_so_much_is_held_out(
    name, num_documents, fraction, tmp_path, capsys
):
    source, out = corpus_of(tmp_path, num_documents), tmp_path / "out"
    words = ["--format", name, "--val-fraction", fraction, "--num-proc", "1"]
    assert main(["prepare", source, "-o", str(out), *words]) == 0
    assert main(["verify", str(out), "--full", "--num-proc", "1"]) == 0, capsys.readouterr().out
    manifest = Manifest.load(str(out))
    assert manifest.splits["train"].num_tokens > 0
    if 0 < held_out_by_chance(num_documents, float(fraction)) < num_documents:
        assert manifest.split_rule == "documents"
    elif name in APART:
        assert ("val" in manifest.splits) == (num_documents > 1)
    else:
        found = require_trainable(out, name, num_documents)
        total = len(found["train"]) + len(found["val"])
        step = 2 * 2048 if name == "mds" else 1
        assert abs(len(found["val"]) - float(fraction) * total) <= step


@pytest.mark.parametrize("num_documents", [1, 2, 10])
@pytest.mark.parametrize("name", NEED_VAL)
def test_prepare_when_a_small_corpus_is_shuffled_then_both_splits_are_there(
    name, num_documents, tmp_path, capsys
):
    source, out = corpus_of(tmp_path, num_documents), tmp_path / "out"
    words = ["--format", name, "--shuffle", "--seed", "5", "--num-proc", "1"]
    assert main(["prepare", source, "-o", str(out), *words]) == 0
    assert main(["verify", str(out), "--full", "--num-proc", "1"]) == 0, capsys.readouterr().out
    found = shard_oracle.tokens(out, name)
    assert set(found) == ({"train"} if (name, num_documents) == ("parquet", 1) else set(found))
    if (name, num_documents) != ("parquet", 1):
        assert len(found["val"]) >= 1024 <= len(found["train"])


@pytest.mark.parametrize(
    ("num_words", "words"), [(3000, []), (3000, ["--shuffle"]), (9, ["--seq-len", "document"])]
)
def test_prepare_when_the_first_shard_would_leave_nothing_to_train_on_then_all_is_train(
    num_words, words, tmp_path, capsys
):
    (tmp_path / "a.txt").write_text("word " * num_words)
    out = tmp_path / "out"
    asked = ["prepare", str(tmp_path / "a.txt"), "-o", str(out), "--num-proc", "1"]
    assert main([*asked, "--format", "mds", "--val-first-shard", *words]) == 0
    assert "nothing is held out for validation" in capsys.readouterr().err
    assert set(Manifest.load(str(out)).splits) == set(shard_oracle.tokens(out, "mds")) == {"train"}
    assert main(["verify", str(out), "--full", "--num-proc", "1"]) == 0, capsys.readouterr().out
    assert main(["inspect", str(out)]) == 0


@pytest.mark.parametrize("text", ["a", "a mill", "one two three four five six seven"])
@pytest.mark.parametrize("name", ["nanogpt", "litdata", "npy", "llmc"])
def test_prepare_when_there_are_hardly_any_tokens_then_some_of_both(name, text, tmp_path):
    (tmp_path / "input.txt").write_text(text)
    tokenmill.prepare(tmp_path / "input.txt", tmp_path / "out", format=name, num_proc=1)
    found = shard_oracle.tokens(tmp_path / "out", name)
    assert found["train"] and found["val"]
    assert tokenmill.verify(tmp_path / "out", full=True, num_proc=1).is_whole


@pytest.mark.parametrize("name", BY_SHARD)
def test_prepare_when_shard_tokens_are_given_then_they_are_what_was_asked_for(name, tmp_path):
    """As build-nanogpt's and llm.c's own scripts: the first shard is val, though it be all."""
    source = corpus_of(tmp_path, 1)
    manifest = tokenmill.prepare(
        source, tmp_path / "out", format=name, shard_tokens="100M", num_proc=1
    )
    assert set(manifest.splits) == {"val"}
    assert "all tokens are in the validation shard" in manifest.notes[-1]


@pytest.mark.parametrize("num_documents", [1, 2, 10])
@pytest.mark.parametrize("name", NEED_VAL)
def test_convert_when_the_dataset_is_small_then_every_format_passes_verify(
    name, num_documents, tmp_path
):
    source = corpus_of(tmp_path, num_documents)
    options = {"seq_len": 256} if get_format(name).traits.samples else {}
    made = tokenmill.prepare(source, tmp_path / "out", format=name, num_proc=1, **options)
    for target in format_names():
        out = tmp_path / target
        options = {"drop": ["tail"]} if target == "mds" else {}
        found = tokenmill.convert(tmp_path / "out", out, format=target, **options)
        report = tokenmill.verify(out, num_proc=1)
        assert report.is_whole, (target, report.failures)
        lost = sum(split.num_tail_tokens for split in found.splits.values())
        before = sum(split.num_tail_tokens for split in made.splits.values())
        assert found.num_tokens + lost == made.num_tokens + before
        if target not in ("mds", "parquet"):
            assert shard_oracle.tokens(out, target) == shard_oracle.tokens(tmp_path / "out", name)


# What nanoGPT's train.py does with the two files, in the lines of it that matter.


def get_batch(path: Path, block_size: int, batch_size: int, rng: np.random.Generator):
    data = np.memmap(path, dtype=np.uint16, mode="r")
    starts = rng.integers(len(data) - block_size, size=batch_size)
    x = np.stack([data[i : i + block_size].astype(np.int64) for i in starts])
    y = np.stack([data[i + 1 : i + 1 + block_size].astype(np.int64) for i in starts])
    return x, y


@pytest.mark.parametrize("num_documents", [1, 2, 10])
def test_nanogpt_when_the_corpus_is_one_text_file_then_batches_can_be_drawn_from_both(
    num_documents, tmp_path
):
    tokenmill.prepare(corpus_of(tmp_path, num_documents), tmp_path / "out", num_proc=1)
    rng = np.random.default_rng(0)
    for split in ("train", "val"):
        for _ in range(20):
            x, y = get_batch(tmp_path / "out" / f"{split}.bin", 1024, 12, rng)
            assert x.shape == y.shape == (12, 1024)
            assert (x[:, 1:] == y[:, :-1]).all() and x.max() < 50304


@pytest.mark.parametrize("name", BY_DOCUMENTS)
@pytest.mark.parametrize("seq_len", [None, 2048])
def test_prepare_when_chance_holds_out_everything_then_there_is_something_to_train_on(
    name, seq_len, tmp_path
):
    """One document, or tokens that fill one sample: where nothing can be divided, all is train."""
    text = next(t for n in range(99) if _hash(t := f"{n} " + " mill" * 3_000) < 0.9 * (1 << 64))
    (tmp_path / "input.txt").write_text(text)
    options = {"seq_len": seq_len} if seq_len and get_format(name).traits.samples else {}
    made = tokenmill.prepare(
        tmp_path / "input.txt",
        tmp_path / "out",
        format=name,
        val_fraction=0.9,
        num_proc=1,
        **options,
    )
    assert made.splits["train"].num_tokens > 0
    assert tokenmill.verify(tmp_path / "out", full=True, num_proc=1).is_complete


def _hash(text: str) -> int:
    return xxhash.xxh3_64_intdigest(text.encode(), 0)


def test_convert_when_a_split_ends_no_document_then_it_is_not_said_to_hold_none(tmp_path, capsys):
    (tmp_path / "one.txt").write_text("one document and no other " * 300)
    prepared, converted = str(tmp_path / "a"), str(tmp_path / "b")
    assert main(["prepare", str(tmp_path / "one.txt"), "-o", prepared, "-q"]) == 0
    assert main(["convert", prepared, converted, "--format", "npy"]) == 0
    said = capsys.readouterr().err
    assert " tokens of one document\n" in said and "0 documents" not in said


@pytest.mark.parametrize(
    ("lengths", "options", "said"),
    [
        ([2000] * 9, [], "--val-fraction 0.5"),
        ([8] * 3000, [], "--val-fraction 0.1"),
        ([8] * 3000, ["--val-fraction", "0.02"], "--val-fraction 0.1"),
        ([8] * 100, [], "add text"),
    ],
)
def test_validation_split_without_a_block_is_said_with_what_to_type(
    lengths, options, said, tmp_path, capsys
):
    """And what is said is right: with that fraction there is a block."""
    lines = (json.dumps({"text": f"{n} " + "a " * length}) for n, length in enumerate(lengths))
    source, out = tmp_path / "in.jsonl", tmp_path / "out"
    source.write_text("\n".join(lines))
    command = ["prepare", str(source), "-o", str(out), "--num-proc", "1"]
    assert main([*command, *(options or ["--val-fraction", "0.002"])]) == 0
    text = " ".join(capsys.readouterr().err.split())
    num_val = Manifest.load(str(out)).splits["val"].num_tokens
    assert num_val < 1025
    assert f"blocks of 1,024 tokens need 1,025 at least: {said}" in text
    if said.startswith("--"):
        assert main([*command, "--overwrite", *said.split()]) == 0
        assert Manifest.load(str(out)).splits["val"].num_tokens >= 1025
        assert "at least" not in capsys.readouterr().err
