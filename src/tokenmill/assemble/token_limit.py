"""`--limit-tokens`: which slices a run needs, and which one is cut short.

Tokens are counted in plan order, those of both splits and with EOT. The slice that reaches the
limit is encoded again as one that ends with the document that reaches it. It gets an index of its
own, the one after the plan's last, because what has a name never changes. So the result is a
function of the plan; how many slices beyond the limit were encoded in vain does not matter.

Records are passed on in plan order, and only once it is known that they are before the limit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping

from tokenmill.corpus.slices import SliceTable
from tokenmill.corpus.spans import Slice
from tokenmill.encode.ledger import Ledger
from tokenmill.encode.record import PartRecord


class TokenLimit:
    """`places` says where inputs are read, by name, if not where the plan has them. One thread adds
    records while another asks what to hand out."""

    def __init__(
        self,
        max_tokens: int,
        slices: SliceTable,
        places: Mapping[str, str],
        copies_at: Callable[[int], str] = lambda place: "",
    ) -> None:
        self._slices = slices
        self._copies_at = copies_at  # of a slice: what --dedup leaves out (Slice.copies)
        self._places = places
        self._lock = threading.Lock()
        self._left = max_tokens
        self._place = 0  # all slices before it are known, and are before the limit
        self._early: dict[int, PartRecord] = {}  # records of slices after that
        self._handed_out = 0  # all slices before it have a record or are in flight
        self._early_tokens = 0  # of early records before that
        self._read: dict[int, Slice] = {}  # slices with an early record that this attempt read
        self._done: list[Slice] = []  # slices that nobody needs to read again
        self._measured = (0, 0)  # tokens and bytes of text of slices that this attempt read
        self.last: Slice | None = None  # the slice that is cut short, once it is known
        self.is_complete = False  # every slice up to the limit has its record

    @property
    def last_index(self) -> int:
        return len(self._slices)

    @property
    def num_slices(self) -> int:
        """The number of slices, once `last` is known."""
        return self._place + 1

    def resumed(self, records: Ledger) -> Ledger:
        """The records of earlier attempts that are needed for sure; others may be later."""
        found = records.emptied()
        for record in self.added(records.values()):
            found.add(record)
        return found

    def added(self, records: Iterable[PartRecord], slice_: Slice | None = None) -> list[PartRecord]:
        """The records, of these and of earlier ones, that are now known to be needed. `slice_` is
        what this attempt has read."""
        with self._lock:
            return self._added(records, slice_)

    def _added(self, records: Iterable[PartRecord], slice_: Slice | None) -> list[PartRecord]:
        for record in records:
            index = record.slice_index
            self._early[index] = record
            if index < self._handed_out:
                self._early_tokens += record.num_tokens
            if slice_ is not None:
                self._read[index] = slice_
                tokens, text_bytes = self._measured
                self._measured = tokens + record.num_tokens, text_bytes + slice_.text_bytes
        needed = list(self._before_limit())
        if self.last is not None and self.last_index in self._early:
            needed.append(self._early.pop(self.last_index))
            self.is_complete = True
        self.is_complete |= self._place == len(self._slices)
        return needed

    def take_done(self) -> list[Slice]:
        """The slices that nobody needs to read again, each returned once."""
        done, self._done = self._done, []
        return done

    def handed_out(
        self, arriving: Iterable[Slice | None], in_flight: Mapping[int, Slice]
    ) -> Iterator[Slice | None]:
        """The slices that arrive, until the limit is reached; then the one that is cut short. None:
        ask again when there are more records."""
        for slice_ in arriving:
            if slice_ is None:
                yield None
                continue
            if slice_ == self.last:  # an earlier attempt has found it
                yield slice_
                return
            while self.last is None and self._is_reached_before(slice_.index, in_flight):
                yield None
            if self.last is not None:
                break
            yield slice_
        last, is_complete = self._known()
        while last is None and not is_complete:
            yield None
            last, is_complete = self._known()
        if not is_complete:
            yield last

    def _known(self) -> tuple[Slice | None, bool]:
        """`last` and `is_complete`, of the same moment."""
        with self._lock:
            return self.last, self.is_complete

    def _before_limit(self) -> Iterator[PartRecord]:
        while self.last is None and self._place in self._early:
            record = self._early[self._place]
            if record.num_tokens >= self._left:
                spans = self._slices[self._place].spans
                copies = self._copies_at(self._place)
                last = Slice(self.last_index, spans, self._left, self._place, copies)
                self.last = last.read_from(self._places)
                return
            del self._early[self._place]
            self._left -= record.num_tokens
            if self._place < self._handed_out:
                self._early_tokens -= record.num_tokens
            if self._place in self._read:
                self._done.append(self._read.pop(self._place))
            self._place += 1
            yield record

    def _is_reached_before(self, index: int, in_flight: Mapping[int, Slice]) -> bool:
        """Whether the slices before this one, recorded or in flight, reach the limit, as far as one
        can tell: then it is not begun before there are more records."""
        begun = sum(slice_.text_bytes for slice_ in list(in_flight.values()))
        with self._lock:
            while self._handed_out < index:
                if (record := self._early.get(self._handed_out)) is not None:
                    self._early_tokens += record.num_tokens
                self._handed_out += 1
            tokens, text_bytes = self._measured
            return self._early_tokens + begun * tokens / max(1, text_bytes) >= self._left
