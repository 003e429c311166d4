"""What the page is told, against `tokenmill.open`: nine formats, strangers' shards, odd sizes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers

import tokenmill
from corpora import made_texts
from tests.look.view.served import answered, asked, served
from tokenmill.formats import NAMES
from tokenmill.look.view import dataset_view
from tokenmill.look.view.dataset_view import PAGE_TOKENS

TEXTS = made_texts(40)
EOT = 50256


def prepared(folder: Path, texts: list[str], **options: Any) -> str:
    corpus = folder / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    out = str(folder / "out")
    tokenmill.prepare(corpus, out, runner="inline", **options)
    return out


def ids_of(page: dict[str, Any]) -> list[int]:
    return [token for piece in page["pieces"] for token in piece["ids"]]


@pytest.mark.parametrize("name", NAMES)
def test_places_of_every_format_are_those_of_open(tmp_path, name):
    options: dict[str, Any] = {"shard_tokens": 500} if name in ("npy", "llmc") else {}
    options |= {"seq_len": "document"} if name == "mds" else {}
    out = prepared(tmp_path, TEXTS, format=name, **options)
    with served(out) as server, tokenmill.open(out) as data:
        for told in asked(server, "dataset")["splits"]:
            part = data[told["name"]]
            assert told["num_tokens"] == part.num_tokens
            assert told["num_documents"] in (None, len(part))
            for number in {0, 1, len(part) // 2, len(part) - 1} & set(range(len(part))):
                place = asked(server, "place", split=part.name, document=number)
                start, stop = part.span(number)
                assert (place["document"], place["start"], place["stop"]) == (number, start, stop)
                assert ids_of(place["page"]) == part.document(number).tolist()[:PAGE_TOKENS]
                middle = (start + stop) // 2
                at = asked(server, "place", split=part.name, token=middle)
                assert (at["document"], at["start"], at["token"]) == (number, start, middle)
                assert f"--doc {number}" in place["command"]
            found = asked(server, "random", split=part.name)
            assert part.span(found["document"]) == (found["start"], found["stop"])


def test_pieces_have_every_token_with_its_text_and_bytes(tmp_path):
    out = prepared(tmp_path, ["half 👩‍👧 <b>\n\x1b 東"], val="none")
    with served(out) as server, tokenmill.open(out) as data:
        pieces = asked(server, "place", split="train", document=0)["page"]["pieces"]
        tokens = data["train"].tokens().tolist()
    shown = "".join("".join(piece["runs"]) for piece in pieces if piece["kind"] == "text")
    assert shown == "half 👩\\u200d👧 <b>\n\\x1b 東"
    assert bytes.fromhex("".join("".join(p["bytes"]) for p in pieces)) == b"".join(
        tokenmill.get_encoding("gpt2").decode_single_token_bytes(token) for token in tokens[:-1]
    )
    assert pieces[-1] == {
        "kind": "special",
        "ids": [EOT],
        "bytes": [""],
        "runs": ["<|endoftext|>"],
    }


def test_other_tokenizer_has_the_same_bytes_and_its_own_ids(tmp_path):
    text, other = "half 👩‍👧 <|endoftext|> x\n东 tokenization", tokenmill.get_encoding("o200k_base")
    out = prepared(tmp_path, [text], val="none")
    with served(out, other) as server:
        assert asked(server, "dataset")["other"] == "o200k_base"
        found = asked(server, "compared", split="train", start=0, stop=100)
    assert ids_of(found) == other.encode_ordinary(text)
    (tmp_path / "loose").mkdir()
    np.array([447, 464, EOT], "<u2").tofile(tmp_path / "loose" / "train.bin")
    with served(str(tmp_path / "loose"), other, tokenizer="gpt2", dtype="uint16") as server:
        assert "no text" in asked(server, "compared", split="train", start=0, stop=3)["error"]


@pytest.mark.parametrize("page_tokens", [1, 2, 3, 7])
def test_pages_that_end_inside_a_character_are_compared_too(tmp_path, monkeypatch, page_tokens):
    """Each character is in the page in which it begins."""
    monkeypatch.setattr(dataset_view, "PAGE_TOKENS", page_tokens)
    text, other = "half 👩‍👧 東京 ᚠᛇᚻ x 𓀀𓀁é end", tokenmill.get_encoding("o200k_base")
    out = prepared(tmp_path, [text], val="none")
    ids = tokenmill.get_encoding("gpt2").encode_ordinary(text)
    data = [tokenmill.get_encoding("gpt2").decode_bytes([token]) for token in ids]
    found, skipped = b"", 0
    with served(out, other) as server:
        for start in range(0, len(ids), page_tokens):
            stop = min(len(ids), start + page_tokens)
            page = asked(server, "compared", split="train", start=start, stop=stop)
            assert "error" not in page, page
            begins = len(b"".join(data[:start])) + page["skipped"]
            shown = b"".join(bytes.fromhex("".join(piece["bytes"])) for piece in page["pieces"])
            assert begins == len(found) or not shown
            found, skipped = found + shown, skipped + page["skipped"]
    assert found.decode() == text and skipped


def test_names_of_a_forged_tokenizer_do_not_reorder_the_header(tmp_path):
    name = "gpt\u202e2\u2066"
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "</s>": 1}, unk_token="a"))
    words.add_special_tokens(["</s>"])
    words.save(str(tmp_path / f"{name}.json"))
    out = prepared(tmp_path, ["a"], val="none", tokenizer=str(tmp_path / f"{name}.json"))
    with served(out) as server:
        found = asked(server, "dataset")
    assert "gpt\\u202e2" in found["tokenizer"]
    assert not any("\u202e" in str(value) for value in found.values())


def test_strangers_shards_empty_split_and_unknown_documents(tmp_path):
    tokens = np.arange(2 * PAGE_TOKENS + 5, dtype="<u2")
    tokens.tofile(tmp_path / "train.bin")
    (tmp_path / "val.bin").write_bytes(b"")
    with served(str(tmp_path), dtype="uint16", format_name="nanogpt") as server:
        told = asked(server, "dataset")
        assert not told["has_manifest"] and "--tokenizer" in told["missing"]
        assert asked(server, "strip", split="train")["bytes_per_token"] == []
        place = asked(server, "place", split="train", token=PAGE_TOKENS + 7)
        assert (place["is_document"], place["start"], place["stop"]) == (False, 0, len(tokens))
        assert ids_of(place["page"]) == tokens[PAGE_TOKENS : 2 * PAGE_TOKENS].tolist()
        assert place["page"]["pieces"][0]["runs"] == [str(PAGE_TOKENS)]
        assert asked(server, "place", split="val", token=0) == {"error": "val is empty"}
        assert (
            "does not say where documents end"
            in asked(server, "place", split="train", document=0)["error"]
        )
        hits = answered(server, f"/{server.guard.secret}/api/search?split=train&ids=17,18")[2]
        assert json.loads(hits.splitlines()[0])["hits"][0]["token"] == 17


def test_long_document_comes_in_pages(tmp_path):
    """10 MB in one document, of which each answer has one page."""
    out = prepared(tmp_path, ["ab " * (10 * 2**20 // 3), "short"], val="none")
    with served(out) as server, tokenmill.open(out) as data:
        tokens, found = data["train"].document(0).tolist(), []
        place = asked(server, "place", split="train", document=0)
        assert place["num_bytes"] == 10 * 2**20 // 3 * 3
        for start in range(0, len(tokens), 100 * PAGE_TOKENS):
            page = asked(server, "page", split="train", start=start, stop=place["stop"])
            assert len(ids_of(page)) <= PAGE_TOKENS
            found.append(ids_of(page) == tokens[start : start + PAGE_TOKENS])
        assert all(found) and len(found) > 5
        last = asked(server, "place", split="train", token=place["stop"] - 1)
        assert last["page"]["stop"] == place["stop"] == len(tokens)


def test_search_streams_hits_and_a_new_search_ends_the_old_one(tmp_path):
    out = prepared(tmp_path, [*TEXTS, "needle <b>in</b> \x1b hay"], val="none", format="npy")
    with served(out) as server:
        target = f"/{server.guard.secret}/api/search?split=train&"
        *lines, end = map(json.loads, answered(server, target + "text=needle")[2].splitlines())
        hits = [hit for line in lines for hit in line["hits"]]
        assert [hit["match"] for hit in hits] == [["needle"]]
        assert hits[0]["after"] == [" <b>in</b> ", "\\x1b", " hay"]
        assert end["end"] and end["is_complete"]
        old = server.view.search("train", "e", [])
        server.view.search("train", "a", [])
        assert list(old) == []
        for query in ("text=", "ids=x", "ids=", f"text={'x' * 2000}", ""):
            assert answered(server, target + query)[0] == 400, query


@pytest.mark.parametrize("query", ["split=nope&token=0", "split=train&document=-1", "split=train"])
def test_wrong_questions_get_a_message(tmp_path, query):
    np.array([464, EOT], "<u2").tofile(tmp_path / "train.bin")
    with served(str(tmp_path), dtype="uint16", tokenizer="gpt2") as server:
        status, _, body = answered(server, f"/{server.guard.secret}/api/place?{query}")
        assert status == 400 and json.loads(body)["error"]


def test_link_is_bound_to_the_dataset(tmp_path):
    marks = []
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        with served(prepared(folder, TEXTS[: 5 + number], val="none")) as server:
            marks.append(asked(server, "dataset")["mark"])
    assert len(set(marks)) == 2 and all(len(mark) == 12 for mark in marks)
