"""`tokenmill doctor`: shows what this machine allows, or runs a script and says why it died."""

from __future__ import annotations

import argparse
import os
import resource
import signal
import sys

from tokenmill.cli.screen import printable
from tokenmill.cli.usage import CommandParser

DESCRIPTION = """\
Run a command, and when it or one of its processes dies, say which, by which signal,
with how much memory, and which known cause fits. Without a command: what this machine
really allows."""
EXAMPLES = "example: tokenmill doctor -- python data/fineweb/prepare.py"


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument(
        "script", nargs=argparse.REMAINDER, metavar="-- COMMAND ...", help="your own command"
    )


def run(arguments: argparse.Namespace) -> int:
    from tokenmill import doctor

    command = arguments.script[1:] if arguments.script[:1] == ["--"] else arguments.script
    if not command:
        for topic, found in doctor.examination().items():
            print(f"{topic:15}  {printable(found)}")
        print("\nTo watch a script: tokenmill doctor -- python prepare.py")
        return 0
    watched = doctor.watch(command)
    lines = [doctor.healthy_line(watched)] if watched.is_fine else ["", *doctor.report(watched)]
    print("\n".join(lines), file=sys.stderr)
    if watched.code < 0:
        die_by(-watched.code)
    return watched.code


def die_by(signum: int) -> None:
    """End by the same signal as the command, so that our caller sees the same exit status."""
    sys.stdout.flush()
    sys.stderr.flush()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if signum != signal.SIGKILL:
        signal.signal(signum, signal.SIG_DFL)
    os.kill(os.getpid(), signum)
