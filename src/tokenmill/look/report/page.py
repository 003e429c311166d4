"""The report of one dataset as a page: figures in, HTML out; nothing is read here.

The panels are in panels.py; this puts them together, with headline and documents.
"""

from __future__ import annotations

from collections.abc import Iterator

from tokenmill import __version__
from tokenmill.look.report import words
from tokenmill.look.report.blocks import (
    big_numbers,
    command,
    navigation,
    page,
    paragraph,
    section,
    shown_document,
)
from tokenmill.look.report.figures import Figures
from tokenmill.look.report.panels import (
    duplicates_panel,
    lengths_panel,
    proof_panel,
    quarantine_panel,
    ratios_panel,
    sources_panel,
    splits_panel,
    tokens_panel,
)
from tokenmill.look.web import Element, Node, element
from tokenmill.wording.plural import counted
from tokenmill.wording.quantities import shown_bytes, shown_count


def report_page(figures: Figures) -> bytes:
    sections = [
        one
        for one in (
            proof_panel(figures),
            splits_panel(figures),
            lengths_panel(figures),
            ratios_panel(figures),
            tokens_panel(figures),
            sources_panel(figures),
            quarantine_panel(figures),
            duplicates_panel(figures),
            _documents(figures),
        )
        if one is not None
    ]
    found = figures.glance
    return page(
        f"{found.folder}: report",
        [
            element("header", _headline(figures)),
            navigation(sections),
            element("main", sections),
            footer(figures),
        ],
    )


def footer(figures: Figures) -> Element:
    return element(
        "footer",
        paragraph(f"Made by tokenmill {__version__}. {words.how_measured(figures)}"),
    )


def _headline(figures: Figures) -> Iterator[Node]:
    found = figures.glance
    yield element("h1", found.folder)
    yield paragraph(words.made(found))
    yield headline_numbers(figures)
    yield paragraph(words.how_measured(figures), soft=True)
    for note in found.notes:
        first, *commands = note.split("\n")
        yield element("div", paragraph(first), [command(line) for line in commands], class_="note")


def headline_numbers(figures: Figures) -> Element:
    found = figures.glance
    documents, exact = "not counted", ""
    if found.num_documents is not None:
        documents, exact = shown_count(found.num_documents), f"{found.num_documents:,}"
    if found.num_documents is not None and found.num_documents < 100_000:
        documents, exact = exact, ""
    numbers = [
        ("tokens", shown_count(found.num_tokens), f"{found.num_tokens:,} as {found.dtype}"),
        ("documents", documents, exact),
        ("on disk", shown_bytes(found.num_bytes), f"{found.num_bytes:,} bytes"),
    ]
    if found.bytes_per_token is not None:
        text = "sampled" if found.text_bytes is None else f"{shown_bytes(found.text_bytes)} of text"
        numbers.append(("bytes per token", f"{found.bytes_per_token:.2f}", text))
    if found.tokenizer is not None:
        ids = counted(found.tokenizer["n_vocab"], "id")
        numbers.append(("tokenizer", str(found.tokenizer["name"]), ids))
    return big_numbers(numbers)


def _documents(figures: Figures) -> Element | None:
    if not figures.documents:
        return None
    odd = ""
    if any(one.why.endswith("bytes per token") for one in figures.documents):
        odd = (
            " Those with the fewest and most bytes per token are chosen from "
            f"{counted(figures.num_documents_compared, 'document')} of at least 64 tokens."
        )
    return section(
        "documents",
        "Documents",
        paragraph(
            "Each change of colour is a new token; hover over one for its id. Invisible characters "
            f"are shown as escapes.{odd}"
        ),
        [shown_document(one, one.why.capitalize()) for one in figures.documents],
    )
