"""Convert: every format into every other, the same tokens; refusals, resumes, other people's."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import struct
from pathlib import Path

import numpy as np
import pytest

import tokenmill
import warm
from corpora import made_texts, write_corpus
from tokenmill.dataset.convert import Target, convert
from tokenmill.dataset.dataset import open_dataset
from tokenmill.encodings import get_encoding
from tokenmill.errors import ConfigError, ConflictError, IntegrityError
from tokenmill.formats import NAMES, get_format
from tokenmill.runners import Stopped
from tokenmill.storage import disk
from tokenmill.storage.store import store_of

TEXTS = [*made_texts(150), "", "one", "\N{CJK UNIFIED IDEOGRAPH-6771}" * 40]


def options_of(name: str) -> dict[str, object]:
    """Small shards, and nothing left out."""
    traits = get_format(name).traits
    shards = {} if traits.one_file else {"shard_tokens": 3000}
    return {**shards, **({"seq_len": 0} if traits.samples else {})}


@pytest.fixture(scope="module")
def nano(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nano")
    source = write_corpus("jsonl", folder, TEXTS)
    tokenmill.prepare(source, folder / "out", val_fraction=0.2, num_proc=1)
    return folder / "out"


def files_of(folder) -> dict[str, bytes]:
    paths = [path for path in Path(folder).rglob("*") if path.is_file()]
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in paths
        if path.name != "tokenmill.json"
    }


def documents_of(folder) -> dict[str, list[list[int]]]:
    found = {}
    for split, stream in open_dataset(str(folder)).streams.items():
        found[split] = []
        for batch in stream.documents(max_tokens=500):
            ends = np.cumsum(batch.lengths)
            found[split] += [
                batch.tokens[end - length : end].tolist()
                for end, length in zip(ends, batch.lengths, strict=True)
            ]
    return found


def converted(source, out, format_name, /, **options):
    target = Target(out=str(out), format=format_name, **{**options_of(format_name), **options})
    return convert(open_dataset(str(source)), target)


def test_around_all_formats_and_back_gives_the_first_bytes(nano, tmp_path):
    here, expected = nano, documents_of(nano)
    for number, name in enumerate([*NAMES, "nanogpt"]):
        converted(here, tmp_path / str(number), name)
        here = tmp_path / str(number)
        assert documents_of(here) == expected, name
    assert files_of(here) == files_of(nano)


@pytest.mark.parametrize("name", NAMES)
def test_convert_equals_prepare_in_that_format(name, nano, tmp_path):
    source = write_corpus("jsonl", tmp_path, TEXTS)
    common = {"eot": "append", "empty": "drop", "val_fraction": 0.2}
    tokenmill.prepare(
        source, tmp_path / "prepared", format=name, num_proc=1, **common, **options_of(name)
    )
    converted(nano, tmp_path / "converted", name)
    assert files_of(tmp_path / "converted") == files_of(tmp_path / "prepared")


@pytest.mark.parametrize("name", NAMES)
def test_convert_stopped_anywhere_continues_to_the_same_bytes(name, nano, tmp_path, monkeypatch):
    monkeypatch.setattr("tokenmill.dataset.convert_source.READ_TOKENS", 700)
    monkeypatch.setattr("tokenmill.storage.hashing.PIECE_BYTES", 4000)
    monkeypatch.setattr("tokenmill.assemble.writing.MARK_TOKENS", 1000)
    converted(nano, tmp_path / "whole", name)
    target = Target(out=str(tmp_path / "out"), format=name, **options_of(name))
    for stop_after in itertools.count(1):
        calls = itertools.count(1)
        try:
            convert(open_dataset(str(nano)), target, None, lambda done: next(calls) == stop_after)  # noqa: B023
            break
        except Stopped:
            assert not (tmp_path / "out" / "tokenmill.json").exists()
            with pytest.raises(IntegrityError, match="not finished"):
                open_dataset(target.out)
    assert stop_after > 3
    assert files_of(tmp_path / "out") == files_of(tmp_path / "whole")
    found, expected = (tmp_path / name / "tokenmill.json" for name in ("out", "whole"))
    assert found.read_bytes() == expected.read_bytes()
    again = convert(open_dataset(str(nano)), target)  # finished: nothing to do
    assert again.converted_from["format"] == "nanogpt"


class Crash(BaseException):
    pass


@pytest.mark.parametrize("name", ["nanogpt", "megatron", "mds"])
def test_convert_crashed_at_any_storage_operation_continues(name, nano, tmp_path, monkeypatch):
    monkeypatch.setattr("tokenmill.dataset.convert_source.READ_TOKENS", 2000)
    monkeypatch.setattr("tokenmill.storage.hashing.PIECE_BYTES", 8000)
    converted(nano, tmp_path / "whole", name)
    target = Target(out=str(tmp_path / "out"), format=name, **options_of(name))
    rename, remove = disk.rename, disk.remove
    for crash_at in itertools.count(1):
        count = itertools.count(1)

        def counted(operation):
            def crashing(*arguments, **options):
                if next(count) == crash_at:  # noqa: B023
                    raise Crash
                operation(*arguments, **options)

            return crashing

        monkeypatch.setattr(disk, "rename", counted(rename))
        monkeypatch.setattr(disk, "remove", counted(remove))
        try:
            convert(open_dataset(str(nano)), target)
            break
        except Crash:
            pass
        monkeypatch.setattr(disk, "rename", rename)
        monkeypatch.setattr(disk, "remove", remove)
        convert(open_dataset(str(nano)), target)
        assert files_of(tmp_path / "out") == files_of(tmp_path / "whole"), crash_at
        store_of(target.out).remove_folder(target.out)
    assert crash_at > 5


def test_first_shard_validation_keeps_its_cut(tmp_path):
    source = write_corpus("jsonl", tmp_path, TEXTS)
    tokenmill.prepare(source, tmp_path / "npy", format="npy", shard_tokens=2500, num_proc=1)
    stream = open_dataset(str(tmp_path / "npy"))
    expected = {s: t.tokens(0, t.num_tokens).tolist() for s, t in stream.streams.items()}
    for name in NAMES:
        converted(tmp_path / "npy", tmp_path / f"to-{name}", name)
        found = open_dataset(str(tmp_path / f"to-{name}")).streams
        assert {s: t.tokens(0, t.num_tokens).tolist() for s, t in found.items()} == expected


@pytest.mark.parametrize("eot", ["append", "prepend", "both"])
def test_every_eot_policy_survives(eot, tmp_path):
    source = write_corpus("jsonl", tmp_path, TEXTS)
    tokenmill.prepare(source, tmp_path / "a", eot=eot, val_fraction=0.3, num_proc=1)
    converted(tmp_path / "a", tmp_path / "b", "megatron")
    converted(tmp_path / "b", tmp_path / "c", "nanogpt")
    assert files_of(tmp_path / "c") == files_of(tmp_path / "a")
    assert documents_of(tmp_path / "b") == documents_of(tmp_path / "a")


# What the target cannot hold


def test_boundaries_that_would_be_lost_are_refused_or_dropped_if_asked(tmp_path):
    source = write_corpus("jsonl", tmp_path, TEXTS)
    options = {"eot": "none", "empty": "drop", "num_proc": 1}
    tokenmill.prepare(source, tmp_path / "meg", format="megatron", **options)
    with pytest.raises(ConfigError, match="cannot tell where documents end"):
        converted(tmp_path / "meg", tmp_path / "out", "nanogpt")
    converted(tmp_path / "meg", tmp_path / "out", "nanogpt", drop=("boundaries",))
    with pytest.raises(ConfigError, match="does not say where they end"):
        converted(tmp_path / "out", tmp_path / "back", "megatron")
    converted(tmp_path / "meg", tmp_path / "olmo", "olmo")
    assert documents_of(tmp_path / "olmo") == documents_of(tmp_path / "meg")


def test_a_tail_that_fills_no_sample_is_refused_or_dropped_and_counted(nano, tmp_path):
    whole = {s: t.num_tokens for s, t in open_dataset(str(nano)).streams.items()}
    with pytest.raises(ConfigError, match="do not fill a sample of 64"):
        converted(nano, tmp_path / "out", "mds", seq_len=64)
    manifest = converted(nano, tmp_path / "out", "mds", seq_len=64, drop=("tail",))
    for split, totals in manifest.splits.items():
        assert totals.num_tail_tokens == whole[split] % 64
        assert totals.num_tokens + totals.num_tail_tokens == whole[split]
    again = converted(tmp_path / "out", tmp_path / "nano", "nanogpt")
    assert again.splits["train"].num_tail_tokens == whole["train"] % 64


def test_a_narrow_dtype_for_a_wide_vocabulary_is_refused(tmp_path):
    source = write_corpus("jsonl", tmp_path, TEXTS)
    tokenmill.prepare(source, tmp_path / "a", tokenizer="o200k_base", num_proc=1)
    with pytest.raises(ConfigError, match="uint16 holds at most"):
        converted(tmp_path / "a", tmp_path / "b", "npy", dtype="uint16")


def test_options_that_do_not_apply_are_refused(nano, tmp_path):
    for name, options in (
        ("nanogpt", {"shard_tokens": 5}),
        ("nanogpt", {"name": "x"}),
        ("npy", {"seq_len": 8}),
    ):
        with pytest.raises(ConfigError, match="does not apply"):
            converted(nano, tmp_path / "out", name, **options)
    with pytest.raises(ConfigError, match="output folder is the input folder"):
        converted(nano, nano, "npy")


# Damage and conflicts


def test_a_damaged_source_is_not_passed_on(nano, tmp_path):
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in os.listdir(nano):
        (copy / name).write_bytes((nano / name).read_bytes())
    data = bytearray((copy / "train.bin").read_bytes())
    data[1001] ^= 1
    (copy / "train.bin").write_bytes(data)
    with pytest.raises(IntegrityError, match=r"train\.bin is not the file"):
        converted(copy, tmp_path / "out", "npy")
    assert not (tmp_path / "out" / "tokenmill.json").exists()


def test_another_conversion_in_the_folder_is_a_conflict_until_overwritten(nano, tmp_path):
    converted(nano, tmp_path / "out", "npy")
    with pytest.raises(ConflictError, match="made differently"):
        converted(nano, tmp_path / "out", "npy", shard_tokens=4000)
    converted(nano, tmp_path / "out", "npy", shard_tokens=4000, overwrite=True)
    assert max(len(np.load(path)) for path in (tmp_path / "out").glob("*.npy")) == 4000


# Other people's folders


def test_strangers_shards_are_converted_if_the_tokenizer_is_named(tmp_path):
    encoding = get_encoding("gpt2")
    documents = [[50256, *encoding.encode_ordinary(text)] for text in TEXTS if text]
    tokens = [token for document in documents for token in document]
    folder = tmp_path / "llmc"
    folder.mkdir()
    header = struct.pack("<3i", 20240520, 1, len(tokens)) + bytes(1012)
    (folder / "fineweb_train_000001.bin").write_bytes(header + np.array(tokens, "<u2").tobytes())
    source = open_dataset(str(folder), encoding=encoding.identity)
    with pytest.raises(ConfigError, match="does not state its tokenizer"):
        convert(source, Target(out=str(tmp_path / "x"), format="megatron"))
    convert(source, Target(out=str(tmp_path / "meg"), format="megatron"), encoding.identity)
    assert documents_of(tmp_path / "meg") == {"train": documents}


def replace_tokens(path: Path) -> None:
    """Other tokens, the same size, the same ends of documents."""
    tokens = np.memmap(path, "<u2", "r+", offset=1024)
    tokens[tokens != 50256] += 1


@pytest.fixture
def strangers(tmp_path) -> Path:
    """A folder of llmc shards that no manifest describes."""
    folder = tmp_path / "llmc"
    tokenmill.prepare(
        write_corpus("jsonl", tmp_path, TEXTS), str(folder), format="llmc", num_proc=1
    )
    (folder / "tokenmill.json").unlink()
    return folder


def test_convert_when_strangers_tokens_were_replaced_then_conflict(strangers, tmp_path):
    encoding, target = get_encoding("gpt2").identity, Target(out=str(tmp_path / "x"), format="npy")

    def again(overwrite: bool = False) -> tokenmill.Manifest:
        source = open_dataset(str(strangers), encoding=encoding)
        return convert(source, dataclasses.replace(target, overwrite=overwrite), encoding)

    first = again()
    assert again() == first
    replace_tokens(next(strangers.glob("*train*")))
    with pytest.raises(ConflictError, match="made from a dataset other than"):
        again()
    assert again(overwrite=True).files != first.files


def test_convert_when_strangers_tokens_were_replaced_after_a_stop_then_conflict(
    strangers, tmp_path
):
    encoding, target = get_encoding("gpt2").identity, Target(out=str(tmp_path / "x"), format="npy")

    def again(stop: bool) -> tokenmill.Manifest:
        source = open_dataset(str(strangers), encoding=encoding)
        return convert(source, target, encoding, watch=lambda num_tokens: stop)

    with pytest.raises(Stopped):
        again(stop=True)
    replace_tokens(next(strangers.glob("*train*")))
    with pytest.raises(ConflictError, match="was started differently"):
        again(stop=False)


def test_convert_when_the_source_is_replaced_meanwhile_then_nothing_of_both_is_written(tmp_path):
    for name in ("a", "b"):
        rows = [json.dumps({"text": f"{name} {n} " * 20}) for n in range(200)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows))
    options = {"format": "npy", "shard_tokens": 2000, "num_proc": 1, "val": "none"}
    tokenmill.prepare(tmp_path / "a.jsonl", tmp_path / "out", **options)

    def replace(num_tokens: int) -> bool:
        tokenmill.prepare(tmp_path / "b.jsonl", tmp_path / "out", overwrite=True, **options)
        return False

    target = Target(out=str(tmp_path / "new"), format="llmc", shard_tokens=2000, num_proc=1)
    with pytest.raises(IntegrityError, match="was changed while it was read"):
        convert(open_dataset(str(tmp_path / "out")), target, watch=replace)
    assert not (tmp_path / "new" / "tokenmill.json").exists()


def test_prepare_when_the_dataset_there_was_converted_then_conflict(tmp_path):
    """A conversion may lack what its source's format cannot hold."""
    source = write_corpus("jsonl", tmp_path, TEXTS)
    options = {"val": "none", "seq_len": 3000, "num_proc": 1}
    tokenmill.prepare(source, tmp_path / "mds", format="mds", **options)
    tokenmill.convert(tmp_path / "mds", tmp_path / "out", format="megatron")
    with pytest.raises(ConflictError, match="converted from another dataset"):
        tokenmill.prepare(source, tmp_path / "out", format="megatron", val="none", num_proc=1)


def test_command_line_converts_and_says_so(nano, tmp_path):
    def run(*arguments):
        return warm.tokenmill("convert", *arguments)

    found = run(nano, tmp_path / "mds", "--format", "mds", "--seq-len", 32, "--drop", "tail")
    assert found.returncode == 0, found.stderr
    assert "nanogpt -> mds" in found.stderr and "too few to fill a sample" in found.stderr
    found = run(nano, tmp_path / "par", "--format", "parquet", "--json")
    assert json.loads(found.stdout)["converted_from"]["format"] == "nanogpt"
    found = run(tmp_path / "nothing", tmp_path / "out", "--format", "npy")
    assert found.returncode == 2 and "is not a folder" in found.stderr
    found = run(nano, tmp_path / "out", "--format", "nope")
    assert found.returncode == 2 and "megatron" in found.stderr
