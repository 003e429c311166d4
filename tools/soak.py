"""The fault suite again and again with fresh seeds, for hours: `make soak HOURS=8`.

Prints a line a round; a failure ends with the one line that repeats it, and is kept in soak.jsonl.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    hours = float(sys.argv[1]) if len(sys.argv) > 1 else 8.0
    began = time.monotonic()
    seed = int(time.time())
    num_failed = rounds = 0
    while rounds == 0 or time.monotonic() - began < hours * 3600:
        seed += 1
        rounds += 1
        num_failed += not is_passed(seed)
        left = hours - (time.monotonic() - began) / 3600
        print(f"round {rounds}: {num_failed} failed so far, {left:.1f} h left", flush=True)
    return 1 if num_failed else 0


def is_passed(seed: int) -> bool:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-qx",
        "--all-faults",
        "tests/faults",
        "--seed",
        str(seed),
    ]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if found.returncode == 0:
        return True
    failed = [line for line in found.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    test = failed[0].split(" - ")[0].split(maxsplit=1)[1] if failed else "tests/faults"
    print(f"to repeat it: .venv/bin/pytest -x '{test}' --seed {seed}", flush=True)
    with open(ROOT / "soak.jsonl", "a") as file:
        file.write(json.dumps({"seed": seed, "test": test, "output": found.stdout[-4000:]}) + "\n")
    return False


if __name__ == "__main__":
    sys.exit(main())
