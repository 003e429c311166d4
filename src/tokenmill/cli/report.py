"""`tokenmill report`: one page that shows what is in a dataset, or what differs between two."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from typing import TYPE_CHECKING

from tokenmill.cli.foreign_options import (
    add_foreign_options,
    commands_of,
    looked_into,
    readable,
    require_tokenizer_with,
)
from tokenmill.cli.moving_line import MovingLine
from tokenmill.cli.run_options import add_option
from tokenmill.cli.screen import printable, shown_bytes
from tokenmill.cli.usage import CommandParser
from tokenmill.errors import ConfigError, ConflictError
from tokenmill.storage import disk
from tokenmill.storage.store import store_of

if TYPE_CHECKING:
    from tokenmill.dataset.inspect import LookedInto
    from tokenmill.look.report.figures import Figures
    from tokenmill.look.report.places import Commands

DEFAULT_NAME = "report.html"


DESCRIPTION = """\
Show what is in a dataset, tokenmill's or not, as one HTML file without scripts that
loads nothing: document lengths, bytes per token along the corpus, the tokens in use,
sources, quarantine, duplicates, and documents with their tokens in colour. For two
datasets, show what differs. A large dataset is sampled, in the same way every time."""
EXAMPLES = """\
examples:
  tokenmill report data/mine
  tokenmill report data/mine --exact -o mine.html
  tokenmill report data/gpt2 data/o200k -o compared.html
  tokenmill report data/mine --markdown
  tokenmill report s3://bucket/mine
  tokenmill report llmc-shards/ --tokenizer gpt2"""


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument("folder", metavar="OUT", help="folder that holds the shards, or its URL")
    parser.add_argument("other", metavar="OUT2", nargs="?", help="another one, to compare with")
    parser.add_argument(
        "-o", "--out", metavar="FILE", help=f"the page (default: {DEFAULT_NAME}); - is stdout"
    )
    how = parser.add_argument_group("what is read and shown")
    how.add_argument("--exact", action="store_true", help="read all tokens, on all cores")
    how.add_argument("--no-text", action="store_true", help="no documents: for a page to share")
    how.add_argument("--json", action="store_true", help="the figures as JSON on stdout")
    how.add_argument("--markdown", action="store_true", help="a card for a README on stdout")
    add_option(how, "num_proc", "processes for --exact (default: one per CPU)")
    how.add_argument("-q", "--quiet", action="store_true", help="only errors")
    how.add_argument("-v", "--verbose", action="store_true", help="tracebacks with errors")

    add_foreign_options(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.owns_process:
        from tokenmill.runners.spawn import stay_single_threaded

        stay_single_threaded()  # so that it may fork
    require_consistent(arguments)
    moving = MovingLine(sys.stderr, arguments.quiet)
    try:
        folders = [arguments.folder, *([arguments.other] if arguments.other else [])]
        with readable():
            opened = [looked_into(folder, arguments) for folder in folders]
            found = [surveyed(looked, opened, arguments, moving) for looked in opened]
    finally:
        moving.end()
    show(found, arguments)
    return 0


def require_consistent(arguments: argparse.Namespace) -> None:
    """Raise ConfigError for options that contradict each other."""
    if arguments.json and arguments.markdown:
        raise ConfigError("--json and --markdown exclude each other", hint="leave one of them out")
    for option in ("json", "markdown"):
        if getattr(arguments, option) and arguments.out is not None:
            raise ConfigError(
                f"--{option} goes to standard output, and -o names a page",
                hint=f"tokenmill report {arguments.folder} --{option} > {arguments.out}",
            )
    require_tokenizer_with(arguments)
    if arguments.out not in (None, "-"):
        require_replaceable(arguments.out)
    elif arguments.out is None and not (arguments.json or arguments.markdown):
        require_replaceable(DEFAULT_NAME)


def require_replaceable(path: str) -> None:
    """Raise ConflictError if the file exists and is not a report."""
    from tokenmill.look.report.blocks import MARK

    if os.path.exists(path) and not os.path.isfile(path):
        raise ConflictError(f"{path} is not a regular file", hint="-o another.html")
    if os.path.exists(path) and MARK.encode() not in store_of(path).read(path)[:200]:
        raise ConflictError(
            f"{path} exists and is not a report of tokenmill", hint="-o another.html"
        )


@dataclasses.dataclass(frozen=True)
class Surveyed:
    looked: LookedInto
    commands: Commands
    figures: Figures


def surveyed(
    looked: LookedInto,
    compared: list[LookedInto],
    arguments: argparse.Namespace,
    moving: MovingLine,
) -> Surveyed:
    """The figures of a dataset. A split that has to be sampled in one of those that are compared is
    sampled in all of them."""
    from tokenmill.look.report.survey import SurveyOptions, is_quick, survey
    from tokenmill.runners.machine import available_cpus

    commands = commands_of(looked, arguments)
    reading = SurveyOptions(
        is_exact=arguments.exact,
        sampled=frozenset(
            name for one in compared for name in one.dataset.streams if not is_quick(one, name)
        ),
        with_text=not arguments.no_text,
        num_proc=arguments.num_proc or available_cpus(),
        progress=moving.show,
    )
    return Surveyed(looked, commands, survey(looked, reading, commands))


def show(found: list[Surveyed], arguments: argparse.Namespace) -> None:
    from tokenmill.look.report.card import card

    figures = [one.figures for one in found]
    if arguments.json:
        plain = [one.to_plain() for one in figures]
        print(json.dumps(plain[0] if len(plain) == 1 else plain, indent=1))
    elif arguments.markdown:
        print("\n".join(card(one) for one in figures), end="")
    else:
        save(page_of(found), figures[0], arguments)


def page_of(found: list[Surveyed]) -> bytes:
    from tokenmill.look.report.comparison import comparison_page
    from tokenmill.look.report.page import report_page
    from tokenmill.look.report.pairs import pairs_of

    if len(found) == 1:
        return report_page(found[0].figures)
    first, second = found
    pairs = pairs_of(first.figures, second.figures, second.looked, second.commands)
    return comparison_page(first.figures, second.figures, pairs)


def save(page: bytes, figures: Figures, arguments: argparse.Namespace) -> None:
    from tokenmill.look.report.words import how_measured
    from tokenmill.storage.output_errors import as_output_error

    if arguments.out == "-":
        sys.stdout.write(page.decode())
        return
    path = arguments.out or DEFAULT_NAME
    with as_output_error("write", path):
        disk.make_folder(os.path.dirname(path) or ".")
        store_of(path).write(path, page)
    if not arguments.quiet:
        line = f"{path}: {shown_bytes(len(page))}. {how_measured(figures)}"
        print(printable(line), file=sys.stderr)
