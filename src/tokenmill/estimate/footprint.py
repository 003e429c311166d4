"""The footprint: the bytes that tokens take, when finished and during a run.

There are two figures for each: the expected value, and an upper bound for any text and any order of
the workers. The bound counts every part and every shard at once, because one slow slice at the
front of the corpus lets all other parts pile up behind it. The expected value counts the parts that
wait for a shard, or a piece of one, to be complete.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tokenmill.assemble.fitting import SMALL_VAL_FRACTION
from tokenmill.config import Config
from tokenmill.encode.buckets import num_buckets_of
from tokenmill.encode.part import CHUNK_BYTES
from tokenmill.formats import DTYPE_BYTES, get_format
from tokenmill.runners.supervisor import ASSIGNMENTS_PER_WORKER
from tokenmill.storage import hashing
from tokenmill.storage.store import store_of

NUM_SPLITS = 2
LENGTH_BYTES = KEY_BYTES = 4  # of a document in a part, and of its key in a shuffle
BUCKET_START_BYTES = 16
OFFSET_BYTES = 4
# Beside tokens and documents: a record of a slice (docs/scale.md: 478 bytes) and its line in plan
# and manifest; an input in both; a shard in manifest, cursor and the format's own list. Two blocks
# of a file system for each file.
SLICE_BYTES = 1 << 13
INPUT_BYTES = 400
BAD_ROW_BYTES = 512  # besides its input's name; in the record and in the list of bad rows
SHARD_BYTES = 1 << 13
FIXED_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class _Cost:
    """What a format writes for a document besides its tokens, and for a token if it does not write
    the dtype's width."""

    document_bytes: float = 0.0
    max_document_bytes: float = 0.0
    max_token_bytes: float | None = None


_COSTS = {
    "megatron": _Cost(20, 20),
    "datatrove": _Cost(8, 8),
    # A row of five numbers and a name, compressed (formats/olmo.py) and uncompressed.
    "olmo": _Cost(13, 96),
    # An offset, a size and a length. Samples of --seq-len have an offset only.
    "mds": _Cost(11, 17),
    # Parquet has no 16-bit numbers: 4 bytes, the levels of a list, and what zstd adds to noise.
    "parquet": _Cost(0, 16, max_token_bytes=5.0),
}
# A plugin's format may store anything per document; this is more than ours store.
_PLUGIN_COST = _Cost(20, 96)


@dataclass(frozen=True, slots=True)
class Amount:
    """What is written: EOT ids are tokens."""

    num_tokens: float
    num_documents: float
    num_slices: int
    num_inputs: int
    name_bytes: int  # of all the inputs' names together
    planned_bytes: int  # of text, as the plan has it
    num_bad: float = 0  # rows that are quarantined


@dataclass(frozen=True, slots=True)
class Footprint:
    output_bytes: int  # of the shards and the files beside them
    disk_bytes: int  # the most that output and work folder hold together


def expected_footprint(
    config: Config, amount: Amount, num_proc: int, packed_bytes_per_token: float
) -> Footprint:
    """`config` is resolved. `packed_bytes_per_token` is for a format that compresses."""
    cost = _cost(config)
    width = DTYPE_BYTES[config.dtype]
    token_bytes = packed_bytes_per_token if cost.max_token_bytes else width
    output = _output_bytes(config, amount, token_bytes, cost.document_bytes)
    parts = _parts_bytes(config, amount)
    if not config.shuffle and config.runner != "ray":
        # Those of the shards that are being written, and those that wait for their turn.
        waiting = ASSIGNMENTS_PER_WORKER * num_proc * parts / max(1, amount.num_slices)
        parts = min(parts, 2 * _written_at_once(config) + waiting)
    disk = _disk_bytes(config, amount, output, parts)
    return Footprint(math.ceil(output), math.ceil(disk))


