"""The panels about where documents came from: sources, quarantine, duplicates."""

from __future__ import annotations

from collections.abc import Iterator

from tokenmill.look.report import words
from tokenmill.look.report.blocks import details, paragraph, section, table
from tokenmill.look.report.figures import DuplicateFigures, Figures, SourceFigures
from tokenmill.look.web import Element, Node, element
from tokenmill.wording.plural import counted
from tokenmill.wording.quantities import shown_bytes


def _counts(source: SourceFigures) -> tuple[str, ...]:
    found = source.num_rows, source.num_documents, source.num_tokens
    return tuple(f"{number or 0:,}" for number in found)


def sources_panel(figures: Figures) -> Element | None:
    if not figures.sources:
        return None
    has_counts = any(one.num_tokens is not None for one in figures.sources)
    heads = ("source", "files", "size", *(("rows", "documents", "tokens") if has_counts else ()))
    rows: list[tuple[Element | str, ...]] = [
        (
            element("code", one.name),
            f"{one.num_files:,}",
            shown_bytes(one.num_bytes),
            *(_counts(one) if has_counts else ()),
        )
        for one in figures.sources
    ]
    more = figures.num_sources - len(figures.sources)
    return section(
        "sources",
        "Sources",
        table(heads, rows, (0,), (0,)),
        [paragraph(f"and {more:,} more: see tokenmill.json", soft=True)] if more else [],
    )


def quarantine_panel(figures: Figures) -> Element | None:
    found = figures.quarantine
    if figures.proof is None:
        return None
    if not found.num_rows:
        return section("quarantine", "Quarantine", paragraph("No bad rows: nothing was left out."))
    partly = "" if found.is_listed else " The list could not be read as a whole."
    return section(
        "quarantine",
        "Quarantine",
        paragraph(
            f"{found.num_rows:,} of {counted(figures.proof.counts['num_rows'], 'row')} could not "
            f"be encoded and were left out; tokenmill-quarantine.jsonl lists them.{partly}"
        ),
        table(
            ("reason", "rows"),
            [(reason, f"{number:,}") for reason, number in found.reasons],
            (0,),
            (0,),
        ),
        details(
            "the first rows",
            table(
                ("file", "place", "reason"),
                [(element("code", path), place, reason) for path, place, reason in found.rows],
                (0, 1, 2),
                (0, 2),
            ),
        ),
    )


def duplicates_panel(figures: Figures) -> Element | None:
    known = [(one.split, one.duplicates) for one in figures.splits if one.duplicates is not None]
    if not known:
        return None
    shown: list[Node] = []
    for split, found in known:
        shown += [paragraph(f"{split}: {words.duplicates(found)}"), *_repeated(found)]
    return section("duplicates", "Duplicates", shown)


def _repeated(found: DuplicateFigures) -> Iterator[Node]:
    if found.repeated:
        yield table(
            ("times", "tokens", "the first, and the second"),
            [
                (
                    f"{one.num_times:,}",
                    f"{one.first.num_tokens:,}",
                    element(
                        "span",
                        element("code", one.first.command),
                        element("br"),
                        element("code", one.second.command),
                    ),
                )
                for one in found.repeated
            ],
            (2,),
        )
