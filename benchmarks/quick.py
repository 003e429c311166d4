"""Did it get slower? tokenmill against the bare loop, and against itself at the last release.

    make bench-quick                                   under 3 minutes; fails on a drop of over 10%
    make bench-quick QUICK="--corpus DIR"              real text; has a record of its own
    make bench-quick QUICK=--record                    at a release: this is the new record
    make bench-quick QUICK="--against REV"             CPU seconds beside those of another commit

Both are run in turn on the same 200 MB, so the ratio says more than either's seconds: what slows
down the machine slows down both. The record (benchmarks/baseline.json) is a ratio, too.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import sys

from against import compared
from contestants import BARE, TOKENMILL
from corpus import Recipe
from field import Field, Race
from tokenmill.cli.screen import parsed_count

HERE = os.path.dirname(os.path.abspath(__file__))
BASELINE = os.path.join(HERE, "baseline.json")
DROP = 0.10


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--corpus", help="folder with parquet files below english/")
    parser.add_argument("--bytes", default="200M", help="how much text (default: 200M)")
    parser.add_argument("--rounds", type=int, default=9, help="(default: 9)")
    parser.add_argument("--num-proc", type=int, default=2, help="workers and cores (default: 2)")
    parser.add_argument("--against", metavar="REV", help="compare with that commit's CPU seconds")
    parser.add_argument("--record", action="store_true", help="write benchmarks/baseline.json")
    arguments = parser.parse_args()

    folder = os.path.join(HERE, "out")
    field = Field(folder, arguments.corpus, arguments.num_proc, keep=True)
    if arguments.against:
        num_bytes = parsed_count(arguments.bytes)
        return compared(arguments.against, field, arguments.corpus, num_bytes, arguments.rounds)
    recipe = Recipe(parsed_count(arguments.bytes), arguments.corpus)
    mill, bare = (Race(c, field, recipe, recipe.num_bytes) for c in (TOKENMILL, BARE))
    for _ in range(arguments.rounds):
        mill.run()
        bare.run()
    field.clean()
    if failure := mill.failure or bare.failure:
        print(failure, file=sys.stderr)
        return 1
    if bare.difference:
        print(f"tokens differ from the bare loop's: {bare.difference}", file=sys.stderr)
        return 1
    ratios = [b / m for b, m in zip(bare.seconds, mill.seconds, strict=True)]
    ratio = statistics.median(ratios)
    print(
        f"{ratio:.3f} of the bare loop ({min(ratios):.3f} to {max(ratios):.3f}), "
        f"{mill.text_mb / statistics.median(mill.seconds):.0f} MB/s of text; "
        f"{cpu_seconds(bare) / cpu_seconds(mill):.3f} by CPU seconds"
    )
    name = f"{'corpus' if arguments.corpus else 'made up'}, {arguments.bytes}"
    return recorded(name, ratio) if arguments.record else judged(name, ratio)


def cpu_seconds(race: Race) -> float:
    return statistics.median(cost.cpu_seconds for cost in race.costs)


def baselines() -> dict[str, dict[str, object]]:
    try:
        with open(BASELINE) as file:
            found: dict[str, dict[str, object]] = json.load(file)
    except FileNotFoundError:
        return {}
    return found


def recorded(name: str, ratio: float) -> int:
    import tokenmill

    known = baselines()
    today = datetime.date.today().isoformat()
    known[name] = {"ratio": round(ratio, 3), "release": tokenmill.__version__, "date": today}
    with open(BASELINE, "w") as file:
        json.dump(known, file, indent=1)
        file.write("\n")
    return 0


def judged(name: str, ratio: float) -> int:
    known = baselines().get(name)
    if known is None:
        print(f"no record for {name!r} to compare with: make bench-quick QUICK=--record")
        return 0
    before = float(str(known["ratio"]))
    change = ratio / before - 1
    print(f"{known['release']} ({known['date']}) had {before:.3f}: {change:+.1%}")
    if change < -DROP:
        print(f"slower by more than {DROP:.0%}; `make stages` shows where", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
