"""How `prepare` scales with workers, beside the lean bare loop; and `verify` and `convert`.

    make bench-cores CORES="--corpus DIR --bytes 8G"
    PYTHONPATH=DIR/site python3 benchmarks/cores.py --corpus DIR --bytes 8G --workers 1,2,4,8,16

In every round and for every number of workers: the lean loop (limits/lean.py), then `prepare` to
`nanogpt`, to `llmc`, and to `nanogpt` with --shuffle, of the same text. A ratio is the loop's
seconds by ours within one round; what is shown at the end is the median over the rounds. Then
`verify` and `convert` (to llmc) of the last nanogpt dataset, on one core, on eight and on all.

Few workers get less text: 2 of 16 get a quarter of it, 8 and 16 get all. A line is printed after
each measurement and the JSON is written again, so that whatever ends this early leaves what it has.
What would not end within --seconds is left out, and said. Needs no network and nothing beyond what
tokenmill itself needs.
"""

from __future__ import annotations

import argparse
import dataclasses
import glob
import json
import multiprocessing
import os
import platform
import shutil
import statistics
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from corpus import Recipe
from measure import Cost, Failed, compile_package, cost
from tokenmill import __version__
from tokenmill.wording.quantities import parsed_count

HERE = os.path.dirname(os.path.abspath(__file__))
DISK_SECONDS = 0.2
LOOP = "lean loop"
WAYS = {
    "nanogpt": ("--format", "nanogpt"),
    "llmc": ("--format", "llmc"),
    "shuffle": ("--format", "nanogpt", "--shuffle"),
}
# Runs a Python command on the first so many of the cores that it may use.
ON_CORES = (
    "import os, sys; cores = sorted(os.sched_getaffinity(0));"
    "os.sched_setaffinity(0, cores[:int(sys.argv[1])]);"
    "os.execv(sys.executable, [sys.executable, *sys.argv[2:]])"
)


@dataclass(frozen=True)
class Measured:
    """One command."""

    what: str
    num_workers: int
    round: int
    seconds: float
    text_bytes: int
    cpu_seconds: float
    driver_cpu_seconds: float
    worker_mb: float  # the largest one's peak resident set
    peak_disk_bytes: int
    output_bytes: int
    ratio: float | None = None  # to the lean loop of this round

    @property
    def line(self) -> str:
        gigabytes = self.text_bytes / 1e9
        shown = (
            f"{self.what:9} x{self.num_workers:<3} round {self.round}  "
            f"{self.text_bytes / 1e6 / self.seconds:6.0f} MB/s  {self.seconds:6.2f} s  "
            f"{self.cpu_seconds / gigabytes:5.2f} CPU s/GB"
        )
        if self.what == LOOP:
            return shown
        if self.ratio is not None:
            shown += f"  {self.ratio:.3f} of the loop"
            shown += f"  driver {self.driver_cpu_seconds / gigabytes:.2f} s/GB"
        return (
            f"{shown}  worker {self.worker_mb:.0f} MB  "
            f"disk {self.peak_disk_bytes / 1e6:.0f} MB at most for {self.output_bytes / 1e6:.0f}"
        )


@dataclass
class Budget:
    """Seconds that are left. What does not fit is not begun."""

    seconds: float
    began: float = field(default_factory=time.monotonic)
    longest: dict[tuple[str, int], float] = field(default_factory=dict)  # by command and workers

    @property
    def left(self) -> float:
        return self.seconds - (time.monotonic() - self.began)

    def has_room(self, what: str, num_workers: int) -> bool:
        others = [s for (_, number), s in self.longest.items() if number == num_workers]
        expected = self.longest.get((what, num_workers), 1.5 * max(others, default=0.0))
        if self.left > 1.2 * expected:
            return True
        print(f"{what} x{num_workers}: left out, {self.left:.0f} s are left", flush=True)
        return False

    def spent(self, what: str, num_workers: int, seconds: float) -> None:
        before = self.longest.get((what, num_workers), 0.0)
        self.longest[what, num_workers] = max(before, seconds)


