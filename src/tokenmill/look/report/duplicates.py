"""Documents with the same tokens as another one.

An exact pass gives every document a key (document_keys.py); only documents that share a key are
read again and hashed, so a corpus without duplicates needs no second pass. A sample is compared
with itself: it misses nearly all pairs of a large corpus, and the report says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import xxhash

from tokenmill.dataset.split import Split
from tokenmill.look.report.document_keys import Keys, Numbers
from tokenmill.look.report.figures import DuplicateFigures, Place, Repeated
from tokenmill.look.report.measured import MeasuredDocuments
from tokenmill.look.report.places import Commands

NUM_SHOWN = 5
READ_TOKENS = 1 << 20  # at once, of neighbouring candidates


def exact_duplicates(
    split: Split, starts: Numbers, lengths: Numbers, keys: Keys, commands: Commands
) -> DuplicateFigures:
    """The duplicates among all documents of a split, in order."""
    order = np.argsort(keys, kind="stable")
    same = keys[order[1:]] == keys[order[:-1]]
    shared = np.zeros(len(keys), bool)
    shared[order[1:][same]] = shared[order[:-1][same]] = True
    numbers = np.flatnonzero(shared)
    sizes, pairs = _groups(numbers, keys, _digests(split, starts[numbers], lengths[numbers]))

    def place(number: int) -> Place:
        return commands.place(split.name, int(starts[number]), int(lengths[number]), number)

    return _figures(len(keys), True, sizes, pairs, place)


def sampled_duplicates(
    split: Split, found: MeasuredDocuments, commands: Commands
) -> DuplicateFigures:
    """The duplicates among the documents whose text was measured."""
    numbers = np.flatnonzero(~np.isnan(found.ratios))
    starts, lengths = found.starts, found.lengths
    keys = lengths.astype(np.uint64)
    sizes, pairs = _groups(numbers, keys, _digests(split, starts[numbers], lengths[numbers]))

    def place(number: int) -> Place:
        return commands.place(split.name, int(starts[number]), int(lengths[number]))

    return _figures(len(numbers), False, sizes, pairs, place)


def _digests(split: Split, starts: Numbers, lengths: Numbers) -> Keys:
    order = np.argsort(starts, kind="stable")
    found = np.empty(len(starts), np.uint64)
    found[order] = np.fromiter(_hashed(split, starts[order], lengths[order]), np.uint64)
    return found


def _hashed(split: Split, starts: Numbers, lengths: Numbers) -> Iterator[int]:
    """The hash of each document, 0.2 us; neighbours are read together."""
    ends, first = starts + lengths, 0
    while first < len(starts):
        at = int(starts[first])
        last = max(first + 1, int(np.searchsorted(ends, at + READ_TOKENS, "right")))
        tokens = split.tokens(at, int(ends[last - 1]))
        width = tokens.dtype.itemsize
        data = np.ascontiguousarray(tokens).view(np.uint8).data
        begins = (starts[first:last] - at) * width
        stops = begins + lengths[first:last] * width
        for begin, stop in zip(begins.tolist(), stops.tolist(), strict=True):
            yield xxhash.xxh3_64_intdigest(data[begin:stop])
        first = last


def _groups(numbers: Numbers, keys: Keys, digests: Keys) -> tuple[Numbers, list[tuple[int, int]]]:
    """The size of each group of equal documents, and the first two of the largest groups."""
    order = np.lexsort((digests, keys[numbers]))
    key, digest = keys[numbers][order], digests[order]
    is_first = np.ones(len(order), bool)
    is_first[1:] = (key[1:] != key[:-1]) | (digest[1:] != digest[:-1])
    begins = np.flatnonzero(is_first)
    sizes = np.diff(begins, append=len(order))
    begins, sizes = begins[sizes > 1], sizes[sizes > 1]
    firsts, seconds = numbers[order[begins]], numbers[order[begins + 1]]
    largest = np.lexsort((firsts, -sizes))
    shown = largest[:NUM_SHOWN]
    return sizes[largest], list(zip(firsts[shown].tolist(), seconds[shown].tolist(), strict=True))


def _figures(
    num_documents: int,
    is_exact: bool,
    sizes: Numbers,
    pairs: list[tuple[int, int]],
    place: Callable[[int], Place],
) -> DuplicateFigures:
    repeated = (
        Repeated(size, place(first), place(second))
        for size, (first, second) in zip(sizes.tolist(), pairs, strict=False)
    )
    return DuplicateFigures(num_documents, int((sizes - 1).sum()), is_exact, tuple(repeated))
