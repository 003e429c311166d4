"""Where a dataset came from, by its manifest: proof, sources, and the rows that were left out."""

from __future__ import annotations

import collections
import json
import re

from tokenmill.dataset.inspect import LookedInto
from tokenmill.dataset.manifest import QUARANTINE_NAME, Manifest, ManifestInput, manifest_sha256_of
from tokenmill.dataset.recipe import prepare_command
from tokenmill.look.report.figures import ProofFigures, ProofFile, QuarantineFigures, SourceFigures

NUM_FILES, NUM_SOURCES, NUM_REASONS, NUM_ROWS = 12, 20, 10, 10
# Of a longer list of rows only the beginning is read.
MAX_LIST_BYTES = 4 << 20
# Reasons that differ only in numbers are counted together.
_NUMBER = re.compile(r"\b(0x[0-9a-f]+|\d+)\b")


def proof_of(manifest: Manifest) -> ProofFigures:
    return ProofFigures(
        manifest_sha256_of(manifest.to_plain()),
        prepare_command(manifest),
        manifest.identity["options"],
        manifest.identity["versions"],
        manifest.counts.to_plain(),
        manifest.counts.shown_sum,
        len(manifest.files),
        tuple(
            ProofFile(
                file.name,
                file.num_bytes,
                file.num_tokens,
                file.first_sha256,
                1 if isinstance(file.sha256, str) else len(file.sha256),
            )
            for file in manifest.files[:NUM_FILES]
        ),
        manifest.converted_from,
        manifest.revisions,
    )


def sources_of(manifest: Manifest) -> tuple[list[SourceFigures], int]:
    """The named sources, or else the folders of the inputs, largest first; and their number."""
    if manifest.sources:
        named = [_named_source(manifest, name) for name in manifest.sources]
        return named[:NUM_SOURCES], len(named)
    found: dict[str, list[ManifestInput]] = collections.defaultdict(list)
    for one in manifest.inputs:
        found[one.path.rpartition("/")[0] or "."].append(one)
    rows = [
        SourceFigures(
            inputs[0].path if len(inputs) == 1 else f"{folder}/",
            len(inputs),
            sum(one.num_bytes for one in inputs),
        )
        for folder, inputs in found.items()
    ]
    rows.sort(key=lambda row: (-row.num_bytes, row.name))
    return rows[:NUM_SOURCES], len(rows)


def _named_source(manifest: Manifest, name: str) -> SourceFigures:
    totals = manifest.sources[name]
    inputs = [one for one in manifest.inputs if one.source == name]
    first, more = "".join(totals.paths[:1]), len(totals.paths) - 1
    return SourceFigures(
        f"{name}={first}" + (f" and {more:,} more" if more > 0 else ""),
        len(inputs),
        sum(one.num_bytes for one in inputs),
        totals.counts.num_rows,
        totals.counts.num_written,
        totals.num_tokens,
    )


def quarantine_of(looked: LookedInto) -> QuarantineFigures:
    """From the list beside the shards, as far as it can be read: anyone may have edited it."""
    manifest, files = looked.dataset.manifest, looked.dataset.files
    num_rows = 0 if manifest is None else manifest.counts.num_quarantined
    if not num_rows or not files.has(QUARANTINE_NAME):
        return QuarantineFigures(num_rows, (), (), not num_rows)
    size = files.size(QUARANTINE_NAME) or 0
    with files.open(QUARANTINE_NAME) as file:
        lines = file.read(MAX_LIST_BYTES).split(b"\n")
    rows = [row for row in map(_row, lines) if row is not None]
    reasons = collections.Counter(_NUMBER.sub("N", reason) for _, _, reason in rows)
    most = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))[:NUM_REASONS]
    is_listed = size <= MAX_LIST_BYTES and len(rows) == num_rows
    return QuarantineFigures(num_rows, tuple(most), tuple(rows[:NUM_ROWS]), is_listed)


def _row(line: bytes) -> tuple[str, str, str] | None:
    try:
        plain = json.loads(line)
        return str(plain["path"]), str(plain["place"]), str(plain["reason"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
