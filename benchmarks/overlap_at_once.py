"""Points of `overlap.py` measured several at a time, each on CPUs of its own.

A point gets four CPUs, and its Hub one more, so that the server takes nothing from who is measured.
CPUs that share a core go to the same point.
"""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from overlap_table import merge

CPUS_EACH = 4
SELF = Path(__file__).parent / "overlap.py"
TOPOLOGY = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


def cpu_list(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def by_core(cpus: set[int]) -> list[int]:
    """The CPUs, those of a core beside each other."""

    def core(cpu: int) -> tuple[str, int]:
        with contextlib.suppress(OSError):
            return Path(TOPOLOGY.format(cpu)).read_text().strip().zfill(20), cpu
        return "", cpu

    return sorted(cpus, key=core)


def run_at_once(names: list[str], num_at_once: int, results: Path) -> None:
    """Measure these points by commands of their own, whose results are merged into `results`."""
    cpus = by_core(os.sched_getaffinity(0))
    if len(cpus) < num_at_once * (CPUS_EACH + 1):
        sys.exit(f"{num_at_once} points at a time take {num_at_once * (CPUS_EACH + 1)} CPUs")
    left: queue.SimpleQueue[str] = queue.SimpleQueue()
    for name in names:
        left.put(name)
    options = [*without(sys.argv[1:], ("--at-once", "--only", "--results")), "--machine"]
    options += [
        f"{len(cpus)} cores, of which {CPUS_EACH} for each point and one for its Hub, "
        f"{num_at_once} points at a time"
    ]
    with tempfile.TemporaryDirectory() as folder:
        lanes = [
            threading.Thread(target=lane, args=(number, num_at_once, cpus, left, options, folder))
            for number in range(num_at_once)
        ]
        subprocess.run([sys.executable, str(SELF), *options, "--make"], check=True)
        for thread in lanes:
            thread.start()
        for thread in lanes:
            thread.join()
        merge(results, sorted(str(path) for path in Path(folder).iterdir()))


def lane(
    number: int,
    num_lanes: int,
    cpus: list[int],
    left: queue.SimpleQueue[str],
    options: list[str],
    folder: str,
) -> None:
    own = cpus[number * CPUS_EACH : (number + 1) * CPUS_EACH]
    hub = cpus[num_lanes * CPUS_EACH + number]
    while True:
        try:
            name = left.get_nowait()
        except queue.Empty:
            return
        command = [sys.executable, str(SELF), *options, "--only", name]
        command += ["--results", os.path.join(folder, name.replace("/", "-") + ".json")]
        command += ["--cpus", ",".join(map(str, own)), "--hub-cpus", str(hub)]
        found = subprocess.run(command, check=False, capture_output=True, text=True)
        lines = [line for line in found.stdout.splitlines() if line.startswith((name, "  bound"))]
        print(
            "\n".join(lines) if not found.returncode else f"{name} failed\n{found.stderr}",
            flush=True,
        )


def without(arguments: list[str], names: tuple[str, ...]) -> list[str]:
    """The arguments, less these options and their values."""
    kept: list[str] = []
    is_left_out = False
    for argument in arguments:
        if argument.startswith("--"):
            is_left_out = argument.split("=")[0] in names
        if not is_left_out:
            kept.append(argument)
    return kept
