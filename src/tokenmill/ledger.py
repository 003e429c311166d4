"""The ledger: all records of a run, kept small. 120 bytes each, where objects take 900.

The driver of a run needs every record to the end, for the manifest, and a run may have a million.
A record with quarantined rows, or with several runs, is kept as it is: there are few.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping

from tokenmill.record import Counts, PartRecord, Quarantined, Run

_CHECKSUM_BYTES = 16
_NUM_COLUMNS = 1 + 4 + len(Counts.__slots__)  # num_bytes, the run's, the counts
_ABSENT, _PLAIN, _ODD = range(3)


class Ledger(Mapping[int, PartRecord]):
    """Records by slice index, in plan order."""

    def __init__(self) -> None:
        self._plan_id = ""
        self._kinds = bytearray()  # of each slice: absent, in the columns, or odd
        self._checksums = bytearray()
        self._columns = tuple(array("q") for _ in range(_NUM_COLUMNS))
        self._odd: dict[int, PartRecord] = {}
        self._num_records = 0

    def add(self, record: PartRecord) -> None:
        index = record.slice_index
        self._reach(index)
        self.discard(index)
        self._num_records += 1
        if not self._fits(record):
            self._kinds[index] = _ODD
            self._odd[index] = record
            return
        self._kinds[index] = _PLAIN
        self._plan_id = record.plan_id
        at = _CHECKSUM_BYTES * index
        self._checksums[at : at + _CHECKSUM_BYTES] = bytes.fromhex(record.checksum)
        [run] = record.runs
        counts = (getattr(record.counts, name) for name in Counts.__slots__)
        numbers = (record.num_bytes, *run.num_tokens, *run.num_documents, *counts)
        for column, number in zip(self._columns, numbers, strict=True):
            column[index] = number

    def discard(self, index: int) -> None:
        """Forget a slice's record, if there is one."""
        if index in self:
            self._kinds[index] = _ABSENT
            for column in self._columns:
                column[index] = 0
            self._odd.pop(index, None)
            self._num_records -= 1

    @property
    def counts(self) -> Counts:
        """What became of all rows."""
        columns = self._columns[-len(Counts.__slots__) :]
        return sum((record.counts for record in self._odd.values()), Counts(*map(sum, columns)))

    @property
    def quarantined(self) -> Iterator[Quarantined]:
        """The rows that were left out, in plan order."""
        return (row for index in sorted(self._odd) for row in self._odd[index].quarantined)

    def __getitem__(self, index: int) -> PartRecord:
        if index not in self:
            raise KeyError(index)
        if self._kinds[index] == _ODD:
            return self._odd[index]
        at = _CHECKSUM_BYTES * index
        checksum = self._checksums[at : at + _CHECKSUM_BYTES].hex()
        num_bytes, t0, t1, d0, d1, *counts = (column[index] for column in self._columns)
        runs = (Run((t0, t1), (d0, d1)),)
        return PartRecord(index, self._plan_id, num_bytes, checksum, runs, Counts(*counts))

    def __contains__(self, index: object) -> bool:
        return isinstance(index, int) and index < len(self._kinds) and self._kinds[index] != _ABSENT

    def __iter__(self) -> Iterator[int]:
        return (index for index, kind in enumerate(self._kinds) if kind != _ABSENT)

    def __len__(self) -> int:
        return self._num_records

    def _fits(self, record: PartRecord) -> bool:
        return (
            len(record.runs) == 1
            and not record.quarantined
            and len(record.checksum) == 2 * _CHECKSUM_BYTES
            and self._plan_id in ("", record.plan_id)
        )

    def _reach(self, index: int) -> None:
        """Make room up to this index, and as much again, so that it is seldom called."""
        if index >= len(self._kinds):
            more = index + 1 - len(self._kinds) + len(self._kinds) // 8
            self._kinds.extend(bytes(more))
            self._checksums.extend(bytes(_CHECKSUM_BYTES * more))
            for column in self._columns:
                column.frombytes(bytes(column.itemsize * more))
