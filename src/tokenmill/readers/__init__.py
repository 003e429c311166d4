"""Readers: one input kind, one file. A reader cuts an input into spans and yields Arrow text.

A reader never decides what is done with a bad row: it yields null in its place and says why in
`bad`, and mill.py counts, quarantines or stops. It does not know about tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from tokenmill.corpus import Input, Span


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a reader has to know of the configuration."""

    text_column: str = "text"
    separator: str | None = None  # text files only; None: the whole file is one document
    replace_bad_text: bool = False  # invalid UTF-8 becomes U+FFFD (and is counted) instead of bad
    span_bytes: int = 32 << 20  # how much text a span should hold, about
    batch_bytes: int = 4 << 20  # how much text a batch should hold, about


@dataclass(frozen=True, slots=True)
class TextBatch:
    """Some consecutive rows of a span. `texts[i]` is row `first_row + i` of the span, from 0.

    `texts` is a `large_string` array of valid UTF-8; null where the row is null or bad.
    """

    texts: pa.LargeStringArray
    first_row: int
    bad: Mapping[int, str] = field(default_factory=dict)  # position in texts -> reason
    num_replaced: int = 0  # rows in which something was replaced by U+FFFD


class Reader(Protocol):
    def spans(self, source: Input) -> list[Span]:
        """Cut an input; plan time. Raises InputError/ConfigError for what can be known to fail."""

    def batches(self, span: Span) -> Iterator[TextBatch]:
        """The span's rows in order, in batches of about `batch_bytes`, memory bounded."""

    def place(self, span: Span, row: int) -> str:
        """Where row number `row` of the span is, for a person: 'row 17', 'line 18'."""