def max_footprint(config: Config, amount: Amount) -> Footprint:
    """The upper bound for a run that writes no more than `amount`."""
    cost = _cost(config)
    token_bytes = cost.max_token_bytes or DTYPE_BYTES[config.dtype]
    output = _output_bytes(config, amount, token_bytes, cost.max_document_bytes)
    output += SHARD_BYTES * _num_shards(config, amount)
    disk = _disk_bytes(config, amount, output, _parts_bytes(config, amount))
    return Footprint(math.ceil(output), math.ceil(disk))


def _cost(config: Config) -> _Cost:
    if config.format in _COSTS:
        return _COSTS[config.format]
    return _PLUGIN_COST if get_format(config.format).traits.boundaries else _Cost()


def _output_bytes(
    config: Config, amount: Amount, token_bytes: float, document_bytes: float
) -> float:
    format_ = get_format(config.format)
    beside = 0.0
    if format_.traits.boundaries and config.seq_len:  # samples: MDS has an offset for each
        beside = amount.num_tokens / config.seq_len * OFFSET_BYTES
    elif format_.traits.boundaries:
        beside = amount.num_documents * document_bytes
    header = len(format_.header(config.shard_tokens or 0, config.dtype))
    return amount.num_tokens * token_bytes + beside + _num_shards(config, amount) * header


def _num_shards(config: Config, amount: Amount) -> int:
    """An upper bound: the last shard of each split is not full."""
    shard_tokens = _shard_tokens(config)
    if shard_tokens is None:
        return NUM_SPLITS
    # Without --shard-tokens, a small dataset has some small shards.
    num_small = 0 if config.shard_tokens else round(1 / SMALL_VAL_FRACTION)
    return NUM_SPLITS + num_small + int(amount.num_tokens // shard_tokens)


def _shard_tokens(config: Config) -> int | None:
    return config.shard_tokens or get_format(config.format).defaults.shard_tokens


def _written_at_once(config: Config) -> float:
    """The tokens of one shard task, in bytes."""
    if get_format(config.format).traits.is_raw:
        return hashing.PIECE_BYTES
    return (_shard_tokens(config) or 0) * DTYPE_BYTES[config.dtype]


def _parts_bytes(config: Config, amount: Amount) -> float:
    """All parts: tokens, the length of each document, and the index for a shuffle."""
    document_bytes = LENGTH_BYTES + (KEY_BYTES if config.shuffle else 0)
    found = amount.num_tokens * DTYPE_BYTES[config.dtype] + amount.num_documents * document_bytes
    if config.shuffle:
        num_chunks = amount.num_slices + found / CHUNK_BYTES
        num_starts = NUM_SPLITS * (num_buckets_of(config, amount.planned_bytes) + 1)
        found += num_chunks * num_starts * BUCKET_START_BYTES
    return found


def _disk_bytes(config: Config, amount: Amount, output: float, parts: float) -> float:
    width = DTYPE_BYTES[config.dtype]
    shard_tokens = min(_shard_tokens(config) or amount.num_tokens, amount.num_tokens)
    traits = get_format(config.format).traits
    growing = 0.0
    if not traits.is_raw:
        # A shard is written from a file of its tokens, which is then removed.
        most = amount.num_tokens * width
        growing = min(most, NUM_SPLITS * shard_tokens * width)
    if traits.boundaries:
        growing += amount.num_documents * LENGTH_BYTES
    mean_name_bytes = amount.name_bytes / max(1, amount.num_inputs)
    bookkeeping = (
        amount.num_bad * 2 * (BAD_ROW_BYTES + mean_name_bytes)
        + amount.num_slices * SLICE_BYTES
        + amount.num_inputs * INPUT_BYTES
        + 2 * amount.name_bytes
        + _num_shards(config, amount) * SHARD_BYTES
        + FIXED_BYTES
    )
    if not store_of(config.out).takes_disk_space:
        # Only a shard that is being uploaded is on a disk.
        output = min(output, shard_tokens * output / max(1.0, amount.num_tokens))
        return output + growing + bookkeeping
    return output + parts + growing + bookkeeping
