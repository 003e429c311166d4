"""What `make docs` builds: complete, without broken links, without anything from outside."""

from __future__ import annotations

import functools
import http.server
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag

import pytest
from markdown_it import MarkdownIt

import tokenmill
from site_pages import PageHtml, pages_of, parsed
from tokenmill.cli import parser
from tokenmill.cli.usage import commands_of

pytest.importorskip("zensical", reason="zensical is not installed")
ROOT = Path(__file__).parent.parent
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
SOURCES = [
    ROOT / "README.md",
    *sorted(ROOT.glob("docs/**/*.md")),
    *(ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
]


def built(folder: Path, *options: str, **more: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, str(ROOT / "tools" / "docsite" / "build.py")]
    words += ["--work", str(folder / "work"), "-o", str(folder / "site"), *options]
    environment = {**os.environ, **more}
    return subprocess.run(words, capture_output=True, text=True, check=False, env=environment)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = built(folder, "--no-example")
    assert done.returncode == 0, done.stderr
    return folder / "site"


@pytest.fixture(scope="module")
def pages(site) -> dict[str, PageHtml]:
    return pages_of(site)


def place_of(source: Path) -> str:
    place = source.relative_to(ROOT).as_posix().removeprefix("docs/")
    return "index.html" if place == "README.md" else place.replace(".md", ".html")


def broken_links(site: Path, pages: dict[str, PageHtml]) -> list[tuple[str, str]]:
    broken = []
    for place, page in pages.items():
        for link in {*page.links, *page.loaded}:
            target, anchor = urldefrag(link)
            if re.match(r"[a-z]+:", target):
                continue
            path = Path(os.path.normpath(site / Path(place).parent / unquote(target)))
            name = str(path.relative_to(site)) if target else place
            is_there = path.is_file() if target else True
            wanted = unquote(anchor) if name in pages and "#only-" not in link else ""
            if not is_there or (wanted and wanted not in pages[name].anchors):
                broken.append((place, link))
    return broken


def outside(pages: dict[str, PageHtml]) -> list[tuple[str, str]]:
    return [
        (place, url)
        for place, page in pages.items()
        for url in page.loaded
        if re.match(r"(?!data:)[a-z]+:|//", url)
    ]


def test_every_link_and_anchor_leads_somewhere(site, pages):
    assert len(pages) > 40 and sum(len(page.links) for page in pages.values()) > 1000
    assert broken_links(site, pages) == []


def test_no_page_loads_anything_from_outside(site, pages):
    assert outside(pages) == []
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//|@import", style.read_text()), style


def test_crawler_sees_what_is_broken_or_outside(tmp_path):
    page = '<a href="#no">x</a><a href="no.html">x</a><script src="https://cdn/x.js"></script>'
    (tmp_path / "a.html").write_text(page)
    pages = pages_of(tmp_path)
    assert len(broken_links(tmp_path, pages)) == 2 and len(outside(pages)) == 1


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_page_shows_what_commonmark_makes_of_its_source(source, pages):
    """As GitHub does; the site's own Markdown differs in lists, tables and code."""
    text = re.sub(r"<!--.*?-->", "", source.read_text(), flags=re.DOTALL)
    html = MarkdownIt("commonmark").enable("table").render(text)
    expected, shown = parsed(f"<article>{html}</article>"), pages[place_of(source)]
    assert shown.tags == expected.tags
    content = shown.content
    for link in re.findall(r"\]\(([^)#\s:]+)\)", text):  # to a file that is no page: named instead
        named = os.path.relpath(source.parent / link, ROOT)
        content = content.replace(f"({named})", "", 0 if f"({named})" in expected.content else -1)
    assert content.startswith(expected.content)


def test_navigation_has_every_page_and_begins_with_home(pages):
    listed = [link for link in pages["index.html"].navigation if not link.startswith("#")]
    assert {place_of(source) for source in SOURCES} <= set(listed) == set(pages)
    assert listed[0] == "index.html"


def test_every_command_has_a_page_and_every_option_a_place_there(pages):
    for name, command in commands_of(parser()).items():
        page = pages[f"command-line/{name}.html"]
        for prog, sub in {"": command, **commands_of(command)}.items():
            shown = [action for action in sub._actions if action.help != "==SUPPRESS=="]
            names = [action.option_strings[-1] for action in shown if action.option_strings]
            names.remove("--help")
            prefix = f"{prog}-" if prog else ""
            assert {prefix + option.lstrip("-") for option in names} <= page.anchors
            assert not prog or f"tokenmill{name}{prog}" in page.content
            assert all(option in page.content for option in names)
            assert all(action.help for action in shown if action.option_strings), "explain it"


def test_every_public_name_has_its_section(pages):
    page = pages["python-api.html"]
    names = {name for name in tokenmill.__all__ if not name.startswith("_")}
    assert names | {"Loader-state_dict", "Encoding-encode_ordinary"} <= page.anchors
    assert "tokenmill.prepare(sources:str|os.PathLike[str]" in page.content


@pytest.fixture
def copy(tmp_path) -> Path:
    """What the site is made of, to be changed."""
    root = tmp_path / "copy"
    for folder in ("docs", "examples"):
        shutil.copytree(ROOT / folder, root / folder)
    for page in ROOT.glob("*.md"):
        shutil.copy(page, root)
    return root


def test_broken_link_or_anchor_fails_the_build_and_is_named(copy, tmp_path):
    for name, link in {"docs/view.md": "nowhere.md", "README.md": "docs/inputs.md#no"}.items():
        with (copy / name).open("a") as page:
            page.write(f"\n[x]({link})\n")
    done = built(tmp_path, "--no-example", "--root", str(copy))
    assert done.returncode == 1 and not (tmp_path / "site").exists()
    assert "view.md:" in done.stderr and "index.md:" in done.stderr, done.stderr


def test_page_that_is_in_no_section_fails_the_build(copy, tmp_path):
    (copy / "docs" / "lost.md").write_text("# Lost\n")
    done = built(tmp_path, "--no-example", "--root", str(copy))
    assert done.returncode == 1 and "docs/lost.md is in no section" in done.stderr


class Reader:
    """A browser without a network, and all it asked for or complained about."""

    def __init__(self, browser: Any, scheme: str) -> None:
        self.page = browser.new_page(color_scheme=scheme, viewport={"width": 390, "height": 800})
        self.page.set_default_timeout(10_000)
        self.asked: set[str] = set()
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.asked.add(request.url))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", lambda said: said.type == "error" and self.complain(said.text))

    def complain(self, text: str) -> None:
        self.complaints.append(text)

    def search(self, home: str, word: str, page: str) -> None:
        """Search for a word until the first result is that page. While it is typed, results are
        those of its beginning."""
        self.page.goto(home)
        for _ in range(20):  # nobody listens before the scripts have run
            self.page.keyboard.press("Control+k")
            self.page.wait_for_timeout(500)  # a second press would close it again
            if self.page.evaluate("document.activeElement !== document.body"):
                break
        self.page.keyboard.type(word)
        from playwright.sync_api import expect

        first = self.page.locator(f"a[href*='?h={word}']").first
        is_page = re.compile(f"{page}[.]html[?]")
        expect(first).to_have_attribute("href", is_page, timeout=60_000)


