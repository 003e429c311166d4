"""`tokenmill inspect`: errors say what to type."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

import oracle
from inspected import ALL, COMMAND, documents_of, inspect, prepared
from tokenmill.cli import main
from tokenmill.dataset.inspect import (
    glance,
    look_into,
    random_document,
    token_offset,
)
from tokenmill.errors import ConfigError


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--doc", "1000"],
            r"train has no document 1,000: they are numbered 0 to \d+\nhint: --doc \d+ is",
        ),
        (["--doc", "-1"], "train has no document -1: they are numbered 0 to"),
        (["--doc", "x"], "--doc: not a number: 'x'"),
        (["--split", "test"], "unknown split 'test'; known: train, val"),
        (["--split", "test", "--doc", "0"], "unknown split 'test'; known: train, val"),
        (
            ["--token-offset", "1e12"],
            r"train has no token 1,000,000,000,000: they are numbered 0 to [\d,]+\nhint: --t",
        ),
        (["--token-offset", "-5"], "train has no token -5"),
        (["--grep", ""], "the text to search for is empty"),
        (["--grep-ids", ""], "no ids to search for"),
        (["--grep-ids", "the"], "--grep-ids takes token ids, got 'the'"),
        (["--grep", "x", "--limit", "0"], "--limit 0 finds nothing"),
        (["--format", "npy"], "--format npy, but the manifest says nanogpt"),
        (["--dtype", "uint32"], "--dtype uint32, but the manifest says uint16"),
        (
            ["--tokenizer", "cl100k_base"],
            r"cl100k_base has sha256 \w{64}, but .* gpt2, sha256 \w{64}",
        ),
        (["--tokenizer", "gpt9"], "unknown encoding 'gpt9'"),
    ],
)
def test_wrong_options_exit_2_and_say_what_is_right(arguments, message, nano, capsys):
    assert main(["inspect", nano, *arguments]) == 2
    assert re.search(message, capsys.readouterr().err)


def test_a_text_that_is_not_utf8_is_refused(nano):
    done = subprocess.run([*COMMAND, nano, "--grep", b"\xff"], capture_output=True, check=False)
    assert done.returncode == 2 and b"is not UTF-8" in done.stderr


def test_tokenizer_files_are_named_again_and_compared(tmp_path, small):
    vocabulary = Path(oracle.VOCAB) / "r50k_base.tiktoken"
    mine = tmp_path / "mine.tiktoken"
    mine.write_bytes(vocabulary.read_bytes())
    for eot_token in (None, "<|mine|>=50300"):
        folder = tmp_path / f"eot-{eot_token}"
        out = prepared(
            folder, small, tokenizer=str(mine), pattern="gpt2", eot_token=eot_token, val="none"
        )
        done = inspect(out, "--doc", 0)
        assert done.returncode == 0 and re.fullmatch(r"[\d \n]+", done.stdout)
        assert "as ids: made with mine, a .tiktoken file" in done.stderr
        assert "--tokenizer FILE" in done.stderr
        looked = look_into(out, tokenizer=str(mine))
        assert documents_of(looked, "train") == small
        done = inspect(out, "--grep", "mill")
        assert done.returncode == 2 and "without the tokenizer" in done.stderr
        assert inspect(out, "--grep-ids", "464").returncode == 0
        other = tmp_path / "other.tiktoken"
        other.write_bytes(b"\n".join(mine.read_bytes().splitlines()[:-1]) + b"\n")
        with pytest.raises(ConfigError, match=r"other\.tiktoken has sha256"):
            look_into(out, tokenizer=str(other))
        assert glance(look_into(out)).tokenizer["name"] == "mine"


def test_tokenizer_json_decodes_its_own_documents(tmp_path, small):
    import tokenizers

    model = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token=None, byte_fallback=True))
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    model.train_from_iterator(small, trainer)
    path = tmp_path / "tokenizer.json"
    model.save(str(path))
    out = prepared(tmp_path / "out", small, tokenizer=str(path), val="none")
    assert documents_of(look_into(out, tokenizer=str(path)), "train") == small
    assert documents_of(look_into(out, tokenizer=str(tmp_path)), "train") == small
    assert "a tokenizer.json" in str(look_into(out).missing)


def test_strangers_folder_without_tokenizer_shows_ids_around_a_token(tmp_path):
    np.arange(5000, dtype="<u2").tofile(tmp_path / "train.bin")
    done = inspect(tmp_path, "--token-offset", 3000, "--max-tokens", 10)
    assert done.stdout == "2995 2996 2997 2998 2999 3000 3001 3002 3003 3004\n"
    assert "name it with --tokenizer" in done.stderr
    done = inspect(tmp_path, "--doc", 0)
    assert done.returncode == 2 and "--tokenizer gpt2" in done.stderr
    done = inspect(tmp_path, "--token-offset", 0, "--tokenizer", "gpt2")
    assert done.returncode == 0 and done.stdout.startswith('!"#$%')


def test_strangers_wide_vocabulary_is_read_as_uint32(tmp_path):
    ids = [*oracle.reference("cl100k_base").encode_ordinary("東京 the mill"), 100257]
    np.array(ids, "<u4").tofile(tmp_path / "train.bin")
    looked = look_into(str(tmp_path), tokenizer="cl100k_base")
    assert documents_of(looked, "train") == ["東京 the mill"]


def test_random_document_of_a_strangers_folder_says_how_to_show_it_again(tmp_path, small):
    out = prepared(tmp_path, small, val="none")
    (Path(out) / "tokenmill.json").unlink()
    looked = look_into(out, tokenizer="gpt2")
    for seed in range(5):
        view = random_document(looked, None, seed, ALL)
        assert view == token_offset(looked, None, view.token_offset, ALL)
        assert view.to_plain(looked)["text"] == small[view.document]


@pytest.mark.parametrize(
    ("ignored", "needed"),
    [
        (["--limit", "5"], "--grep"),
        (["--max-tokens", "5"], "--doc"),
        (["--ids"], "--doc"),
        (["--boundaries"], "--doc"),
        (["--pattern", "gpt2"], "--tokenizer"),
        (["--eot-token", "x"], "--tokenizer"),
    ],
    ids=str,
)
def test_command_when_an_option_would_be_ignored_then_refused(ignored, needed, nano):
    done = inspect(nano, *ignored)
    assert done.returncode == 2 and f"{ignored[0]} does nothing without {needed}" in done.stderr


def test_command_when_there_is_no_text_then_json_says_why(tmp_path, small):
    mine = tmp_path / "mine.tiktoken"
    mine.write_bytes((Path(oracle.VOCAB) / "r50k_base.tiktoken").read_bytes())
    out = prepared(tmp_path / "out", small, tokenizer=str(mine), pattern="gpt2", val="none")
    plain = json.loads(inspect(out, "--doc", 0, "--json").stdout)
    assert plain["documents"][0]["text"] is None and "--tokenizer FILE" in plain["missing"]
    named = json.loads(inspect(out, "--doc", 0, "--json", "--tokenizer", mine).stdout)
    assert named["documents"][0]["text"] == small[0] and named["missing"] is None
    other = inspect(out, "--doc", 0, "--tokenizer", mine, "--eot-token", "<|other|>=50300")
    assert other.returncode == 2 and "the tokens were made with" in other.stderr
