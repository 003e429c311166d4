"""`--sample`: a fraction of the rows, spread over the whole corpus, the same ones every time.

A row is drawn by a hash of the seed, its file and its number. The file is identified by its name
and size, not its folder, so that a corpus that was moved or uploaded gives the same sample. In
files that are cut at bytes (JSON lines, text) the number of rows before a cut is unknown, so rows
are numbered from the last cut, and its byte is hashed too. A larger sample contains a smaller one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import xxhash

from tokenmill.corpus.readers import BYTE_KINDS, ReadOptions
from tokenmill.corpus.readers.rows import Rows
from tokenmill.corpus.spans import Span

_STEP = 0x9E3779B97F4A7C15


@dataclass(frozen=True, slots=True)
class Sampler:
    """Draws rows of one span."""

    key: int
    below: int  # hashes below this are drawn, of 2^64

    def drawn(self, first_row: int, num_rows: int) -> npt.NDArray[np.bool_]:
        """Which of these rows of the span are in the sample. splitmix64 of key and row."""
        with np.errstate(over="ignore"):
            state = np.arange(first_row + 1, first_row + num_rows + 1, dtype=np.uint64)
            state = state * np.uint64(_STEP) + np.uint64(self.key)
            state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            state ^= state >> np.uint64(31)
        chosen: npt.NDArray[np.bool_] = state <= np.uint64(self.below - 1)
        return chosen


def sampler_of(span: Span, options: ReadOptions) -> Sampler | None:
    """The sampler of a span; None without --sample."""
    if options.sample is None:
        return None
    source = span.input
    start = span.start if source.kind in BYTE_KINDS else 0
    name = source.name.rpartition("/")[2]
    key = xxhash.xxh3_64_intdigest(f"{start} {source.num_bytes} {name}".encode(), options.seed)
    first_row = (key + span.first_row * _STEP) & 0xFFFFFFFFFFFFFFFF
    return Sampler(first_row, max(1, int(options.sample * (1 << 64))))


def sampled(parts: Iterable[Rows], sampler: Sampler | None) -> Iterator[Rows]:
    """The rows of the span that are in the sample."""
    first_row = 0
    for part in parts:
        if sampler is None:
            yield part
            continue
        yield part.only(sampler.drawn(first_row, part.num_rows))
        first_row += part.num_rows
