"""Makes untrusted text safe to show: nothing in it can control a terminal or reorder a page."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable


def printable(
    text: str, keep_lines: bool = False, escaped: Callable[[str], str] = lambda escape: escape
) -> str:
    """The text with control and format characters as escapes: an ESC in a document or a file name
    must not reach the terminal.

    Bytes that are not UTF-8 (surrogates from `surrogateescape`) are shown as `\\xNN`. `escaped` can
    mark real escapes, to tell them from text that looks like one.
    """
    return "".join(
        char
        if char == " " or (keep_lines and char == "\n") or unicodedata.category(char)[0] not in "CZ"
        else escaped(_escape(char))
        for char in text
    )


def _escape(char: str) -> str:
    if "\udc80" <= char <= "\udcff":
        return f"\\x{ord(char) - 0xDC00:02x}"
    return char.encode("unicode_escape").decode()
