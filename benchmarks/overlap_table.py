"""The points of `overlap.py`: what bounds them, and the table of what was measured."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hub_process import Line
from tokenmill.corpus.download.connection_count import MAX_CONNECTIONS

MB = 10**6
EACH, LINES, LATENCIES = (5, 40, 200), (50, 500, 2000), (1, 50, 200)
FACTOR = 1.10
PEERS = ("datasets", "datatrove")


@dataclass(frozen=True)
class Point:
    """MB/s a connection, MB/s in all, and milliseconds before an answer."""

    each: int
    line: int
    latency: int

    @classmethod
    def named(cls, name: str) -> Point:
        return cls(*map(int, name.split("/")))

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


def grid() -> list[Point]:
    return list(itertools.starmap(Point, itertools.product(EACH, LINES, LATENCIES)))


def bound(point: Point, found: dict[str, Any]) -> float:
    longest = max(found["bytes"] / (point.gives * MB), found["encoding"])
    return FACTOR * longest + float(found["start"])


def rows(points: dict[str, Any]) -> list[str]:
    lines = [
        "| MB/s each | MB/s line | ms | bytes / line | encoding | start | last byte | **fineweb** |"
        " bound | `snapshot_download` + prepare | `hf download` + prepare | one connection |"
        " `datasets` reads | datatrove reads | CPU | server CPU |",
        "|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for point in grid():
        if (found := points.get(point.name)) is None:
            continue
        limit = bound(point, found)
        missed = "" if found["fineweb"] <= limit else f" (missed by {found['fineweb'] - limit:.1f})"
        seconds = [found["snapshot"] + found["prepare"], found["hf"] + found["prepare"]]
        seconds += [found.get(name) for name in ("one", *PEERS)] + [found["cpu"]]
        others = " | ".join("" if value is None else f"{value:.1f}" for value in seconds)
        lines.append(
            f"| {point.each} | {point.line:,} | {point.latency} "
            f"| {found['bytes'] / point.gives / MB:.1f} | {found['encoding']:.1f} "
            f"| {found['start']:.1f} | {found.get('arrived', 0) or ''} "
            f"| **{found['fineweb']:.1f}** | {limit:.1f}{missed} | {others} "
            f"| {found['server_cpu']:.1f} |"
        )
    return lines


def summary(results: dict[str, Any]) -> str:
    points = results["points"]
    num_met = sum(
        found["fineweb"] <= bound(Point.named(name), found) for name, found in points.items()
    )
    num_faster = sum(f["fineweb"] <= f["snapshot"] + f["prepare"] for f in points.values())
    loads = [found["load"] for found in points.values()]
    return (
        f"Seconds, {_days(points)}. {results['machine']}; load of the machine while it was "
        f"measured {min(loads):.0f} to {max(loads):.0f}. {results['corpus']}. The bound was met at "
        f"{num_met} of {len(points)} points; `fineweb` was as fast as `snapshot_download` and then "
        f"`prepare`, or faster, at {num_faster}."
    )


def _days(points: dict[str, Any]) -> str:
    return ", ".join(sorted({found.get("day", "day not noted") for found in points.values()}))


def lines_of(results: dict[str, Any]) -> list[str]:
    lines = [summary(results), "", *rows(results["points"])] if results["points"] else []
    if results.get("tls"):
        lines += ["", "The same over TLS (a certificate of its own, the system's OpenSSL):", ""]
        lines += rows(results["tls"])
    return lines


def merge(into: Path, others: list[str]) -> None:
    results = json.loads(into.read_text()) if into.exists() else {"points": {}}
    for path in others:
        found = json.loads(Path(path).read_text())
        for kind in ("points", "tls"):
            results.setdefault(kind, {}).update(found.pop(kind, {}))
        results |= found
    into.write_text(json.dumps(results, indent=1) + "\n")
