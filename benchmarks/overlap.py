"""Download and encoding, overlapped: `tokenmill fineweb` beside downloading first, on many lines.

    python benchmarks/overlap.py [--corpus DIR] [--bytes 600M] [--quick] [--only 40/500/50]
        [--one] [--tls] [--peers [PYTHON]] [--at-once N] [--rounds N] [--files N --results FILE]

A Hub on loopback, in a process of its own, limits each connection and all of them together, and
answers late. A point EACH/LINE/LATENCY (MB/s, MB/s, ms) is measured as a whole, one contestant
after the other, so that its numbers compare also on a machine that others use. Results are kept in
benchmarks/overlap.json, point by point; `--write` puts their table into docs/performance.md.

The bound at a point is 1.10 x the longer of (bytes / what the line gives) and (encoding alone),
plus the start: `fineweb` with twelve tiny files on the same line, measured just before. That is
the interpreter, the engine in the workers, the Hub's listing, every address and footer, and the
manifest. What a line gives is no more than 64 connections bring. Encoding alone is `prepare` of
the local files, without its own start.

`times` says when, in seconds after `fineweb` was started, the download began, each file was
complete, each slice encoded and each piece of a shard written (`timed_fineweb.py`).

`--at-once 3` measures three points at a time, each on four CPUs of its own and its Hub on another,
if the machine has fifteen; all other options are passed on.

`--files 1` has the same text in a single file; give it a file of results of its own.

`--one` adds `fineweb` over a single connection. `--tls` measures over TLS, which is kept apart.
`--peers` adds what only reads: `datasets` streaming and datatrove's reader, in an environment that
has them (.venv-peers). Which of them is not there is said and left out.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import table
from corpus import Recipe
from hub_process import HERE, HubProcess, self_signed
from overlap_at_once import cpu_list, run_at_once
from overlap_table import MB, PEERS, Point, bound, grid, lines_of, merge
from tokenmill.cli.screen import parsed_count
from tokenmill.corpus.fineweb import REPOS, REVISIONS

REPO, COMMIT = REPOS[True], REVISIONS[True]
RESULTS = HERE / "overlap.json"
QUICK = ("40/500/1", "5/50/50", "200/2000/200")
SNAPSHOT = """
import sys
from huggingface_hub import snapshot_download
snapshot_download(sys.argv[1], repo_type="dataset", revision=sys.argv[2],
                  allow_patterns="sample/10BT/*", local_dir=sys.argv[3], max_workers=8)
