"""Verify: silent about what is whole, and never about what is not.

Damage is done to the bytes on disk, past our own code; where a manifest has to be forged to fit the
damage, the test forges it.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tokenmill
import warm
from corpora import SEPARATOR, made_texts, write_corpus
from tokenmill.dataset.convert import Target, convert
from tokenmill.dataset.dataset import open_dataset
from tokenmill.dataset.made_with import NamedTokenizer
from tokenmill.dataset.manifest import Manifest
from tokenmill.dataset.verify import Report, verify
from tokenmill.encode import part
from tokenmill.encodings import get_encoding
from tokenmill.errors import ConfigError, IntegrityError
from tokenmill.formats import NAMES, get_format

SLICE = 4000  # bytes, so that a small corpus has many slices
TEXTS = [*made_texts(120, seed=3), "", "one", "\N{CJK UNIFIED IDEOGRAPH-6771}" * 40]
EOT = 50256


def small(name: str) -> dict[str, object]:
    """Options for shards of which a small corpus has many."""
    return {} if get_format(name).traits.one_file else {"shard_tokens": 3000}


def variants() -> list[tuple[str, str, dict[str, object]]]:
    found = []
    for name in NAMES:
        options = {"format": name, **small(name)}
        found.append((name, "default", options))
        found.append((name, "shuffled", {**options, "shuffle": True, "val_fraction": 0.2}))
        found.append((name, "uint32", {**options, "tokenizer": "cl100k_base"}))
        for eot in ("append", "prepend", "both", "none"):
            more = {"empty": "drop"} if eot == "none" else {}
            found.append((name, eot, {**options, "eot": eot, **more}))
        if get_format(name).traits.samples:
            found.append((name, "samples", {**options, "seq_len": 64}))
            found.append((name, "samples-both", {**options, "seq_len": 64, "eot": "both"}))
            found.append((name, "documents", {**options, "seq_len": 0, "empty": "drop"}))
        if not get_format(name).traits.one_file:
            for eot in ("append", "prepend", "both"):
                cut = {**options, "val": "first-shard", "eot": eot}
                found.append((name, f"first-shard-{eot}", cut))
    return found


def problems(report: Report) -> list[str]:
    return [f"{failure.place}: {failure.message}" for failure in report.failures]


def status(report: Report) -> dict[str, str]:
    return {check.name: check.status for check in report.checks}


def detail(report: Report) -> dict[str, str]:
    return {check.name: check.detail for check in report.checks}


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> str:
    return write_corpus("parquet", tmp_path_factory.mktemp("corpus"), TEXTS)


def prepared(source: str, out: Path, **options: object) -> Path:
    tokenmill.prepare(source, out, num_proc=1, **{"slice_bytes": SLICE, **options})
    return out


# What is whole


@pytest.mark.parametrize(
    "options", [v[2] for v in variants()], ids=[f"{v[0]}-{v[1]}" for v in variants()]
)
def test_untouched_folder_passes_and_equals_its_sources(options, tmp_path, source):
    out = prepared(source, tmp_path / "out", **options)
    for asked in ({}, {"sample": 25}, {"full": True}):
        report = verify(out, num_proc=2, **asked)
        assert problems(report) == [] and report.is_whole
        assert all(found != "failed" for found in status(report).values())
    assert report.num_tokens == Manifest.load(str(out)).num_tokens
    can_tell = options.get("eot") != "none" or not options.get("shuffle")
    assert status(report)["sources"] == ("passed" if can_tell else "unable")
    assert status(report)["inputs"] == "passed"


@pytest.mark.parametrize("kind", ["arrow", "jsonl", "jsonl.gz", "txt", "txt.zst"])
def test_any_input_kind_is_found_and_encoded_again(kind, tmp_path):
    path = write_corpus(kind, tmp_path, [*made_texts(60), "last"])
    options = {"separator": SEPARATOR} if kind.startswith("txt") else {}
    out = prepared(path, tmp_path / "out", val_fraction=0.2, **options)
    report = verify(out, full=True)
    assert problems(report) == [] and "61 documents" in detail(report)["sources"]


def test_rows_that_were_left_out_are_left_out_again(tmp_path):
    lines = [json.dumps({"text": text}) for text in made_texts(40)]
    lines[7], lines[20] = '{"text": broken', '{"text": null}'
    (tmp_path / "c.jsonl").write_text("\n".join(lines) + "\n")
    out = prepared(str(tmp_path / "c.jsonl"), tmp_path / "out", max_bad_fraction=1, shuffle=True)
    report = verify(out, full=True)
    assert problems(report) == [] and "38 documents" in detail(report)["sources"]
    assert "38 written + 0 empty + 1 null + 1 quarantined" in detail(report)["conservation"]


def test_rows_that_no_engine_could_encode_are_left_out_again(tmp_path, monkeypatch):
    from tokenmill.encodings import TokenArray
    from tokenmill.encodings.encoding import Encoding

    encode = Encoding.encode_array

    def failing(self, texts, dtype="uint32"):
        tokens = encode(self, texts, dtype)
        bad = [i for i, text in enumerate(texts.to_pylist()) if text.endswith("#5")]
        return TokenArray(tokens.ids, tokens.offsets, dict.fromkeys(bad, "too hard"))

    monkeypatch.setattr(Encoding, "encode_array", failing)
    path = write_corpus("jsonl", tmp_path, made_texts(30))
    out = prepared(path, tmp_path / "out", max_bad_fraction=1, val="none")
    assert Manifest.load(str(out)).counts.num_quarantined == 1
    for asked in ({"full": True}, {"sample": 29}):
        report = verify(out, **asked)
        assert problems(report) == [] and "29 documents" in detail(report)["sources"]


def test_part_of_several_runs_in_a_shuffle_is_no_false_alarm(tmp_path, source, monkeypatch):
    monkeypatch.setattr(part, "CHUNK_BYTES", 500)
    monkeypatch.setattr("tokenmill.encode.mill.HOLD_BYTES", 100)
    monkeypatch.setattr("tokenmill.encode.mill.HOLD_BATCHES", 1)
    out = prepared(source, tmp_path / "out", shuffle=True, val_fraction=0.3)
    for asked in ({"full": True}, {"sample": 50}):
        assert problems(verify(out, **asked)) == []


@pytest.mark.parametrize(
    "first", [{"format": "llmc", "shard_tokens": 3000}, {"val_fraction": 0.2, "shuffle": True}]
)
@pytest.mark.parametrize("name", NAMES)
def test_converted_folder_passes_and_equals_its_sources(name, first, tmp_path, source):
    made = prepared(source, tmp_path / "made", **first)
    seq_len = 0 if get_format(name).traits.samples else None
    target = Target(out=str(tmp_path / "out"), format=name, seq_len=seq_len, **small(name))
    convert(open_dataset(str(made)), target)
    for asked in ({"full": True}, {"sample": 50}):
        report = verify(tmp_path / "out", **asked)
        assert problems(report) == [] and status(report)["sources"] == "passed"


def test_converted_shards_of_someone_else_pass_without_sources(tmp_path):
    (tmp_path / "in").mkdir()
    np.array([5, 6, EOT, 7, EOT], "<u2").tofile(tmp_path / "in" / "train.bin")
    encoding = get_encoding("gpt2").identity
    convert(
        open_dataset(str(tmp_path / "in"), encoding=encoding),
        Target(out=str(tmp_path / "out"), format="megatron"),
        encoding,
    )
    report = verify(tmp_path / "out")
    assert problems(report) == [] and status(report)["sources"] == "skipped"


# What is not


class Folder:
    """A finished folder that can be damaged and mended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.names = sorted(str(p.relative_to(path)) for p in path.rglob("*") if p.is_file())
        self.data = {name: (path / name).read_bytes() for name in self.names}

    def put(self, name: str, data: bytes | None) -> None:
        if data is None:
            (self.path / name).unlink()
        else:
            (self.path / name).write_bytes(data)

    def mend(self, names: list[str]) -> None:
        for name in names:
            self.put(name, self.data[name])


