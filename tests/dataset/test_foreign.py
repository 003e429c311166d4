"""Shards without a manifest: what inspect, verify and convert infer of them is right, or refused.

The datasets are ours with the manifest removed, so that the truth is known; what convert makes of
them is read by tests/shard_oracle.py, token by token.
"""

from __future__ import annotations

import itertools
import json
import shutil
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import oracle
import shard_oracle
import tokenmill
import warm
from corpora import made_texts, write_corpus
from tests.dataset.test_conversions import EOT_ID, SHORT, Variant, require_whole, told_apart
from tokenmill.cli import main
from tokenmill.dataset.convert import Target, convert
from tokenmill.dataset.dataset import open_dataset
from tokenmill.dataset.files import files_at
from tokenmill.dataset.inspect import glance, look_into
from tokenmill.dataset.verify import verify
from tokenmill.encodings import get_encoding
from tokenmill.errors import ConfigError, IntegrityError, TokenmillError
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


@pytest.mark.parametrize("num_ids", [1, 2, 5, 16])
def test_a_small_alphabet_is_read_as_uint16_and_that_is_said(num_ids, tmp_path):
    """DNA, chess or characters, as nanoGPT's recipes write them."""
    ids = np.random.default_rng(num_ids).integers(0, num_ids, 20_000).astype("<u2")
    ids.tofile(tmp_path / "train.bin")
    ids[:2_000].tofile(tmp_path / "val.bin")
    found = tokenmill.open(tmp_path)
    assert np.array_equal(found["train"].tokens(0, 20_000), ids)
    assert "read as uint16" in repr(found)
    loader = tokenmill.Loader(tmp_path, seq_len=8, batch_size=2, shuffle=None, prefetch=0)
    assert next(iter(loader)).tokens[0].tolist() == ids[:8].tolist()
    wide = tokenmill.open(tmp_path, dtype="uint32")
    assert wide["train"].num_tokens == 10_000 and "read as" not in repr(wide)
    if num_ids > 1:  # the zeros between tell
        (tmp_path / "val.bin").unlink()
        ids.astype("<u4").tofile(tmp_path / "train.bin")
        assert tokenmill.open(tmp_path)["train"].dtype == "uint32"


def test_shards_are_in_the_order_of_their_numbers(tmp_path):
    for number in range(12):
        np.save(tmp_path / f"shard_{number}.npy", np.full(10, number, "<u2"))
    found = tokenmill.open(tmp_path)["train"]
    assert found.tokens(0, 120)[::10].tolist() == list(range(12))


@pytest.mark.parametrize(("name", "ending"), [("olmo", "npy"), ("datatrove", "ds")])
def test_shards_of_formats_that_sort_are_in_the_order_of_their_numbers(name, ending, tmp_path):
    names = [f"part_{number}.{ending}" for number in range(12)]
    for one in names:
        np.arange(10, dtype="<u2").tofile(tmp_path / one)
    found = get_format(name).find(files_at(str(tmp_path)), sorted(names))
    assert [shard.name for shard in found] == names


def test_an_order_that_is_not_that_of_sorted_names_is_said(tmp_path):
    for number in (2, 10):
        np.save(tmp_path / f"shard_{number}.npy", np.full(100, number, "<u2"))
    said = "shard_2.npy is before shard_10.npy; a loader that sorts names reads them otherwise"
    assert said in warm.tokenmill("inspect", tmp_path, "--tokenizer", "gpt2").stdout
    told = ("--format", "npy", "--tokenizer", "gpt2", "--eot", "none")
    found = warm.tokenmill("convert", tmp_path, tmp_path.with_name("out"), *told)
    assert said in found.stderr
    (tmp_path / "shard_2.npy").rename(tmp_path / "shard_02.npy")
    assert "order" not in tokenmill.open(tmp_path).looked.dataset.inferred


def test_a_bin_file_that_names_no_split_is_not_taken_for_nanogpt(tmp_path):
    np.zeros(64, "<u2").tofile(tmp_path / "pytorch_model.bin")
    with pytest.raises(ConfigError, match="is not a dataset that can be read") as refused:
        tokenmill.open(tmp_path)
    assert "--format" in str(refused.value.hint)
    assert tokenmill.open(tmp_path, format="nanogpt", dtype="uint16").num_tokens == 64
    np.ones(100, "<u2").tofile(tmp_path / "train.bin")
    assert tokenmill.open(tmp_path, dtype="uint16").num_tokens == 100


