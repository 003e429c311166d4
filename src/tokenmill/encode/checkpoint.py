"""The checkpoint of a ledger: its rows in one file, which replaces their record files.

    records/ledger.bin          the records up to some moment: head, kinds, rows, sha256
    records/00000042.json       a later record, or one that does not fit into a row

A million record files take 25 s to read; their rows, 161 MB, a fraction of a second. The driver
saves its ledger whenever it has grown by an eighth. So all checkpoints of a run together write nine
times its ledger, and a resumed run reads at most a ninth of the records from files. A run of fewer
than MIN_RECORDS slices has no checkpoint.

A record file overrides its row: files are removed once their rows are durable, so a file that is
there equals its row or is newer (its part was damaged and made again).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from tokenmill.encode.ledger import ROW_BYTES, Ledger
from tokenmill.encode.record import RECORDS_NAME, record_path
from tokenmill.storage import files

MIN_RECORDS = 4096  # that a checkpoint adds to the previous one
_NAME = "ledger.bin"
_VERSION = b"tokenmill ledger 3 "  # raised by any change of the row format
_HEAD = _VERSION + b"%s\n"  # the plan's id
_DIGEST_BYTES = 32
_REMOVED_AT_ONCE = 4096


def saved_ledger(
    work: str, plan_id: str, notice: Callable[[str], None] = lambda message: None
) -> Ledger:
    """The records in the checkpoint; none if it is missing, damaged, or of another plan or version.
    Then those slices are encoded again, and `notice` says why, unless it is missing."""
    head = _HEAD % plan_id.encode()
    try:
        data = files.read_file(f"{work}/{RECORDS_NAME}/{_NAME}")
    except FileNotFoundError:
        return Ledger()
    body, digest = memoryview(data)[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    num_slices, rest = divmod(len(body) - len(head), 1 + ROW_BYTES)
    if rest or not data.startswith(head) or hashlib.sha256(body).digest() != digest:
        why = "is damaged" if data.startswith(_VERSION) else "was not written by this version"
        notice(f"{RECORDS_NAME}/{_NAME} {why}: the slices that it lists have to be encoded again")
        return Ledger()
    rows_at = len(head) + num_slices
    return Ledger(plan_id, (body[len(head) : rows_at], body[rows_at:]))


def save_if_grown(work: str, records: Ledger) -> None:
    """If enough was added, save the ledger, then remove the record files that it replaces. Only for
    a driver, which has the folder to itself."""
    if records.num_unsaved < max(MIN_RECORDS, len(records) // 9) or not records.covers_checkpoint:
        return
    with files.new_file(f"{work}/{RECORDS_NAME}", _NAME) as file:
        for data in (_HEAD % records.plan_id.encode(), *records.to_save()):
            file.write(data)
        file.write(bytes.fromhex(file.digest))
        file.commit()
    saved = records.mark_saved()
    for at in range(0, len(saved), _REMOVED_AT_ONCE):
        batch = saved[at : at + _REMOVED_AT_ONCE]
        files.remove_all([record_path(work, index) for index in batch])
