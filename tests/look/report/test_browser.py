"""The page in a real browser: hostile text stays text, and nothing is run, asked for or loaded.

Needs Debian's `chromium` (or any Chromium on the PATH); without one it is skipped. Playwright only
drives it and downloads no browser.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.look.report.hostile import hostile_dataset, loose_bytes
from tokenmill.dataset.inspect import look_into
from tokenmill.look.report.figures import Figures
from tokenmill.look.report.page import report_page
from tokenmill.look.report.survey import SurveyOptions, survey
from tokenmill.look.web import shown_text

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt install chromium")
WIDTHS = (360, 800, 1280)
SPANS = """() => [...document.querySelectorAll('.doc b, .doc u')].map(
  span => [span.textContent, span.title])"""
# The contrast of text on its background, as WCAG computes it, of the spans and of plain text.
CONTRAST = """() => {
  const light = color => {
    const [r, g, b] = color.match(/[\\d.]+/g).slice(0, 3).map(value => {
      value /= 255; return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4});
    return 0.2126 * r + 0.7152 * g + 0.0722 * b};
  const ground = node => {
    while (node) {
      const color = getComputedStyle(node).backgroundColor;
      if (!/, 0\\)$/.test(color)) return color;
      node = node.parentElement}
    return 'rgb(255, 255, 255)'};
  return Math.min(...[...document.querySelectorAll('p, td, th, h2, .doc b, .doc u, .doc i')].map(
    node => {
      const [a, b] = [light(getComputedStyle(node).color), light(ground(node))];
      return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)}))}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    assert CHROMIUM is not None
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=options)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def reports(tmp_path_factory) -> list[tuple[Figures, Path]]:
    folder = tmp_path_factory.mktemp("hostile")
    looked = [
        look_into(hostile_dataset(folder)),
        look_into(loose_bytes(folder), tokenizer="gpt2", dtype="uint16"),
    ]
    found = []
    for number, one in enumerate(looked):
        figures = survey(one, SurveyOptions())
        path = folder / f"{number}.html"
        path.write_bytes(report_page(figures))
        found.append((figures, path))
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("number", [0, 1], ids=["text", "bytes"])
def test_hostile_text_does_nothing_and_is_shown_as_python_says(browser, reports, number, scheme):
    figures, path = reports[number]
    page = browser.new_page(color_scheme=scheme)
    seen: list[str] = []
    page.on("dialog", lambda dialog: (seen.append(dialog.message), dialog.dismiss()))
    page.on("console", lambda message: seen.append(message.text))
    page.on("pageerror", lambda error: seen.append(str(error)))
    page.on("request", lambda request: seen.append(request.url))
    page.goto(path.as_uri())
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    expected = [
        [shown_text(piece.text), " ".join(map(str, piece.ids))]
        for one in figures.documents
        for piece in one.pieces
    ]
    assert expected and page.evaluate(SPANS) == expected
    assert page.evaluate(CONTRAST) >= 7
    assert page.evaluate("document.title").endswith(": report")
    assert seen == [path.as_uri()]  # the page itself, and nothing else
    page.close()


def test_policy_stops_what_an_escape_would_have_let_through(browser, reports, tmp_path):
    """The second wall, by itself: a page into which markup got runs and loads nothing."""
    data = reports[0][1].read_text()
    bad = "<script>document.title='run'</script><img src='http://127.0.0.1:9/x'>"
    (tmp_path / "bad.html").write_text(data.replace("</main>", f"{bad}</main>"))
    page = browser.new_page()
    finished: list[str] = []
    page.on("requestfinished", lambda request: finished.append(request.url))
    page.goto((tmp_path / "bad.html").as_uri())
    assert page.title().endswith(": report")
    assert finished == [(tmp_path / "bad.html").as_uri()]
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(browser, reports, scheme):
    module = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = browser.new_page(color_scheme=scheme)
    page.goto(reports[0][1].as_uri())
    page.evaluate("() => document.querySelectorAll('details').forEach(one => { one.open = true })")
    violations = module.Axe().run(page).response["violations"]
    assert [
        (one["id"], one["nodes"][0]["html"][:200])
        for one in violations
        if one["impact"] in ("serious", "critical")
    ] == []
    page.close()