class DiskUse(threading.Thread):
    """The most that lay below a folder, by blocks: files with holes are not counted full."""

    def __init__(self, folder: str) -> None:
        super().__init__(daemon=True)
        self.peak_bytes = 0
        self._folder = folder
        self._done = threading.Event()

    def run(self) -> None:
        while not self._done.wait(DISK_SECONDS):
            self.peak_bytes = max(self.peak_bytes, used_bytes(self._folder))

    def stop(self) -> None:
        self._done.set()
        self.join()
        self.peak_bytes = max(self.peak_bytes, used_bytes(self._folder))


def used_bytes(folder: str) -> int:
    total = 0
    for below, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(below, name)).st_blocks * 512
            except OSError:
                continue
    return total


class Sweep:
    def __init__(self, folder: str, budget: Budget, result: str, encoding: str) -> None:
        self.rows: list[Measured] = []
        self.failures: list[str] = []
        self._out = os.path.join(folder, "out")
        self._log = os.path.join(folder, "log")
        self._budget = budget
        self._result = result
        self._encoding = encoding

    def round(self, number: int, num_workers: int, corpus: str, text_bytes: int) -> None:
        """The loop, then each way to prepare."""
        script = os.path.join(HERE, "limits", "lean.py")
        loop = self._measured(
            (LOOP, num_workers, number, text_bytes),
            [sys.executable, script, corpus, self._out, str(num_workers), self._encoding],
        )
        for what, options in WAYS.items():
            measured = self._measured(
                (what, num_workers, number, text_bytes),
                self._prepare(corpus, num_workers, *options),
                loop and loop.seconds,
            )
            if measured is not None and measured.what == "nanogpt":
                shutil.rmtree(self.dataset, ignore_errors=True)
                os.rename(self._out, self.dataset)

    @property
    def dataset(self) -> str:
        """The last one in nanogpt's format."""
        return f"{self._out}-nanogpt"

    def warm_up(self, corpus: str, num_workers: int) -> None:
        self._clear()
        cost(self._prepare(corpus, num_workers, *WAYS["nanogpt"]), log=self._log)

    def readers(self, number: int, num_cores: int, text_bytes: int) -> None:
        """`verify` and `convert` on so many cores."""
        command = [sys.executable, "-c", ON_CORES, str(num_cores), "-m", "tokenmill"]
        verify = ["verify", self.dataset, "-q"]
        convert = ["convert", self.dataset, self._out, "--format", "llmc", "-q"]
        for arguments in (verify, convert):
            given = (arguments[0], num_cores, number, text_bytes)
            self._measured(given, [*command, *arguments])

    def _prepare(self, corpus: str, num_workers: int, *options: str) -> list[str]:
        return [
            *(sys.executable, "-m", "tokenmill", "prepare", corpus, "-o", self._out, "--no-val"),
            *("-q", "--num-proc", str(num_workers), "--tokenizer", self._encoding, *options),
        ]

    def _measured(
        self,
        given: tuple[str, int, int, int],
        command: list[str],
        loop_seconds: float | None = None,
    ) -> Measured | None:
        what, num_workers, number, text_bytes = given
        if not self._budget.has_room(what, num_workers):
            return None
        self._clear()
        disk = DiskUse(self._out)
        disk.start()
        try:
            found: Cost = cost(command, log=self._log)
        except Failed as failure:
            self.failures.append(str(failure))
            print(f"error: {failure}", flush=True)
            return None
        finally:
            disk.stop()
        self._budget.spent(what, num_workers, found.seconds)
        measured = Measured(
            what,
            num_workers,
            number,
            round(found.seconds, 3),
            text_bytes,
            round(found.cpu_seconds, 2),
            round(found.own_cpu_seconds, 2),
            round(found.worker_mb),
            disk.peak_bytes,
            used_bytes(self._out),
            None if loop_seconds is None else round(loop_seconds / found.seconds, 4),
        )
        self.rows.append(measured)
        print(measured.line, flush=True)
        self.write()
        return measured

    def _clear(self) -> None:
        shutil.rmtree(self._out, ignore_errors=True)

    def write(self) -> None:
        data = {
            "machine": machine(),
            "encoding": self._encoding,
            "medians": self.medians(),
            "failures": self.failures,
            "rows": [dataclasses.asdict(row) for row in self.rows],
        }
        with open(f"{self._result}.new", "w") as file:
            file.write(json.dumps(data, indent=1) + "\n")
        os.replace(f"{self._result}.new", self._result)

    def medians(self) -> list[dict[str, Any]]:
        """Of each command and number of workers, over the rounds."""
        found = []
        for what, number in dict.fromkeys((row.what, row.num_workers) for row in self.rows):
            rows = [row for row in self.rows if (row.what, row.num_workers) == (what, number)]
            ratios = [row.ratio for row in rows if row.ratio is not None]
            gigabytes = rows[0].text_bytes / 1e9
            seconds = statistics.median(row.seconds for row in rows)
            driver = statistics.median(row.driver_cpu_seconds for row in rows)
            found.append(
                {
                    "what": what,
                    "num_workers": number,
                    "rounds": len(rows),
                    "seconds": seconds,
                    "mb_per_s": round(1e3 * gigabytes / seconds, 1),
                    "ratio": round(statistics.median(ratios), 3) if ratios else None,
                    "driver_seconds_per_gb": round(driver / gigabytes, 3),
                    "worker_mb": max(row.worker_mb for row in rows),
                    "peak_disk_bytes": max(row.peak_disk_bytes for row in rows),
                    "output_bytes": max(row.output_bytes for row in rows),
                }
            )
        return found


