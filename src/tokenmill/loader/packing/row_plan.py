"""A plan of rows as a file: `tokenmill-packed-2048.rows`, beside the dataset.

    magic       8 bytes
    units       of up to 65,536 documents each, for each split: where rows end among its pieces,
                where pieces start among the tokens (from the unit's first), their lengths; the
                highest bit of a length says that the document continues. 8 bytes a document
    footer      JSON with a checksum: options, the content that the plan is for, reports, units
    its length  8 bytes, and the magic again

A plan is mapped, not read; if it is in a bucket, units are fetched when needed. The footer's
checksum is verified on opening, that of a unit when one of its rows is first needed.
"""

from __future__ import annotations

import collections
import contextlib
import hashlib
import json
import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from tokenmill.dataset.content import Content
from tokenmill.dataset.opened import ROWS_SUFFIX
from tokenmill.errors import IntegrityError
from tokenmill.loader.packing.best_fit import Numbers
from tokenmill.loader.packing.pack_report import PackReport
from tokenmill.loader.packing.pieces import RowPieces
from tokenmill.storage import disk
from tokenmill.storage.checked_json import checked_object, checksummed
from tokenmill.storage.lock import folder_lock
from tokenmill.storage.new_file import NewFile
from tokenmill.storage.store import new_file, read_ranges, store_of

MAGIC = b"tmrows1\n"
VERSION = 1
MAX_SEQ_LEN = 1 << 30
MAX_FOOTER_BYTES = 1 << 30
MAX_FETCHED_BYTES = 1 << 30  # of a plan in a bucket that stay in memory
_CUT = np.uint32(1 << 31)

Bytes = npt.NDArray[np.uint8]
# The starts and lengths of a row's pieces, and whether the last one's document continues.
Row = tuple[list[int], list[int], bool]


def plan_name(seq_len: int) -> str:
    return f"tokenmill-packed-{seq_len}{ROWS_SUFFIX}"


@dataclass(frozen=True, slots=True)
class _Unit:
    """Where a unit is in the file, and what it holds."""

    offset: int
    num_rows: int
    num_pieces: int
    base: int  # the token that its starts count from
    width: int  # bytes of a start: 4 or 8
    checksum: str

    @property
    def num_bytes(self) -> int:
        return 4 * self.num_rows + (self.width + 4) * self.num_pieces

    def to_plain(self) -> list[Any]:
        return [getattr(self, name) for name in self.__slots__]

    @staticmethod
    def from_plain(plain: list[Any], size: int) -> _Unit:
        unit = _Unit(*plain)
        if any(type(number) is not int or not 0 <= number < 1 << 62 for number in plain[:-1]):
            raise ValueError(f"a unit {plain!r}")
        if unit.width not in (4, 8) or unit.offset + unit.num_bytes > size:
            raise ValueError(f"a unit {plain!r}")
        return unit


@dataclass(frozen=True, slots=True)
class SplitPlan:
    """A split's rows: `content` identifies the tokens and documents that they are made of."""

    content: Content
    num_tokens: int
    report: PackReport
    units: tuple[_Unit, ...]

    def to_plain(self) -> dict[str, Any]:
        return {
            "tokens": self.content.tokens,
            "documents": self.content.documents,
            "num_tokens": self.num_tokens,
            "report": self.report.to_plain(),
            "units": [unit.to_plain() for unit in self.units],
        }


class PlanWriter:
    """Writes units into a new file, one after another, then the footer."""

    def __init__(self, file: NewFile) -> None:
        self._file = file
        file.write(MAGIC)

    def unit(self, pieces: RowPieces, num_rows: int) -> _Unit:
        """Write the pieces of some rows, sorted by row."""
        base = int(pieces.starts.min()) if len(pieces.starts) else 0
        starts = pieces.starts - base
        width = 4 if not len(starts) or int(starts.max()) < 1 << 32 else 8
        ends = np.searchsorted(pieces.rows, np.arange(num_rows), "right").astype("<u4")
        lengths = pieces.lengths.astype("<u4") | np.where(pieces.is_cut, _CUT, np.uint32(0))
        parts = ends, lengths.astype("<u4"), starts.astype(f"<u{width}")
        body = b"".join(part.tobytes() for part in parts)
        offset = self._file.num_bytes
        self._file.write(body)
        return _Unit(offset, num_rows, len(starts), base, width, xxhash.xxh3_128_hexdigest(body))

    def finish(self, options: Mapping[str, Any], splits: Mapping[str, SplitPlan]) -> None:
        plain = {name: split.to_plain() for name, split in splits.items()}
        footer = {"tokenmill_rows": VERSION, **options, "splits": plain}
        body = checksummed(json.dumps(footer, sort_keys=True).encode())
        self._file.write(body + len(body).to_bytes(8, "little") + MAGIC)


