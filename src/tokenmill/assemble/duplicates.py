"""`--dedup exact`: which documents are copies of earlier ones, whatever the order of the records.

A worker leaves out copies within its slice, and saves the hashes of the other documents beside the
part. The driver goes through these files in plan order: what an earlier slice has is a copy. A part
that has copies is written again without them by a worker (encode/pruning.py), under the index
`num_slices + 1 + place`. So the documents that stay are a function of the plan; the driver keeps
20 to 25 bytes for each of them (encode/seen_texts.py).

Everything is found again from the records and the hash files. A slice whose hash file is missing or
damaged is encoded again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace

from tokenmill.corpus.slices import SliceTable
from tokenmill.corpus.spans import Slice
from tokenmill.encode.job import Job
from tokenmill.encode.ledger import Ledger
from tokenmill.encode.pruning import packed_flags
from tokenmill.encode.record import PartRecord
from tokenmill.encode.seen_texts import SeenTexts
from tokenmill.encode.text_hashes import saved_hashes
from tokenmill.errors import DamagedWorkError
from tokenmill.storage.objects import in_parallel


class Duplicates:
    """One thread adds records while another asks what to hand out."""

    def __init__(self, work: str, plan_id: str, slices: SliceTable) -> None:
        self._work = work
        self._plan_id = plan_id
        self._slices = slices
        self._num_slices = len(slices)
        self._seen = SeenTexts(1 << 16)
        self._place = 0  # all slices before it are decided
        self._known: dict[int, PartRecord] = {}  # records of slices that are not
        self._pruned: dict[int, PartRecord] = {}  # of their parts without copies
        self._copies: dict[int, str] = {}  # of slices that have some
        self._due: deque[Slice] = deque()
        self._num_left = len(slices)  # slices that are not settled
        self._is_ended = False

    @property
    def num_indices(self) -> int:
        """Indices of records are below this."""
        return 2 * self._num_slices + 1

    @property
    def is_complete(self) -> bool:
        return self._is_ended or not self._num_left

    def copies_at(self, place: int) -> str:
        """Which documents of a slice are copies, for `Slice.copies`; empty if none is."""
        return self._copies.get(place, "")

    def resumed(self, records: Ledger) -> tuple[Ledger, list[int]]:
        """The records of earlier attempts that are settled, and the slices that have none."""
        places = sorted({self._place_of(index) for index in records} - {self._num_slices})
        is_whole = _have_hashes(self._work, self._plan_id, places)
        wanted = (
            records[index]
            for index in records
            if index == self._num_slices or is_whole[self._place_of(index)]
        )
        settled = records.emptied()
        for record in self.added(wanted):
            settled.add(record)
        missing = [at for at in range(self._num_slices) if not is_whole.get(at, False)]
        return settled, missing

    def added(self, records: Iterable[PartRecord]) -> list[PartRecord]:
        """The records, of these and of earlier ones, that are now known to be those of slices
        without copies. Each has its slice's index, and the index of its part."""
        settled = []
        for record in records:
            index = record.slice_index
            if index == self._num_slices:  # cut short by a limit, and encoded without copies
                settled.append(record)
            elif self._is_ended:
                continue
            elif index < self._num_slices:
                self._known[index] = record
            elif (place := self._place_of(index)) < self._place:
                settled.append(_at(place, record))
                self._num_left -= 1
            else:
                self._pruned[place] = record
        settled += self._decided()
        return settled

    def handed_out(self, slices: Iterator[Slice | None]) -> Iterator[Slice | None]:
        """The slices, and before each the ones that are due here; when there are no more slices,
        until all are settled. None: ask again when there are more records."""
        for slice_ in slices:
            while (due := self._next_due()) is not None:
                yield due
            yield slice_
        while not self.is_complete:
            yield self._next_due()

    def end(self) -> None:
        """Note that no more slices are needed: a limit is reached."""
        self._is_ended = True
        self._due.clear()

    def _next_due(self) -> Slice | None:
        try:
            return self._due.popleft()
        except IndexError:  # the other thread may just have cleared it
            return None

    def _decided(self) -> Iterator[PartRecord]:
        while self._place in self._known or self._place in self._pruned:
            place = self._place
            rows = saved_hashes(self._work, self._plan_id, place)
            if rows is None:
                raise DamagedWorkError(
                    f"the hashes of slice {place} are gone or damaged",
                    hint="run the same command again: it resumes",
                )
            is_copy = ~self._seen.add(rows["hash"])
            self._place += 1
            record, pruned = self._known.pop(place, None), self._pruned.pop(place, None)
            if is_copy.any():
                self._copies[place] = packed_flags(is_copy)
                if pruned is None:
                    index, spans = self._num_slices + 1 + place, self._slices[place].spans
                    self._due.append(Slice(index, spans, None, place, self._copies[place]))
                    continue
                record = _at(place, pruned)
            assert record is not None, "without copies there is only this part"
            self._num_left -= 1
            yield record

    def _place_of(self, index: int) -> int:
        return index - self._num_slices - 1 if index > self._num_slices else index


def forget_without_hashes(job: Job, records: Ledger) -> None:
    """Forget the records of slices whose hash file is missing or damaged."""
    for index, is_whole in _have_hashes(job.work, job.plan_id, list(records)).items():
        if not is_whole:
            records.discard(index)


def _have_hashes(work: str, plan_id: str, places: Iterable[int]) -> dict[int, bool]:
    def checked(place: int) -> tuple[int, bool]:
        return place, saved_hashes(work, plan_id, place) is not None

    return dict(in_parallel(checked, iter(places)))


def _at(place: int, record: PartRecord) -> PartRecord:
    return replace(record, slice_index=place, part_index=record.slice_index)
