"""The figures of a report: plain values, which the page, the JSON and the card all show.

Each group states how much it was measured on. Nothing depends on time, machine or the number of
processes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tokenmill.dataset.inspect import Glance, TextPiece


@dataclass(frozen=True, slots=True)
class ProofFile:
    name: str
    num_bytes: int
    num_tokens: int
    sha256: str  # of the file, or of its first piece
    num_pieces: int


@dataclass(frozen=True, slots=True)
class ProofFigures:
    """What the manifest says about how the dataset was made."""

    manifest_sha256: str
    command: str  # that makes it again; SOURCE stands for the inputs
    options: dict[str, Any]
    versions: dict[str, Any]
    counts: dict[str, int]  # what became of every row
    shown_counts: str
    num_files: int
    files: tuple[ProofFile, ...]  # the first ones
    converted_from: dict[str, Any] | None
    revisions: dict[str, str]


@dataclass(frozen=True, slots=True)
class LengthBin:
    low: int  # tokens per document, from here
    high: int  # and below this
    num_documents: int


@dataclass(frozen=True, slots=True)
class LengthFigures:
    num_documents: int  # that were measured
    is_exact: bool  # all there are
    mean: float
    percentiles: dict[str, int]
    min: int
    max: int
    bins: tuple[LengthBin, ...]


@dataclass(frozen=True, slots=True)
class StretchFigures:
    start: int  # tokens of the split
    stop: int
    num_read: int
    read_start: int
    num_bytes: int | None  # of what was read; None: no tokenizer
    bytes_per_token: float | None
    is_outlier: bool


@dataclass(frozen=True, slots=True)
class Place:
    """A place in the dataset, and the command that shows it."""

    split: str
    start: int
    num_tokens: int
    document: int | None  # its number, if known
    command: str


@dataclass(frozen=True, slots=True)
class Repeated:
    num_times: int
    first: Place
    second: Place


@dataclass(frozen=True, slots=True)
class DuplicateFigures:
    """Documents that have the same tokens as an earlier one."""

    num_documents: int  # that were compared
    num_duplicates: int
    is_exact: bool  # all documents were compared with all
    repeated: tuple[Repeated, ...]  # the most frequent


@dataclass(frozen=True, slots=True)
class SplitFigures:
    split: str
    num_tokens: int
    num_read: int
    is_exact: bool
    lengths: LengthFigures | None
    stretches: tuple[StretchFigures, ...]
    outliers: tuple[tuple[int, str], ...]  # the number of a stretch, and the command for it
    duplicates: DuplicateFigures | None


@dataclass(frozen=True, slots=True)
class TokenCount:
    token: int
    num_times: int
    share: float
    piece: TextPiece | None


@dataclass(frozen=True, slots=True)
class KindFigures:
    """The ids of one kind: how many there are, how many were seen, and some that were not."""

    kind: str
    num_ids: int
    num_seen: int
    share: float  # of all tokens
    unseen: tuple[TextPiece, ...]


@dataclass(frozen=True, slots=True)
class TokenFigures:
    num_read: int
    is_exact: bool
    num_ids: int | None  # of the vocabulary
    num_seen: int
    num_beyond: int  # tokens whose id is not in the vocabulary
    half: int  # this many ids make up half of the tokens
    most: tuple[TokenCount, ...]
    kinds: tuple[KindFigures, ...]


@dataclass(frozen=True, slots=True)
class SourceFigures:
    name: str
    num_files: int
    num_bytes: int
    # Of a source with a name only.
    num_rows: int | None = None
    num_documents: int | None = None
    num_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class QuarantineFigures:
    num_rows: int
    reasons: tuple[tuple[str, int], ...]  # the most frequent, with their numbers of rows
    rows: tuple[tuple[str, str, str], ...]  # file, place, reason: the first ones
    is_listed: bool  # the list could be read, as a whole


@dataclass(frozen=True, slots=True)
class ShownDocument:
    why: str
    place: Place
    is_document: bool  # else some tokens at a place
    num_bytes: int | None
    ids: tuple[int, ...]  # the first ones
    pieces: tuple[TextPiece, ...]  # the same as text; empty without a tokenizer

    @property
    def bytes_per_token(self) -> float | None:
        if self.num_bytes is None or not self.place.num_tokens:
            return None
        return self.num_bytes / self.place.num_tokens


@dataclass(frozen=True, slots=True)
class Figures:
    glance: Glance
    proof: ProofFigures | None
    splits: tuple[SplitFigures, ...]
    tokens: TokenFigures | None
    sources: tuple[SourceFigures, ...]
    num_sources: int
    quarantine: QuarantineFigures
    documents: tuple[ShownDocument, ...]
    num_documents_compared: int  # for the oddest ones
    missing: str | None  # why there is no text, and what to type
    verify_command: str
    inspect_command: str

    @property
    def is_exact(self) -> bool:
        return all(split.is_exact for split in self.splits)

    @property
    def num_read(self) -> int:
        return sum(split.num_read for split in self.splits)

    def to_plain(self) -> dict[str, Any]:
        plain = asdict(self)
        plain["glance"] = self.glance.to_plain()
        return {"tokenmill_report": 1, "is_exact": self.is_exact, **plain}
