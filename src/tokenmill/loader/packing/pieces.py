"""Documents as the pieces that rows are made of. Of a document longer than a row, --long decides:

split      it is cut into pieces of `seq_len`; the rest is packed like a document
truncate   only its first `seq_len` tokens are used
drop       it is left out
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tokenmill.loader.packing.best_fit import Numbers, best_fit_decreasing

LONG_POLICIES = ("split", "truncate", "drop")

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class RowPieces:
    """Stretches of the token stream, each of one document."""

    rows: Numbers  # the row that each goes to
    documents: Numbers
    starts: Numbers
    lengths: Numbers
    is_cut: Flags  # whether its document continues after it
    is_inside: Flags  # whether its document began before it

    def in_order(self, num_rows: int, order: Numbers) -> RowPieces:
        """The pieces sorted by row, with rows renumbered by `order`. In a row, pieces that begin a
        document come first, and a piece whose document continues comes last: its next token is a
        target."""
        rows = order[self.rows] if num_rows else self.rows
        by_row = np.lexsort((self.starts, self.is_inside, self.is_cut, rows))
        return RowPieces(
            rows[by_row],
            self.documents[by_row],
            self.starts[by_row],
            self.lengths[by_row],
            self.is_cut[by_row],
            self.is_inside[by_row],
        )


def packed(starts: Numbers, lengths: Numbers, seq_len: int, long: str) -> RowPieces:
    """The pieces of documents, none of which may be empty, and the row of each."""
    documents = np.arange(len(lengths))
    if long == "drop":
        documents = np.flatnonzero(lengths <= seq_len)
    if long == "split":
        counts = -(-lengths // seq_len)
        documents = np.repeat(documents, counts)
        number = np.arange(len(documents)) - np.repeat(np.cumsum(counts) - counts, counts)
    else:
        number = np.zeros(len(documents), np.int64)
    before = number * seq_len
    rest = lengths[documents] - before
    found = np.minimum(rest, seq_len)
    rows = best_fit_decreasing(found, seq_len)
    return RowPieces(rows, documents, starts[documents] + before, found, rest > seq_len, number > 0)