"""
ONE = """
import sys
from tokenmill.corpus.download import connection_count
connection_count.FIRST_CONNECTIONS = connection_count.MAX_CONNECTIONS = 1
from tokenmill.cli import main
sys.exit(main(sys.argv[1:]))
"""


class Bench:
    def __init__(
        self,
        folder: str,
        num_proc: int,
        scratch: str,
        peers: str | None,
        certificate: str | None,
        hub_cpus: list[int] | None = None,
    ) -> None:
        self.folder = folder
        self.num_proc = num_proc
        self.scratch = scratch
        self.peers = [(name, peers) for name in PEERS if peers and _has(peers, name)]
        self.certificate = certificate
        self.hub_cpus = hub_cpus
        size_of = (path.stat().st_size for path in Path(folder, "sample/10BT").iterdir())
        self.num_bytes = sum(size_of)

    def measured(self, point: Point, with_one: bool, num_rounds: int) -> dict[str, Any]:
        """Medians of our own numbers over some rounds; the others' once."""
        rounds = [self._round(point) for _ in range(num_rounds)]
        rounds.sort(key=lambda one: float(one["fineweb"]))
        found: dict[str, Any] = rounds[num_rounds // 2]  # whose `times` are kept
        for name in ("fineweb", "start", "encoding", "prepare", "own_start"):
            found[name] = statistics.median(one[name] for one in rounds)
        found["rounds"] = " ".join(f"{one['fineweb']:.2f}" for one in rounds)
        if with_one:
            with self._hub(point) as one_hub:
                found["one"] = self._fineweb(one_hub, "10B", "-c", ONE)
        found |= self._downloads_first(point)
        self._clear()
        found |= {"bytes": self.num_bytes, "load": os.getloadavg()[0]}
        return {**found, "day": time.strftime("%Y-%m-%d")}

    def _round(self, point: Point) -> dict[str, Any]:
        with self._hub(point) as hub:
            start = self._fineweb(hub, "100B")
        with self._hub(point) as hub:
            before = _cpu_of_children()
            times = self._new("times")
            fineweb = self._fineweb(hub, "10B", "-P", str(HERE / "timed_fineweb.py"), times)
            cpu = _cpu_of_children() - before
        prepare, tiny = self._prepare("10BT"), self._prepare("100BT")
        happened = json.loads(Path(times).read_text())
        self._clear()
        return {
            "fineweb": fineweb,
            "start": start,
            "encoding": prepare - tiny,
            "prepare": prepare,
            "own_start": tiny,
            "cpu": cpu,
            "server_cpu": hub.cpu_seconds,
            "arrived": round(hub.sent_seconds, 1),
            "times": {what: " ".join(map(str, when)) for what, when in happened.items()},
        }

    def _downloads_first(self, point: Point) -> dict[str, float]:
        found: dict[str, float] = {}
        with self._hub(point) as hub:
            found["snapshot"] = self._python(
                hub, "-c", SNAPSHOT, REPO, COMMIT, self._new("snapshot")
            )
            command = ["-m", "huggingface_hub.cli.hf", "download", REPO, "--quiet"]
            command += ["--repo-type", "dataset", "--revision", COMMIT]
            command += ["--include", "sample/10BT/*", "--local-dir", self._new("hf")]
            found["hf"] = self._python(hub, *command)
            for name, python in self.peers:
                script = str(HERE / "peers" / f"stream_{name}.py")
                arguments = [script, REPO, COMMIT, str(self.num_proc)]
                found[name] = self._timed([python, *arguments], hub)
        return found

    def _hub(self, point: Point) -> HubProcess:
        return HubProcess(
            REPO, COMMIT, self.folder, point.simulated, self.certificate, self.hub_cpus
        )

    def _fineweb(self, hub: HubProcess, version: str, *program: str) -> float:
        return self._tokenmill(hub, "fineweb", "--version", version, program=program)

    def _prepare(self, version: str) -> float:
        return self._tokenmill(None, "prepare", os.path.join(self.folder, "sample", version))

    def _tokenmill(
        self, hub: HubProcess | None, *arguments: str, program: tuple[str, ...] = ()
    ) -> float:
        workers = ["--num-proc", str(self.num_proc), "-q", "-o", self._new("out")]
        return self._python(hub, *(program or ("-m", "tokenmill")), *arguments, *workers)

    def _python(self, hub: HubProcess | None, *arguments: str) -> float:
        return self._timed([sys.executable, *arguments], hub)

    def _timed(self, command: list[str], hub: HubProcess | None) -> float:
        environment = {"HF_HOME": self._new("home"), "HF_HUB_DISABLE_XET": "1"}
        environment |= {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
        if hub is not None:
            environment["HF_ENDPOINT"] = hub.url
        if self.certificate is not None:
            environment["SSL_CERT_FILE"] = self.certificate
        environment["STARTED_AT"] = str(time.time())
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


def _has(python: str, package: str) -> bool:
    code = f"import importlib.util, sys; sys.exit(not importlib.util.find_spec({package!r}))"
    if os.path.exists(python) and not subprocess.run([python, "-c", code], check=False).returncode:
        return True
    print(f"left out: {package}, which is not in {python}", file=sys.stderr)
    return False


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def served(recipe: Recipe, below: str) -> str:
    """A repository that is laid out as FineWeb is; its 100BT is tiny, for the start alone."""
    tiny = Recipe(100_000, recipe.source, row_group=1, num_files=recipe.num_files).corpus(below)
    made = recipe.corpus(below)
    folder = os.path.join(below, f"hub-{recipe.name}")
    for source, sample in ((made, "10BT"), (tiny, "100BT")):
        target = Path(folder, "sample", sample)
        target.mkdir(parents=True, exist_ok=True)
        for path in Path(source).glob("*.parquet"):
            if not (target / path.name).exists():
                os.link(path, target / path.name)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", help="folder of parquet files to take paragraphs from")
    parser.add_argument("--bytes", default="600M", help="how much text to make")
    parser.add_argument("--files", type=int, default=12, help="in how many files")
    parser.add_argument("--num-proc", type=int, default=os.cpu_count())
    parser.add_argument("--quick", action="store_true", help=f"only {', '.join(QUICK)}")
    parser.add_argument("--only", nargs="+", metavar="EACH/LINE/LATENCY", help="these points")
    parser.add_argument("--rounds", type=int, default=1, help="of our own runs; the medians count")
    parser.add_argument("--missing", action="store_true", help="only what has no result yet")
    parser.add_argument("--one", action="store_true", help="fineweb over one connection, too")
    parser.add_argument("--tls", action="store_true", help="over TLS; kept apart")
    parser.add_argument("--peers", nargs="?", const=str(HERE.parent / ".venv-peers/bin/python"))
    parser.add_argument("--machine", default=f"{os.cpu_count()} cores", help="for the table")
    parser.add_argument("--make", action="store_true", help="only make the corpus")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE")
    parser.add_argument("--merge", nargs="+", metavar="FILE", help="results of other runs into it")
    parser.add_argument("--at-once", type=int, metavar="N", help="points at a time (see above)")
    parser.add_argument("--cpus", type=cpu_list, metavar="A,B", help="run on these CPUs")
    parser.add_argument("--hub-cpus", type=cpu_list, metavar="A", help="and the Hub on these")
    parser.add_argument("--write", action="store_true", help="the table into docs/performance.md")
    arguments = parser.parse_args()
    if arguments.merge:
        merge(arguments.results, arguments.merge)
    elif arguments.at_once:
        run_at_once(named_points(arguments), arguments.at_once, arguments.results)
    else:
        if arguments.cpus:
            os.sched_setaffinity(0, arguments.cpus)
        measure(arguments)
    if not arguments.make:
        lines = lines_of(json.loads(arguments.results.read_text()))
        print("\n".join(lines))
        if arguments.write:
            table.replace(table.PERFORMANCE, "overlap", lines)


def named_points(arguments: argparse.Namespace) -> list[str]:
    names = arguments.only or (QUICK if arguments.quick else [point.name for point in grid()])
    return list(names)


def measure(arguments: argparse.Namespace) -> None:
    recipe = Recipe(parsed_count(arguments.bytes), arguments.corpus, num_files=arguments.files)
    folder = served(recipe, str(HERE / "out" / "corpora"))
    if arguments.make:
        return
    results: dict[str, Any] = {"points": {}, "tls": {}}
    if arguments.results.exists():
        results |= json.loads(arguments.results.read_text())
    names = named_points(arguments)
    points = results["tls" if arguments.tls else "points"]
    with (
        tempfile.TemporaryDirectory(dir=HERE / "out") as scratch,
        tempfile.TemporaryDirectory() as keys,
    ):
        certificate = self_signed(keys) if arguments.tls else None
        bench = Bench(
            folder,
            arguments.num_proc,
            scratch,
            arguments.peers,
            certificate,
            arguments.hub_cpus,
        )
        results["machine"] = f"{arguments.machine}, {arguments.num_proc} workers"
        count = f"{arguments.files} files" if arguments.files > 1 else "one file"
        results["corpus"] = f"{count}, {bench.num_bytes / MB:.0f} MB of parquet"
        for name in names:
            if arguments.missing and name in points:
                continue
            found = points[name] = bench.measured(
                Point.named(name), arguments.one, arguments.rounds
            )
            arguments.results.write_text(json.dumps(results, indent=1) + "\n")
            rounded = {k: round(v, 2) if isinstance(v, float) else v for k, v in found.items()}
            print(name, json.dumps(rounded))
            print(f"  bound {bound(Point.named(name), found):.2f}, fineweb {found['fineweb']:.2f}")


if __name__ == "__main__":
    main()
