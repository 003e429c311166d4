"""The totals of each named source, for the manifest: rows, documents and tokens.

A slice belongs to one source, so these sums are exact. In an unshuffled split the sources follow
one another, so the counts also say where each of them begins.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from tokenmill.corpus.plan import Plan
from tokenmill.encode.ledger import Ledger
from tokenmill.encode.record import SPLITS, Counts


@dataclass(frozen=True, slots=True)
class SourceSplit:
    num_tokens: int
    num_documents: int


@dataclass(frozen=True, slots=True)
class SourceTotals:
    paths: tuple[str, ...]  # as the run was given them
    counts: Counts  # with repeat = 2, every row twice
    num_tokens: int
    splits: dict[str, SourceSplit] = field(default_factory=dict)  # empty if one is cut

    def to_plain(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "counts": self.counts.to_plain()}


def source_totals(plan: Plan, records: Ledger, has_splits: bool) -> dict[str, SourceTotals]:
    """The totals of every named source, in order; empty if sources have no names. `has_splits`: no
    document is cut between splits."""
    named = plan.identity["options"].get("named", {})
    sums = {name: _Sums() for name in sorted(named, key=lambda name: named[name]["place"])}
    if not sums:
        return {}
    # Places, not indices: the slice that --limit-tokens cuts short has an index of its own.
    for place, index in enumerate(records):
        sums[plan.slices.source_of(place)].add(records, index)
    return {
        name: found.totals(tuple(plan.source_paths.get(name, ())), has_splits)
        for name, found in sums.items()
    }


class _Sums:
    def __init__(self) -> None:
        self._counts = Counts()
        self._tokens = [0] * len(SPLITS)
        self._documents = [0] * len(SPLITS)

    def add(self, records: Ledger, index: int) -> None:
        record = records[index]
        self._counts += record.counts
        for chunk in record.chunks:
            for split in range(len(SPLITS)):
                self._tokens[split] += chunk.num_tokens[split]
                self._documents[split] += chunk.num_documents[split]

    def totals(self, paths: tuple[str, ...], has_splits: bool) -> SourceTotals:
        splits = {
            split: SourceSplit(tokens, documents)
            for split, tokens, documents in zip(SPLITS, self._tokens, self._documents, strict=True)
            if has_splits and documents
        }
        return SourceTotals(paths, self._counts, sum(self._tokens), splits)
