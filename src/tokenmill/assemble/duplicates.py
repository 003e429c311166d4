"""`--dedup exact`: which documents are copies of earlier ones, whatever the order of the records.

A worker leaves out copies within its slice, and saves the hashes of the other documents beside the
part. The driver reads these files in plan order: what an earlier slice has is a copy. A worker
writes a part that has copies again without them (encode/pruning.py), under the index
`num_slices + 1 + slice`. So the documents that stay are a function of the plan; the driver keeps
20 to 25 bytes for each of them (encode/seen_texts.py).

A resumed run finds all of this again from the records and the hash files. A slice whose hash file
is missing or damaged is encoded again.
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
    """Decides slice by slice, in plan order. One thread may add records while another asks what to
    hand out."""

    def __init__(self, work: str, plan_id: str, slices: SliceTable) -> None:
        self._work = work
        self._plan_id = plan_id
        self._slices = slices
        self._num_slices = len(slices)
        self._seen = SeenTexts(1 << 16)
        self._next = 0  # the next slice to decide: in all before it, the copies are known
        self._known: dict[int, PartRecord] = {}  # records of later slices
        self._pruned: dict[int, PartRecord] = {}  # records of later slices without copies
        self._copies: dict[int, str] = {}  # `Slice.copies`, of slices that have some
        self._due: deque[Slice] = deque()  # to be written again without copies
        self._num_left = len(slices)  # slices that are not settled: they have no final record
        self._is_ended = False

    @property
    def num_indices(self) -> int:
        """The bound on the indices of records."""
        return 2 * self._num_slices + 1

    @property
    def is_complete(self) -> bool:
        return self._is_ended or not self._num_left

    def copies_in(self, slice_index: int) -> str:
        """Which documents of a slice are copies, for `Slice.copies`; empty if none is."""
        return self._copies.get(slice_index, "")

    def resumed(self, records: Ledger) -> tuple[Ledger, list[int]]:
        """The records of earlier attempts that are settled, and the slices that have none."""
        slices = sorted({self._original(index) for index in records} - {self._num_slices})
        is_whole = _have_hashes(self._work, self._plan_id, slices)
        wanted = (
            records[index]
            for index in records
            if index == self._num_slices or is_whole[self._original(index)]
        )
        settled = records.emptied()
        for record in self.added(wanted):
            settled.add(record)
        missing = [at for at in range(self._num_slices) if not is_whole.get(at, False)]
        return settled, missing

    def added(self, records: Iterable[PartRecord]) -> list[PartRecord]:
        """The records, of these and earlier ones, that are now known to be final: their slices have
        no copies. Each has the index of its slice, and of its part."""
        settled = []
        for record in records:
            index = record.slice_index
            if index == self._num_slices:  # cut short by a limit, and encoded without copies
                settled.append(record)
            elif self._is_ended:
                continue
            elif index < self._num_slices:
                self._known[index] = record
            elif (original := self._original(index)) < self._next:
                settled.append(_as_record_of(original, record))
                self._num_left -= 1
            else:
                self._pruned[original] = record
        settled += self._decided()
        return settled

    def handed_out(self, slices: Iterator[Slice | None]) -> Iterator[Slice | None]:
        """The slices, and before each those to be written again; then these until all are settled.
        None: ask again when there are more records."""
        for slice_ in slices:
            while (due := self._next_due()) is not None:
                yield due
            yield slice_
        while not self.is_complete:
            yield self._next_due()

    def end(self) -> None:
        """Note that --limit-tokens is reached: no more slices are needed."""
        self._is_ended = True
        self._due.clear()

    def _next_due(self) -> Slice | None:
        try:
            return self._due.popleft()
        except IndexError:  # the other thread may just have cleared it
            return None

    def _decided(self) -> Iterator[PartRecord]:
        while self._next in self._known or self._next in self._pruned:
            at = self._next
            rows = saved_hashes(self._work, self._plan_id, at)
            if rows is None:
                raise DamagedWorkError(
                    f"the hashes of slice {at} are missing or damaged",
                    hint="run the same command again: it resumes",
                )
            is_copy = ~self._seen.add(rows["hash"])
            self._next += 1
            record, pruned = self._known.pop(at, None), self._pruned.pop(at, None)
            if is_copy.any():
                self._copies[at] = packed_flags(is_copy)
                if pruned is None:
                    index, spans = self._num_slices + 1 + at, self._slices[at].spans
                    self._due.append(Slice(index, spans, None, at, self._copies[at]))
                    continue
                record = _as_record_of(at, pruned)
            assert record is not None, "without copies there is only this part"
            self._num_left -= 1
            yield record

    def _original(self, index: int) -> int:
        """The slice of the plan that a record's index stands for."""
        return index - self._num_slices - 1 if index > self._num_slices else index


def forget_without_hashes(job: Job, records: Ledger) -> None:
    """Forget the records of slices whose hash file is missing or damaged."""
    for index, is_whole in _have_hashes(job.work, job.plan_id, list(records)).items():
        if not is_whole:
            records.discard(index)


def _have_hashes(work: str, plan_id: str, slices: Iterable[int]) -> dict[int, bool]:
    """By slice: whether its hash file is there and whole."""

    def checked(index: int) -> tuple[int, bool]:
        return index, saved_hashes(work, plan_id, index) is not None

    return dict(in_parallel(checked, iter(slices)))


def _as_record_of(slice_index: int, record: PartRecord) -> PartRecord:
    return replace(record, slice_index=slice_index, part_index=record.slice_index)
