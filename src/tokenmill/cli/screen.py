"""What the terminal shows: readable numbers, safe text, and errors of stdout."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from typing import Any, TextIO

from tokenmill.errors import OutputError
from tokenmill.wording.escapes import printable as printable  # noqa: PLC0414
from tokenmill.wording.quantities import parsed_count as parsed_count  # noqa: PLC0414
from tokenmill.wording.quantities import shown_bytes as shown_bytes  # noqa: PLC0414
from tokenmill.wording.quantities import shown_count as shown_count  # noqa: PLC0414
from tokenmill.wording.quantities import shown_rate as shown_rate  # noqa: PLC0414


class CheckedStdout:
    """stdout, with failed writes as OutputError, so that a full disk is not reported as our bug."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with _as_output_error():
            return self._stream.write(text)

    def flush(self) -> None:
        with _as_output_error():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def _as_output_error() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        abandon_stdout()
        raise OutputError(
            f"cannot write to standard output: {error.strerror}",
            hint="what was done is kept; make room, or send the output elsewhere",
        ) from None


def abandon_stdout() -> None:
    """Discard the rest of stdout's buffer, which Python would try to write again at exit."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def parsed_separator(text: str) -> str:
    r"""A separator as typed in a shell: \n, \t, \r, \0, \\ and \xNN are escapes."""
    names = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}
    return re.sub(
        r"\\(n|t|r|0|\\|x[0-9a-fA-F]{2})",
        lambda match: names.get(match[1]) or chr(int(match[1][1:], 16)),
        text,
    )


def shown_seconds(seconds: float) -> str:
    if seconds < 0.1:
        return f"{max(seconds, 0.01):.2f} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def report_retries() -> None:
    """Report requests that are retried for a while on stderr."""
    from tokenmill.storage import objects

    objects.report_retries_to(
        lambda message: print(printable(message), file=sys.stderr, flush=True)
    )
