"""`tokenmill pack`: plans rows of whole documents before training."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from tokenmill.cli.run_options import add_option
from tokenmill.cli.screen import printable
from tokenmill.cli.usage import CommandParser
from tokenmill.wording.quantities import count_of

if TYPE_CHECKING:
    from tokenmill.dataset.opened import OpenedDataset
    from tokenmill.loader.packing.pack import PackOptions
    from tokenmill.loader.packing.row_plan import RowPlan


DESCRIPTION = """\
Plan rows of whole documents, for tokenmill.Loader(..., packed=True): a small file
beside the dataset says which documents go into which row. The tokens do not change.
Prints what happens to the documents."""
EXAMPLES = """\
examples:
  tokenmill pack data/mine --seq-len 2048
  tokenmill pack data/mine --seq-len 2048 --long truncate
  tokenmill pack data/mine --seq-len 2048 --write s3://bucket/rows --format mds"""


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument("folder", metavar="OUT", help="folder or URL of a dataset")
    parser.add_argument("--seq-len", required=True, metavar="N", help="tokens per row")
    parser.add_argument(
        "--long",
        default="split",
        metavar="POLICY",
        help="for documents longer than a row: split (default), truncate or drop",
    )
    add_option(parser, "seed", "for the order of rows")
    parser.add_argument("--plan", metavar="FILE", help="the plan's file (default: one in OUT)")
    parser.add_argument(
        "--write", metavar="DIR", help="also write the rows, padded, as a dataset: a folder or URL"
    )
    parser.add_argument("--format", metavar="NAME", help="of --write (default: OUT's)")
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="replace a plan with other options, and the dataset in DIR once the new one is "
        "complete",
    )
    parser.add_argument("--tokenizer", metavar="NAME|FILE", help="if tokenmill did not write OUT")
    parser.add_argument("--json", action="store_true", help="print the report as JSON on stdout")
    parser.add_argument("-q", "--quiet", action="store_true", help="no report")
    parser.add_argument("-v", "--verbose", action="store_true", help="tracebacks with errors")


def run(arguments: argparse.Namespace) -> int:
    from tokenmill.dataset.opened import opened
    from tokenmill.errors import ConfigError
    from tokenmill.loader.packing.pack import PackOptions

    if arguments.write is None and arguments.format:
        raise ConfigError(
            "--format is for --write: a plan has no format",
            hint="--write DIR writes the rows as a dataset",
        )
    options = PackOptions(
        seq_len=count_of("--seq-len", arguments.seq_len),
        long=arguments.long,
        seed=arguments.seed or 0,
    )
    with opened(arguments.folder, tokenizer=arguments.tokenizer) as dataset:
        pack_and_report(dataset, options, arguments)
    return 0


def pack_and_report(
    dataset: OpenedDataset, options: PackOptions, arguments: argparse.Namespace
) -> None:
    from tokenmill.loader.packing.pack import pack
    from tokenmill.loader.packing.written import rows_target, write_rows
    from tokenmill.storage.address import require_lasting

    out, overwrite = arguments.write, arguments.overwrite
    target = out and rows_target(dataset, options.seq_len, out, arguments.format, overwrite)
    if out:
        require_lasting(out)
    plan = pack(dataset, options, arguments.plan, overwrite)
    report(plan, arguments)
    if target:
        write_rows(dataset, plan, target)
        if not arguments.quiet:
            print(printable(f"rows written to {arguments.write}"), file=sys.stderr)


def pack_prepared(out: str, options: PackOptions, is_quiet: bool, overwrite: bool) -> None:
    """`prepare --pack`: plan the rows of the dataset that was just finished."""
    from tokenmill.dataset.opened import opened
    from tokenmill.loader.packing.pack import pack

    with opened(out) as dataset:
        plan = pack(dataset, options, overwrite=overwrite)
    if not is_quiet:
        _show(plan)


def report(plan: RowPlan, arguments: argparse.Namespace) -> None:
    if arguments.json:
        splits = {name: split.report.to_plain() for name, split in plan.splits.items()}
        print(json.dumps({"plan": plan.path, **plan.options, "splits": splits}))
    elif not arguments.quiet:
        _show(plan)


def _show(plan: RowPlan) -> None:
    lines = [line for name, one in plan.splits.items() for line in one.report.lines(name)]
    there = "" if plan.is_new else " (already there)"
    for line in [*lines, f"plan: {plan.path}{there}"]:
        print(printable(line), file=sys.stderr)
