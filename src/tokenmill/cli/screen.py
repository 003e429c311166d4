"""What the terminal shows: readable numbers, safe text, tokens in colour, and errors of stdout."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from tokenmill.errors import OutputError
from tokenmill.wording.escapes import printable as printable  # noqa: PLC0414
from tokenmill.wording.quantities import parsed_count as parsed_count  # noqa: PLC0414
from tokenmill.wording.quantities import shown_bytes as shown_bytes  # noqa: PLC0414
from tokenmill.wording.quantities import shown_count as shown_count  # noqa: PLC0414
from tokenmill.wording.quantities import shown_rate as shown_rate  # noqa: PLC0414

if TYPE_CHECKING:
    from tokenmill.dataset.inspect import TextPiece


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


BOUNDARY = "│"
RESET = "\x1b[0m"
# Black on light blue, green, yellow and pink.
_TOKENS = tuple(f"\x1b[38;5;16;48;5;{colour}m" for colour in (153, 194, 229, 225))
_SPECIAL = "\x1b[1;38;5;231;48;5;90m"
_UNKNOWN = "\x1b[1;38;5;231;48;5;160m"
_ESCAPE, _NO_ESCAPE = "\x1b[38;5;160m", "\x1b[38;5;16m"
_ASKED_FOR = "\x1b[1;4m"
_MATCH = "\x1b[1;38;5;16;48;5;220m"
# The 16 basic colours, which every terminal makes readable on its own background.
_LABELS = {
    "error": "\x1b[1;31m",
    "wrong": "\x1b[1;31m",
    "warning": "\x1b[1;33m",
    "hint": "\x1b[1;36m",
}


def is_coloured(choice: str, stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Whether to use colours: as the user chose, or for "auto" if the stream is a terminal."""
    if choice != "auto":
        return choice == "always"
    is_plain = environment.get("NO_COLOR") or environment.get("TERM") == "dumb"
    return stream.isatty() and not is_plain


def labelled(line: str, stream: TextIO, environment: Mapping[str, str]) -> str:
    """The line, with its label (`error:`, `hint:`) in colour where colour is on."""
    label, colon, rest = line.partition(":")
    if not colon or label not in _LABELS or not is_coloured("auto", stream, environment):
        return line
    return f"{_LABELS[label]}{label}:{RESET}{rest}"


def coloured(pieces: Sequence[TextPiece], asked_for: int | None = None) -> str:
    """Tokens in alternating colours; `asked_for` is the number of a token to highlight.

    Foreground and background are both set, so that it looks the same on dark and light screens.
    Colours end before every line break, because a terminal fills the rest of a line with the
    current colour.
    """
    found, num_tokens = [], 0
    for number, piece in enumerate(pieces):
        colour = _TOKENS[number % len(_TOKENS)]
        colour = {"special": _SPECIAL, "unknown": _UNKNOWN}.get(piece.kind, colour)
        if asked_for is not None and num_tokens <= asked_for < num_tokens + len(piece.ids):
            colour += _ASKED_FOR
        num_tokens += len(piece.ids)
        *lines, last = piece.text.split("\n")
        found += [f"{colour}{_safe(line)}↵{RESET}\n" for line in lines]
        if last:
            found.append(f"{colour}{_safe(last)}{RESET}")
    return "".join(found)


def plain(pieces: Sequence[TextPiece], boundaries: bool) -> str:
    """Tokens without colours; special ones in brackets, so that text cannot imitate them."""
    shown = [
        printable(piece.text, keep_lines=True)
        if piece.kind == "text"
        else f"⟦{printable(piece.text)}⟧"
        for piece in pieces
    ]
    return (BOUNDARY if boundaries else "").join(shown)


def marked(before: str, match: str, after: str, with_colour: bool) -> str:
    """A search hit on one line."""
    start, end = (_MATCH, RESET) if with_colour else ("[[", "]]")
    return f"{printable(before)}{start}{printable(match)}{end}{printable(after)}"


def _safe(text: str) -> str:
    return printable(text, escaped=lambda escape: f"{_ESCAPE}{escape}{_NO_ESCAPE}")
