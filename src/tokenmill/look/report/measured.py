"""Measures documents of a split: their places, lengths and bytes of text.

All of them if the split was read whole, else the unbiased sample of `inspect`
(dataset/inspect/lengths.py); with the text of all in a split of up to 16M tokens, else of up to
2,000.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tokenmill.dataset.inspect import LookedInto, Spans, TokenBytes, document_spans
from tokenmill.dataset.inspect.lengths import EXACT_TOKENS
from tokenmill.dataset.split import Split
from tokenmill.dataset.stream import Tokens
from tokenmill.look.report.document_keys import Numbers
from tokenmill.look.report.figures import LengthBin, LengthFigures
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
        ratios = _some_ratios(split, table, spans, looked.dataset.files.is_local)
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
    split: Split, table: TokenBytes, spans: Spans, is_local: bool
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    ratios = np.full(len(spans.starts), np.nan)
    most = MAX_MEASURED if is_local else FAR_MEASURED
    for number in range(0, len(ratios), max(1, -(-len(ratios) // most))):
        start, length = int(spans.starts[number]), int(spans.lengths[number])
        tokens = split.tokens(start, start + min(length, MAX_READ_TOKENS))
        ratios[number] = table.num_bytes(tokens) / max(1, len(tokens))
    return ratios


def lengths_of(table: TokenBytes, tokens: Tokens) -> Numbers:
    """The bytes of each token."""
    last = len(table.lengths) - 1
    return table.lengths[np.where((tokens < 0) | (tokens > last), last, tokens)]


PERCENTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99)


def length_figures(lengths: Numbers, is_exact: bool) -> LengthFigures | None:
    if not len(lengths):
        return None
    # Nearest rank: each percentile is the length of a document.
    at = np.percentile(lengths, PERCENTILES, method="inverted_cdf")
    return LengthFigures(
        len(lengths),
        is_exact,
        float(lengths.mean()),
        {f"p{p}": int(value) for p, value in zip(PERCENTILES, at, strict=True)},
        int(lengths.min()),
        int(lengths.max()),
        _bins(lengths),
    )


def _bins(lengths: Numbers) -> tuple[LengthBin, ...]:
    """Two bins an octave, from the shortest document to the longest."""
    edges = bin_edges(int(lengths.min()), int(lengths.max()))
    counts, _ = np.histogram(lengths, edges)
    return tuple(
        LengthBin(low, high, int(count))
        for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True)
    )


def bin_edges(shortest: int, longest: int) -> list[int]:
    """Whole numbers, each about 1.41 times the one before; an empty document has its own bin."""
    edges = [0] if shortest == 0 else []
    step = 0 if shortest < 2 else math.floor(2 * math.log2(shortest)) - 1
    while not edges or edges[-1] <= longest:
        edge = math.ceil(2 ** (max(0, step) / 2))
        if not edges or edge > edges[-1]:
            edges.append(edge)
        step += 1
    first = max((i for i, edge in enumerate(edges) if edge <= shortest), default=0)
    return edges[first:]
