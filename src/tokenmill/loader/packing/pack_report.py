"""What packing did to the documents of a split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from tokenmill.loader.packing.best_fit import Numbers
from tokenmill.loader.packing.pieces import RowPieces
from tokenmill.wording.plural import counted


@dataclass(frozen=True, slots=True)
class PackReport:
    """Documents = intact + split + truncated + dropped + empty. Tokens = packed + lost."""

    seq_len: int
    num_rows: int = 0
    num_documents: int = 0
    num_intact: int = 0  # whole, in one row
    num_split: int = 0  # whole, in several rows
    num_truncated: int = 0  # without their end
    num_dropped: int = 0
    num_empty: int = 0  # without a token
    num_tokens: int = 0
    num_lost_tokens: int = 0  # of truncated and dropped documents
    num_begun_inside: int = 0  # rows that do not begin at the start of a document

    @property
    def num_packed_tokens(self) -> int:
        return self.num_tokens - self.num_lost_tokens

    @property
    def num_pad_tokens(self) -> int:
        return self.num_rows * self.seq_len - self.num_packed_tokens

    @property
    def fill(self) -> float:
        """The share of positions in rows that hold a token; 1 if there are no rows."""
        places = self.num_rows * self.seq_len
        return self.num_packed_tokens / places if places else 1.0

    def __add__(self, other: PackReport) -> PackReport:
        counts = {
            field.name: getattr(self, field.name) + getattr(other, field.name)
            for field in fields(self)
            if field.name.startswith("num_")
        }
        return PackReport(self.seq_len, **counts)

    def to_plain(self) -> dict[str, Any]:
        derived = {"num_pad_tokens": self.num_pad_tokens, "fill": round(self.fill, 6)}
        return {**asdict(self), **derived}

    @staticmethod
    def from_plain(plain: Mapping[str, Any]) -> PackReport:
        """Raises KeyError, TypeError or ValueError for anything else."""
        found = {field.name: plain[field.name] for field in fields(PackReport)}
        for name, value in found.items():
            if type(value) is not int or value < 0:
                raise ValueError(f"{name} {value!r}")
        return PackReport(**found)

    def lines(self, split: str) -> list[str]:
        """The report as text, for the user."""
        lost = self.num_lost_tokens / self.num_tokens if self.num_tokens else 0.0
        documents = ", ".join(
            f"{count:,} {what}"
            for what, count in (
                ("intact", self.num_intact),
                ("split", self.num_split),
                ("truncated", self.num_truncated),
                ("dropped", self.num_dropped),
                ("empty", self.num_empty),
            )
            if count or what == "intact"
        )
        inside = f"; {self.num_begun_inside:,} begin inside a document"
        return [
            f"{split}: {counted(self.num_rows, 'row')} of {self.seq_len:,} tokens, "
            f"{self.fill:.2%} full{inside if self.num_begun_inside else ''}",
            f"  documents: {documents}",
            f"  tokens: {self.num_packed_tokens:,} packed, {self.num_lost_tokens:,} lost "
            f"({lost:.2%}), {self.num_pad_tokens:,} padding",
        ]


def report_of(pieces: RowPieces, lengths: Numbers, num_empty: int, seq_len: int) -> PackReport:
    """The report on documents of these lengths, and their pieces in the order of rows."""
    num_pieces = np.bincount(pieces.documents, minlength=len(lengths))
    kept = np.bincount(pieces.documents, pieces.lengths, len(lengths)).astype(np.int64)
    is_first = np.diff(pieces.rows, prepend=-1) > 0
    return PackReport(
        seq_len,
        num_rows=int(is_first.sum()),
        num_documents=len(lengths) + num_empty,
        num_intact=int(((num_pieces == 1) & (kept == lengths)).sum()),
        num_split=int(((num_pieces > 1) & (kept == lengths)).sum()),
        num_truncated=int(((num_pieces > 0) & (kept < lengths)).sum()),
        num_dropped=int((num_pieces == 0).sum()),
        num_empty=num_empty,
        num_tokens=int(lengths.sum()),
        num_lost_tokens=int(lengths.sum() - kept.sum()),
        num_begun_inside=int((is_first & pieces.is_inside).sum()),
    )
