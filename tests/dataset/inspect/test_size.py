"""`tokenmill inspect`: a folder of 100 GB is opened at once, and a search of it can be stopped."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import time
from pathlib import Path

import tokenmill
from inspected import COMMAND, inspect


def sparse_100_gb(folder: Path, eot: str = "append") -> None:
    """A folder whose manifest promises 50B tokens, in a file of holes."""
    num_tokens = 50_000_000_000
    num_documents = num_tokens // 700
    with open(folder / "train.bin", "wb") as file:
        file.truncate(2 * num_tokens)
    encoding = tokenmill.get_encoding("gpt2").identity.to_plain()
    del encoding["source"]
    options = {"format": "nanogpt", "dtype": "uint16", "eot": eot, "val": "none", "shuffle": False}
    shard = {"name": "train.bin", "split": "train", "num_tokens": num_tokens, "sha256": "0" * 64}
    counts = {"num_rows": num_documents, "num_written": num_documents, "text_bytes": 220 * 10**9}
    manifest = {
        "tokenmill_manifest": 1,
        "identity": {"options": options, "encoding": encoding, "versions": {}},
        "inputs": [],
        "files": [{**shard, "num_documents": num_documents, "num_bytes": 2 * num_tokens}],
        "splits": {"train": {"num_tokens": num_tokens, "num_documents": num_documents}},
        "counts": counts,
        "slice_documents": {},
        "split_rule": "none",
    }
    (folder / "tokenmill.json").write_text(json.dumps(manifest))


def test_inspect_when_there_are_100_gb_then_it_reads_little_of_them(tmp_path):
    sparse_100_gb(tmp_path)
    before = faults()
    inspect("--help", env=dict(os.environ))
    to_start = faults() - before
    done = inspect(tmp_path, env=dict(os.environ))
    assert done.returncode == 0 and "50,000,000,000 as uint16, 100.0 GB" in done.stdout
    # Pages of 4 KB, which the kernel maps up to 16 at a time: all would be 1.5 million.
    assert faults() - before < 2 * to_start + 50_000


def faults() -> int:
    """Page faults of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_minflt + used.ru_majflt


def test_ctrl_c_ends_a_search_by_that_signal(tmp_path):
    sparse_100_gb(tmp_path, eot="none")
    process = subprocess.Popen(
        [*COMMAND, str(tmp_path), "--grep", "x"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    time.sleep(2)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGINT
    assert b"Traceback" not in errors
