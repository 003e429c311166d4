"""Encodings from a `tokenizer.json`, against the tokenizers library itself.

The files are made here: trained on a few sentences, or converted from the shipped ranks.
"""

from __future__ import annotations

import json
import pickle
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tokenizers import Tokenizer, processors

import tokenmill.encodings
from tokenmill.encodings import Encoding, EncodingId, get_encoding
from tokenmill.encodings.loading import engine_of
from tokenmill.encodings.ranks import parsed_ranks
from tokenmill.encodings.selfcheck import probe_texts
from tokenmill.encodings.tokenizer_json import template_bos
from tokenmill.errors import ConfigError, IntegrityError

VOCAB = Path(tokenmill.encodings.__file__).parent / "vocab"
SENTENCES = [
    "The mill grinds the grain, and the grain becomes flour; it's what they'll bake with.",
    "Die Mühle mahlt das Korn. Größe, Übermut, naïve façade, 1234 and 3.14!",
    "東京の水車 мельница зерно 안녕하세요 👍🏽 def f(x):\n    return x ** 2\n\n",
] * 20
TEXTS = [
    *probe_texts(["<|endoftext|>", "</s>"]),
    "the mill <|endoftext|> grinds</s> it",
    "\U0002ceab new letters \u088f and \U00011385 \U00011384\U000113bb",
    "q\u07fd\u0323 e\u08cf\u0323\u0301 a\u1abf\u0301",
]


def byte_level(**options: Any) -> Any:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(
        add_prefix_space=options.get("add_prefix_space", False)
    )
    if "normalizer" in options:
        tokenizer.normalizer = getattr(normalizers, options["normalizer"])()
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        show_progress=False,
        special_tokens=options.get("special_tokens", ["<|endoftext|>"]),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    return tokenizer


def sentencepiece_like() -> Any:
    from tokenizers import Tokenizer, decoders, models, normalizers, trainers

    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    specials = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=specials, show_progress=False)
    tokenizer.train_from_iterator(SENTENCES, trainer)
    plain = json.loads(tokenizer.to_str())
    plain["added_tokens"] = plain["added_tokens"][:3]  # bytes are ordinary tokens, as in Llama 2
    return Tokenizer.from_str(json.dumps(plain))


