"""Every byte of a part is compared when a shard task reads it (encode/part_sums.py)."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import tokenmill
from corpora import made_texts, write_corpus
from s3_server import Faults, dataset_in
from tests.test_prepare_s3 import files_in
from tokenmill.encode import part, part_sums
from tokenmill.errors import DamagedWorkError, NetworkError
from tokenmill.storage import retry

WAYS = {
    "in order": {},
    "shuffled": {"shuffle": True},
    "kept": {"keep": "text"},
    "shuffled and kept": {"shuffle": True, "keep": "text"},
    "without copies": {"dedup": "exact"},
    "shuffled, without copies": {"shuffle": True, "dedup": "exact", "keep": "text"},
}
each_way = pytest.mark.parametrize("options", WAYS.values(), ids=WAYS)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Several blocks and buckets of a small corpus, and no patience with the store."""
    monkeypatch.setattr(part_sums, "BLOCK_BYTES", 1024)
    monkeypatch.setattr("tokenmill.encode.buckets.BUCKET_BYTES", 12_000)
    monkeypatch.setattr(retry, "LONGEST_PAUSE_SECONDS", 0.02)
    monkeypatch.setattr(retry, "RETRY_SECONDS", 0.05)


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> str:
    texts = made_texts(36)
    return write_corpus("jsonl", tmp_path_factory.mktemp("corpus"), [*texts, *texts[:12]])


def prepared(source: str, out: str, options: dict[str, object]) -> tokenmill.Manifest:
    layout = {"format": "megatron", "val_fraction": 0.2, "slice_bytes": 12_000, "num_proc": 1}
    return tokenmill.prepare(source, out, **layout, **options)


def is_of_part(request: str) -> bool:
    return "/parts/" in request and ".hashes" not in request


@each_way
def test_prepare_when_a_bit_flips_on_its_way_then_it_is_read_again_and_the_bytes_are_right(
    options, source, s3, bucket, tmp_path
):
    here = str(tmp_path / "out")
    prepared(source, here, options)
    is_read = lambda r: r.startswith("GET") and is_of_part(r)  # noqa: E731
    prepared(source, f"s3://{bucket}/undisturbed", options)
    num_reads = sum(map(is_read, s3.requests))
    assert num_reads > 10
    for number in sorted({0, num_reads // 2, num_reads - 1}):
        reads = itertools.count()
        only = lambda r, n=number, reads=reads: is_read(r) and next(reads) == n  # noqa: E731
        faults = Faults(kinds=("flip",), only=only)
        with s3.failing(faults):
            prepared(source, f"s3://{bucket}/{number}/out", options)
        assert dataset_in(s3, bucket, f"{number}/out/") == files_in(here), number
        assert faults.num_injected == 1


@each_way
def test_prepare_when_a_part_was_changed_then_damaged_and_the_same_command_encodes_it_again(
    options, source, s3, bucket, tmp_path, share
):
    here, out = str(tmp_path / "out"), f"s3://{bucket}/out"
    prepared(source, here, options)
    stop = Faults(kinds=("cut before",), only=lambda r: r.startswith("PUT") and "/tasks/" in r)
    with s3.failing(stop), pytest.raises(NetworkError):
        prepared(source, out, options)
    parts = [key for key in s3.keys(bucket) if is_of_part(f"/{key}")]
    assert len(parts) > 2
    for key in parts[::share]:
        data = bytearray(s3.read(bucket, key))
        data[len(data) // 3] ^= 16
        s3.client().put_object(Bucket=bucket, Key=key, Body=bytes(data))
    num_damaged = 0
    while True:
        try:
            prepared(source, out, options)
        except DamagedWorkError as error:
            assert "run the same command again" in str(error)
            num_damaged += 1
            assert num_damaged <= len(parts)
        else:
            break
    assert num_damaged and dataset_in(s3, bucket) == files_in(here)


@pytest.mark.parametrize("num_buckets", [0, 7])
def test_part_when_any_byte_differs_then_it_is_noticed(num_buckets, tmp_path, monkeypatch):
    """On a disk; every byte but those that say nothing: there are none."""
    from tokenmill.assemble.sources import PartsInOrder, ShuffledParts
    from tokenmill.encode.record import Counts, part_path

    (tmp_path / "parts").mkdir()
    (tmp_path / "records").mkdir()
    documents = [bytes(np.arange(length, dtype="<u2")) for length in (3, 700, 0, 1, 50, 900, 6)]
    writer = part.PartWriter(str(tmp_path), 0, "uint16", num_buckets, seed=1)
    from tokenmill.arrays import binary_array_of

    writer.append(0, pa.record_batch([binary_array_of(documents)], [part.TOKENS]))
    record = writer.commit("0" * 64, Counts(), ())
    path = Path(part_path(str(tmp_path), 0, 0))
    whole = path.read_bytes()

    def read() -> list[bytes]:
        if num_buckets:
            shuffled = ShuffledParts(str(tmp_path), 0, "uint16", num_buckets)
            shuffled.save_chunks([record])
            blocks = list(shuffled.blocks())
            return [b"".join(map(bytes, shuffled.tokens(block.whole))) for block in blocks]
        ordered = PartsInOrder(str(tmp_path), 0, "uint16")
        [block] = ordered.blocks(0, record.chunks)
        lengths = ordered.lengths(block.whole).tobytes()
        return [b"".join(map(bytes, ordered.tokens(block.whole))), lengths]

    expected = read()
    assert sum(map(len, expected)) >= sum(map(len, documents))
    for at in range(0, len(whole), 5):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(DamagedWorkError, match="is not what was written there"):
            read()
    path.write_bytes(whole)
    assert read() == expected
