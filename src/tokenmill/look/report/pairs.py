"""The same documents in two datasets, for two tokenizers side by side.

Two documents count as the same if they have the same number in splits of equally many documents,
and the same text as far as both show it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tokenmill.dataset.inspect import LookedInto, TextPiece, pieces
from tokenmill.dataset.split import Split
from tokenmill.look.report.figures import Figures, ShownDocument
from tokenmill.look.report.places import Commands
from tokenmill.look.report.shown_documents import SHOWN_TOKENS, num_bytes_of

NUM_PAIRS = 5


@dataclass(frozen=True, slots=True)
class Pair:
    first: ShownDocument
    second: ShownDocument


def pairs_of(first: Figures, second: Figures, looked: LookedInto, commands: Commands) -> list[Pair]:
    """The documents shown for the first dataset, each with the same one of the second, `looked`."""
    splits = {one.split: one.num_documents for one in second.glance.splits}
    same = {
        one.split
        for one in first.glance.splits
        if one.num_documents is not None and splits.get(one.split) == one.num_documents
    }
    found = []
    for one in first.documents:
        number = one.place.document
        if one.place.split in same and number is not None and one.pieces:
            other = _numbered(looked, one, number, commands)
            if other is not None and _is_same(one.pieces, other.pieces):
                found.append(Pair(one, other))
    return found[:NUM_PAIRS]


def _numbered(
    looked: LookedInto, one: ShownDocument, number: int, commands: Commands
) -> ShownDocument | None:
    split, table = Split(looked, one.place.split, lambda: None, None), looked.token_bytes
    bounds = split.stream.document(number)
    if table is None or bounds is None:
        return None
    start, stop = bounds
    ids = split.tokens(start, min(stop, start + SHOWN_TOKENS)).tolist()
    place = commands.place(split.name, start, stop - start, number)
    num_bytes = num_bytes_of(split, table, start, stop - start)
    return ShownDocument(one.why, place, True, num_bytes, tuple(ids), tuple(pieces(table, ids)))


def _is_same(first: Sequence[TextPiece], second: Sequence[TextPiece]) -> bool:
    one, other = _text(first), _text(second)
    shared = min(len(one), len(other))
    return one[:shared] == other[:shared]


def _text(found: Sequence[TextPiece]) -> bytes:
    text = "".join(piece.text for piece in found if piece.kind == "text")
    return text.encode(errors="surrogateescape")