# Which split a shard is of


@pytest.mark.parametrize("kind", ["nanogpt", "parquet"])
def test_a_test_split_keeps_its_name_and_is_never_trained_on(kind, tmp_path, capsys):
    for number, split in enumerate(("train", "val", "test"), 1):
        tokens = np.full(2000, number, "<u2")
        tokens[99::100] = 50256
        if kind == "nanogpt":
            tokens.tofile(tmp_path / f"{split}.bin")
        else:
            (tmp_path / "data").mkdir(exist_ok=True)
            table = pa.table({"input_ids": [row.tolist() for row in tokens.reshape(20, 100)]})
            pq.write_table(table, tmp_path / "data" / f"{split}-00000-of-00001.parquet")
    found = tokenmill.open(tmp_path, tokenizer="gpt2")
    assert found.splits == ("train", "val", "test")
    for number, split in enumerate(found.splits, 1):
        assert set(found[split].tokens(0, 2000).tolist()) == {number, 50256}
        loader = tokenmill.Loader(found, seq_len=9, batch_size=3, split=split, epochs=1)
        assert {i for batch in loader for i in batch.tokens.ravel().tolist()} == {number, 50256}
    assert main(["inspect", str(tmp_path), "--tokenizer", "gpt2"]) == 0
    assert "test" in capsys.readouterr().out
    assert main(["verify", str(tmp_path), "--tokenizer", "gpt2", "--format", kind]) == 0
    with pytest.raises(ConfigError, match="a split test, which would become training data"):
        tokenmill.convert(tmp_path, tmp_path / "out", format="npy", tokenizer="gpt2")


# Where documents end


@pytest.mark.parametrize("target", [("parquet", None), ("mds", "document")])
@pytest.mark.parametrize("kind", ["npy", "llmc"])
def test_documents_cut_by_a_split_can_be_read_after_convert(kind, target, tmp_path):
    """The first shard, val, ends inside a document: one piece has no EOT id."""
    source = write_corpus("jsonl", tmp_path, TEXTS)
    tokenmill.prepare(source, tmp_path / "in", format=kind, num_proc=1)
    tokenmill.convert(tmp_path / "in", tmp_path / "out", format=target[0], seq_len=target[1])
    before, found = tokenmill.open(tmp_path / "in"), tokenmill.open(tmp_path / "out")
    for split in ("train", "val"):
        read = [one.tolist() for one in found[split]]
        assert read == [one.tolist() for one in before[split]] and len(found[split]) == len(read)
        assert found[split].text(0) == before[split].text(0)
    rows = tokenmill.pack(tmp_path / "out", seq_len=256)["train"]
    assert rows.num_documents == len(before["train"])
    loader = tokenmill.Loader(found, seq_len=32, batch_size=1, extras="document_ids")
    assert next(iter(loader)).document_ids.shape == (1, 32)


ODD_DOCUMENTS = {
    "inside": [[5, 6, 50256, 8, 50256], [7, 50256], [9, 10, 11, 50256]] * 5,
    "empty": [[5, 6, 50256], [], [9, 10, 11, 50256]] * 5,
}


def write_documents(folder: Path, documents: list[list[int]]) -> Path:
    folder.mkdir()
    table = pa.table({"input_ids": pa.array(documents, pa.list_(pa.int32()))})
    pq.write_table(table, folder / "train-00000.parquet")
    return folder


@pytest.mark.parametrize("target", ["parquet", "mds", "megatron", "olmo", "datatrove"])
@pytest.mark.parametrize("kind", ODD_DOCUMENTS)
def test_documents_with_eot_ids_inside_or_without_tokens_keep_their_bounds(kind, target, tmp_path):
    documents = ODD_DOCUMENTS[kind]
    write_documents(tmp_path / "in", documents)
    options = {"format": target, "tokenizer": "gpt2", "seq_len": "document"}
    if target not in ("mds", "litdata"):
        del options["seq_len"]
    if (kind, target) == ("empty", "mds"):  # MosaicML's writer has none
        with pytest.raises(TokenmillError, match="has no tokens"):
            tokenmill.convert(tmp_path / "in", tmp_path / "out", **options)
        return
    tokenmill.convert(tmp_path / "in", tmp_path / "out", **options)
    found = tokenmill.open(tmp_path / "out")["train"]
    assert [one.tolist() for one in found] == documents and len(found) == len(documents)
    assert found.document(1).tolist() == documents[1]
    assert tokenmill.verify(tmp_path / "out").is_whole


