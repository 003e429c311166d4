"""The work of earlier attempts: records whose parts are whole or no longer needed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from tokenmill.assemble.parts_in_use import UsedParts
from tokenmill.encode.checkpoint import saved_ledger
from tokenmill.encode.job import Job
from tokenmill.encode.ledger import Ledger
from tokenmill.encode.part import PART_CHECKSUM
from tokenmill.encode.record import PartRecord, committed_records, part_path, recorded_indices
from tokenmill.storage.objects import in_parallel
from tokenmill.storage.store import store_of

_SMALL_BYTES = 1 << 16


def earlier_records(job: Job, indices: range) -> Ledger:
    """The records of earlier attempts. A part that is still needed must be whole."""
    used = UsedParts.of(job.work)
    records = saved_ledger(job.work, job.plan_id)
    in_files: Sequence[int] = indices
    if records:
        records.keep(indices)
        in_files = [index for index in recorded_indices(job.work) if index in indices]
        for index in in_files:
            records.discard(index)  # its file counts, even if it is damaged
    has_quick_calls = store_of(job.work).has_quick_calls

    def checked(record: PartRecord) -> tuple[PartRecord, bool]:
        return record, _is_whole(job.work, record, used)

    def settle(record: PartRecord, is_whole: bool) -> None:
        if not is_whole:
            records.discard(record.slice_index)
        elif record.slice_index not in records:
            records.add(record)

    def to_check_in_parallel() -> Iterator[PartRecord]:
        """Records to check in threads. The others are settled at once: a thread costs more than
        checking a small file."""
        first = used.num_first
        saved = (records[index] for index in records if index >= first)
        filed = filter(None, committed_records(job.work, in_files, job.plan_id))
        for record in itertools.chain(saved, filed):
            needed = needed_splits(record, used)
            is_large = any(record.num_bytes[split] > _SMALL_BYTES for split in needed)
            if needed and (is_large or not has_quick_calls):
                yield record
            else:
                settle(record, not needed or _is_whole(job.work, record, used))

    for record, is_whole in in_parallel(checked, to_check_in_parallel()):
        settle(record, is_whole)
    return records


def needed_splits(record: PartRecord, used: UsedParts) -> list[int]:
    """The splits whose part files are still needed."""
    return [
        split
        for split, num_bytes in enumerate(record.num_bytes)
        if num_bytes and (split, record.slice_index) not in used
    ]


def _is_whole(work: str, record: PartRecord, used: UsedParts) -> bool:
    """Whether the part files that are still needed match their record."""
    store = store_of(work)
    for split in needed_splits(record, used):
        path, hasher = part_path(work, record.slice_index, split), PART_CHECKSUM()
        if not store.is_whole(path, record.num_bytes[split], record.checksum[split], hasher):
            return False
    return True
