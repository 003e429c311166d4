"""What stands in for awkward in workers: the same ids, and awkward itself is left alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import gigatoken
import numpy as np
import pyarrow as pa
import pytest

import tokenmill
from tokenmill.encodings import awkward_shim, get_encoding

VOCAB = Path(tokenmill.__file__).parent / "encodings" / "vocab"
TEXTS = ["", "hello world", "", "<|endoftext|>", "中文字 é 👍🏽\n\n  x", "a" * 5000, ""]


@pytest.fixture
def enabled(monkeypatch):
    monkeypatch.setattr(awkward_shim, "_is_enabled", True)


@pytest.mark.parametrize("name", ["gpt2", "cl100k_base", "o200k_base"])
@pytest.mark.parametrize("dtype", ["uint32", "uint16"])
def test_ids_when_awkward_is_stood_in_for_then_are_the_same(name, dtype, monkeypatch):
    texts = pa.array(TEXTS * 3, pa.large_string()).slice(2)  # whose first offset is not 0
    before = get_encoding(name).encode_array(texts)
    monkeypatch.setattr(awkward_shim, "_is_enabled", True)
    after = get_encoding(name).encode_array(texts, dtype)
    assert before.ids.dtype == np.uint32
    assert after.ids.tolist() == before.ids.tolist()
    assert after.offsets.tolist() == before.offsets.tolist()
    fits = dtype == "uint32" or int(before.ids.max()) < 1 << 16
    assert after.ids.dtype == (dtype if fits else np.uint32)


def test_awkward_when_it_was_imported_then_is_there_again(enabled):
    import awkward as ak

    get_encoding("gpt2").encode_array(pa.array(TEXTS, pa.large_string()))
    assert sys.modules["awkward"] is ak


@pytest.mark.parametrize("what", ["a worker", "someone's process"])
def test_awkward_is_imported_by_no_worker(what):
    code = f"""
import sys
import pyarrow as pa
from tokenmill.encodings import get_encoding, awkward_shim
if {what == "a worker"}:
    awkward_shim.enable()
get_encoding("gpt2").encode_array(pa.array(["hello"], pa.large_string()))
print("awkward" in sys.modules)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == str(what != "a worker")


def test_gigatoken_when_it_asks_for_something_else_then_gets_the_real_awkward(enabled):
    real = gigatoken.Tokenizer.from_tiktoken(VOCAB / "r50k_base.tiktoken", "gpt2", {})

    class Curious:
        def encode_batch(self, texts, *, parallel):
            import awkward

            awkward.to_list(texts)  # as another version of gigatoken might
            return real.encode_batch(texts, parallel=parallel)

    data = np.frombuffer(b"hello world", np.uint8)
    ids, offsets = awkward_shim.encode_batch(Curious(), data, np.array([0, 5, 11]))
    assert ids.tolist() == [31373, 995]
    assert offsets.tolist() == [0, 1, 2]
