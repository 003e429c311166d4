"""Download and encoding, overlapped: `tokenmill fineweb` beside downloading first, on many lines.

    python benchmarks/overlap.py [--corpus DIR] [--bytes 600M] [--quick] [--only 40/500/50]

A Hub on loopback, in a process of its own, limits each connection and all of them together, and
answers late. A point EACH/LINE/LATENCY (MB/s, MB/s, ms) is measured as a whole, one contestant
after the other, so that its numbers compare also on a machine that others use. Results are kept in
benchmarks/overlap.json, point by point; `--write` puts their table into docs/performance.md.

The bound at a point is 1.10 x the longer of (bytes / what the line gives) and (encoding alone),
plus the start: `fineweb` with twelve tiny files on the same line. What a line gives is no more than
32 connections bring. Encoding alone is `prepare` of the local files, without its own start.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import table
from corpus import Recipe
from hub_process import HERE, HubProcess, Line
from tokenmill.cli.screen import parsed_count
from tokenmill.corpus.download.connection_count import MAX_CONNECTIONS
from tokenmill.corpus.fineweb import REPOS, REVISIONS

MB = 10**6
REPO, COMMIT = REPOS[True], REVISIONS[True]
RESULTS = HERE / "overlap.json"
EACH, LINES, LATENCIES = (5, 40, 200), (50, 500, 2000), (1, 50, 200)
QUICK = ("40/500/1", "5/50/50", "200/2000/200")
FACTOR = 1.10
SNAPSHOT = """
import sys
from huggingface_hub import snapshot_download
snapshot_download(sys.argv[1], repo_type="dataset", revision=sys.argv[2],
                  allow_patterns="sample/10BT/*", local_dir=sys.argv[3], max_workers=8)
"""
STREAMING = """
import sys
from datasets import load_dataset
rows = load_dataset(sys.argv[1], data_files="sample/10BT/*.parquet", revision=sys.argv[2],
                    split="train", streaming=True)
