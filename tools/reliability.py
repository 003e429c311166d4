"""The reliability figure: runs the fault suite, counts, and puts the table into the README.

    make reliability               the suite (about 8 minutes), docs/reliability.json, README.md
    python tools/reliability.py --table-only       the README from the files that are there

What peers do under the same faults is docs/peer_faults.json, made by tools/peer_faults.py.
"""

from __future__ import annotations

import json
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
README = ROOT / "README.md"
BEGIN, END = "<!-- reliability:begin (make reliability) -->", "<!-- reliability:end -->"


def main() -> int:
    if "--table-only" not in sys.argv:
        results = measured()
        if results is None:
            return 1
        RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    block = "\n".join([BEGIN, *table(json.loads(RESULTS.read_text())), END])
    text = README.read_text()
    README.write_text(
        re.sub(f"{re.escape(BEGIN)}.*{re.escape(END)}", lambda _: block, text, flags=re.S)
    )
    return 0


def measured() -> dict[str, Any] | None:
    with tempfile.TemporaryDirectory() as folder:
        tally = Path(folder, "tally.json")
        began = time.monotonic()
        command = [
            *(sys.executable, "-m", "pytest", "-q", "-n", "auto", "--dist", "worksteal"),
            *("--tally", str(tally), "--all-faults", "tests/faults"),
            "tests/test_verify.py::test_every_random_mutation_is_detected",
        ]
        if subprocess.run(command, cwd=ROOT, check=False).returncode:
            print("the suite failed: there is no figure", file=sys.stderr)
            return None
        return {
            "kinds": json.loads(tally.read_text()),
            "seconds": round(time.monotonic() - began),
            "date": time.strftime("%Y-%m-%d"),
            "python": platform.python_version(),
            "versions": {name: version(name) for name in ("tokenmill", "gigatoken", "pyarrow")},
        }


def table(results: dict[str, Any]) -> list[str]:
    kinds: dict[str, dict[str, float]] = results["kinds"]
    rows = [
        "| what was done to it | times | how it ended | longest recovery |",
        "|---|--:|---|--:|",
    ]
    total = 0
    for kind, found in sorted(kinds.items(), key=lambda item: -item[1]["trials"]):
        is_time = " death to " in kind  # of kills that are counted under another name
        outcomes = {
            outcome: count
            for outcome, count in found.items()
            if outcome not in ("trials", "longest_seconds")
        }
        ended = ", ".join(
            outcome if len(outcomes) == 1 else f"{count:,.0f} {outcome}"
            for outcome, count in sorted(outcomes.items(), key=lambda item: -item[1])
        )
        longest = found["longest_seconds"]
        longest = f"{longest:.1f} s" if longest >= 0.05 else "under 0.1 s" if longest else ""
        rows.append(f"| {kind} | {found['trials']:,.0f} | {ended} | {longest} |")
        total += 0 if is_time else int(found["trials"])
    versions = ", ".join(f"{name} {found}" for name, found in results["versions"].items())
    return [
        f"**{total:,} trials, and the suite is green: one hang, one wrong byte or one dataset "
        "that looks complete and is not would make it red.** *identical*: the same command then "
        "gave the oracle's bytes.",
        "",
        *rows,
        "",
        f"*{versions}, Python {results['python']}, {results['date']}, {results['seconds']:,} s on "
        "2 cores. `make reliability` repeats it, `make teeth` shows that the suite notices planted "
        "bugs, `make soak HOURS=8` goes on with fresh seeds.*",
    ]


if __name__ == "__main__":
    sys.exit(main())
