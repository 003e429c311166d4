"""`tokenmill inspect`: what it says is what went in, and no document commands the terminal."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oracle
import tokenmill
import warm
from corpora import made_texts, write_corpus
from terminal import shown_on_terminal
from tokenmill.cli import main
from tokenmill.dataset.inspect import (
    LookedInto,
    document,
    glance,
    lengths,
    look_into,
    pieces,
    random_document,
    search,
    search_ids,
    search_text,
    token_offset,
)
from tokenmill.dataset.stream import Stream, StreamShard
from tokenmill.errors import ConfigError, IntegrityError, TokenmillError
from tokenmill.formats import NAMES, get_format
from tokenmill.formats.mapped import MappedShard

COMMAND = [sys.executable, "-m", "tokenmill", "inspect"]
ALL = sys.maxsize
SAMPLED = tuple(name for name in NAMES if get_format(name).traits.samples)


def inspect(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    if not options:
        return warm.tokenmill("inspect", *arguments)
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def prepared(folder: Path, texts: list[str], **options: Any) -> str:
    """A dataset of these texts; samples are documents unless asked for otherwise."""
    out = str(folder / f"out-{len(list(folder.iterdir())) if folder.exists() else 0}")
    source = write_corpus("jsonl", folder / "corpus", list(texts))
    if options.get("format") in SAMPLED and get_format(options["format"]).traits.boundaries:
        options = {"seq_len": 0, **options}
    tokenmill.prepare(source, out, num_proc=1, **options)
    return out


def documents_of(looked: LookedInto, split: str) -> list[str]:
    """Every document's text, found by its number."""
    found = []
    while True:
        try:
            view = document(looked, split, len(found), ALL)
        except ConfigError:
            return found
        found.append(view.to_plain(looked)["text"])


def number_of(text: str) -> int:
    """`made_texts` ends each document with its number."""
    return int(text.rpartition("#")[2])


@pytest.fixture(scope="module")
def small() -> list[str]:
    return made_texts(60, seed=3)


@pytest.fixture(scope="module")
def nano(tmp_path_factory, small) -> str:
    return prepared(tmp_path_factory.mktemp("nano"), small, val_fraction=0.2)


# At a glance


@pytest.mark.parametrize("name", NAMES)
def test_glance_equals_the_truth_for_every_format(name, tmp_path, small):
    out = prepared(tmp_path, small, format=name, val="fraction", val_fraction=0.25)
    found = json.loads(inspect(out, "--json").stdout)
    looked = look_into(out)
    eot = get_format(name).defaults.eot
    texts = {split: documents_of(looked, split) for split in ("train", "val")}
    assert sorted(texts["train"] + texts["val"], key=number_of) == small
    assert [split["split"] for split in found["splits"]] == ["train", "val"]
    for split in found["splits"]:
        true = [len(ids) for ids in oracle.ids(texts[split["split"]], eot)]
        assert split["num_tokens"] == sum(true) and split["num_documents"] == len(true)
        measured = split["lengths"]
        assert measured["is_exact"] and measured["num_documents"] == len(true)
        assert measured["mean"] == pytest.approx(np.mean(true)) and measured["max"] == max(true)
        for percent in (1, 10, 50, 90, 99):
            exact = np.percentile(true, percent, method="inverted_cdf")
            assert measured["percentiles"][f"p{percent}"] == exact
    on_disk = sum(file.stat().st_size for file in Path(out).rglob("*.*") if file.is_file())
    assert found["num_bytes"] == on_disk - (Path(out) / "tokenmill.json").stat().st_size
    text_bytes = sum(len(text.encode()) for text in small)
    assert found["text_bytes"] == text_bytes and found["num_documents"] == len(small)
    assert found["bytes_per_token"] == pytest.approx(text_bytes / found["num_tokens"])
    assert found["tokens_per_byte"] == pytest.approx(found["num_tokens"] / text_bytes)
    assert (found["format"], found["eot"], found["eot_id"]) == (name, eot, 50256)
    assert found["tokenizer"]["name"] == "gpt2" and found["tokenizer"]["n_vocab"] == 50257
    assert found["has_manifest"] and found["is_shuffled"] is False


def test_glance_for_a_person_is_a_screenful(nano):
    done = inspect(nano)
    assert done.returncode == 0 and done.stderr == ""
    assert re.search(
        r"format nanogpt \(nanoGPT\)\n  tokenizer  gpt2, 50,257 ids, sha256 \w{12}\n", done.stdout
    )
    assert re.search(r"\ntrain +[\d,]+ +\d+ +1 ", done.stdout)
    assert re.search(r"\nval +[\d.]+( +[\d,]+){6} +all \d+\n", done.stdout)
    assert re.search(r"text +\S+ kB, \d\.\d\d bytes a token, 0\.\d{3} tokens a byte", done.stdout)


