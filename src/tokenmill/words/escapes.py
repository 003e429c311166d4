"""Text from anywhere, made safe to show: nothing in it controls a terminal or reorders a page."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable


def printable(
    text: str, keep_lines: bool = False, escaped: Callable[[str], str] = lambda escape: escape
) -> str:
    """The text with every control and format character shown as an escape, never sent raw.

    Documents and file names are hostile: an ESC in one must not reach the terminal. Bytes that are
    not UTF-8 (surrogates, as from `surrogateescape`) are shown as those bytes. `escaped` makes real
    escapes look different from text that looks like an escape.
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
