"""`Encoding` beyond its contract: golden ids, tiktoken's methods, engines that fail, identities."""

from __future__ import annotations

import base64
import multiprocessing
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st

import tokenmill.encodings
from tokenmill.encodings import ENCODING_NAMES, Encoding, EncodingId, get_encoding
from tokenmill.errors import ConfigError, InputError, IntegrityError
from tokenmill.testing.encoding_contract import TEXTS, lists, strings

VOCAB = Path(tokenmill.encodings.__file__).parent / "vocab"
GOLDEN = {
    "gpt2": [
        [31373, 995],
        [220, 220, 220, 2124, 796, 352, 628],
        [40, 6, 3069, 1279, 91, 437, 1659, 5239, 91, 29],
        [2616, 38776, 10545, 251, 109, 12859, 105, 50169, 235, 8582, 237, 121],
    ],
    "p50k_base": [
        [31373, 995],
        [50258, 2124, 796, 352, 628],
        [40, 6, 3069, 1279, 91, 437, 1659, 5239, 91, 29],
        [2616, 38776, 10545, 251, 109, 12859, 105, 50169, 235, 8582, 237, 121],
    ],
    "cl100k_base": [
        [15339, 1917],
        [262, 865, 284, 220, 16, 271],
        [40, 6, 4178, 83739, 8862, 728, 428, 91, 29],
        [3458, 38672, 588, 61696, 109, 47653, 62904, 235, 9468, 237, 121],
    ],
    "o200k_base": [
        [24912, 2375],
        [271, 1215, 314, 220, 16, 279],
        [40, 6, 7454, 464, 91, 419, 1440, 919, 91, 29],
        [1503, 9954, 737, 185244, 160433, 52622, 121],
    ],
}
SIZES = {  # (n_vocab, eot_token), as tiktoken has them
    "gpt2": (50257, 50256),
    "r50k_base": (50257, 50256),
    "p50k_base": (50281, 50256),
    "cl100k_base": (100277, 100257),
    "o200k_base": (200019, 199999),
    "o200k_harmony": (201088, 199999),
}


@cache
def oracle(name: str) -> tiktoken.Encoding:
    """tiktoken from the shipped files, read here by the shortest code that can."""
    from tiktoken_ext import openai_public

    def from_our_files(url: str, **_: object) -> dict[bytes, int]:
        lines = (VOCAB / url.rsplit("/", 1)[1]).read_bytes().splitlines()
        return {base64.b64decode(t): int(r) for t, r in map(bytes.split, lines)}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(openai_public, "load_tiktoken_bpe", from_our_files)
        constructor = "r50k_base" if name == "gpt2" else name
        return tiktoken.Encoding(**getattr(openai_public, constructor)())


@pytest.mark.parametrize("name", GOLDEN)
def test_encode_array_when_texts_are_known_then_ids_are_these(name: str) -> None:
    tokens = get_encoding(name).encode_array(strings(TEXTS[:4]))
    assert lists(tokens) == GOLDEN[name]
    assert tokens.ids.dtype == np.uint32 and tokens.offsets.dtype == np.int64
    assert tokens.failed == {}


@pytest.mark.parametrize("name", ["gpt2", "cl100k_base", "o200k_base"])
def test_encode_array_when_text_is_random_then_equals_tiktoken(name: str) -> None:
    mixed = st.lists(
        st.one_of(
            st.text(max_size=30),
            st.text(alphabet=" \t\n\r\u00a0\u3000'sStTdDlLvVeErRmM019.,/!", max_size=30),
            st.text(alphabet="éÉßſıǅʼª\u0301\u0323\u200d\ufe0f👍🏽🇩🇪漢字カナ가나ไทहि", max_size=20),
            st.sampled_from(["<|endoftext|>", "'LL", "\r\n\r\n", "\U0002ceab", "\u088f"]),
        ),
        max_size=8,
    ).map("".join)

    @settings(max_examples=150, deadline=None)
    @given(st.lists(mixed, max_size=12))
    def check(texts: list[str]) -> None:
        expected = [oracle(name).encode_ordinary(text) for text in texts]
        assert lists(get_encoding(name).encode_array(strings(texts))) == expected

    check()


def test_encode_array_when_larger_than_a_step_then_equals_document_by_document() -> None:
    encoding = get_encoding("gpt2")
    texts = ["word " * 900_000, "", *(f"document {i} é " * 3000 for i in range(200)), ""]
    tokens = encoding.encode_array(strings(texts))
    for position in (0, 1, 2, 77, 201, 202):
        alone = encoding.encode_array(strings([texts[position]]))
        assert np.array_equal(tokens.document(position), alone.ids)
    assert len(tokens) == len(texts) and tokens.offsets[-1] == len(tokens.ids)


def test_encode_array_when_text_holds_nulls_then_refuses() -> None:
    with pytest.raises(AssertionError):
        get_encoding("gpt2").encode_array(pa.array(["a", None], pa.large_string()))


