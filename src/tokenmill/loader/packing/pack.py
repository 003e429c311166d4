"""Packs a dataset's documents into rows, split by split, in units of 65,536 documents.

A unit is packed on its own: this bounds memory, keeps the pieces of a row close together in the
shards, and leaves about one row in ten thousand poorly filled. The rows of a unit are then
shuffled, because packing begins with the longest documents.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np

from tokenmill.corpus.hub_names import is_hub_url
from tokenmill.dataset.content import Content
from tokenmill.dataset.opened import OpenedDataset
from tokenmill.dataset.places import dataset_folder
from tokenmill.dataset.split import Split
from tokenmill.errors import ConfigError, ConflictError, IntegrityError, unknown_name
from tokenmill.loader.order import Permutation
from tokenmill.loader.packing.best_fit import Numbers
from tokenmill.loader.packing.pack_report import PackReport, report_of
from tokenmill.loader.packing.pieces import LONG_POLICIES, RowPieces, packed
from tokenmill.loader.packing.row_plan import (
    MAX_SEQ_LEN,
    PlanWriter,
    RowPlan,
    SplitPlan,
    is_like_a_plan,
    new_plan,
    plan_path,
    sole_writer,
)
from tokenmill.storage.store import store_of

UNIT_DOCUMENTS = 1 << 16


@dataclass(frozen=True, kw_only=True, slots=True)
class PackOptions:
    """Raises ConfigError, with a hint, for values that contradict each other."""

    seq_len: int
    long: str = "split"
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.seq_len <= MAX_SEQ_LEN:
            raise ConfigError(
                f"a row has 1 to {MAX_SEQ_LEN:,} tokens, got {self.seq_len:,}",
                hint="--seq-len 2048",
            )
        if self.long not in LONG_POLICIES:
            raise unknown_name("policy for long documents", self.long, LONG_POLICIES)


def pack(
    dataset: OpenedDataset,
    options: PackOptions,
    path: str | None = None,
    overwrite: bool = False,
) -> RowPlan:
    """Write the plan of a dataset's rows, beside it unless a path is given, and open it. An
    existing plan for the same content and options is kept; another one is replaced only with
    `overwrite`, or if it is beside the dataset and was made for other tokens or documents. A
    damaged one is made again. At a given path, a file that is not a plan is never replaced."""
    is_beside = path is None
    if path is None:
        _require_own_place(dataset)
        path = plan_path(dataset_folder(dataset.path), options.seq_len)
    with sole_writer(path):
        found = _existing(path, is_beside)
        if found is not None:
            other = difference_from(found, dataset)
            differences = [f"for other {other}"] if other else _differences(found, options)
            if not differences:
                return found
            if not overwrite and not (other and is_beside):
                raise _conflict(path, differences)
        with new_plan(path) as writer:
            splits = {
                split: _split_plan(dataset[split], options, writer) for split in dataset.splits
            }
            writer.finish(asdict(options), splits)
    return RowPlan(path, is_new=True)


def opened_plan(path: str, dataset: OpenedDataset, seq_len: int, split: str) -> RowPlan:
    """The plan of rows of `seq_len` of a split. Raises ConfigError if there is none, ConflictError
    if it is for other tokens or documents."""
    again = f"tokenmill pack {dataset.path} --seq-len {seq_len}"
    try:
        plan = RowPlan(path)
    except FileNotFoundError:
        raise ConfigError(f"there is no plan of rows at {path}", hint=again) from None
    if plan.seq_len != seq_len:
        raise ConfigError(
            f"{path} has rows of {plan.seq_len:,} tokens, not {seq_len:,}",
            hint=f"seq_len={plan.seq_len}, or: {again}",
        )
    known, own = plan.splits.get(split), dataset[split]
    other = "tokens" if known is None else _other(known.content, own.content)
    if known is None or other:
        raise ConflictError(
            f"{path} was made for other {other} than those of {split} in {dataset.path}",
            hint=f"make it again: {again}",
        )
    if known.num_tokens != own.num_tokens:
        raise IntegrityError(f"{path} does not cover {split}", hint=again)
    return plan


def _require_own_place(dataset: OpenedDataset) -> None:
    if is_hub_url(dataset.opening.path):
        raise ConfigError(
            f"{dataset.opening.path} is on the Hub: a plan cannot be written beside it",
            hint="--plan FILE, and Loader(..., packed='FILE')",
        )


def _existing(path: str, is_beside: bool) -> RowPlan | None:
    """The plan that is there; None for none, or for a damaged one. Raises ConflictError for a file
    that never was a plan, unless it has the name of one beside the dataset."""
    try:
        plan = RowPlan(path)
        plan.check()
    except FileNotFoundError:
        return None
    except IntegrityError:
        found = store_of(path).stat(path)
        if (found is None or found.is_file) and (is_beside or is_like_a_plan(path)):
            return None
        raise ConflictError(
            f"{path} already exists, and is not a plan of rows",
            hint="--plan FILE with another name",
        ) from None
    return plan


def difference_from(plan: RowPlan, dataset: OpenedDataset) -> str | None:
    """What the plan was made for that the dataset does not have: its tokens, or its documents."""
    if plan.splits.keys() != set(dataset.splits):
        return "tokens"
    found = [_other(one.content, dataset[name].content) for name, one in plan.splits.items()]
    return "tokens" if "tokens" in found else next(filter(None, found), None)


def _other(was: Content, now: Content) -> str | None:
    if was.tokens != now.tokens:
        return "tokens"
    return "documents" if was.documents != now.documents else None


def _differences(plan: RowPlan, options: PackOptions) -> list[str]:
    """The options that a plan was made with and that differ now."""
    now = asdict(options)
    typed = [(_typed(name, was), _typed(name, now[name])) for name, was in plan.options.items()]
    return [f"with {was}, not {is_now}" for was, is_now in typed if was != is_now]


def _typed(name: str, value: object) -> str:
    return f"--{name.replace('_', '-')} {value}"


def _conflict(path: str, differences: list[str]) -> ConflictError:
    return ConflictError(
        f"{path} already exists, made {'; '.join(differences)}",
        hint="tokenmill pack --overwrite replaces it; --plan FILE puts this one elsewhere",
    )


def _split_plan(split: Split, options: PackOptions, writer: PlanWriter) -> SplitPlan:
    report, units = PackReport(options.seq_len), []
    for number, (starts, ends) in enumerate(_documents(split)):
        is_filled = ends > starts
        lengths = (ends - starts)[is_filled]
        pieces, num_rows = _rows_of(starts[is_filled], lengths, options, (split.name, number))
        report += report_of(pieces, lengths, int((~is_filled).sum()), options.seq_len)
        if num_rows:
            units.append(writer.unit(pieces, num_rows))
    return SplitPlan(split.content, split.num_tokens, report, tuple(units))


def _rows_of(
    starts: Numbers, lengths: Numbers, options: PackOptions, unit: tuple[str, int]
) -> tuple[RowPieces, int]:
    pieces = packed(starts, lengths, options.seq_len, options.long)
    num_rows = int(pieces.rows.max()) + 1 if len(pieces.rows) else 0
    order = Permutation(max(1, num_rows), options.seed, "pack", *unit)
    return pieces.in_order(num_rows, order(np.arange(num_rows))), num_rows


def _documents(split: Split) -> Iterator[tuple[Numbers, Numbers]]:
    """Where documents start and end, 65,536 at a time."""
    if not split.num_tokens:
        return
    start, held, num_held = 0, [np.empty(0, np.int64)], 0
    for ends in split.bounds.all_ends():
        held.append(ends)
        num_held += len(ends)
        if num_held >= UNIT_DOCUMENTS:
            every = np.concatenate(held)
            while len(every) >= UNIT_DOCUMENTS:
                unit, every = every[:UNIT_DOCUMENTS], every[UNIT_DOCUMENTS:]
                yield np.concatenate([[start], unit[:-1]]), unit
                start = int(unit[-1])
            held, num_held = [every], len(every)
    last = np.concatenate(held)
    if len(last):
        yield np.concatenate([[start], last[:-1]]), last
