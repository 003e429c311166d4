"""The ledger: all records of a run in 161 bytes each, where objects take 900.

The driver needs every record until the end, for the manifest, and a run may have a million. The few
records with quarantined rows, several chunks, an early end or a part with another index stay
objects, as do all records of a run with --keep. The rows are saved as they are:

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
import struct
from collections.abc import Callable, Iterator, Mapping

from tokenmill.encode.record import (
    CONTENT_DIGITS,
    RECORDS_NAME,
    Counts,
    PartChunk,
    PartRecord,
    Quarantined,
    record_path,
)
from tokenmill.storage.store import new_file, store_of

_NUM_COUNTS = len(Counts.__slots__)
# Checksums, sizes, the chunk's tokens and documents (train, val each), the counts, the content.
_ROW = struct.Struct(f"<16s16s6q{_NUM_COUNTS}q8s")
ROW_BYTES = _ROW.size
_EXTENT = struct.Struct("<32x6q")
_NO_ROW = bytes(_ROW.size)
# The record of a slice: there is none; a row; a row that is in the checkpoint; an object.
_ABSENT, _PLAIN, _SAVED, _ODD = range(4)
_AS_SAVED = bytes.maketrans(bytes([_PLAIN, _ODD]), bytes([_SAVED, _ABSENT]))
_Bytes = bytes | bytearray | memoryview
Saved = tuple[_Bytes, _Bytes]  # kinds, rows


class Ledger(Mapping[int, PartRecord]):
    """Records by slice index, in plan order."""

    def __init__(self, plan_id: str = "", saved: Saved = (b"", b"")) -> None:
        """`saved` is what `to_save` returned for the rows of `plan_id`."""
        self.plan_id = plan_id  # of the rows
        self._kinds, self._rows = map(bytearray, saved)
        self._checkpointed = bytes(self._kinds)
        self._odd: dict[int, PartRecord] = {}
        self._num_records = len(self._kinds) - self._kinds.count(_ABSENT)
        self.num_unsaved = 0  # rows that the checkpoint lacks
        self._counts: Counts | None = None  # of all, until something is added

    def add(self, record: PartRecord) -> None:
        index = record.slice_index
        if index >= len(self._kinds):
            self._grow(index + 1)
        if self._kinds[index] != _ABSENT:
            self.discard(index)
        self._num_records += 1
        self._counts = None
        if not self._fits(record):
            self._kinds[index] = _ODD
            self._odd[index] = record
            return
        self._kinds[index] = _PLAIN
        self.num_unsaved += 1
        self.plan_id = record.plan_id
        chunk, c = record.chunks[0], record.counts
        _ROW.pack_into(
            self._rows,
            index * _ROW.size,
            *map(bytes.fromhex, record.checksum),
            *record.num_bytes,
            *chunk.num_tokens,
            *chunk.num_documents,
            *(c.num_rows, c.num_written, c.num_empty, c.num_null),
            *(c.num_quarantined, c.num_replaced, c.text_bytes, c.num_filtered),
            c.num_duplicates,
            bytes.fromhex(record.content),
        )

    def discard(self, index: int) -> None:
        """Forget a slice's record, if there is one."""
        if index in self:
            self.num_unsaved -= self._kinds[index] == _PLAIN
            self._kinds[index] = _ABSENT
            self._rows[index * _ROW.size : (index + 1) * _ROW.size] = _NO_ROW
            self._odd.pop(index, None)
            self._num_records -= 1
            self._counts = None

    def emptied(self) -> Ledger:
        """A ledger without records, which remembers what the checkpoint holds."""
        found = Ledger()
        found._checkpointed = self._checkpointed
        return found

    @property
    def covers_checkpoint(self) -> bool:
        """Whether the checkpoint may be replaced: this ledger has all of its records, whose files
        are gone."""
        return all(kind != _SAVED or index in self for index, kind in enumerate(self._checkpointed))

    def keep(self, indices: range) -> None:
        """Forget the records of all other slices."""
        for index in self:
            if index not in indices:
                self.discard(index)

    def to_save(self) -> Saved:
        """The contents of a checkpoint."""
        return self._kinds.translate(_AS_SAVED), self._rows

    def is_saved(self, index: int) -> bool:
        """Whether the checkpoint has this slice's record."""
        return self._kinds[index] == _SAVED

    def mark_saved(self) -> list[int]:
        """Note that all rows are in the checkpoint; returns the slices that were not before."""
        unsaved = [index for index, kind in enumerate(self._kinds) if kind == _PLAIN]
        for index in unsaved:
            self._kinds[index] = _SAVED
        self._checkpointed = bytes(self._kinds.translate(_AS_SAVED))
        self.num_unsaved = 0
        return unsaved

    @property
    def counts(self) -> Counts:
        """The sum of all counts."""
        if self._counts is None:
            totals = [0] * _NUM_COUNTS
            for row in _ROW.iter_unpack(self._rows):
                totals = [total + number for total, number in zip(totals, row[8:-1], strict=True)]
            self._counts = sum((record.counts for record in self._odd.values()), Counts(*totals))
        return self._counts

    @property
    def num_tokens(self) -> int:
        return sum(self.num_tokens_by_split)

    @property
    def num_tokens_by_split(self) -> tuple[int, int]:
        train = val = 0
        for row in _ROW.iter_unpack(self._rows):
            train, val = train + row[4], val + row[5]
        for record in self._odd.values():
            train += sum(chunk.num_tokens[0] for chunk in record.chunks)
            val += sum(chunk.num_tokens[1] for chunk in record.chunks)
        return train, val

    def num_documents(self, split: int) -> list[int]:
        """The number of documents that each slice has in a split, in plan order."""
        found = [row[6 + split] for row in _ROW.iter_unpack(self._rows)]
        for index, record in self._odd.items():
            found[index] = sum(chunk.num_documents[split] for chunk in record.chunks)
        return [number for number, kind in zip(found, self._kinds, strict=True) if kind != _ABSENT]

    @property
    def chunk_documents(self) -> dict[str, list[list[int]]]:
        """The documents that each chunk has in each split, of slices with more than one chunk."""
        several = ((i, r.chunks) for i, r in sorted(self._odd.items()) if len(r.chunks) > 1)
        return {str(i): [list(chunk.num_documents) for chunk in chunks] for i, chunks in several}

    @property
    def content(self) -> str:
        """CONTENT_DIGITS for each slice, in plan order: zeros if it has none; "" if none has."""
        found = [row[-1].hex() for row in _ROW.iter_unpack(self._rows)]
        for index, record in self._odd.items():
            found[index] = record.content or "0" * CONTENT_DIGITS
        content = "".join(found[index] for index in self)
        return content if content.strip("0") else ""

    @property
    def quarantined(self) -> Iterator[Quarantined]:
        """The rows that were left out, in plan order."""
        return (row for index in sorted(self._odd) for row in self._odd[index].quarantined)

    @property
    def last_place(self) -> str:
        """Where a limit cut the run short; empty if none did."""
        return next(filter(None, (record.last_place for record in self._odd.values())), "")

    def __getitem__(self, index: int) -> PartRecord:
        if index not in self:
            raise KeyError(index)
        if self._kinds[index] == _ODD:
            return self._odd[index]
        row = _ROW.unpack_from(self._rows, index * _ROW.size)
        checksums = [
            digest.hex() if size else "" for digest, size in zip(row[:2], row[2:4], strict=True)
        ]
        return PartRecord(
            index,
            self.plan_id,
            row[2:4],
            (checksums[0], checksums[1]),
            (PartChunk(row[4:6], row[6:8]),),
            Counts(*row[8:-1]),
            content=row[-1].hex() if any(row[-1]) else "",
        )

    def extent(self, index: int) -> tuple[tuple[int, int], tuple[PartChunk, ...]]:
        """A record's `num_bytes` and `chunks`, quicker than the whole record."""
        if self._kinds[index] == _ODD:
            return self._odd[index].num_bytes, self._odd[index].chunks
        row = _EXTENT.unpack_from(self._rows, index * _ROW.size)
        return row[:2], (PartChunk(row[2:4], row[4:]),)

    def part_of(self, index: int) -> int:
        """The index in the name of a record's part."""
        return self._odd[index].part if self._kinds[index] == _ODD else index

    def __contains__(self, index: object) -> bool:
        return isinstance(index, int) and index < len(self._kinds) and self._kinds[index] != _ABSENT

    def __iter__(self) -> Iterator[int]:
        return (index for index, kind in enumerate(self._kinds) if kind != _ABSENT)

    def __len__(self) -> int:
        return self._num_records

    def _fits(self, record: PartRecord) -> bool:
        return (
            len(record.chunks) == 1
            and not record.quarantined
            and not record.last_place
            and not any(record.kept_bytes)
            and record.part_index is None
            and len(record.content) in (0, CONTENT_DIGITS)
            and all(len(digest) in (0, 32) for digest in record.checksum)
            and self.plan_id in ("", record.plan_id)
        )

    def _grow(self, num_slices: int) -> None:
        """Make room for `num_slices` and an eighth more, so that this is rarely called."""
        more = num_slices - len(self._kinds) + num_slices // 8
        self._kinds.extend(bytes(more))
        self._rows.extend(bytes(_ROW.size * more))


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
        data = store_of(work).read(f"{work}/{RECORDS_NAME}/{_NAME}")
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
    with new_file(f"{work}/{RECORDS_NAME}/{_NAME}") as file:
        for data in (_HEAD % records.plan_id.encode(), *records.to_save()):
            file.write(data)
        file.write(bytes.fromhex(file.digest))
        file.commit()
    saved = records.mark_saved()
    for at in range(0, len(saved), _REMOVED_AT_ONCE):
        batch = saved[at : at + _REMOVED_AT_ONCE]
        store_of(work).remove(*(record_path(work, index) for index in batch))
