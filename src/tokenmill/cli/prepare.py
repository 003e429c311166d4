"""`tokenmill prepare`: turns text into shards."""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING

from tokenmill.cli import run_options
from tokenmill.cli.summary import print_summary
from tokenmill.cli.usage import CommandParser
from tokenmill.config import Config, Partition
from tokenmill.errors import ConfigError
from tokenmill.wording.quantities import count_of

if TYPE_CHECKING:
    from tokenmill.loader.packing.pack import PackOptions


DESCRIPTION = """\
Turn text into training-ready token shards. The same command resumes an interrupted run,
whatever interrupted it."""
EXAMPLES = """\
examples:
  tokenmill prepare corpus/*.parquet -o data/mine
  tokenmill prepare giant.txt --separator '<|endoftext|>' -o data/mine
  tokenmill prepare corpus/ --format llmc --tokenizer o200k_base --shuffle -o data/mine
  tokenmill prepare corpus/ --format mds --seq-len 4096 -o data/mine
  tokenmill prepare 's3://bucket/corpus/*.parquet' -o data/mine"""


def add_arguments(parser: CommandParser) -> None:
    run_options.add_sources(parser)
    run_options.add_run_options(parser)


def run(arguments: argparse.Namespace) -> int:
    config = run_options.config_from(arguments)
    share = None if arguments.partition is None else Partition.parsed(arguments.partition)
    if arguments.pack is not None and share is not None:
        raise ConfigError(
            "--pack needs the whole dataset, and --partition encodes only a share of it",
            hint=f"after `tokenmill finish`: tokenmill pack OUT --seq-len {arguments.pack}",
        )
    if arguments.dry_run:
        from tokenmill.cli import dry_run

        return dry_run.show_plan(config, arguments.json)
    if share is not None:
        from tokenmill.cli import partition

        return partition.run_and_report(config, share, arguments)
    return run_and_report(config, arguments)


def run_and_report(config: Config, arguments: argparse.Namespace) -> int:
    from tokenmill.cli.progress import stderr_progress
    from tokenmill.runners.start import started_runner, workers_of

    packing = _packing(arguments)
    with stderr_progress(partial(workers_of, config), arguments.quiet) as progress:
        with started_runner(config, arguments.owns_process) as runner:
            from tokenmill.prepare import run as run_mill  # heavy: loads while the workers load

            manifest = run_mill(config, runner, progress)
        progress.end()
        print_summary(manifest, config.out, arguments, progress, progress.text_bytes)
        if packing is not None:
            from tokenmill.cli import pack

            is_quiet = arguments.quiet or arguments.json
            pack.pack_prepared(config.out, packing, is_quiet, config.overwrite)
    return 0


def _packing(arguments: argparse.Namespace) -> PackOptions | None:
    """The options of --pack, which `demo` does not have. A mistake is noticed before the run."""
    if getattr(arguments, "pack", None) is None:
        return None
    from tokenmill.loader.packing.pack import PackOptions

    return PackOptions(seq_len=count_of("--pack", arguments.pack))
