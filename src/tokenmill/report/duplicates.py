"""Documents that are the same as another one, token by token.

An exact pass gives every document a key of its length and the tokens at both ends; only documents
that share a key are read again and hashed, so that a corpus without duplicates costs no second
pass. A sample compares what it drew: it misses nearly all pairs in a large corpus, and says so.
"""

from __future__ import annotations

import collections
import hashlib
from collections.abc import Sequence

import numpy as np

from tokenmill.dataset.split import Split
from tokenmill.report.figures import DuplicateFigures, Repeated
from tokenmill.report.measured import MeasuredDocuments
from tokenmill.report.places import Commands
from tokenmill.report.tally import Keys, Numbers

MAX_CONFIRMED = 200_000  # documents that are read again
NUM_SHOWN = 5


def exact_duplicates(
    split: Split, starts: Numbers, lengths: Numbers, keys: Keys, commands: Commands
) -> DuplicateFigures:
    """Of all documents of a split, in order."""
    order = np.argsort(keys, kind="stable")
    same = keys[order[1:]] == keys[order[:-1]]
    shared = np.zeros(len(keys), bool)
    shared[order[1:][same]] = shared[order[:-1][same]] = True
    candidates = np.flatnonzero(shared)
    if len(candidates) > MAX_CONFIRMED:
        groups = _grouped(candidates, [int(key) for key in keys[candidates]])
        return _figures(split, starts, lengths, groups, commands, len(keys), (True, False))
    digests = [_digest(split, int(starts[i]), int(lengths[i])) for i in candidates]
    groups = _grouped(candidates, digests)
    return _figures(split, starts, lengths, groups, commands, len(keys), (True, True))


def sampled_duplicates(
    split: Split, found: MeasuredDocuments, commands: Commands
) -> DuplicateFigures:
    """Of the documents whose text was measured."""
    numbers = np.flatnonzero(~np.isnan(found.ratios))
    digests = [_digest(split, int(found.starts[i]), int(found.lengths[i])) for i in numbers]
    groups = _grouped(numbers, digests)
    return _figures(
        split, found.starts, found.lengths, groups, commands, len(numbers), (False, True)
    )


def _digest(split: Split, start: int, length: int) -> bytes:
    return hashlib.blake2b(split.tokens(start, start + length).tobytes(), digest_size=16).digest()


def _grouped(numbers: Numbers, keys: Sequence[object]) -> list[list[int]]:
    """Groups of equal documents, the largest first."""
    groups: dict[object, list[int]] = collections.defaultdict(list)
    for number, key in zip(numbers.tolist(), keys, strict=True):
        groups[key].append(number)
    several = [group for group in groups.values() if len(group) > 1]
    return sorted(several, key=lambda group: (-len(group), group[0]))


def _figures(
    split: Split,
    starts: Numbers,
    lengths: Numbers,
    groups: list[list[int]],
    commands: Commands,
    num_documents: int,
    is_exact_and_confirmed: tuple[bool, bool],
) -> DuplicateFigures:
    is_exact, is_confirmed = is_exact_and_confirmed
    return DuplicateFigures(
        num_documents,
        sum(len(group) - 1 for group in groups),
        is_exact,
        is_confirmed,
        tuple(
            Repeated(
                len(group),
                *(
                    commands.place(
                        split.name, int(starts[i]), int(lengths[i]), i if is_exact else None
                    )
                    for i in group[:2]
                ),
            )
            for group in groups[:NUM_SHOWN]
        ),
    )
