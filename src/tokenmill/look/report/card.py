"""A report as a few lines of Markdown, for a README. Numbers and names only: no text of documents,
and no local path beyond the name of the dataset."""

from __future__ import annotations

import html
import os
from collections.abc import Iterator

from tokenmill.look.report import words
from tokenmill.look.report.figures import Figures
from tokenmill.wording.escapes import printable
from tokenmill.wording.plural import counted
from tokenmill.wording.quantities import shown_bytes, shown_count

_SHOWN = ("p1", "p10", "p50", "p90", "p99")


def card(figures: Figures) -> str:
    return "\n".join(_lines(figures)) + "\n"


def plain(text: object) -> str:
    """Text escaped for Markdown, also in a table."""
    shown = html.escape(printable(str(text)), quote=False)
    return "".join(f"\\{char}" if char in "\\`*_[]|#~" else char for char in shown)


def _lines(figures: Figures) -> Iterator[str]:
    found = figures.glance
    yield f"## {plain(os.path.basename(found.folder.rstrip('/')) or found.folder)}"
    yield ""
    yield plain(words.made(found))
    yield ""
    yield "| | |"
    yield "|---|---|"
    for name, value in _rows(figures):
        yield f"| {name} | {plain(value)} |"
    yield ""
    yield f"{plain(words.how_measured(figures))} Made by `tokenmill report`."


def _rows(figures: Figures) -> Iterator[tuple[str, str]]:
    found = figures.glance
    documents = (
        "" if found.num_documents is None else f", {counted(found.num_documents, 'document')}"
    )
    yield "tokens", f"{counted(found.num_tokens, 'token')}{documents}"
    yield "size", f"{shown_bytes(found.num_bytes)} as {found.dtype}"
    if found.bytes_per_token is not None:
        yield "bytes per token", f"{found.bytes_per_token:.2f}"
    for one in found.splits:
        yield one.split, f"{counted(one.num_tokens, 'token')}, {counted(one.num_shards, 'shard')}"
    for split in figures.splits:
        if split.lengths is not None:
            at = ", ".join(f"{p} {split.lengths.percentiles[p]:,}" for p in _SHOWN)
            yield f"{split.split} lengths", f"{at} ({words.measured(split.lengths)})"
    if figures.tokens is not None:
        yield "vocabulary", words.token_use(figures.tokens)
    for split in figures.splits:
        if split.duplicates is not None and split.duplicates.is_exact:
            yield f"{split.split} duplicates", words.duplicates(split.duplicates)
    if figures.proof is not None:
        counts = figures.proof.counts
        yield "rows", f"{shown_count(counts['num_rows'])} = {figures.proof.shown_counts}"
        yield "manifest", f"sha256 {figures.proof.manifest_sha256}"