def table(medians: list[dict[str, Any]]) -> str:
    rows = ["| command | workers | MB/s | of the lean loop | driver, CPU s per GB |"]
    rows.append("|---|--:|--:|--:|--:|")
    for one in medians:
        ratio = "" if one["ratio"] is None else f"{one['ratio']:.2f}"
        is_run = one["what"] in WAYS and one["worker_mb"]  # one worker is the driver itself
        driver = f"{one['driver_seconds_per_gb']:.2f}" if is_run else ""
        cells = (one["what"], one["num_workers"], f"{one['mb_per_s']:,.0f}", ratio, driver)
        rows.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(rows)


def machine() -> dict[str, Any]:
    with open("/proc/cpuinfo") as file:
        names = [line.split(":")[1].strip() for line in file if line.startswith("model name")]
    return {
        "cpu": names[0] if names else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "tokenmill": __version__,
        "date": time.strftime("%Y-%m-%d"),
        "load": round(os.getloadavg()[0], 1),
    }


# The corpus, made by all cores.


def make_file(task: tuple[int, int, str | None, str, str]) -> int:
    """One file, unless it is there; its bytes of text."""
    number, num_bytes, source, language, folder = task
    path = os.path.join(folder, f"{number:04d}.parquet")
    if not os.path.exists(path):
        recipe = Recipe(num_bytes, source, language, num_files=1, seed=number)
        made = recipe.made(os.path.join(folder, f"{number:04d}.making"))
        [name] = os.listdir(made)
        os.replace(os.path.join(made, name), path)
        os.rmdir(made)
    return text_bytes_of(path)


def text_bytes_of(path: str) -> int:
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    batches = pq.ParquetFile(path).iter_batches(columns=["text"])
    return sum(pc.sum(pc.binary_length(batch.column(0))).as_py() or 0 for batch in batches)


def corpus_name(arguments: argparse.Namespace) -> str:
    source = os.path.basename(os.path.normpath(arguments.corpus)) if arguments.corpus else "made"
    return f"in-{source}-{arguments.language}-{arguments.file_bytes}"


