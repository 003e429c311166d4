"""Tokenizers by the name of a model on the Hub: fetched once, compared with their hashes, kept."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import subprocess
import sys
import time
import tomllib

import huggingface_hub
import pytest
import tokenizers

import tokenmill
from hub_client import connect, disconnect, share_blobs
from hub_server import TOKEN, HubServer, cut, status
from tokenmill.dataset.manifest import Manifest
from tokenmill.dataset.recipe import config_text, prepare_command
from tokenmill.errors import ConfigError, ConflictError, IntegrityError, NetworkError
from xet_store import XetStore

REPO = "Owner/Model-0.6B"
OTHER_COMMIT = "b" * 40
TEXTS = ["Wörter und words, 1234 mal.", "noch ein document", "x" * 300]


def tokenizer_json(eos: str, *more: str) -> bytes:
    """A real, small tokenizer.json whose end of text has no usual name."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<pad>", eos],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([*TEXTS, *more], trainer)
    return tokenizer.to_str().encode()


FILES = {
    "tokenizer.json": tokenizer_json("<the-end>"),
    "tokenizer_config.json": json.dumps({"eos_token": {"content": "<the-end>"}}).encode(),
    "model.safetensors": b"weights" * 1000,
}


@pytest.fixture
def hub(monkeypatch, tmp_path):
    monkeypatch.setattr("tokenmill.storage.retry.LONGEST_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr("tokenmill.storage.retry.UNREACHABLE_SECONDS", 0.2)
    with HubServer(FILES, REPO) as server:
        connect(monkeypatch, server.url, tmp_path / "home")
        yield server


def refused(kind: type[Exception], name: str = REPO) -> str:
    with pytest.raises(kind) as caught:
        tokenmill.get_encoding(name)
    return str(caught.value)


def test_model_when_it_is_named_then_its_ids_are_tokenizers_and_nothing_else_is_fetched(hub):
    encoding = tokenmill.get_encoding(REPO)
    right = tokenizers.Tokenizer.from_buffer(FILES["tokenizer.json"])
    for text in TEXTS:
        assert encoding.encode_ordinary(text) == right.encode(text).ids
    assert (encoding.name, encoding.eot_token) == (REPO, right.token_to_id("<the-end>"))
    assert not hub.asked("safetensors")


def test_model_when_it_is_cached_then_no_server_is_needed(hub, monkeypatch):
    before = tokenmill.get_encoding(REPO)
    disconnect(monkeypatch)
    assert tokenmill.get_encoding(REPO).identity == before.identity


def test_model_when_a_commit_is_named_then_it_is_that_commits(hub):
    first = tokenmill.get_encoding(REPO)
    commit = hub.commit
    hub.push({**FILES, "tokenizer.json": tokenizer_json("<the-end>", "newer " * 9)}, OTHER_COMMIT)
    assert tokenmill.get_encoding(REPO) != first
    assert tokenmill.get_encoding(f"{REPO}@{commit}") == first


def test_model_when_requests_fail_then_they_are_repeated(hub):
    hub.fail("GET .*tokenizer.json", cut(100), status(503), status(500))
    assert tokenmill.get_encoding(REPO).name == REPO


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Owner/Nothing", "no such model on the Hub"),
        (f"{REPO}@no-such-branch", "has no revision 'no-such-branch'"),
    ],
)
def test_model_when_it_does_not_exist_then_that_is_said(hub, name, said):
    assert said in refused(ConfigError, name)


def test_model_when_it_is_gated_then_the_message_says_how_to_get_access(hub, monkeypatch, tmp_path):
    hub.is_gated = True
    assert "hf auth login" in refused(ConfigError)
    connect(monkeypatch, hub.url, tmp_path / "home", TOKEN)
    assert tokenmill.get_encoding(REPO).name == REPO


def test_model_when_it_has_no_vocabulary_then_that_is_said(hub):
    hub.push({"model.safetensors": b"x"}, OTHER_COMMIT)
    assert "has none of tokenizer.json, tekken.json" in refused(ConfigError)


