"""Outside packages add formats, readers and encodings by entry points: a real one, installed."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

import tokenmill
import warm
from corpora import made_texts

VOCABULARY = str(Path(tokenmill.__file__).parent / "encodings/vocab/r50k_base.tiktoken")
PACKAGE = """
import numpy as np

from tokenmill import get_encoding
from tokenmill.errors import IntegrityError
from tokenmill.formats import FoundShard
from tokenmill.formats.mapped import MappedShard
from tokenmill.formats.nanogpt import NanogptFormat
from tokenmill.corpus.readers.jsonl import JsonlReader
from tokenmill.corpus.readers.text import TextReader


class UpsideDownFormat(NanogptFormat):
    name = "upsidedown"
    trainers = "nobody"
    files = "train.nib, val.nib"
    pattern = r"(train|val)\\.nib"

    def shard_name(self, name, split, index):
        return f"{split}.nib"

    def find(self, files, names):
        return [FoundShard(name, name[:-4]) for name in names if name in ("train.nib", "val.nib")]

    def open(self, files, name, dtype):
        dtype = np.dtype(dtype or "uint16")
        with files.open(name) as file:
            data = file.read()
        if len(data) % dtype.itemsize:
            raise IntegrityError(f"{files.path_of(name)} does not hold whole tokens")
        return MappedShard(np.frombuffer(data, dtype))


class PoemReader(TextReader):
    extensions = (".poem",)


class VerseReader(JsonlReader):
    extensions = (".verse",)


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
verse = outsider:VerseReader

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
    return warm.tokenmill(*arguments, env=environment)


def repair(environment) -> None:
    """Take the entry point away that does not load."""
    site = environment["PYTHONPATH"]
    with open(f"{site}/outsider-1.0.dist-info/entry_points.txt", "w") as file:
        file.write(ENTRY_POINTS.replace("broken = outsider:NoSuchThing", ""))


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


def test_an_outside_reader_takes_every_option(outsider, tmp_path):
    rows = [{"text": text, "n": n} for n, text in enumerate(made_texts(40))]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    options = ("--where", "n > 3", "--keep", "n", "--template", "{n}: {text}")
    made = {}
    for name, environment in (("a.verse", outsider), ("a.jsonl", dict(os.environ))):
        (tmp_path / name).write_text(lines)
        out = tmp_path / f"out-{name}"
        where = (tmp_path / name, "-o", out, "--no-val", "--num-proc", 1, "-q")
        done = run(environment, "prepare", *where, *options, "--limit-docs", 20)
        assert done.returncode == 0, done.stderr
        made[name] = (out / "train.bin").read_bytes()
    assert made["a.verse"] == made["a.jsonl"]
    sample = ("--sample", 0.5, "--no-val", "--num-proc", 1, "-q")
    done = run(outsider, "prepare", tmp_path / "a.verse", "-o", tmp_path / "sample", *sample)
    assert done.returncode == 0, done.stderr


def test_an_outside_format_is_read_from_object_storage_as_from_a_folder(
    outsider, tmp_path, s3, bucket
):
    for number, text in enumerate(made_texts(20)):
        (tmp_path / f"{number:02d}.poem").write_bytes(text.encode())
    out, url = tmp_path / "out", f"s3://{bucket}/data"
    environment = {**outsider, **s3.environment}
    repair(environment)
    done = run(
        environment,
        *("prepare", tmp_path / "*.poem", "-o", out, "--format", "upsidedown"),
        *("--val-fraction", 0.2, "--num-proc", 1, "-q"),
    )
    assert done.returncode == 0, done.stderr
    for path in out.iterdir():
        s3.client().upload_file(str(path), bucket, f"data/{path.name}")
    for manifest in ("with", "without"):
        for command in (
            ("verify", "--json", *(("--format", "upsidedown") if manifest == "without" else ())),
            ("inspect", "--json", "--tokenizer", "gpt2"),
            ("inspect", "--json", "--token-offset", 100, "--tokenizer", "gpt2"),
        ):
            local, remote = (
                run(environment, command[0], place, *command[1:]) for place in (out, url)
            )
            assert local.returncode == remote.returncode == 0, (local.stderr, remote.stderr)
            plain, expected = json.loads(remote.stdout), json.loads(local.stdout)
            assert plain.pop("folder") == url and expected.pop("folder") == str(out)
            plain.pop("seconds", None), expected.pop("seconds", None)
            assert plain == expected, manifest
        for place, copy in ((out, f"{manifest}-local"), (url, f"{manifest}-remote")):
            options = ("--format", "nanogpt", "--tokenizer", "gpt2", "--eot", "append", "-q")
            done = run(environment, "convert", place, tmp_path / copy, *options)
            assert done.returncode == 0, done.stderr
            assert (tmp_path / copy / "train.bin").read_bytes() == (out / "train.nib").read_bytes()
        (out / "tokenmill.json").unlink(missing_ok=True)
        s3.client().delete_object(Bucket=bucket, Key="data/tokenmill.json")


def test_formats_lists_the_outside_one_and_keeps_ours(outsider):
    broken = run(outsider, "formats")
    assert broken.returncode == 2 and "outsider:NoSuchThing" in broken.stderr
    repair(outsider)
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
