"""Encodings from a user's `.tiktoken` file: identity, errors, and files that change."""

from __future__ import annotations

import base64
import os
import pickle
import random
from pathlib import Path

import pyarrow as pa
import pytest
import tiktoken

import tokenmill.encodings
from tokenmill.encodings import Encoding, get_encoding, rank_engine
from tokenmill.encodings.loading import engine_of
from tokenmill.encodings.own_pattern import encoding_of_ranks
from tokenmill.encodings.patterns import PATTERNS
from tokenmill.encodings.published import PUBLISHED
from tokenmill.encodings.rank_engine import tokenizer_json_of_ranks
from tokenmill.errors import ConfigError, IntegrityError

R50K = Path(tokenmill.encodings.__file__).parent / "vocab" / "r50k_base.tiktoken"
BYTES = [bytes([byte]) for byte in range(256)]


def write_ranks(path: Path, tokens: list[bytes], ids: list[int] | None = None) -> Path:
    ids = ids or list(range(len(tokens)))
    pairs = zip(tokens, ids, strict=True)
    path.write_bytes(b"".join(base64.b64encode(t) + b" %d\n" % i for t, i in pairs))
    return path


def ordinary(encoding: Encoding, texts: list[str]) -> list[list[int]]:
    tokens = encoding.encode_array(pa.array(texts, pa.large_string()))
    return [tokens.document(i).tolist() for i in range(len(tokens))]


def test_rank_file_when_it_is_a_copy_of_a_shipped_one_then_is_the_same_encoding(
    tmp_path: Path,
) -> None:
    path = tmp_path / "mine.tiktoken"
    path.write_bytes(R50K.read_bytes())
    encoding = get_encoding(path, pattern="r50k")
    assert encoding == get_encoding("gpt2")
    assert (encoding.name, encoding.eot_token, encoding.n_vocab) == ("mine", 50256, 50257)
    assert ordinary(encoding, ["hello world"]) == [[31373, 995]]


@pytest.mark.parametrize("pattern", ["gpt2", "cl100k", "o200k"])
def test_rank_file_when_encoded_then_equals_tiktoken(tmp_path: Path, pattern: str) -> None:
    merges = [b"he", b"ll", b"hell", b"hello", b" w", b"or", b" wor", b"ld", b"  ", b"\xe6\x9d"]
    path = write_ranks(tmp_path / "small.tiktoken", BYTES + merges)
    encoding = get_encoding(str(path), pattern=pattern, eot=266)
    truth = tiktoken.Encoding(
        "small",
        pat_str=PATTERNS[pattern].expression,
        mergeable_ranks={t: i for i, t in enumerate(BYTES + merges)},
        special_tokens={"<|endoftext|>": 266},
    )
    texts = ["hello world", "   hell 東京", "", "<|endoftext|>", "\U0002ceab'S 123"]
    assert ordinary(encoding, texts) == [truth.encode_ordinary(text) for text in texts]
    assert encoding.eot_token == 266 and encoding.n_vocab == 267
    assert encoding.encode("hello<|endoftext|>", allowed_special="all") == [259, 266]
    assert type(engine_of(encoding.identity)).__name__ == "GigatokenEngine"


