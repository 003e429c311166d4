"""Tokens as coloured spans: `<b class="t0" title="464">The</b>`.

A span is a token, or the tokens that share a character. Its title has the ids; its text is the
token's own text, except that invisible characters are shown as escapes, in `<i>`. Line breaks are
marked by the style sheet, so that copied text is unchanged. A special token is a `<u>`, which no
text can imitate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tokenmill.look.web.markup import Element, Node, element
from tokenmill.wording.escapes import printable

if TYPE_CHECKING:
    from tokenmill.dataset.inspect import TextPiece

NUM_SHADES = 4
_MARK = "\0"  # around an escape; `printable` never returns one


def token_spans(pieces: Sequence[TextPiece]) -> list[Element]:
    return [_span(number, piece) for number, piece in enumerate(pieces)]


def shown_text(text: str) -> str:
    """The text of a span, as the page shows it."""
    return printable(text, keep_lines=True)


def _span(number: int, piece: TextPiece) -> Element:
    ids = " ".join(map(str, piece.ids))
    if piece.kind == "text":
        return element("b", _shown(piece.text), class_=f"t{number % NUM_SHADES}", title=ids)
    return element("u", piece.text, class_=piece.kind, title=ids)


def text_runs(text: str) -> list[str]:
    """The shown text in runs: every second one is an escape, the others are plain text."""
    marked = printable(text, keep_lines=True, escaped=lambda escape: f"{_MARK}{escape}{_MARK}")
    return marked.split(_MARK)


def _shown(text: str) -> Iterator[Node]:
    for number, run in enumerate(text_runs(text)):
        if number % 2:
            yield element("i", run)
        elif "\n" in run:
            first, *rest = run.split("\n")
            yield first
            for line in rest:
                yield element("s", "\n")
                yield line
        elif run:
            yield run
