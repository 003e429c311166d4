"""`tokenmill finish`: assembles the work of --partition tasks into a dataset."""

from __future__ import annotations

import argparse

from tokenmill.cli.run_options import add_option
from tokenmill.cli.usage import CommandParser

DESCRIPTION = """\
Assemble the work of `tokenmill prepare --partition I/N` tasks. Needs only OUT; the same
command resumes an interrupted run."""
EXAMPLES = """\
examples:
  tokenmill prepare corpus/ -o data/mine --partition 1/2
  tokenmill prepare corpus/ -o data/mine --partition 2/2
  tokenmill finish data/mine

exit code 6 if a task is still running, or has slices left"""


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument("out", metavar="OUT", help="the output folder of the tasks")
    add_option(
        parser,
        "max_bad_fraction",
        "fail if a larger fraction of rows is bad (default: 0.001)",
    )
    add_option(parser, "num_proc", "workers (default: one per CPU)")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON on stdout")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress, no summary")
    parser.add_argument("-v", "--verbose", action="store_true", help="tracebacks with errors")


def run(arguments: argparse.Namespace) -> int:
    from tokenmill.cli.progress import stderr_progress
    from tokenmill.cli.summary import print_summary
    from tokenmill.run.finish import finish
    from tokenmill.runners.machine import available_cpus
    from tokenmill.wording.plural import counted

    num_proc = arguments.num_proc
    workers = counted(num_proc or available_cpus(), "worker")
    with stderr_progress(lambda num_slices: workers, arguments.quiet) as progress:
        manifest = finish(arguments.out, progress, arguments.max_bad_fraction, num_proc)
        progress.end()
        print_summary(manifest, arguments.out, arguments, progress, 0)
    return 0
