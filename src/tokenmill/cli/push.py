"""`tokenmill push`: uploads a finished dataset to the Hugging Face Hub."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from tokenmill.cli.moving_line import MovingLine
from tokenmill.cli.screen import printable, shown_bytes, shown_seconds
from tokenmill.cli.usage import CommandParser
from tokenmill.wording.plural import counted

if TYPE_CHECKING:
    from tokenmill.dataset.push import Pushed


DESCRIPTION = """\
Upload a finished dataset to a dataset repository on the Hugging Face Hub, with its
manifest and a dataset card. It is verified first, and afterwards the Hub's listing is
compared with the manifest. The same command resumes an interrupted upload: files that
are there are not sent again."""
EXAMPLES = """\
examples:
  tokenmill push data/mine my-name/mine
  tokenmill push data/mine my-lab/mine --private
  tokenmill push data/meg my-name/mine --revision megatron    a branch for another format

Log in first: `hf auth login`, or set HF_TOKEN. The card names no licence; add one on
the page. A README.md that you wrote or edited there is kept."""


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument("folder", metavar="OUT", help="the folder of the dataset")
    parser.add_argument("repo", metavar="OWNER/NAME", help="created if it does not exist")
    parser.add_argument(
        "--private", action="store_true", help="create it for you or OWNER's members only"
    )
    parser.add_argument(
        "--revision",
        default="main",
        metavar="BRANCH",
        help="created if it does not exist (default: main)",
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="replace another dataset that is there"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON on stdout")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress, no summary")
    parser.add_argument("-v", "--verbose", action="store_true", help="tracebacks with errors")


def run(arguments: argparse.Namespace) -> int:
    from huggingface_hub.utils.tqdm import disable_progress_bars

    from tokenmill.dataset.push import push

    is_quiet = arguments.quiet or arguments.json
    if is_quiet or not sys.stderr.isatty():
        # The client's own bars, which show the progress within a file.
        disable_progress_bars()
    moving = MovingLine(sys.stderr, is_quiet)

    def notice(message: str) -> None:
        moving.end()
        print(printable(f"warning: {message}"), file=sys.stderr, flush=True)

    began = time.monotonic()
    try:
        pushed = push(
            arguments.folder,
            arguments.repo,
            revision=arguments.revision,
            private=arguments.private,
            overwrite=arguments.overwrite,
            notice=notice,
            progress=moving.show,
        )
    except KeyboardInterrupt:
        moving.end()
        print("stopped; the same command sends what is missing", file=sys.stderr)
        raise
    finally:
        moving.end()
    if arguments.json:
        print(json.dumps(asdict(pushed), indent=1))
    elif not arguments.quiet:
        for line in summary(arguments.folder, pushed, time.monotonic() - began):
            print(printable(line), file=sys.stderr)
    return 0


def summary(folder: str, pushed: Pushed, seconds: float) -> list[str]:
    head = f"{pushed.repo} already has all of {folder}; nothing to do"
    if pushed.num_sent:
        sent = f"{counted(pushed.num_sent, 'file')}, {shown_bytes(pushed.sent_bytes)} sent"
        head = f"{folder} -> {pushed.repo}: {sent} in {shown_seconds(seconds)}"
    at = "" if pushed.revision == "main" else f"/tree/{pushed.revision}"
    note = "the card names no licence; add `license:` to its header on the page"
    if pushed.has_own_card:
        note = "README.md there is yours and was kept"
    return [
        head,
        f"  {pushed.url}{at}",
        f"  {counted(pushed.num_files, 'file')}, {shown_bytes(pushed.num_bytes)}: sizes and hashes "
        f"on the Hub match the manifest; commit {pushed.commit[:12]}",
        f"  note: {note}",
    ]