@pytest.mark.parametrize("name", [n for n in NAMES if n != "litdata"])
def test_glance_without_a_manifest_says_what_the_files_tell(name, tmp_path, small):
    out = prepared(tmp_path, small, format=name, val="none")
    true = glance(look_into(out))
    (Path(out) / "tokenmill.json").unlink()
    found = glance(look_into(out, tokenizer="gpt2"))
    assert (found.format, found.has_manifest, found.eot) == (name, False, true.eot)
    assert found.splits == true.splits and found.num_bytes <= true.num_bytes
    assert found.bytes_per_token == pytest.approx(true.bytes_per_token)
    unnamed = glance(look_into(out))
    assert unnamed.tokenizer is None and unnamed.num_tokens == true.num_tokens
    assert (unnamed.splits[0].num_documents is None) == (not get_format(name).traits.boundaries)


def test_first_shard_val_counts_a_cut_document_in_both_splits(tmp_path, small):
    out = prepared(tmp_path, small, format="npy", shard_tokens=1000)
    found = glance(look_into(out))
    assert found.num_documents == len(small)
    assert sum(split.num_documents for split in found.splits) == len(small) + 1


# A sample of lengths


def stream_of(tokens: np.ndarray, eot: str) -> Stream:
    shard = StreamShard("x", lambda: MappedShard(tokens), len(tokens))
    return Stream("train", [shard], False, eot, 0)


@pytest.mark.parametrize("eot", ["append", "prepend", "both"])
@pytest.mark.parametrize("size", [1, 2, 7, 64, 10_000])
def test_documents_that_start_in_blocks_are_all_documents_once(eot, size):
    rng = np.random.default_rng(0)
    true = rng.integers(1, 40, 200) + (eot == "both")
    before, after = eot in ("prepend", "both"), eot in ("append", "both")
    tokens = np.concatenate(
        [[0] * before + [1] * (n - before - after) + [0] * after for n in true.tolist()]
    ).astype(np.uint16)
    stream = stream_of(tokens, eot)
    spans = [
        span
        for start in range(0, len(tokens), size)
        for span in lengths._starting_in(stream, start, min(start + size, len(tokens)), eot, 0)
    ]
    found = [length for _, length in spans]
    if eot == "both":  # a block that begins between two EOT ids cannot tell what they are
        assert len(found) >= len(true) * (1 - 2 / size) - 1 and set(found) <= set(true.tolist())
    else:
        assert found == true.tolist()
        assert [start for start, _ in spans] == (np.cumsum(true) - true).tolist()


@pytest.mark.parametrize("eot", ["append", "prepend", "both"])
@pytest.mark.parametrize("name", ["nanogpt", "megatron", "parquet"])
def test_sample_of_lengths_favours_neither_short_nor_long_documents(
    eot, name, tmp_path, monkeypatch
):
    texts = ["mill " * (200 if number % 4 == 0 else 2) for number in range(2000)]
    out = prepared(tmp_path, texts, format=name, val="none", eot=eot, shuffle=True)
    for constant, value in {
        "EXACT_TOKENS": 1000,
        "UNPACKED_EXACT_TOKENS": 1000,
        "BLOCK_TOKENS": 128,
        "UNPACKED_BLOCK_TOKENS": 512,
        "SAMPLE_TOKENS": 4096,
    }.items():
        monkeypatch.setattr(lengths, constant, value)
    monkeypatch.setattr(lengths, "FEW_DOCUMENTS", 50)
    looked = look_into(out)
    shares, means = [], []
    for seed in range(40):
        found = lengths.document_lengths(looked.dataset, "train", seed)
        assert not found.is_exact and 20 < found.num_documents < 1000
        shares.append((found.mean - 3) / 200)
        means.append(found.percentiles["p50"])
    # A document at a random token is a long one 97 times in 100; one at random, 25 times.
    assert 0.2 < np.mean(shares) < 0.3
    assert set(means) <= set(range(3, 6))


# Documents


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("eot", ["append", "prepend", "both"])
@pytest.mark.parametrize("val", ["fraction", "first-shard"])
@pytest.mark.parametrize("shuffle", [False, True])
def test_document_k_is_the_source_text(name, eot, val, shuffle, tmp_path, small):
    options: dict[str, Any] = {"eot": eot, "val": val, "shuffle": shuffle, "seed": 7}
    if val == "fraction":
        options["val_fraction"] = 0.3
    elif get_format(name).traits.one_file or name == "megatron":
        pytest.skip("one file per split")
    if get_format(name).defaults.shard_tokens is not None:
        options["shard_tokens"] = 700
    out = prepared(tmp_path, small, format=name, **options)
    looked = look_into(out)
    if val == "first-shard" and not looked.stream("val").has_boundaries:
        count = len(documents_of(looked, "val"))
        assert looked.num_documents("val") == (None if eot == "both" else count)
        cut = document(looked, "val", count - 1, ALL).ids + document(looked, "train", 0, ALL).ids
        whole = oracle.reference().decode([i for i in cut if i != 50256])
        val_texts, train_texts = documents_of(looked, "val"), documents_of(looked, "train")
        if whole in small:  # the first shard's end cuts this document
            val_texts.pop()
            train_texts[0] = whole
    else:
        val_texts, train_texts = documents_of(looked, "val"), documents_of(looked, "train")
    assert sorted(val_texts + train_texts, key=number_of) == small
    if not shuffle:
        assert [number_of(text) for text in train_texts] == sorted(map(number_of, train_texts))


