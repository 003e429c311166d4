"""What a commit costs beside an older one: the same runs by both, in turn, in CPU seconds.

CPU seconds vary less than seconds on a machine that does other work, but still by 10%: medians of
several rounds. Both trees have their bytecode, as an installed package has. Without it, every
process compiles every module, and the larger tree seems slower by what it would never cost a user.
"""

from __future__ import annotations

import compileall
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field

from corpus import Recipe
from field import Field
from measure import cost

HERE = os.path.dirname(os.path.abspath(__file__))
LIMIT = 0.10


@dataclass
class Case:
    """A run without any option that chooses, limits, keeps or names."""

    name: str
    layout: str  # of the corpus (corpus.py)
    num_bytes: int
    options: list[str]
    seconds: dict[str, list[float]] = field(default_factory=dict)  # of CPU, by tree

    @property
    def change(self) -> float:
        old, new = (statistics.median(found) for found in self.seconds.values())
        return new / old - 1

    def __str__(self) -> str:
        shown = [
            f"{statistics.median(found):.2f} ({min(found):.2f}-{max(found):.2f})"
            for found in self.seconds.values()
        ]
        return f"{self.name:28} {shown[0]:>20} {shown[1]:>20} {self.change:+7.1%}"


def cases(num_bytes: int, num_proc: int) -> list[Case]:
    inline, workers = ["--num-proc", "1"], ["--num-proc", str(num_proc)]
    separated = ["--separator", "<|endoftext|>\n"]
    return [
        Case("start-up, inline", "snappy", 10_000, inline),
        Case("start-up, workers", "snappy", 10_000, workers),
        Case("nanogpt, parquet, inline", "snappy", num_bytes, inline),
        Case("llmc, parquet, workers", "snappy", num_bytes, [*workers, "--format", "llmc"]),
        Case("llmc, jsonl, workers", "jsonl", num_bytes, [*workers, "--format", "llmc"]),
        Case("nanogpt, txt, inline", "txt", num_bytes, [*inline, *separated]),
    ]


def compared(revision: str, field_: Field, source: str | None, num_bytes: int, rounds: int) -> int:
    """Run all cases with the sources of `revision` and with ours; 1 if one is slower by over 10%.
    The first round of each is not counted."""
    found = cases(num_bytes, field_.num_proc)
    print(f"{'CPU seconds, median (range)':28} {revision:>20} {'here':>20}")
    with tempfile.TemporaryDirectory() as folder:
        trees = {revision: _checked_out(revision, folder), "here": os.path.join(HERE, "../src")}
        _run(found, trees, field_, source, rounds)
    slower = [case.name for case in found if case.change > LIMIT]
    if slower:
        print(f"slower by more than {LIMIT:.0%}: {', '.join(slower)}", file=sys.stderr)
    return 1 if slower else 0


def _run(
    found: list[Case], trees: dict[str, str], field_: Field, source: str | None, rounds: int
) -> None:
    for case in found:
        corpus = Recipe(case.num_bytes, source, layout=case.layout).corpus(field_.folder)
        case.seconds = {name: [] for name in trees}
        for number in range(rounds + 1):
            for name, tree in trees.items():
                used = _cpu_seconds(tree, field_, [corpus, *case.options])
                if number:
                    case.seconds[name].append(used)
        print(case, flush=True)


def _cpu_seconds(tree: str, field_: Field, arguments: list[str]) -> float:
    shutil.rmtree(field_.out, ignore_errors=True)
    command = [sys.executable, "-m", "tokenmill", "prepare", *arguments, "-o", field_.out, "-q"]
    return cost(command, {**field_.environment, "PYTHONPATH": tree}, field_.log).cpu_seconds


def _checked_out(revision: str, folder: str) -> str:
    """The sources of a commit below a folder, with bytecode."""
    archive = subprocess.run(
        ["git", "archive", revision, "src"],
        cwd=os.path.join(HERE, ".."),
        check=True,
        capture_output=True,
    )
    subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
    tree = os.path.join(folder, "src")
    compileall.compile_dir(tree, quiet=1)
    return tree
