"""One thing varied at a time, everything else as it comes: what does it cost?

Sizes are shares of --bytes, which is 1 GB where the published numbers come from: then corpora are
0.1 to 4 GB, and most other sweeps have 0.3 GB. The bare loop runs beside tokenmill where it can do
the same. Within a sweep, all settings take turns, round after round.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from answers import answer, differs
from contestants import BARE, TOKENMILL, tokenizer_json
from corpus import CODECS, Recipe, repeated
from field import ENCODINGS, Field
from measure import Cost, Failed, cost

FORMATS = ("nanogpt", "npy", "llmc", "megatron", "olmo", "datatrove", "mds", "litdata", "parquet")
MAX_ROUNDS = 3
AFTERWARDS = "afterwards"


@dataclass(frozen=True)
class Setting:
    name: str
    recipe: Recipe
    times: int = 1  # the recipe's corpus, by links
    options: tuple[str, ...] = ()
    encoding: str = "gpt2"  # what the bare loop is told, and how its tokens are read
    has_bare: bool = False
    num_proc: int = 0  # 0: the field's


def swept(field: Field, rounds: int, num_bytes: int, only: list[str]) -> list[dict[str, Any]]:
    """All sweeps, or those named."""
    rounds = min(rounds, MAX_ROUNDS)
    found = []
    for name, settings, all_cores in sweeps(field, num_bytes):
        if only and name not in only:
            continue
        field.say(f"sweep: {name}")
        with _all_cores(field) if all_cores else contextlib.nullcontext():
            found += [{"sweep": name, **row} for row in _rows(field, settings, rounds)]
    if not only or AFTERWARDS in only:
        found += [{"sweep": AFTERWARDS, **row} for row in _afterwards(field, num_bytes, rounds)]
    return found


def sweeps(field: Field, num_bytes: int) -> Iterator[tuple[str, list[Setting], bool]]:
    """(name, settings, whether all cores of the machine may be used)"""
    whole = Recipe(num_bytes, field.source)
    some = dataclasses.replace(whole, num_bytes=num_bytes * 3 // 10)
    tenth = dataclasses.replace(whole, num_bytes=num_bytes // 10)

    sizes = [(tenth, 1), (some, 1), (whole, 1), (whole, 2), (whole, 4)]
    yield (
        "corpus size",
        [
            Setting(_size(recipe.num_bytes * times), recipe, times, has_bare=True)
            for recipe, times in sizes
        ],
        False,
    )
    documents = [100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000]
    yield (
        "documents of",
        [
            Setting(_size(size), dataclasses.replace(some, document_bytes=size), has_bare=True)
            for size in documents
        ],
        False,
    )
    half = dataclasses.replace(whole, num_bytes=num_bytes // 2)
    yield (
        "workers",
        [Setting(str(n), half, num_proc=n, has_bare=True) for n in (1, 2, 3, 4)],
        True,
    )
    json_file = tokenizer_json(os.path.join(field.folder, "scratch"))
    encodings = {name: name for name in ENCODINGS} | {"tokenizer.json (gpt2)": json_file}
    yield (
        "encoding",
        [
            Setting(name, some, 1, ("--tokenizer", which), which, has_bare=True)
            for name, which in encodings.items()
        ],
        False,
    )
    yield "format", [Setting(name, some, 1, ("--format", name)) for name in FORMATS], False
    yield (
        "parquet codec",
        [
            Setting(codec, dataclasses.replace(some, layout=codec), has_bare=True)
            for codec in CODECS
        ],
        False,
    )
    giant = dataclasses.replace(some, layout="txt", num_files=1)
    inputs = [
        Setting("parquet (snappy)", some),
        *(
            Setting(layout, dataclasses.replace(some, layout=layout))
            for layout in ("jsonl", "jsonl.zst", "jsonl.gz")
        ),
        Setting("one giant txt", giant, 1, ("--separator", "<|endoftext|>\\n")),
    ]
    yield "input", inputs, False
    yield (
        "shuffle",
        [Setting("off", whole), Setting("--shuffle", whole, 1, ("--shuffle",))],
        False,
    )
    held_out = ("--val-fraction", "0.0005")
    yield "split", [Setting("none", whole), Setting("0.05% held out", whole, 1, held_out)], False


def _rows(field: Field, settings: list[Setting], rounds: int) -> list[dict[str, Any]]:
    points = [_Point(field, setting) for setting in settings]
    for number in range(rounds):
        if number and field.is_late(0.5):
            break
        for point in points:
            point.run()
    rows = [point.row() for point in points]
    for row in rows:
        field.say(f"  {row['setting']:22} {_shown(row)}")
    return rows


class _Point:
    """A setting, and what it cost each time."""

    def __init__(self, field: Field, setting: Setting) -> None:
        self._field = field
        self._setting = setting
        self._mill: list[Cost] = []
        self._bare: list[Cost] = []
        self._difference: str | None = None
        self._failure = ""

    def run(self) -> None:
        if self._failure:
            return
        try:
            self._run()
        except Failed as error:
            self._failure = str(error)

    def _run(self) -> None:
        field, setting = self._field, self._setting
        corpus, num_proc = _corpus(field, setting), setting.num_proc or field.num_proc
        self._mill.append(field.cost(_mill_command(corpus, field.out, num_proc, setting.options)))
        if not setting.has_bare:
            return
        dtype, eot = ENCODINGS.get(setting.encoding, ENCODINGS["gpt2"])
        is_first = self._difference is None
        wanted = answer(field.out, TOKENMILL.reads, eot, dtype) if is_first else None
        command = BARE.command(corpus, field.out, num_proc, setting.encoding)
        self._bare.append(field.cost(command))
        if wanted:
            self._difference = differs(answer(field.out, BARE.reads, eot, dtype), wanted)

    def row(self) -> dict[str, Any]:
        if self._failure:
            return {"setting": self._setting.name, "failed": self._failure}
        setting = self._setting
        twin = dataclasses.replace(setting.recipe, layout="snappy", num_files=4)
        text_mb = self._field.text_bytes(twin) * setting.times / 1e6
        row = {"setting": setting.name, "text_mb": round(text_mb, 1)}
        row["tokenmill"] = _plain(self._mill, text_mb)
        if self._bare:
            row["bare"] = _plain(self._bare, text_mb)
            pairs = zip(self._mill, self._bare, strict=True)
            ratios = [bare.seconds / mill.seconds for mill, bare in pairs]
            row["ratio"] = round(statistics.median(ratios), 3)
            row["ratio_spread"] = [round(min(ratios), 3), round(max(ratios), 3)]
            row["differs"] = self._difference
        return row


def _mill_command(corpus: str, out: str, num_proc: int, options: tuple[str, ...]) -> list[str]:
    command = TOKENMILL.command(corpus, out, num_proc, *options)
    if "--val-fraction" in options:
        command.remove("--no-val")
    return command


def _corpus(field: Field, setting: Setting) -> str:
    corpus = field.corpus(setting.recipe)
    if setting.times == 1:
        return corpus
    return repeated(corpus, f"{corpus}-{setting.times}-times", setting.times)


def _afterwards(field: Field, num_bytes: int, rounds: int) -> Iterator[dict[str, Any]]:
    """On a finished dataset: the same command again, and verify."""
    field.say("sweep: afterwards")
    recipe = Recipe(num_bytes, field.source)
    prepare = TOKENMILL.command(field.corpus(recipe), field.out, field.num_proc)
    field.cost(prepare)
    num_bytes = os.path.getsize(os.path.join(field.out, "train.bin"))
    verify = [sys.executable, "-m", "tokenmill", "verify", field.out, "-q"]
    commands: dict[str, list[str]] = {"the same command again": prepare, "verify": verify}
    for name, command in commands.items():
        spent = [cost(command, field.environment, field.log) for _ in range(rounds)]
        row = {"setting": name, "output_mb": round(num_bytes / 1e6, 1)}
        row["tokenmill"] = _plain(spent, num_bytes / 1e6)
        field.say(f"  {name:22} {row['tokenmill']['seconds'][0]:7.2f} s")
        yield row


def _plain(costs: list[Cost], text_mb: float) -> dict[str, Any]:
    best: Callable[[str], float] = lambda name: max(getattr(c, name) for c in costs)  # noqa: E731
    seconds = statistics.median(c.seconds for c in costs)
    return {
        "seconds": [round(c.seconds, 3) for c in costs],
        "mb_per_s": round(text_mb / seconds, 1),
        "cpu_seconds": round(statistics.median(c.cpu_seconds for c in costs), 2),
        "parent_mb": round(best("parent_mb")),
        "worker_mb": round(best("worker_mb")),
        "tree_mb": round(best("tree_mb")),
        "written_mb": round(best("written_mb")),
    }


def _shown(row: dict[str, Any]) -> str:
    if "failed" in row:
        return f"failed: {row['failed']}"
    rate = f"{row['tokenmill']['mb_per_s']:7.1f} MB/s"
    if "bare" not in row:
        return rate
    return f"{rate}, bare {row['bare']['mb_per_s']:.1f}, ratio {row['ratio']} {row['differs']}"


def _size(num_bytes: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if num_bytes >= size:
            return f"{num_bytes / size:g} {unit}"
    return f"{num_bytes} bytes"


@contextlib.contextmanager
def _all_cores(field: Field) -> Iterator[None]:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, field.cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
