"""What Ray costs on one machine: the same corpus with --runner processes and --runner ray, in turn.

    python benchmarks/ray_overhead.py [--corpus DIR] [--bytes 1G] [--rounds 5] [--num-proc 2]

Not counted: Ray's own start-up (a cluster of one node, and its Python processes with nothing of
ours in them), which is timed and stated beside the rest. Counted, for both: everything that
`tokenmill prepare` does, from planning to the manifest, loading engines included; for `processes`
the start of its workers too. The target is a ratio of at most 1.10.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from corpus import Recipe
from measure import compile_package
from tokenmill.cli.screen import parsed_count

HERE = os.path.dirname(os.path.abspath(__file__))
TARGET = 1.10


def measure(runner: str, num_proc: int, corpus: str, out: str) -> dict[str, float | str]:
    """One run in this process: seconds of start-up, seconds of work, and what was written."""
    from tokenmill.config import Config
    from tokenmill.runners.start import started_runner

    began = time.perf_counter()
    if runner == "ray":
        import ray

        from tokenmill.runners.ray.cluster import Cluster

        config = Config(sources=("-",), runner="ray", ray_address="local", num_proc=num_proc)
        cluster = Cluster(config)
        ray.get([cluster.anywhere(wait).remote() for _ in range(num_proc)])
    startup = time.perf_counter() - began
    began = time.perf_counter()
    config = Config(sources=(corpus,), out=out, runner=runner, num_proc=num_proc)
    with started_runner(config, owns_process=True) as started:  # as the command does it
        from tokenmill.prepare import run
        from tokenmill.run import SilentWatch

        manifest = run(config, started, SilentWatch())
    seconds = time.perf_counter() - began
    if runner == "ray":
        cluster.close()
    sha256 = " ".join(file.sha256 for file in manifest.files)
    return {"startup": startup, "seconds": seconds, "sha256": sha256}


def wait() -> None:
    """Long enough that each process has one of these."""
    time.sleep(1.0)


def measured(runner: str, num_proc: int, corpus: str) -> dict[str, float | str]:
    out = tempfile.mkdtemp(dir=os.path.join(HERE, "out"))
    os.sync()
    try:
        command = [sys.executable, __file__, "--measure", runner, corpus, os.path.join(out, "o")]
        done = subprocess.run(
            [*command, "--num-proc", str(num_proc)], check=True, stdout=subprocess.PIPE, text=True
        )
        found: dict[str, float | str] = json.loads(done.stdout)
        return found
    finally:
        shutil.rmtree(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", help="folder of parquet files to take paragraphs from")
    parser.add_argument("--bytes", default="1G", help="how much text to make")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--num-proc", type=int, default=2)
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        runner, corpus, out = arguments.measure
        print(json.dumps(measure(runner, arguments.num_proc, corpus, out)))
        return

    compile_package()
    recipe = Recipe(parsed_count(arguments.bytes), arguments.corpus)
    folder = recipe.corpus(os.path.join(HERE, "out", "corpora"))
    ratios, startups, sums = [], [], set()
    for number in range(arguments.rounds + 1):
        found = {r: measured(r, arguments.num_proc, folder) for r in ("processes", "ray")}
        sums |= {str(one["sha256"]) for one in found.values()}
        processes, ray = (float(found[runner]["seconds"]) for runner in ("processes", "ray"))
        startup = float(found["ray"]["startup"])
        print(f"processes {processes:.2f} s, ray {ray:.2f} s and {startup:.2f} s to start", end="")
        print("" if number else "   (the first round warms the disk's cache: not counted)")
        if number:
            ratios.append(ray / processes)
            startups.append(startup)
    assert len(sums) == 1, "the runners wrote different bytes"
    median = statistics.median(ratios)
    print(
        f"{arguments.bytes} of text, {arguments.num_proc} workers, {arguments.rounds} rounds: ray "
        f"takes {median:.2f} ({min(ratios):.2f} to {max(ratios):.2f}) of what processes take, the "
        f"same bytes; Ray's start-up, not counted: {statistics.median(startups):.1f} s. "
        f"Target {TARGET:.2f}: {'met' if median <= TARGET else 'MISSED'}"
    )


if __name__ == "__main__":
    main()
