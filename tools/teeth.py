"""Does the fault suite have teeth? Plants one bug at a time and looks whether tests turn red.

    make teeth                     every bug
    python tools/teeth.py fsync    those whose name contains "fsync"
    python tools/teeth.py --list   what could be planted; fails if a line is not there any more

Each bug is a line of the product changed in a copy of it: a mistake that someone could make, and
that a run without faults would never show (planted_bugs.py). A bug that no test notices is a hole
in the suite.
"""

from __future__ import annotations

import concurrent.futures
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from planted_bugs import BUGS, Bug

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    if wanted == "--list":
        for bug in BUGS:
            planted(bug, ROOT / "src")
            print(bug.name)
        return 0
    missed = []
    bugs = [bug for bug in BUGS if wanted in bug.name]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for bug, (caught, seconds) in zip(bugs, pool.map(is_caught, bugs), strict=True):
            print(f"{'caught' if caught else 'MISSED'}  {seconds:4.0f} s  {bug.name}", flush=True)
            if not caught:
                missed.append(bug)
    print(f"{len(missed)} of {len(bugs)} missed")
    return 1 if missed else 0


def planted(bug: Bug, source: Path) -> str:
    """The file with the bug in it."""
    text = (source / "tokenmill" / bug.file).read_text()
    if text.count(bug.right) != 1:
        raise SystemExit(f"{bug.name}: {bug.file} no longer has that line once:\n{bug.right}")
    missing = [name for name in bug.tests.split() if "/" in name and not (ROOT / name).exists()]
    if missing:
        raise SystemExit(f"{bug.name}: there is no {missing[0]}")
    return text.replace(bug.right, bug.wrong)


def is_caught(bug: Bug) -> tuple[bool, float]:
    """Whether a test turned red, and after how many seconds."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for name in ("src", "tests", "docs"):
            shutil.copytree(ROOT / name, Path(folder, name))
        shutil.copy(ROOT / "pyproject.toml", folder)
        Path(folder, "src", "tokenmill", bug.file).write_text(planted(bug, Path(folder, "src")))
        command = [sys.executable, "-m", "pytest", "-qx", "--all-faults", "-p", "no:cacheprovider"]
        command += ["--timeout", "100"]  # a bug that makes tests wait for ever is caught sooner
        found = subprocess.run(
            [*command, *bug.tests.split()],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(Path(folder, "src"))},
            capture_output=True,
            text=True,
            check=False,
        )
        if found.returncode not in (0, 1):
            raise SystemExit(f"{bug.name}: pytest did not run:\n{found.stdout}{found.stderr}")
        return found.returncode == 1, time.monotonic() - began


if __name__ == "__main__":
    sys.exit(main())
