"""`tokenmill.pack`: `tokenmill pack`, as a function."""

from __future__ import annotations

import os

from tokenmill.config.arguments import suggesting
from tokenmill.dataset.opened import OpenedDataset, opened
from tokenmill.loader.packing.pack import PackOptions
from tokenmill.loader.packing.pack import pack as planned
from tokenmill.loader.packing.pack_report import PackReport
from tokenmill.loader.packing.written import rows_target, write_rows
from tokenmill.wording.quantities import Quantity, count_of


@suggesting
def pack(
    dataset: str | os.PathLike[str] | OpenedDataset,
    *,
    seq_len: Quantity,
    long: str = "split",
    seed: int = 0,
    plan: str | os.PathLike[str] | None = None,
    write: str | os.PathLike[str] | None = None,
    format: str | None = None,
    overwrite: bool = False,
) -> dict[str, PackReport]:
    """Plan rows of whole documents for `tokenmill.Loader(..., packed=True)`, and return a report
    for each split.

    long        what to do with documents longer than a row: "split", "truncate" or "drop"
    plan        where to write the plan; None: beside the dataset
    overwrite   replace a plan with other options, and the dataset in `write`
    write       a folder or URL: also write the rows there, as a dataset in `format`
    """
    options = PackOptions(seq_len=count_of("seq_len", seq_len), long=long, seed=seed)
    is_open = isinstance(dataset, OpenedDataset)
    data = dataset if isinstance(dataset, OpenedDataset) else opened(os.fspath(dataset))
    try:
        out = None if write is None else os.fspath(write)
        target = out and rows_target(data, options.seq_len, out, format, overwrite)
        found = planned(data, options, None if plan is None else os.fspath(plan), overwrite)
        if target:
            write_rows(data, found, target)
        return {name: split.report for name, split in found.splits.items()}
    finally:
        if not is_open:
            data.close()
