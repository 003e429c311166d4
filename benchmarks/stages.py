"""Where the seconds of one run go, stage by stage: a run in this process, its functions wrapped.

    make stages                                        200 MB made up on the spot
    make stages STAGES="--corpus DIR --bytes 200M"     real text; --write puts the table into
                                                       docs/performance.md

A stage's seconds are its own: what a stage within it takes is that one's. Wrapping costs under a
microsecond a call, and there are some thousand. CPU seconds are the process's, user and system.
"""

from __future__ import annotations

import time

PROCESS_BEGAN = time.process_time()  # what the interpreter's own start took

import argparse  # noqa: E402
import datetime  # noqa: E402
import functools  # noqa: E402
import importlib  # noqa: E402
import os  # noqa: E402
import shutil  # noqa: E402
import sys  # noqa: E402
from collections.abc import Callable, Iterator  # noqa: E402
from typing import Any  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))

# stage: where its functions are. A name that is gone is said: then this list is to be corrected.
STAGES = {
    "imports": (),
    "planning": (
        "run.context:RunContext.plan_of",
        "prepare:all_inputs",
        "dataset.workspace:Workspace.finished",
    ),
    "reading": (
        "corpus.readers.parquet:ParquetReader.rows",
        "corpus.rows:documents",
    ),
    "building the engine": ("encodings.gigatoken:GigatokenEngine.__init__",),
    "encoding (gigatoken)": ("encodings.gigatoken:GigatokenEngine._measured_call",),
    "search for Unicode 17": ("encodings.unicode_gap:CodePointSet.documents_holding_any",),
    "encoding (tiktoken)": ("encodings.gigatoken:encoded_documents",),
    "dtype and EOT": ("encode.mill:document_bytes",),
    "split": ("encode.mill:held_out",),
    "parts: checksum": ("storage.new_file:NewFile.write",),
    "shards: reading parts": ("encode.part_sums:read_in_order",),
    "shards: sha256": ("storage.file_piece:FilePiece.write",),
    "shards: counting EOT": ("assemble.writing:EotScan.add",),
    "shards: the rest of a task": ("assemble.writing:drafted", "assemble.writing:Draft.commit"),
    "the books": ("assemble.books:Assembly.add", "assemble.books:Assembly.done"),
    "writing": ("storage.disk:write_all",),
    "fsync": ("os:fsync",),
    "publishing, manifest": ("run.completion:publish", "run.completion:make_manifest"),
}
REST = "everything else"


class Clock:
    """Seconds and CPU seconds by stage, each without those within it."""

    def __init__(self) -> None:
        self.spent: dict[str, list[float]] = {}
        self._stack = [REST]
        self._at = self._now()

    def _now(self) -> tuple[float, float]:
        return time.perf_counter(), time.process_time()

    def _turn(self) -> None:
        """What passed since the last turn belongs to the stage on top."""
        now = self._now()
        sums = self.spent.setdefault(self._stack[-1], [0.0, 0.0, 0])
        sums[0] += now[0] - self._at[0]
        sums[1] += now[1] - self._at[1]
        self._at = now

    def begin(self, stage: str) -> None:
        self._turn()
        self._stack.append(stage)

    def end(self) -> None:
        self._turn()
        stage = self._stack.pop()
        self.spent[stage][2] += 1

    def wrapped(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            self.begin(stage)
            try:
                found = function(*args, **kwargs)
            finally:
                self.end()
            return self._timed_steps(stage, found) if isinstance(found, Iterator) else found

        return timed

    def _timed_steps(self, stage: str, steps: Iterator[Any]) -> Iterator[Any]:
        while True:
            self.begin(stage)
            try:
                step = next(steps)
            except StopIteration:
                return
            finally:
                self.end()
            yield step


def wrap_all(clock: Clock) -> list[str]:
    """Wrap every stage's functions; those that are not there."""
    missing = []
    for stage, places in STAGES.items():
        for place in places:
            module_name, _, path = place.partition(":")
            name = module_name if module_name == "os" else f"tokenmill.{module_name}"
            try:
                owner = importlib.import_module(name)
                *outer, last = path.split(".")
                owner = functools.reduce(getattr, outer, owner)
                setattr(owner, last, clock.wrapped(stage, getattr(owner, last)))
            except (ImportError, AttributeError):
                missing.append(f"{stage}: {place}")
    return missing


def table(clock: Clock, text_mb: float, num_tokens: int) -> list[str]:
    wall = sum(sums[0] for sums in clock.spent.values())
    cpu = sum(sums[1] for sums in clock.spent.values())
    rows = [
        f"*{datetime.date.today().isoformat()}: {text_mb:,.0f} MB of text, {num_tokens:,} gpt2 "
        f"tokens; {wall:.2f} s, {cpu:.2f} CPU seconds, load {os.getloadavg()[0]:.1f} beside it.*",
        "",
        "| stage | seconds | CPU s | of CPU | calls |",
        "|---|--:|--:|--:|--:|",
    ]
    order = [stage for stage in STAGES if stage in clock.spent] + [REST]
    for stage in order:
        seconds, cpu_seconds, calls = clock.spent[stage]
        share = cpu_seconds / cpu
        rows.append(
            f"| {stage} | {seconds:.3f} | {cpu_seconds:.3f} | {share:.1%} | {calls or ''} |"
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--corpus", help="folder with parquet files below english/, multilingual/")
    parser.add_argument("--bytes", default="200M", help="how much text (default: 200M)")
    parser.add_argument("--language", default="english", help="or multilingual")
    parser.add_argument("--tokenizer", default="gpt2")
    parser.add_argument("--format", default="nanogpt")
    parser.add_argument("--write", action="store_true", help="the table into docs/performance.md")
    arguments = parser.parse_args()
    folder = os.path.join(HERE, "out")
    corpus = made_corpus(arguments, folder)
    clock = Clock()
    clock.spent["imports"] = [PROCESS_BEGAN, PROCESS_BEGAN, 0]
    clock.begin("imports")
    tokenmill = importlib.import_module("tokenmill")
    for name in ("tokenmill.run", "tokenmill.encode.mill", "gigatoken", "awkward"):
        importlib.import_module(name)
    clock.end()
    missing = wrap_all(clock)
    out = os.path.join(folder, "stages")
    shutil.rmtree(out, ignore_errors=True)
    clock.begin(REST)
    manifest = tokenmill.prepare(
        corpus, out, num_proc=1, tokenizer=arguments.tokenizer, format=arguments.format
    )
    clock.end()
    rows = table(clock, manifest.counts.text_bytes / 1e6, manifest.num_tokens)
    print("\n".join(rows))
    for place in missing:
        print(f"not found, so not told apart: {place}", file=sys.stderr)
    if arguments.write:
        from table import PERFORMANCE, replace

        replace(PERFORMANCE, "stages", rows)
    shutil.rmtree(out)


def made_corpus(arguments: argparse.Namespace, folder: str) -> str:
    """In another process: what it imports is not the run's."""
    import subprocess

    code = (
        "import sys; from measure import compile_package; compile_package();"
        "from corpus import Recipe; from tokenmill.cli.screen import parsed_count;"
        "print(Recipe(parsed_count(sys.argv[1]), sys.argv[2] or None, sys.argv[3])"
        ".corpus(sys.argv[4]))"
    )
    command = [
        *(sys.executable, "-c", code, arguments.bytes, arguments.corpus or ""),
        *(arguments.language, os.path.join(folder, "corpora")),
    ]
    os.makedirs(os.path.join(folder, "corpora"), exist_ok=True)
    done = subprocess.run(command, cwd=HERE, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()


if __name__ == "__main__":
    main()
