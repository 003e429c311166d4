"""Shards without a manifest: what inspect, verify and convert infer of them is right, or refused.

The datasets are ours with the manifest removed, so that the truth is known; what convert makes of
them is read by tests/shard_oracle.py, token by token.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import oracle
import shard_oracle
import tokenmill
import warm
from corpora import made_texts, write_corpus
from tests.dataset.test_conversions import EOT_ID, SHORT, Variant, require_whole, told_apart
from tokenmill.dataset.convert import Target, convert
from tokenmill.dataset.dataset import open_dataset
from tokenmill.dataset.inspect import glance, look_into
from tokenmill.dataset.verify import verify
from tokenmill.encodings import get_encoding
from tokenmill.errors import ConfigError, IntegrityError
from tokenmill.formats import NAMES, get_format
from tokenmill.formats.mapped import split_of

HEADERLESS = ("nanogpt", "olmo", "datatrove")
TEXTS = made_texts(30)


def orphaned(folder: Path) -> Path:
    """The same folder without what says how wide tokens are, and the manifest."""
    (folder / "tokenmill.json").unlink()
    for path in folder.rglob("*.metadata"):
        path.unlink()
    return folder


def converted(source: Path, out: Path, name: str, tokenizer: str = "gpt2", **told) -> None:
    encoding = get_encoding(tokenizer).identity
    convert(
        open_dataset(str(source), encoding=encoding, **told),
        Target(out=str(out), format=name, **Variant(name, 0).options),
        encoding,
    )
    require_whole(out)


# How wide a token is


@pytest.mark.parametrize("name", HEADERLESS)
@pytest.mark.parametrize(
    ("tokenizer", "dtype"),
    [("o200k_base", "uint32"), ("gpt2", "uint32"), ("gpt2", "uint16")],
)
def test_headerless_tokens_are_read_as_wide_as_they_are(name, tokenizer, dtype, tmp_path):
    source = write_corpus("jsonl", tmp_path, TEXTS)
    folder = tmp_path / "in"
    options = {"tokenizer": tokenizer, "dtype": dtype, "val": "none", "num_proc": 1}
    tokenmill.prepare(source, folder, format=name, **options)
    tokens = shard_oracle.tokens(folder, name, dtype)
    orphaned(folder)
    converted(folder, tmp_path / "out", "npy", tokenizer)
    assert shard_oracle.tokens(tmp_path / "out", "npy") == tokens
    for named in (tokenizer, None):  # inspect and verify agree, with a tokenizer and without
        looked = look_into(str(folder), tokenizer=named)
        assert looked.dataset.dtype == dtype
        assert "ids are at most" in glance(looked).inferred["dtype"]
        encoding = None if named is None else get_encoding(named).identity
        report = verify(str(folder), format_name=name, encoding=encoding, num_proc=1)
        [detail] = [check.detail for check in report.checks if check.name == "headers"]
        assert report.is_whole and f"{dtype} (inferred" in detail


def test_a_header_is_believed_and_nothing_is_inferred(tmp_path):
    source = write_corpus("jsonl", tmp_path, TEXTS)
    for name in ("npy", "llmc", "litdata", "mds", "parquet", "megatron"):
        tokenmill.prepare(source, tmp_path / name, format=name, val="none", num_proc=1)
        (tmp_path / name / "tokenmill.json").unlink()
        found = open_dataset(str(tmp_path / name))
        assert found.dtype == "uint16" and not found.inferred, name


@pytest.mark.parametrize(
    ("data", "tokenizer", "message"),
    [
        (np.array([50256, 0], "<u2"), "gpt2", "cannot be inferred"),  # or one uint32
        (np.array([1, 2, 3], "<u2"), "o200k_base", "do not fit ids up to"),  # six bytes
        (np.full(64, 199_999, "<u4"), "cl100k_base", "do not fit ids up to"),
    ],
)
def test_a_width_that_cannot_be_told_is_asked_for(data, tokenizer, message, tmp_path):
    data.tofile(tmp_path / "train.bin")
    encoding = get_encoding(tokenizer).identity
    with pytest.raises(ConfigError, match=message) as refused:
        open_dataset(str(tmp_path), encoding=encoding)
    assert "--dtype" in str(refused.value)
    assert open_dataset(str(tmp_path), encoding=encoding, dtype="uint16").dtype == "uint16"


def test_ids_that_the_tokenizer_does_not_have_are_refused_by_convert(tmp_path):
    tokens = np.tile(np.array([5, 6, 50256], "<u2"), 5000)
    tokens[7001] = 50300
    (tmp_path / "in").mkdir()
    tokens.tofile(tmp_path / "in" / "train.bin")
    with pytest.raises(IntegrityError, match="50300 is not one of gpt2"):
        converted(tmp_path / "in", tmp_path / "out", "npy")
    report = verify(
        str(tmp_path / "in"), format_name="nanogpt", encoding=get_encoding("gpt2").identity
    )
    assert [f.message for f in report.failures] == ["token 7,001 is 50300, but ids end at 50256"]


# Where EOT ids stand

CORPORA = {
    "plain": SHORT,
    "one": SHORT[:1],
    "first-empty": ["", *SHORT],
    "last-empty": [*SHORT, ""],
    "empty": ["", SHORT[0], "", "", *SHORT[1:6], ""],
}
# What must not be refused: the formats' own ways, and all of them where nothing is empty.
CERTAIN = {("plain", eot, "fraction") for eot in ("append", "prepend", "both")}
CERTAIN |= {("plain", eot, "first-shard") for eot in ("append", "prepend", "both")}


VALS = ["fraction", "first-shard", "none"]


@pytest.mark.parametrize("corpus", CORPORA)
@pytest.mark.parametrize("val", VALS)
def test_an_inferred_eot_policy_is_the_right_one_or_none(corpus, val, scratch, share):
    source = write_corpus("jsonl", scratch, CORPORA[corpus])
    policies = [
        (name, seq_len, eot)
        for name in NAMES
        for seq_len in (0, 16)
        for eot in ("append", "prepend", "both", "none")
    ]
    offset = [*CORPORA].index(corpus) + VALS.index(val)
    for name, seq_len, eot in policies[offset % share :: share]:
        traits, case = get_format(name).traits, f"{name}-{seq_len}-{eot}"
        if (seq_len and not traits.samples) or (val == "first-shard" and traits.one_file):
            continue
        empty = "drop" if eot == "none" else "keep"
        options = {"eot": eot, "empty": empty, "val": val, **Variant(name, seq_len).options}
        if val == "fraction":
            options["val_fraction"] = 0.3
        if seq_len and corpus == "one":
            continue
        folder = scratch / case
        tokenmill.prepare(source, folder, format=name, num_proc=1, **options)
        tokens = shard_oracle.tokens(folder, name)
        orphaned(folder)
        found = open_dataset(str(folder), encoding=get_encoding("gpt2").identity).eot
        assert found in (eot, None), case
        if (corpus, eot, val) in CERTAIN and not (seq_len and traits.boundaries):
            assert found == eot, case
        if found in (None, "none"):
            continue
        converted(folder, scratch / "out", "megatron")
        expected = {split: told_apart(ids, eot) for split, ids in tokens.items()}
        if not (traits.boundaries and not seq_len):
            assert shard_oracle.documents(scratch / "out", "megatron") == expected, case
        shutil.rmtree(scratch / "out")
        shutil.rmtree(folder)


@pytest.mark.parametrize("name", ["llmc", "npy"])
def test_the_default_layout_of_llmc_and_npy_keeps_every_document_its_own_eot(name, tmp_path):
    """Validation is shard 0 and ends in the middle of a document, where train goes on."""
    source = write_corpus("jsonl", tmp_path, TEXTS)
    tokenmill.prepare(source, tmp_path / "in", format=name, shard_tokens=700, num_proc=1)
    tokens = shard_oracle.tokens(tmp_path / "in", name)
    assert tokens["train"][0] != EOT_ID != tokens["val"][-1]
    orphaned(tmp_path / "in")
    converted(tmp_path / "in", tmp_path / "out", "megatron")
    found = shard_oracle.documents(tmp_path / "out", "megatron")
    assert all(document[0] == EOT_ID for document in found["val"] + found["train"][1:])
    whole = oracle.ids(TEXTS, "prepend")
    assert found["val"][:-1] == whole[: len(found["val"]) - 1]
    assert [found["val"][-1] + found["train"][0], *found["train"][1:]] == whole[
        len(found["val"]) - 1 :
    ]


def test_a_policy_that_cannot_be_told_is_asked_for(tmp_path):
    """A last, empty document: prepend, as it is, or append with an empty one at the beginning?"""
    source = write_corpus("jsonl", tmp_path, [*SHORT, ""])
    tokenmill.prepare(source, tmp_path / "in", format="llmc", shard_tokens=50, num_proc=1)
    tokens = shard_oracle.tokens(tmp_path / "in", "llmc")
    orphaned(tmp_path / "in")
    with pytest.raises(
        ConfigError, match="val begins with EOT id 50256, and train ends"
    ) as refused:
        converted(tmp_path / "in", tmp_path / "out", "megatron")
    assert "--eot" in str(refused.value) and "llmc usually has prepend" in str(refused.value)
    converted(tmp_path / "in", tmp_path / "out", "megatron", eot="prepend")
    expected = {split: told_apart(ids, "prepend") for split, ids in tokens.items()}
    assert shard_oracle.documents(tmp_path / "out", "megatron") == expected
    looked = look_into(str(tmp_path / "in"), tokenizer="gpt2")
    assert looked.dataset.eot is None and not looked.stream("train").knows_documents


def test_command_line_says_what_was_inferred(tmp_path):
    source = write_corpus("jsonl", tmp_path, TEXTS)
    tokenmill.prepare(source, tmp_path / "in", tokenizer="o200k_base", val="none", num_proc=1)
    orphaned(tmp_path / "in")

    told = ("--tokenizer", "o200k_base")
    found = warm.tokenmill("convert", tmp_path / "in", tmp_path / "out", "--format", "npy", *told)
    assert found.returncode == 0, found.stderr
    assert "inferred: tokens are uint32" in found.stderr
    assert "inferred: EOT policy is append" in found.stderr
    found = warm.tokenmill("inspect", tmp_path / "in", *told)
    assert "as uint32 (inferred" in found.stdout and "(inferred: train ends" in found.stdout
    found = warm.tokenmill("verify", tmp_path / "in", "--format", "nanogpt", *told)
    assert "uint32 (inferred" in found.stderr and "inferred: append" in found.stderr


# Which split a shard is of


@pytest.mark.parametrize("stem", ["fw-dev", "val", "eval_set", "train", "valid-train", "dev.v2"])
@pytest.mark.parametrize("name", ["llmc", "olmo", "megatron", "datatrove"])
def test_a_stem_that_is_called_like_a_split_does_not_decide_it(name, stem, tmp_path):
    source = write_corpus("jsonl", tmp_path, TEXTS)
    options = {"name": stem, "val_fraction": 0.3, "shard_tokens": 700, "num_proc": 1}
    tokenmill.prepare(source, tmp_path / "in", format=name, **options)
    tokens = shard_oracle.tokens(tmp_path / "in", name)
    orphaned(tmp_path / "in")
    converted(tmp_path / "in", tmp_path / "out", "nanogpt", eot=get_format(name).defaults.eot)
    assert shard_oracle.tokens(tmp_path / "out", "nanogpt") == tokens


@pytest.mark.parametrize("stem", ["fw-val", "evaluation", "train", "untrained"])
def test_npy_refuses_a_stem_that_its_loader_takes_for_a_split(stem, tmp_path):
    """build-nanogpt reads every file whose name holds `train`, or `val`."""
    source = write_corpus("jsonl", tmp_path, TEXTS)
    with pytest.raises(ConfigError, match="build-nanogpt") as refused:
        tokenmill.prepare(source, tmp_path / "out", format="npy", name=stem, num_proc=1)
    assert "--name" in str(refused.value)


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("data/train-00000.parquet", "train"),
        ("val/part-00000.npy", "val"),
        ("validation-00001.npy", "val"),
        ("fw-dev/shard-train-0001.npy", "train"),
        ("train/chunk-dev-1.bin", "train"),
        ("my-dev-corpus_text_document.bin", "val"),
        ("devices-001.npy", "train"),
        ("train_dev.bin", "val"),
    ],
)
def test_split_of_names_that_are_not_ours(name, split):
    assert split_of(name) == split
