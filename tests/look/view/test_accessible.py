"""The page without a mouse and with a screen reader: axe-core finds nothing, Tab reaches it all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tokenmill
from tests.look.report.hostile import TEXTS
from tests.look.view.browsing import Watched
from tests.look.view.served import served
from tokenmill.look.view.server import ViewServer
from tokenmill.look.web import shown_text

COLUMN = '<b onclick="alert(1)">\u202ename'
VALUE = "</td><script>alert(2)</script>\u2066\u200b\x1b[2J"
FILE = "<img src=x onerror=alert(3)>\u202egnp.jsonl"
CONTROLS = """() => [...document.querySelectorAll(
    'button:enabled, input:enabled, select, a[href], summary, [tabindex="0"]')]
  .filter(node => node.checkVisibility() && !node.closest('dialog'))
  .map(node => node.id || node.textContent)"""
FOCUSED = "document.activeElement.id || document.activeElement.textContent"


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[ViewServer]:
    """Hostile text, hostile names of a file and of a column, and a second tokenizer."""
    folder: Path = tmp_path_factory.mktemp("accessible")
    rows = [{"text": text, COLUMN: VALUE} for text in TEXTS * 2]
    (folder / FILE).write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = str(folder / "out")
    tokenmill.prepare(folder / FILE, out, val="none", runner="inline", keep=COLUMN)
    with served(out, tokenmill.get_encoding("o200k_base")) as server:
        server.view.compared("train", 0, 1)  # loads it: seconds on a busy machine
        yield server


def states(watched: Watched, url: str) -> Iterator[str]:
    page, keys = watched.page, watched.page.keyboard
    page.goto(url)
    watched.waits_for("train: document 0")
    page.wait_for_selector("#compared-tokens b")
    yield "start"
    page.goto(f"{url}#train/token/40")
    watched.waits_for("train: document 1")
    keys.press("i")
    yield "a token, with ids"
    keys.press("/")
    keys.type("ids: 50256")
    keys.press("Enter")
    page.wait_for_selector("#hit-list li >> nth=5")
    yield "search"
    keys.press("Escape")
    keys.press("s")
    page.wait_for_selector("#source-verdict.same")
    page.click("#source-row summary")
    yield "source"
    page.goto(f"{url}#train/step/1?reader=shards&batch=2&seq_len=32&micro_steps=2")
    page.wait_for_selector("#step-rows li >> nth=3")
    yield "step"
    page.focus("#title")
    for key in ("?", "c"):
        keys.press(key)
        yield f"dialog {key}"
        keys.press("Escape")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(browser, server, scheme):
    module = pytest.importorskip("axe_playwright_python.sync_playwright")
    watched = Watched(browser, server, scheme)
    found: list[Any] = []
    for state in states(watched, server.guard.url):
        answer = module.Axe().run(watched.page).response
        assert answer["testEngine"]["name"] == "axe-core"
        found += [
            (state, one["id"], node["html"][:200], node["any"][:1])
            for one in answer["violations"]
            if one["impact"] in ("serious", "critical", "moderate")
            for node in one["nodes"][:3]
        ]
    assert found == []
    assert watched.seen == []
    watched.page.context.close()


def test_tab_reaches_every_control_and_leaves_it_again(browser, server):
    watched = Watched(browser, server)
    page = watched.page
    for state in states(watched, server.guard.url):
        if state.startswith("dialog"):
            continue
        controls = page.evaluate(CONTROLS)
        page.evaluate("document.activeElement.blur(); document.getElementById('skip').focus()")
        reached = [page.evaluate(FOCUSED)]
        for _ in range(len(controls)):
            page.keyboard.press("Tab")
            reached.append(page.evaluate(FOCUSED))
        assert set(controls) <= set(reached), (state, set(controls) - set(reached))
        page.keyboard.press("Shift+Tab")
        assert page.evaluate(FOCUSED) in reached
    assert watched.seen == []
    page.context.close()


def test_hostile_names_are_shown_as_text(browser, server):
    watched = Watched(browser, server)
    page = watched.page
    page.goto(f"{server.guard.url}#train/doc/0")
    watched.waits_for("train: document 0")
    page.keyboard.press("s")
    page.wait_for_selector("#source-verdict.same")
    page.click("#source-row summary")
    assert shown_text(FILE) in page.inner_text("#source-verdict")
    cells = page.locator("#source-columns th, #source-columns td").all_inner_texts()
    assert cells[-2:] == [shown_text(COLUMN), shown_text(VALUE)]
    assert page.inner_text("#source-text").replace("\n", "") == TEXTS[0]
    page.keyboard.press("j")
    watched.waits_for("train: document 1")
    page.wait_for_function(
        "() => document.querySelector('#source-text').textContent.startsWith('\">')"
    )
    assert page.locator("#source script, #source img, #source b").count() == 0
    Path(server.view.looked.dataset.manifest.inputs[0].path).rename(  # and the file is gone
        Path(server.view.looked.dataset.manifest.inputs[0].path + ".old")
    )
    page.keyboard.press("j")
    page.wait_for_function(
        "() => document.querySelector('#source-verdict').textContent"
        ".includes('not found where it was')"
    )
    assert "--source" in page.inner_text("#source-hint")
    assert watched.seen == []
    page.context.close()


def test_rows_of_a_step_lead_to_their_tokens(browser, server):
    watched = Watched(browser, server)
    page = watched.page
    page.goto(f"{server.guard.url}#train/doc/0")
    watched.waits_for("train: document 0")
    page.keyboard.press("x")
    page.select_option("#reader", "shards")
    for field, value in (("batch", "3"), ("seq_len", "16"), ("step", "2")):
        page.fill(f"#{field}", value)
    page.keyboard.press("Enter")
    page.wait_for_selector("#step-rows li >> nth=2")
    link = page.url
    page.click("#step-rows a >> nth=1")
    start = 2 * 3 * 16 + 16
    page.wait_for_function("start => location.hash.startsWith(`#train/token/${start}?`)", arg=start)
    titles = page.evaluate(
        "[...document.querySelectorAll('#tokens .marked')].map(one => one.title).join(' ')"
    )
    with tokenmill.open(server.view.looked.dataset.name) as data:
        ids = data["train"].tokens(start, start + 16).tolist()
    assert " ".join(map(str, ids)) in titles
    page.goto("about:blank")
    page.goto(link)
    page.wait_for_selector("#step-rows li >> nth=2")
    assert page.input_value("#batch") == "3" and page.input_value("#reader") == "shards"
    assert watched.seen == []
    page.context.close()
