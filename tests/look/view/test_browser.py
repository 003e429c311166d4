"""The page in a real browser: hostile text stays text, keys reach it all, others are refused."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokenmill
from corpora import made_texts
from tests.look.report.hostile import TEXTS, hostile_dataset, loose_bytes
from tests.look.report.test_browser import CONTRAST
from tests.look.view.browsing import Watched
from tests.look.view.served import served
from tokenmill.dataset.inspect import document, look_into, pieces
from tokenmill.formats import NAMES
from tokenmill.look.view.dataset_view import PAGE_TOKENS
from tokenmill.look.view.server import ViewServer
from tokenmill.look.web import shown_text

WIDTHS = (360, 800, 1280)
SPANS = """() => [...document.querySelectorAll('.doc b, .doc u')].map(
  span => [span.textContent, span.title])"""
SHOWN = "button:enabled, label, input, select, small, mark, h1, #detail, .doc s, #hits i"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory) -> Iterator[ViewServer]:
    with served(hostile_dataset(tmp_path_factory.mktemp("hostile"))) as server:
        yield server


def expected_spans(server: ViewServer, split: str, number: int) -> list[list[str]]:
    looked = look_into(server.view.looked.dataset.name)
    found = pieces(looked.token_bytes, document(looked, split, number, 4096).ids)
    return [[shown_text(piece.text), " ".join(map(str, piece.ids))] for piece in found]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_hostile_text_does_nothing_and_is_shown_as_python_says(browser, hostile, scheme):
    watched = Watched(browser, hostile, scheme)
    page = watched.page
    page.goto(hostile.guard.url)
    for number in range(len(TEXTS)):
        watched.waits_for(f"train: document {number} of")
        assert page.evaluate(SPANS) == expected_spans(hostile, "train", number)
        page.keyboard.press("j")
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.fill("#needle", "<svg onload=alert(3)>")
    page.keyboard.press("Enter")
    page.wait_for_selector("#hit-list mark")
    assert page.inner_text("#hit-list mark >> nth=0") == "<svg onload=alert(3)>"
    assert page.evaluate(CONTRAST.replace("p, td", f"{SHOWN}, p, td")) >= 7
    assert watched.seen == []
    page.context.close()


def test_loose_bytes_are_shown_as_python_says(browser, tmp_path):
    opening = {"tokenizer": "gpt2", "dtype": "uint16"}
    with served(loose_bytes(tmp_path), **opening) as server:
        watched = Watched(browser, server)
        watched.page.goto(f"{server.guard.url}#train/doc/3")
        watched.waits_for("train: document 3")
        looked = server.view.looked
        found = pieces(looked.token_bytes, document(looked, "train", 3, 4096).ids)
        assert watched.page.evaluate(SPANS) == [
            [shown_text(one.text), " ".join(map(str, one.ids))] for one in found
        ]
        watched.page.select_option("#split", "val")
        watched.waits_for("val: empty")
        watched.page.keyboard.press("j")
        assert watched.seen == []
        watched.page.context.close()


def test_everything_is_reached_by_keys(browser, hostile):
    watched = Watched(browser, hostile)
    page, keys = watched.page, watched.page.keyboard
    with tokenmill.open(hostile.view.looked.dataset.name) as data:
        document = data["train"].document(1).tolist()
        text, (start, _) = data["train"].text(1), data["train"].span(1)
    page.goto(hostile.guard.url)
    watched.waits_for("train: document 0")
    for typed, title in [("g", None), ("5", None), ("Enter", "train: document 5")]:
        keys.press(typed)
        if title:
            watched.waits_for(title)
    keys.press("k")
    watched.waits_for("train: document 4")
    page.go_back()
    watched.waits_for("train: document 5")
    keys.press("g")
    keys.type(f"@{start + 2}")
    keys.press("Enter")
    watched.waits_for("train: document 1 of")
    assert page.evaluate("document.activeElement.title") == str(document[2])
    for key, place in [("ArrowRight", 3), ("ArrowLeft", 2), ("Home", 0)]:
        keys.press(key)
        assert page.evaluate("document.activeElement.title") == str(document[place])
        detail = page.inner_text("#detail")
        assert f"token {place} of {len(document)}" in detail and f"id {document[place]} " in detail
    keys.press("?")
    assert page.is_visible("#help-dialog") and "next document" in page.inner_text("#keys")
    keys.press("Escape")
    for key, copied in [
        ("1", json.dumps(document)),
        ("2", text),
        ("4", hostile.view.document("train", 1)["command"]),
    ]:
        keys.press("c")
        keys.press(key)
        page.wait_for_function(
            "() => document.getElementById('copied').textContent.endsWith('copied')"
        )
        assert page.evaluate("navigator.clipboard.readText()") == copied
        keys.press("Escape")
    page.focus("#tokens b >> nth=0")
    keys.press("Shift+ArrowRight")
    keys.press("c")
    assert page.inner_text("#copy-what").startswith("2 tokens: the selection")
    keys.press("Escape")
    for key, button in [("w", "whitespace"), ("i", "ids")]:
        before = page.get_attribute(f"#{button}", "aria-pressed")
        keys.press(key)
        assert page.get_attribute(f"#{button}", "aria-pressed") != before
    keys.press("/")
    keys.type("ids: 50256")
    keys.press("Enter")
    page.wait_for_selector("#hit-list li >> nth=3")
    keys.press("n")
    keys.press("n")
    watched.waits_for("train: document 1 of")
    assert page.inner_text("#tokens .marked") == "<|endoftext|>"
    assert watched.seen == []
    page.context.close()


def test_long_document_is_read_page_by_page_and_an_unknown_one_too(browser, tmp_path):
    tokens = np.arange(3 * PAGE_TOKENS - 9, dtype="<u2")
    tokens.tofile(tmp_path / "train.bin")
    with served(str(tmp_path), dtype="uint16", format_name="nanogpt") as server:
        watched = Watched(browser, server)
        page = watched.page
        page.goto(server.guard.url)
        watched.waits_for("train: token @0")
        for start in (PAGE_TOKENS, 2 * PAGE_TOKENS):
            page.keyboard.press("]")
            watched.waits_for(f"train: token @{start:,}")
            shown = [title for _, title in page.evaluate(SPANS)]
            assert shown == [str(token) for token in tokens[start : start + PAGE_TOKENS]]
        assert page.is_disabled("#page-on") and "page 3 of 3" in page.inner_text("#pager")
        page.reload()
        watched.waits_for(f"train: token @{2 * PAGE_TOKENS:,}")
        page.keyboard.press("[")
        watched.waits_for(f"train: token @{PAGE_TOKENS:,}")
        assert watched.seen == []
        page.context.close()


def test_two_tokenizers_are_aligned_by_byte(browser, hostile):
    other = tokenmill.get_encoding("o200k_base")
    with served(hostile.view.looked.dataset.name, other) as server:
        server.view.compared("train", 0, 1)  # loads it: seconds on a busy machine
        watched = Watched(browser, server)
        page = watched.page
        page.goto(f"{server.guard.url}#train/doc/2")
        page.wait_for_selector("#compared-tokens b")
        ids = page.evaluate("[...document.querySelectorAll('#compared b')].map(b => b.title)")
        assert " ".join(ids) == " ".join(map(str, other.encode_ordinary(TEXTS[2])))
        titles = page.locator("#compared-title span").all_inner_texts()
        assert [title.split(":")[0] for title in titles] == ["gpt2", "o200k_base"]
        page.hover("#tokens b >> nth=4")
        one, over = page.inner_text("#tokens b >> nth=4"), page.locator("#compared .over")
        assert one.strip() in "".join(over.all_inner_texts()) and over.count() >= 1
        assert watched.seen == []
        page.context.close()


def test_link_opens_its_place_and_one_of_another_dataset_says_so(browser, hostile):
    watched = Watched(browser, hostile)
    mark = hostile.view.mark
    watched.page.goto(f"{hostile.guard.url}#train/token/0?m={mark}")
    watched.waits_for("train: document 0")
    assert watched.page.is_hidden("#warning")
    watched.page.goto(f"{hostile.guard.url}#train/doc/2?m=0123456789ab")
    watched.waits_for("train: document 2")
    watched.page.wait_for_selector("#warning:not([hidden])")
    assert "another dataset" in watched.page.inner_text("#warning")
    assert watched.seen == []
    watched.page.context.close()


def test_link_of_a_step_of_a_run_that_is_not_there_says_so_beside_a_document(browser, hostile):
    watched = Watched(browser, hostile)
    watched.page.goto(f"{hostile.guard.url}#train/step/3?reader=run&m={hostile.view.mark}")
    watched.waits_for("train: document 0")
    watched.page.wait_for_selector("#warning:not([hidden])")
    assert "--loader run.json" in watched.page.inner_text("#warning")
    assert watched.seen == []
    watched.page.context.close()


ATTACK = """async url => {
  const outcome = await fetch(url).then(answer => answer.status, () => 'failed');
  const loaded = tag => new Promise(done => {
    const node = document.createElement(tag);
    node.onload = () => done('loaded');
    node.onerror = () => done('failed');
    node.src = url;
    document.body.append(node)});
  return [outcome, await loaded('img'), await loaded('script')]}"""


class _Elsewhere(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<body>a web site")

    def log_message(self, format: str, *args: Any) -> None:
        pass


class _Recording:
    """A guard, and what it said."""

    def __init__(self, guard: Any) -> None:
        self._guard = guard
        self.refusals: list[int | None] = []

    def refusal(self, *request: Any) -> Any:
        self.refusals.append(self._guard.refusal(*request))
        return self.refusals[-1]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._guard, name)


def test_other_sites_get_nothing_even_with_the_secret(browser, hostile, monkeypatch):
    guard = _Recording(hostile.guard)
    monkeypatch.setattr(hostile, "guard", guard)
    url = hostile.guard.url + "api/dataset"
    page = browser.new_context().new_page()
    # A name that resolves to 127.0.0.1, as after DNS rebinding: the browser sees no other site.
    page.goto(url.replace("127.0.0.1", "evil.test"))
    assert page.inner_text("body").strip() == "403 Forbidden" and set(guard.refusals) == {403}
    guard.refusals.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Elsewhere) as other:
        threading.Thread(target=other.serve_forever, args=(0.02,), daemon=True).start()
        page.goto(f"http://localhost:{other.server_port}/")
        assert page.evaluate(ATTACK, url) == ["failed"] * 3
        other.shutdown()
    assert guard.refusals == [403] * 3
    page.context.close()


def datasets(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Every format, shards of a stranger, one document, and one of 10 MB; with how to open them."""
    lines = {"some": made_texts(9, seed=4), "one": ["<b>one"], "long": ["ab\n " * (10 << 18)]}
    for name, texts in lines.items():
        rows = (json.dumps({"text": text}) + "\n" for text in texts)
        (folder / f"{name}.jsonl").write_text("".join(rows))
    for name in NAMES:
        options: dict[str, Any] = {"shard_tokens": 500} if name in ("npy", "llmc") else {}
        options |= {"seq_len": "document"} if name == "mds" else {}
        out = folder / name
        tokenmill.prepare(folder / "some.jsonl", out, format=name, runner="inline", **options)
        yield str(out), {}
    for name in ("one", "long"):
        tokenmill.prepare(folder / f"{name}.jsonl", folder / name, runner="inline", val="none")
        yield str(folder / name), {}
    (folder / "llmc" / "tokenmill.json").unlink()
    yield str(folder / "llmc"), {"tokenizer": "gpt2"}


def test_all_kinds_of_datasets_look_right(browser, tmp_path):
    """The first and the last document of each split are shown as Python says."""
    num_seen = 0
    for out, opening in datasets(tmp_path):
        with served(out, **opening) as server:
            watched = Watched(browser, server)
            looked = look_into(out, **opening)
            for split, stream in looked.dataset.streams.items():
                for token in sorted({0, stream.num_tokens - 1} - {-1}):
                    watched.page.goto(f"{server.guard.url}#{split}/token/{token}")
                    watched.waits_for(f"{split}: document")
                    place = server.view.token(split, token)["page"]
                    ids = stream.tokens(place["start"], place["stop"])
                    found = pieces(looked.token_bytes, ids.tolist())
                    assert watched.page.evaluate(SPANS) == [
                        [shown_text(one.text), " ".join(map(str, one.ids))] for one in found
                    ]
                    num_seen += 1
            assert watched.seen == []
            watched.page.context.close()
    assert num_seen >= 2 * (len(NAMES) + 3)
