"""`tokenmill inspect`: a document that is shown is the source text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import oracle
from inspected import ALL, SAMPLED, documents_of, inspect, number_of, prepared
from tokenmill.dataset.inspect import (
    document,
    look_into,
    pieces,
    random_document,
    token_offset,
)
from tokenmill.errors import ConfigError
from tokenmill.formats import NAMES, get_format


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
