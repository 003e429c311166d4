"""Mistral's tekken.json: equal to mistral-common's rules, and hostile files refused."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import tiktoken

import tokenmill
from tokenmill.encodings import get_encoding
from tokenmill.encodings.loading import engine_of
from tokenmill.encodings.selfcheck import probe_texts
from tokenmill.errors import ConfigError

TOKENS = [*(bytes([byte]) for byte in range(256)), b"he", b"ll", b"hell", b"cut off"]
PATTERN = r"\p{L}+|\p{N}|[^\p{L}\p{N}]+"
# As in Mistral's files.
PUBLISHED = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
NUM_SPECIAL = 30


def tekken(**changes: Any) -> dict[str, Any]:
    vocab = [
        {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
        for rank, token in enumerate(TOKENS)
    ]
    config = {
        "pattern": PATTERN,
        "default_vocab_size": NUM_SPECIAL + len(TOKENS) - 1,
        "default_num_special_tokens": NUM_SPECIAL,
        "version": "v3",
    }
    config |= {key: changes.pop(key) for key in [*changes] if key in config}
    return {"config": config, "vocab": vocab, **changes}


def written(folder: Path, plain: Any) -> Path:
    path = folder / "tekken.json"
    path.write_text(json.dumps(plain))
    return path


@pytest.mark.parametrize(
    ("pattern", "engine"), [(PATTERN, "ReferenceEngine"), (PUBLISHED, "GigatokenEngine")]
)
def test_tekken_when_encoded_then_ids_are_tiktokens_after_the_special_tokens(
    tmp_path: Path, pattern: str, engine: str
) -> None:
    encoding = get_encoding(written(tmp_path, tekken(pattern=pattern)))
    assert get_encoding(tmp_path) == encoding  # by its folder
    ranks = {token: rank for rank, token in enumerate(TOKENS[:-1])}
    truth = tiktoken.Encoding("t", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    texts = [*probe_texts(["</s>"])[:100], "hello cut off 12", "A\U000323b0b", "[INST]</s>he"]
    tokens = encoding.encode_array(pa.array(texts, pa.large_string()))
    for position, text in enumerate(texts):
        expected = [rank + NUM_SPECIAL for rank in truth.encode_ordinary(text)]
        assert tokens.document(position).tolist() == expected
        assert encoding.decode(expected) == text
    assert (encoding.eot_token, encoding.identity.bos, encoding.n_vocab) == (2, "<s>", 289)
    assert encoding.encode("a</s><SPECIAL_29>", allowed_special="all") == [97 + 30, 2, 29]
    assert get_encoding(tmp_path, eot="[INST]").eot_token == 3
    assert type(engine_of(encoding.identity)).__name__ == engine


def test_tekken_when_it_names_special_tokens_then_those_are_its_own(tmp_path: Path) -> None:
    named = [{"rank": 1, "token_str": "<end>", "is_control": True}]
    path = written(tmp_path, tekken(special_tokens=named, version="v11"))
    assert get_encoding(path, eot="<end>").eot_token == 1
    with pytest.raises(ConfigError, match="no special token '</s>'; it has: <SPECIAL_0>, <end>"):
        get_encoding(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"default_vocab_size": 10**9}, "its default_vocab_size is 1000000000"),
        ({"default_vocab_size": 400}, "370 ranks expected, got 260"),
        ({"default_num_special_tokens": "x"}, "its default_num_special_tokens is x"),
        ({"version": "v11"}, "it names no special tokens"),
        ({"special_tokens": [1]}, "not a list of tokens"),
        ({"special_tokens": [{"rank": 99, "token_str": "a"}]}, "a special token is"),
        ({"special_tokens": [{"rank": 1, "token_str": "\ud800"}]}, "a special token is"),
        ({"special_tokens": [{"rank": 1, "token_str": "<SPECIAL_2>"}]}, "have the same text"),
        ({"vocab": [{"rank": 0, "token_bytes": "YQ== 0\n"}] * 300}, "rank 0 is"),
        ({"pattern": r"\p{L}+"}, "leaves out a part of the text"),
    ],
)
def test_tekken_when_hostile_then_error_names_it(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        get_encoding(written(tmp_path, tekken(**changes)))
    assert "tekken.json" in caught.value.message


@pytest.mark.parametrize("pattern", [PATTERN, PUBLISHED])
def test_tekken_when_prepared_with_then_the_dataset_verifies(tmp_path: Path, pattern: str) -> None:
    path, source = written(tmp_path, tekken(pattern=pattern)), tmp_path / "a.txt"
    source.write_text("hello 12\n")
    made = tokenmill.prepare(source, tmp_path / "out", tokenizer=path, num_proc=1, val="none")
    # Compared when a run is resumed: runs that were begun before gigatoken served have these.
    assert {*made.identity["versions"]} == {"bytes", "tiktoken"}
    report = tokenmill.verify(
        tmp_path / "out", tokenizer=path, sources=source, sample="1", num_proc=1
    )
    assert report.is_whole
