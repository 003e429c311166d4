"""Which ids a dataset uses: the most frequent ones, and those that were never seen, by kind."""

from __future__ import annotations

import numpy as np

from tokenmill.dataset.inspect import TextPiece, TokenBytes, pieces
from tokenmill.look.report.document_keys import Numbers
from tokenmill.look.report.figures import KindFigures, TokenCount, TokenFigures

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


NUM_MOST = 30
NUM_UNSEEN = 12


def token_figures(counts: Numbers, table: TokenBytes | None, is_exact: bool) -> TokenFigures | None:
    """`counts` by id; the last one is of ids beyond the vocabulary."""
    num_read = int(counts.sum())
    if not num_read:
        return None
    known = counts[:-1] if table is not None else counts
    order = np.argsort(-known, kind="stable")
    running = np.cumsum(known[order])
    return TokenFigures(
        num_read,
        is_exact,
        None if table is None else len(known),
        int(np.count_nonzero(known)),
        int(counts[-1]) if table is not None else 0,
        int(np.searchsorted(running, (int(known.sum()) + 1) // 2)) + 1,
        tuple(
            TokenCount(
                int(token),
                int(known[token]),
                int(known[token]) / num_read,
                None if table is None else piece_of(table, int(token)),
            )
            for token in order[:NUM_MOST]
            if known[token]
        ),
        () if table is None else _kinds(known, table, num_read),
    )


def piece_of(table: TokenBytes, token: int) -> TextPiece:
    return pieces(table, [token])[0]


def _kinds(known: Numbers, table: TokenBytes, num_read: int) -> tuple[KindFigures, ...]:
    kinds = np.array(kinds_of(table))
    found = []
    for kind in KINDS:
        ids = np.flatnonzero(kinds == kind)
        if not len(ids):
            continue
        unseen = ids[known[ids] == 0]
        spread = unseen[:: max(1, len(unseen) // NUM_UNSEEN)][:NUM_UNSEEN]
        found.append(
            KindFigures(
                kind,
                len(ids),
                len(ids) - len(unseen),
                int(known[ids].sum()) / num_read,
                tuple(piece_of(table, int(token)) for token in spread),
            )
        )
    return tuple(found)
