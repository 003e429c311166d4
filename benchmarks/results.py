"""benchmarks/results.json: what was measured, on which machine, with which versions, when."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any

from contestants import TOKENMILL, Contestant
from field import Field, Race

HERE = os.path.dirname(os.path.abspath(__file__))
RESULTS = os.path.join(HERE, "results.json")


@dataclass(frozen=True)
class Spread:
    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: list[float], digits: int) -> Spread:
        found = statistics.median(values), min(values), max(values)
        return cls(*(round(value, digits) for value in found))


@dataclass(frozen=True)
class Row:
    """What one contestant did."""

    name: str
    label: str
    role: str
    version: str
    target: float
    status: str  # same, differs, uncompared, failed or absent
    reason: str = ""
    text_mb: float = 0.0
    is_share: bool = False  # of the text that tokenmill got
    seconds: tuple[float, ...] = ()
    start_seconds: float = 0.0
    mb_per_s: Spread | None = None
    net_mb_per_s: Spread | None = None  # without start-up
    mtokens_per_s: float = 0.0
    # How many times as fast tokenmill is (for a limit: how much of it tokenmill reaches).
    ratio: Spread | None = None
    whole_ratio: Spread | None = None
    net_ratio: Spread | None = None
    cpu_seconds_per_gb: float = 0.0
    tree_mb: float = 0.0
    parent_mb: float = 0.0
    worker_mb: float = 0.0
    written_mb_per_gb: float = 0.0

    @classmethod
    def absent(cls, contestant: Contestant, reason: str, status: str = "absent") -> Row:
        return cls(
            contestant.name,
            contestant.label,
            contestant.role,
            contestant.version(),
            contestant.target,
            status,
            reason,
        )

    @classmethod
    def of(cls, race: Race, mill: Race) -> Row:
        contestant, costs = race.contestant, race.costs
        if mill.failure:
            raise SystemExit(f"tokenmill failed, so there is nothing to compare: {mill.failure}")
        if race.failure:
            return cls.absent(contestant, race.failure, "failed")
        rates, mill_rates = whole_rates(race), whole_rates(mill)
        net, mill_net = net_rates(race), net_rates(mill)
        status = {None: "uncompared", "": "same"}.get(race.difference, "differs")
        # In the same round, as far as the contestant took part.
        whole = [mine / its for mine, its in zip(mill_rates, rates, strict=False)]
        of_net = [mine / its for mine, its in zip(mill_net, net, strict=False)]
        right = race.field.right_answer(race.recipe, race.encoding)
        return cls(
            contestant.name,
            contestant.label,
            contestant.role,
            contestant.version(),
            contestant.target,
            status,
            race.difference or "",
            round(race.text_mb, 1),
            race.is_share,
            tuple(round(seconds, 3) for seconds in race.seconds),
            round(race.start_seconds, 2),
            Spread.of(rates, 1),
            Spread.of(net, 1),
            round(statistics.median(rates) * right.num_tokens / race.text_mb / 1e6, 2),
            Spread.of(of_net if race.is_share else whole, 3),
            Spread.of(whole, 3),
            Spread.of(of_net, 3),
            round(statistics.median(c.cpu_seconds for c in costs) / race.text_mb * 1e3, 2),
            round(max(c.tree_mb for c in costs)),
            round(max(c.parent_mb for c in costs)),
            round(max(c.worker_mb for c in costs)),
            round(max(c.written_mb for c in costs) / race.text_mb * 1e3),
        )

    def to_plain(self) -> dict[str, Any]:
        return asdict(self)


def whole_rates(race: Race) -> list[float]:
    return [race.text_mb / seconds for seconds in race.seconds]


def net_rates(race: Race) -> list[float]:
    """Without start-up. A start-up of half the run was mismeasured on a busy machine: tokenmill
    then keeps all of its time, and the others lose nearly all, so that no doubt speaks for us."""
    if race.contestant.times_itself:
        return whole_rates(race)
    start, text_mb = race.start_seconds, race.text_mb - race.start_mb
    if race.contestant is TOKENMILL and start > 0.5 * min(race.seconds):
        return whole_rates(race)
    return [text_mb / max(seconds - start, 0.1 * seconds) for seconds in race.seconds]


def save(found: dict[str, Any], path: str, field: Field, arguments: argparse.Namespace) -> None:
    """Into the results file; the sweeps and the table do not remove each other."""
    field.clean()
    everything = load(path) if os.path.exists(path) else {}
    about = {
        "machine": machine(field),
        "versions": versions(),
        "date": datetime.date.today().isoformat(),
        "corpus": os.path.basename(os.path.normpath(field.source)) if field.source else "made up",
        "bytes": arguments.bytes,
        "num_proc": arguments.num_proc,
        "rounds": arguments.rounds,
    }
    part = "sweeps_about" if "sweeps" in found else "about"
    if "sweeps" in found:
        swept = {row["sweep"] for row in found["sweeps"]}
        kept = [row for row in everything.get("sweeps", []) if row["sweep"] not in swept]
        found["sweeps"] = [*kept, *found["sweeps"]]
    everything |= {part: about, **found}
    with open(path, "w") as file:
        json.dump(everything, file, indent=1)
        file.write("\n")


def load(path: str = RESULTS) -> dict[str, Any]:
    with open(path) as file:
        found: dict[str, Any] = json.load(file)
    return found


def machine(field: Field) -> dict[str, Any]:
    with open("/proc/cpuinfo") as file:
        cpu = next((x.split(":")[1].strip() for x in file if x.startswith("model name")), "?")
    return {
        "cpu": cpu,
        "cores": len(field.cores),
        "cores_used": field.num_proc,
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9),
        "load_before": round(os.getloadavg()[2], 1),
        "system": f"{platform.system()} {platform.release()}",
    }


def versions() -> dict[str, str]:
    names = ("tokenmill", "gigatoken", "tiktoken", "pyarrow", "numpy")
    found = {name: metadata.version(name) for name in names}
    return {"python": platform.python_version(), **found}


def row(results: dict[str, Any], name: str) -> dict[str, Any] | None:
    return next((row for row in results.get("table", []) if row["name"] == name), None)


def mill_row(results: dict[str, Any]) -> dict[str, Any]:
    found = row(results, TOKENMILL.name)
    assert found is not None
    return found
