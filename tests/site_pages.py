"""A built page as the tests of the site see it: its text, what it consists of, where it leads."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

VOID = {"img", "br", "hr", "input", "link", "meta"}
COUNTED = {"h1", "h2", "h3", "h4", "li", "pre", "table", "tr", "td", "th", "img", "strong", "em"}


@dataclass
class PageHtml(HTMLParser):
    """`content` is what is within the article, without the signs that lead to headings."""

    content: str = ""
    tags: Counter[str] = field(default_factory=Counter)
    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    navigation: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    open_tags: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
            if "md-nav__link" in given.get("class", ""):
                self.navigation.append(given["href"].removeprefix("./"))
        if tag in ("link", "script", "img", "iframe"):
            self.loaded += [given[name] for name in ("href", "src") if name in given]
        if self.is_in_article and tag in COUNTED:
            self.tags[tag] += 1
        if tag not in VOID:
            self.open_tags.append((tag, given.get("class", "")))

    def handle_endtag(self, tag: str) -> None:
        while self.open_tags and self.open_tags.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self.is_in_article and self.open_tags[-1] != ("a", "headerlink"):
            self.content += "".join(data.split())

    @property
    def is_in_article(self) -> bool:
        return any(tag == "article" for tag, _ in self.open_tags)


def parsed(html: str) -> PageHtml:
    page = PageHtml()
    page.feed(html)
    return page


def pages_of(site: Path) -> dict[str, PageHtml]:
    """By their place; without the page for what is not found, whose links are absolute."""
    found = (path for path in sorted(site.rglob("*.html")) if path.name != "404.html")
    return {str(path.relative_to(site)): parsed(path.read_text()) for path in found}
