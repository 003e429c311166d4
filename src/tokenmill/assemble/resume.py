"""The work of earlier attempts: records whose parts are intact or no longer needed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tokenmill.assemble.parts_in_use import UsedParts
from tokenmill.encode.job import Job
from tokenmill.encode.ledger import Ledger, saved_ledger
from tokenmill.encode.part import PART_CHECKSUM
from tokenmill.encode.record import (
    PartRecord,
    committed_records,
    kept_path,
    part_path,
    recorded_indices,
)
from tokenmill.storage.hashing import file_digest
from tokenmill.storage.objects import in_parallel
from tokenmill.storage.store import store_of

_SMALL_BYTES = 1 << 16


def earlier_records(
    job: Job, indices: range, notice: Callable[[str], None] = lambda message: None
) -> Ledger:
    """The records of earlier attempts, without those whose part is still needed but damaged."""
    used = UsedParts.of(job.work)
    records = saved_ledger(job.work, job.plan_id, notice)
    in_files: Sequence[int] = indices
    if records:
        records.keep(indices)
        in_files = [index for index in recorded_indices(job.work) if index in indices]
        for index in in_files:
            records.discard(index)  # its file counts, even if it is damaged
    is_local = store_of(job.work).is_local

    def checked(record: PartRecord) -> tuple[PartRecord, bool]:
        return record, _is_whole(job.work, record, used)

    def settle(record: PartRecord, is_whole: bool) -> None:
        if not is_whole:
            records.discard(record.slice_index)
        elif record.slice_index not in records:
            records.add(record)

    def to_check_in_parallel() -> Iterator[PartRecord]:
        """The records to check in threads. Others are settled here: a small local file is checked
        faster than it is handed to a thread."""
        first = used.num_first
        saved = (records[index] for index in records if index >= first)
        filed = filter(None, committed_records(job.work, in_files, job.plan_id))
        for record in itertools.chain(saved, filed):
            needed = needed_files(job.work, record, used)
            is_large = any(file.num_bytes > _SMALL_BYTES for file in needed)
            if needed and (is_large or not is_local):
                yield record
            else:
                settle(record, not needed or _is_whole(job.work, record, used))

    for record, is_whole in in_parallel(checked, to_check_in_parallel()):
        settle(record, is_whole)
    return records


class NeededFile(NamedTuple):
    path: str
    num_bytes: int
    checksum: str


def needed_files(work: str, record: PartRecord, used: UsedParts) -> list[NeededFile]:
    """The files of a part that are still needed. Kept rows are needed until the end."""
    index, found = record.slice_index, []
    for split, num_bytes in enumerate(record.num_bytes):
        if num_bytes and (split, index) not in used:
            path = part_path(work, index, split)
            found.append(NeededFile(path, num_bytes, record.checksum[split]))
    for split, num_bytes in enumerate(record.kept_bytes):
        if num_bytes:
            path = kept_path(work, index, split)
            found.append(NeededFile(path, num_bytes, record.kept_checksum[split]))
    return found


def _is_whole(work: str, record: PartRecord, used: UsedParts) -> bool:
    """Whether the files that are still needed match their record."""
    return all(_is_unchanged(file) for file in needed_files(work, record, used))


def _is_unchanged(file: NeededFile) -> bool:
    """Whether a file that was not made durable is as it was; a crash does not change an object."""
    store = store_of(file.path)
    if store.size(file.path) != file.num_bytes:
        return False
    return not store.is_local or file_digest(file.path, PART_CHECKSUM()) == file.checksum
