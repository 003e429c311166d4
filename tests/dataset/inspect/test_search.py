"""`tokenmill inspect`: a search finds exactly what brute force finds."""

from __future__ import annotations

import json

import numpy as np
import pytest

import oracle
from inspected import ALL, documents_of, inspect, prepared
from tokenmill.dataset.inspect import (
    LookedInto,
    document,
    look_into,
    search,
    search_ids,
    search_text,
)
from tokenmill.formats import NAMES


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
