"""`tokenmill prepare --partition I/N`: runs one task of many, and says how many slices are left."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shlex
import sys
from functools import partial
from typing import TYPE_CHECKING

from tokenmill.cli.screen import printable
from tokenmill.cli.summary import shown_speed
from tokenmill.wording.plural import counted

if TYPE_CHECKING:
    from tokenmill.config import Config, Partition
    from tokenmill.run.partition import PartitionReport


def run_and_report(config: Config, partition: Partition, arguments: argparse.Namespace) -> int:
    from tokenmill.cli.progress import stderr_progress
    from tokenmill.runners.start import started_runner, workers_of

    with stderr_progress(partial(workers_of, config), arguments.quiet) as progress:
        with started_runner(config, arguments.owns_process) as runner:
            from tokenmill.run.partition import (
                encode_partition,  # heavy: loads while the workers load
            )

            report = encode_partition(config, partition, runner, progress)
        progress.end()
        seconds = progress.seconds
        command = finish_command(config, arguments)
        if arguments.json:
            found = {**dataclasses.asdict(report), "partition": str(partition)}
            found |= {"seconds": round(seconds, 3), "out": config.out, "finish": command}
            print(json.dumps(found))
        elif not arguments.quiet:
            for line in summary(report, command, seconds, progress.text_bytes):
                print(printable(line), file=sys.stderr)
    return 0


def finish_command(config: Config, arguments: argparse.Namespace) -> str:
    """The command to type when all tasks are done."""
    words = ["tokenmill", "finish", config.out]
    usual = type(config).max_bad_fraction
    if "max_bad_fraction" in arguments or config.max_bad_fraction != usual:
        words += ["--max-bad-fraction", str(config.max_bad_fraction)]
    return shlex.join(words)


def summary(report: PartitionReport, command: str, seconds: float, text_bytes: int) -> list[str]:
    head = (
        f"partition {report.partition}: {report.num_own:,} of {counted(report.num_slices, 'slice')}"
    )
    if report.is_finished:
        return [f"{head}; the run is already complete, nothing to do"]
    lines = [
        f"{head}, {counted(report.counts.num_written, 'document')}, "
        f"{counted(report.num_tokens, 'token')}{shown_speed(seconds, text_bytes)}"
    ]
    if report.num_missing is None:
        lines.append(f"  when all tasks have finished: {command}")
    elif report.num_missing:
        lines.append(
            f"  still missing: {counted(report.num_missing, 'slice')} of other partitions; "
            f"when all tasks have finished: {command}"
        )
    else:
        lines.append(f"  all slices are encoded; when all tasks have finished: {command}")
    return lines
