"""The lengths of documents as a histogram on a log scale, with percentiles."""

from __future__ import annotations

import math

import numpy as np

from tokenmill.look.report.document_keys import Numbers
from tokenmill.look.report.figures import LengthBin, LengthFigures

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
