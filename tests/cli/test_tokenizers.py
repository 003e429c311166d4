"""`tokenmill tokenizers`: every row is true of the encoding that it names."""

from __future__ import annotations

import json

from tokenmill.cli import main
from tokenmill.encodings import ENCODING_NAMES, get_encoding
from tokenmill.encodings.bos import with_bos
from tokenmill.errors import ConfigError


def test_tokenizers_when_listed_then_rows_are_those_of_the_encodings(capsys) -> None:
    assert main(["tokenizers", "--json"]) == 0
    rows = {row["tokenizer"]: row for row in json.loads(capsys.readouterr().out)}
    others = [*ENCODING_NAMES, "llama3", "llama4", "qwen", "deepseek", "gpt-neox", "olmo"]
    assert [*rows][: len(others)] == others
    for name in ENCODING_NAMES:
        encoding, row = get_encoding(name), rows[name]
        assert row["name it"] == f"--tokenizer {name}"
        assert row["vocabulary size"] == encoding.n_vocab
        assert (row["eot"], row["eot id"]) == (encoding.identity.eot, encoding.eot_token)
        assert row["pattern"] == encoding.identity.pattern
        try:
            with_it = with_bos(encoding.identity)
            assert (row["bos"], row["bos id"]) == (with_it.bos, with_it.bos_token)
        except ConfigError:
            assert row["bos"] is row["bos id"] is None
    assert rows["o200k_harmony"]["bos"] == "<|startoftext|>"


def test_tokenizers_when_shown_then_says_how_to_name_each_and_any_other(capsys) -> None:
    assert main(["tokenizers"]) == 0
    shown = capsys.readouterr().out
    assert "EOT <|end_of_text|> = 128001, BOS <|begin_of_text|> = 128000" in shown
    assert "--tokenizer FILE, the tokenizer.model of Llama 4" in shown
    assert "also --pattern NAME|REGEX and --eot-token TEXT=ID" in shown
