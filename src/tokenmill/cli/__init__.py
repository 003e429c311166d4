"""The command line: one executable, one file per command.

`main` imports the module of the command that is called, and no other; that module imports what it
needs only when it runs, so that `--help` answers in well under 0.3 s.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Sequence

from tokenmill import __version__
from tokenmill.cli.commands import parser
from tokenmill.cli.screen import CheckedStdout, abandon_stdout, labelled, printable
from tokenmill.cli.signals import Interrupted, SignalStop, received_signal, unwind_on_signals
from tokenmill.errors import TokenmillError, shortage
from tokenmill.storage import retry


def main(argv: Sequence[str] | None = None) -> int:
    _open_closed_descriptors()
    words = sys.argv[1:] if argv is None else argv
    called = next((word for word in words if not word.startswith("-")), "")
    top, is_verbose = parser({called}), False
    try:
        arguments = top.parse_args(argv)
        arguments.owns_process = argv is None
        if arguments.command is None:
            top.print_help(sys.stderr)
            return 2
        is_verbose = arguments.verbose
        if arguments.owns_process:
            unwind_on_signals()
        retry.report_to(_say)
        with contextlib.redirect_stdout(CheckedStdout(sys.stdout)):
            code = int(arguments.run(arguments))
            sys.stdout.flush()
        return code
    except TokenmillError as error:
        return _explained(shortage(error) or error, is_verbose)
    except (KeyboardInterrupt, Interrupted) as stop:
        # A command without state to keep: die by the signal, without a traceback.
        signum = stop.signum if isinstance(stop, Interrupted) else signal.SIGINT
        SignalStop.die_by(signum)
        return 128 + signum
    except BrokenPipeError:
        # The reader of our stdout is gone: end like any filter, without a traceback.
        abandon_stdout()
        return 128 + signal.SIGPIPE
    except Exception as error:
        return _failed(error, is_verbose)


def _failed(error: Exception, is_verbose: bool) -> int:
    if signum := received_signal():
        SignalStop.die_by(signum)
    if (found := shortage(error)) is not None:
        return _explained(found, is_verbose)
    import traceback

    traceback.print_exc()
    _say(f"error: this is a bug in tokenmill {__version__}: {error!r}")
    _say("hint: what was done so far is kept; please report the lines above")
    return 1


def _explained(error: TokenmillError, is_verbose: bool) -> int:
    if is_verbose:
        import traceback

        traceback.print_exc()
    _say(f"error: {error.message}")
    if error.hint:
        _say(f"hint: {error.hint}")
    return error.exit_code


def _say(line: str) -> None:
    line = labelled(printable(line, keep_lines=True), sys.stderr, os.environ)
    with contextlib.suppress(OSError):  # nobody reads it: the terminal is closed
        print(line, file=sys.stderr)


def _open_closed_descriptors() -> None:
    """Put /dev/null where the caller closed stdin, stdout or stderr (`2>&-`).

    Otherwise the next opened files, perhaps shards, get these descriptors, and messages for stderr
    end up in them.
    """
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)
