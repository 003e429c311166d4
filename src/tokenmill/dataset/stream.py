"""One split of a dataset, read back: its tokens across shards, and the documents among them.

The format says where documents end, or their EOT ids do: `append` ends a document with one,
`prepend` begins it with one, `both` does both. A document that is cut by the end of a shard is
whole here. A document that is cut by the end of the split (npy and llmc make the first shard the
validation split) appears as a document without its EOT.

Only requested tokens are read. To find a document by its number, shards are skipped by their
counts, and the manifest's marks lead close to the document within a long shard.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tokenmill.errors import IntegrityError
from tokenmill.formats import ShardReader

# Tokens per read during a search.
READ_TOKENS = 4 << 20
# The first read of a search is smaller: the target is often close, and the network may be slow.
FIRST_READ_TOKENS = 1 << 15
# A stretch without any EOT is returned in pieces of this size: the tokenizer may be the wrong one.
MAX_DOCUMENT_TOKENS = 1 << 28

Tokens = npt.NDArray[np.integer]


@dataclass(frozen=True, slots=True)
class StreamShard:
    """A shard of the stream. Counts are None if only the file itself says them."""

    name: str
    open: Callable[[], ShardReader]
    num_tokens: int
    num_documents: int | None = None  # or EOT ids, one per document, if those separate them
    marks: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Documents:
    """Some consecutive documents: their tokens, and their lengths (None: unknown)."""

    first: int
    tokens: Tokens
    lengths: npt.NDArray[np.uint32] | None


class Stream:
    """One split's tokens, in the trainer's order.

    `has_boundaries`: the format stores document boundaries. Otherwise `eot` and `eot_id` separate
    documents, and with `eot` none nothing does.
    """

    def __init__(
        self,
        split: str,
        shards: Sequence[StreamShard],
        has_boundaries: bool,
        eot: str | None,
        eot_id: int | None,
    ) -> None:
        self.split = split
        self.shards = tuple(shards)
        self.has_boundaries = has_boundaries
        # Where EOT ids are in a document, if they separate documents.
        self.eot = eot if eot_id is not None and eot != "none" else None
        self.eot_id = eot_id
        self._starts = [0, *itertools.accumulate(shard.num_tokens for shard in shards)]
        self._last_opened: tuple[int, ShardReader] | None = None
        self._last_ends: tuple[int, npt.NDArray[np.int64]] | None = None

    def with_shards(self, shards: Sequence[StreamShard]) -> Stream:
        """The same stream with other shards."""
        return Stream(self.split, shards, self.has_boundaries, self.eot, self.eot_id)

    @property
    def num_tokens(self) -> int:
        return self._starts[-1]

    def start_of(self, position: int) -> int:
        """Where a shard begins, in tokens of the split."""
        return self._starts[position]

    @property
    def knows_documents(self) -> bool:
        return self.has_boundaries or self.eot is not None

    def position_of(self, token: int) -> int:
        """The position of the shard that holds a token."""
        return bisect.bisect_right(self._starts, token, hi=len(self.shards)) - 1

    def shard_at(self, token: int) -> tuple[StreamShard, int]:
        """The shard that holds a token, and the token's position in it."""
        position = self.position_of(token)
        return self.shards[position], token - self._starts[position]

    def tokens(self, start: int, stop: int) -> Tokens:
        """Tokens `start` to `stop` of the split."""
        stop = min(stop, self.num_tokens)
        pieces: list[Tokens] = []
        position = self.position_of(start)
        while start < stop:
            at, end = self._starts[position], min(stop, self._starts[position + 1])
            if start < end:
                piece = self._opened(position).tokens(start - at, end - at)
                # A copy, unless it is the whole: a mapped array keeps its shard open.
                pieces.append(np.array(piece) if pieces or end < stop else piece)
                start = end
            position += 1
        if not pieces:
            return np.empty(0, np.uint16)
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def documents(
        self, max_tokens: int = READ_TOKENS, first: int = 0, start: int = 0
    ) -> Iterator[Documents]:
        """The documents in order, in groups of about `max_tokens`, or one longer document.

        Begins with document number `first`, which must start at token `start`. Empty documents that
        also start there do not change what follows.
        """
        if self.has_boundaries:
            yield from self._stored_documents(max_tokens, first)
        elif self.eot is None:
            for position in range(start, self.num_tokens, max_tokens):
                yield Documents(0, self.tokens(position, position + max_tokens), None)
        else:
            yield from self._separated_documents(max_tokens, first, start)

    def document(self, number: int) -> tuple[int, int] | None:
        """The first and the end token of a document; None if there is no such document."""
        if number < 0 or not self.num_tokens:
            return None
        if self.has_boundaries:
            return self._stored_document(number)
        if self.eot == "append":
            start = 0 if number == 0 else self._after_eot(number - 1)
            end = self._after_eot(number)
        elif self.eot == "prepend":
            lead = self.has_lead()
            start = 0 if number == 0 else self._eot_position(number - lead)
            end = self._eot_position(number + 1 - lead)
        elif self.eot == "both":
            lead = self.has_lead()
            start = 0 if number == 0 else self._after_eot(2 * number - 1 - lead)
            end = self._after_eot(2 * number + 1 - lead)
        else:
            return None
        if start is None or start >= self.num_tokens:
            return None
        return start, self.num_tokens if end is None else end

    def document_at(self, token: int) -> int | None:
        """The number of the document that holds a token; None if it is unknown."""
        if not self.knows_documents or not 0 <= token < self.num_tokens:
            return None
        if self.has_boundaries:
            return self._stored_number(token)
        # With EOT at the end, the number of a document is the number of EOTs before it.
        if self.eot == "prepend":
            return self._num_eot_before(token + 1) - 1 + self.has_lead()
        num_before = self._num_eot_before(token)
        if self.eot == "both":
            return (num_before + self.has_lead()) // 2
        return num_before

    def num_documents(self) -> int | None:
        """The number of documents, if it is known without reading all tokens."""
        counts = [shard.num_documents for shard in self.shards]
        if self.has_boundaries:
            return sum(self._count_of(position) for position in range(len(self.shards)))
        if not self.knows_documents or self.eot == "both" or None in counts:
            return None
        total = sum(count for count in counts if count is not None)
        if not self.num_tokens:
            return 0
        if self.eot == "prepend":
            return total + self.has_lead()
        last = int(self.tokens(self.num_tokens - 1, self.num_tokens)[0])
        return total + (last != self.eot_id)

    # Boundaries stored by the format

    def _stored_documents(self, max_tokens: int, skipped: int) -> Iterator[Documents]:
        first = 0
        for position in range(len(self.shards)):
            if first + self._count_of(position) <= skipped:
                first += self._count_of(position)
                continue
            ends = self.ends_of(position)
            reader = self._opened(position)
            document = max(0, skipped - first)
            start = int(ends[document - 1]) if document else 0
            while document < len(ends):
                fitting = int(np.searchsorted(ends, start + max_tokens, "right"))
                following = max(fitting, document + 1)
                stop = int(ends[following - 1])
                lengths = np.diff(ends[document:following], prepend=start).astype(np.uint32)
                yield Documents(first + document, reader.tokens(start, stop), lengths)
                document, start = following, stop
            first += len(ends)

    def _stored_document(self, number: int) -> tuple[int, int] | None:
        for position in range(len(self.shards)):
            count = self._count_of(position)
            if number < count:
                ends, at = self.ends_of(position), self._starts[position]
                start = int(ends[number - 1]) if number else 0
                return at + start, at + int(ends[number])
            number -= count
        return None

    def _stored_number(self, token: int) -> int:
        position = self.position_of(token)
        before = sum(self._count_of(earlier) for earlier in range(position))
        within = token - self._starts[position]
        return before + int(np.searchsorted(self.ends_of(position), within, "right"))

    def _count_of(self, position: int) -> int:
        known = self.shards[position].num_documents
        return len(self.ends_of(position)) if known is None else known

    # Documents separated by EOT ids

    def _separated_documents(self, max_tokens: int, first: int, start: int) -> Iterator[Documents]:
        held: Tokens = np.empty(0, np.uint16)
        per_document = 2 if self.eot == "both" else 1
        lead = self.has_lead() if self.eot == "both" and not start else 0
        num_tokens_read = start
        while num_tokens_read < self.num_tokens or len(held):
            stop = num_tokens_read + max_tokens - num_tokens_read % max_tokens
            read = self.tokens(num_tokens_read, stop)
            num_tokens_read += len(read)
            held = np.concatenate([held, read]) if len(held) else read
            found = np.flatnonzero(held == self.eot_id)
            if self.eot == "prepend":
                cuts = found[found > 0]
            else:
                cuts = found[per_document - 1 - lead :: per_document] + 1
            is_last = num_tokens_read >= self.num_tokens or len(held) >= MAX_DOCUMENT_TOKENS
            if is_last and (not len(cuts) or cuts[-1] < len(held)):
                cuts = np.append(cuts, len(held))
            if len(cuts):
                lengths = np.diff(cuts, prepend=0).astype(np.uint32)
                yield Documents(first, held[: cuts[-1]], lengths)
                first += len(lengths)
                held, lead = held[cuts[-1] :], 0

    def has_lead(self) -> int:
        """1 if the split begins in the middle of a document, else 0. With two EOT ids per document,
        an odd number of leading EOT ids means a whole first document: a pair for each empty
        document, then its own EOT. An even number means that the split begins inside a document."""
        if self.eot != "both":
            return int(self.tokens(0, 1)[0] != self.eot_id)
        num_eot = 0
        for first, stop in _steps(0, self.num_tokens):
            is_text = self.tokens(first, stop) != self.eot_id
            if is_text.any():
                return int((num_eot + int(np.argmax(is_text))) % 2 == 0)
            num_eot += stop - first
        return 0

    def _after_eot(self, number: int) -> int | None:
        position = self._eot_position(number)
        return None if position is None else position + 1

    def _eot_position(self, number: int) -> int | None:
        """The position of EOT id number `number` of the split; None if there are fewer."""
        for shard, at in zip(self.shards, self._starts, strict=False):
            if shard.num_documents is not None and number >= shard.num_documents:
                number -= shard.num_documents
                continue
            marks = [mark for mark in shard.marks if mark[0] <= number]
            before, start = marks[-1] if marks else (0, 0)
            number -= before
            for first, stop in _steps(at + start, at + shard.num_tokens):
                found = np.flatnonzero(self.tokens(first, stop) == self.eot_id)
                if number < len(found):
                    return first + int(found[number])
                number -= len(found)
        return None

    def _num_eot_before(self, token: int) -> int:
        total = 0
        for shard, at in zip(self.shards, self._starts, strict=False):
            if token <= at:
                break
            if shard.num_documents is not None and token >= at + shard.num_tokens:
                total += shard.num_documents
                continue
            marks = [mark for mark in shard.marks if at + mark[1] <= token]
            before, start = marks[-1] if marks else (0, 0)
            total += before
            for first in range(at + start, min(token, at + shard.num_tokens), READ_TOKENS):
                stop = min(first + READ_TOKENS, token, at + shard.num_tokens)
                total += int(np.count_nonzero(self.tokens(first, stop) == self.eot_id))
        return total

    # Threads may use different shards at the same time, so each returns what it opened itself.

    def _opened(self, position: int) -> ShardReader:
        last = self._last_opened
        if last is None or last[0] != position:
            shard, reader = self.shards[position], self.shards[position].open()
            if reader.num_tokens != shard.num_tokens:
                raise IntegrityError(
                    f"{shard.name} holds {reader.num_tokens:,} tokens, but should hold "
                    f"{shard.num_tokens:,}"
                )
            self._last_opened = last = position, reader
        return last[1]

    def ends_of(self, position: int) -> npt.NDArray[np.int64]:
        """The end of each document of a shard, in tokens of the shard, from the format."""
        last = self._last_ends
        if last is None or last[0] != position:
            ends = self._opened(position).ends()
            name, known = self.shards[position].name, self.shards[position].num_documents
            if ends is None:
                raise IntegrityError(f"{name} does not say where its documents end")
            if known is not None and known != len(ends):
                raise IntegrityError(
                    f"{name} holds {len(ends):,} documents, but should hold {known:,}"
                )
            self._last_ends = last = position, ends
        return last[1]


def _steps(start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Consecutive stretches from `start` to `stop`, each twice as long as the previous one."""
    size = FIRST_READ_TOKENS
    while start < stop:
        end = min(start + size, stop)
        yield start, end
        start, size = end, min(2 * size, READ_TOKENS)
