"""Small runs to break, and what their bytes must be, by tests/oracle.py and by nothing of ours.

Each scenario is small enough to be run thousands of times (about 20 ms) and yet goes through
everything: several slices, shards and pieces of shards, both splits, a quarantined row.
"""

from __future__ import annotations

import functools
import json
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

import oracle
import tokenmill
from corpora import made_texts
from tokenmill.assemble import sidecars
from tokenmill.config import Config, Partition
from tokenmill.dataset import convert_source
from tokenmill.dataset.convert import Target, convert
from tokenmill.dataset.dataset import open_dataset
from tokenmill.dataset.manifest import MANIFEST_NAME
from tokenmill.run import SilentWatch
from tokenmill.run.finish import finish
from tokenmill.run.partition import encode_partition
from tokenmill.runners.inline import InlineRunner
from tokenmill.storage import hashing

TEXTS = made_texts(36, seed=5)
for copy, original in ((9, 8), (20, 4), (27, 3), (33, 20), (35, 27)):
    TEXTS[copy] = TEXTS[original]
Files = dict[str, bytes]


@dataclass(frozen=True)
class Scenario:
    name: str
    run: Callable[[str, str], object]  # (source, out): the command that is repeated
    expected: Callable[[], Files]  # the oracle's files; others beside them are not the oracle's


def corpus(folder: Path) -> str:
    path = folder / "corpus.jsonl"
    lines = [json.dumps({"text": text, "n": n}) for n, text in enumerate(TEXTS)]
    lines.insert(7, '{"text": broken')
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def prepared(source: object, out: str, **options: object) -> object:
    given = {"num_proc": 1, "slice_bytes": 6000, "max_bad_fraction": 0.5, **options}
    return tokenmill.prepare(source, out, **given)


def parted(source: str, out: str, num_tasks: int = 3, **options: object) -> object:
    """The tasks of a partition one after the other, and what follows them."""
    given = {"slice_bytes": 6000, **options}
    for number in range(1, num_tasks + 1):
        config = Config(sources=(source,), out=out, num_proc=1, **given)
        partition = Partition(number, num_tasks)
        encode_partition(config, partition, InlineRunner(), SilentWatch())
    return finish(out, max_bad_fraction=0.5, num_proc=1)


def converted(source: str, out: str, shard_tokens: int = 1500, overwrite: bool = False) -> object:
    """A dataset that is made once, beside the source, and converted into `out`."""
    made = os.path.join(os.path.dirname(source), "made")
    if not os.path.exists(os.path.join(made, MANIFEST_NAME)):
        prepared(source, made, format="npy", val="none", shard_tokens=1500)
    target = Target(
        out=out,
        format="datatrove",
        shard_tokens=shard_tokens,
        num_proc=1,
        overwrite=overwrite,
    )
    return convert(open_dataset(made), target)


@functools.cache
def npy_files(shard_tokens: int = 2000) -> Files:
    return oracle.npy_files(oracle.ids(TEXTS, "prepend"), shard_tokens, "edufineweb")


@functools.cache
def nanogpt_files(eot: str = "append") -> Files:
    return {"train.bin": oracle.stream(oracle.ids(TEXTS, eot))}


@functools.cache
def megatron_files() -> Files:
    """Shards of whole documents, at most 1,500 tokens each: their tokens."""
    return {
        f"text_train_{number:05d}_document.bin": oracle.stream(documents)
        for number, documents in enumerate(whole_documents(oracle.ids(TEXTS), 1500))
    }


@functools.cache
def one_megatron_files() -> Files:
    """One shard of many pieces, with an index beside it."""
    documents = oracle.ids(TEXTS)
    lengths = np.array([len(document) for document in documents])
    starts = np.cumsum(lengths) - lengths
    head = struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, 8, len(lengths), len(lengths) + 1)
    numbers = np.arange(len(lengths) + 1)
    index = (lengths.astype("<i4"), (2 * starts).astype("<i8"), numbers.astype("<i8"))
    return {
        "text_train_00000_document.bin": oracle.stream(documents),
        "text_train_00000_document.idx": head + b"".join(part.tobytes() for part in index),
    }


@functools.cache
def datatrove_files(shard_tokens: int = 1500) -> Files:
    files = {}
    shards = whole_documents(oracle.ids(TEXTS, "prepend"), shard_tokens)
    for number, documents in enumerate(shards):
        stem = f"train/{number:05d}_tokens.ds"
        files[stem] = oracle.stream(documents)
        ends = np.cumsum([len(document) for document in documents])
        files[f"{stem}.index"] = ends.astype("<u8").tobytes()
    return files