@contextlib.contextmanager
def new_plan(path: str) -> Iterator[PlanWriter]:
    """Writes a plan that appears at `path` only once it is whole."""
    folder, name = os.path.split(path)
    with new_file(os.path.join(folder or ".", name)) as file:
        yield PlanWriter(file)
        file.commit()


@contextlib.contextmanager
def sole_writer(path: str) -> Iterator[None]:
    """On a disk, waits until no other process makes the plan. Without locks, in a store for
    example, several may make it at once: each replaces it whole, by the same bytes."""
    if not store_of(path).is_local:
        yield
        return
    folder, name = os.path.split(path)
    with folder_lock(folder or ".") as is_held:
        if is_held:
            disk.remove_temporaries_of(os.path.join(folder or ".", name))  # of killed attempts
        yield


class RowPlan:
    """An open plan. Raises IntegrityError for anything but a whole plan."""

    def __init__(self, path: str, is_new: bool = False) -> None:
        self.path = path
        self.is_new = is_new  # made by this call
        self.is_local = store_of(path).is_local
        try:
            found = store_of(path).stat(path)
            if found is None:
                raise FileNotFoundError(path)
            if not found.is_file:
                raise ValueError("it is not a regular file")
            size = found.num_bytes
            self._bytes = np.memmap(path, np.uint8, "r") if self.is_local and size else None
            footer = self._footer(size)
            self._read(footer, size)
            self.id = hashlib.sha256(footer).hexdigest()[:16]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise IntegrityError(
                f"{path} is not a plan of rows, or is damaged: {error}",
                hint="tokenmill pack makes it again",
            ) from error
        self._units: dict[str, _Units] = {}

    def units(self, split: str) -> _Units:
        if split not in self._units:
            self._units[split] = _Units(self, self.splits[split])
        return self._units[split]

    def check(self) -> None:
        """Read all of it. Raises IntegrityError if a part is damaged."""
        for split in self.splits:
            self.units(split).check()

    def read(self, start: int, stop: int) -> Bytes:
        if self._bytes is not None:
            return np.asarray(self._bytes[start:stop])
        [data] = read_ranges(self.path, [(start, stop)])
        return np.frombuffer(data, np.uint8)

    def _footer(self, size: int) -> bytes:
        ends_with = self.read(max(0, size - 16), size).tobytes()
        num_bytes = int.from_bytes(ends_with[:8], "little")
        if ends_with[8:] != MAGIC or not 0 < num_bytes <= min(size - 24, MAX_FOOTER_BYTES):
            raise ValueError("it does not end like one")
        return self.read(size - 16 - num_bytes, size - 16).tobytes()

    def _read(self, footer: bytes, size: int) -> None:
        plain = checked_object(footer)
        if plain["tokenmill_rows"] != VERSION:
            raise ValueError(f"version {plain['tokenmill_rows']!r}")
        self.seq_len = int(plain["seq_len"])
        self.options = {name: plain[name] for name in ("seq_len", "long", "seed")}
        self.splits = {
            str(name): SplitPlan(
                Content(str(split["tokens"]), str(split["documents"])),
                int(split["num_tokens"]),
                PackReport.from_plain(split["report"]),
                tuple(_Unit.from_plain(unit, size) for unit in split["units"]),
            )
            for name, split in plain["splits"].items()
        }


