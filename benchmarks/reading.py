"""What reading a whole dataset costs: `verify` and `report --exact`, in turns on the same files.

    python benchmarks/reading.py --corpus DIR              100M tokens in each of some formats
    python benchmarks/reading.py --tokens 400M --formats nanogpt

CPU seconds of all processes, because other work slows both down alike; the last column is what
counts: report's share of verify's.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys

from corpus import Recipe, repeated
from measure import Cost, compile_package, cost
from tokenmill.cli.screen import parsed_count

HERE = os.path.dirname(os.path.abspath(__file__))
TOKENMILL = [sys.executable, "-m", "tokenmill"]
TEXT_BYTES = 128 << 20  # that are different; a larger dataset repeats them
BYTES_PER_TOKEN = 4


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--corpus", help="folder with parquet files below english/")
    parser.add_argument("--language", default="english", help="or multilingual")
    parser.add_argument("--tokens", default="100M", help="about how many (default: 100M)")
    parser.add_argument("--formats", default="nanogpt,npy,megatron,mds,parquet")
    parser.add_argument("--tokenizer", default="gpt2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--work", default=os.path.join(HERE, "out"), help="scratch folder")
    arguments = parser.parse_args()
    compile_package()
    print(f"{'format':10} {'verify':>15} {'report --exact':>15}   CPU seconds (seconds)   ratio")
    for name in arguments.formats.split(","):
        data = dataset(arguments, name)
        rounds = [(run("verify", data), run("report", data)) for _ in range(arguments.rounds)]
        verified, reported = zip(*rounds, strict=True)
        ratios = [r.cpu_seconds / v.cpu_seconds for v, r in rounds]
        print(
            f"{name:10} {shown(verified)} {shown(reported)} {'':24}"
            f"{statistics.median(ratios):5.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
            flush=True,
        )
    return 0


def dataset(arguments: argparse.Namespace, format_name: str) -> str:
    """Prepared once; later runs find it."""
    num_tokens = parsed_count(arguments.tokens)
    text = Recipe(TEXT_BYTES, arguments.corpus, arguments.language).corpus(arguments.work)
    times = max(1, round(num_tokens * BYTES_PER_TOKEN / TEXT_BYTES))
    corpus = repeated(text, f"{text}-{times}-times", times)
    out = f"{corpus}-{arguments.tokenizer}-{format_name}"
    options = ["--tokenizer", arguments.tokenizer, "--format", format_name, "-q"]
    if not os.path.exists(out):
        cost([*TOKENMILL, "prepare", corpus, "-o", out, *options])
    return out


def run(command: str, data: str) -> Cost:
    how = ["--exact", "-o", f"{data}.html"] if command == "report" else []
    return cost([*TOKENMILL, command, data, *how, "-q"])


def shown(costs: tuple[Cost, ...]) -> str:
    cpu, wall = (
        statistics.median(getattr(one, name) for one in costs)
        for name in ("cpu_seconds", "seconds")
    )
    return f"{cpu:6.2f} ({wall:5.2f})".rjust(15)


if __name__ == "__main__":
    sys.exit(main())
