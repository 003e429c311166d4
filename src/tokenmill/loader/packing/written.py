"""The rows of a plan as a dataset of their own, in any format: `tokenmill pack --write`.

Its token stream is the rows, concatenated, each padded to `seq_len`. A row is a sample if the
format has samples, a document if it has documents, otherwise just `seq_len` tokens. `convert`
writes it, so it resumes and never leaves half a dataset. Its manifest says that documents have no
EOT ids, because a row's documents may be cut. A plan beside it says where pieces are in the rows,
so that `Loader(..., packed=True)` gives the same rows, masks included.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from tokenmill.dataset.convert import Target, convert, require_another_place
from tokenmill.dataset.convert_source import DatasetTokens
from tokenmill.dataset.dataset import Dataset
from tokenmill.dataset.manifest import Manifest
from tokenmill.dataset.opened import OpenedDataset, opened
from tokenmill.dataset.places import dataset_folder
from tokenmill.dataset.stream import Stream, StreamShard, Tokens
from tokenmill.errors import ConfigError, InputError
from tokenmill.formats import Layout, get_format
from tokenmill.loader.packing.pieces import RowPieces
from tokenmill.loader.packing.row_plan import (
    Row,
    RowPlan,
    SplitPlan,
    new_plan,
    plan_path,
    sole_writer,
)
from tokenmill.loader.packing.row_reader import RowReader
from tokenmill.runners.machine import available_cpus
from tokenmill.runners.threads import in_threads
from tokenmill.settings import whole_samples


def write_rows(dataset: OpenedDataset, plan: RowPlan, target: Target) -> Manifest:
    if not sum(len(split.units) for split in plan.splits.values()):
        raise InputError(f"{plan.path} has no rows: there is nothing to write")
    source = _as_dataset(dataset, plan, has_documents=_has_documents(target))
    _require_whole(dataset)
    manifest = convert(source, target, dataset.made_with)
    with opened(target.out) as written:
        _write_plan(plan, written)
    return manifest


def rows_target(
    dataset: OpenedDataset, seq_len: int, out: str, format: str | None, overwrite: bool
) -> Target:
    """Where rows go, in the dataset's format unless another one is named. Raises ConfigError for an
    impossible target before a plan is made."""
    found = get_format(format or dataset.format)
    target = Target(
        out=out,
        format=found.name,
        # No row is cut by the end of a shard.
        shard_tokens=whole_samples(found.defaults.shard_tokens, seq_len),
        seq_len=seq_len if found.traits.samples else None,
        overwrite=overwrite,
    )
    require_another_place(dataset.looked.dataset, target)
    return target


def _has_documents(target: Target) -> bool:
    return get_format(target.format).traits.boundaries and not target.seq_len


def _as_dataset(dataset: OpenedDataset, plan: RowPlan, has_documents: bool) -> Dataset:
    """The rows as a virtual dataset. The plan's id is in the name of its shard, so that a
    conversion is not resumed with another plan."""
    if dataset.made_with is None:
        raise ConfigError(
            f"{dataset.path} does not state its tokenizer",
            hint="name it: --tokenizer gpt2",
        )
    source, streams = dataset.looked.dataset, {}
    for name, split in plan.splits.items():
        reader = RowReader(dataset[name], plan)
        if split.units:
            shard = StreamShard(
                f"{name} rows of plan {plan.id}",
                functools.partial(_RowsShard, reader, has_documents),
                reader.units.num_rows * plan.seq_len,
                reader.units.num_rows if has_documents else None,
            )
            eot_id = dataset.made_with.eot_token
            streams[name] = Stream(name, [shard], has_documents, "none", eot_id)
    return dataclasses.replace(
        source,
        manifest=None,
        streams=streams,
        eot="none",
        eot_id=dataset.made_with.eot_token,
        inferred={},
        bos_id=None,  # a row may begin in the middle of a document
    )


class _RowsShard:
    """All rows of a split, as an open shard."""

    def __init__(self, reader: RowReader, has_documents: bool) -> None:
        self._reader = reader
        self.dtype = str(reader.split.dtype)
        self.num_tokens = reader.units.num_rows * reader.seq_len
        self.has_boundaries = has_documents

    def tokens(self, start: int, stop: int) -> Tokens:
        size = self._reader.seq_len
        first = start // size
        found = self._reader.rows(first, -(-stop // size))
        return found[start - first * size : stop - first * size]

    def ends(self) -> npt.NDArray[np.int64] | None:
        size = self._reader.seq_len
        return np.arange(size, self.num_tokens + 1, size) if self.has_boundaries else None


def _require_whole(dataset: OpenedDataset) -> None:
    """Compare every file with its sha256, so that no new manifest covers damaged tokens."""
    source = dataset.looked.dataset
    if source.manifest is None:
        return
    options, encoding = source.manifest.identity["options"], source.manifest.identity["encoding"]
    layout = Layout(
        format=source.format.name,
        name="",
        dtype=options["dtype"],
        shard_tokens=None,
        seq_len=0,
        first_shard_is_val=False,
        eot_id=encoding["eot_token"],
        encoding=encoding["name"],
        has_boundaries=False,
    )
    tokens = DatasetTokens(source, source.manifest, layout, "", may_cut=True)
    segments = (tokens.segments(split) for split in source.streams)
    checks: list[Callable[[], object]] = list(tokens.checks())
    checks += [functools.partial(tokens.scan, one) for one in itertools.chain(*segments)]
    with tokens.held:
        for _ in in_threads(lambda check: check(), checks, available_cpus()):
            pass


def _write_plan(plan: RowPlan, written: OpenedDataset) -> None:
    """Write the plan of the written rows. No document continues after a row."""
    splits, path = {}, plan_path(dataset_folder(written.path), plan.seq_len)
    with sole_writer(path), new_plan(path) as writer:
        for split in written.splits:
            units, done = [], 0
            for rows in plan.units(split).in_order():
                units.append(writer.unit(_moved(rows, done, plan.seq_len), len(rows)))
                done += len(rows)
            own, report = written[split], plan.splits[split].report
            splits[split] = SplitPlan(own.content, own.num_tokens, report, tuple(units))
        writer.finish(plan.options, splits)


def _moved(rows: list[Row], first: int, seq_len: int) -> RowPieces:
    counts = np.array([len(lengths) for _, lengths, _ in rows])
    lengths = np.array([length for _, row, _ in rows for length in row], np.int64)
    numbers = np.repeat(np.arange(len(rows)), counts)
    before = np.cumsum(lengths) - lengths
    within = before - np.repeat(before[np.cumsum(counts) - counts], counts)
    none = np.zeros(len(lengths), np.bool_)
    return RowPieces(numbers, numbers, (first + numbers) * seq_len + within, lengths, none, none)