@pytest.mark.parametrize("name", ["gpt2", "cl100k_base", "o200k_base"])
def test_encode_when_specials_are_allowed_or_not_then_follows_tiktoken(name: str) -> None:
    encoding, truth = get_encoding(name), oracle(name)
    text = "a<|endoftext|>b"
    assert encoding.encode(text, allowed_special="all") == truth.encode(text, allowed_special="all")
    assert encoding.eot_token in encoding.encode(text, allowed_special={"<|endoftext|>"})
    assert encoding.encode_batch([text, "x"], disallowed_special=()) == truth.encode_batch(
        [text, "x"], disallowed_special=()
    )
    with pytest.raises(ValueError, match="disallowed special token"):
        encoding.encode(text)


@pytest.mark.parametrize("name", ENCODING_NAMES)
def test_properties_and_decoding_when_compared_then_are_tiktokens(name: str) -> None:
    encoding, truth = get_encoding(name), oracle(name)
    n_vocab, eot_token = SIZES[name]
    assert (encoding.n_vocab, encoding.eot_token) == (n_vocab, eot_token)
    assert (truth.n_vocab, truth.eot_token) == (n_vocab, eot_token)
    assert encoding.max_token_value == truth.max_token_value
    assert encoding.special_tokens_set == truth.special_tokens_set
    assert encoding.name == name and name in repr(encoding)
    assert encoding.is_special_token(eot_token) and not encoding.is_special_token(0)
    ids = truth.encode_ordinary("naïve 東京 👍🏽")
    assert encoding.decode(ids) == "naïve 東京 👍🏽"
    assert encoding.decode(ids[:4]) == truth.decode(ids[:4])
    assert encoding.decode_bytes(ids[:4]) == truth.decode_bytes(ids[:4])
    assert encoding.decode_bytes_batch([ids, []]) == truth.decode_bytes_batch([ids, []])
    assert encoding.decode_tokens_bytes(ids) == truth.decode_tokens_bytes(ids)
    assert encoding.decode_with_offsets(ids) == truth.decode_with_offsets(ids)
    assert encoding.decode_single_token_bytes(eot_token) == b"<|endoftext|>"
    assert encoding.encode_single_token("<|endoftext|>") == eot_token
    assert encoding.encode_single_token(b" the") == truth.encode_single_token(b" the")
    assert encoding.token_byte_values() == truth.token_byte_values()
    with pytest.raises(KeyError):
        encoding.encode_single_token("no such token at all")
    with pytest.raises(UnicodeDecodeError):
        encoding.decode([encoding.encode_single_token(b"\xf0")], errors="strict")


@pytest.mark.parametrize("text", ["\ud83d\udc4d", "a\ud800b", "\udc00" * 3 + "x" * 9000])
def test_surrogates_when_encoded_then_are_mended_as_tiktoken_does(text: str) -> None:
    encoding, expected = get_encoding("gpt2"), oracle("gpt2").encode_ordinary(text)
    assert encoding.encode_ordinary(text) == expected
    assert encoding.encode_ordinary_batch([text]) == [expected]
    assert encoding.encode(text, disallowed_special=()) == expected


def test_document_when_tiktoken_panics_on_it_then_the_fast_engine_still_encodes_it() -> None:
    tokens = get_encoding("o200k_base").encode_array(strings(["a", " " * 1_000_000, "b"]))
    assert tokens.failed == {}
    assert get_encoding("o200k_base").decode(tokens.document(1).tolist()) == " " * 1_000_000


def test_document_when_no_engine_can_encode_it_then_it_fails_alone() -> None:
    bad = " " * 1_000_000 + "\U0002ceab"  # tiktoken's to encode, and it panics
    tokens = get_encoding("o200k_base").encode_array(strings(["hello world", bad, "hello world"]))
    assert list(tokens.failed) == [1] and "StackOverflow" in tokens.failed[1]
    assert lists(tokens) == [[24912, 2375], [], [24912, 2375]]
    with pytest.raises(InputError, match="text 1 cannot be encoded by o200k_base"):
        get_encoding("o200k_base").encode_ordinary_batch(["x", bad])


def test_fast_engine_when_it_raises_on_a_document_then_the_others_are_kept() -> None:
    from tokenmill.encodings.gigatoken import GigatokenEngine
    from tokenmill.encodings.unicode_gap import TIKTOKEN_GAP

    class Panic(BaseException):
        """As pyo3's PanicException: no Exception."""

    class Refusing:
        def encode_batch(self, texts: object, *, parallel: bool) -> object:
            if any("poison" in text for text in texts.to_list()):
                raise Panic("no thanks")
            return real.encode_batch(texts, parallel=parallel)

    import gigatoken

    real = gigatoken.Tokenizer.from_tiktoken(VOCAB / "r50k_base.tiktoken", "gpt2", {})
    engine = GigatokenEngine(Refusing, lambda: oracle("gpt2"), TIKTOKEN_GAP)
    texts = ["hello world", "poison é", "", "hello world"]
    tokens = engine.encode(strings(texts))
    assert lists(tokens) == [oracle("gpt2").encode_ordinary(t) for t in texts]
    assert tokens.failed == {}