def test_rank_file_when_a_token_is_out_of_reach_of_merges_then_still_equals_tiktoken(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    # tiktoken takes a whole piece that is a token, though no merge leads to it.
    tokens = [*BYTES, b"zqxj", b"ab", b" mill"]
    path = write_ranks(tmp_path / "odd.tiktoken", tokens)
    encoding = get_encoding(path, pattern="gpt2", eot=300)
    truth = tiktoken.Encoding(
        "odd",
        pat_str=PATTERNS["gpt2"].expression,
        mergeable_ranks={t: i for i, t in enumerate(tokens)},
        special_tokens={},
    )
    texts = ["zqxj", "zqxjzqxj", "the mill", "a mill ab zqxj zqxj"]
    assert ordinary(encoding, texts) == [truth.encode_ordinary(text) for text in texts]
    assert type(engine_of(encoding.identity)).__name__ == "GigatokenEngine"
    assert capfd.readouterr().err == ""  # no trace of a panic


def test_rank_file_when_ids_have_a_hole_then_is_encoded_by_the_fast_engine(tmp_path: Path) -> None:
    path = write_ranks(tmp_path / "hole.tiktoken", [*BYTES, b"ab"], [*range(256), 257])
    encoding = get_encoding(path, pattern="gpt2", eot=256)
    assert (encoding.eot_token, encoding.max_token_value) == (256, 257)
    assert ordinary(encoding, ["abc"]) == [[257, 99]]
    assert type(engine_of(encoding.identity)).__name__ == "GigatokenEngine"


@pytest.mark.parametrize("pattern", PATTERNS)
def test_rank_file_when_no_training_made_its_ranks_then_still_equals_tiktoken(
    tmp_path: Path, pattern: str
) -> None:
    rng = random.Random(pattern)
    for number in range(12):
        # Any strings in any order, most of them out of reach, the bytes anywhere among them.
        made = {"".join(rng.choices("ab é ", k=rng.randint(2, 9))).encode() for _ in range(150)}
        tokens = rng.sample([*BYTES, *made], k=256 + len(made))
        ids = sorted(rng.sample(range(len(tokens) + 40), k=len(tokens)))
        path = write_ranks(tmp_path / f"{number}.tiktoken", tokens, ids)
        encoding = get_encoding(path, pattern=pattern, eot=500)
        truth = encoding_of_ranks(
            "odd", PATTERNS[pattern], dict(zip(tokens, ids, strict=True)), {"<|endoftext|>": 500}
        )
        texts = ["".join(rng.choices("aab é 1\n", k=rng.randint(1, 150))) for _ in range(200)]
        assert ordinary(encoding, texts) == [truth.encode_ordinary(text) for text in texts]
        served_by = engine_of(encoding.identity)
        served_by = getattr(served_by, "_engine", served_by)  # without its normalization
        assert type(served_by).__name__ == "GigatokenEngine"


def test_rank_file_when_the_fast_engine_differs_then_tiktoken_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_a_token(ranks: dict[bytes, int], split: str) -> str:
        return tokenizer_json_of_ranks({t: i for t, i in ranks.items() if t != b"mill"}, split)

    monkeypatch.setattr(rank_engine, "tokenizer_json_of_ranks", without_a_token)
    path = write_ranks(tmp_path / "v.tiktoken", [*BYTES, b"ab", b"mill"])
    encoding = get_encoding(path, pattern="gpt2", eot=300)
    assert ordinary(encoding, ["mill", "a"]) == [[257], [97]]
    assert type(engine_of(encoding.identity)).__name__ == "ReferenceEngine"


def test_rank_file_when_its_merges_would_take_too_much_then_tiktoken_serves(tmp_path: Path) -> None:
    """0.7 MB of ranks, 340 MB of merges."""
    tokens = [*BYTES, *(b"a" * length for length in range(2, 1000))]
    path = write_ranks(tmp_path / "runs.tiktoken", tokens)
    encoding = get_encoding(path, pattern="gpt2", eot=len(tokens))
    assert type(engine_of(encoding.identity)).__name__ == "ReferenceEngine"
    assert ordinary(encoding, ["a" * 999, "aab"]) == [[len(tokens) - 1], [256, 98]]


def test_rank_file_when_eot_is_named_then_that_ends_documents(tmp_path: Path) -> None:
    path = write_ranks(tmp_path / "v.tiktoken", [*BYTES, b"</s>"])
    named = get_encoding(path, pattern="gpt2", eot="<end>=260").identity
    assert (named.eot, named.eot_token) == ("<end>", 260)
    assert get_encoding(path, pattern="gpt2", eot=named.eot_option).identity == named
    assert get_encoding(path, pattern="gpt2", eot="300").eot_token == 300
    assert get_encoding(path, pattern="gpt2", eot="300") != Encoding(named)
    for eot in (None, "<end>"):
        with pytest.raises(ConfigError, match=r"its ranks end at 256") as caught:
            get_encoding(path, pattern="gpt2", eot=eot)
        assert f"--eot-token '{eot or '<|endoftext|>'}=257'" in str(caught.value.hint)
    with pytest.raises(ConfigError, match="'</s>' is an ordinary token"):
        get_encoding(path, pattern="gpt2", eot="</s>=257")
    with pytest.raises(ConfigError, match="the id 7 is taken"):
        get_encoding(path, pattern="gpt2", eot=7)


def test_pattern_when_missing_or_unknown_then_error_lists_patterns(tmp_path: Path) -> None:
    path = write_ranks(tmp_path / "v.tiktoken", BYTES)
    for pattern in (None, "gpt4"):
        with pytest.raises(ConfigError, match="gpt2, cl100k, o200k, qwen, r50k, p50k"):
            get_encoding(path, pattern=pattern)


LINES = [base64.b64encode(token) + b" %d" % i for i, token in enumerate(BYTES)]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "holds no ranks"),
        ([*LINES, b"!!!! 256"], "line 257: not a token and its rank: '!!!! 256'"),
        ([*LINES, b"YQ 256"], "line 257: not a token and its rank"),
        ([*LINES[:9], b"YWI=", *LINES[9:]], "line 10: not a token and its rank"),
        ([*LINES, b"YWI= -1"], "line 257: not a token"),
        ([*LINES, b"YWI= 1_0"], "line 257: not a token"),
        ([*LINES, b"YWI= 99999999999999999999"], "line 257: not a token"),
        ([*LINES, b"YWI= 3 4"], "line 257: not a token"),
        ([*LINES, b" 256"], "line 257: not a token"),
        ([*LINES, LINES[97]], "line 257: the token b'a' occurs twice"),
        ([*LINES, b"YWI= 7"], "two tokens have the rank 7"),
        ([*LINES, b"YWI= 5000"], "the largest rank is 5000, for 257 tokens"),
        (LINES[:200], "56 of the 256 single bytes are not tokens .the first is 0xc8"),
        ([b"\x80\x04\x95 pickle \xff"], "line 1: not a token"),
    ],
)
def test_rank_file_when_hostile_then_error_names_file_and_line(
    tmp_path: Path, lines: list[bytes], message: str
) -> None:
    path = tmp_path / "bad.tiktoken"
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(ConfigError, match=message) as caught:
        get_encoding(path, pattern="gpt2")
    assert "bad.tiktoken" in caught.value.message


