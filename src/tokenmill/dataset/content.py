"""Identifies the tokens of a split, wherever its files are, for loader states and row plans.

With a manifest, the sha256 of every shard. Without one, the number of tokens and 64 tokens at each
of 64 places: other data is noticed, a single changed token is not. Hashing all of them would take a
trainer minutes at every start.
"""

from __future__ import annotations

import hashlib
import json

from tokenmill.dataset.opened import OpenedDataset
from tokenmill.dataset.split import Split

_PROBES = 64
_PROBE_TOKENS = 64


def content_of(dataset: OpenedDataset, split: Split) -> str:
    if dataset.manifest is None:
        return _sampled(split)
    shards = [[f.num_tokens, f.sha256] for f in dataset.manifest.shards if f.split == split.name]
    return hashlib.sha256(json.dumps(shards).encode()).hexdigest()[:16]


def _sampled(split: Split) -> str:
    found = hashlib.sha256(str(split.num_tokens).encode())
    for number in range(_PROBES):
        start = number * max(0, split.num_tokens - _PROBE_TOKENS) // (_PROBES - 1)
        found.update(split.tokens(start, start + _PROBE_TOKENS).astype("<i8").tobytes())
    return found.hexdigest()[:16]
