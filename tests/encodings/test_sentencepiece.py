"""SentencePiece's BPE models: equal to its rule, said slowly here; others refused by name."""

from __future__ import annotations

import importlib.util
import random
import struct
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

import tokenmill
from tokenmill.encodings import get_encoding
from tokenmill.encodings.selfcheck import probe_texts
from tokenmill.errors import ConfigError

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
WORDS = ["he", "▁h", "▁he", "ll", "llo", "▁hello", "ab", "ba", "aba", "éé", "▁a"]
SPACES = ["▁▁", "▁▁▁▁", "▁▁▁"]
LETTERS = [*"helobaé▁"]


def field(number: int, value: bytes | int | float) -> bytes:
    if isinstance(value, bytes):
        return bytes([number << 3 | 2]) + varint(len(value)) + value
    if isinstance(value, float):
        return bytes([number << 3 | 5]) + struct.pack("<f", value)
    return varint(number << 3) + varint(value)


def varint(number: int) -> bytes:
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])


def pieces() -> list[tuple[str, float, int]]:
    found = [("<unk>", 0.0, UNKNOWN), ("<s>", 0.0, CONTROL), ("</s>", 0.0, CONTROL)]
    found += [(f"<0x{byte:02X}>", 0.0, BYTE) for byte in range(256)]
    found += [(word, -float(rank), NORMAL) for rank, word in enumerate(WORDS)]
    found += [(run, -1e9, NORMAL) for run in SPACES]
    return found + [(letter, -100.0 - rank, NORMAL) for rank, letter in enumerate(LETTERS)]


def model(found: list[tuple[str, float, int]], kind: int = 2, **changes: int | bytes) -> bytes:
    listed = (field(1, text.encode()) + field(2, score) + field(3, k) for text, score, k in found)
    trainer = field(3, kind) + field(35, changes.get("byte_fallback", 1))
    normalizer = field(2, changes.get("table", b"")) + field(3, changes.get("prefix", 1))
    normalizer += field(4, changes.get("removes_spaces", 0))
    return b"".join(field(1, one) for one in listed) + field(2, trainer) + field(3, normalizer)


def slow_ids(text: str, prefix: int = 1) -> list[int]:
    """The best-scored pair of neighbours is merged, of equal ones the leftmost, to the end."""
    ids = {text: token for token, (text, _, _) in enumerate(pieces())}
    score = {text: score for text, score, kind in pieces() if kind == NORMAL}
    parts = [*(("▁" * prefix if text else "") + text.replace(" ", "▁"))]
    while True:
        pairs = enumerate(map("".join, pairwise(parts)))
        joined = [(-score[pair], at) for at, pair in pairs if pair in score]
        if not joined:
            break
        at = min(joined)[1]
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    found = []
    for part in parts:
        known = [ids[part]] if part in score else [3 + byte for byte in part.encode()]
        found += known
    return found


@pytest.mark.parametrize("prefix", [0, 1])
def test_model_when_encoded_then_ids_are_those_of_its_rule(tmp_path: Path, prefix: int) -> None:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(model(pieces(), prefix=prefix))
    encoding = get_encoding(path)
    assert get_encoding(tmp_path) == encoding  # by its folder
    source = random.Random(0)
    parts = [*LETTERS, " ", "  ", "hello", "aba", "<s>", "<0x0A>", "\n", "x", "東"]
    texts = ["", "ababa hello     x"]
    texts += ["".join(source.choices(parts, k=source.randint(1, 12))) for _ in range(600)]
    tokens = encoding.encode_array(pa.array(texts, pa.large_string()))
    assert not tokens.failed
    for position, text in enumerate(texts):
        assert tokens.document(position).tolist() == slow_ids(text, prefix), text
        assert encoding.decode(slow_ids(text, prefix)) == text.replace("▁", " ")
    assert (encoding.eot_token, encoding.identity.bos, encoding.n_vocab) == (2, "<s>", 281)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (model(pieces(), kind=1), "another kind than BPE"),
        (model(pieces(), byte_fallback=0), "without bytes"),
        (model(pieces(), table=b"x"), "a table of normalizations"),
        (model(pieces(), removes_spaces=1), "removes or keeps spaces"),
        (model([*pieces(), ("[REF]", 0.0, USER_DEFINED)]), "user-defined symbols"),
        (model([*pieces(), ("lo", -1.0, NORMAL)]), "equal scores"),
        (model([*pieces(), ("h▁▁e", -99.0, NORMAL)]), "runs of spaces in words"),
        (model([*pieces(), ("▁" * 7, -1e9, NORMAL)]), "unusual runs of spaces"),
    ],
)
def test_model_when_it_cannot_become_a_tokenizer_json_then_needs_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, reason: str
) -> None:
    path = tmp_path / "m.model"
    path.write_bytes(data)
    assert get_encoding(path).identity.kind == "sentencepiece-library"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=reason) as caught:
        get_encoding(path)
    assert "m.model: a SentencePiece" in caught.value.message
    assert "pip install 'tokenmill[sentencepiece]'" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (model([*pieces(), ("he", -99.0, NORMAL)]), "a piece twice"),
        (model([*pieces(), ("[UNK]", 0.0, UNKNOWN)]), "without exactly one unknown piece"),
        (model([*pieces(), ("x" * 600, -99.0, NORMAL)]), "very long pieces"),
        (model([*pieces(), ("x", float("nan"), NORMAL)]), "a damaged SentencePiece model"),
        (model(pieces())[:-3], "a damaged SentencePiece model"),
        (model(pieces())[:900] + b"\xff" * 30, "a damaged SentencePiece model"),
    ],
)
def test_model_when_hostile_then_is_refused_by_name(
    tmp_path: Path, data: bytes, message: str
) -> None:
    path = tmp_path / "m.model"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=message) as caught:
        get_encoding(path)
    assert "m.model: a" in caught.value.message and "SentencePiece" in caught.value.message


def test_model_when_prepared_with_then_the_dataset_verifies_and_shows_its_text(
    tmp_path: Path,
) -> None:
    path, source = tmp_path / "tokenizer.model", tmp_path / "a.txt"
    path.write_bytes(model(pieces()))
    source.write_text("hello aba  hello\n")
    out = tmp_path / "out"
    tokenmill.prepare(source, out, tokenizer=path, num_proc=1, val="none")
    assert tokenmill.verify(out, tokenizer=path, sources=source, sample="1", num_proc=1).is_whole


@pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("mistral_common", "sentencepiece"))),
    reason="needs mistral-common's files and sentencepiece",
)
def test_real_model_when_encoded_then_equals_sentencepiece() -> None:
    import mistral_common
    import sentencepiece

    path = Path(mistral_common.__file__).parent / "data" / "tokenizer.model.v1"
    truth = sentencepiece.SentencePieceProcessor(model_file=str(path))
    encoding = get_encoding(path)
    for text in probe_texts(["</s>", "<0x0A>"]):
        assert encoding.encode_ordinary(text) == truth.encode(text)
    assert (encoding.eot_token, encoding.n_vocab) == (truth.eos_id(), truth.vocab_size())
