"""The tables of docs/performance.md and the README: from benchmarks/results.json, not by hand.

    python benchmarks/table.py          make chart runs this, too

A goal that was missed says by how much.
"""

from __future__ import annotations

import os
import re
import statistics
from typing import Any

import results as files

HERE = os.path.dirname(os.path.abspath(__file__))
README = os.path.join(HERE, "..", "README.md")
PERFORMANCE = os.path.join(HERE, "..", "docs", "performance.md")
# The README's five rows: us, the engine alone, and what most people use today.
SHORT = ("tokenmill", "gigatoken", "pool", "datasets", "datatrove")


def main() -> None:
    for path, name, lines in blocks(files.load()):
        replace(path, name, lines)


def blocks(found: dict[str, Any]) -> list[tuple[str, str, list[str]]]:
    """(page, name of its markers, what belongs between them)."""
    made = [
        (PERFORMANCE, "bench", [*contestants(found), "", *targets(found)]),
        (PERFORMANCE, "sweeps", sweeps(found)),
    ]
    if "table" in found:
        chart = ["![MB of text per second](docs/speed.svg)", "", summary(found)]
        made += [(README, "chart", chart), (README, "bench-short", short(found))]
    return made


def everything(found: dict[str, Any]) -> list[str]:
    """All tables, for the terminal."""
    return [*contestants(found), "", *targets(found), "", *sweeps(found)]


def replace(path: str, name: str, lines: list[str]) -> None:
    """Put the lines between `<!-- name:begin ... -->` and `<!-- name:end -->`."""
    with open(path) as file:
        text = file.read()
    try:
        text = replaced(text, name, lines)
    except LookupError as error:
        raise SystemExit(f"{os.path.basename(path)}: {error}") from None
    with open(path, "w") as file:
        file.write(text)


def replaced(text: str, name: str, lines: list[str]) -> str:
    pattern = rf"(<!-- {name}:begin[^>]*-->\n).*?(<!-- {name}:end -->)"
    block = "".join(line + "\n" for line in lines)
    found, count = re.subn(pattern, lambda m: m[1] + block + m[2], text, flags=re.DOTALL)
    if not count:
        raise LookupError(f"no place for {name}")
    return found