@pytest.fixture
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no chromium: apt install chromium")
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=options)
        yield chromium
        chromium.close()


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def served(site) -> Iterator[str]:
    handler = functools.partial(QuietHandler, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_search_works_from_disk_and_server_and_nothing_else_is_asked_for(browser, site, served):
    for base, scheme in ((site.as_uri(), "light"), (served, "dark")):
        reader = Reader(browser, scheme)
        reader.search(f"{base}/index.html", "forkserver", "abruptly-died")
        reader.page.goto(f"{base}/command-line/prepare.html#where")
        assert reader.page.locator("#where").is_visible()
        assert reader.complaints == []
        assert {url for url in reader.asked if not url.startswith((base, "data:"))} == set()
        assert any("search" in url for url in reader.asked)


def test_example_has_a_real_report_and_pictures(browser, tmp_path):
    done = built(tmp_path)
    assert done.returncode == 0, done.stderr
    site = tmp_path / "site"
    pages = pages_of(site)
    assert broken_links(site, pages) == [] and outside(pages) == []
    assert "data/library" in (site / "example-report.html").read_text()
    assert str(Path.home()) not in (site / "example-report.html").read_text()
    reader = Reader(browser, "dark")
    reader.page.goto(f"{site.as_uri()}/example.html")
    assert reader.page.frame_locator("iframe.report").locator("h1").inner_text() == "data/library"
    sizes = "[...document.querySelectorAll('article img')].map(image => image.naturalWidth)"
    assert reader.page.evaluate(sizes) == [1200, 1200, 390, 390]
    assert reader.complaints == []


def test_without_a_browser_the_page_and_the_command_say_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools" / "docsite"))
    monkeypatch.setenv("PATH", str(tmp_path))
    import example

    lines, missing = example.pictures(tmp_path, tmp_path)
    assert "Pictures are missing" in lines[0] and "make browser" in missing[0]