def test_model_when_nobody_answers_then_the_hint_says_what_to_fetch(monkeypatch, tmp_path, caplog):
    logger = logging.getLogger("huggingface_hub")
    monkeypatch.setattr(logger, "propagate", True)
    monkeypatch.setattr("tokenmill.storage.retry.UNREACHABLE_SECONDS", 0.0)
    # huggingface_hub sets the level when it is first used.
    monkeypatch.setattr("time.sleep", lambda seconds: logger.setLevel(logging.WARNING))
    connect(monkeypatch, "http://127.0.0.1:9", tmp_path / "home")
    assert f"hf download {REPO} tokenizer.json" in refused(NetworkError)
    said = refused(NetworkError, f"{REPO}@v2")
    assert f"--tokenizer {REPO}@v2: " in said and "--revision v2 --local-dir Model-0.6B" in said
    assert not caplog.records  # of huggingface_hub's own retries
    disconnect(monkeypatch)
    assert "HF_HUB_OFFLINE is set" in refused(NetworkError)


def test_model_when_nobody_answers_then_each_try_is_said_and_the_cache_is_used_at_once(
    hub, monkeypatch, tmp_path
):
    before, said = tokenmill.get_encoding(REPO), list[str]()
    monkeypatch.setattr("tokenmill.storage.retry._notice", said.append)
    connect(monkeypatch, "http://127.0.0.1:9", tmp_path / "home")
    slept, sleep = list[float](), time.sleep
    monkeypatch.setattr("time.sleep", lambda seconds: (slept.append(seconds), sleep(seconds)))
    assert tokenmill.get_encoding(REPO).identity == before.identity
    assert [f"{REPO}: from the Hub's cache, because" in line for line in said] == [True]
    assert sum(slept) == 0
    said.clear()
    refused(NetworkError, "Owner/Other")
    assert said[0] == "Owner/Other: asking http://127.0.0.1:9 for its tokenizer"
    assert "trying again in" in said[1]
    assert max(slept) < 1  # none of huggingface_hub's own pauses


@pytest.mark.parametrize(
    "cached", [("tokenizer.json",), ("vocab.json", "merges.txt", "tokenizer_config.json")]
)
def test_model_when_nobody_answers_and_half_of_it_is_cached_then_no_other_is_taken(
    hub, cached, monkeypatch, tmp_path
):
    """Another program may have fetched some of its files: not the first vocabulary, or not what
    says which token is EOT."""
    vocab_merges = {"vocab.json": b'{"<|endoftext|>": 0, "a": 1}', "merges.txt": b"#version: 0.2\n"}
    hub.push({**FILES, **vocab_merges}, OTHER_COMMIT)
    for name in cached:
        huggingface_hub.hf_hub_download(REPO, name)
    connect(monkeypatch, "http://127.0.0.1:9", tmp_path / "home")
    assert "the Hub cannot be reached" in refused(NetworkError)


def test_model_when_nobody_answers_then_what_is_known_not_to_be_there_is_not_asked_for(
    hub, monkeypatch, tmp_path
):
    hub.push({"tokenizer.json": tokenizer_json("<|endoftext|>")}, OTHER_COMMIT)
    before = tokenmill.get_encoding(REPO)
    connect(monkeypatch, "http://127.0.0.1:9", tmp_path / "home")
    assert tokenmill.get_encoding(REPO).identity == before.identity


def test_model_when_offline_then_the_cache_is_asked_once_for_each_file(hub, monkeypatch):
    hub.push({"tokenizer.json": tokenizer_json("<|endoftext|>")}, OTHER_COMMIT)  # no config
    before, said = tokenmill.get_encoding(REPO), list[str]()
    monkeypatch.setattr("tokenmill.storage.retry._notice", said.append)
    monkeypatch.setattr("time.sleep", lambda seconds: said.append(f"slept {seconds} s"))
    disconnect(monkeypatch)
    assert tokenmill.get_encoding(REPO).identity == before.identity
    assert "HF_HUB_OFFLINE is set" in refused(NetworkError, "Owner/Other")
    assert not said