@pytest.mark.parametrize("name", SAMPLED)
def test_documents_among_samples_are_found_by_their_eot(name, tmp_path, small):
    out = prepared(tmp_path, small, format=name, val="none", seq_len=64)
    looked = look_into(out)
    found = documents_of(looked, "train")
    assert small[: len(found) - 1] == found[:-1] and small[len(found) - 1].startswith(found[-1])


def test_documents_of_eot_none_are_found_where_the_format_keeps_them_apart(tmp_path, small):
    for name in ("megatron", "datatrove", "parquet"):
        looked = look_into(prepared(tmp_path / name, small, format=name, eot="none", val="none"))
        assert documents_of(looked, "train") == small
    looked = look_into(prepared(tmp_path / "nanogpt", small, eot="none", val="none"))
    with pytest.raises(ConfigError, match="does not say where documents end"):
        document(looked, "train", 0, ALL)
    view = token_offset(looked, "train", 500, ALL, 100)
    assert (view.is_document, view.start, view.stop) == (False, 450, 550)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("nanogpt", {"eot": "append"}),
        ("nanogpt", {"eot": "prepend"}),
        ("nanogpt", {"eot": "both"}),
        ("npy", {"shard_tokens": 50, "val": "first-shard"}),
        ("megatron", {}),
        ("parquet", {"shard_tokens": 100}),
        ("mds", {"shard_tokens": 100, "eot": "none"}),
    ],
)
@pytest.mark.parametrize("has_manifest", [True, False])
def test_token_offset_shows_the_document_of_every_token(name, options, has_manifest, tmp_path):
    texts = [f"mill {'stone ' * (number % 7)}#{number}" for number in range(30)]
    out = prepared(tmp_path, texts, format=name, **{"val": "none", **options})
    split = "train"
    if not has_manifest:
        (Path(out) / "tokenmill.json").unlink()
    looked = look_into(out, tokenizer="gpt2")
    stream = looked.stream(split)
    token, number = 0, 0
    while token < stream.num_tokens:
        whole = document(looked, split, number, ALL)
        assert whole.start == token
        for inside in range(whole.start, whole.stop):
            view = token_offset(looked, split, inside, ALL)
            assert (view.document, view.start, view.stop) == (number, whole.start, whole.stop)
            assert view.ids == whole.ids
            shard, within = stream.shard_at(inside)
            assert int(shard.open().tokens(within, within + 1)[0]) == view.ids[inside - token]
        token, number = whole.stop, number + 1


def test_token_offset_of_a_long_document_shows_what_is_around_it(nano):
    looked = look_into(nano)
    longest = max(
        (document(looked, "train", k, ALL) for k in range(20)), key=lambda v: v.num_tokens
    )
    middle = longest.start + longest.num_tokens // 2
    view = token_offset(looked, "train", middle, 20)
    assert view.shown_start <= middle < view.shown_stop and len(view.ids) == 20
    assert (view.start, view.stop) == (longest.start, longest.stop)
    assert view.ids == longest.ids[view.shown_start - view.start :][:20]


def test_several_documents_and_a_cut_one_on_stdout(nano, small):
    looked = look_into(nano)
    texts = documents_of(looked, "train")
    done = inspect(nano, "--doc", 0, "--doc", 2, "--max-tokens", 0)
    shown = [
        re.sub(r"[\t\u200d]", lambda m: m[0].encode("unicode_escape").decode(), texts[k])
        for k in (0, 2)
    ]
    assert done.stdout == "".join(f"{text}⟦<|endoftext|>⟧\n" for text in shown)
    assert done.stderr.count("--- train, document ") == 2
    done = inspect(nano, "--doc", 2, "--max-tokens", 3, "--ids")
    ids = document(looked, "train", 2, ALL).ids
    assert done.stdout == " ".join(map(str, ids[:3])) + "\n"
    assert f"... {len(ids) - 3:,} more token: --max-tokens {len(ids)}" in done.stderr


def test_boundaries_without_colour_and_colour_when_asked(nano):
    looked = look_into(nano)
    view = document(looked, "train", 1, ALL)
    plain = inspect(nano, "--doc", 1, "--boundaries").stdout
    assert plain.count("│") == len(pieces(looked.token_bytes, view.ids)) - 1
    assert "\x1b" not in plain
    colour = inspect(nano, "--doc", 1, "--color", "always").stdout
    assert colour.count("\x1b[0m") >= len(pieces(looked.token_bytes, view.ids))
    # No colour is on where a line breaks: the terminal would fill the line with it.
    for line in colour.split("\n"):
        assert line == "" or line.endswith("\x1b[0m")


def test_random_document_is_the_same_for_a_seed_and_says_its_number(nano):
    looked = look_into(nano)
    views = [random_document(looked, None, seed, ALL) for seed in range(60)]
    assert views[5] == random_document(looked, None, 5, ALL)
    assert len({view.document for view in views}) > 15
    done = inspect(nano, "--random", "--seed", 5)
    assert f"(--doc {views[5].document})" in done.stderr
    assert inspect(nano, "--random", "--json").returncode == 0


