"""Counts with their nouns, for messages: 1 document, 2 documents, 1,234 documents."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """The number and its noun. `plural` is for nouns whose plural is not noun + s."""
    return f"{number:,} {noun_for(number, noun, plural)}"


def noun_for(number: float, noun: str, plural: str | None = None) -> str:
    """The noun alone, for numbers that the caller formats."""
    return noun if number == 1 else plural or f"{noun}s"
