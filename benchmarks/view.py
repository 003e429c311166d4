"""How fast `tokenmill view` is on 10B tokens, in a real browser: from key to paint.

python benchmarks/view.py [--folder DIR] [--jumps 1000] [--json FILE]

jumps    half are the key `r` (a random document), half are tokens that are typed into "go to":
         from the event of the key to the first frame that shows the new tokens
work     CPU time of a jump, of the server and of the browser (all of its processes): a busy
         machine makes jumps wait, but no longer to do
page     what the tab's own thread spends a jump on: script, style, layout
search   a common word, from Enter to its first hit on the page
memory   of the server (VmHWM, which counts mapped shards as far as they were read) and of the
         page's JavaScript heap, before and after

The data: 100 shards of 100M tokens that are links to one, documents of this repository's pages in
random order; 200 MB on disk. Needs playwright and chromium.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

SHARDS, SHARD_TOKENS = 100, 100_000_000
EOT = 50256
ROOT = Path(__file__).parent.parent
# Resolves with the milliseconds from the next key to the frame after its tokens came.
WATCH = """() => {
  const box = document.getElementById('tokens');
  window.painted = new Promise(done => {
    let from = null;
    addEventListener('keydown', event => {
      if (event.key === 'r' || event.key === 'Enter') from = event.timeStamp;
    }, {capture: true, once: true});
    const observer = new MutationObserver(() => {
      observer.disconnect();
      requestAnimationFrame(() => {
        const channel = new MessageChannel();
        channel.port1.onmessage = () => done(performance.now() - from);
        channel.port2.postMessage(0);
      });
    });
    observer.observe(box, {childList: true});
  });
}"""
FIRST_HIT = """() => {
  window.hit = new Promise(done => {
    let from = null;
    addEventListener('keydown', event => { if (event.key === 'Enter') from = event.timeStamp; },
      {capture: true, once: true});
    const observer = new MutationObserver(() => {
      if (!document.querySelector('#hit-list li')) return;
      observer.disconnect();
      requestAnimationFrame(() => done(performance.now() - from));
    });
    observer.observe(document.getElementById('hit-list'), {childList: true});
  });
}"""


def documents() -> list[np.ndarray]:
    import tokenmill

    encoding = tokenmill.get_encoding("gpt2")
    pages = [path.read_text() for path in sorted((ROOT / "docs").glob("*.md"))]
    texts = [*pages, *(part for page in pages for part in page.split("\n\n"))]
    return [np.array([*encoding.encode_ordinary(text), EOT], "<u2") for text in texts if text]


def dataset(folder: Path) -> Path:
    """With the manifest that a run would have written, as far as the viewer reads it."""
    import tokenmill
    from tokenmill.dataset.manifest import OutputFile, SplitTotals
    from tokenmill.formats.llmc import LlmcFormat

    out = folder / "ten-billion"
    if (out / "tokenmill.json").exists():
        return out
    out.mkdir(parents=True)
    (folder / "one.txt").write_text("a text\n")
    one = folder / "one"
    made = tokenmill.prepare(
        folder / "one.txt", one, format="llmc", runner="inline", val="none", eot="append"
    )
    bank, rng = documents(), np.random.default_rng(0)
    tokens, at = np.empty(SHARD_TOKENS, "<u2"), 0
    while at < SHARD_TOKENS:
        document = bank[rng.integers(len(bank))][: SHARD_TOKENS - at]
        tokens[at : at + len(document)] = document
        at += len(document)
    tokens[-1] = EOT
    header, files = LlmcFormat().header(SHARD_TOKENS, "uint16"), []
    ends = np.flatnonzero(tokens == EOT)
    step = 16 << 20
    marks = tuple((int(np.searchsorted(ends, at)), at) for at in range(step, SHARD_TOKENS, step))
    first = out / LlmcFormat().shard_name("fineweb", "train", 0)
    with open(first, "wb") as file:
        file.write(header)
        tokens.tofile(file)
    num_bytes = first.stat().st_size
    for number in range(SHARDS):
        name = LlmcFormat().shard_name("fineweb", "train", number)
        if number:
            os.link(first, out / name)
        sha256 = f"{number:064x}"
        files.append(OutputFile(name, "train", SHARD_TOKENS, len(ends), num_bytes, sha256, marks))
    totals = SplitTotals(SHARDS * SHARD_TOKENS, SHARDS * len(ends))
    manifest = dataclasses.replace(made, files=tuple(files), splits={"train": totals})
    (out / "tokenmill.json").write_bytes(manifest.to_json())
    return out


def cpu_seconds(pid: int) -> float:
    """Of a process and its descendants that are alive."""
    children: dict[int, list[int]] = {}
    times: dict[int, float] = {}
    tick = os.sysconf("SC_CLK_TCK")
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        own = int(path.parent.name)
        children.setdefault(int(fields[1]), []).append(own)
        times[own] = (int(fields[11]) + int(fields[12])) / tick
    todo, total = [pid], 0.0
    while todo:
        own = todo.pop()
        total += times.get(own, 0.0)
        todo += children.get(own, [])
    return total


def megabytes(pid: int, name: str) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    [line] = [line for line in lines if line.startswith(f"{name}:")]
    return round(int(line.split()[1]) / 1024, 1)


def browser_pid(command: str) -> int:
    """The browser that this process started, by its profile folder."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        words = path.read_bytes().split(b"\0") if path.exists() else []
        if command.encode() in words and not any(w.startswith(b"--type=") for w in words):
            return int(path.parent.name)
    raise SystemExit("the browser was not found in /proc")


