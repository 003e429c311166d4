"""The work of earlier attempts: records whose parts are whole or no longer needed."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

from tokenmill.assemble.parts_in_use import UsedParts
from tokenmill.encode.job import Job
from tokenmill.encode.ledger import Ledger
from tokenmill.encode.part import PART_CHECKSUM
from tokenmill.encode.record import PartRecord, committed_records, part_path
from tokenmill.storage.objects import in_parallel
from tokenmill.storage.store import store_of

_SMALL_BYTES = 1 << 16


def earlier_records(job: Job, indices: Sequence[int]) -> Ledger:
    """The records of earlier attempts. A part that is still needed must be whole."""
    used = UsedParts.of(job.work)
    records = Ledger()
    check = functools.partial(_if_whole, job.work, used)
    has_quick_calls = store_of(job.work).has_quick_calls

    def to_check_in_parallel() -> Iterator[PartRecord]:
        """Records to check in threads. The others are added at once: a thread costs more than
        checking a small file."""
        for record in filter(None, committed_records(job.work, indices, job.plan_id)):
            needed = needed_splits(record, used)
            is_large = any(record.num_bytes[split] > _SMALL_BYTES for split in needed)
            if needed and (is_large or not has_quick_calls):
                yield record
            elif not needed or check(record):
                records.add(record)

    for record in filter(None, in_parallel(check, to_check_in_parallel())):
        records.add(record)
    return records


def needed_splits(record: PartRecord, used: UsedParts) -> list[int]:
    """The splits whose part files are still needed."""
    return [
        split
        for split, num_bytes in enumerate(record.num_bytes)
        if num_bytes and (split, record.slice_index) not in used
    ]


def _if_whole(work: str, used: UsedParts, record: PartRecord) -> PartRecord | None:
    """The record, if the part files that are still needed match it."""
    store = store_of(work)
    for split in needed_splits(record, used):
        path, hasher = part_path(work, record.slice_index, split), PART_CHECKSUM()
        if not store.is_whole(path, record.num_bytes[split], record.checksum[split], hasher):
            return None
    return record
