"""Packing as lists and quadratic loops: what rows are, and what a trainer gets of them."""

from __future__ import annotations

import loader_oracle

Piece = tuple[int, int, int]  # document, its first token within the document, length


def best_fit(lengths: list[int], seq_len: int) -> list[int]:
    """The row of each piece: longest first, into the first row with the least room."""
    rooms: list[int] = []
    rows = [0] * len(lengths)
    for piece in sorted(range(len(lengths)), key=lambda piece: -lengths[piece]):
        fitting = [(room, row) for row, room in enumerate(rooms) if room >= lengths[piece]]
        if not fitting:
            rooms.append(seq_len)
        rows[piece] = min(fitting)[1] if fitting else len(rooms) - 1
        rooms[rows[piece]] -= lengths[piece]
    return rows


def pieces(lengths: list[int], seq_len: int, long: str) -> list[Piece]:
    found: list[Piece] = []
    for document, length in enumerate(lengths):
        if length <= seq_len:
            found += [(document, 0, length)] if length else []
        elif long == "truncate":
            found.append((document, 0, seq_len))
        elif long == "split":
            found += [(document, at, min(seq_len, length - at)) for at in range(0, length, seq_len)]
    return found


def plan(
    lengths: list[int], seq_len: int, long: str, seed: int, unit: int, split="train"
) -> list[list[Piece]]:
    """The rows of a split in the order of the plan."""
    found: list[list[Piece]] = []
    for number, first in enumerate(range(0, len(lengths), unit)):
        own = lengths[first : first + unit]
        every = pieces(own, seq_len, long)
        homes = best_fit([size for _, _, size in every], seq_len)
        rows: list[list[Piece]] = [[] for _ in range(max(homes, default=-1) + 1)]
        for piece, row in zip(every, homes, strict=True):
            rows[row].append(piece)
        shuffled: list[list[Piece]] = [[] for _ in rows]
        for row, one in enumerate(rows):
            # Cut pieces last, beginnings of documents first, then as they are in the stream.
            one.sort(key=lambda p: (p[1] + p[2] < own[p[0]], p[1] > 0, p))
            place = loader_oracle.permuted(row, len(rows), seed, "pack", split, number)
            shuffled[place] = [(first + document, at, size) for document, at, size in one]
        found += shuffled
    return found


def row_of(documents: list[list[int]], row: list[Piece], seq_len: int, pad: int, eot: int | None):
    """Tokens, targets, position ids, document ids and loss mask of a row."""
    inputs: list[tuple[int, int, int]] = []  # token, place in its piece, number of the piece
    for number, (document, at, size) in enumerate(row):
        text = documents[document][at : at + size]
        inputs += [(token, place, number) for place, token in enumerate(text)]
    num_real = len(inputs)
    inputs += [(pad, place, len(row)) for place in range(seq_len - num_real)]
    document, at, size = row[-1]
    following = documents[document][at + size : at + size + 1] if num_real == seq_len else []
    tokens = [token for token, _, _ in inputs]
    targets = [*tokens[1:], *(following or [pad])]
    mask = []
    for place in range(seq_len):
        is_last = place + 1 == seq_len
        goes_on = bool(following) if is_last else inputs[place][2] == inputs[place + 1][2]
        is_end = targets[place] == eot != tokens[place]
        is_padding = place + 1 >= num_real and not (is_last and following)  # of the target
        mask.append(not is_padding and (goes_on or is_end))
    return (
        tokens,
        targets,
        [place for _, place, _ in inputs],
        [number for _, _, number in inputs],
        mask,
    )