def contestants(found: dict[str, Any]) -> list[str]:
    if "table" not in found:
        return []
    rows = [
        "| | text, MB/s | Mtokens/s | tokenmill is | CPU s/GB | peak MB | written MB/GB |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    left_out = []
    for row in sorted(found["table"], key=speed, reverse=True):
        if row["status"] in ("absent", "failed"):
            left_out.append(f"{plain(row['label'])} is left out: {row['reason']}.")
            continue
        rows.append(
            f"| {named(row)} | {number(speed(row))} | {row['mtokens_per_s']:.1f} "
            f"| {compared(row)} | {row['cpu_seconds_per_gb']:.1f} | {row['tree_mb']:,.0f} "
            f"| {row['written_mb_per_gb']:,.0f} |"
        )
    return [*rows, "", caption(found), *([""] if left_out else []), *left_out]


def short(found: dict[str, Any]) -> list[str]:
    """The README's rows; whoever could not be measured is in the long table, with the reason."""
    measured = [row for row in found["table"] if row["status"] not in ("absent", "failed")]
    rows = [row for row in measured if row["name"] in SHORT]
    return [
        "| | text, MB/s | tokenmill is | CPU s/GB | peak MB |",
        "|---|--:|--:|--:|--:|",
        *(
            f"| {named(row)} | {number(speed(row))} | {compared(row)} "
            f"| {row['cpu_seconds_per_gb']:.1f} | {row['tree_mb']:,.0f} |"
            for row in sorted(rows, key=speed, reverse=True)
        ),
    ]


def named(row: dict[str, Any]) -> str:
    version = f" {row['version']}" if row["version"] and row["role"] == "peer" else ""
    return f"{row['label']}{version}"


def speed(row: dict[str, Any]) -> float:
    """MB of text a second; of who got less text than tokenmill, net of start-up."""
    rate = row["net_mb_per_s"] if row["is_share"] else row["mb_per_s"]
    return float(rate["median"]) if rate else 0.0


def compared(row: dict[str, Any]) -> str:
    if row["role"] == "mill":
        return ""
    if row["status"] == "differs":
        return f"tokens differ: {row['reason']}"
    ratio = row["ratio"]
    if row["role"] == "limit":
        return f"{ratio['median']:.2f} of it ({ratio['least']:.2f} to {ratio['most']:.2f})"
    digits = 1 if ratio["median"] < 10 else 0
    shown = [f"{ratio[key]:.{digits}f}" for key in ("median", "least", "most")]
    return f"**{shown[0]} x** ({shown[1]} to {shown[2]})"


def caption(found: dict[str, Any]) -> str:
    about, mill = found["about"], files.mill_row(found)
    cpu, versions = about["machine"]["cpu"], about["versions"]
    shares = [row["text_mb"] for row in found["table"] if row["is_share"]]
    less = ""
    if shares:
        less = (
            f" Slow contestants were given {min(shares):.0f} to {max(shares):.0f} MB, and are "
            "compared without anyone's start-up time."
        )
    return (
        f"*{mill['text_mb']:,.0f} MB of English ({about['corpus']}; FineWeb's layout) to gpt2 "
        f"tokens on {about['num_proc']} cores of an {cpu}, {len(mill['seconds'])} rounds, taking "
        f"turns: median (minimum to maximum).{less} All produced the same tokens unless noted. "
        f"tokenmill {versions['tokenmill']} with `--no-val`, gigatoken {versions['gigatoken']}, "
        f"tiktoken {versions['tiktoken']}, Python {versions['python']}, {about['date']}. "
        "`make bench` repeats it.*"
    )


def summary(found: dict[str, Any]) -> str:
    """The line below the chart."""
    about, mill = found["about"], files.mill_row(found)
    versions = about["versions"]
    return (
        f"*{mill['text_mb']:,.0f} MB of English text (FineWeb's layout: snappy parquet, row groups "
        f"of 1,000) to gpt2 tokens on {about['num_proc']} cores of an {about['machine']['cpu']}; "
        f"tokenmill {versions['tokenmill']}, gigatoken {versions['gigatoken']}, tiktoken "
        f"{versions['tiktoken']}, Python {versions['python']}, {about['date']}. All produced the "
        "same tokens; [the full table](docs/performance.md#compared-with-other-tools).*"
    )


def targets(found: dict[str, Any]) -> list[str]:
    """What it is meant to reach, and whether it does."""
    goals = [
        *_peer_goals(found),
        *_limit_goals(found),
        *_start_goals(found),
        *_sweep_goals(found),
    ]
    if not goals:
        return []
    return ["| goal | at least | is | |", "|---|--:|--:|---|", *goals]


def goal(what: str, target: float, value: float, unit: str = "", at_most: bool = False) -> str:
    met = value <= target if at_most else value >= target
    missed = abs(1 - value / target)
    verdict = "" if met else f"missed by {missed:.0%}"
    limit = f"at most {target:g}{unit}" if at_most else f"{target:g}{unit}"
    return f"| {what} | {limit} | {number(value)}{unit} | {verdict} |"


def number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _peer_goals(found: dict[str, Any]) -> list[str]:
    rows = [row for row in found.get("table", []) if row["role"] == "peer" and row["target"]]
    goals = []
    for row in sorted(rows, key=lambda row: row["target"]):
        what = f"times as fast as {row['label'].partition(' (')[0]}"
        if row["status"] == "same":
            goals.append(goal(what, row["target"], row["ratio"]["median"]))
        else:
            goals.append(f"| {what} | {row['target']:g} | | {row['status']}: {row['reason']} |")
    return goals


def _limit_goals(found: dict[str, Any]) -> list[str]:
    goals = []
    if bare := files.row(found, "bare"):
        what = "of the bare loop (English, gpt2)"
        goals.append(goal(what, bare["target"], bare["ratio"]["median"]))
    for case in found.get("against_bare", []):
        what = f"of the bare loop ({case['language']}, {case['encoding']})"
        if case["bare"]["status"] == "same":
            goals.append(goal(what, case["target"], case["bare"]["ratio"]["median"]))
        else:
            goals.append(f"| {what} | {case['target']} | | tokens differ |")
    return goals


def _start_goals(found: dict[str, Any]) -> list[str]:
    goals = []
    if first := found.get("first_token_seconds"):
        goals.append(goal("first token after", 1.0, statistics.median(first), " s", at_most=True))
    if demo := found.get("demo_seconds"):
        goals.append(f"| 100 MB, from command to manifest | a blink | {demo:.2f} s | |")
    return goals


def _sweep_goals(found: dict[str, Any]) -> list[str]:
    points = {
        (row["sweep"], row["setting"]): row
        for row in found.get("sweeps", [])
        if "failed" not in row
    }

    def times_as_long(sweep: str, one: str, other: str, who: str = "tokenmill") -> float:
        pairs = zip(*(points[sweep, name][who]["seconds"] for name in (one, other)), strict=True)
        return statistics.median(a / b for a, b in pairs)

    goals = []
    if ("shuffle", "--shuffle") in points:
        factor = times_as_long("shuffle", "--shuffle", "off")
        goals.append(goal("time with `--shuffle`, of that without", 1.25, factor, at_most=True))
    if ("workers", "2") in points:
        bare = times_as_long("workers", "1", "2", "bare")
        what = f"times as fast with 2 workers as with 1 (the bare loop: {bare:.2f})"
        least = round(min(1.85, bare * 1.85 / 1.9), 2)
        goals.append(goal(what, least, times_as_long("workers", "1", "2")))
    if small := points.get(("documents of", "100 bytes")):
        goals.append(goal("documents of 100 bytes", 60, small["tokenmill"]["mb_per_s"], " MB/s"))
    if sizes := [row for (sweep, _), row in points.items() if sweep == "corpus size"]:
        goals.append(_memory_goal(sizes))
    return goals


def _memory_goal(sizes: list[dict[str, Any]]) -> str:
    text = f"{sizes[0]['setting']} to {sizes[-1]['setting']} of text"
    worker, parent = (
        f"{sizes[0]['tokenmill'][key]} to {max(row['tokenmill'][key] for row in sizes)} MB"
        for key in ("worker_mb", "parent_mb")
    )
    return f"| memory of a worker, {text} | flat | {worker} | parent: {parent} |"


def sweeps(found: dict[str, Any]) -> list[str]:
    if "sweeps" not in found:
        return []
    lines = [
        f"*{found['sweeps_about']['date']}, {found['sweeps_about']['num_proc']} cores of an "
        f"{found['sweeps_about']['machine']['cpu']}, gpt2 where nothing else is said. MB/s of "
        "text, start-up included; `verify` in MB/s of shards.*"
    ]
    for name in dict.fromkeys(row["sweep"] for row in found["sweeps"]):
        lines += [
            "",
            f"| {name} | seconds | MB/s | CPU s | worker MB | parent MB | of the bare loop |",
            "|---|--:|--:|--:|--:|--:|--:|",
        ]
        for row in found["sweeps"]:
            if row["sweep"] == name and "failed" in row:
                lines.append(f"| {row['setting']} | failed | | | | | |")
            elif row["sweep"] == name:
                mill = row["tokenmill"]
                beside = row["differs"] and f"differs: {row['differs']}" if "ratio" in row else ""
                if "ratio" in row and not beside:
                    beside = f"{row['ratio']:.2f}"
                lines.append(
                    f"| {row['setting']} | {statistics.median(mill['seconds']):.2f} "
                    f"| {mill['mb_per_s']:.0f} | {mill['cpu_seconds']:.1f} | {mill['worker_mb']} "
                    f"| {mill['parent_mb']} | {beside} |"
                )
    return lines


def plain(label: str) -> str:
    return label.replace("**", "")


if __name__ == "__main__":
    main()