def flipped(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def blocks_swapped(data: bytes, rng: random.Random) -> bytes:
    size = rng.choice([1, 2, 4, 16, 64])
    if len(data) < 2 * size:
        return data
    a, b = sorted(rng.sample(range(len(data) // size), 2))
    a, b = a * size, b * size
    return (
        data[:a] + data[b : b + size] + data[a + size : b] + data[a : a + size] + data[b + size :]
    )


def mutation(folder: Folder, other: Folder, rng: random.Random) -> dict[str, bytes | None]:
    """Some damage to the folder's files: by name, the bytes they have afterwards."""
    name = rng.choice(folder.names)
    data = folder.data[name]
    kind = rng.choice(["flip", "flip", "flip", "cut", "extend", "files", "blocks", "delete", "run"])
    if kind == "flip":
        return {name: flipped(data, rng)}
    if kind == "cut":
        return {name: data[: rng.randrange(len(data))]}
    if kind == "extend":
        more = rng.choice([b"\0", b"\n", b" ", rng.randbytes(2), data[-4:], data])
        return {name: data + more}
    if kind == "files":
        second = rng.choice(folder.names)
        return {name: folder.data[second], second: data}
    if kind == "blocks":
        return {name: blocks_swapped(data, rng)}
    if kind == "delete":
        return {name: None}
    same = other.data.get(name, rng.choice(list(other.data.values())))
    return {name: (same * (len(data) // len(same) + 1))[: len(data)]}


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> dict[str, tuple[Folder, Folder]]:
    """A finished folder of every format, and one of another run."""
    home = tmp_path_factory.mktemp("finished")
    texts = made_texts(60, seed=4)
    lines = [json.dumps({"text": text}) for text in texts]
    (home / "c.jsonl").write_text("\n".join([*lines, "broken"]) + "\n")
    found = {}
    for name in NAMES:
        options = {"format": name, "max_bad_fraction": 1, "val_fraction": 0.2, **small(name)}
        if get_format(name).traits.samples:
            options["seq_len"] = 64 if name == "mds" else 0
        pair = [
            prepared(str(home / "c.jsonl"), home / f"{name}{seed}", seed=seed, **options)
            for seed in (1, 2)
        ]
        found[name] = Folder(pair[0]), Folder(pair[1])
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_random_mutation_is_detected(name, finished, tally):
    rng = random.Random(f"mutations of {name}")
    folder, other = finished[name]
    missed, misunderstood, count = [], [], 0
    while count < 1000 // len(NAMES) + 1:
        damage = mutation(folder, other, rng)
        if all(data == folder.data[file] for file, data in damage.items()):
            continue  # nothing was changed
        count += 1
        for file, data in damage.items():
            folder.put(file, data)
        try:
            report = verify(folder.path, num_proc=1)
        except IntegrityError:
            continue
        finally:
            folder.mend(list(damage))
        if report.is_whole:
            missed.append(list(damage))
        misunderstood += [p for p in problems(report) if "cannot be understood" in p]
        if "tokenmill.json" not in damage:
            assert {failure.file for failure in report.failures} <= set(folder.names)
    assert missed == [] and misunderstood == []
    assert verify(folder.path).is_whole
    tally.add("damaged outputs", "detected by verify", count)


@pytest.mark.parametrize("name", NAMES)
def test_every_bit_of_the_manifest_counts(name, finished):
    folder, _ = finished[name]
    data = folder.data["tokenmill.json"]
    rng = random.Random(name)
    try:
        for at in rng.sample(range(len(data)), 40):
            bit = 1 << rng.randrange(8)
            folder.put("tokenmill.json", data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :])
            assert not verify(folder.path).is_whole, (at, data[at], bit)
    finally:
        folder.mend(["tokenmill.json"])


@pytest.fixture
def out(tmp_path, source) -> Path:
    return prepared(source, tmp_path / "out", format="llmc", shard_tokens=3000)


def wrong(report: Report, check: str) -> str:
    """The failures of a report, of which this check must be one."""
    assert status(report)[check] == "failed"
    return "\n".join(problems(report))


def test_result_when_something_is_wrong_then_it_is_false(out):
    assert tokenmill.verify(out)
    os.truncate(out / "fineweb_train_000001.bin", 2000)
    assert not tokenmill.verify(out)


def test_truncated_shard_is_named_with_both_sizes(out):
    name = "fineweb_train_000001.bin"
    os.truncate(out / name, 2000)
    found = wrong(verify(out), "sizes")
    assert f"{name}, byte 2,000: has 2,000 bytes, but was written with 7,024" in found


def test_wrong_magic_is_named(out):
    name = "fineweb_train_000001.bin"
    data = (out / name).read_bytes()
    (out / name).write_bytes(b"oops" + data[4:])
    assert f"{name}: does not begin with llm.c's header" in wrong(verify(out), "headers")


def megatron(tmp_path, source) -> tuple[Path, Path]:
    out = prepared(source, tmp_path / "megatron", format="megatron")
    return out, out / "text_train_00000_document.idx"


def idx_with(path: Path, section: int, number: int, value: int) -> None:
    """Change one number of a Megatron index: section 0 are lengths, 1 are pointers."""
    data = bytearray(path.read_bytes())
    (count,) = struct.unpack_from("<Q", data, 18)
    at = 34 + (4 * number if section == 0 else 4 * count + 8 * number)
    struct.pack_into("<i" if section == 0 else "<q", data, at, value)
    path.write_bytes(data)


@pytest.mark.parametrize(("section", "value"), [(0, 10**9), (1, 10**15), (1, 0), (0, -5)], ids=str)
def test_index_that_points_past_the_end_overlaps_or_descends_is_named(
    section, value, tmp_path, source
):
    out, path = megatron(tmp_path, source)
    idx_with(path, section, 3, value)
    forge(out)
    found = wrong(verify(out), "headers")
    assert "text_train_00000_document" in found and "sequence 3" in found


def test_manifest_edited_by_hand_is_said_to_be(out):
    path = out / "tokenmill.json"
    plain = json.loads(path.read_text())
    plain["counts"]["text_bytes"] += 1
    path.write_text(json.dumps(plain))
    assert "was changed since it was written" in wrong(verify(out), "manifest")
    with pytest.raises(IntegrityError, match="was changed since it was written"):
        Manifest.load(str(out))


def test_manifest_that_was_only_laid_out_anew_loads_but_does_not_verify(out):
    path = out / "tokenmill.json"
    path.write_text(json.dumps(json.loads(path.read_text())))
    assert Manifest.load(str(out)).num_documents
    assert "other bytes" in wrong(verify(out), "manifest")


def test_manifest_without_a_hash_of_its_own_is_not_as_it_was_written(out):
    path = out / "tokenmill.json"
    plain = json.loads(path.read_text())
    del plain["sha256"]
    path.write_text(json.dumps(plain))
    report = verify(out)
    assert not report.is_whole and status(report)["manifest"] == "failed"


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "a/../../b"])
def test_manifest_that_names_a_file_outside_is_refused(name, out, monkeypatch):
    path = out / "tokenmill.json"
    plain = json.loads(path.read_text())
    plain["files"][0]["name"] = name
    path.write_text(json.dumps(plain))
    opened, os_open = [], os.open
    monkeypatch.setattr(os, "open", lambda path, *a: opened.append(path) or os_open(path, *a))
    assert "leads out of the folder" in wrong(verify(out), "manifest")
    assert set(opened) <= {str(path)}


@pytest.mark.parametrize("name", ["fineweb_train_000001.bin", "tokenmill.json"])
def test_symlink_out_of_the_folder_is_named_and_not_followed(name, out, tmp_path, monkeypatch):
    (out / name).rename(tmp_path / "elsewhere")
    (out / name).symlink_to(tmp_path / "elsewhere")
    looked_into = []
    opened = os.open
    monkeypatch.setattr(
        os, "open", lambda p, *r, **k: looked_into.append(str(p)) or opened(p, *r, **k)
    )
    report = verify(out)
    assert f"{name}: is a link that leads out of the folder" in problems(report)
    assert not [path for path in looked_into if name in path]


def test_link_beside_a_shard_that_leads_out_keeps_shards_closed(tmp_path, source):
    out, index = megatron(tmp_path, source)
    index.rename(tmp_path / "elsewhere")
    index.symlink_to(tmp_path / "elsewhere")
    report = verify(out)
    assert index.name in wrong(report, "files")
    assert "no shard was opened" in detail(report)["headers"]


def test_link_that_is_none_of_its_business_is_left_alone(out):
    (out / "corpus.jsonl").symlink_to("/etc/passwd")
    report = verify(out)
    assert problems(report) == [] and status(report)["headers"] == "passed"


def test_link_within_the_folder_is_fine(out):
    (out / "fineweb_train_000001.bin").rename(out / "moved")
    (out / "fineweb_train_000001.bin").symlink_to("moved")
    assert problems(verify(out)) == []


@pytest.mark.parametrize(
    "name", ["fineweb_train_000001.bin", "tokenmill.json", "extra_train_000009.bin"]
)
def test_pipe_in_place_of_a_file_is_no_hang(name, out):
    (out / name).unlink(missing_ok=True)
    os.mkfifo(out / name)
    report = verify(out)
    assert report.is_whole == name.startswith("extra")
    if not report.is_whole:
        assert "not a regular file" in "\n".join(problems(report))


@pytest.mark.parametrize("name", ["fineweb_train_000099.bin", "other_train_000001.bin"])
def test_shard_from_another_run_is_named(name, out):
    shutil.copy(out / "fineweb_train_000001.bin", out / name)
    assert f"{name}: is not of this dataset" in wrong(verify(out), "files")


def test_other_files_in_the_folder_are_none_of_its_business(tmp_path, source):
    out = prepared(source, tmp_path / "out")
    (out / "README.md").write_text("mine")
    (out / "model.bin").write_bytes(b"weights")  # nanoGPT reads train.bin and val.bin alone
    (out / ".DS_Store").write_bytes(b"x")
    assert problems(verify(out)) == []


def test_unfinished_folder_is_refused(out):
    (out / "tokenmill.json").unlink()
    (out / ".tokenmill").mkdir()
    with pytest.raises(IntegrityError, match="not finished"):
        verify(out)


def test_negative_sample_is_refused(out):
    with pytest.raises(ConfigError, match="sample is a number of documents, got -1"):
        verify(out, sample=-1)


def test_folder_without_a_manifest_fails_unless_its_format_is_named(out):
    (out / "tokenmill.json").unlink()
    report = verify(out)
    assert "if someone else wrote it, say so: --format llmc" in wrong(report, "manifest")
    report = verify(out, format_name="llmc")
    assert report.is_whole and status(report)["manifest"] == "skipped"


@pytest.mark.parametrize("options", [{}, {"format_name": "llmc"}])
def test_folder_of_datasets_is_not_taken_for_one_dataset(options, tmp_path, source):
    for name in ("a", "b"):
        tokenmill.prepare(source, tmp_path / name, format="llmc", num_proc=1)
    with pytest.raises(ConfigError, match="is not a dataset, but holds 2 datasets: a, b") as caught:
        verify(tmp_path, **options)
    assert caught.value.hint == f"name one of them: {tmp_path / 'a'}"


def test_all_files_are_looked_at_after_the_first_failure(out):
    names = sorted(path.name for path in out.glob("fineweb_*"))
    for name in names:
        with open(out / name, "r+b") as file:
            file.seek(1200)
            file.write(b"\1\2\3\4")
    report = verify(out)
    assert {failure.file for failure in report.failures} == set(names)
    assert report.num_failures == len(names)


# Forged: the manifest fits the damage, and only what the tokens say gives it away


def forge(out: Path, **changes: object) -> None:
    """Make sizes, hashes and the manifest's own hash fit the files as they are now."""
    path = out / "tokenmill.json"
    plain = json.loads(path.read_text())
    plain.pop("sha256")
    for file in plain["files"]:
        data = (out / file["name"]).read_bytes()
        file |= {"num_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    for where, value in changes.items():
        target, names = plain, where.split("__")
        for name in names[:-1]:
            target = target[name]
        target[names[-1]] = value
    plain["sha256"] = hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()
    text = json.dumps(plain, indent=1, sort_keys=True)
    path.write_text(text)
    if Manifest.load(str(out)):
        path.write_bytes(Manifest.load(str(out)).to_json())


def change(path: Path, token: int, value: int, header: int = 0, dtype: str = "<u2") -> int:
    """Overwrite a token; the byte it stands at."""
    at = header + token * np.dtype(dtype).itemsize
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(np.array([value], dtype).tobytes())
    return at


def test_forgery_alone_is_no_failure(out):
    forge(out)
    assert problems(verify(out)) == []


def test_id_beyond_the_vocabulary_is_named_by_file_document_and_byte(out):
    at = change(out / "fineweb_train_000001.bin", 700, 60000, header=1024)
    forge(out)
    report = verify(out)
    assert status(report)["vocabulary"] == "failed"
    [failure] = report.failures
    stream = open_dataset(str(out)).streams["train"]
    assert (failure.file, failure.byte) == ("fineweb_train_000001.bin", at)
    assert failure.document == stream.document_at(700)
    assert "token 700 is 60000, but ids end at 50256" in failure.message


@pytest.mark.parametrize("eot", ["append", "prepend", "both"])
@pytest.mark.parametrize("name", ["llmc", "megatron"])
@pytest.mark.parametrize("damage", [b"", None, b"oops"], ids=str)
def test_shard_after_one_that_cannot_be_read_is_checked(damage, name, eot, tmp_path, source):
    out = prepared(source, tmp_path / "out", format=name, eot=eot, val="none", shard_tokens=3000)
    first, second, *_ = sorted(out.glob("*.bin"))
    change(second, 700, 60000, header=1024 if name == "llmc" else 0)
    Folder(out).put(first.name, damage)
    report = verify(out)
    assert status(report)["vocabulary"] == "failed"
    [found] = [one for one in report.failures if "60000" in one.message]
    assert found.file == second.name
    assert first.name in {one.file for one in report.failures}


@pytest.mark.parametrize("eot", ["append", "prepend", "both"])
@pytest.mark.parametrize("name", ["megatron", "nanogpt"])
def test_eot_in_the_middle_of_a_document_or_missing_is_detected(name, eot, tmp_path, source):
    file = "train.bin" if name == "nanogpt" else "text_train_00000_document.bin"
    tokens = None
    for number, what in enumerate(("added", "missing")):
        out = prepared(source, tmp_path / f"out{number}", format=name, eot=eot, val="none")
        tokens = np.fromfile(out / file, "<u2")
        is_eot = tokens == EOT
        at = np.flatnonzero(is_eot)[20] if what == "missing" else np.flatnonzero(~is_eot)[500]
        change(out / file, at, EOT if what == "added" else 17)
        document = open_dataset(str(out)).streams["train"].document_at(int(at))
        forge(out)
        report = verify(out)
        assert file in wrong(report, "EOT") or "tokenmill.json" in wrong(report, "EOT")
        if name == "megatron":
            assert (report.failures[0].document, report.failures[0].byte) == (document, 2 * at)


def test_two_eots_that_moved_are_detected_where_documents_have_two(tmp_path, source):
    out = prepared(source, tmp_path / "out", eot="both", val="none")
    tokens = np.fromfile(out / "train.bin", "<u2")
    first = int(np.flatnonzero(tokens == EOT)[21])
    for at, value in ((first, 17), (first + 3, EOT)):
        change(out / "train.bin", at, value)
    forge(out)
    [failure] = verify(out).failures
    assert failure.file == "train.bin" and failure.document is not None
    assert abs(failure.byte - 2 * first) <= 8


@pytest.mark.parametrize("value", [EOT, 17, 60000])
@pytest.mark.parametrize("eot", ["append", "prepend", "both"])
@pytest.mark.parametrize("name", ["megatron", "nanogpt"])
def test_file_that_is_read_in_pieces_has_the_faults_of_one_that_is_not(
    name, eot, value, tmp_path, source, monkeypatch
):
    found = []
    for size in (1 << 30, 3000):
        monkeypatch.setattr("tokenmill.storage.hashing.PIECE_BYTES", size)
        out = prepared(source, tmp_path / str(size), format=name, eot=eot, val="none")
        assert problems(verify(out, num_proc=2)) == []
        [file] = out.glob("*.bin")
        tokens = np.fromfile(file, "<u2")
        change(file, int(np.flatnonzero((tokens == EOT) != (value == EOT))[40]), value)
        report = verify(out, num_proc=2)
        found.append([one for one in report.failures if "have changed" not in one.message])
        assert status(report)["sha256"] == "failed"
    assert found[0] == found[1] and found[0]


@pytest.mark.parametrize(
    "changes",
    [
        {"counts__num_rows": 7},
        {"counts__num_written": 7},
        {"counts__num_null": 1, "counts__num_rows": len(TEXTS) + 1},
        {"splits__train__num_tokens": 7},
        {"splits__train__num_documents": 7},
        {"slice_documents__train": [1, 2, 3]},
        {"slice_chunks": {"0": [[1, 0], [2, 0]]}},
        {"slice_chunks": {"9": [[1, 0], [2, 0]]}},
    ],
    ids=str,
)
def test_numbers_of_a_forged_manifest_contradict_each_other_or_the_inputs(changes, out):
    forge(out, **changes)
    report = verify(out, full=True)
    assert not report.is_whole and report.failures[0].file == "tokenmill.json"


def test_number_of_documents_of_a_hostile_manifest_takes_no_memory(tmp_path, source):
    out = prepared(source, tmp_path / "out", shuffle=True, val="none", slice_bytes=10**6)
    many = 1 << 50
    forge(
        out,
        slice_documents={"train": [many], "val": [0]},
        splits__train__num_documents=many,
        counts__num_written=many,
        counts__num_rows=many + 1,
    )
    report = verify(out, sample=3)
    assert not report.is_whole and "do not fit" in detail(report)["sources"]


@pytest.mark.parametrize("asked", [{"full": True}, {"sample": len(TEXTS)}], ids=str)
@pytest.mark.parametrize("options", [{}, {"shuffle": True}], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_wrong_token_under_a_forged_manifest_is_named_by_file_and_document(
    name, options, asked, tmp_path, source
):
    samples = {"seq_len": 0} if get_format(name).traits.samples else {}
    out = prepared(
        source, tmp_path / "out", format=name, empty="drop", **small(name), **samples, **options
    )
    stream = open_dataset(str(out)).streams["train"]
    number = 33
    start, stop = stream.document(number)
    token = start + (stop - start) // 2
    shard, within = stream.shard_at(token)
    value = 1000 if int(stream.tokens(token, token + 1)[0]) != 1000 else 1001
    at = None
    if name == "parquet":
        table = pq.read_table(out / shard.name)
        rows = table["input_ids"].to_pylist()
        row = int(np.searchsorted(np.cumsum([len(one) for one in rows]), within, "right"))
        rows[row][within - sum(map(len, rows[:row]))] = value
        changed = pa.table({"input_ids": pa.array(rows, table.schema.field(0).type)}, table.schema)
        pq.write_table(changed, out / shard.name, store_schema=False)
    else:
        document = stream.tokens(start, stop).astype("<u2").tobytes()
        data = (out / shard.name).read_bytes()
        at = data.index(document) + 2 * (token - start)
        (out / shard.name).write_bytes(data[:at] + value.to_bytes(2, "little") + data[at + 2 :])
    forge(out)
    assert verify(out).is_whole  # nothing but the sources can tell
    report = verify(out, **asked)
    [failure] = report.failures
    assert (failure.file, failure.document) == (shard.name, number)
    assert failure.byte == (at if get_format(name).traits.is_raw else None)
    assert f"token {token - start} of the document is {value}" in failure.message
    assert "corpus.parquet, row" in failure.message


def test_wrong_byte_is_found_from_the_sources_when_the_hash_only_says_that_there_is_one(out):
    at = change(out / "fineweb_val_000000.bin", 1500, 1000, header=1024)
    report = verify(out)
    assert [failure.document for failure in report.failures] == [None]
    report = verify(out, full=True)
    found = report.failures[-1]
    stream = open_dataset(str(out)).streams["val"]
    assert (found.file, found.byte) == ("fineweb_val_000000.bin", at)
    assert found.document == stream.document_at(1500)


def test_shard_that_is_cut_short_is_followed_to_where_it_ends(tmp_path, source):
    out = prepared(source, tmp_path / "out", val="none")
    tokens = np.fromfile(out / "train.bin", "<u2")
    os.truncate(out / "train.bin", 2 * 5000)
    report = verify(out, full=True)
    found = report.failures[-1]
    assert (found.file, found.byte) == ("train.bin", 2 * 4999)
    assert found.document == np.count_nonzero(tokens[:5000] == EOT)
    assert "train.bin holds 5,000 tokens" in detail(report)["sources"]


# The sources


def test_sources_that_moved_are_found_by_their_contents(tmp_path):
    folder = tmp_path / "corpus"
    for number in range(3):
        write_corpus("jsonl", folder / str(number), made_texts(20, seed=number))
    out = prepared(str(folder), tmp_path / "out", val="none")
    folder.rename(tmp_path / "moved")
    for number in range(3):  # other names, in another order
        (tmp_path / "moved" / str(number)).rename(tmp_path / "moved" / f"x{9 - number}")
    report = verify(out, full=True)
    assert report.is_whole and status(report)["sources"] == "unable"
    assert "corpus.jsonl was not found where it was" in detail(report)["sources"]
    report = verify(out, full=True, sources=[str(tmp_path / "moved")])
    assert problems(report) == [] and "60 documents" in detail(report)["sources"]


def test_sources_from_the_hub_are_found_in_its_cache(tmp_path, monkeypatch):
    from huggingface_hub import constants

    path = Path(write_corpus("jsonl", tmp_path, made_texts(20)))
    out = prepared(str(path), tmp_path / "out", val="none")
    commit, data = "c" * 40, path.read_bytes()
    entry = {
        "path": f"hf://datasets/me/mine@{commit}/data/corpus.jsonl",
        "num_bytes": len(data),
        "digest": f"sha256:{hashlib.sha256(data).hexdigest()}",
    }
    forge(out, inputs=[entry])
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    assert "not found" in detail(verify(out, sample=5))["sources"]
    cached = tmp_path / "cache" / "datasets--me--mine" / "snapshots" / commit / "data"
    cached.mkdir(parents=True)
    shutil.copy(path, cached / "corpus.jsonl")
    assert "5 documents" in detail(verify(out, sample=5))["sources"]
    assert "20 documents" in detail(verify(out, full=True, sources=[str(path)]))["sources"]
    (cached / "corpus.jsonl").write_bytes(data[:-2] + b" \n")
    assert "has changed" in detail(verify(out, sample=5))["sources"]


def test_first_documents_alone_are_encoded_again_where_a_limit_was_set(tmp_path, source):
    out = prepared(source, tmp_path / "out", limit_docs=70)
    report = verify(out, full=True)
    assert problems(report) == [] and "70 documents" in detail(report)["sources"]


def test_source_that_changed_is_named_and_nothing_is_compared(tmp_path):
    path = write_corpus("jsonl", tmp_path, made_texts(20))
    out = prepared(path, tmp_path / "out")
    Path(path).write_text(json.dumps({"text": "other"}) + "\n")
    report = verify(out, sample=5)
    assert report.is_whole and status(report)["sources"] == "unable"
    assert f"{path} has changed" in detail(report)["sources"]


def test_nothing_outside_the_folder_is_read_unless_asked_for(tmp_path, monkeypatch):
    path = write_corpus("jsonl", tmp_path, made_texts(20))
    out = prepared(path, tmp_path / "out")
    Path(path).unlink()
    os.mkfifo(path)  # would be waited for
    report = verify(out)
    assert report.is_whole and "--sample" in detail(report)["sources"]
    assert status(verify(out, sample=3))["sources"] == "unable"


def test_tokenizer_file_is_asked_for_and_must_be_the_same(tmp_path):
    vocabulary = Path(tokenmill.__file__).parent / "encodings" / "vocab" / "r50k_base.tiktoken"
    mine = tmp_path / "mine.tiktoken"
    shutil.copy(vocabulary, mine)
    path = write_corpus("jsonl", tmp_path, made_texts(20))
    options = {"tokenizer": str(mine), "pattern": "gpt2", "eot_token": "<|endoftext|>"}
    out = prepared(path, tmp_path / "out", **options)
    report = verify(out, sample=5)
    assert report.is_whole and "mine, a .tiktoken file with sha256" in detail(report)["sources"]
    right = get_encoding(mine, pattern="gpt2", eot="<|endoftext|>").identity
    assert status(verify(out, sample=5, encoding=right))["sources"] == "passed"
    with pytest.raises(ConfigError, match="were made with mine"):
        verify(out, sample=5, encoding=get_encoding("cl100k_base").identity)


def test_known_tokenizer_file_that_is_another_is_refused_for_its_hash(tmp_path):
    """And not for the dataset's pattern, which nobody typed."""
    vocabulary = Path(tokenmill.__file__).parent / "encodings" / "vocab" / "r50k_base.tiktoken"
    mine = tmp_path / "mine.tiktoken"
    shutil.copy(vocabulary, mine)
    path = write_corpus("jsonl", tmp_path, made_texts(20))
    out = prepared(path, tmp_path / "out", tokenizer="cl100k_base")
    with pytest.raises(ConfigError, match="but the tokens were made with cl100k_base, sha256"):
        verify(out, sample=5, tokenizer=NamedTokenizer(str(mine)))


def test_document_that_the_reference_cannot_encode_is_left_to_the_engine(tmp_path, monkeypatch):
    from tokenmill.encodings.loading import reference_of

    class Panicking:
        def encode_ordinary(self, text):
            if text.startswith("hard"):
                raise BaseException("StackOverflow")
            return reference_of(get_encoding("gpt2").identity).encode_ordinary(text)

    monkeypatch.setattr("tokenmill.dataset.verify.sources.reference_of", lambda _: Panicking())
    path = write_corpus("jsonl", tmp_path, ["easy", "hard one", "also easy"])
    report = verify(prepared(path, tmp_path / "out", val="none"), full=True)
    assert problems(report) == [] and "1 by the engine" in detail(report)["sources"]


# Other people's folders


def test_someones_llmc_shards_are_checked_as_far_as_they_tell(tmp_path):
    for number in (1, 2):
        head = struct.pack("<256i", 20240520, 1, 4, *[0] * 253)
        data = np.array([EOT, 5, 6, 7], "<u2").tobytes()
        (tmp_path / f"mine_train_{number:06d}.bin").write_bytes(head + data)
    report = verify(tmp_path, format_name="llmc", encoding=get_encoding("gpt2").identity)
    assert problems(report) == [] and report.num_tokens == 8
    assert status(report) == {
        **dict.fromkeys(("files", "headers", "vocabulary"), "passed"),
        **dict.fromkeys(("manifest", "conservation", "sizes", "sha256", "EOT"), "skipped"),
        **dict.fromkeys(("boundaries", "inputs", "sources"), "skipped"),
    }
    with open(tmp_path / "mine_train_000002.bin", "ab") as file:
        file.write(b"\0\0")
    found = wrong(verify(tmp_path, format_name="llmc"), "headers")
    assert "mine_train_000002.bin" in found and "4 uint16 tokens" in found


@pytest.mark.parametrize("damaged", [["000002"], ["000001", "000002"]], ids=str)
def test_someones_llmc_shard_with_a_wrong_magic_is_not_passed_over(damaged, tmp_path):
    for number in ("000001", "000002"):
        magic = 20240520 if number not in damaged else 4711
        head = struct.pack("<256i", magic, 1, 1, *[0] * 253)
        (tmp_path / f"mine_train_{number}.bin").write_bytes(head + b"\5\0")
    found = wrong(verify(tmp_path, format_name="llmc"), "headers")
    for number in damaged:
        assert f"mine_train_{number}.bin: does not begin with llm.c's header" in found


def test_someones_nanogpt_file_with_an_id_beyond_the_vocabulary_is_named(tmp_path):
    np.array([5, EOT, 6, 60000, EOT], "<u2").tofile(tmp_path / "train.bin")
    report = verify(tmp_path, format_name="nanogpt")
    assert report.is_whole and "the largest id is 60,000" in detail(report)["vocabulary"]
    report = verify(tmp_path, format_name="nanogpt", encoding=get_encoding("gpt2").identity)
    [failure] = report.failures
    assert (failure.file, failure.document, failure.byte) == ("train.bin", 1, 6)
    (tmp_path / "train.bin").write_bytes(b"123")
    found = wrong(verify(tmp_path, format_name="nanogpt"), "headers")
    assert "train.bin: 3 bytes are not whole uint16 tokens" in found


def write_megatron(folder: Path, lengths: list[int], tokens: list[int], pointers=None) -> None:
    folder.mkdir(exist_ok=True)
    np.array(tokens, "<u2").tofile(folder / "my_text_document.bin")
    starts = [2 * sum(lengths[:i]) for i in range(len(lengths))] if pointers is None else pointers
    head = struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, 8, len(lengths), len(lengths) + 1)
    (folder / "my_text_document.idx").write_bytes(
        head
        + np.array(lengths, "<i4").tobytes()
        + np.array(starts, "<i8").tobytes()
        + np.arange(len(lengths) + 1, dtype="<i8").tobytes()
    )


def test_someones_megatron_files_are_checked_with_their_boundaries(tmp_path):
    write_megatron(tmp_path, [3, 2], [5, 6, EOT, 7, EOT])
    gpt2 = get_encoding("gpt2").identity
    report = verify(tmp_path, format_name="megatron", encoding=gpt2, eot="append")
    assert problems(report) == [] and status(report)["EOT"] == "passed"
    assert status(report)["boundaries"] == "passed"
    write_megatron(tmp_path, [3, 2], [5, 6, EOT, 7, 8])
    report = verify(tmp_path, format_name="megatron", encoding=gpt2, eot="append")
    [failure] = report.failures
    assert (failure.file, failure.document, failure.byte) == ("my_text_document.bin", 1, 8)
    for pointers in ([0, 4], [0, 100], [6, 0]):  # overlapping, past the end, descending
        write_megatron(tmp_path, [3, 2], [5, 6, EOT, 7, EOT], pointers)
        found = wrong(verify(tmp_path, format_name="megatron"), "headers")
        assert "my_text_document" in found


def test_someones_folder_with_a_link_out_of_it_is_named_and_not_followed(tmp_path):
    (tmp_path / "in").mkdir()
    np.array([1, 2], "<u2").tofile(tmp_path / "secret")
    (tmp_path / "in" / "train.bin").symlink_to(tmp_path / "secret")
    report = verify(tmp_path / "in", format_name="nanogpt")
    assert "train.bin: is a link that leads out of the folder" in wrong(report, "files")
    assert report.num_tokens == 0
    with pytest.raises(IntegrityError, match="leads out of the folder"):
        open_dataset(str(tmp_path / "in"))


def test_folder_in_which_nothing_is_recognised_is_refused(tmp_path):
    (tmp_path / "notes.md").write_text("no shards")
    for name in (None, "llmc"):
        with pytest.raises(ConfigError, match="not a dataset that can be read"):
            verify(tmp_path, format_name=name)
    with pytest.raises(ConfigError, match="not a folder"):
        verify(tmp_path / "none")


# Options, damage of whole files, and the hash of a large file


def test_options_that_contradict_the_manifest_are_refused(out):
    assert verify(out, format_name="llmc", dtype="uint16", eot="prepend").is_whole
    for option in ({"format_name": "nanogpt"}, {"dtype": "uint32"}, {"eot": "none"}):
        with pytest.raises(ConfigError, match="the manifest says"):
            verify(out, **option)


def test_litdata_chunks_are_taken_by_number_not_by_name(tmp_path, source):
    out = prepared(source, tmp_path / "out", format="litdata", shard_tokens=1500, val="none")
    names = [shard.name for shard in open_dataset(str(out)).streams["train"].shards]
    assert len(names) > 11
    assert names == [f"train/chunk-0-{number}.bin" for number in range(len(names))]


def test_report_is_plain(out):
    (out / "fineweb_train_000001.bin").unlink()
    plain = json.loads(json.dumps(verify(out).to_plain()))
    assert plain["is_whole"] is False and plain["num_failures"] == 1
    assert plain["failures"][0]["file"] == "fineweb_train_000001.bin"
    assert {check["status"] for check in plain["checks"]} == {"passed", "failed", "skipped"}


# The command line


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    return warm.tokenmill("verify", *arguments)


def test_command_says_every_check_and_exits_0(out):
    done = command(out, "--sample", "1K", "--num-proc", 2)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    for name in ("manifest", "conservation", "files", "sizes", "sha256", "headers", "vocabulary"):
        assert f"  passed   {name}" in done.stderr
    assert "skipped  boundaries" in done.stderr and "not checked: boundaries" in done.stderr
    assert f"{len(TEXTS)} documents encoded again with tiktoken, all the same" in done.stderr


def test_command_names_what_is_wrong_and_exits_5(out):
    change(out / "fineweb_train_000001.bin", 700, 60000, header=1024)
    done = command(out)
    assert (done.returncode, done.stdout) == (5, "")
    assert "wrong: fineweb_train_000001.bin, document " in done.stderr
    assert "byte 2,424: token 700 is 60000" in done.stderr
    assert "\nhint: " in done.stderr and "--full" in done.stderr and "Traceback" not in done.stderr
    quiet = command(out, "-q")
    assert quiet.returncode == 5 and "passed" not in quiet.stderr and "wrong: " in quiet.stderr


def test_command_quiet_says_nothing_of_what_is_whole(out):
    done = command(out, "-q")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_command_json_is_on_stdout(out):
    done = command(out, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["is_whole"] is True
    (out / "fineweb_val_000000.bin").unlink()
    done = command(out, "--json")
    assert (done.returncode, done.stderr) == (5, "")
    assert json.loads(done.stdout)["failures"][0]["file"] == "fineweb_val_000000.bin"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--sample", "0"],
        ["--sample", "many"],
        ["--num-proc", "0"],
        ["--format", "nope"],
        ["--pattern", "gpt2"],
        ["--sample", "3", "--full"],
    ],
    ids=str,
)
def test_command_refuses_what_it_cannot_do(arguments, tmp_path):
    np.array([1], "<u2").tofile(tmp_path / "train.bin")
    done = command(tmp_path, *arguments)
    assert done.returncode == 2 and "Traceback" not in done.stderr


def test_control_characters_of_a_hostile_folder_never_reach_the_terminal(tmp_path):
    np.array([1], "<u2").tofile(tmp_path / "train\x1b]0;title\x07.bin")
    (tmp_path / "x\x1b[2J").symlink_to("/etc/passwd")
    done = command(tmp_path, "--format", "nanogpt")
    assert done.returncode == 5 and "\x1b" not in done.stderr
