"""`--limit-tokens`: which slices a run needs, and which one is cut short.

Tokens are counted in plan order, in both splits and with EOT. The slice that reaches the limit is
encoded again, up to the document that reaches it, under the index after the plan's last: a
committed file never changes. So the result is a function of the plan, no matter how many slices
beyond the limit were encoded in vain.

Records are passed on in plan order, once they are known to be before the limit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from tokenmill.corpus.slices import SliceTable
from tokenmill.corpus.spans import Slice
from tokenmill.encode.ledger import Ledger
from tokenmill.encode.record import PartRecord


class TokenLimit:
    """`moved` has the paths, by name, of inputs that are not where the plan has them. One thread
    may add records while another asks what to hand out."""

    def __init__(
        self,
        max_tokens: int,
        slices: SliceTable,
        moved: Mapping[str, str],
        copies_in: Callable[[int], str] = lambda slice_index: "",
    ) -> None:
        self._slices = slices
        self._copies_in = copies_in  # what --dedup leaves out of a slice (Slice.copies)
        self._moved = moved
        self._lock = threading.Lock()
        self.max_tokens = max_tokens
        self._left = max_tokens
        self._next = 0  # all slices before it have a record and are before the limit
        self._ahead: dict[int, PartRecord] = {}  # records of slices from there on
        self._waiting_tokens = 0  # of all these
        self._handed_out = 0  # all slices before it have a record or are in flight
        self._ahead_tokens = 0  # of these records, before that
        self._read: dict[int, Slice] = {}  # slices with such a record that this attempt read
        self._done: list[Slice] = []  # slices whose inputs are not needed again
        self._measured = (0, 0)  # tokens and bytes of text of slices that this attempt read
        self.last: Slice | None = None  # the slice that is cut short, once it is known
        self.is_complete = False  # every slice up to the limit has its record

    @property
    def last_index(self) -> int:
        return len(self._slices)

    @property
    def num_slices(self) -> int:
        """The number of slices, once `last` is known."""
        return self._next + 1

    @property
    def num_tokens(self) -> int:
        """Of the slices with a record; more than the limit, once slices beyond it have one."""
        with self._lock:
            return self.max_tokens - self._left + self._waiting_tokens

    def resumed(self, records: Ledger) -> Ledger:
        """The records of earlier attempts that are certainly needed; others may be needed later."""
        found = records.emptied()
        for record in self.added(records.values()):
            found.add(record)
        return found

    def added(self, records: Iterable[PartRecord], slice_: Slice | None = None) -> list[PartRecord]:
        """The records, of these and earlier ones, that are now known to be needed. `slice_` is the
        slice that this attempt read for them."""
        with self._lock:
            return self._added(records, slice_)

    def _added(self, records: Iterable[PartRecord], slice_: Slice | None) -> list[PartRecord]:
        for record in records:
            index = record.slice_index
            self._ahead[index] = record
            self._waiting_tokens += record.num_tokens
            if index < self._handed_out:
                self._ahead_tokens += record.num_tokens
            if slice_ is not None:
                self._read[index] = slice_
                tokens, text_bytes = self._measured
                self._measured = tokens + record.num_tokens, text_bytes + slice_.text_bytes
        needed = list(self._before_limit())
        if self.last is not None and self.last_index in self._ahead:
            # Nobody knows later where the slice was cut, so its content is that of all its rows.
            whole, last = self._ahead[self._next], self._ahead.pop(self.last_index)
            needed.append(replace(last, content=whole.content))
            self.is_complete = True
        self.is_complete |= self._next == len(self._slices)
        return needed

    def take_done(self) -> list[Slice]:
        """The slices whose inputs are not needed again, each returned once."""
        done, self._done = self._done, []
        return done

    def handed_out(
        self, arriving: Iterable[Slice | None], in_flight: Mapping[int, Slice]
    ) -> Iterator[Slice | None]:
        """The arriving slices until the limit is reached, then the one that is cut short. None: ask
        again when there are more records."""
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
        """A consistent pair of `last` and `is_complete`."""
        with self._lock:
            return self.last, self.is_complete

    def _before_limit(self) -> Iterator[PartRecord]:
        while self.last is None and self._next in self._ahead:
            at = self._next
            record = self._ahead[at]
            if record.num_tokens >= self._left:
                spans, copies = self._slices[at].spans, self._copies_in(at)
                last = Slice(self.last_index, spans, self._left, at, copies)
                self.last = last.read_from(self._moved)
                return
            del self._ahead[at]
            self._left -= record.num_tokens
            self._waiting_tokens -= record.num_tokens
            if at < self._handed_out:
                self._ahead_tokens -= record.num_tokens
            if at in self._read:
                self._done.append(self._read.pop(at))
            self._next += 1
            yield record

    def _is_reached_before(self, index: int, in_flight: Mapping[int, Slice]) -> bool:
        """Whether the slices before this one, recorded or in flight, probably reach the limit: then
        it does not begin until there are more records."""
        begun = sum(slice_.text_bytes for slice_ in list(in_flight.values()))
        with self._lock:
            while self._handed_out < index:
                if (record := self._ahead.get(self._handed_out)) is not None:
                    self._ahead_tokens += record.num_tokens
                self._handed_out += 1
            tokens, text_bytes = self._measured
            return self._ahead_tokens + begun * tokens / max(1, text_bytes) >= self._left
