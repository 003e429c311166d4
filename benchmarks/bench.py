"""tokenmill beside the bare loop, in one run: throughput, memory, time to the first token.

    make bench                                          a 200 MB corpus made on the spot
    make bench BENCH="--corpus DIR --bytes 1G"          real text, recombined

Contestants take turns, `--rounds` times; what counts is the median of the ratios within a round.
The token files are compared: a faster answer that differs does not count. Results go to
benchmarks/results.json with machine and versions.
"""

from __future__ import annotations

import argparse
import datetime
import glob
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import threading
import time
from importlib import metadata

from corpus import make_corpus
from tokenmill.cli.screen import parsed_count

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "out")
FIRST_TOKEN = """
import sys, time
from tokenmill.run import SilentWatch, prepare
class First(SilentWatch):
    def step(self, slice_, step):
        if step.done_tokens:
            print(time.time() - float(sys.argv[1])); sys.stdout.flush(); raise KeyboardInterrupt
try:
    prepare(sys.argv[2], sys.argv[3], num_proc=int(sys.argv[4]))
except KeyboardInterrupt:
    pass
""".replace("num_proc=int(sys.argv[4])", "num_proc=int(sys.argv[4]), watch=First()")


def timed(command: list[str]) -> tuple[float, dict[str, float]]:
    """Seconds, and the peak memory in MB of the command itself and of its largest child."""
    peaks = {"parent_mb": 0.0, "worker_mb": 0.0}
    os.sync()  # what the contestant before left unwritten is not this one's to wait for
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    done = threading.Event()

    def sample() -> None:
        while not done.wait(0.05):
            for pid in [process.pid, *children(process.pid)]:
                key = "parent_mb" if pid == process.pid else "worker_mb"
                peaks[key] = max(peaks[key], peak_mb(pid))

    sampler = threading.Thread(target=sample)
    sampler.start()
    code = process.wait()
    seconds = time.perf_counter() - began
    done.set()
    sampler.join()
    if code:
        sys.exit(f"failed with {code}: {' '.join(command)}")
    return seconds, peaks


def children(pid: int) -> list[int]:
    found = []
    for path in glob.glob(f"/proc/{pid}/task/*/children"):
        try:
            with open(path) as file:
                found += [int(child) for child in file.read().split()]
        except OSError:
            continue
    return found


def peak_mb(pid: int) -> float:
    try:
        with open(f"/proc/{pid}/status") as file:
            return next((int(x.split()[1]) / 1e3 for x in file if x.startswith("VmHWM")), 0.0)
    except OSError:
        return 0.0


def same_bytes(one: str, parts: list[str]) -> bool:
    return (
        subprocess.run(["bash", "-c", 'cmp "$0" <(cat "$@")', one, *parts], check=False).returncode
        == 0
    )


def compared(corpus: str, encoding: str, num_proc: int, rounds: int) -> dict[str, object]:
    bare, mill = os.path.join(OUT, "bare"), os.path.join(OUT, "mill")
    times: dict[str, list[float]] = {"bare": [], "tokenmill": []}
    peaks = {"parent_mb": 0.0, "worker_mb": 0.0}
    for _ in range(rounds):
        command = [
            sys.executable,
            os.path.join(HERE, "bare.py"),
            corpus,
            bare,
            str(num_proc),
            encoding,
        ]
        times["bare"].append(timed(command)[0])
        shutil.rmtree(mill, ignore_errors=True)
        command = [
            *(sys.executable, "-m", "tokenmill", "prepare", corpus, "-o", mill, "--no-val", "-q"),
            *("--num-proc", str(num_proc), "--tokenizer", encoding),
        ]
        seconds, found = timed(command)
        times["tokenmill"].append(seconds)
        peaks = {key: max(peaks[key], found[key]) for key in peaks}
    if encoding == "gpt2" and rounds > 1:  # slow: once is enough to see by how much
        pool = os.path.join(OUT, "pool")
        command = [sys.executable, os.path.join(HERE, "pool.py"), corpus, pool, str(num_proc)]
        times["pool"] = [timed(command)[0]]
    parts = [f"{bare}.{rank}" for rank in range(num_proc)]
    ratios = [b / t for b, t in zip(times["bare"], times["tokenmill"], strict=True)]
    with open(os.path.join(mill, "tokenmill.json")) as file:
        counts = json.load(file)
    text_mb = counts["counts"]["text_bytes"] / 1e6
    num_tokens = sum(split["num_tokens"] for split in counts["splits"].values())
    best = min(times["tokenmill"])
    return {
        "encoding": encoding,
        "num_proc": num_proc,
        "text_mb": round(text_mb),
        "same_tokens": same_bytes(os.path.join(mill, "train.bin"), parts),
        "seconds": {name: [round(s, 2) for s in found] for name, found in times.items()},
        "ratio_to_bare": round(statistics.median(ratios), 3),
        "ratio_spread": [round(min(ratios), 3), round(max(ratios), 3)],
        "text_mb_per_s": round(text_mb / best),
        "mtokens_per_s": round(num_tokens / best / 1e6, 1),
        **{key: round(value) for key, value in peaks.items()},
    }


def first_token_seconds(corpus: str, num_proc: int) -> float:
    out = os.path.join(OUT, "first")
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, "-c", FIRST_TOKEN, str(time.time()), corpus, out, str(num_proc)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def machine() -> dict[str, object]:
    with open("/proc/cpuinfo") as file:
        cpu = next((x.split(":")[1].strip() for x in file if x.startswith("model name")), "?")
    return {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "date": datetime.date.today().isoformat(),
        **{
            name: metadata.version(name)
            for name in ("tokenmill", "gigatoken", "tiktoken", "pyarrow")
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--corpus", help="folder of parquet files to take paragraphs from")
    parser.add_argument("--bytes", default="200M", help="how much text to make")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--num-proc", type=int, default=2)
    parser.add_argument("--encodings", default="gpt2", help="comma-separated")
    parser.add_argument("--results", default=os.path.join(HERE, "results.json"))
    arguments = parser.parse_args()
    os.makedirs(OUT, exist_ok=True)
    label = os.path.basename(os.path.normpath(arguments.corpus)) if arguments.corpus else "stdlib"
    folder = os.path.join(OUT, f"corpus-{label}-{arguments.bytes}")
    corpus = make_corpus(arguments.corpus, folder, parsed_count(arguments.bytes))
    results = {
        "machine": machine(),
        "corpus": label,
        "runs": [
            compared(corpus, encoding, arguments.num_proc, arguments.rounds)
            for encoding in arguments.encodings.split(",")
        ],
        "first_token_seconds": round(
            statistics.median(first_token_seconds(corpus, arguments.num_proc) for _ in range(3)), 2
        ),
    }
    with open(arguments.results, "w") as file:
        json.dump(results, file, indent=1)
    print(json.dumps(results, indent=1))
    for leftover in glob.glob(os.path.join(OUT, "bare.*")) + glob.glob(os.path.join(OUT, "pool_*")):
        os.unlink(leftover)


if __name__ == "__main__":
    main()
