"""Download and encoding, overlapped: `tokenmill fineweb` beside downloading first.

    python benchmarks/overlap.py [--corpus DIR] [--bytes 200M] [--files 12] [--line 40/500/1 ...]
        [--rounds 5] [--write]

A Hub on loopback, in a process of its own, limits each connection (MB/s) and all of them together
(MB/s), and answers late (ms): a line. In each round both contestants run after each other, in turn
the one and the other first, so that a machine that others use is as slow for both. The medians go
into docs/performance.md with `--write`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import table
from corpus import Recipe
from hub_process import HERE, HubProcess, Line
from tokenmill.cli.screen import parsed_count
from tokenmill.corpus.fineweb import REPOS, REVISIONS

MB = 10**6
REPO, COMMIT = REPOS[True], REVISIONS[True]
LINES = ("40/500/1", "5/500/50", "200/2000/50")
SNAPSHOT = """
import sys
from huggingface_hub import snapshot_download
snapshot_download(sys.argv[1], repo_type="dataset", revision=sys.argv[2],
                  allow_patterns="sample/10BT/*", local_dir=sys.argv[3], max_workers=8)
"""


class Machine:
    """One that has nothing yet, and a Hub at the other end of a line."""

    def __init__(self, hub: HubProcess, folder: str, num_proc: int) -> None:
        self._out = os.path.join(folder, "out")
        self._files = os.path.join(folder, "files")
        self._options = ["--num-proc", str(num_proc), "-q", "-o", self._out]
        self._environment = {
            **os.environ,
            "HF_ENDPOINT": hub.url,
            "HF_HOME": os.path.join(folder, "home"),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
        }

    def fineweb(self) -> None:
        self._python("-m", "tokenmill", "fineweb", "--version", "10B", *self._options)

    def download_first(self) -> None:
        self._python("-c", SNAPSHOT, REPO, COMMIT, self._files)
        self._python("-m", "tokenmill", "prepare", self._files, *self._options)

    def _python(self, *arguments: str) -> None:
        subprocess.run(
            [sys.executable, *arguments],
            env=self._environment,
            check=True,
            stdout=subprocess.DEVNULL,
        )


CONTESTANTS: dict[str, Callable[[Machine], None]] = {
    "fineweb": Machine.fineweb,
    "snapshot_download, then prepare": Machine.download_first,
}


def seconds(name: str, folder: str, line: Line, num_proc: int) -> float:
    """How long a contestant takes on a machine of its own."""
    scratch = tempfile.mkdtemp(dir=HERE / "out")
    try:
        with HubProcess(REPO, COMMIT, folder, line) as hub:
            began = time.perf_counter()
            CONTESTANTS[name](Machine(hub, scratch, num_proc))
            return time.perf_counter() - began
    finally:
        shutil.rmtree(scratch)


def measured(named: str, folder: str, num_proc: int, num_rounds: int) -> dict[str, list[float]]:
    each, total, latency = map(float, named.split("/"))
    line = Line(total * MB, each * MB, latency_seconds=latency / 1000)
    found: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
    for number in range(num_rounds):
        for name in list(CONTESTANTS)[:: 1 if number % 2 else -1]:
            found[name].append(seconds(name, folder, line, num_proc))
    return found


def served(recipe: Recipe, below: str) -> str:
    """A repository that is laid out as FineWeb is."""
    folder = os.path.join(below, f"hub-{recipe.name}")
    target = Path(folder, "sample", "10BT")
    target.mkdir(parents=True, exist_ok=True)
    for path in Path(recipe.corpus(below)).glob("*.parquet"):
        if not (target / path.name).exists():
            os.link(path, target / path.name)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", help="folder of parquet files to take paragraphs from")
    parser.add_argument("--bytes", default="200M", help="how much text to make")
    parser.add_argument("--files", type=int, default=12, help="in how many files")
    parser.add_argument("--num-proc", type=int, default=os.cpu_count())
    parser.add_argument("--line", nargs="+", default=LINES, metavar="EACH/ALL/LATENCY")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="the table into docs/performance.md")
    arguments = parser.parse_args()
    recipe = Recipe(parsed_count(arguments.bytes), arguments.corpus, num_files=arguments.files)
    folder = served(recipe, str(HERE / "out" / "corpora"))
    num_bytes = sum(path.stat().st_size for path in Path(folder).rglob("*.parquet"))
    lines = [
        f"Seconds, medians of {arguments.rounds} rounds, {time.strftime('%Y-%m-%d')}. "
        f"{os.cpu_count()} cores, {arguments.num_proc} workers; {arguments.files} files, "
        f"{num_bytes / MB:.0f} MB of parquet.",
        "",
        "| MB/s each | MB/s in all | ms | **`fineweb`** | `snapshot_download`, then `prepare` |",
        "|--:|--:|--:|--:|--:|",
    ]
    for named in arguments.line:
        found = measured(named, folder, arguments.num_proc, arguments.rounds)
        print(named, {name: [round(one, 2) for one in all_] for name, all_ in found.items()})
        ours, theirs = (statistics.median(found[name]) for name in CONTESTANTS)
        lines.append(f"| {named.replace('/', ' | ')} | **{ours:.1f}** | {theirs:.1f} |")
    print("\n".join(lines))
    if arguments.write:
        table.replace(table.PERFORMANCE, "overlap", lines)


if __name__ == "__main__":
    main()