def test_tokens_that_share_a_character_are_shown_as_one(nano):
    table = look_into(nano).token_bytes
    ids = oracle.reference().encode_ordinary("a🙂東京é\ud800".encode(errors="replace").decode())
    found = pieces(table, ids)
    assert "".join(piece.text for piece in found) == "a🙂東京é?"
    assert [i for piece in found for i in piece.ids] == ids
    assert all(piece.text for piece in found) and any(len(piece.ids) > 1 for piece in found)
    [half] = pieces(table, oracle.reference().encode_ordinary("🙂")[:1])
    assert half.text.encode(errors="surrogateescape") == "🙂".encode()[: len(half.text)]
    kinds = [piece.kind for piece in pieces(table, [464, 50256, 60000, 464])]
    assert kinds == ["text", "special", "unknown", "text"]


# Search


def brute_force(looked: LookedInto, needle: str) -> list[tuple[str, int]]:
    return [
        (split, number)
        for split in looked.dataset.streams
        for number, text in enumerate(documents_of(looked, split))
        if needle in text
    ]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("batch_tokens", [300, 1 << 22])
def test_grep_finds_exactly_the_documents_that_hold_the_text(
    name, batch_tokens, tmp_path, small, monkeypatch
):
    monkeypatch.setattr(search, "BATCH_TOKENS", batch_tokens)
    monkeypatch.setattr(search, "FIRST_TOKENS", max(1, batch_tokens // 2))
    texts = [
        f"{text} planted: xylo-QUARTZ 東🙂" if k % 9 == 4 else text for k, text in enumerate(small)
    ]
    texts = [f"{text} #{number}" for number, text in enumerate(texts)]
    out = prepared(tmp_path, texts, format=name, val="fraction", val_fraction=0.3)
    looked = look_into(out)
    for needle in (
        "ylo-QUA",
        "QUARTZ 東🙂 #",
        "🙂",
        "e",
        "<|endoftext|>",
        "#59",
        "never there",
        "naïve",
    ):
        found = [
            hit for step in search_text(looked, ["train", "val"], needle, 1000) for hit in step.hits
        ]
        assert [(hit.split, hit.document) for hit in found] == brute_force(looked, needle)
        for hit in found:
            view = document(looked, hit.split, hit.document, ALL)
            text = view.to_plain(looked)["text"]
            assert hit.num_times == text.count(needle) and hit.match == needle
            assert f"{hit.before}{hit.match}{hit.after}" in text
            assert view.start <= hit.token < view.stop
            assert needle in oracle.reference().decode(list(hit.ids))
            at = hit.token - view.start
            assert view.ids[at : at + len(hit.ids)] == hit.ids


def test_grep_does_not_find_text_across_documents(tmp_path):
    for eot in ("append", "prepend", "none"):
        out = prepared(tmp_path / eot, ["ends in quar", "tz begins"], format="megatron", eot=eot)
        looked = look_into(out)
        [step] = search_text(looked, ["train"], "quartz", 10)
        assert not step.hits and step.num_documents == 2


@pytest.mark.parametrize("batch_tokens", [5, 64, 1 << 22])
def test_grep_where_no_documents_are_known_finds_every_place(
    batch_tokens, tmp_path, small, monkeypatch
):
    monkeypatch.setattr(search, "BATCH_TOKENS", batch_tokens)
    monkeypatch.setattr(search, "FIRST_TOKENS", max(1, batch_tokens // 2))
    looked = look_into(prepared(tmp_path, small, eot="none", val="none"))
    whole = "".join(small)
    for needle in ("stone", "don't we'll", "🙂", "ill g", " "):
        steps = list(search_text(looked, ["train"], needle, 10**6))
        assert sum(len(step.hits) for step in steps) == whole.count(needle)
        assert steps[-1].num_documents is None
        tokens = [hit.token for step in steps for hit in step.hits]
        assert tokens == sorted(tokens)


@pytest.mark.parametrize("batch_tokens", [7, 1 << 22])
@pytest.mark.parametrize("eot", ["append", "none"])
def test_grep_ids_finds_every_sequence(batch_tokens, eot, tmp_path, small, monkeypatch):
    monkeypatch.setattr(search, "BATCH_TOKENS", batch_tokens)
    monkeypatch.setattr(search, "FIRST_TOKENS", max(1, batch_tokens // 2))
    looked = look_into(prepared(tmp_path, small, eot=eot, val="none"))
    stream = looked.stream("train")
    tokens = stream.tokens(0, stream.num_tokens).tolist()
    rng = np.random.default_rng(0)
    for length in (1, 2, 3, 20):
        for start in rng.integers(0, len(tokens) - length, 8).tolist():
            wanted = tokens[start : start + length]
            places = [p for p in range(len(tokens)) if tokens[p : p + length] == wanted]
            steps = list(search_ids(looked, ["train"], wanted, 10**6))
            hits = [hit for step in steps for hit in step.hits]
            assert sum(hit.num_times for hit in hits) == len(places)
            assert {hit.token for hit in hits} <= set(places)
            assert all(list(hit.ids) == wanted for hit in hits)
            assert all(hit.document == stream.document_at(hit.token) for hit in hits)


def test_grep_stops_at_the_limit_and_says_how_far_it_came(nano):
    done = inspect(nano, "--grep", "the", "--limit", 3, "--json")
    found = json.loads(done.stdout)
    assert len(found["hits"]) == 3 and not found["is_complete"]
    assert found["num_documents_searched"] == found["hits"][-1]["document"] + 1
    done = inspect(nano, "--grep", "the", "--limit", 3)
    assert done.stdout.count("\n") == 3 and done.stdout.count("[[the]]") == 3
    assert f"3 of {found['num_documents_searched']} documents" in done.stderr
    assert "--limit 30 for more" in done.stderr
    done = inspect(nano, "--grep", "not in there")
    assert (done.returncode, done.stdout) == (0, "") and "0 of 60 documents" in done.stderr
    done = inspect(nano, "--grep-ids", "1169", "--split", "val", "--ids")
    assert done.returncode == 0 and "train" not in done.stdout


# The terminal is not for documents to command

EVIL = (
    "\x1b[31mred\x1b]0;title\x07\x1bP payload\x1b\\ \x00\x01\x08\x7f \x80\x9b31m\x9d "
    "\u202ertl\u2066 \u200b\u200d\ufeff \u2028\u2029 \ue000 \U000e0041 tab\there\r\nnext line"
)
HARMLESS = re.compile(r"\x1b\[(0|1|4|38;5;\d+|48;5;\d+|;)*m")


def assert_harmless(text: str) -> None:
    """Nothing but printable characters and line breaks."""
    for char in text:
        assert char == "\n" or char.isprintable(), repr(char)


@pytest.fixture(scope="module")
def evil(tmp_path_factory) -> str:
    return prepared(tmp_path_factory.mktemp("evil"), [f"{EVIL} #{k}" for k in range(4)], val="none")


def test_documents_reach_the_terminal_escaped(evil):
    done = inspect(evil, "--doc", 0)
    assert_harmless(done.stdout)
    assert_harmless(done.stderr)
    for escape in (r"\x1b[31mred", r"\x00", r"\x9b31m", r"\u202ertl", r"\u200d", r"\ue000", r"\t"):
        assert escape in done.stdout
    assert done.stdout.count("\n") == 2 and "\nnext line #0" in done.stdout


def test_colours_are_our_own_and_nothing_else(evil):
    done = inspect(evil, "--doc", 0, "--color", "always")
    assert "\x1b[31m" not in done.stdout and HARMLESS.search(done.stdout)
    assert_harmless(HARMLESS.sub("", done.stdout))


@pytest.mark.parametrize("colour", ["always", "never"])
def test_snippets_reach_the_terminal_escaped(evil, colour):
    for search_option in (("--grep", "red"), ("--grep", "next"), ("--grep-ids", "50256")):
        done = inspect(evil, *search_option, "--color", colour)
        assert done.returncode == 0 and done.stdout
        assert_harmless(HARMLESS.sub("", done.stdout) if colour == "always" else done.stdout)
        assert "\x1b[31m" not in done.stdout
        assert_harmless(done.stderr)


def test_json_has_the_text_as_it_is_and_is_ascii(evil):
    done = inspect(evil, "--doc", 0, "--json")
    assert json.loads(done.stdout)["documents"][0]["text"] == f"{EVIL} #0"
    assert done.stdout.isascii()
    assert_harmless(done.stdout)


def test_names_and_errors_reach_the_terminal_escaped(tmp_path, small, evil):
    folder = tmp_path / "evil\x1b]0;t\x07\u202e\n"
    shutil.copytree(evil, folder)
    for arguments in (
        (),
        ("--doc", "0"),
        ("--doc", "99"),
        ("--split", "\x1bx"),
        ("--grep-ids", "\x1b"),
    ):
        done = inspect(folder, *arguments)
        assert_harmless(done.stdout + done.stderr)
    (folder / "train.bin").write_bytes(b"")
    done = inspect(folder)
    assert done.returncode == 5
    assert_harmless(done.stderr)


def on_a_terminal(*arguments: object, **environment: str) -> str:
    given = {"TERM": "xterm-256color", **environment}
    return shown_on_terminal([*COMMAND, *map(str, arguments)], "stdout", given)


def test_colours_follow_the_terminal_no_color_and_the_option(nano):
    assert "\x1b[" in on_a_terminal(nano, "--doc", 0, NO_COLOR="")
    assert "\x1b[" not in on_a_terminal(nano, "--doc", 0, NO_COLOR="1")
    assert "\x1b[" not in on_a_terminal(nano, "--doc", 0, NO_COLOR="", TERM="dumb")
    assert "\x1b[" not in on_a_terminal(nano, "--doc", 0, "--color", "never", NO_COLOR="")
    assert "\x1b[" in on_a_terminal(nano, "--doc", 0, "--color", "always", NO_COLOR="1")


def test_stdout_that_is_not_utf8_gets_escapes(nano):
    done = inspect(nano, "--grep", "東京", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0 and "[[\\u6771\\u4eac]]" in done.stdout


# Errors say what to type


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--doc", "1000"],
            r"train has no document 1,000: they are numbered 0 to \d+\nhint: --doc \d+ is",
        ),
        (["--doc", "-1"], "train has no document -1: they are numbered 0 to"),
        (["--doc", "x"], "--doc: not a number: 'x'"),
        (["--split", "test"], "unknown split 'test'; known: train, val"),
        (["--split", "test", "--doc", "0"], "unknown split 'test'; known: train, val"),
        (
            ["--token-offset", "1e12"],
            r"train has no token 1,000,000,000,000: they are numbered 0 to [\d,]+\nhint: --t",
        ),
        (["--token-offset", "-5"], "train has no token -5"),
        (["--grep", ""], "the text to search for is empty"),
        (["--grep-ids", ""], "no ids to search for"),
        (["--grep-ids", "the"], "--grep-ids takes token ids, got 'the'"),
        (["--grep", "x", "--limit", "0"], "--limit 0 finds nothing"),
        (["--format", "npy"], "--format npy, but the manifest says nanogpt"),
        (["--dtype", "uint32"], "--dtype uint32, but the manifest says uint16"),
        (
            ["--tokenizer", "cl100k_base"],
            r"cl100k_base has sha256 \w{64}, but .* gpt2, sha256 \w{64}",
        ),
        (["--tokenizer", "gpt9"], "unknown encoding 'gpt9'"),
    ],
)
def test_wrong_options_exit_2_and_say_what_is_right(arguments, message, nano, capsys):
    assert main(["inspect", nano, *arguments]) == 2
    assert re.search(message, capsys.readouterr().err)


def test_a_text_that_is_not_utf8_is_refused(nano):
    done = subprocess.run([*COMMAND, nano, "--grep", b"\xff"], capture_output=True, check=False)
    assert done.returncode == 2 and b"is not UTF-8" in done.stderr


def test_tokenizer_files_are_named_again_and_compared(tmp_path, small):
    vocabulary = Path(oracle.VOCAB) / "r50k_base.tiktoken"
    mine = tmp_path / "mine.tiktoken"
    mine.write_bytes(vocabulary.read_bytes())
    for eot_token in (None, "<|mine|>=50300"):
        folder = tmp_path / f"eot-{eot_token}"
        out = prepared(
            folder, small, tokenizer=str(mine), pattern="gpt2", eot_token=eot_token, val="none"
        )
        done = inspect(out, "--doc", 0)
        assert done.returncode == 0 and re.fullmatch(r"[\d \n]+", done.stdout)
        assert "as ids: made with mine, a .tiktoken file" in done.stderr
        assert "--tokenizer FILE" in done.stderr
        looked = look_into(out, tokenizer=str(mine))
        assert documents_of(looked, "train") == small
        done = inspect(out, "--grep", "mill")
        assert done.returncode == 2 and "without the tokenizer" in done.stderr
        assert inspect(out, "--grep-ids", "464").returncode == 0
        other = tmp_path / "other.tiktoken"
        other.write_bytes(b"\n".join(mine.read_bytes().splitlines()[:-1]) + b"\n")
        with pytest.raises(ConfigError, match=r"other\.tiktoken has sha256"):
            look_into(out, tokenizer=str(other))
        assert glance(look_into(out)).tokenizer["name"] == "mine"


def test_tokenizer_json_decodes_its_own_documents(tmp_path, small):
    import tokenizers

    model = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token=None, byte_fallback=True))
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    model.train_from_iterator(small, trainer)
    path = tmp_path / "tokenizer.json"
    model.save(str(path))
    out = prepared(tmp_path / "out", small, tokenizer=str(path), val="none")
    assert documents_of(look_into(out, tokenizer=str(path)), "train") == small
    assert documents_of(look_into(out, tokenizer=str(tmp_path)), "train") == small
    assert "a tokenizer.json" in str(look_into(out).missing)


def test_strangers_folder_without_tokenizer_shows_ids_around_a_token(tmp_path):
    np.arange(5000, dtype="<u2").tofile(tmp_path / "train.bin")
    done = inspect(tmp_path, "--token-offset", 3000, "--max-tokens", 10)
    assert done.stdout == "2995 2996 2997 2998 2999 3000 3001 3002 3003 3004\n"
    assert "name it with --tokenizer" in done.stderr
    done = inspect(tmp_path, "--doc", 0)
    assert done.returncode == 2 and "--tokenizer gpt2" in done.stderr
    done = inspect(tmp_path, "--token-offset", 0, "--tokenizer", "gpt2")
    assert done.returncode == 0 and done.stdout.startswith('!"#$%')


def test_strangers_wide_vocabulary_is_read_as_uint32(tmp_path):
    ids = [*oracle.reference("cl100k_base").encode_ordinary("東京 the mill"), 100257]
    np.array(ids, "<u4").tofile(tmp_path / "train.bin")
    looked = look_into(str(tmp_path), tokenizer="cl100k_base")
    assert documents_of(looked, "train") == ["東京 the mill"]


def test_random_document_of_a_strangers_folder_says_how_to_show_it_again(tmp_path, small):
    out = prepared(tmp_path, small, val="none")
    (Path(out) / "tokenmill.json").unlink()
    looked = look_into(out, tokenizer="gpt2")
    for seed in range(5):
        view = random_document(looked, None, seed, ALL)
        assert view == token_offset(looked, None, view.token_offset, ALL)
        assert view.to_plain(looked)["text"] == small[view.document]


# Damage


def fails(folder: Path | str, *arguments: str) -> str:
    """What stands on stderr; it must be an integrity error."""
    done = inspect(folder, *arguments)
    assert done.returncode == 5, done.stderr
    assert done.stderr.startswith("error: ") and "Traceback" not in done.stderr
    return done.stderr


def test_unfinished_run_is_named_as_such(tmp_path):
    (tmp_path / "out" / ".tokenmill").mkdir(parents=True)
    assert "is not finished" in fails(tmp_path / "out")


@pytest.mark.parametrize("name", NAMES)
def test_truncated_missing_and_linked_files_are_named(name, tmp_path, small, capsys):
    out = prepared(tmp_path, small, format=name, val="none")
    manifest = json.loads((Path(out) / "tokenmill.json").read_text())
    for file in manifest["files"]:
        path = Path(out) / file["name"]
        data = path.read_bytes()
        damages = {
            "shorter": lambda path=path, data=data: path.write_bytes(data[:-2]),
            "empty": lambda path=path: path.write_bytes(b""),
            "missing": lambda path=path: path.unlink(),
            "folder": lambda path=path: (path.unlink(missing_ok=True), path.mkdir()),
        }
        outside = tmp_path / "outside"
        outside.write_bytes(data)
        for damage in damages.values():
            damage()
            assert main(["inspect", out]) == 5
            assert file["name"] in capsys.readouterr().err
        path.rmdir()
        path.symlink_to(outside)
        assert main(["inspect", out, "--doc", "0"]) == 5
        assert "leads out of the folder" in capsys.readouterr().err
        path.unlink()
        path.write_bytes(data)
    assert main(["inspect", out]) == 0


@pytest.mark.parametrize("name", ["megatron", "mds", "litdata", "parquet", "npy", "llmc"])
def test_wrong_magic_is_named(name, tmp_path, small):
    out = prepared(tmp_path, small, format=name, val="none")
    shard = json.loads((Path(out) / "tokenmill.json").read_text())["files"][0]["name"]
    path = Path(out) / shard.replace("_document.bin", "_document.idx")
    path.write_bytes(b"\0" * 8 + path.read_bytes()[8:-8] + b"\0" * 8)
    assert str(path) in fails(out)


def looked_at_from_all_sides(folder: str, **options: Any) -> None:
    looked = look_into(folder, **options)
    glance(looked)
    for split in looked.dataset.streams:
        if looked.stream(split).num_tokens:
            token_offset(looked, split, looked.stream(split).num_tokens - 1, 50)
        if looked.stream(split).knows_documents:
            for number in (0, 7):
                document(looked, split, number, 50)
        list(search_ids(looked, [split], [464, 3290], 5))
        if looked.token_bytes is not None:
            list(search_text(looked, [split], "mill", 5))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("has_manifest", [True, False])
def test_garbage_in_files_is_an_error_of_ours_or_garbage(name, has_manifest, tmp_path, small):
    out = prepared(tmp_path, small, format=name, val="none")
    names = [
        file["name"] for file in json.loads((Path(out) / "tokenmill.json").read_text())["files"]
    ]
    if not has_manifest:
        (Path(out) / "tokenmill.json").unlink()
    options = {} if has_manifest else {"tokenizer": "gpt2"}
    rng = np.random.default_rng(1)
    for file in names:
        path = Path(out) / file
        data = path.read_bytes()
        for trial in range(12):
            damaged = bytearray(data)
            if trial < 3:
                damaged[:] = rng.bytes(len(data))
            else:
                at = int(rng.integers(0, min(len(data), 200 if trial % 2 else len(data))))
                damaged[at : at + 4] = rng.bytes(len(damaged[at : at + 4]))
            if not has_manifest and trial % 3 == 0:
                damaged = damaged[: int(rng.integers(0, len(data)))]
            path.write_bytes(bytes(damaged))
            with contextlib.suppress(TokenmillError):
                looked_at_from_all_sides(out, **options)
        path.write_bytes(data)


def values_in(plain: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of everything in a JSON document."""
    found = [path] if path else []
    if isinstance(plain, dict):
        items: Any = plain.items()
    elif isinstance(plain, list):
        items = list(enumerate(plain))[:3]
    else:
        return found
    return found + [deeper for key, value in items for deeper in values_in(value, (*path, key))]


ODD = (
    None,
    True,
    -1,
    0,
    1,
    3.5,
    2**62,
    2**70,
    "",
    "x\x1b",
    "../x",
    "both",
    "none",
    [],
    [[5, 5]],
    {},
)


@pytest.mark.parametrize("name", ["nanogpt", "npy", "megatron", "mds", "parquet"])
def test_hostile_manifests_are_an_error_of_ours(name, tmp_path, share):
    texts = made_texts(12, seed=9)
    options = {} if name in ("nanogpt", "megatron") else {"shard_tokens": 300}
    out = prepared(tmp_path, texts, format=name, val="fraction", val_fraction=0.3, **options)
    path = Path(out) / "tokenmill.json"
    honest = json.loads(path.read_text())
    num_refused = 0
    for number, place in enumerate(values_in(honest)):
        if place[0] in ("inputs", "slice_documents") and len(place) > 1:
            continue
        for value in ODD[number % share :: share]:
            plain = copy.deepcopy(honest)
            inner = plain
            for key in place[:-1]:
                inner = inner[key]
            inner[place[-1]] = value
            path.write_text(json.dumps(plain))
            try:
                looked_at_from_all_sides(out)
            except TokenmillError as error:
                num_refused += error.exit_code == 5
    assert num_refused > 200 // share
    for text in ("", "[]", "{", "null", '{"tokenmill_manifest": 1}', "[" * 100_000, "\x00\xff"):
        path.write_text(text)
        with pytest.raises(IntegrityError, match=r"tokenmill\.json"):
            look_into(out)
    assert "tokenmill.json" in fails(out)


def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path, small):
    out = prepared(tmp_path, small, val="none")
    (Path(out) / "train.bin").unlink()
    os.mkfifo(Path(out) / "train.bin")
    assert "train.bin" in fails(out)
    (Path(out) / "tokenmill.json").unlink()
    done = inspect(out, timeout=20)
    assert done.returncode == 2 and "is not a dataset" in done.stderr
    os.mkfifo(Path(out) / "tokenmill.json")
    assert "tokenmill.json" in inspect(out, timeout=20).stderr


def test_unreadable_file_is_named(tmp_path, small):
    if os.getuid() == 0:
        pytest.skip("root reads everything")
    out = prepared(tmp_path, small, val="none")
    (Path(out) / "train.bin").chmod(0)
    done = inspect(out)
    assert done.returncode in (3, 5) and "train.bin" in done.stderr


# Size


def sparse_100_gb(folder: Path, eot: str = "append") -> None:
    """A folder whose manifest promises 50B tokens, in a file of holes."""
    num_tokens = 50_000_000_000
    num_documents = num_tokens // 700
    with open(folder / "train.bin", "wb") as file:
        file.truncate(2 * num_tokens)
    encoding = tokenmill.get_encoding("gpt2").identity.to_plain()
    del encoding["source"]
    options = {"format": "nanogpt", "dtype": "uint16", "eot": eot, "val": "none", "shuffle": False}
    shard = {"name": "train.bin", "split": "train", "num_tokens": num_tokens, "sha256": "0" * 64}
    counts = {"num_rows": num_documents, "num_written": num_documents, "text_bytes": 220 * 10**9}
    manifest = {
        "tokenmill_manifest": 1,
        "identity": {"options": options, "encoding": encoding, "versions": {}},
        "inputs": [],
        "files": [{**shard, "num_documents": num_documents, "num_bytes": 2 * num_tokens}],
        "splits": {"train": {"num_tokens": num_tokens, "num_documents": num_documents}},
        "counts": counts,
    }
    (folder / "tokenmill.json").write_text(json.dumps(manifest))


def test_100_gb_open_at_once(tmp_path):
    sparse_100_gb(tmp_path)
    began = time.monotonic()
    done = inspect(tmp_path)
    assert time.monotonic() - began < 5  # under 0.5 s on an idle machine
    assert done.returncode == 0 and "50,000,000,000 as uint16, 100.0 GB" in done.stdout


def test_ctrl_c_ends_a_search_by_that_signal(tmp_path):
    sparse_100_gb(tmp_path, eot="none")
    process = subprocess.Popen(
        [*COMMAND, str(tmp_path), "--grep", "x"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    time.sleep(2)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == -signal.SIGINT
    assert b"Traceback" not in errors


def test_closed_pipe_is_no_traceback(nano):
    command = (
        f"{' '.join(COMMAND)} {nano} --doc 0 --doc 1 --doc 2 | head -c 1; exit ${{PIPESTATUS[0]}}"
    )
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=False)
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("ignored", "needed"),
    [
        (["--limit", "5"], "--grep"),
        (["--max-tokens", "5"], "--doc"),
        (["--ids"], "--doc"),
        (["--boundaries"], "--doc"),
        (["--pattern", "gpt2"], "--tokenizer"),
        (["--eot-token", "x"], "--tokenizer"),
    ],
    ids=str,
)
def test_command_when_an_option_would_be_ignored_then_refused(ignored, needed, nano):
    done = inspect(nano, *ignored)
    assert done.returncode == 2 and f"{ignored[0]} does nothing without {needed}" in done.stderr


def test_command_when_there_is_no_text_then_json_says_why(tmp_path, small):
    mine = tmp_path / "mine.tiktoken"
    mine.write_bytes((Path(oracle.VOCAB) / "r50k_base.tiktoken").read_bytes())
    out = prepared(tmp_path / "out", small, tokenizer=str(mine), pattern="gpt2", val="none")
    plain = json.loads(inspect(out, "--doc", 0, "--json").stdout)
    assert plain["documents"][0]["text"] is None and "--tokenizer FILE" in plain["missing"]
    named = json.loads(inspect(out, "--doc", 0, "--json", "--tokenizer", mine).stdout)
    assert named["documents"][0]["text"] == small[0] and named["missing"] is None
    other = inspect(out, "--doc", 0, "--tokenizer", mine, "--eot-token", "<|other|>=50300")
    assert other.returncode == 2 and "the tokens were made with" in other.stderr
