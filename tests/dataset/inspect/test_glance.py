"""`tokenmill inspect`: the glance is the truth, for every format."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import oracle
from inspected import documents_of, inspect, number_of, prepared
from tokenmill.dataset.inspect import (
    glance,
    look_into,
)
from tokenmill.formats import NAMES, get_format


@pytest.mark.parametrize("name", NAMES)
def test_glance_equals_the_truth_for_every_format(name, tmp_path, small):
    out = prepared(tmp_path, small, format=name, val="fraction", val_fraction=0.25)
    found = json.loads(inspect(out, "--json").stdout)
    looked = look_into(out)
    eot = get_format(name).defaults.eot
    texts = {split: documents_of(looked, split) for split in ("train", "val")}
    assert sorted(texts["train"] + texts["val"], key=number_of) == small
    assert [split["split"] for split in found["splits"]] == ["train", "val"]
    for split in found["splits"]:
        true = [len(ids) for ids in oracle.ids(texts[split["split"]], eot)]
        assert split["num_tokens"] == sum(true) and split["num_documents"] == len(true)
        measured = split["lengths"]
        assert measured["is_exact"] and measured["num_documents"] == len(true)
        assert measured["mean"] == pytest.approx(np.mean(true)) and measured["max"] == max(true)
        for percent in (1, 10, 50, 90, 99):
            exact = np.percentile(true, percent, method="inverted_cdf")
            assert measured["percentiles"][f"p{percent}"] == exact
    on_disk = sum(file.stat().st_size for file in Path(out).rglob("*.*") if file.is_file())
    assert found["num_bytes"] == on_disk - (Path(out) / "tokenmill.json").stat().st_size
    text_bytes = sum(len(text.encode()) for text in small)
    assert found["text_bytes"] == text_bytes and found["num_documents"] == len(small)
    assert found["bytes_per_token"] == pytest.approx(text_bytes / found["num_tokens"])
    assert found["tokens_per_byte"] == pytest.approx(found["num_tokens"] / text_bytes)
    assert (found["format"], found["eot"], found["eot_id"]) == (name, eot, 50256)
    assert found["tokenizer"]["name"] == "gpt2" and found["tokenizer"]["n_vocab"] == 50257
    assert found["has_manifest"] and found["is_shuffled"] is False


def test_glance_for_a_person_is_a_screenful(nano):
    done = inspect(nano)
    assert done.returncode == 0 and done.stderr == ""
    assert re.search(
        r"format nanogpt \(nanoGPT\)\n  tokenizer  gpt2, 50,257 ids, sha256 \w{12}\n", done.stdout
    )
    assert re.search(r"\ntrain +[\d,]+ +\d+ +1 ", done.stdout)
    assert re.search(r"\nval +[\d.]+( +[\d,]+){6} +all \d+\n", done.stdout)
    text = r"text +\S+ kB, \d\.\d\d bytes per token, 0\.\d{3} tokens per byte"
    assert re.search(text, done.stdout)


@pytest.mark.parametrize("name", [n for n in NAMES if n != "litdata"])
def test_glance_without_a_manifest_says_what_the_files_tell(name, tmp_path, small):
    out = prepared(tmp_path, small, format=name, val="none")
    true = glance(look_into(out))
    (Path(out) / "tokenmill.json").unlink()
    found = glance(look_into(out, tokenizer="gpt2"))
    assert (found.format, found.has_manifest, found.eot) == (name, False, true.eot)
    assert found.splits == true.splits and found.num_bytes <= true.num_bytes
    assert found.bytes_per_token == pytest.approx(true.bytes_per_token)
    unnamed = glance(look_into(out))
    assert unnamed.tokenizer is None and unnamed.num_tokens == true.num_tokens
    assert (unnamed.splits[0].num_documents is None) == (not get_format(name).traits.boundaries)


def test_first_shard_val_counts_a_cut_document_in_both_splits(tmp_path, small):
    out = prepared(tmp_path, small, format="npy", shard_tokens=1000)
    found = glance(look_into(out))
    assert found.num_documents == len(small)
    assert sum(split.num_documents for split in found.splits) == len(small) + 1


def test_folders_with_shards_of_one_split_when_nothing_says_they_are_one_are_noted(tmp_path, small):
    for name in ("one", "my two"):
        out = prepared(tmp_path / name, small, format="npy")
        (tmp_path / "all").mkdir(exist_ok=True)
        Path(out).rename(tmp_path / "all" / name)
        (tmp_path / "all" / name / "tokenmill.json").unlink()
    shown = inspect(str(tmp_path / "all")).stdout
    note = "note: train has shards in 2 folders: my two, one; if they are different datasets, "
    assert f"  {note}look at each alone\n" in shown
    assert shown.endswith(f"    tokenmill inspect '{tmp_path}/all/my two'\n")
    assert "note:" not in inspect(str(tmp_path / "all" / "one")).stdout


def test_folders_of_splits_are_one_dataset_without_a_note(tmp_path, small):
    out = prepared(tmp_path, small, format="litdata", val="fraction", val_fraction=0.25)
    (Path(out) / "tokenmill.json").unlink()
    assert "has shards in" not in inspect(out).stdout