class _Units:
    """The units of a split, checked when first needed. Thread-safe."""

    def __init__(self, plan: RowPlan, split: SplitPlan) -> None:
        self._plan = plan
        self._split = split
        counts = [unit.num_rows for unit in split.units]
        self.num_rows = sum(counts)
        self._firsts = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        self._kept: collections.OrderedDict[int, _UnitRows] = collections.OrderedDict()
        self._num_bytes = 0
        self._lock = threading.Lock()

    def check(self) -> None:
        for number in range(len(self._split.units)):
            self._opened(number)

    def in_order(self) -> Iterator[list[Row]]:
        """The pieces of all rows, one unit at a time."""
        for number, unit in enumerate(self._split.units):
            found = self._opened(number)
            yield [found.row(row) for row in range(unit.num_rows)]

    def pieces(self, rows: Numbers) -> list[Row]:
        """The pieces of each of these rows."""
        units = np.searchsorted(self._firsts, rows, "right") - 1
        within = rows - self._firsts[units]
        return [
            self._unit(unit).row(row)
            for unit, row in zip(units.tolist(), within.tolist(), strict=True)
        ]

    def _unit(self, number: int) -> _UnitRows:
        found = self._kept.get(number)
        if found is None:
            found = self._opened(number)
            with self._lock:
                self._kept[number] = found
                self._num_bytes += 0 if self._plan.is_local else self._split.units[number].num_bytes
                while self._num_bytes > MAX_FETCHED_BYTES and len(self._kept) > 1:
                    dropped, _ = self._kept.popitem(last=False)
                    self._num_bytes -= self._split.units[dropped].num_bytes
        return found

    def _opened(self, number: int) -> _UnitRows:
        unit = self._split.units[number]
        data = self._plan.read(unit.offset, unit.offset + unit.num_bytes)
        seq_len, num_tokens = self._plan.seq_len, self._split.num_tokens
        if xxhash.xxh3_128_hexdigest(data.data) == unit.checksum:
            found = _UnitRows(data, unit)
            if found.is_sound(seq_len, num_tokens):
                return found
        raise IntegrityError(
            f"{self._plan.path} is damaged: rows {self._firsts[number]:,} and following",
            hint="tokenmill pack makes it again",
        )


class _UnitRows:
    __slots__ = ("_base", "_ends", "_lengths", "_starts")

    def __init__(self, data: Bytes, unit: _Unit) -> None:
        at, after = 4 * unit.num_rows, 4 * (unit.num_rows + unit.num_pieces)
        self._ends = data[:at].view("<u4")
        self._lengths = data[at:after].view("<u4")
        self._starts = data[after:].view(f"<u{unit.width}")
        self._base = unit.base

    def row(self, number: int) -> Row:
        first = int(self._ends[number - 1]) if number else 0
        last = int(self._ends[number])
        base, lengths = self._base, self._lengths[first:last].tolist()
        is_cut = bool(lengths[-1] >> 31)
        if is_cut:
            lengths[-1] &= int(_CUT) - 1
        return [base + start for start in self._starts[first:last].tolist()], lengths, is_cut

    def is_sound(self, seq_len: int, num_tokens: int) -> bool:
        """Whether rows hold at least one piece and at most `seq_len` tokens, none of them outside
        the split: an attacker can compute a checksum too."""
        ends, lengths = self._ends.astype(np.int64), (self._lengths & ~_CUT).astype(np.int64)
        if not len(ends) or ends[-1] != len(lengths) or (np.diff(ends, prepend=0) < 1).any():
            return False
        is_last = np.zeros(len(lengths), np.bool_)
        is_last[ends - 1] = True
        starts = self._base + self._starts.astype(np.int64)
        return bool(
            lengths.min() > 0
            and np.add.reduceat(lengths, np.concatenate([[0], ends[:-1]])).max() <= seq_len
            and starts.min() >= 0
            and (starts + lengths).max() <= num_tokens
            and not (self._lengths & _CUT)[~is_last].any()
        )


def is_like_a_plan(path: str) -> bool:
    """Whether a file begins like a plan."""
    num_bytes = min(store_of(path).size(path) or 0, len(MAGIC))
    return read_ranges(path, [(0, num_bytes)]) == [MAGIC]


def plan_path(dataset: str, seq_len: int) -> str:
    return os.path.join(dataset, plan_name(seq_len))
