"""The documents that a report shows: some at random, and those that stand out."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import numpy as np

from tokenmill.dataset.inspect import LookedInto, TokenBytes, pieces
from tokenmill.dataset.split import Split
from tokenmill.look.report.document_keys import Numbers
from tokenmill.look.report.figures import Place, ShownDocument
from tokenmill.look.report.measured import MAX_READ_TOKENS, MeasuredDocuments
from tokenmill.look.report.places import Commands

NUM_RANDOM, NUM_OF_A_KIND = 3, 2
SHOWN_TOKENS = 160
WINDOW_TOKENS = 256
AT_RANDOM = "at random"
# With fewer tokens than this, bytes per token are mostly chance.
MIN_RATED_TOKENS = 64


def shown_documents(
    looked: LookedInto, split: Split, found: MeasuredDocuments | None, commands: Commands
) -> Iterator[ShownDocument]:
    if not split.num_tokens:
        return
    if found is None or not len(found):
        rng = random.Random(0)
        starts = sorted(rng.randrange(split.num_tokens) for _ in range(NUM_RANDOM))
        for start in dict.fromkeys(starts):
            length = min(WINDOW_TOKENS, split.num_tokens - start)
            place = Place(split.name, start, length, None, commands.at(split.name, start))
            yield _shown(looked, split, AT_RANDOM, place, is_document=False)
        return
    seen: set[int] = set()
    for why, numbers in _chosen(found):
        for rank, number in enumerate(numbers):
            if number not in seen:
                seen.add(number)
                start, length = int(found.starts[number]), int(found.lengths[number])
                known = number if found.is_exact else None
                place = commands.place(split.name, start, length, known)
                is_second = rank and why != AT_RANDOM
                yield _shown(looked, split, f"second {why}" if is_second else why, place)


def _chosen(found: MeasuredDocuments) -> Iterator[tuple[str, list[int]]]:
    """Numbers of measured documents, by the reason for showing them."""
    by_length, of = np.argsort(found.lengths, kind="stable"), ""
    if not found.is_exact:
        of = f" of {len(found):,} documents of a sample"
    yield f"longest{of}", by_length[::-1][:NUM_OF_A_KIND].tolist()
    yield f"shortest{of}", by_length[:NUM_OF_A_KIND].tolist()
    rated = rated_documents(found)
    by_ratio = rated[np.argsort(found.ratios[rated], kind="stable")]
    if len(rated) > 2 * NUM_OF_A_KIND:
        yield "fewest bytes per token", by_ratio[:NUM_OF_A_KIND].tolist()
        yield "most bytes per token", by_ratio[::-1][:NUM_OF_A_KIND].tolist()
    rng = random.Random(0)
    yield AT_RANDOM, rng.sample(range(len(found)), min(len(found), 2 * NUM_RANDOM))[:NUM_RANDOM]


def rated_documents(found: MeasuredDocuments) -> Numbers:
    """The documents among which those with the fewest and most bytes per token are chosen."""
    return np.flatnonzero(~np.isnan(found.ratios) & (found.lengths >= MIN_RATED_TOKENS))


def _shown(
    looked: LookedInto, split: Split, why: str, place: Place, is_document: bool = True
) -> ShownDocument:
    table, start, length = looked.token_bytes, place.start, place.num_tokens
    ids: Sequence[int] = split.tokens(start, start + min(length, SHOWN_TOKENS)).tolist()
    return ShownDocument(
        why,
        place,
        is_document,
        None if table is None else num_bytes_of(split, table, start, length),
        tuple(ids),
        () if table is None else tuple(pieces(table, ids)),
    )


def num_bytes_of(split: Split, table: TokenBytes, start: int, length: int) -> int:
    return sum(
        table.num_bytes(split.tokens(at, min(at + MAX_READ_TOKENS, start + length)))
        for at in range(start, start + length, MAX_READ_TOKENS)
    )