def test_file_when_too_large_then_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "weights.tiktoken"
    path.touch()
    os.truncate(path, 100_000_001)  # sparse
    with pytest.raises(ConfigError, match="100,000,001 bytes; at most 100,000,000"):
        get_encoding(path, pattern="gpt2")


@pytest.mark.parametrize("content", [b"", b"PAR1\x15\x04\x15", b"<!doctype html>\n"])
def test_file_when_it_holds_no_ranks_then_no_pattern_is_asked_for(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"holds no ranks|not a token and its rank"):
        get_encoding(path)


def test_folder_when_it_holds_no_tokenizer_then_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "my.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"a folder with none of tokenizer\.json, ") as caught:
        get_encoding(tmp_path)
    assert caught.value.hint == f"name the file itself: --tokenizer {tmp_path}/FILE"


def test_path_when_nothing_is_there_then_error_names_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.tiktoken: no such vocabulary file"):
        get_encoding(tmp_path / "nowhere.tiktoken", pattern="gpt2")


def test_rank_file_when_changed_after_the_identity_was_made_then_is_refused(
    tmp_path: Path,
) -> None:
    path = write_ranks(tmp_path / "v.tiktoken", [*BYTES, b"first version"])
    encoding = get_encoding(path, pattern="gpt2", eot=257)
    sent = pickle.dumps(encoding)
    write_ranks(path, [*BYTES, b"other version"])
    there = pickle.loads(sent)  # noqa: S301
    with pytest.raises(IntegrityError, match=r"v\.tiktoken: the vocabulary changed: sha256 is"):
        there.encode_array(pa.array(["x"], pa.large_string()))
    assert get_encoding(path, pattern="gpt2", eot=257) != encoding


def test_shipped_file_when_damaged_then_says_to_install_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tokenmill.encodings import tiktoken as rank_files
    from tokenmill.encodings import vocabulary_file

    (tmp_path / "r50k_base.tiktoken").write_bytes(R50K.read_bytes()[:-9])
    monkeypatch.setattr(rank_files, "VOCAB_FOLDER", tmp_path)
    monkeypatch.setattr(vocabulary_file, "VOCAB_FOLDER", tmp_path)
    identity = get_encoding("gpt2").identity
    with pytest.raises(IntegrityError, match="damaged") as caught:
        rank_files.tiktoken_reference(identity)
    assert caught.value.hint and "pip install" in caught.value.hint