def made_corpus(arguments: argparse.Namespace, folder: str) -> dict[str, int]:
    """The files, and their bytes of text."""
    os.makedirs(folder, exist_ok=True)
    file_bytes = parsed_count(arguments.file_bytes)
    num_files = max(1, round(parsed_count(arguments.bytes) / file_bytes))
    given = (file_bytes, arguments.corpus, arguments.language, folder)
    tasks = [(number, *given) for number in range(num_files)]
    with multiprocessing.get_context("spawn").Pool() as pool:
        sizes = pool.map(make_file, tasks, chunksize=1)
    paths = [os.path.join(folder, f"{number:04d}.parquet") for number in range(num_files)]
    return dict(zip(paths, sizes, strict=True))


def share_of(files: dict[str, int], num_workers: int, most: int, folder: str) -> tuple[str, int]:
    """A folder with what so many workers get, and its bytes of text."""
    number = max(1, min(len(files), -(-2 * num_workers * len(files) // most)))
    chosen = list(files)[:number]
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    for path in chosen:
        os.link(path, os.path.join(folder, os.path.basename(path)))
    return folder, sum(files[path] for path in chosen)


def parsed_arguments() -> argparse.Namespace:
    cores = len(os.sched_getaffinity(0))
    workers = sorted({*(2**i for i in range(10) if 2**i < cores), cores})
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--corpus", help="folder of parquet files to take paragraphs from")
    parser.add_argument("--language", default="english", help="a folder below it, if there is one")
    parser.add_argument("--bytes", default="1G", help="how much text (default: 1G)")
    parser.add_argument(
        "--file-bytes", default="100M", help="of text in a file, as few as are shared out evenly"
    )
    parser.add_argument("--workers", default=",".join(map(str, workers)), help="such as 1,2,4,8")
    parser.add_argument("--tokenizer", default="gpt2", help="or cl100k_base, o200k_base")
    parser.add_argument("--rounds", type=int, default=3, help="(default: 3)")
    parser.add_argument("--seconds", type=float, default=1800, help="for all of it (default: 1800)")
    parser.add_argument("--folder", help="where to work (default: benchmarks/out/cores)")
    parser.add_argument("--json", help="the result (default: cores.json in that folder)")
    return parser.parse_args()


def main() -> int:
    arguments = parsed_arguments()
    budget = Budget(arguments.seconds)
    folder = arguments.folder or os.path.join(HERE, "out", "cores")
    os.makedirs(folder, exist_ok=True)
    result = arguments.json or os.path.join(folder, "cores.json")
    workers = [int(number) for number in arguments.workers.split(",")]
    if glob.glob(os.path.join(HERE, "..", "src")):
        compile_package()
    files = made_corpus(arguments, os.path.join(folder, corpus_name(arguments)))
    shown = f"{sum(files.values()) / 1e9:.2f} GB of text, {machine()['cores']} cores"
    print(f"{shown}; {budget.left:.0f} of {budget.seconds:.0f} s are left", flush=True)
    sweep = Sweep(folder, budget, result, arguments.tokenizer)
    sharing = (max(workers), os.path.join(folder, "share"))
    corpus, _ = share_of(files, min(workers), *sharing)
    sweep.warm_up(corpus, max(workers))
    for number in range(1, arguments.rounds + 1):
        for num_workers in workers:
            corpus, text_bytes = share_of(files, num_workers, *sharing)
            sweep.round(number, num_workers, corpus, text_bytes)
        if os.path.exists(sweep.dataset):
            for num_cores in sorted({1, min(8, max(workers)), max(workers)}):
                sweep.readers(number, num_cores, text_bytes)
    sweep.write()
    print(table(sweep.medians()))
    print(f"in {result}")
    for path in (sweep.dataset, os.path.join(folder, "share"), os.path.join(folder, "out")):
        shutil.rmtree(path, ignore_errors=True)
    return 1 if sweep.failures else 0


if __name__ == "__main__":
    sys.exit(main())
