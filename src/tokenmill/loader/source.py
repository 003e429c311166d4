"""A source of the loader: the rows of a split of a dataset, by name."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tokenmill.dataset.cache_folder import CacheFolder
from tokenmill.dataset.made_with import is_same
from tokenmill.dataset.opened import OpenedDataset, opened
from tokenmill.dataset.places import dataset_folder
from tokenmill.errors import ConfigError, unknown_name
from tokenmill.loader.block_cache import BlockCache, block_tokens_of
from tokenmill.loader.mixing import Stage, stage_of
from tokenmill.loader.options import LoaderOptions, PlanChoice
from tokenmill.loader.order import RowOrder
from tokenmill.loader.packed_rows import PackedRows
from tokenmill.loader.packing.pack import opened_plan
from tokenmill.loader.packing.row_plan import plan_path
from tokenmill.loader.rows import SourceRows, SplitRows

Given = str | os.PathLike[str] | OpenedDataset


@dataclass(frozen=True)
class Source:
    name: str
    dataset: OpenedDataset
    rows: SourceRows
    order: RowOrder

    @property
    def content(self) -> str:
        """Identifies the tokens, and the plan of packed rows, which is of known documents."""
        found = self.rows.split.token_content
        return (
            f"{found} in rows {self.rows.plan.id}" if isinstance(self.rows, PackedRows) else found
        )


def sources_of(given: Given | Mapping[str, Given], options: LoaderOptions) -> list[Source]:
    """Sorted by name, so that the order in which they are given does not matter."""
    named = given if isinstance(given, Mapping) else {"data": given}
    if not named:
        raise ConfigError("there are no sources", hint="Loader({'web': 'data/web'}, ...)")
    plans = _plans(sorted(named), options)
    found = []
    for name in sorted(named):
        one = named[name]
        dataset = one if isinstance(one, OpenedDataset) else opened(os.fspath(one))
        rows = _rows_of(dataset, options, plans[name])
        _require_rows(name, dataset, rows, options)
        _require_ids(name, rows, options)
        if options.extras and not isinstance(rows, PackedRows):
            _ = rows.split.bounds  # raises an error if there are no documents
        order = RowOrder(rows.num_rows, options.shuffle, options.seed, name)
        found.append(Source(name, dataset, rows, order))
    _require_one_tokenizer(found)
    return found


def _plans(names: Sequence[str], options: LoaderOptions) -> dict[str, PlanChoice]:
    """The plan of each source: a path, True for the one beside the data, False for none."""
    if not isinstance(options.packed, Mapping):
        if not isinstance(options.packed, bool) and len(names) > 1:
            raise ConfigError(
                f"packed={os.fspath(options.packed)!r} is one plan, and there are {len(names)} "
                "sources",
                hint=f"packed={{{names[0]!r}: PATH, ...}}, or packed=True: plans beside the data",
            )
        return dict.fromkeys(names, options.packed)
    for name in options.packed:
        if name not in names:
            raise unknown_name("source in packed", name, tuple(names))
    return {name: options.packed.get(name, False) for name in names}


def _rows_of(dataset: OpenedDataset, options: LoaderOptions, plan: PlanChoice) -> SourceRows:
    split, seq_len = dataset[options.split], options.seq_len
    cache = None
    if not split.files.is_local:
        folder = None
        if options.cache_dir is not None:
            folder = CacheFolder(options.cache_dir, options.cache_bytes, ".tokens")
        size = block_tokens_of(seq_len, options.shuffle == "full")
        cache = BlockCache(split, size, folder, dataset.content_key if folder else None)
    if plan is False:
        return SplitRows(split, seq_len, cache)
    path = plan_path(dataset_folder(dataset.path), seq_len) if plan is True else os.fspath(plan)
    return PackedRows(split, opened_plan(path, dataset, seq_len, options.split), cache)


def _require_rows(
    name: str, dataset: OpenedDataset, rows: SourceRows, options: LoaderOptions
) -> None:
    if rows.num_rows:
        return
    num_tokens, seq_len = rows.split.num_tokens, options.seq_len
    if isinstance(rows, PackedRows):
        raise ConfigError(
            f"{name}: the plan {rows.plan.path} has no row of {options.split}",
            hint=f"drop no document: tokenmill pack {dataset.path} --seq-len {seq_len}",
        )
    raise ConfigError(
        f"{name}: {dataset.path} has {num_tokens:,} tokens of {options.split}, and a "
        f"row of seq_len {seq_len:,} needs {seq_len + 1:,}",
        hint=f"seq_len={max(1, num_tokens - 1)}, or more data",
    )


def _require_ids(name: str, rows: SourceRows, options: LoaderOptions) -> None:
    """Raise ConfigError if the dtype is too narrow for the stored tokens."""
    stored = rows.split.dtype
    if np.dtype(options.dtype).itemsize < stored.itemsize:
        raise ConfigError(
            f"{name} has {stored} tokens, which do not fit into {options.dtype}",
            hint="dtype='int64'",
        )


def _require_one_tokenizer(sources: Sequence[Source]) -> None:
    """Raise ConfigError if two sources are known to be made with different tokenizers."""
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
    """The stages, in rows; the first begins with the run."""
    names = [source.name for source in sources]
    row_tokens = {source.name: source.rows.tokens_per_row for source in sources}
    sizes = {
        name: row_tokens[name] * one.rows.num_rows for name, one in zip(names, sources, strict=True)
    }
    given = [(0, options.weights or sizes), *options.stages]
    found: list[Stage] = []
    for token, weights in sorted(given, key=lambda item: item[0]):
        row = (2 * token + options.seq_len) // (2 * options.seq_len)
        if found and row <= found[-1].start:
            raise ConfigError(
                f"two stages begin at row {row:,}",
                hint="weights= is the stage from token 0; stages= are those that follow",
            )
        found.append(stage_of(row, weights, names, row_tokens))
    return found