def percentiles(values: list[float]) -> dict[str, float]:
    found = np.percentile(values, [50, 95, 99])
    return dict(zip(("p50", "p95", "p99"), (round(float(one), 1) for one in found), strict=True))


class Tab:
    def __init__(self, page: Any) -> None:
        self.page = page
        self._session = page.context.new_cdp_session(page)
        self._session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def metrics(self) -> dict[str, float]:
        found = self._session.send("Performance.getMetrics")["metrics"]
        return {one["name"]: one["value"] for one in found}

    def jump(self, token: int | None) -> float:
        """Milliseconds to a token, or to a random document."""
        page = self.page
        if token is not None:
            page.evaluate("token => { place.value = `@${token}`; place.focus(); }", token)
        else:
            page.evaluate("() => document.activeElement.blur()")
        page.evaluate(WATCH)
        page.keyboard.press("r" if token is None else "Enter")
        return float(page.evaluate("() => window.painted"))

    def heap_megabytes(self) -> float:
        self._session.send("HeapProfiler.collectGarbage")
        return round(self.metrics()["JSHeapUsedSize"] / 2**20, 1)


def measured(out: Path, num_jumps: int) -> dict[str, Any]:
    from playwright.sync_api import sync_playwright

    mark = f"--tokenmill-benchmark={os.getpid()}"
    command = [sys.executable, "-m", "tokenmill", "view", str(out), "--no-browser"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    url = server.stdout.readline().strip()
    try:
        with sync_playwright() as driver:
            chromium = driver.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox", mark]
            )
            page = chromium.new_context(viewport={"width": 1280, "height": 900}).new_page()
            page.goto(url)
            page.wait_for_selector("#tokens b")
            return _measured(Tab(page), server.pid, browser_pid(mark), num_jumps)
    finally:
        server.terminate()
        server.wait()


def _measured(tab: Tab, server: int, browser: int, num_jumps: int) -> dict[str, Any]:
    rng = random.Random(0)
    jumps = [rng.randrange(SHARDS * SHARD_TOKENS) if n % 2 else None for n in range(num_jumps)]
    for token in jumps[:20]:
        tab.jump(token)
    memory = {"server_before": megabytes(server, "VmHWM"), "heap_before": tab.heap_megabytes()}
    before = cpu_seconds(server), cpu_seconds(browser), tab.metrics()
    times = [tab.jump(token) for token in jumps]
    after = cpu_seconds(server), cpu_seconds(browser), tab.metrics()
    memory |= {"server_after": megabytes(server, "VmHWM"), "heap_after": tab.heap_megabytes()}
    names = ("ScriptDuration", "LayoutDuration", "RecalcStyleDuration", "TaskDuration")
    thread = {
        name: round((after[2][name] - before[2][name]) * 1000 / num_jumps, 2) for name in names
    }
    tab.page.fill("#needle", " reader")
    tab.page.evaluate(FIRST_HIT)
    tab.page.press("#needle", "Enter")
    return {
        "jumps": num_jumps,
        "key_to_paint_ms": percentiles(times),
        "of_a_token_ms": percentiles(times[1::2]),
        "of_a_document_ms": percentiles(times[::2]),
        "server_cpu_ms": round((after[0] - before[0]) * 1000 / num_jumps, 2),
        "browser_cpu_ms": round((after[1] - before[1]) * 1000 / num_jumps, 2),
        "tab_thread_ms": thread,
        "first_hit_ms": round(float(tab.page.evaluate("() => window.hit")), 1),
        "memory_mb": memory,
        "load": os.getloadavg()[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", help="keeps the data for the next time")
    parser.add_argument("--jumps", type=int, default=1000)
    parser.add_argument("--json", metavar="FILE")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        out = dataset(Path(given.folder or scratch))
        found = measured(out, given.jumps)
    text = json.dumps(found, indent=1)
    print(text)
    if given.json:
        Path(given.json).write_text(text + "\n")


if __name__ == "__main__":
    main()
