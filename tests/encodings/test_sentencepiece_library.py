"""SentencePiece models of every other kind: trained here, and compared with sentencepiece."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sentencepiece

import tokenmill
from tests.encodings.test_huggingface import SENTENCES
from tests.encodings.test_sentencepiece import model, pieces
from tokenmill.encodings import get_encoding
from tokenmill.encodings.selfcheck import _ALPHABETS
from tokenmill.errors import ConfigError

# The trainer's options of a few published models, and the ones that change how text is cut.
MODELS: dict[str, dict[str, Any]] = {
    "t5": {"bos_id": -1, "pad_id": 0, "eos_id": 1, "unk_id": 2},
    "albert": {
        "normalization_rule_name": "nmt_nfkc_cf",
        "eos_piece": "[SEP]",
        "bos_piece": "[CLS]",
        "control_symbols": ["[MASK]"],
    },
    "bytes": {"byte_fallback": True, "normalization_rule_name": "identity", "split_digits": True},
    "suffix": {"treat_whitespace_as_suffix": True, "normalization_rule_name": "nfkc"},
    "no prefix": {"add_dummy_prefix": False, "remove_extra_whitespaces": False},
    "gemma": {
        "model_type": "bpe",
        "byte_fallback": True,
        "user_defined_symbols": ["<start_of_turn>", "\n\n", "▁▁", "▁▁▁"],
        "eos_piece": "<eos>",
        "bos_piece": "<bos>",
        "add_dummy_prefix": False,
        "remove_extra_whitespaces": False,
        "normalization_rule_name": "identity",
    },
}


def trained(**options: Any) -> bytes:
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([line for text in SENTENCES for line in text.split("\n")]),
        model_writer=written,
        **{"vocab_size": 420, "minloglevel": 2, "hard_vocab_limit": False, **options},
    )
    return written.getvalue()


def fuzzed(seed: int, num_documents: int, words: list[str]) -> list[str]:
    source = random.Random(seed)

    def part() -> str:
        letters = source.choice(_ALPHABETS)
        any_letters = "".join(source.choices(letters, k=source.randint(1, 6)))
        return source.choice(words) if source.random() < 0.5 else any_letters

    return ["".join(part() for _ in range(source.randint(0, 40))) for _ in range(num_documents)]


@pytest.mark.parametrize("kind", MODELS)
def test_model_when_encoded_then_ids_are_the_librarys(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "spiece.model"
    path.write_bytes(trained(**MODELS[kind]))
    truth = sentencepiece.SentencePieceProcessor(model_file=str(path))
    encoding = get_encoding(path)
    pieces = [truth.id_to_piece(i).replace("▁", " ") for i in range(truth.vocab_size())]
    texts = ["", " ", "a\0b", "<s>a</s> [SEP] <unk>", "ﬁ  Ⅷ\u3000①", *fuzzed(0, 300, pieces)]
    tokens = encoding.encode_array(pa.array(texts, pa.large_string()))
    controls = {i for i in range(truth.vocab_size()) if truth.is_control(i)}
    assert not tokens.failed and controls and controls.isdisjoint(tokens.ids.tolist())
    for position, text in enumerate(texts):
        expected = truth.encode(text)
        assert tokens.document(position).tolist() == expected, text
        assert encoding.encode(text, disallowed_special=()) == expected
        assert encoding.decode(expected) == truth.decode(expected)
    identity = encoding.identity
    assert (encoding.eot_token, encoding.n_vocab) == (truth.eos_id(), truth.vocab_size())
    assert identity.bos == (None if kind == "t5" else truth.id_to_piece(truth.bos_id()))


def test_model_when_prepared_with_then_the_dataset_verifies_and_shows_its_text(
    tmp_path: Path,
) -> None:
    path, source, out = tmp_path / "t5.model", tmp_path / "a.txt", tmp_path / "out"
    path.write_bytes(trained(**MODELS["t5"]))
    source.write_text("the mill grinds  the ﬁne grain\n")
    tokenmill.prepare(source, out, tokenizer=path, num_proc=1, val="none")
    checked = tokenmill.verify(out, tokenizer=path, sources=source, sample="1", num_proc=1)
    assert checked.is_whole
    train = tokenmill.open(out, tokenizer=path)["train"]
    assert train.text(0) == "the mill grinds the fine grain"  # normalized, as the ids say it


def test_model_when_no_piece_ends_documents_then_asks_which(tmp_path: Path) -> None:
    path = tmp_path / "m.model"
    path.write_bytes(trained(eos_id=-1))
    with pytest.raises(ConfigError, match="which special token ends a document"):
        get_encoding(path)
    assert get_encoding(path, eot="<s>").eot_token == 1


def test_model_when_the_library_refuses_it_then_is_named(tmp_path: Path) -> None:
    path = tmp_path / "m.model"
    path.write_bytes(model(pieces(), kind=1, table=b"\xff" * 9))
    with pytest.raises(ConfigError, match=r"m.model: sentencepiece cannot load it"):
        get_encoding(path).encode_ordinary("a")
