"""The record of a part: a small JSON file that says that a slice is done and accounts for its rows.

Light to import, because workers send records through a pipe.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from tokenmill.storage.checked_json import checked_object, checksummed
from tokenmill.storage.store import each, save_record, store_of

SPLITS = ("train", "val")
PARTS_NAME, RECORDS_NAME = "parts", "records"  # in the work folder
CONTENT_DIGITS = 16  # of a record's `content`, if it has one
_NAME = re.compile(r"\d{8,}\.json")


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A row that was left out, and why."""

    path: str
    place: str
    reason: str


@dataclass(frozen=True, slots=True)
class Counts:
    """The counts of a slice's rows. None is lost: `num_rows` is the sum of written, filtered,
    empty, null, quarantined and duplicate rows."""

    num_rows: int = 0
    num_written: int = 0
    num_empty: int = 0
    num_null: int = 0
    num_quarantined: int = 0
    num_replaced: int = 0  # rows, written or duplicates, in which bytes became U+FFFD
    text_bytes: int = 0  # of the written rows
    num_filtered: int = 0  # rows that --where or --sample left out
    num_duplicates: int = 0  # rows that --dedup left out

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, f) + getattr(other, f) for f in Counts.__slots__))

    @property
    def is_conserved(self) -> bool:
        kept = self.num_written + self.num_empty + self.num_null + self.num_quarantined
        return self.num_rows == kept + self.num_filtered + self.num_duplicates

    @property
    def shown_sum(self) -> str:
        """What happened to the rows: 9 written + 1 empty + ..."""
        filtered = f"{self.num_filtered:,} filtered + " if self.num_filtered else ""
        return (
            f"{self.num_written:,} written + {filtered}{self.num_empty:,} empty + "
            f"{self.num_null:,} null + {self.num_quarantined:,} quarantined"
            + (f" + {self.num_duplicates:,} duplicates" if self.num_duplicates else "")
        )

    def to_plain(self) -> dict[str, int]:
        """Plain data. Counts of 0 filtered rows or duplicates are left out, so that manifests have
        the same sha256 as before these counts existed."""
        optional = ("num_filtered", "num_duplicates")
        return {k: v for k, v in asdict(self).items() if v or k not in optional}


class PartChunk(NamedTuple):
    """Tokens and documents per split, in the order of SPLITS. A record's JSON calls them `runs`."""

    num_tokens: tuple[int, int]
    num_documents: tuple[int, int]


@dataclass(frozen=True, slots=True)
class PartRecord:
    """The proof that a slice is done. `plan_id` ties it to the plan it was made for."""

    slice_index: int
    plan_id: str
    num_bytes: tuple[int, int]  # of each split's part file; 0: there is none
    checksum: tuple[str, str]
    chunks: tuple[PartChunk, ...]
    counts: Counts
    quarantined: tuple[Quarantined, ...] = ()
    last_place: str = ""  # of the last document, if a limit cut the slice short
    kept_bytes: tuple[int, int] = (0, 0)  # of each split's kept file (--keep); 0: there is none
    kept_checksum: tuple[str, str] = ("", "")
    part_index: int | None = None  # in its part's name, if that is not the slice's index
    content: str = ""  # the hash of the rows of local inputs (content.py)

    @property
    def part(self) -> int:
        """The index in its part's name."""
        return self.slice_index if self.part_index is None else self.part_index

    @property
    def num_tokens(self) -> int:
        return sum(sum(chunk.num_tokens) for chunk in self.chunks)

    def save(self, work: str) -> None:
        """Write the record's file: from now on its slice is done."""
        data = checksummed(json.dumps(self.to_plain(), sort_keys=True).encode())
        save_record(record_path(work, self.slice_index), data, is_durable=False)

    def to_plain(self) -> dict[str, Any]:
        return {
            "slice_index": self.slice_index,
            "plan_id": self.plan_id,
            "num_bytes": self.num_bytes,
            "checksum": self.checksum,
            "runs": [
                {"num_tokens": chunk.num_tokens, "num_documents": chunk.num_documents}
                for chunk in self.chunks
            ],
            "counts": self.counts.to_plain(),
            "quarantined": [asdict(row) for row in self.quarantined],
            **({"last_place": self.last_place} if self.last_place else {}),
            **self._kept_to_plain(),
            **({"content": self.content} if self.content else {}),
        }

    def _kept_to_plain(self) -> dict[str, Any]:
        if not any(self.kept_bytes):
            return {}
        return {"kept_bytes": self.kept_bytes, "kept_checksum": self.kept_checksum}

    @staticmethod
    def from_plain(plain: dict[str, Any]) -> PartRecord:
        chunks = tuple(
            PartChunk(tuple(r["num_tokens"]), tuple(r["num_documents"])) for r in plain["runs"]
        )
        return PartRecord(
            plain["slice_index"],
            plain["plan_id"],
            _pair(plain["num_bytes"]),
            _pair(plain["checksum"]),
            chunks,
            Counts(**plain["counts"]),
            tuple(Quarantined(**q) for q in plain["quarantined"]),
            plain.get("last_place", ""),
            _pair(plain.get("kept_bytes", [0, 0])),
            _pair(plain.get("kept_checksum", ["", ""])),
            content=plain.get("content", ""),
        )


def _pair(values: list[Any]) -> tuple[Any, Any]:
    train, val = values
    return train, val


def part_path(work: str, slice_index: int, split: int) -> str:
    return f"{work}/{PARTS_NAME}/{slice_index:08d}.{SPLITS[split]}.part"


def kept_path(work: str, slice_index: int, split: int) -> str:
    """The file of a part's kept rows (kept_file.py)."""
    return f"{work}/{PARTS_NAME}/{slice_index:08d}.{SPLITS[split]}.kept"


def record_path(work: str, slice_index: int) -> str:
    return f"{work}/{RECORDS_NAME}/{slice_index:08d}.json"


def recorded_indices(work: str) -> list[int]:
    """The slices that have a record file, in plan order."""
    names = store_of(work).names(f"{work}/{RECORDS_NAME}")
    return sorted(int(name[:-5]) for name in names if _NAME.fullmatch(name))


def committed_records(
    work: str, slice_indices: Sequence[int], plan_id: str
) -> Iterator[PartRecord | None]:
    """Each slice's record; None if it is missing, torn, edited or of another plan."""
    paths = [record_path(work, index) for index in slice_indices]
    for index, data in zip(slice_indices, each(store_of(work), _content, paths), strict=True):
        yield _parsed(data, index, plan_id)


def _content(path: str) -> bytes | None:
    try:
        return store_of(path).read(path, has_checksum=True)
    except FileNotFoundError:
        return None


def committed_record(work: str, slice_index: int, plan_id: str) -> PartRecord | None:
    return next(committed_records(work, [slice_index], plan_id))


def _parsed(data: bytes | None, slice_index: int, plan_id: str) -> PartRecord | None:
    try:
        record = PartRecord.from_plain(checked_object(data or b""))
    except (ValueError, KeyError, TypeError):
        return None
    return record if record.plan_id == plan_id and record.slice_index == slice_index else None
