"""Outside packages add formats, readers and encodings by entry points: a real one, installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tokenmill
from conftest import made_texts

VOCABULARY = str(Path(tokenmill.__file__).parent / "encodings/vocab/r50k_base.tiktoken")
PACKAGE = """
from tokenmill import get_encoding
from tokenmill.formats.nanogpt import NanogptFormat
from tokenmill.corpus.readers.text import TextReader


class UpsideDownFormat(NanogptFormat):
    name = "upsidedown"
    trainers = "nobody"
    files = "train.nib, val.nib"
    pattern = r"(train|val)\\.nib"

    def shard_name(self, name, split, index):
        return f"{split}.nib"

    def find(self, folder, names):
        return [one for one in super().find(folder, [n.replace(".nib", ".bin") for n in names])]


class PoemReader(TextReader):
    extensions = (".poem",)


def small():
    return get_encoding(VOCABULARY, pattern="gpt2", eot="<|endoftext|>")
"""
ENTRY_POINTS = """
[tokenmill.formats]
upsidedown = outsider:UpsideDownFormat
nanogpt = outsider:UpsideDownFormat
broken = outsider:NoSuchThing

[tokenmill.readers]
poem = outsider:PoemReader

[tokenmill.encodings]
small = outsider:small
"""


@pytest.fixture
def outsider(tmp_path):
    """An environment in which a package with our entry points is installed."""
    site = tmp_path / "site"
    (site / "outsider-1.0.dist-info").mkdir(parents=True)
    (site / "outsider-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: outsider\nVersion: 1.0\n"
    )
    (site / "outsider-1.0.dist-info" / "entry_points.txt").write_text(ENTRY_POINTS)
    (site / "outsider.py").write_text(f"VOCABULARY = {VOCABULARY!r}\n{PACKAGE}")
    return {**os.environ, "PYTHONPATH": str(site)}


def run(environment, *arguments) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tokenmill", *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_an_outside_format_reader_and_encoding_work_in_every_process(outsider, tmp_path):
    poems = tmp_path / "poems"
    poems.mkdir()
    for number, text in enumerate(made_texts(20)):
        (poems / f"{number:02d}.poem").write_bytes(text.encode())
    options = ("--val-fraction", 0.2, "--num-proc", 2, "-q")
    out, same = tmp_path / "out", tmp_path / "same"
    found = run(
        outsider,
        *("prepare", poems, "-o", out, "--format", "upsidedown", "--tokenizer", "small"),
        *options,
    )
    assert found.returncode == 0, found.stderr
    glob = poems / "*.poem"
    plain = run(dict(os.environ), "prepare", glob, "-o", same, "--input-format", "text", *options)
    assert plain.returncode == 0, plain.stderr
    for split in ("train", "val"):
        assert (out / f"{split}.nib").read_bytes() == (same / f"{split}.bin").read_bytes()


def test_formats_lists_the_outside_one_and_keeps_ours(outsider):
    broken = run(outsider, "formats")
    assert broken.returncode == 2 and "outsider:NoSuchThing" in broken.stderr
    site = outsider["PYTHONPATH"]
    with open(f"{site}/outsider-1.0.dist-info/entry_points.txt", "w") as file:
        file.write(ENTRY_POINTS.replace("broken = outsider:NoSuchThing", ""))
    rows = {row["format"]: row for row in json.loads(run(outsider, "formats", "--json").stdout)}
    assert rows["upsidedown"]["read by"] == "nobody"
    assert rows["nanogpt"]["read by"] == "nanoGPT"  # a name of ours cannot be taken over


def test_an_unknown_name_lists_the_outside_ones(outsider, tmp_path):
    (tmp_path / "a.txt").write_text("text")
    for option, known in (
        ("--format", "upsidedown"),
        ("--input-format", "poem"),
        ("--tokenizer", "small"),
    ):
        found = run(outsider, "prepare", tmp_path / "a.txt", "-o", tmp_path / "o", option, "nope")
        assert found.returncode == 2 and known in found.stderr, found.stderr
