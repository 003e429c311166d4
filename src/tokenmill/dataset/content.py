"""Identifies what a split holds, wherever its files are, for loader states and row plans.

tokens      their number, 64 of them at each of 64 places, and the sha256 that a manifest gives each
            shard. So a file that was rewritten in place is noticed although its manifest stayed;
            a few changed tokens under the same manifest, or without one, may not be
documents   what separates them and how many each shard holds; and if the format stores where they
            end, the sha256 of the files that say so, or without a manifest 64 of the ends of each
            of 16 shards

Hashing everything would take a trainer minutes at every start; `tokenmill verify` does.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tokenmill.runners.threads import in_threads

if TYPE_CHECKING:
    from tokenmill.dataset.manifest import Manifest
    from tokenmill.dataset.split import Split

_PROBES = 64
_PROBE_TOKENS = 64
_PROBE_SHARDS = 16
_REQUESTS = 16  # at a time, to a store


@dataclass(frozen=True, slots=True)
class Content:
    tokens: str
    documents: str


def token_content(split: Split, manifest: Manifest | None) -> str:
    shards = [] if manifest is None else manifest.shards
    known = [[file.num_tokens, file.sha256] for file in shards if file.split == split.name]
    return _hash_of([split.num_tokens, known, _probed_tokens(split)])


def document_content(split: Split, manifest: Manifest | None) -> str:
    stream = split.stream
    ends: list[Any] = []
    if stream.has_boundaries and manifest is None:
        ends = _probed_ends(split)
    elif stream.has_boundaries and manifest is not None:
        beside = [file for file in manifest.files if file.split is None]
        ends = [file.sha256 for file in beside if file.num_documents is None]
    counts = [shard.num_documents for shard in stream.shards]
    return _hash_of([stream.has_boundaries, stream.eot, stream.eot_id, counts, ends])


def _probed_tokens(split: Split) -> str:
    starts = _places(max(0, split.num_tokens - _PROBE_TOKENS) + 1, _PROBES).tolist()
    found = hashlib.sha256()
    read = in_threads(
        lambda start: split.tokens(start, start + _PROBE_TOKENS),
        starts,
        1 if split.files.is_local else _REQUESTS,
    )
    for tokens in read:
        found.update(tokens.astype("<i8").tobytes())
    return found.hexdigest()


def _probed_ends(split: Split) -> list[list[int]]:
    stream = split.stream
    shards = _places(len(stream.shards), _PROBE_SHARDS)
    found = []
    for shard in shards.tolist():
        start, stop = stream.start_of(shard), stream.start_of(shard + 1)
        ends = split.bounds.ends_between(start, stop)
        found.append([shard, len(ends), *ends[_places(len(ends), _PROBES)].tolist()])
    return found


def _places(size: int, count: int) -> npt.NDArray[np.int64]:
    """Up to `count` numbers below `size`, from the first to the last."""
    return np.unique(np.arange(count) * max(0, size - 1) // (count - 1))[:size]


def _hash_of(plain: Any) -> str:
    return hashlib.sha256(json.dumps(plain).encode()).hexdigest()[:16]