sum(len(batch) for batch in rows.with_format("arrow").iter(1000))
"""


@dataclass(frozen=True)
class Point:
    """MB/s a connection, MB/s in all, and milliseconds before an answer."""

    each: int
    line: int
    latency: int

    @property
    def name(self) -> str:
        return f"{self.each}/{self.line}/{self.latency}"

    @property
    def gives(self) -> float:
        """MB/s that can arrive."""
        return min(self.line, MAX_CONNECTIONS * self.each)

    @property
    def simulated(self) -> Line:
        return Line(self.line * MB, self.each * MB, latency_seconds=self.latency / 1000)


class Bench:
    def __init__(self, folder: str, num_proc: int, scratch: str) -> None:
        self.folder = folder
        self.num_proc = num_proc
        self.scratch = scratch
        size_of = (path.stat().st_size for path in Path(folder, "sample/10BT").iterdir())
        self.num_bytes = sum(size_of)

    def measured(self, point: Point, with_peers: bool) -> dict[str, Any]:
        with HubProcess(REPO, COMMIT, self.folder, point.simulated) as hub:
            start = self._fineweb(hub, "100B")
        with HubProcess(REPO, COMMIT, self.folder, point.simulated) as hub:
            before = _cpu_of_children()
            fineweb = self._fineweb(hub, "10B")
            cpu = _cpu_of_children() - before
        with HubProcess(REPO, COMMIT, self.folder, point.simulated) as peers_hub:
            snapshot = self._python(peers_hub, SNAPSHOT, REPO, COMMIT, self._new("snapshot"))
            command = [sys.executable, "-m", "huggingface_hub.cli.hf", "download", REPO]
            command += ["--repo-type", "dataset", "--revision", COMMIT, "--quiet"]
            command += ["--include", "sample/10BT/*", "--local-dir", self._new("hf")]
            by_hf = self._timed(command, peers_hub)
            streaming = None
            if with_peers and importlib.util.find_spec("datasets"):
                streaming = self._python(peers_hub, STREAMING, REPO, COMMIT)
        prepare, tiny = self._prepare("10BT"), self._prepare("100BT")
        self._clear()
        return {
            "fineweb": fineweb,
            "start": start,
            "encoding": prepare - tiny,
            "prepare": prepare,
            "snapshot": snapshot,
            "hf": by_hf,
            "streaming": streaming,
            "cpu": cpu,
            "server_cpu": hub.cpu_seconds,
            "arrived": round(hub.sent_seconds, 1),
            "bytes": self.num_bytes,
            "load": os.getloadavg()[0],
        }

    def _fineweb(self, hub: HubProcess, version: str) -> float:
        return self._tokenmill(hub, "fineweb", "--version", version)

    def _prepare(self, version: str) -> float:
        return self._tokenmill(None, "prepare", os.path.join(self.folder, "sample", version))

    def _tokenmill(self, hub: HubProcess | None, *arguments: str) -> float:
        workers = ["--num-proc", str(self.num_proc), "-q", "-o", self._new("out")]
        return self._timed([sys.executable, "-m", "tokenmill", *arguments, *workers], hub)

    def _python(self, hub: HubProcess, code: str, *arguments: str) -> float:
        return self._timed([sys.executable, "-c", code, *arguments], hub)

    def _timed(self, command: list[str], hub: HubProcess | None) -> float:
        environment = {"HF_HOME": self._new("home"), "HF_HUB_DISABLE_XET": "1"}
        environment |= {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
        if hub is not None:
            environment["HF_ENDPOINT"] = hub.url
        began = time.perf_counter()
        subprocess.run(
            command, env={**os.environ, **environment}, check=True, stdout=subprocess.DEVNULL
        )
        return time.perf_counter() - began

    def _new(self, name: str) -> str:
        return tempfile.mkdtemp(prefix=name, dir=self.scratch) + "/it"

    def _clear(self) -> None:
        for path in Path(self.scratch).iterdir():
            shutil.rmtree(path)


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def served(recipe: Recipe, below: str) -> str:
    """A repository that is laid out as FineWeb is; its 100BT is tiny, for the start alone."""
    tiny = Recipe(100_000, recipe.source, row_group=1, num_files=12).corpus(below)
    made = recipe.corpus(below)
    folder = os.path.join(below, f"hub-{recipe.name}")
    for source, sample in ((made, "10BT"), (tiny, "100BT")):
        target = Path(folder, "sample", sample)
        target.mkdir(parents=True, exist_ok=True)
        for path in Path(source).glob("*.parquet"):
            if not (target / path.name).exists():
                os.link(path, target / path.name)
    return folder


def bound(point: Point, found: dict[str, Any]) -> float:
    longest = max(found["bytes"] / (point.gives * MB), found["encoding"])
    return FACTOR * longest + float(found["start"])


def rows(results: dict[str, Any]) -> list[str]:
    lines = [
        "| MB/s each | MB/s line | ms | bytes / line | encoding | start | last byte | **fineweb** |"
        " bound | `snapshot_download` + prepare | `hf download` + prepare | `datasets` streaming |"
        " server CPU |",
        "|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for point in itertools.starmap(Point, itertools.product(EACH, LINES, LATENCIES)):
        if (found := results["points"].get(point.name)) is None:
            continue
        limit, both = bound(point, found), found["snapshot"] + found["prepare"]
        streaming = "" if found["streaming"] is None else f"{found['streaming']:.1f}"
        missed = "" if found["fineweb"] <= limit else f" (missed by {found['fineweb'] - limit:.1f})"
        lines.append(
            f"| {point.each} | {point.line:,} | {point.latency} "
            f"| {found['bytes'] / point.gives / MB:.1f} | {found['encoding']:.1f} "
            f"| {found['start']:.1f} | {found.get('arrived', 0) or ''} "
            f"| **{found['fineweb']:.1f}** | {limit:.1f}{missed} "
            f"| {both:.1f} | {found['hf'] + found['prepare']:.1f} | {streaming} "
            f"| {found['server_cpu']:.1f} |"
        )
    return lines


def summary(results: dict[str, Any]) -> str:
    points = results["points"]
    num_met = sum(found["fineweb"] <= bound(_point(name), found) for name, found in points.items())
    num_faster = sum(f["fineweb"] <= f["snapshot"] + f["prepare"] for f in points.values())
    loads = [found["load"] for found in points.values()]
    return (
        f"Seconds. {results['machine']}; load of the machine while it was measured "
        f"{min(loads):.0f} to {max(loads):.0f}. {results['corpus']}. The bound was met at "
        f"{num_met} of {len(points)} points; `fineweb` was as fast as `snapshot_download` and then "
        f"`prepare`, or faster, at {num_faster}."
    )


def _point(name: str) -> Point:
    return Point(*map(int, name.split("/")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", help="folder of parquet files to take paragraphs from")
    parser.add_argument("--bytes", default="600M", help="how much text to make")
    parser.add_argument("--num-proc", type=int, default=os.cpu_count())
    parser.add_argument("--quick", action="store_true", help=f"only {', '.join(QUICK)}")
    parser.add_argument("--only", nargs="+", metavar="EACH/LINE/LATENCY", help="these points")
    parser.add_argument("--missing", action="store_true", help="only what has no result yet")
    parser.add_argument("--peers", action="store_true", help="`datasets` streaming (only reads)")
    parser.add_argument("--write", action="store_true", help="the table into docs/performance.md")
    arguments = parser.parse_args()
    recipe = Recipe(parsed_count(arguments.bytes), arguments.corpus, num_files=12)
    results: dict[str, Any] = {"points": {}}
    if RESULTS.exists():
        results = json.loads(RESULTS.read_text())
    folder = served(recipe, str(HERE / "out" / "corpora"))
    grid = itertools.starmap(Point, itertools.product(EACH, LINES, LATENCIES))
    names = arguments.only or (QUICK if arguments.quick else [point.name for point in grid])
    with tempfile.TemporaryDirectory(dir=HERE / "out") as scratch:
        bench = Bench(folder, arguments.num_proc, scratch)
        results["machine"] = f"{os.cpu_count()} cores, {arguments.num_proc} workers"
        results["corpus"] = f"12 files, {bench.num_bytes / MB:.0f} MB of parquet"
        for name in names:
            if arguments.missing and name in results["points"]:
                continue
            found = bench.measured(_point(name), arguments.peers)
            results["points"][name] = found
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")
            print(name, json.dumps({key: found[key] and round(found[key], 2) for key in found}))
            print(f"  bound {bound(_point(name), found):.2f}, fineweb {found['fineweb']:.2f}")
    lines = [summary(results), "", *rows(results)]
    print("\n".join(lines))
    if arguments.write:
        table.replace(table.PERFORMANCE, "overlap", lines)


if __name__ == "__main__":
    main()
