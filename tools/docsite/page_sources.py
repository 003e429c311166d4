"""Which pages the site has, in which order, and how the repository's Markdown becomes them.

docs/ is Markdown that GitHub shows as it is. Here it gets its place in the site, together with the
README (the home page) and the other pages at the root. Links between pages are turned to the new
places. Files in examples/ become pages that show them. Other files of the repository are named,
not linked: the site may be anywhere, without the repository around it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# A pattern may match nothing, or a page again; a page that no pattern matches is an error.
SECTIONS: dict[str, tuple[str, ...]] = {
    "Start": ("README.md", "docs/guide*.md"),
    "How-to": (
        *(f"docs/how-to/{name}.md" for name in ("fineweb", "one-giant-file", "resume", "mixing")),
        "docs/how-to/*.md",
        "docs/commands.md",
        "docs/abruptly-died.md",
        "docs/own-tokenizer.md",
        "docs/training.md",
        "docs/python.md",
    ),
    "Reference": (
        "docs/inputs.md",
        "docs/text-of-a-row.md",
        "docs/choosing-rows.md",
        "docs/sources.md",
        "docs/formats.md",
    ),
    "Looking at it": ("docs/report.md", "docs/view.md"),
    "Measured": (
        "docs/performance.md",
        "docs/scale.md",
        "docs/training-gpu.md",
        "docs/reliability.md",
        "docs/peer-faults.md",
    ),
    "How it works": ("docs/ARCHITECTURE.md", "docs/one-slice.md", "docs/decisions.md"),
    "Project": ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"),
}
# Where the heading of a page does not say what a reader would look for.
TITLES = {
    "README.md": "Home",
    "docs/abruptly-died.md": "A subprocess has abruptly died",
    "docs/training.md": "Training: from shards to batches",
    "docs/training-gpu.md": "Training on a GPU",
    "docs/reliability.md": "Reliability",
    "docs/peer-faults.md": "The same faults in other tools",
    "docs/decisions.md": "Decisions, and why",
}
# What only the site has, said where a reader would look for it.
POINTERS = {
    "docs/commands.md": "All commands and options: [the command line](command-line/index.md).",
    "docs/python.md": "All functions, classes and arguments: [the Python API](python-api.md).",
    "docs/report.md": "A real one, and how it was made: [an example](example.md).",
    "docs/view.md": "What it looks like: [an example](example.md#the-viewer).",
}
_LANGUAGES = {".sh": "sh", ".py": "python", ".yaml": "yaml", ".sed": "sed"}
_CODE = re.compile(r"^( *```.*?^ *```)$", flags=re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", flags=re.DOTALL)
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+://|#)([^)#\s]+)(#[^)\s]*)?\)")
_LIST_ITEM = re.compile(r"(\d+\.|[-*]) ")
_CODE_SPAN = re.compile(r"`[^`]+`")


class SiteError(Exception):
    """What is wrong with the pages, in a sentence for who writes them."""


@dataclass(frozen=True, slots=True)
class Page:
    source: str  # in the repository
    place: str  # in the site


def place_of(source: str) -> str:
    """Where a page, or a picture, of the repository is in the site."""
    if source == "README.md":
        return "index.md"
    if source.startswith("examples/") and not source.endswith(".md"):
        return f"{source}.md"
    return source.removeprefix("docs/")


def sections(root: Path) -> dict[str, list[Page]]:
    found = {
        title: list(dict.fromkeys(page for one in patterns for page in _matching(root, one)))
        for title, patterns in SECTIONS.items()
    }
    listed = {page.source for pages in found.values() for page in pages}
    for page in _matching(root, "docs/**/*.md"):
        if page.source not in listed:
            raise SiteError(
                f"{page.source} is in no section: add it to tools/docsite/page_sources.py"
            )
    return found


def examples(root: Path) -> list[Page]:
    return [page for page in _matching(root, "examples/**/*") if "__pycache__" not in page.source]


def _matching(root: Path, pattern: str) -> list[Page]:
    sources = sorted(
        path.relative_to(root).as_posix() for path in root.glob(pattern) if path.is_file()
    )
    return [Page(source, place_of(source)) for source in sources]


def write_pages(root: Path, target: Path) -> dict[str, list[Any]]:
    """Write all pages that come from files; return the navigation by section."""
    found, shown = sections(root), examples(root)
    pages = [page for pages in [*found.values(), shown] for page in pages]
    known = {page.source: page.place for page in pages}
    for page in pages:
        text = (root / page.source).read_text(encoding="utf-8")
        write(target / page.place, site_text(text, page, known, root))
    for picture in [*root.glob("docs/**/*.svg"), *root.glob("docs/**/*.png")]:
        place = target / place_of(picture.relative_to(root).as_posix())
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(picture.read_bytes())
    nav = {title: [_entry(page) for page in listed] for title, listed in found.items()}
    nav["How-to"].append({"Example files": [page.place for page in shown]})
    return nav


def _entry(page: Page) -> Any:
    return {TITLES[page.source]: page.place} if page.source in TITLES else page.place


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def site_text(text: str, page: Page, known: dict[str, str], root: Path) -> str:
    """The page, as Markdown that the site shows as GitHub shows the original."""
    if not page.source.endswith(".md"):
        language = _LANGUAGES.get(Path(page.source).suffix, "text")
        return f"# `{page.source}`\n\n```{language}\n{text.rstrip()}\n```\n"
    pieces = _CODE.split(text)
    pieces[::2] = [_turned(piece, page, known, root) for piece in pieces[::2]]
    text = "\n".join(_lines("".join(pieces).splitlines()))
    pointer = POINTERS.get(page.source)
    return text + (f"\n\n{pointer}\n" if pointer else "\n")


def _turned(text: str, page: Page, known: dict[str, str], root: Path) -> str:
    text = _COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), text)

    def turned(link: re.Match[str]) -> str:
        mark, shown, target, anchor = link.groups()
        source = posixpath.normpath(posixpath.join(posixpath.dirname(page.source), target))
        if source in known or mark:
            place = known.get(source, place_of(source))
            there = posixpath.relpath(place, posixpath.dirname(page.place) or ".")
            return f"{mark}[{shown}]({there}{anchor or ''})"
        if (root / source).exists() and not source.startswith(".."):
            return shown if source in shown else f"{shown} (`{source}`)"
        return link[0]  # broken: the build says so

    return _LINK.sub(turned, text)


def _lines(lines: list[str]) -> Iterator[str]:
    """What GitHub's Markdown reads otherwise than the site's: lists, and | in code in tables.

    A list may follow a paragraph at once: here it gets an empty line. What continues an item is as
    far in as the item's text: here four spaces.
    """
    marker, is_code, before = 0, False, ""
    for line in lines:
        width = len(line) - len(line.lstrip())
        if line and width == 0:
            item = None if is_code else _LIST_ITEM.match(line)
            if item and not marker and before:
                yield ""
            marker = len(item[0]) if item else 0
            is_code ^= line.startswith("```")
        is_row = line.startswith("|") and not is_code
        shown = _CODE_SPAN.sub(lambda span: span[0].replace("\\|", "|"), line) if is_row else line
        yield " " * (4 - marker) + shown if 0 < marker <= width else shown
        before = line