def test_copy_of_a_known_file_when_nothing_is_given_then_its_family_says_all(
    tmp_path: Path,
) -> None:
    path = tmp_path / "copy.tiktoken"
    path.write_bytes((R50K.parent / "cl100k_base.tiktoken").read_bytes())
    encoding = get_encoding(path)
    assert encoding == get_encoding("cl100k_base")  # 100257; the first id after the ranks is 100256
    assert encoding.eot_token == 100257 and encoding.n_vocab == 100277
    assert get_encoding(path, eot="<|mine|>=100300").special_tokens_set > {"<|fim_prefix|>"}
    with pytest.raises(ConfigError, match="has the pattern cl100k, not gpt2"):
        get_encoding(path, pattern="gpt2")
    with pytest.raises(ConfigError, match=r"<\|endoftext\|> has the id 100257, not 100256"):
        get_encoding(path, eot="<|endoftext|>=100256")
    with pytest.raises(ConfigError, match="the id 100258 is taken"):
        get_encoding(path, eot="<|mine|>=100258")


def test_own_pattern_when_encoded_then_equals_tiktoken(tmp_path: Path) -> None:
    path = write_ranks(tmp_path / "own.tiktoken", [*BYTES, b"ab", b"12", b"ab12"])
    expression = r"\p{L}+|\p{N}|\s+|."
    encoding = get_encoding(path, pattern=expression, eot=300)
    assert ordinary(encoding, ["ab12 ab"]) == [[256, 49, 50, 32, 256]]
    again = pickle.loads(pickle.dumps(encoding))  # noqa: S301
    assert again == encoding != get_encoding(path, pattern="gpt2", eot=300)


@pytest.mark.parametrize(
    ("expression", "message"),
    [(r"\p{L}+|\s+", "leaves out a part of the text"), (r"(\p{L}+|", "cannot be used")],
)
def test_own_pattern_when_it_loses_text_or_is_none_then_is_refused(
    tmp_path: Path, expression: str, message: str
) -> None:
    path = write_ranks(tmp_path / "own.tiktoken", BYTES)
    with pytest.raises(ConfigError, match=message):
        get_encoding(path, pattern=expression, eot=300)


def test_own_pattern_when_a_document_loses_text_then_that_document_fails(tmp_path: Path) -> None:
    path = write_ranks(tmp_path / "own.tiktoken", BYTES)
    encoding = get_encoding(path, pattern=r"[^\x{16a0}]", eot=300)  # no probe has this rune
    tokens = encoding.encode_array(pa.array(["a", "a\u16a0b"], pa.large_string()))
    assert list(tokens.failed) == [1] and tokens.document(0).tolist() == [97]


def test_qwen_pattern_when_text_is_decomposed_then_it_is_composed_first(tmp_path: Path) -> None:
    path = write_ranks(tmp_path / "q.tiktoken", [*BYTES, "é".encode()])
    encoding = get_encoding(path, pattern="qwen", eot=300)
    assert ordinary(encoding, ["e\u0301 12"]) == [[256, 32, 49, 50]]
    assert encoding.encode_ordinary("e\u0301") == [256]
    assert encoding.encode("e\u0301<|endoftext|>", allowed_special="all") == [256, 300]


@pytest.mark.parametrize(
    ("name", "ranks_end", "eot", "bos", "n_vocab"),
    [
        ("llama3", 128_000, 128_001, 128_000, 128_256),
        ("llama4", 200_000, 200_001, 200_000, 202_048),
        ("qwen", 151_643, 151_643, None, 151_851),
    ],
)
def test_family_when_listed_then_has_the_ids_of_its_library(
    name: str, ranks_end: int, eot: int, bos: int | None, n_vocab: int
) -> None:
    [family] = [family for family in PUBLISHED if family.name == name]
    specials = family.special_tokens
    assert sorted(specials.values()) == list(range(ranks_end, n_vocab))
    assert (specials[family.eot], family.n_vocab) == (eot, n_vocab)
    assert (None if family.bos is None else specials[family.bos]) == bos
