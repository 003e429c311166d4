"""Parts of slices that were read before their files were complete (run/early_slices.py).

Such a part is in a folder that no other run writes to, and has no record. It gets its place and its
record once the files have the right hash.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

from tokenmill.corpus.spans import Slice
from tokenmill.encode.job import Job
from tokenmill.encode.record import SPLITS, PartRecord, kept_path, part_path
from tokenmill.encode.text_hashes import hashes_path
from tokenmill.storage import disk


def saved_early(job: Job, slice_: Slice) -> PartRecord | None:
    """Move an early slice's part to its place and save its record; None if the part is gone."""
    record = replace(PartRecord.from_plain(json.loads(slice_.early_record)), is_early=False)
    own = _paths(job, slice_.early_folder, record)
    for source, target in zip(own, _paths(job, job.work, record), strict=True):
        if not disk.rename_if_there(source, target, is_durable=False):
            return None
    record.save(job.work)
    return record


def _paths(job: Job, work: str, record: PartRecord) -> Iterator[str]:
    """The files of a part."""
    index = record.slice_index
    for split in range(len(SPLITS)):
        if record.num_bytes[split]:
            yield part_path(work, index, split)
        if record.kept_bytes[split]:
            yield kept_path(work, index, split)
    if job.dedup:
        yield hashes_path(work, index)
