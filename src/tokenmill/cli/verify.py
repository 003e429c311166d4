"""`tokenmill verify`: checks a dataset against its manifest, and its sources if asked to."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING

from tokenmill.cli.foreign_options import add_foreign_options, require_tokenizer_with
from tokenmill.cli.moving_line import MovingLine
from tokenmill.cli.run_options import add_option
from tokenmill.cli.screen import (
    labelled,
    parsed_count,
    printable,
    report_retries,
    shown_bytes,
    shown_count,
    shown_seconds,
)
from tokenmill.cli.usage import CommandParser
from tokenmill.errors import ConfigError, IntegrityError, UncheckedError
from tokenmill.wording.plural import noun_for

if TYPE_CHECKING:
    from tokenmill.dataset.made_with import NamedTokenizer
    from tokenmill.dataset.verify import Report


DESCRIPTION = """\
Check every file and token of a dataset: sizes, sha256, headers, ids, EOT ids and
document boundaries, and that no row was lost. Reads nothing outside the folder, unless
asked to encode documents again from the sources."""
EXAMPLES = """\
examples:
  tokenmill verify data/mine
  tokenmill verify data/mine --sample 1000
  tokenmill verify data/mine --full --source /mnt/moved/corpus
  tokenmill verify s3://bucket/mine
  tokenmill verify someones-shards --format llmc --tokenizer gpt2

For a dataset of tokenmill's, --tokenizer is the file of its tokenizer, if that moved.

exit codes: 5 if anything is wrong; 9 if nothing is, but something you asked for
could not be checked: a source has changed or moved, a tokenizer file is not here"""


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument(
        "folder", metavar="OUT", help="the folder that holds the shards, or its URL"
    )

    again = parser.add_argument_group("compare with the sources")
    how_much = again.add_mutually_exclusive_group()
    how_much.add_argument(
        "--sample", metavar="N", help="encode N documents again, with tiktoken, and compare"
    )
    how_much.add_argument("--full", action="store_true", help="all of them")
    again.add_argument(
        "--source",
        action="append",
        default=[],
        metavar="PATH",
        help="where the inputs are now, if they moved: a file, a folder or a glob; repeatable",
    )

    add_foreign_options(parser)
    add_option(parser, "num_proc", "files at a time (default: one per CPU)")
    parser.add_argument("--json", action="store_true", help="the report as JSON on stdout")
    parser.add_argument(
        "-q", "--quiet", action="store_true", help="only what is wrong or could not be checked"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="tracebacks with errors")


def run(arguments: argparse.Namespace) -> int:
    sample = 0 if arguments.sample is None else parsed_count(arguments.sample)
    if arguments.sample is not None and not sample:
        raise ConfigError("--sample must be positive", hint="--sample 100")
    moving = MovingLine(sys.stderr, arguments.quiet or arguments.json)
    try:
        from tokenmill.dataset.verify import verify
        from tokenmill.loader.packing.plan_check import check_row_plans

        report_retries()
        report = verify(
            arguments.folder,
            format_name=arguments.format,
            dtype=arguments.dtype,
            tokenizer=_tokenizer(arguments),
            eot=arguments.eot,
            sample=sample,
            full=arguments.full,
            sources=arguments.source,
            num_proc=arguments.num_proc,
            progress=moving.show,
            also=(check_row_plans,),
        )
    finally:
        moving.end()
    if arguments.json:
        print(json.dumps(report.to_plain(), indent=1))
    else:
        for line in shown(report, arguments.quiet):
            print(labelled(printable(line), sys.stderr, os.environ), file=sys.stderr)
    if not report.is_whole:
        return IntegrityError.exit_code
    if report.is_complete:
        return 0
    if arguments.json:
        return UncheckedError.exit_code
    raise UncheckedError(
        f"{report.folder}: not everything that was asked for could be checked",
        hint=next((check.hint for check in report.undone if check.hint), None),
    )


def _tokenizer(arguments: argparse.Namespace) -> NamedTokenizer | None:
    require_tokenizer_with(arguments)
    if arguments.tokenizer is None:
        return None
    from tokenmill.dataset.made_with import NamedTokenizer

    return NamedTokenizer(arguments.tokenizer, arguments.pattern, arguments.eot_token)


def shown(report: Report, quiet: bool = False) -> list[str]:
    """A report as lines for a terminal: every check, every fault, and the verdict."""
    lines = [] if quiet else _check_lines(report)
    for failure in report.failures:
        lines.append(f"wrong: {failure.place}: {failure.message}")
    if report.num_failures > len(report.failures):
        lines.append(f"wrong: and {report.num_failures - len(report.failures):,} more")
    for reason, names in _undone(report).items():
        lines.append(f"not checked: {', '.join(names)}: {reason}")
    if not report.is_whole:
        lines.append(f"error: {report.folder} failed verification")
        return [*lines, f"hint: {_advice(report)}"]
    if quiet or not report.is_complete:
        return lines
    skipped = [check.name for check in report.checks if check.status == "skipped"]
    lines.append(
        f"nothing wrong: {shown_count(report.num_tokens)} "
        f"{noun_for(report.num_tokens, 'token')}, {shown_bytes(report.num_bytes)} "
        f"in {shown_seconds(report.seconds)}"
        + (f"; not checked: {', '.join(skipped)}" if skipped else "")
    )
    return lines


def _undone(report: Report) -> dict[str, list[str]]:
    """The requested checks that were not made, by reason."""
    found: dict[str, list[str]] = {}
    for check in report.undone:
        found.setdefault(check.detail, []).append(check.name)
    return found


def _check_lines(report: Report) -> list[str]:
    from tokenmill.dataset.verify.checks import CHECKS

    width = max(len(check.name) for check in report.checks)
    lines = [f"{report.folder}: {report.format or 'format unknown'}"]
    for check in report.checks:
        is_bad = check.status in ("failed", "unable")
        detail = f"{CHECKS[check.name]}: see below" if is_bad else check.detail
        status = check.status.upper() if is_bad else check.status
        lines.append(f"  {status:7}  {check.name:{width}}  {detail}")
    return lines


def _advice(report: Report) -> str:
    status = {check.name: check.status for check in report.checks}
    if status.get("manifest") == "failed":
        if report.format is not None and "sizes" in status and status["sizes"] == "skipped":
            return (
                "for shards that tokenmill did not write: "
                f"tokenmill verify {report.folder} --format {report.format}"
            )
        return "restore the original tokenmill.json, or prepare the dataset again"
    if status.get("sources") == "skipped" and status.get("files") == "passed":
        return (
            f"to find the wrong documents: tokenmill verify {report.folder} --full; "
            "to make the dataset again: the `tokenmill prepare` command with --overwrite"
        )
    return "to make the dataset again: the `tokenmill prepare` command with --overwrite"
