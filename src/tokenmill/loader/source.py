"""A source of the loader: a split of a dataset, by name, and what identifies its content.

With a manifest, the content is identified by the sha256 of every shard. Without one it is hashed in
64 places and by its length: other data is recognised, a single changed token is not.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tokenmill.dataset.encoding import is_same
from tokenmill.dataset.opened import OpenedDataset, opened
from tokenmill.dataset.split import Split
from tokenmill.errors import ConfigError
from tokenmill.loader.mixing import Stage, stage_of
from tokenmill.loader.options import LoaderOptions
from tokenmill.loader.order import RowOrder
from tokenmill.loader.rows import SplitRows

_PROBES = 64
_PROBE_TOKENS = 64

Given = str | os.PathLike[str] | OpenedDataset


@dataclass(frozen=True)
class Source:
    name: str
    dataset: OpenedDataset
    rows: SplitRows
    order: RowOrder

    @property
    def content(self) -> str:
        return content_of(self.dataset, self.rows.split)


def sources_of(given: Given | Mapping[str, Given], options: LoaderOptions) -> list[Source]:
    """Sorted by name, so that it does not matter in which order they are given."""
    named = given if isinstance(given, Mapping) else {"data": given}
    if not named:
        raise ConfigError("there are no sources", hint="Loader({'web': 'data/web'}, ...)")
    seq_len, split, shuffle = options.seq_len, options.split, options.shuffle
    found = []
    for name in sorted(named):
        one = named[name]
        dataset = one if isinstance(one, OpenedDataset) else opened(os.fspath(one))
        rows = SplitRows(dataset[split], seq_len, shuffle == "full")
        if not rows.num_rows:
            raise ConfigError(
                f"{name}: {dataset.path} has {rows.split.num_tokens:,} tokens of {split}, and a "
                f"row of seq_len {seq_len:,} needs {seq_len + 1:,}",
                hint=f"seq_len={max(1, rows.split.num_tokens - 1)}, or more data",
            )
        order = RowOrder(rows.num_rows, shuffle, options.seed, name)
        found.append(Source(name, dataset, rows, order))
    _require_one_tokenizer(found)
    return found


def _require_one_tokenizer(sources: Sequence[Source]) -> None:
    """Of the sources that say which made them: an id would mean two things in one batch."""
    known = [(one, one.dataset.made_with) for one in sources]
    named = [(one, made_with) for one, made_with in known if made_with is not None]
    for one, made_with in named[1:]:
        first, expected = named[0]
        if not is_same(made_with, expected):
            raise ConfigError(
                f"{first.name} was made with the tokenizer {expected.name}, {one.name} with "
                f"{made_with.name}: their ids cannot be mixed",
                hint=f"prepare {one.dataset.path} again with --tokenizer {expected.name}",
            )


def stages_of(sources: Sequence[Source], options: LoaderOptions) -> list[Stage]:
    """The stages in rows, the first of which begins with the run."""
    names = [source.name for source in sources]
    sizes = {source.name: source.rows.num_rows for source in sources}
    given = [(0, options.weights or sizes), *options.stages]
    found: list[Stage] = []
    for token, weights in sorted(given, key=lambda item: item[0]):
        row = (2 * token + options.seq_len) // (2 * options.seq_len)
        if found and row <= found[-1].start:
            raise ConfigError(
                f"two stages begin at row {row:,}",
                hint="weights= is the stage from token 0; stages= are those that follow",
            )
        found.append(stage_of(row, weights, names))
    return found


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
