"""A dataset on the Hub is opened, packed and loaded from the cache that `huggingface_hub` keeps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tokenmill
from corpora import made_texts
from hub_client import share_blobs
from hub_corpus import Here
from hub_server import HubServer

URL = "hf://datasets/OWNER/NAME"
READ = """
import json, sys, tokenmill
data = tokenmill.open(sys.argv[1])
loader = tokenmill.Loader(sys.argv[1], seq_len=32, batch_size=4, packed=sys.argv[2])
print(json.dumps([data.num_tokens, next(iter(loader)).tokens.tolist()]))
"""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("hub")
    corpus = folder / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in made_texts(40)))
    tokenmill.prepare(corpus, folder / "out", format="megatron", runner="inline")
    return folder / "out"


def test_dataset_on_the_hub_is_downloaded_once_and_then_read_offline(dataset, tmp_path):
    files = {f"v2/{path.name}": path.read_bytes() for path in dataset.iterdir()}
    plan = tmp_path / "plan.rows"
    with HubServer({**files, "README.md": b"# Mine\n"}) as server:
        here = Here(server, tmp_path / "home")
        done = here.tokenmill("inspect", f"{URL}/v2", "--json")
        assert done.returncode == 0, done.stderr
        fetched = server.num_file_bytes_sent
        packed = here.tokenmill("pack", f"{URL}/v2", "--seq-len", 32, "--plan", plan)
        assert packed.returncode == 0, packed.stderr
        assert server.num_file_bytes_sent == fetched and "README.md" not in str(server.requests)
    offline = {**here.environment, "HF_HUB_OFFLINE": "1", "HF_ENDPOINT": "http://127.0.0.1:9"}
    found = subprocess.run(
        [sys.executable, "-c", READ, f"{URL}/v2", plan],
        env=offline,
        capture_output=True,
        text=True,
        check=True,
    )
    num_tokens, tokens = json.loads(found.stdout)
    own = tokenmill.Loader(dataset, seq_len=32, batch_size=4, packed=plan)
    assert num_tokens == tokenmill.open(dataset).num_tokens
    assert tokens == next(iter(own)).tokens.tolist()
    assert here.tokenmill("verify", f"{URL}/v2", HF_HUB_OFFLINE="1").returncode == 0


def test_dataset_on_the_hub_whose_blobs_are_in_the_shared_store_is_read(dataset, tmp_path):
    with HubServer({path.name: path.read_bytes() for path in dataset.iterdir()}) as server:
        here = Here(server, tmp_path / "home")
        assert here.tokenmill("inspect", URL).returncode == 0
        share_blobs(tmp_path / "home" / "hub")
        fetched = server.num_file_bytes_sent
        done = here.tokenmill("verify", URL)
        assert done.returncode == 0, done.stderr
        assert server.num_file_bytes_sent == fetched


def test_pack_on_the_hub_without_a_place_for_the_plan_says_what_to_type(dataset, tmp_path):
    with HubServer({path.name: path.read_bytes() for path in dataset.iterdir()}) as server:
        here = Here(server, tmp_path / "home")
        done = here.tokenmill("pack", URL, "--seq-len", 32)
    assert done.returncode == 2 and "--plan FILE" in done.stderr
    left = [name for _, _, names in os.walk(tmp_path) for name in names]
    assert not [name for name in left if name.endswith(".rows")]
