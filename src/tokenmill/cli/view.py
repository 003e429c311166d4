"""`tokenmill view`: serves a page to this machine that opens any document or token of a dataset."""

from __future__ import annotations

import argparse
import errno
import os
import re
import sys
import threading
from typing import TYPE_CHECKING

from tokenmill.cli.foreign_options import (
    add_foreign_options,
    commands_of,
    looked_into,
    readable,
    require_tokenizer_with,
)
from tokenmill.cli.screen import printable
from tokenmill.cli.usage import Checked, CommandParser
from tokenmill.config.kinds import WHOLE
from tokenmill.errors import ConfigError, unknown_name

if TYPE_CHECKING:
    from tokenmill.dataset.inspect import LookedInto
    from tokenmill.look.view.server import ViewServer

_AT = re.compile(
    r"#?(?P<split>[^/?#]+)/((doc|token)/[0-9]+(\?m=[0-9a-f]+)?|step/[0-9]+\?[\w=&%.-]+)"
)


DESCRIPTION = """\
Serve a page, to this machine only, that opens any document or token offset of a
dataset, tokenmill's or not, local or in object storage: token boundaries in colour, ids
and bytes, search, links. Writes nothing; the page loads nothing from the network.
Ctrl-C ends it."""
EXAMPLES = """\
examples:
  tokenmill view data/mine
  tokenmill view data/mine --at train/token/1000000
  tokenmill view data/mine --compare o200k_base
  tokenmill view data/mine --loader run.json
  tokenmill view data/mine --no-browser --port 8800
  tokenmill view s3://bucket/mine
  tokenmill view llmc-shards/ --tokenizer gpt2"""


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument("folder", metavar="OUT", help="folder that holds the shards, or its URL")
    where = parser.add_argument_group("where it opens")
    where.add_argument("--split", metavar="NAME", help="train (default) or val")
    where.add_argument("--at", metavar="PLACE", help="train/doc/17, train/token/1000")
    where.add_argument(
        "--compare", metavar="NAME|FILE", help="also show the text in this tokenizer's tokens"
    )
    where.add_argument(
        "--loader",
        metavar="FILE.json",
        help="the arguments of a tokenmill.Loader: shows what its steps saw",
    )
    where.add_argument(
        "--source",
        action="append",
        default=[],
        metavar="PATH",
        help="where the inputs are now, if they moved: a file, a folder or a glob; repeatable",
    )
    where.add_argument(
        "--port", action=Checked, kind=WHOLE, default=0, help="default: any free one"
    )
    where.add_argument("--no-browser", action="store_true", help="only print the address")
    where.add_argument("-v", "--verbose", action="store_true", help="tracebacks with errors")

    add_foreign_options(parser)


def run(arguments: argparse.Namespace) -> int:
    require_consistent(arguments)
    with readable():
        server = server_of(arguments)
    with server:
        url = server.guard.url + fragment(server.view.looked, arguments)
        print(printable(url), flush=True)
        print_how_to_reach(server.guard.port)
        if not arguments.no_browser and has_screen():
            threading.Thread(target=open_browser, args=(url,), daemon=True).start()
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            print("\nended", file=sys.stderr)
    return 0


def require_consistent(arguments: argparse.Namespace) -> None:
    """Raise ConfigError for options that are wrong or contradict each other."""
    if not 0 <= arguments.port < 1 << 16:
        raise ConfigError(f"--port must be 0 to 65535, got {arguments.port}", hint="leave it out")
    require_tokenizer_with(arguments)
    if arguments.at is None:
        return
    if not _AT.fullmatch(arguments.at):
        raise ConfigError(
            f"--at takes a place, got {arguments.at!r}", hint="--at train/doc/17, or train/token/0"
        )
    if arguments.split is not None:
        raise ConfigError("--at already names the split", hint="leave --split out")


def server_of(arguments: argparse.Namespace) -> ViewServer:
    from tokenmill.encodings import get_encoding
    from tokenmill.look.view.dataset_view import DatasetView
    from tokenmill.look.view.server import ViewServer
    from tokenmill.look.view.steps import steps_of_file

    looked = looked_into(arguments.folder, arguments)
    commands = commands_of(looked, arguments)
    other = None if arguments.compare is None else get_encoding(arguments.compare)
    run = None if arguments.loader is None else steps_of_file(arguments.loader)
    fragment(looked, arguments)  # refuses an unknown split before anything listens
    try:
        return ViewServer(
            DatasetView(looked, commands, other, run, arguments.source), arguments.port
        )
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        why = "is in use" if error.errno == errno.EADDRINUSE else "needs privileges"
        raise ConfigError(
            f"port {arguments.port} of 127.0.0.1 {why}", hint="leave --port out for a free one"
        ) from None


def fragment(looked: LookedInto, arguments: argparse.Namespace) -> str:
    """The URL fragment of the place where the page opens."""
    from urllib.parse import quote

    if arguments.at is None and arguments.split is None:
        return ""
    split, _, rest = (arguments.at or arguments.split).removeprefix("#").partition("/")
    if split not in looked.dataset.streams:
        raise unknown_name("split", split, tuple(looked.dataset.streams))
    if not rest:
        rest = "doc/0" if looked.dataset.streams[split].knows_documents else "token/0"
    return f"#{quote(split, safe='')}/{rest}"


def print_how_to_reach(port: int) -> None:
    if os.environ.get("SSH_CONNECTION"):
        line = f"from your own machine: ssh -L {port}:127.0.0.1:{port} {os.uname().nodename}"
        print(printable(line), file=sys.stderr)
    line = "only this machine can open it, and only at this address; Ctrl-C ends it"
    print(line, file=sys.stderr, flush=True)


def has_screen() -> bool:
    """Whether a browser can open a window; a browser in the terminal would take it over."""
    return sys.platform == "darwin" or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )


def open_browser(url: str) -> None:
    import webbrowser

    webbrowser.open(url)