def gpt2() -> Any:
    """The shipped ranks as vocabulary and merges: a merge is how the ranks below make the token."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    from tokenmill.encodings.byte_level import byte_level_alphabet

    letter = {value: key for key, value in byte_level_alphabet().items()}
    ranks = parsed_ranks((VOCAB / "r50k_base.tiktoken").read_bytes(), "r50k")

    def parts(token: bytes) -> list[bytes]:
        pieces = [bytes([byte]) for byte in token]
        while len(pieces) > 2:
            joined = [ranks.get(a + b, 1 << 30) for a, b in pairwise(pieces)]
            at = joined.index(min(joined))
            pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]
        return pieces

    def written(token: bytes) -> str:
        return "".join(letter[bytes([byte])] for byte in token)

    vocab = {written(token): rank for token, rank in ranks.items()}
    merges = [tuple(map(written, parts(token))) for token in ranks if len(token) > 1]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|endoftext|>", special=True)])
    return tokenizer


def word_level() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.WordLevelTrainer(special_tokens=["[UNK]", "[EOS]"], show_progress=False)
    tokenizer.train_from_iterator(SENTENCES, trainer)
    return tokenizer


def unigram() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers

    pieces = [("<unk>", 0.0), ("</s>", 0.0), ("▁the", -2.0), ("▁", -3.0), ("mill", -4.0)]
    letters = [(letter, -6.0) for letter in "abcdefghijklmnopqrstuvwxyz"]
    tokenizer = Tokenizer(models.Unigram([*pieces, *letters], unk_id=0, byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.add_special_tokens(["</s>"])
    return tokenizer


# What is made, and which engine should serve it.
KINDS = {
    "byte level": (byte_level, "GigatokenEngine"),
    "byte level, NFC": (lambda: byte_level(normalizer="NFC"), "GigatokenEngine"),
    "byte level, lowercase": (lambda: byte_level(normalizer="Lowercase"), "ReferenceEngine"),
    "byte level, prefix space": (lambda: byte_level(add_prefix_space=True), None),
    "sentencepiece": (sentencepiece_like, None),
    "gpt2": (gpt2, "GigatokenEngine"),
    "word level": (word_level, "ReferenceEngine"),
    "unigram": (unigram, "ReferenceEngine"),
}


def saved(tokenizer: Any, folder: Path, **changes: Any) -> Path:
    path = folder / "tokenizer.json"
    path.write_text(json.dumps({**json.loads(tokenizer.to_str()), **changes}))
    return path


def ordinary(encoding: Encoding, texts: list[str]) -> list[list[int]]:
    tokens = encoding.encode_array(pa.array(texts, pa.large_string()))
    assert not tokens.failed
    return [tokens.document(i).tolist() for i in range(len(tokens))]


def with_added_token(id_: int, *, in_vocabulary: bool) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(byte_level().to_str())
    added = {**plain["added_tokens"][0], "content": "<added>", "id": id_, "special": False}
    plain["added_tokens"].append(added)
    if in_vocabulary:
        plain["model"]["vocab"]["<added>"] = id_
    return plain


def test_gap_before_an_added_token_when_the_vocabulary_has_the_token_then_ids_are_the_files(
    tmp_path: Path,
) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(with_added_token(900, in_vocabulary=True)))
    encoding, texts = get_encoding(path), ["the <added>mill", "<added><added>"]
    library = Tokenizer.from_file(str(path))
    tokens = encoding.encode_array(pa.array(texts, pa.large_string()))
    found = [tokens.document(i).tolist() for i in range(len(texts))]
    assert found == [library.encode(text).ids for text in texts]
    assert 900 in found[0] and encoding.n_vocab == 901


def test_gap_before_an_added_token_when_tokenizers_ignores_its_id_then_it_is_refused(
    tmp_path: Path,
) -> None:
    path = tmp_path / "tokenizer.json"
    plain = with_added_token(900, in_vocabulary=False)
    path.write_text(json.dumps(plain))
    next_free = len(plain["model"]["vocab"])
    assert Tokenizer.from_file(str(path)).token_to_id("<added>") == next_free
    with pytest.raises(ConfigError, match="'<added>' has the id 900, but tokenizers reads it as"):
        get_encoding(path).encode_ordinary("the mill")


@pytest.mark.parametrize("kind", KINDS)
def test_engine_when_file_is_of_this_kind_then_is_this_one(tmp_path: Path, kind: str) -> None:
    make, engine = KINDS[kind]
    truth = make()
    encoding = get_encoding(saved(truth, tmp_path))
    assert encoding.n_vocab == max(truth.get_vocab(with_added_tokens=True).values()) + 1
    assert engine in (None, type(engine_of(encoding.identity)).__name__)


def test_encode_array_when_texts_are_random_then_equals_tokenizers(tmp_path: Path) -> None:
    truth = byte_level(normalizer="NFC")
    encoding = get_encoding(saved(truth, tmp_path))
    source = random.Random(3)
    letters = [chr(c) for c in (*range(32, 0x180), *range(0x300, 0x370), *range(0x5B0, 0x5C0))]
    letters += [chr(c) for a in (0x7F0, 0x890, 0x1AB0, 0x1133A, 0x11380) for c in range(a, a + 40)]
    texts = ["".join(source.choices(letters, k=source.randint(0, 30))) for _ in range(3000)]
    expected = [truth.encode(text, add_special_tokens=False).ids for text in texts]
    assert ordinary(encoding, texts) == expected


def test_gpt2_when_converted_then_its_ids_are_tiktokens(tmp_path: Path) -> None:
    encoding = get_encoding(saved(gpt2(), tmp_path))
    assert (encoding.eot_token, encoding.n_vocab) == (50256, 50257)
    texts = [text for text in TEXTS if "\u088f" not in text]
    assert ordinary(encoding, texts) == ordinary(get_encoding("gpt2"), texts)
    assert encoding.decode([31373, 995, 50256]) == "hello world<|endoftext|>"
    assert encoding.decode_bytes([10545, 251]) == b" \xe6\x9d"
    assert encoding.encode_single_token(b" world") == 995
    assert encoding.decode_single_token_bytes(995) == b" world"
    assert encoding.token_byte_values() == get_encoding("gpt2").token_byte_values()
    with pytest.raises(KeyError):
        encoding.decode_bytes([60000])


def test_added_tokens_when_not_special_then_are_found_in_text(tmp_path: Path) -> None:
    truth = byte_level()
    truth.add_tokens(["grindstone"])
    truth.add_special_tokens(["<|stop|>"])
    encoding = get_encoding(saved(truth, tmp_path))
    [ids] = ordinary(encoding, ["a grindstone <|stop|>"])
    assert truth.token_to_id("grindstone") in ids
    assert truth.token_to_id("<|stop|>") not in ids


def test_special_token_when_the_model_itself_takes_text_for_it_then_the_document_fails(
    tmp_path: Path,
) -> None:
    # </s> is a piece of this model: tokenizers gives its id though told to read specials as text.
    encoding = get_encoding(saved(unigram(), tmp_path))
    tokens = encoding.encode_array(pa.array(["the mill", "a</s>b", "mill"], pa.large_string()))
    assert list(tokens.failed) == [1] and "</s>" in tokens.failed[1]
    assert encoding.eot_token not in tokens.ids.tolist()
    assert len(tokens.document(0)) and len(tokens.document(2))


def test_encode_when_specials_are_allowed_or_not_then_follows_tiktokens_rules(
    tmp_path: Path,
) -> None:
    encoding = get_encoding(saved(byte_level(special_tokens=["<|endoftext|>", "<s>"]), tmp_path))
    text = "the<|endoftext|>mill"
    with pytest.raises(ValueError, match="disallowed special token"):
        encoding.encode(text)
    assert encoding.eot_token in encoding.encode(text, allowed_special="all")
    assert encoding.eot_token in encoding.encode(text, allowed_special={"<|endoftext|>"})
    assert encoding.encode(text, disallowed_special=()) == encoding.encode_ordinary(text)
    with pytest.raises(ValueError, match="either all special tokens of a text as such or none"):
        encoding.encode(text + "<s>", allowed_special={"<s>"}, disallowed_special=())


def test_sentencepiece_when_decoded_then_text_comes_back(tmp_path: Path) -> None:
    encoding = get_encoding(saved(sentencepiece_like(), tmp_path))
    text = "the mill grinds 東京 ☃"
    assert encoding.decode(encoding.encode_ordinary(text)) == text
    assert encoding.identity.eot == "</s>"
    assert encoding.decode_single_token_bytes(encoding.encode_single_token(b"\xff")) == b"\xff"


def test_truncation_and_padding_when_in_the_file_then_documents_stay_whole(tmp_path: Path) -> None:
    truth = byte_level()
    truth.enable_truncation(3)
    truth.enable_padding(length=8)
    encoding = get_encoding(saved(truth, tmp_path))
    [ids] = ordinary(encoding, ["the mill grinds the grain"])
    assert encoding.decode(ids) == "the mill grinds the grain"


def test_post_processor_when_in_the_file_then_adds_nothing(tmp_path: Path) -> None:
    truth = byte_level(special_tokens=["<|endoftext|>", "<s>"])
    truth.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", truth.token_to_id("<s>"))]
    )
    encoding = get_encoding(saved(truth, tmp_path))
    assert truth.token_to_id("<s>") not in ordinary(encoding, ["the mill"])[0]
    assert encoding.identity.bos == "<s>"  # for a note
    assert EncodingId.from_plain(encoding.identity.to_plain()) == encoding.identity


def test_identity_when_there_is_no_template_then_has_no_word_of_one(tmp_path: Path) -> None:
    plain = get_encoding(saved(byte_level(), tmp_path)).identity.to_plain()
    assert "bos" not in plain and EncodingId.from_plain(plain).bos is None
    with pytest.raises(IntegrityError, match="bos = 7"):
        EncodingId.from_plain({**plain, "bos": 7})


@pytest.mark.parametrize(
    ("post_processor", "expected"),
    [
        (None, None),
        (processors.ByteLevel(), None),
        (processors.TemplateProcessing("<s> $A", "<s> $A $B", [("<s>", 1)]), "<s>"),
        (processors.TemplateProcessing("$A </s>", "$A $B", [("</s>", 1)]), None),
        (processors.TemplateProcessing("<a> <b> $A", "$A $B", [("<a>", 1), ("<b>", 2)]), "<a> <b>"),
        (processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1)), "[CLS]"),
        (processors.RobertaProcessing(("</s>", 2), ("<s>", 1)), "<s>"),
        (
            processors.Sequence(
                [
                    processors.ByteLevel(),
                    processors.TemplateProcessing("<s> $A", "$A $B", [("<s>", 1)]),
                ]
            ),
            "<s>",
        ),
    ],
)
def test_template_bos_when_tokenizers_wrote_it_then_is_what_begins_a_text(
    post_processor: Any, expected: str | None
) -> None:
    truth = byte_level()
    if post_processor is not None:
        truth.post_processor = post_processor
    assert template_bos(json.loads(truth.to_str())["post_processor"]) == expected


@pytest.mark.parametrize(
    "hostile",
    [
        7,
        [],
        {},
        {"cls": []},
        {"cls": [7]},
        {"processors": [7, {"single": 7}]},
        {"single": [{"SpecialToken": {"id": 7}}]},
        {"single": [{"SpecialToken": {"id": "<s>"}}]},
        {"single": [7, {}]},
    ],
)
def test_template_bos_when_the_file_is_hostile_then_is_none(hostile: Any) -> None:
    assert template_bos(hostile) is None


def test_surrogates_when_encoded_then_are_mended(tmp_path: Path) -> None:
    encoding = get_encoding(saved(byte_level(), tmp_path))
    assert encoding.encode_ordinary("a\ud800b") == encoding.encode_ordinary("a\ufffdb")


def test_eot_when_not_given_then_is_looked_for_or_asked_for(tmp_path: Path) -> None:
    folder = saved(byte_level(special_tokens=["<bos>", "<stop>"]), tmp_path).parent
    with pytest.raises(ConfigError, match=r"it has: <bos>, <stop>") as caught:
        get_encoding(folder)
    assert "--eot-token" in str(caught.value)
    assert get_encoding(folder, eot="<stop>").eot_token == 1
    assert get_encoding(folder, eot=1).identity.eot == "<stop>"
    with pytest.raises(ConfigError, match=r"no special token '</s>'; it has: <bos>, <stop>"):
        get_encoding(folder, eot="</s>")
    with pytest.raises(ConfigError, match="the pattern gpt2 is for"):
        get_encoding(folder, eot=1, pattern="gpt2")


@pytest.mark.parametrize("eos", ["<stop>", {"content": "<stop>", "special": True}])
def test_eot_when_no_usual_one_then_is_that_of_the_config_beside(tmp_path: Path, eos: Any) -> None:
    saved(byte_level(special_tokens=["<bos>", "<stop>"]), tmp_path)
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({"eos_token": eos}))
    assert get_encoding(tmp_path).identity.eot == "<stop>"
    assert get_encoding(tmp_path, eot="<bos>").identity.eot == "<bos>"
    for useless in ({"eos_token": "<other>"}, [], {"eos_token": 7}):
        config.write_text(json.dumps(useless))
        with pytest.raises(ConfigError, match="which special token ends a document"):
            get_encoding(tmp_path)
    config.write_text("{")
    with pytest.raises(ConfigError, match=r"tokenizer_config\.json: not JSON"):
        get_encoding(tmp_path)
    # An eos_token that ends a turn of a chat does not replace the usual end of documents.
    saved(byte_level(special_tokens=["<turn>", "<|endoftext|>"]), tmp_path)
    config.write_text(json.dumps({"eos_token": "<turn>"}))
    assert get_encoding(tmp_path).identity.eot == "<|endoftext|>"


def test_file_when_changed_after_the_identity_was_made_then_is_refused(tmp_path: Path) -> None:
    # No other test has it: a process that has loaded an encoding does not read its file again.
    path = saved(byte_level(special_tokens=["</s>", "<changed>"]), tmp_path)
    sent = pickle.dumps(get_encoding(path))
    assert len(sent) < 600 + len(str(path))
    path.write_text(path.read_text() + "\n")
    with pytest.raises(IntegrityError, match="the vocabulary changed"):
        pickle.loads(sent).encode_ordinary("x")  # noqa: S301


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a tokenizer.json"),
        (b"\x80\x04pickle", "not a tokenizer.json"),
        (b"[" * 100_000, "not a tokenizer.json"),
        (b"[]", "it has no model"),
        (b'{"model": {"vocab": {}}, "added_tokens": [1]}', "added token 1"),
        (b'{"model": {}, "added_tokens": [{"content": "</s>", "id": -1}]}', "added token"),
        (b'{"model": {"vocab": {"a": "x"}}}', "which special token"),
        (
            b'{"model": {"vocab": {"a": 1e9}},'
            b' "added_tokens": [{"content": "</s>", "id": 0, "special": true}]}',
            "bad ids",
        ),
    ],
)
def test_file_when_hostile_then_error_names_it(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=message) as caught:
        get_encoding(path)
    assert "bad.json" in caught.value.message


def test_file_when_tokenizers_cannot_load_it_then_error_names_it(tmp_path: Path) -> None:
    path = saved(byte_level(), tmp_path, model={"type": "BPE", "vocab": {"a": 5}, "merges": [3]})
    with pytest.raises(ConfigError, match="tokenizers cannot load it"):
        get_encoding(path).encode_ordinary("x")
