"""What a run has read: where the rows of a step came from, and how much each source has given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tokenmill.loader.batch_maker import SourcePart
from tokenmill.loader.mixing import Mixture
from tokenmill.loader.source import Source
from tokenmill.loader.steps import Skips


@dataclass(frozen=True, slots=True)
class RowPlace:
    """Which row of a source a row of a step is."""

    source: str
    epoch: int  # of the source, from 0
    row: int  # of the source's split, or of its plan


@dataclass(frozen=True, slots=True)
class RowOrigin(RowPlace):
    """Where a row of a step came from."""

    start: int  # its first token, in the split
    documents: Sequence[int]  # numbers of the documents that its inputs come from


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """How much a source has given. `planned_tokens` is what the weights ask for, skipped rows
    included. For packed rows, tokens are counted by the average row."""

    planned_tokens: float
    delivered_tokens: int
    skipped_tokens: int
    epochs: float


def places_of(parts: Sequence[SourcePart], count: int) -> list[RowPlace]:
    """The rows at `count` places, in their order. Reads nothing."""
    found: dict[int, RowPlace] = {}
    for part in parts:
        epochs = (part.turns // part.source.rows.num_rows).tolist()
        columns = part.places.tolist(), epochs, part.rows.tolist()
        for place, epoch, row in zip(*columns, strict=True):
            found[place] = RowPlace(part.source.name, epoch, row)
    return [found[place] for place in range(count)]


def origins_of(parts: Sequence[SourcePart], count: int) -> list[RowOrigin]:
    """The origins of the rows at `count` places, in their order."""
    found: dict[int, RowOrigin] = {}
    for part in parts:
        source = part.source
        epochs = (part.turns // source.rows.num_rows).tolist()
        seen = source.rows.documents(part.rows)
        columns = part.places.tolist(), epochs, part.rows.tolist(), seen
        for place, epoch, row, (start, documents) in zip(*columns, strict=True):
            found[place] = RowOrigin(source.name, epoch, row, start, documents)
    return [found[place] for place in range(count)]


def progress_of(
    sources: Sequence[Source], mixture: Mixture, skips: Skips, rows: int
) -> dict[str, SourceProgress]:
    """The progress of each source in the first `rows` rows of the run."""
    skipped = [0] * len(sources)
    for first, last in skips.before(rows):
        before, after = mixture.counts(first), mixture.counts(last)
        skipped = [n + b - a for n, a, b in zip(skipped, before, after, strict=True)]
    found = {}
    planned, counts = mixture.planned(rows), mixture.counts(rows)
    for number, source in enumerate(sources):
        size = source.rows.tokens_per_row
        found[source.name] = SourceProgress(
            float(planned[number] * size),
            round((counts[number] - skipped[number]) * size),
            round(skipped[number] * size),
            counts[number] / source.rows.num_rows,
        )
    return found
