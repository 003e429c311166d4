"""What kind of text a token is: one word for each id of a vocabulary."""

from __future__ import annotations

from tokenmill.dataset.inspect import TokenBytes

KINDS = (
    "special",
    "word after a space",
    "word or piece of one",
    "other scripts",
    "number",
    "signs",
    "white space",
    "mixed",
    "part of a character",
    "no text",
)


def kinds_of(table: TokenBytes) -> list[str]:
    """The kind of every id."""
    kinds = [
        _kind(row) if length else "no text"
        for row, length in zip(table.table.to_pylist(), table.lengths.tolist(), strict=True)
    ]
    for token in table.special:
        kinds[token] = "special"
    return kinds[:-1]


def _kind(row: bytes) -> str:
    try:
        return kind_of_text(row.decode())
    except UnicodeDecodeError:
        return "part of a character"


def kind_of_text(text: str) -> str:
    word = text.removeprefix(" ")
    if not word.strip():
        return "white space"
    if word.isascii() and word.isalpha():
        return "word or piece of one" if word == text else "word after a space"
    if word.isnumeric():
        return "number"
    if not word.isascii() and any(char.isalpha() for char in word):
        return "other scripts"
    if not any(char.isalnum() for char in word):
        return "signs"
    return "mixed"
