"""Search a dataset: documents by the text of their tokens, or by a sequence of ids.

Text is searched as bytes, so that a hit may begin and end inside tokens; the names of special
tokens are not text. A document is one hit, no matter how often it matches. If documents are
unknown, each place is a hit. The search reads everything in order until it has enough hits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tokenmill.dataset.inspect.folder import LookedInto
from tokenmill.dataset.inspect.token_bytes import NO_TEXT, TokenBytes, pieces
from tokenmill.dataset.stream import READ_TOKENS, Documents, Stream, Tokens
from tokenmill.errors import ConfigError

BATCH_TOKENS = READ_TOKENS
FIRST_TOKENS = 1 << 17  # a common word is found here, in a 20th of the time of a batch
CONTEXT_BYTES = 60
CONTEXT_TOKENS = 12


@dataclass(frozen=True, slots=True)
class Hit:
    split: str
    document: int | None
    token: int  # of the split, where it begins
    shard: str
    shard_token: int
    num_times: int  # in this document
    ids: tuple[int, ...]  # the tokens that hold it
    before: str  # text, with surrogates for what is not UTF-8; ids if there is no tokenizer
    match: str
    after: str
    kept: dict[str, Any] | None = None  # of the document (--keep)

    def to_plain(self) -> dict[str, Any]:
        plain = asdict(self)
        for name in ("before", "match", "after"):
            text = plain[name].encode(errors="surrogateescape")
            plain[name] = text.decode(errors="replace")
        if self.kept is None:
            del plain["kept"]
        return plain


@dataclass(frozen=True, slots=True)
class Searched:
    """The progress of a search: new hits, and the total amount read."""

    hits: tuple[Hit, ...]
    num_documents: int | None  # None: not known
    num_tokens: int


def search_text(
    looked: LookedInto, splits: Sequence[str], text: str, limit: int
) -> Iterator[Searched]:
    """Find documents whose text contains `text`, at most `limit`."""
    table = looked.token_bytes
    if table is None:
        raise ConfigError(
            f"text cannot be searched without the tokenizer: {looked.missing}",
            hint="or search for ids: --grep-ids '464 3290'",
        )
    try:
        needle = text.encode()
    except UnicodeEncodeError:
        raise ConfigError(
            "the text to search for is not UTF-8", hint="search for ids: --grep-ids '464 3290'"
        ) from None
    if not needle:
        raise ConfigError("the text to search for is empty", hint="--grep 'some words'")
    return _searched(looked, splits, _TextFinder(table, needle), limit)


def search_ids(
    looked: LookedInto, splits: Sequence[str], ids: Sequence[int], limit: int
) -> Iterator[Searched]:
    """Find documents that contain the sequence `ids`, at most `limit`.

    The sequence may cross the end of a document; it belongs to the document in which it begins.
    """
    if not ids:
        raise ConfigError("no ids to search for", hint="--grep-ids '464 3290'")
    return _searched(looked, splits, _IdFinder(looked.token_bytes, ids), limit)


@dataclass(frozen=True)
class _Stretch:
    """Consecutive tokens of a split: the last ones of the previous stretch, then new ones."""

    stream: Stream
    start: int  # of the first token, in the split
    num_carried: int
    tokens: Tokens
    first_document: int  # among the new tokens
    ends: npt.NDArray[np.int64] | None  # of documents, in `tokens`; None: not known

    def document_numbers(self, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | None:
        """The numbers of the documents that hold these tokens."""
        if self.ends is None:
            return None
        numbers = self.first_document + np.searchsorted(self.ends, places, "right")
        for index in np.flatnonzero(places < self.num_carried).tolist():
            number = self.stream.document_at(self.start + int(places[index]))
            assert number is not None, "ends"
            numbers[index] = number
        return numbers

    def hit(
        self, bounds: tuple[int, int], document: int | None, num_times: int, shown: Sequence[str]
    ) -> Hit:
        """A hit in the tokens `bounds`; `shown` is the text before, of and after it."""
        first, stop = bounds
        before, match, after = shown
        shard, shard_token = self.stream.shard_at(self.start + first)
        return Hit(
            self.stream.split,
            document,
            self.start + first,
            shard.name,
            shard_token,
            num_times,
            tuple(self.tokens[first:stop].tolist()),
            before,
            match,
            after,
        )


class _Finder(Protocol):
    def num_carried(self, knows_documents: bool) -> int:
        """How many of the last tokens to carry over: a hit may begin there and end in the next
        stretch."""

    def hits(self, stretch: _Stretch, limit: int) -> list[Hit]:
        """The first hits that are not entirely in the carried tokens."""


def _searched(
    looked: LookedInto, splits: Sequence[str], finder: _Finder, limit: int
) -> Iterator[Searched]:
    num_documents: int | None = 0
    num_tokens = num_hits = 0
    for split in splits:
        carried: Tokens = np.empty(0, np.uint16)
        start = 0
        for documents in _groups(looked.stream(split)):
            stretch = _stretch(looked.stream(split), start, carried, documents)
            hits = finder.hits(stretch, limit - num_hits)
            num_hits += len(hits)
            is_enough = num_hits >= limit
            start += len(documents.tokens)
            num_tokens += len(documents.tokens)
            if documents.lengths is None or num_documents is None:
                num_documents = None
            elif is_enough:
                num_documents += max(0, (hits[-1].document or 0) + 1 - documents.first)
            else:
                num_documents += len(documents.lengths)
            found = (replace(hit, kept=looked.kept(split, hit.document)) for hit in hits)
            yield Searched(tuple(found), num_documents, num_tokens)
            if is_enough:
                return
            most = finder.num_carried(documents.lengths is not None)
            carried = stretch.tokens[max(0, len(stretch.tokens) - most) :]


def _groups(stream: Stream) -> Iterator[Documents]:
    """All documents in order: a small group, then large ones."""
    head = next(stream.documents(FIRST_TOKENS), None)
    if head is None:
        return
    yield head
    if len(head.tokens) < stream.num_tokens:
        first = head.first + (0 if head.lengths is None else len(head.lengths))
        yield from stream.documents(BATCH_TOKENS, first, len(head.tokens))


def _stretch(stream: Stream, start: int, carried: Tokens, documents: Documents) -> _Stretch:
    tokens, ends = documents.tokens, None
    if documents.lengths is not None:
        ends = len(carried) + np.cumsum(documents.lengths, dtype=np.int64)
    if len(carried):
        tokens = np.concatenate([carried, tokens])
    return _Stretch(stream, start - len(carried), len(carried), tokens, documents.first, ends)


class _TextFinder:
    def __init__(self, table: TokenBytes, needle: bytes) -> None:
        self._table = table
        self._needle = needle

    def num_carried(self, knows_documents: bool) -> int:
        # Text does not cross the end of a document. Every token has at least one byte.
        return 0 if knows_documents else len(self._needle) - 1

    def hits(self, stretch: _Stretch, limit: int) -> list[Hit]:
        data = self._table.joined(stretch.tokens)
        place = data.find(self._needle)
        if place < 0:
            return []
        token_ends = self._table.ends(stretch.tokens)
        # Where documents are bounded in `data`; without any, all of it is one.
        bounds = np.array([0, len(data)])
        if stretch.ends is not None:
            bounds = np.append(0, np.append(0, token_ends)[stretch.ends])
        num_old = int(token_ends[stretch.num_carried - 1]) if stretch.num_carried else 0
        found: list[Hit] = []
        while place >= 0 and len(found) < limit:
            stop = place + len(self._needle)
            number = int(np.searchsorted(bounds, place, "right")) - 1
            low, high = int(bounds[number]), int(bounds[number + 1])
            following = place + 1
            if num_old < stop <= high:
                first, last = np.searchsorted(token_ends, [place, stop - 1], "right").tolist()
                shown = self._shown(data, low, place, high)
                if stretch.ends is None:
                    following = stop
                    found.append(stretch.hit((first, last + 1), None, 1, shown))
                else:
                    following = high
                    num_times = data.count(self._needle, low, high)
                    document = stretch.first_document + number
                    found.append(stretch.hit((first, last + 1), document, num_times, shown))
            place = data.find(self._needle, following)
        return found

    def _shown(self, data: bytes, low: int, place: int, high: int) -> tuple[str, str, str]:
        stop = place + len(self._needle)
        before = data[max(low, place - CONTEXT_BYTES) : place].rpartition(NO_TEXT)[2]
        after = data[stop : min(high, stop + CONTEXT_BYTES)].partition(NO_TEXT)[0]
        return (
            _whole_characters(before).decode(errors="surrogateescape"),
            self._needle.decode(),
            _whole_characters(after).decode(errors="surrogateescape"),
        )


class _IdFinder:
    def __init__(self, table: TokenBytes | None, wanted: Sequence[int]) -> None:
        self._table = table
        self._wanted = list(wanted)

    def num_carried(self, knows_documents: bool) -> int:
        return len(self._wanted) - 1

    def hits(self, stretch: _Stretch, limit: int) -> list[Hit]:
        tokens = stretch.tokens
        num_starts = max(0, len(tokens) - len(self._wanted) + 1)
        places = np.flatnonzero(tokens[:num_starts] == self._wanted[0])
        for position, wanted in enumerate(self._wanted):
            places = places[tokens[places + position] == wanted]
        numbers = stretch.document_numbers(places)
        if numbers is None:
            return [self._hit(stretch, place, None, 1) for place in places[:limit].tolist()]
        found, firsts, times = np.unique(numbers, return_index=True, return_counts=True)
        return [
            self._hit(stretch, int(places[first]), int(number), int(num_times))
            for number, first, num_times in zip(found[:limit], firsts, times, strict=False)
        ]

    def _hit(self, stretch: _Stretch, place: int, number: int | None, num_times: int) -> Hit:
        stop = place + len(self._wanted)
        shown = [
            self._shown(stretch.tokens[max(0, place - CONTEXT_TOKENS) : place]),
            self._shown(stretch.tokens[place:stop]),
            self._shown(stretch.tokens[stop : stop + CONTEXT_TOKENS]),
        ]
        return stretch.hit((place, stop), number, num_times, shown)

    def _shown(self, tokens: Tokens) -> str:
        ids = tokens.tolist()
        if self._table is None:
            return " ".join(map(str, ids))
        return "".join(piece.text for piece in pieces(self._table, ids))


def _whole_characters(data: bytes) -> bytes:
    """Without the partial UTF-8 characters at both ends."""
    start = next((i for i, byte in enumerate(data[:4]) if not 0x80 <= byte < 0xC0), 0)
    data = data[start:]
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte >= 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data[:-back] if needed > back else data
        if byte < 0x80:
            break
    return data