@functools.cache
def mds_files() -> Files:
    """Tokens stand at the end of a shard; the last, too few for a sample, are left out."""
    tokens = [token for document in oracle.ids(TEXTS) for token in document]
    shards = [tokens[i : i + 2048] for i in range(0, len(tokens), 2048)]
    return {
        f"train/shard.{number:05d}.mds": np.array(shard[: len(shard) // 64 * 64], "<u2").tobytes()
        for number, shard in enumerate(shards)
        if len(shard) >= 64
    }


@functools.cache
def chosen_files() -> Files:
    """Every row but each third, until there are 5,000 tokens."""
    documents, num_tokens = [], 0
    for number, document in enumerate(oracle.ids(TEXTS)):
        if number % 3 and num_tokens < 5000:
            documents.append(document)
            num_tokens += len(document)
    return {"train.bin": oracle.stream(documents)}


def named(source: str, out: str) -> object:
    """Two sources of the same file, one of them twice."""
    sources = {"some": {"paths": source, "where": CHOSEN}, "all": {"paths": source, "repeat": 2}}
    return prepared(sources, out, val="none")


@functools.cache
def named_files() -> Files:
    documents = oracle.ids(TEXTS)
    some = [document for number, document in enumerate(documents) if number % 3]
    return {"train.bin": oracle.stream(some + documents + documents)}


@functools.cache
def deduplicated_files() -> Files:
    """The first of equal texts, until there are 11,500 tokens, and the numbers of their lines."""
    documents, num_tokens = [], 0
    for document in oracle.ids(list(dict.fromkeys(TEXTS))):
        if num_tokens < 11500:
            documents.append(document)
            num_tokens += len(document)
    numbers = sorted(TEXTS.index(text) for text in set(TEXTS))[: len(documents)]
    sidecars = {
        f"__kept__/train-{at // 10:05d}.pq": json.dumps(numbers[at : at + 10]).encode()
        for at in range(0, len(numbers), 10)
    }
    return {"train.bin": oracle.stream(documents), **sidecars}


@functools.cache
def kept_files() -> Files:
    """Shards of 2,000 tokens, the first for validation, and sidecars of 10 documents: the number
    of each document's line, in the order of the documents. One that is cut has a row twice."""
    numbers, num_tokens = [], []
    for number, document in enumerate(oracle.ids(TEXTS, "prepend")):
        numbers.append(number)
        num_tokens.append(len(document))
    ends = np.cumsum(num_tokens)
    num_begun = int(np.searchsorted(ends - num_tokens, 2000))
    num_whole = int(np.searchsorted(ends, 2000, "right"))
    files = npy_files()
    for split, own in (("val", numbers[:num_begun]), ("train", numbers[num_whole:])):
        for at in range(0, len(own), 10):
            name = f"__kept__/{split}-{at // 10:05d}.pq"
            files = {**files, name: json.dumps(own[at : at + 10]).encode()}
    return files


# Each third of the rows.
CHOSEN = f"n not in ({', '.join(map(str, range(0, len(TEXTS), 3)))})"


def whole_documents(documents: list[list[int]], most: int) -> list[list[list[int]]]:
    shards: list[list[list[int]]] = [[]]
    for document in documents:
        if shards[-1] and sum(map(len, shards[-1])) + len(document) > most:
            shards.append([])
        shards[-1].append(document)
    return shards


SCENARIOS = [
    Scenario("npy", functools.partial(prepared, format="npy", shard_tokens=2000), npy_files),
    Scenario("nanogpt", functools.partial(prepared, val="none"), nanogpt_files),
    Scenario(
        "megatron",
        functools.partial(prepared, format="megatron", shard_tokens=1500),
        megatron_files,
    ),
    Scenario(
        "mds",
        functools.partial(prepared, format="mds", seq_len=64, shard_tokens=2048, val="none"),
        mds_files,
    ),
    Scenario("convert", converted, datatrove_files),
    Scenario("one megatron", functools.partial(prepared, format="megatron"), one_megatron_files),
    Scenario(
        "chosen",
        functools.partial(prepared, val="none", where=CHOSEN, limit_tokens=5000),
        chosen_files,
    ),
    Scenario("named", named, named_files),
    Scenario(
        "dedup",
        functools.partial(prepared, val="none", dedup="exact", limit_tokens=11500, keep="n"),
        deduplicated_files,
    ),
    Scenario(
        "kept",
        functools.partial(prepared, format="npy", shard_tokens=2000, keep="n"),
        kept_files,
    ),
    Scenario("partition", functools.partial(parted, format="npy", shard_tokens=2000), npy_files),
]


def small_pieces(monkeypatch) -> None:
    """Pieces of a few kilobytes and checkpoints of three records, so that a small run has several
    of both."""
    monkeypatch.setattr(hashing, "PIECE_BYTES", 3000)
    monkeypatch.setattr("tokenmill.encode.ledger.MIN_RECORDS", 3)
    monkeypatch.setattr(convert_source, "READ_TOKENS", 1000)
    monkeypatch.setattr(sidecars, "DOCUMENTS_PER_SIDECAR", 10)


def differences(out: str, expected: Files) -> list[str]:
    """What is not as the oracle says; empty: all is well. MDS shards have a head of their own."""
    found = []
    for name, data in expected.items():
        try:
            written = Path(out, name).read_bytes()
            if name.endswith(".pq"):
                written = json.dumps(pq.read_table(Path(out, name))["n"].to_pylist()).encode()
        except OSError as error:
            found.append(f"{name}: {error}")
            continue
        if not written.endswith(data) or (name.endswith((".bin", ".npy")) and written != data):
            found.append(f"{name}: other bytes")
    manifest = json.loads(Path(out, MANIFEST_NAME).read_bytes())
    shards = {file["name"] for file in manifest["files"] if file["split"]}
    shards |= {file["name"] for file in manifest["files"] if file["name"].startswith("__kept__/")}
    found += [f"{name}: not the oracle's" for name in shards - expected.keys()]
    return found


def looks_complete(out: str) -> bool:
    return os.path.exists(os.path.join(out, MANIFEST_NAME))
