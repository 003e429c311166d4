"""vocab.json with merges.txt: tokenizers' own reading of the pair is the truth."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tokenizers.implementations import ByteLevelBPETokenizer

import tokenmill
from tests.encodings.test_huggingface import TEXTS, byte_level
from tokenmill.encodings import get_encoding
from tokenmill.encodings.encoding import Encoding
from tokenmill.encodings.loading import engine_of
from tokenmill.errors import ConfigError, IntegrityError

ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    folder = tmp_path / "gpt"
    folder.mkdir()
    byte_level().model.save(str(folder))
    return folder


def truth_of(folder: Path, **options: Any) -> Any:
    files = (str(folder / "vocab.json"), str(folder / "merges.txt"))
    return ByteLevelBPETokenizer.from_file(*files, **options)


@pytest.mark.parametrize("prefix", [False, True])
def test_pair_when_encoded_then_ids_are_those_of_tokenizers(pair: Path, prefix: bool) -> None:
    config = {"add_prefix_space": prefix, "tokenizer_class": "GPT2TokenizerFast"}
    (pair / "tokenizer_config.json").write_text(json.dumps(config))
    encoding, truth = get_encoding(pair), truth_of(pair, add_prefix_space=prefix)
    assert get_encoding(pair / "vocab.json") == get_encoding(pair / "merges.txt") == encoding
    tokens = encoding.encode_array(pa.array(TEXTS, pa.large_string()))
    for position, text in enumerate(TEXTS):
        assert tokens.document(position).tolist() == truth.encode(text).ids, text
    assert prefix or encoding.decode(truth.encode(TEXTS[2]).ids) == TEXTS[2]
    if not prefix:
        assert type(engine_of(encoding.identity)).__name__ == "GigatokenEngine"
    assert encoding.identity.eot == "<|endoftext|>" and encoding.name == "gpt"
    assert encoding.n_vocab == truth.get_vocab_size()


def test_pair_when_files_beside_name_special_tokens_then_they_are(tmp_path: Path) -> None:
    byte_level(special_tokens=ROBERTA).model.save(str(tmp_path))
    assert get_encoding(tmp_path).special_tokens_set == {*ROBERTA}  # by their usual names
    assert get_encoding(tmp_path).identity.eot == "</s>"
    named = {"eos_token": {"content": "<mask>"}, "additional_special_tokens": ["<new>"]}
    (tmp_path / "special_tokens_map.json").write_text(json.dumps(named))
    size = get_encoding(tmp_path).n_vocab
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<new>": size, "mühle": size + 1}))
    encoding = get_encoding(tmp_path)
    assert encoding.special_tokens_set == {"<mask>", "<new>"}
    assert (encoding.identity.eot, encoding.eot_token, encoding.n_vocab) == ("<mask>", 4, size + 2)
    assert encoding.encode_ordinary("xmühle<new>")[1] == size + 1
    assert size not in encoding.encode_ordinary("xmühle<new>")
    assert get_encoding(tmp_path, eot=size).identity.eot == "<new>"


def test_eot_when_none_has_a_usual_name_then_is_asked_for(tmp_path: Path) -> None:
    byte_level(special_tokens=["<end>"]).model.save(str(tmp_path))
    with pytest.raises(ConfigError, match="which special token ends a document"):
        get_encoding(tmp_path)
    for asked in ("<end>", 0, "<end>=0"):
        assert get_encoding(tmp_path, eot=asked).identity.eot == "<end>"


def test_pair_when_prepared_with_then_verifies_and_a_changed_one_is_noticed(
    pair: Path, tmp_path: Path
) -> None:
    source, out = tmp_path / "a.txt", tmp_path / "out"
    source.write_text("the mill grinds the grain\n")
    tokenmill.prepare(source, out, tokenizer=pair, num_proc=1, val="none")
    assert tokenmill.verify(out, tokenizer=pair, sources=source, sample="1", num_proc=1).is_whole
    assert tokenmill.open(out, tokenizer=pair)["train"].text(0) == source.read_text()
    (pair / "special_tokens_map.json").write_text('{"pad_token": "he"}')  # not loaded before
    named = get_encoding(pair, eot=0).identity
    merges = pair / "merges.txt"
    merges.write_text("".join(merges.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(IntegrityError, match=r"vocab\.json: it, its merges or"):
        Encoding(named).encode_ordinary("a")


def without_merges(folder: Path) -> None:
    (folder / "merges.txt").unlink()


def appended(text: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        with (folder / "merges.txt").open("a") as file:
            file.write(text)

    return change


def written(name: str, plain: Any) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_text(json.dumps(plain)) and None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without_merges, r"there is no merges\.txt beside it"),
        (appended("a\n"), r"merges\.txt: not a merges\.txt: line \d+ is 'a'"),
        (appended("a b c\n"), r"not a merges\.txt: line"),
        (
            appended("zz qq\n"),
            r"merges\.txt: line \d+ has 'zz', which is not in vocab\.json: they belong to "
            "different models$",
        ),
        (written("vocab.json", {"a": 0, "b": 1}), "not a byte-level vocabulary"),
        (written("vocab.json", {"a": 0, "b": 0}), "an id is repeated, negative or too large"),
        (written("vocab.json", {"a": -1}), "an id is repeated, negative or too large"),
        (written("added_tokens.json", {"x": 1 << 40}), "the token 'x' beside it has the id"),
        (written("added_tokens.json", {"<x>": 501}), "the added token '<x>' has the id 501, not"),
        (written("added_tokens.json", {"the": 9}), "the added token 'the' has the id 9, not"),
        (
            written("tokenizer_config.json", {"tokenizer_class": "Qwen2Tokenizer"}),
            "made for Qwen2Tokenizer, which does not cut text as GPT-2 does",
        ),
    ],
)
def test_pair_when_hostile_or_of_another_kind_then_is_refused_by_name(
    pair: Path, change: Callable[[Path], None], message: str
) -> None:
    change(pair)
    with pytest.raises(ConfigError, match=message):
        get_encoding(pair / "vocab.json")


def test_pair_when_a_pattern_is_given_then_is_refused(pair: Path) -> None:
    what = "a vocab.json with a merges.txt is cut with GPT-2's pattern"
    with pytest.raises(ConfigError) as caught:
        get_encoding(pair, pattern="cl100k")
    path = pair / "vocab.json"
    assert caught.value.message == f"{path}: {what}; the pattern cl100k is for .tiktoken files"
    assert caught.value.hint == "leave the pattern out"


def test_eot_when_only_the_config_lists_it_then_the_pair_loads_as_it_was_named(pair: Path) -> None:
    eot = json.loads((pair / "vocab.json").read_text())["<|endoftext|>"]
    listed = {
        eot: {"content": "<|endoftext|>", "special": True, "normalized": True},
        get_encoding(pair).n_vocab: {"content": "<|im_end|>", "special": True},
    }
    config = {"pad_token": "<|im_end|>", "added_tokens_decoder": listed}
    (pair / "tokenizer_config.json").write_text(json.dumps(config))
    encoding = get_encoding(pair)
    assert encoding.identity.eot == "<|endoftext|>"
    assert encoding.encode_ordinary(TEXTS[2]) == truth_of(pair).encode(TEXTS[2]).ids
