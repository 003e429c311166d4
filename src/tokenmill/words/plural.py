"""Counts with their nouns, for messages: 1 document, 2 documents, 1,234 documents."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """The number and its noun. `plural` is for nouns that do not end in a plain s."""
    return f"{number:,} {noun_for(number, noun, plural)}"


def noun_for(number: float, noun: str, plural: str | None = None) -> str:
    """Only the noun, for numbers that are shown in another way."""
    return noun if number == 1 else plural or f"{noun}s"