@pytest.mark.parametrize("target", ["nanogpt", "npy", "litdata"])
@pytest.mark.parametrize("kind", ODD_DOCUMENTS)
def test_documents_that_a_format_would_cut_anew_are_refused_unless_asked_for(
    kind, target, tmp_path
):
    write_documents(tmp_path / "in", ODD_DOCUMENTS[kind])
    options = {"format": target, "tokenizer": "gpt2"}
    with pytest.raises(ConfigError, match="by EOT ids alone") as refused:
        tokenmill.convert(tmp_path / "in", tmp_path / "out", **options)
    assert "--drop boundaries" in str(refused.value.hint)
    tokenmill.convert(tmp_path / "in", tmp_path / "out", **options, drop="boundaries")
    tokens = [one for document in ODD_DOCUMENTS[kind] for one in document]
    assert shard_oracle.tokens(tmp_path / "out", target)["train"] == tokens


@pytest.mark.parametrize(("first", "last"), [([7, 5, 50256], [8, 9]), ([50256, 5], [50256, 8])])
def test_documents_cut_at_the_edges_of_a_split_are_not_refused(first, last, tmp_path):
    middle = [first] * 5
    cut = [*middle, last] if first[-1] == 50256 else [[5, 6], *middle, last]
    write_documents(tmp_path / "in", cut)
    tokenmill.convert(tmp_path / "in", tmp_path / "out", format="npy", tokenizer="gpt2")
    found = tokenmill.open(tmp_path / "out")["train"]
    assert [one.tolist() for one in found] == cut


# What MDS samples are


def write_mds(folder: Path, shards: list[list[int]]) -> list[int]:
    """Samples of these lengths, byte by byte, as MosaicML's writer lays them out; all tokens."""
    columns = {
        "column_names": ["tokens"],
        "column_encodings": ["ndarray:uint16"],
        "column_sizes": [None],
        "format": "mds",
    }
    listed, tokens = [], []
    for number, lengths in enumerate(shards):
        samples = []
        for length in lengths:
            own = [(len(tokens) + at) % 50_000 for at in range(length)]
            tokens += own
            data = struct.pack("<BH", 5, length) + np.array(own, "<u2").tobytes()
            samples.append(struct.pack("<I", len(data)) + data)
        config = json.dumps(columns).encode()
        first = 4 + 4 * (len(samples) + 1) + len(config)
        offsets = np.cumsum([first, *map(len, samples)]).astype("<u4")
        head = struct.pack("<I", len(samples)) + offsets.tobytes() + config
        name = f"shard.{number:05d}.mds"
        (folder / name).write_bytes(head + b"".join(samples))
        listed.append({**columns, "raw_data": {"basename": name}, "samples": len(samples)})
    (folder / "index.json").write_text(json.dumps({"shards": listed, "version": 2}))
    return tokens


def test_mds_documents_of_one_length_in_one_shard_stay_documents(tmp_path):
    lengths = [list(range(5, 100)), [30, 30], [7]]
    tokens = write_mds(tmp_path, lengths)
    found = tokenmill.open(tmp_path, tokenizer="gpt2")["train"]
    read = [one.tolist() for one in found]
    assert [len(one) for one in read] == list(itertools.chain(*lengths))
    assert list(itertools.chain(*read)) == tokens


def test_mds_samples_of_one_length_stay_samples(tmp_path):
    tokens = write_mds(tmp_path, [[16] * 80, [16] * 20])
    found = tokenmill.open(tmp_path)
    assert not found.looked.dataset.streams["train"].has_boundaries
    assert found["train"].tokens(0, 1600).tolist() == tokens


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
        ("test.bin", "test"),
        ("data/test-00000.parquet", "test"),
        ("latest-001.npy", "train"),
    ],
)
def test_split_of_names_that_are_not_ours(name, split):
    assert split_of(name) == split
