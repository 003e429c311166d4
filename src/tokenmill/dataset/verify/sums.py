"""Checks that a manifest's numbers agree with each other."""

from __future__ import annotations

import collections
from collections.abc import Iterator

from tokenmill.dataset.kept_rows import is_sidecar
from tokenmill.dataset.manifest import QUARANTINE_NAME, Manifest
from tokenmill.encode.documents import EOTS_PER_DOCUMENT, separator_of
from tokenmill.encode.record import SPLITS, Counts
from tokenmill.wording.plural import counted


def contradictions(manifest: Manifest, has_boundaries: bool) -> Iterator[str]:
    """The contradictions, one line each."""
    counts = manifest.counts
    if not counts.is_conserved:
        yield f"{counted(counts.num_rows, 'row')} != {counts.shown_sum}"
    num_read = counts.num_written + counts.num_duplicates  # copies are found after replacing
    if counts.num_replaced > num_read:
        replaced = counted(counts.num_replaced, "row")
        yield f"{replaced} replaced, but {num_read:,} written or left out as duplicates"
    names = collections.Counter(file.name for file in manifest.files)
    for name, count in names.most_common(1):
        if count > 1:
            yield f"{name} is listed {counted(count, 'time')}"
    yield from _of_splits(manifest)
    if not manifest.inputs:  # converted foreign shards: nobody counted their documents
        return
    yield from _of_documents(manifest, has_boundaries)
    yield from _of_slices(manifest)
    yield from _of_sources(manifest)
    if manifest.converted_from is None and (QUARANTINE_NAME in names) != bool(
        counts.num_quarantined
    ):
        quarantined = counted(counts.num_quarantined, "row")
        yield f"{quarantined} quarantined, which contradicts {QUARANTINE_NAME}"


def _of_splits(manifest: Manifest) -> Iterator[str]:
    for split in SPLITS:
        num_tokens = sum(file.num_tokens for file in manifest.shards if file.split == split)
        totals = manifest.splits.get(split)
        if num_tokens != (totals.num_tokens if totals else 0):
            said = totals.num_tokens if totals else 0
            yield f"{split} has {counted(said, 'token')}, but its shards {num_tokens:,}"
    for file in manifest.files:
        num_documents = None if is_sidecar(file) else file.num_documents
        if file.split is None and (file.num_tokens or num_documents or file.marks):
            yield f"{file.name} belongs to no split, but holds tokens"


def _of_documents(manifest: Manifest, has_boundaries: bool) -> Iterator[str]:
    written = manifest.counts.num_written
    eot, _ = separator_of(manifest.identity["options"], manifest.identity["encoding"])
    per_document = EOTS_PER_DOCUMENT[eot]
    in_splits = sum(totals.num_documents for totals in manifest.splits.values())
    if per_document and in_splits != written:
        yield f"{counted(written, 'document')} written, but the splits have {in_splits:,}"
    is_cut = manifest.one_stream and manifest.converted_from
    if has_boundaries and not is_cut:
        for split, totals in manifest.splits.items():
            found = sum(f.num_documents or 0 for f in manifest.shards if f.split == split)
            # All but those in the tail; one of which the tail has only the end is in both.
            most = whole = totals.num_documents - totals.num_tail_eot // max(per_document, 1)
            most += eot == "append" and totals.num_tail_tokens > 0
            if not whole <= found <= most:
                yield f"{split} has {counted(most, 'document')}, but its shards {found:,}"
    elif per_document == 1 and not has_boundaries:
        tails = sum(totals.num_tail_eot for totals in manifest.splits.values())
        found = sum(file.num_documents or 0 for file in manifest.shards)
        if found + tails != written:
            yield f"{counted(written, 'document')} written, but the shards have {found + tails:,}"


def _of_sources(manifest: Manifest) -> Iterator[str]:
    """Named sources add up to the whole."""
    totals = manifest.sources.values()
    named = manifest.identity["options"].get("named", {})
    if set(manifest.sources) != set(named):
        yield f"the run has {counted(len(named), 'named source')}, but {len(totals):,} are counted"
    if not totals:
        return
    if sum((found.counts for found in totals), Counts()) != manifest.counts:
        yield "the counts of the sources do not add up to those of the whole"
    tails = sum(split.num_tail_tokens for split in manifest.splits.values())
    num_tokens = sum(found.num_tokens for found in totals)
    if num_tokens != manifest.num_tokens + tails:
        had = counted(manifest.num_tokens + tails, "token")
        yield f"{had} written, but the sources have {num_tokens:,}"
    for split, said in {} if manifest.one_stream else manifest.splits.items():
        own = [found.splits[split] for found in totals if split in found.splits]
        if sum(one.num_documents for one in own) != said.num_documents:
            yield f"the documents of the sources do not add up to those of {split}"


def _of_slices(manifest: Manifest) -> Iterator[str]:
    by_split = manifest.slice_documents
    if not by_split:
        return
    if len({len(numbers) for numbers in by_split.values()}) > 1:
        yield "slice_documents has different numbers of slices for the splits"
    total = sum(sum(numbers) for numbers in by_split.values())
    if total != manifest.counts.num_written:
        written = counted(manifest.counts.num_written, "document")
        yield f"{written} written, but slices gave {total:,}"
    counts = list(zip(*(by_split.get(split, ()) for split in SPLITS), strict=False))
    for index, chunks in manifest.slice_chunks.items():
        if (
            int(index) >= len(counts)
            or tuple(map(sum, zip(*chunks, strict=True))) != counts[int(index)]
        ):
            yield f"slice {index} has other documents than its chunks"
    if manifest.one_stream:
        return
    for split, totals in manifest.splits.items():
        found = sum(by_split.get(split, ()))
        if found != totals.num_documents:
            said = counted(totals.num_documents, "document")
            yield f"{split} has {said}, but slices gave it {found:,}"
