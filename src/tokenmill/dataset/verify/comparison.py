"""Encodes documents again from the sources, with the reference, and compares them with the shards.

A sample is spread evenly over the corpus: one document from each of N stretches, by a fixed seed,
so that it can be repeated. Comparing all documents takes as long as the reference takes (tiktoken:
12 MB of text per second and core); a split is compared up to the first document that differs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tokenmill.arrays import indices
from tokenmill.dataset.manifest import MANIFEST_NAME
from tokenmill.dataset.verify.checks import Failure
from tokenmill.dataset.verify.document_index import DocumentIndex
from tokenmill.dataset.verify.kept_check import KeptComparison
from tokenmill.dataset.verify.reencoding import Ids, Reencoder
from tokenmill.dataset.verify.scan import OnProgress
from tokenmill.dataset.verify.source_corpus import Corpus, NotAtHand, SplitTexts
from tokenmill.encode.record import SPLITS, Counts
from tokenmill.errors import IntegrityError
from tokenmill.wording.plural import counted

SAMPLE_SEED = 0
# The first and the end token of a document in its stream; None: it is missing.
Bounds = tuple[int, int] | None


@dataclass(frozen=True)
class _Again:
    """A document that was encoded again."""

    split: int
    number: int  # in its stream
    ids: Ids
    texts: SplitTexts
    at: int  # in texts


class _Tail:
    """The tail that a split's shards leave out, and how many documents' tokens should be in it."""

    def __init__(self, num_tokens: int) -> None:
        self._num_tokens = num_tokens
        self._num_claimed = 0
        self._longest = 0  # of documents whose start is unknown

    def holds(self, num_tokens: int, is_start_known: bool) -> bool:
        """Whether `num_tokens` of another document fit into the tail. A document with an unknown
        start may be cut and reach into the shards."""
        longest = self._longest if is_start_known else max(self._longest, num_tokens)
        if not self._num_tokens or self._num_claimed + num_tokens - longest > self._num_tokens:
            return False
        self._num_claimed += num_tokens
        self._longest = longest
        return True


class Comparison:
    def __init__(
        self,
        where: DocumentIndex,
        corpus: Corpus,
        encoder: Reencoder,
        progress: OnProgress,
        kept: KeptComparison | None = None,
    ) -> None:
        self._where = where
        self._corpus = corpus
        self._encoder = encoder
        self._progress = progress
        self._kept = kept  # None: nothing is kept (--keep)
        self._ended: set[int] = set()  # splits whose comparison has ended
        self._at = [0, 0]  # tokens of each stream, when all are compared in order
        self._tails = [_Tail(num_tokens) for num_tokens in where.tails]
        self.num_documents = 0  # compared
        self.num_in_tail = 0  # not compared: none of their tokens is in a shard
        self.failures: list[Failure] = []
        self.unreadable: str | None = None  # why a split could not be compared to its end
        self.counts: Counts | None = None  # the counts of all rows, if all were read

    @property
    def why_none(self) -> str:
        """Why no document was compared."""
        if not self.num_in_tail:
            return "the shards hold none"
        return f"all {self.num_in_tail:,} are in the tail that fills no sample and was left out"

    def sample(self, num_documents: int) -> None:
        """Compare `num_documents` from all over the corpus."""
        self._require_known_documents()
        chosen = _chosen(self._where.slice_documents, num_documents)
        total = sum(len(positions) for wanted in chosen.values() for positions in wanted)
        num_seen = 0
        for index, wanted in chosen.items():
            for again in self._encoded(index, wanted):
                num_seen += 1
                self._compare(again, self._by_number)
                self._progress("encoding again", num_seen, total)
        if num_seen < total:
            message = "says that slices gave more documents than the inputs have"
            self.failures.append(Failure(MANIFEST_NAME, message))

    def all(self) -> None:
        """Compare every document."""
        total = sum(map(sum, self._where.slice_documents))
        locate: Callable[[_Again], Bounds] = self._in_order
        if self._where.is_shuffled:
            self._require_known_documents()
            locate = self._by_rank()
        with_tokens = {split for split, s in enumerate(self._where.streams) if s is not None}
        self.counts = Counts()
        num_seen = 0
        for index in range(self._corpus.num_slices):
            for again in self._encoded(index, None):
                num_seen += 1
                if again.split not in self._ended:
                    num_failures = len(self.failures)
                    self._compare(again, locate)
                    if len(self.failures) > num_failures:
                        self._ended.add(again.split)
                self._progress("encoding again", num_seen, total)
            if self._ended >= with_tokens and self._ended:
                self.counts = None
                return
        self._compare_ends()

    def _encoded(self, index: int, wanted: Sequence[set[int]] | None) -> Iterator[_Again]:
        """The documents of a slice, encoded again: those at the `wanted` positions of each split,
        or all of the splits that are still compared."""
        num_seen = [0, 0]
        for pair, counts in self._corpus.documents(index):
            for split, some in enumerate(pair):
                first = num_seen[split]
                num_seen[split] += len(some.texts)
                picked = self._picked(split, first, num_seen[split], index, wanted)
                ids = self._encoder.documents(some.texts.take(indices(picked)))
                for at, found in zip(picked.tolist(), ids, strict=True):
                    number = self._where.number(split, index, first + at)
                    yield _Again(split, number, found, some, at)
            if self.counts is not None:
                self.counts += counts
            if wanted is not None and all(
                max(positions, default=-1) < seen
                for positions, seen in zip(wanted, num_seen, strict=True)
            ):
                return
        if wanted is None:
            self._compare_counts(index, num_seen)

    def _picked(
        self, split: int, first: int, stop: int, index: int, wanted: Sequence[set[int]] | None
    ) -> npt.NDArray[np.int64]:
        if wanted is None:
            stop = min(stop, self._where.slice_documents[split][index])
            if split in self._ended or stop < first:
                stop = first
            return np.arange(stop - first, dtype=np.int64)
        return np.array(sorted(p - first for p in wanted[split] if first <= p < stop), np.int64)

    # The place of a document

    def _by_number(self, again: _Again) -> Bounds:
        stream = self._where.streams[again.split]
        return None if stream is None else stream.document(again.number)

    def _by_rank(self) -> Callable[[_Again], Bounds]:
        bounds = [self._where.bounds(split) for split in range(len(SPLITS))]

        def located(again: _Again) -> Bounds:
            own = bounds[again.split]
            if again.number + 1 >= len(own):
                return None
            return int(own[again.number]), int(own[again.number + 1])

        return located

    def _in_order(self, again: _Again) -> Bounds:
        start = self._at[again.split]
        self._at[again.split] += len(again.ids)
        return start, self._at[again.split]

    def _require_known_documents(self) -> None:
        for stream in self._where.streams:
            if stream is not None and not stream.knows_documents:
                raise NotAtHand(
                    "without EOT ids nothing says where documents begin"
                    + ("" if self._where.is_shuffled else "; --full goes through them in order")
                )

    # What differs

    def _compare(self, again: _Again, locate: Callable[[_Again], Bounds]) -> None:
        stream = self._where.streams[again.split]
        num_tokens = 0 if stream is None else stream.num_tokens
        try:
            bounds = locate(again)
            expected = self._inside(again, bounds, num_tokens)
            if expected is None:
                return
            start, stop = bounds or (0, 0)
            found = again.ids[:0] if stream is None else stream.tokens(start, stop)
            self.num_documents += 1
            at = first_difference(found, expected)
            other = self._kept_difference(again)
        except IntegrityError as error:
            self.unreadable = error.message
            self._ended.add(again.split)
            return
        if other is not None:
            self._differs(again, start, f"its kept row {other}")
        if at is not None:
            was = f"is {int(found[at])}" if at < len(found) else "is not there"
            should = f"should be {int(expected[at])}" if at < len(expected) else "should not be"
            self._differs(again, start + at, f"token {at:,} of the document {was}, and {should}")

    def _kept_difference(self, again: _Again) -> str | None:
        if self._kept is None:
            return None
        return self._kept.difference(again.split, again.number, again.texts, again.at)

    def _inside(self, again: _Again, bounds: Bounds, num_tokens: int) -> Ids | None:
        """The part of a document that must be in the shards: all of it, except a tail that was left
        out. None: none of it is there, and that has been reported."""
        start = num_tokens if bounds is None else bounds[0]
        num_beyond = min(max(0, start + len(again.ids) - num_tokens), len(again.ids))
        if not num_beyond:
            return again.ids
        if self._tails[again.split].holds(num_beyond, bounds is not None):
            self.num_in_tail += num_beyond == len(again.ids)
            return again.ids[:-num_beyond] if num_beyond < len(again.ids) else None
        if num_beyond < len(again.ids):
            return again.ids  # compared, and found to end too early
        self._differs(again, num_tokens, "is not there")
        return None

    def _differs(self, again: _Again, token: int, what: str) -> None:
        message = f"{what} (from {again.texts.place(again.at)})"
        self.failures.append(self._where.failure(again.split, token, message))

    def _compare_counts(self, index: int, found: list[int]) -> None:
        for split, numbers in enumerate(self._where.slice_documents):
            if found[split] != numbers[index]:
                name = self._corpus.plan.slices[index].spans[0].input.name
                message = (
                    f"says that slice {index} gave {counted(numbers[index], 'document')} to "
                    f"{SPLITS[split]}, but there are {found[split]:,} (from {name})"
                )
                self.failures.append(Failure(MANIFEST_NAME, message))

    def _compare_ends(self) -> None:
        """Nothing may follow the last document."""
        for split, stream in enumerate(self._where.streams):
            if stream is None or split in self._ended or self._where.is_shuffled:
                continue
            if stream.num_tokens > self._at[split]:
                message = f"{counted(stream.num_tokens - self._at[split], 'token')} of no document"
                self.failures.append(self._where.failure(split, self._at[split], message))


def first_difference(found: npt.NDArray[np.integer], expected: Ids) -> int | None:
    """Where two documents begin to differ; None: nowhere."""
    common = min(len(found), len(expected))
    is_other = found[:common] != expected[:common]
    if is_other.any():
        return int(np.argmax(is_other))
    return None if len(found) == len(expected) else common


def _chosen(slice_documents: Sequence[list[int]], count: int) -> dict[int, tuple[set[int], ...]]:
    """Positions of documents by slice and split: one from each of `count` equal stretches."""
    totals = np.cumsum([0, *(sum(counts) for counts in zip(*slice_documents, strict=True))])
    num_documents = int(totals[-1])
    count = min(count, num_documents)
    rng = random.Random(SAMPLE_SEED)
    chosen: dict[int, tuple[set[int], ...]] = {}
    for stretch in range(count):
        start, stop = (number * num_documents // count for number in (stretch, stretch + 1))
        document = rng.randrange(start, stop)
        index = int(np.searchsorted(totals, document, "right")) - 1
        position, split = document - int(totals[index]), 0
        if position >= slice_documents[0][index]:
            position, split = position - slice_documents[0][index], 1
        chosen.setdefault(index, (set(), set()))[split].add(position)
    return chosen