@pytest.mark.parametrize("passing", [KeyboardInterrupt, MemoryError])
def test_fast_engine_when_interrupted_then_does_not_take_it_for_a_bad_document(
    passing: type[BaseException],
) -> None:
    from tokenmill.encodings.gigatoken import GigatokenEngine
    from tokenmill.encodings.unicode_gap import TIKTOKEN_GAP

    class Interrupted:
        def encode_batch(self, texts: object, *, parallel: bool) -> object:
            raise passing

    engine = GigatokenEngine(Interrupted, lambda: oracle("gpt2"), TIKTOKEN_GAP)
    with pytest.raises(passing):
        engine.encode(strings(["x"]))


def test_encoding_when_made_and_pickled_then_imports_no_library_and_is_small() -> None:
    code = """
import pickle, sys
from tokenmill.encodings import get_encoding
encoding = get_encoding("o200k_base")
data = pickle.dumps(encoding)
assert pickle.loads(data) == encoding and encoding.n_vocab == 200019, encoding
heavy = {"numpy", "pyarrow", "awkward", "gigatoken", "tiktoken", "tokenizers"} & set(sys.modules)
print(len(data), sorted(heavy))
"""
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    num_bytes, heavy = out.split(maxsplit=1)
    assert int(num_bytes) < 600
    assert heavy.strip() == "[]"


def test_equality_when_names_differ_but_tokens_do_not_then_encodings_are_equal() -> None:
    assert get_encoding("gpt2") == get_encoding("r50k_base")
    assert hash(get_encoding("gpt2")) == hash(get_encoding("r50k_base"))
    assert get_encoding("gpt2") != get_encoding("p50k_base")
    assert len({get_encoding(name).identity.sha256 for name in ENCODING_NAMES}) == 5
    assert get_encoding("gpt2") != "gpt2"


def test_identity_when_computed_then_never_changes_between_versions() -> None:
    # In manifests of finished datasets: a change here orphans them.
    shas = {name: get_encoding(name).identity.sha256[:16] for name in ENCODING_NAMES}
    assert shas == {
        "gpt2": "e269225b6b7b918f",
        "r50k_base": "e269225b6b7b918f",
        "p50k_base": "f19f8c9d20512ad9",
        "cl100k_base": "a7a813addd9bb32f",
        "o200k_base": "c085d4058546dc0b",
        "o200k_harmony": "c1bd6ba82fe547e8",
    }


@pytest.mark.parametrize(
    "change", [{"eot_token": "1"}, {"name": None}, {"more": 1}, {"max_token_value": True}]
)
def test_identity_when_plain_data_is_wrong_then_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(IntegrityError, match="identity"):
        EncodingId.from_plain({**get_encoding("gpt2").identity.to_plain(), **change})


def test_identity_when_it_claims_to_be_a_shipped_encoding_and_is_not_then_is_refused() -> None:
    plain = {**get_encoding("gpt2").identity.to_plain(), "sha256": "0" * 64}
    with pytest.raises(IntegrityError, match=r"sha256 is 0000.* expected e269"):
        Encoding(EncodingId.from_plain(plain)).encode_array(strings(["x"]))


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_encoding_when_sent_to_another_process_then_encodes_there(method: str) -> None:
    encoding = get_encoding("gpt2")
    encoding.encode_array(strings(["loaded before the fork"]))
    context = multiprocessing.get_context(method)
    with context.Pool(1) as pool:
        ids = pool.apply(encoding.encode_ordinary_batch, (["hello world", "\U0002ceab"],))
    assert ids == [[31373, 995], oracle("gpt2").encode_ordinary("\U0002ceab")]


def test_name_when_unknown_then_error_lists_names_and_mentions_paths() -> None:
    with pytest.raises(ConfigError) as caught:
        get_encoding("cl100k")
    assert "known: gpt2, r50k_base, p50k_base, cl100k_base, o200k_base" in str(caught.value)
    assert "tokenizer.json" in str(caught.value)
    assert "did you mean 'cl100k_base'?" in str(caught.value)


def test_eot_when_it_is_another_special_token_of_the_encoding_then_that_ends_documents() -> None:
    assert get_encoding("cl100k_base", eot="<|endofprompt|>").eot_token == 100276
    with pytest.raises(ConfigError, match=r"no special token '</s>'; it has: <\|endoftext\|>"):
        get_encoding("gpt2", eot="</s>")
    with pytest.raises(ConfigError, match="has the pattern gpt2, not cl100k"):
        get_encoding("gpt2", pattern="cl100k")
