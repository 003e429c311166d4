"""The reliability figure: runs the fault suite, counts, and writes the tables.

    make reliability               the suite (about 8 minutes), docs/reliability.json, the tables
    python tools/reliability.py --table-only       the tables from the results that are there

The whole table goes into docs/reliability.md, some of its rows into the README.

What peers do under the same faults is docs/peer_faults.json, made by tools/peer_faults.py.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "reliability.json"
PAGE = ROOT / "docs" / "reliability.md"
README = ROOT / "README.md"
# The README's five rows: what happens to real runs.
SHORT = ("crash points", "disk errors", "power losses", "real kills", "damaged outputs")


def main() -> int:
    if "--table-only" not in sys.argv:
        results = measured()
        if results is None:
            return 1
        RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    for path, name, lines in blocks(json.loads(RESULTS.read_text())):
        path.write_text(replaced(path.read_text(), name, lines))
    return 0


def blocks(results: dict[str, Any]) -> list[tuple[Path, str, list[str]]]:
    """(page, name of its markers, what belongs between them)."""
    kinds = results["kinds"]
    some = {kind: found for kind, found in kinds.items() if kind in SHORT}
    return [
        (PAGE, "reliability", [headline(kinds), "", *rows(kinds), "", caption(results)]),
        (README, "reliability-short", [headline(kinds), "", *rows(some)]),
    ]


def replaced(text: str, name: str, lines: list[str]) -> str:
    """The text with the lines between `<!-- name:begin ... -->` and `<!-- name:end -->`."""
    pattern = rf"(<!-- {name}:begin[^>]*-->\n).*?(<!-- {name}:end -->)"
    block = "".join(line + "\n" for line in lines)
    found, count = re.subn(pattern, lambda m: m[1] + block + m[2], text, flags=re.DOTALL)
    if not count:
        raise SystemExit(f"there is no place for {name}")
    return found


# Beside tests/faults, what `make test` makes a share of.
SHARED = (
    "test_conversions.py::test_every_pair_of_formats_passes_verify_and_holds_the_same_tokens",
    "test_foreign.py::test_an_inferred_eot_policy_is_the_right_one_or_none",
    "inspect/test_damage.py::test_hostile_manifests_are_an_error_of_ours",
)


def measured() -> dict[str, Any] | None:
    with tempfile.TemporaryDirectory() as folder:
        tally = Path(folder, "tally.json")
        began = time.monotonic()
        command = [
            *(sys.executable, "-m", "pytest", "-q", "-n", "auto", "--dist", "worksteal"),
            *("--tally", str(tally), "--all-faults", "tests/faults"),
            "tests/dataset/test_verify.py::test_every_random_mutation_is_detected",
            *(f"tests/dataset/{test}" for test in SHARED),
        ]
        if subprocess.run(command, cwd=ROOT, check=False).returncode:
            print("the suite failed: there is no figure", file=sys.stderr)
            return None
        return {
            "kinds": json.loads(tally.read_text()),
            "seconds": round(time.monotonic() - began),
            "date": time.strftime("%Y-%m-%d"),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "versions": {name: version(name) for name in ("tokenmill", "gigatoken", "pyarrow")},
        }


def headline(kinds: dict[str, dict[str, float]]) -> str:
    total = sum(int(found["trials"]) for kind, found in kinds.items() if not is_time(kind))
    return (
        f"**{total:,} trials, and the suite is green: a single hang, wrong byte or incomplete "
        "dataset that looks complete would make it red.** *identical*: the same command, run "
        "again, then gave the oracle's bytes."
    )


def is_time(kind: str) -> bool:
    """Of kills that are counted under another name."""
    return " death to " in kind


def rows(kinds: dict[str, dict[str, float]]) -> list[str]:
    ordered = sorted(kinds.items(), key=lambda item: -item[1]["trials"])
    return [
        "| what was done to it | times | how it ended | longest recovery |",
        "|---|--:|---|--:|",
        *(row(kind, found) for kind, found in ordered),
    ]


def row(kind: str, found: dict[str, float]) -> str:
    outcomes = {
        outcome: count
        for outcome, count in found.items()
        if outcome not in ("trials", "longest_seconds")
    }
    ended = ", ".join(
        outcome if len(outcomes) == 1 else f"{count:,.0f} {outcome}"
        for outcome, count in sorted(outcomes.items(), key=lambda item: -item[1])
    )
    seconds = found["longest_seconds"]
    longest = f"{seconds:.1f} s" if seconds >= 0.05 else "under 0.1 s" if seconds else ""
    return f"| {kind} | {found['trials']:,.0f} | {ended} | {longest} |"


def caption(results: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {found}" for name, found in results["versions"].items())
    return (
        f"*{versions}, Python {results['python']}, {results['date']}, {results['seconds']:,} s on "
        f"{results.get('cores', 2)} cores. `make reliability` repeats it.*"
    )


if __name__ == "__main__":
    sys.exit(main())