def test_model_when_its_blobs_are_in_the_shared_store_then_it_is_right(hub, tmp_path):
    before = tokenmill.get_encoding(REPO)
    share_blobs(tmp_path / "home" / "hub")
    assert tokenmill.get_encoding(REPO).identity == before.identity


def test_model_when_its_file_is_in_xet_storage_then_hf_xet_puts_it_there_itself(
    monkeypatch, tmp_path
):
    monkeypatch.setattr("hub_server.PLAIN_SUFFIXES", ())
    show = f"import tokenmill; print(tokenmill.get_encoding({REPO!r}).identity.file_sha256)"
    with HubServer(FILES, REPO, xet=XetStore(tmp_path / "store")) as server:
        environment = {**os.environ, "HF_ENDPOINT": server.url, "HF_HOME": str(tmp_path / "home")}
        environment.pop("HF_HUB_DISABLE_XET", None)
        for _ in range(2):  # fetched, and then from the cache
            done = subprocess.run(
                [sys.executable, "-c", show], env=environment, capture_output=True, text=True
            )
            expected = hashlib.sha256(FILES["tokenizer.json"]).hexdigest()
            assert done.stdout.strip() == expected, done.stderr
        assert not server.asked("GET /cdn/")  # it came through hf_xet


@pytest.mark.parametrize("is_shared", [False, True], ids=["own blobs", "shared store"])
def test_model_when_the_cache_is_damaged_then_it_is_refused_and_the_hint_repairs_it(
    is_shared, hub, tmp_path
):
    before = tokenmill.get_encoding(REPO)
    if is_shared:
        share_blobs(tmp_path / "home" / "hub")
    path = os.path.realpath(before.identity.source)
    with open(path, "r+b") as file:
        file.write(b" ")
    said = refused(IntegrityError)
    assert "damaged in the Hub's cache" in said
    assert f"rm {path}, then run the same command again" in said
    os.remove(path)
    assert tokenmill.get_encoding(REPO).identity == before.identity


def test_model_when_its_first_folder_is_here_then_it_is_a_mistyped_path(hub, monkeypatch, tmp_path):
    (tmp_path / "Owner").mkdir()
    monkeypatch.chdir(tmp_path)
    assert "no such vocabulary file" in refused(ConfigError)
    assert not hub.requests


def prepared(tmp_path, **options):
    (tmp_path / "a.txt").write_text("\n\n".join(TEXTS))
    return tokenmill.prepare(
        tmp_path / "a.txt", tmp_path / "out", tokenizer=REPO, runner="inline", **options
    )


def test_prepare_when_the_model_is_on_the_hub_then_its_commit_is_kept_and_verify_finds_it(
    hub, monkeypatch, tmp_path
):
    prepared(tmp_path)
    assert Manifest.load(str(tmp_path / "out")).revisions == {f"models/{REPO}": hub.commit}
    manifest = Manifest.load(str(tmp_path / "out"))
    assert tomllib.loads(config_text(manifest))["tokenizer"] == f"{REPO}@{hub.commit}"
    assert f"--tokenizer {REPO}@{hub.commit}" in prepare_command(manifest)
    hub.push(FILES, OTHER_COMMIT)  # another commit, the same vocabulary
    assert prepared(tmp_path)  # is already complete
    disconnect(monkeypatch)
    assert tokenmill.verify(tmp_path / "out", full=True).is_complete


def test_prepare_when_the_vocabulary_changed_since_then_the_message_names_the_commit(hub, tmp_path):
    prepared(tmp_path)
    commit = hub.commit
    hub.push({**FILES, "tokenizer.json": tokenizer_json("<the-end>", "newer " * 9)}, OTHER_COMMIT)
    with pytest.raises(ConflictError, match=f"--tokenizer {REPO}@{commit}"):
        prepared(tmp_path)
