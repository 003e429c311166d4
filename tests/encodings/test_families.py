"""The vocabularies of published models: their own library's ids, special tokens included.

`--fuzzed N` says how many documents: a few hundred in `make test`, 100,000 now and then.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import tokenizers

from tokenmill.cli import main
from tokenmill.encodings import EncodingId, get_encoding
from tokenmill.encodings.loading import engine_of, special_tokens_of
from tokenmill.encodings.published import PUBLISHED as TABLE
from tokenmill.encodings.selfcheck import probe_texts
from tokenmill.errors import ConfigError
from vocabularies import PUBLISHED, Truth, fuzzed

# A letter, a mark and a symbol of Unicode 17, which the engine knows and the libraries do not.
NEWEST = [f"a {chr(point)}Ab!{chr(point)}\n" for point in (0x323B0, 0x1ACF, 0x1CEE9, 0x20C1)]


@pytest.mark.parametrize("name", PUBLISHED)
def test_family_when_encoded_then_ids_are_those_of_its_library(
    name: str, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    published = PUBLISHED[name]
    encoding, truth = get_encoding(published.path, eot=published.eot), published.its_truth()
    texts = probe_texts([*truth.specials][:20])[:100] + NEWEST
    texts += fuzzed(request.config.getoption("--fuzzed"), [*truth.specials])
    tokens = encoding.encode_array(pa.array(texts, pa.large_string()))
    assert not tokens.failed
    different = [
        (text, tokens.document(i).tolist(), expected)
        for i, text in enumerate(texts)
        if tokens.document(i).tolist() != (expected := truth.encode(text))
    ]
    assert not different, f"{len(different)} of {len(texts)}, such as {different[0]}"
    assert special_tokens_of(encoding.identity) == truth.specials
    assert (encoding.eot_token, encoding.n_vocab) == (truth.specials[published.eot], truth.n_vocab)
    assert encoding.identity.bos == published.bos
    assert main(["tokenizers", "--json"]) == 0
    listed = {row["tokenizer"]: row for row in json.loads(capsys.readouterr().out)}
    is_slow = "Reference" in type(engine_of(encoding.identity)).__name__
    assert is_slow == (name == "claude")  # whose normalizer gigatoken refuses
    if name == "claude":  # whose end of a document nobody has written down
        assert name not in listed
    else:
        _require_right(listed[name], encoding.identity, truth)


def _require_right(row: dict[str, Any], identity: EncodingId, truth: Truth) -> None:
    assert (row["file sha256"], row["vocabulary size"]) == (identity.file_sha256, truth.n_vocab)
    assert (row["eot"], row["eot id"]) == (identity.eot, truth.specials[identity.eot])
    assert row["bos"] is None or row["bos id"] == truth.specials[row["bos"]]


@pytest.mark.parametrize("name", ["gemma3", "llama3"])
def test_family_when_it_is_named_like_an_encoding_then_the_message_says_which_file(
    name: str,
) -> None:
    with pytest.raises(ConfigError, match="does not come with the package") as caught:
        get_encoding(name)
    assert f"--tokenizer PATH/tokenizer.{'json' if name == 'gemma3' else 'model'}" in str(
        caught.value
    )


def test_table_when_read_then_names_and_files_are_there_once_and_bos_is_not_eot() -> None:
    rows = [row for row in TABLE if row.kind != "builtin"]
    assert len({row.name for row in rows}) == len({row.file_sha256 for row in rows}) == len(rows)
    for row in TABLE:
        assert row.kind in ("builtin", "ranks", "whole"), row.name
        assert re.fullmatch("[0-9a-f]{64}", row.file_sha256), row.name
        assert max(row.special_tokens.values()) < row.n_vocab and row.eot != row.bos, row.name
        assert row.bos is None or row.bos in row.special_tokens, row.name
        # One that the tests do not compare says when that was done.
        is_compared = row.name in PUBLISHED or row.kind == "builtin"
        assert is_compared or re.search(r" on 20\d\d-\d\d-\d\d, ", row.checked)


def test_table_when_read_then_special_tokens_of_ranks_are_those_compared_with_their_libraries():
    """In their order: of two with one id, the first is the one that is shown."""
    tokens = {row.name: row.special_tokens for row in TABLE if row.kind != "whole"}
    digest = hashlib.sha256(json.dumps(tokens).encode()).hexdigest()
    assert digest == "3eef8c154f63ecb39c6939b4a862cd6a5a83085e998fe82df26aefe2943ecb6a"


@pytest.mark.parametrize(
    ("eos", "others"),
    [
        # As in Command R+, whose end of a turn is the end that its configuration names.
        (
            "<|END_OF_TURN_TOKEN|>",
            ["<PAD>", "<BOS_TOKEN>", "<EOS_TOKEN>", "<|START_OF_TURN_TOKEN|>"],
        ),
        ("<EOT>", ["<META>", "<META_START>", "<META_END>", "<SOS>"]),  # as in Claude 2
    ],
)
def test_folder_of_a_model_when_no_end_has_a_usual_name_then_its_configuration_says(
    eos: str, others: list[str], tmp_path: Path
) -> None:
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.add_special_tokens([*others, eos])
    model.save(str(tmp_path / "tokenizer.json"))
    config = {"eos_token": eos, "add_bos_token": False, "add_eos_token": False}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    encoding = get_encoding(tmp_path)
    assert (encoding.identity.eot, encoding.eot_token) == (eos, model.token_to_id(eos))


def test_command_rs_file_when_its_end_of_turn_is_a_token_of_text_then_eos_ends_documents(
    tmp_path: Path,
) -> None:
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.add_special_tokens(["<PAD>", "<BOS_TOKEN>", "<EOS_TOKEN>"])
    model.add_tokens(["<|END_OF_TURN_TOKEN|>"])
    model.save(str(tmp_path / "tokenizer.json"))
    config = {"bos_token": "<BOS_TOKEN>", "eos_token": "<|END_OF_TURN_TOKEN|>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert get_encoding(tmp_path).identity.eot == "<EOS_TOKEN>"


def test_claudes_file_when_a_configuration_lies_beside_then_it_needs_no_option(
    tmp_path: Path,
) -> None:
    shutil.copy(PUBLISHED["claude"].path, tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<EOT>"}')
    assert get_encoding(tmp_path).eot_token == 0
