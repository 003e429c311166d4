"""The contract of encodings (tokenmill.testing), for every one that comes with the package and for
every kind of vocabulary file: each against tiktoken or tokenizers itself."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable
from pathlib import Path
from unicodedata import normalize

import pytest
import sentencepiece
import tiktoken
import tokenizers

from tests.encodings import test_huggingface as huggingface
from tests.encodings.test_encoding import oracle
from tests.encodings.test_rank_files import BYTES, write_ranks
from tests.encodings.test_sentencepiece_library import MODELS, trained
from tokenmill.encodings import ENCODING_NAMES, Encoding, get_encoding
from tokenmill.encodings.patterns import PATTERNS
from tokenmill.encodings.sentencepiece import parsed_model
from tokenmill.testing import EncodingContract
from tokenmill.testing.encoding_contract import TEXTS

MERGES = [b"he", b"ll", b"hell", b"hello", b" w", b"or", b" wor", b"ld", b"  ", b"\xe6\x9d"]
LOSSLESS = {"byte level", "gpt2"}  # of a tokenizer.json

Made = tuple[Encoding, Callable[[str], list[int]]]


class OurEncoding(EncodingContract):
    """`make` says, given an empty folder, what the encoding is and what its reference says."""

    make: Callable[[Path], Made]
    reference: Callable[[str], list[int]]

    def expected(self, text):
        return self.reference(text)

    def test_a_pickle_holds_the_identity_alone(self):
        self.encoding.encode_ordinary_batch(["load it"])
        data = pickle.dumps(self.encoding)
        assert len(data) < 600 + len(self.encoding.identity.source or "")
        assert pickle.loads(data).identity == self.encoding.identity  # noqa: S301


@pytest.fixture(scope="class", autouse=True)
def made(request, tmp_path_factory):
    cls = request.cls
    cls.encoding, reference = cls.make(tmp_path_factory.mktemp("encoding"))
    cls.reference = staticmethod(functools.cache(reference))


def hold(title: str, make: Callable[[Path], Made], **attributes: object) -> None:
    """Have pytest find the contract for this encoding."""
    name = "Test" + "".join(word.title() for word in title.replace(",", "").split())
    globals()[name] = type(name, (OurEncoding,), {"make": staticmethod(make), **attributes})


def of_name(name: str) -> Callable[[Path], Made]:
    return lambda folder: (get_encoding(name), oracle(name).encode_ordinary)


def of_ranks(pattern: str) -> Callable[[Path], Made]:
    def make(folder: Path) -> Made:
        truth = tiktoken.Encoding(
            "small",
            pat_str=PATTERNS[pattern].expression,
            mergeable_ranks={token: rank for rank, token in enumerate(BYTES + MERGES)},
            special_tokens={"<|endoftext|>": len(BYTES + MERGES)},
        )

        def encode_ordinary(text: str) -> list[int]:
            is_nfc = PATTERNS[pattern].is_nfc
            return truth.encode_ordinary(normalize("NFC", text) if is_nfc else text)

        path = write_ranks(folder / "small.tiktoken", BYTES + MERGES)
        return get_encoding(path, pattern=pattern, eot=300), encode_ordinary

    return make


def of_tokenizer_json(kind: str) -> Callable[[Path], Made]:
    def make(folder: Path) -> Made:
        truth = huggingface.KINDS[kind][0]()
        encoding = get_encoding(huggingface.saved(truth, folder))
        truth.encode_special_tokens = True
        return encoding, lambda text: truth.encode(text, add_special_tokens=False).ids

    return make


def of_sentencepiece(folder: Path) -> Made:
    """The way of T5."""
    path = folder / "spiece.model"
    path.write_bytes(trained(**MODELS["t5"]))
    return get_encoding(path), sentencepiece.SentencePieceProcessor(model_file=str(path)).encode


def of_unigram_json(folder: Path) -> Made:
    """A unigram model with bytes and a table of normalizations, as transformers converts it."""
    data = trained(byte_fallback=True)
    model = parsed_model(data, "m")
    pieces = [(piece.text, piece.score) for piece in model.pieces]
    truth = tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, unk_id=0, byte_fallback=True))
    truth.normalizer = tokenizers.normalizers.Precompiled(model.normalizer[2])
    truth.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    truth.decoder = tokenizers.decoders.Metaspace()
    truth.add_special_tokens(["</s>"])
    encoding = get_encoding(huggingface.saved(truth, folder))
    truth.encode_special_tokens = True
    return encoding, lambda text: truth.encode(text, add_special_tokens=False).ids


UNKNOWN = frozenset({"<unk>", "[UNK]"})
hold("sentencepiece unigram", of_sentencepiece, is_lossless=False, unknown=UNKNOWN)
hold("json unigram with a table", of_unigram_json, is_lossless=False, unknown=UNKNOWN)
for name in ENCODING_NAMES:
    hold(name, of_name(name))
for pattern in PATTERNS:
    hold(f"ranks {pattern}", of_ranks(pattern), is_lossless=not PATTERNS[pattern].is_nfc)
for kind in huggingface.KINDS:
    texts = [*TEXTS, *huggingface.TEXTS]
    hold(
        f"json {kind}",
        of_tokenizer_json(kind),
        texts=[text for text in texts if kind != "unigram" or "</s>" not in text],
        is_lossless=kind in LOSSLESS,
        unknown=UNKNOWN,
    )
