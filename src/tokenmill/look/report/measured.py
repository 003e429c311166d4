"""Measures documents of a split: their places, lengths and bytes of text.

All of them if the split was read whole, else the unbiased sample of `inspect`
(dataset/inspect/lengths.py); with the text of all in a split of up to 16M tokens, else of up to
2,000.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokenmill.dataset.inspect import LookedInto, Spans, TokenBytes, document_spans
from tokenmill.dataset.inspect.lengths import EXACT_TOKENS
from tokenmill.dataset.split import Split
from tokenmill.dataset.stream import Tokens
from tokenmill.look.report.document_keys import Numbers
from tokenmill.look.report.tally import BLOCK_TOKENS

MAX_MEASURED = 2000
FAR_MEASURED = 32
# Of a longer document only the beginning is read.
MAX_READ_TOKENS = 1 << 16


@dataclass(frozen=True, slots=True)
class MeasuredDocuments:
    """Documents by place. `ratios` are bytes per token, NaN where nothing was read."""

    starts: Numbers
    lengths: Numbers
    ratios: np.ndarray[tuple[int], np.dtype[np.float64]]
    is_exact: bool

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def num_read(self) -> int:
        return int(np.count_nonzero(~np.isnan(self.ratios)))


def measured(
    looked: LookedInto, split: Split, ends: Numbers | None = None
) -> MeasuredDocuments | None:
    """The measured documents, all of them if their `ends` are known; None if nothing says where
    documents end."""
    if ends is None:
        spans = document_spans(looked.dataset, split.name)
    else:
        lengths = np.diff(ends, prepend=0)
        spans = Spans(ends - lengths, lengths, is_exact=True)
    if spans is None:
        return None
    table = looked.token_bytes
    if table is None:
        ratios = np.full(len(spans.starts), np.nan)
    elif spans.is_exact and split.num_tokens <= EXACT_TOKENS:
        num_bytes = _all_bytes(split, table, spans)
        ratios = num_bytes / np.maximum(spans.lengths, 1)
    else:
        ratios = _some_ratios(split, table, spans, looked.dataset.files.is_far)
    return MeasuredDocuments(spans.starts, spans.lengths, ratios, spans.is_exact)


def _all_bytes(split: Split, table: TokenBytes, spans: Spans) -> Numbers:
    """The bytes of each document, of documents that follow one another."""
    ends = spans.starts + spans.lengths
    before = np.zeros(len(ends) + 1, np.int64)  # bytes up to each end
    total = 0
    for start in range(0, split.num_tokens, BLOCK_TOKENS):
        tokens = split.tokens(start, start + BLOCK_TOKENS)
        running = total + np.cumsum(lengths_of(table, tokens))
        here = (ends > start) & (ends <= start + len(tokens))
        before[1:][here] = running[ends[here] - start - 1]
        total = int(running[-1])
    return np.diff(np.maximum.accumulate(before))  # empty documents have no bytes


def _some_ratios(
    split: Split, table: TokenBytes, spans: Spans, is_far: bool
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    ratios = np.full(len(spans.starts), np.nan)
    most = FAR_MEASURED if is_far else MAX_MEASURED
    for number in range(0, len(ratios), max(1, -(-len(ratios) // most))):
        start, length = int(spans.starts[number]), int(spans.lengths[number])
        tokens = split.tokens(start, start + min(length, MAX_READ_TOKENS))
        ratios[number] = table.num_bytes(tokens) / max(1, len(tokens))
    return ratios


def lengths_of(table: TokenBytes, tokens: Tokens) -> Numbers:
    """The bytes of each token."""
    last = len(table.lengths) - 1
    return table.lengths[np.where((tokens < 0) | (tokens > last), last, tokens)]
