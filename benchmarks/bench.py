"""How fast is tokenmill beside what people use, and how close to what the hardware allows?

    make bench                                             200 MB of text made up on the spot
    make bench BENCH="--corpus DIR --bytes 1G"             real text, recombined; about 12 minutes
    make bench BENCH=--sweeps                              what it costs to vary one thing at a time

All contestants get the same cores and take turns, round after round; what counts is the median of
the ratios within a round. Where a contestant is slow it gets less text, and rates are compared net
of start-up (the time each takes for almost no text); otherwise whole times are. Each one's tokens
are compared: a faster answer that differs does not count. Results go to benchmarks/results.json,
and from there into docs/performance.md and the README (table.py, chart.py).
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys

import chart
import results
import sweeps
import table
from contestants import BARE, EVERYBODY, TOKENMILL, Contestant
from corpus import Recipe
from field import Field, Race
from results import Row
from tokenmill.cli.screen import parsed_count

HERE = os.path.dirname(os.path.abspath(__file__))
FIRST_TOKEN_RUNS = 5


def main() -> None:
    arguments = parsed_arguments()
    field = Field(
        os.path.join(HERE, "out"),
        arguments.corpus,
        arguments.num_proc,
        arguments.minutes,
        arguments.keep,
    )
    if arguments.sweeps:
        only = arguments.only.split(",") if arguments.only else []
        rows = sweeps.swept(field, arguments.rounds, parsed_count(arguments.bytes), only)
        found = {"sweeps": rows}
    else:
        found = measured(field, arguments)
    results.save(found, arguments.results, field, arguments)
    print("\n".join(table.everything(results.load(arguments.results))))
    if arguments.results == results.RESULTS:
        table.main()
        chart.main()


def parsed_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--corpus", help="folder with parquet files below english/, multilingual/")
    parser.add_argument("--bytes", default="200M", help="how much text (default: 200M)")
    parser.add_argument("--rounds", type=int, default=5, help="(default: 5)")
    parser.add_argument(
        "--peer-rounds", type=int, default=2, help="that slow peers take part in (default: 2)"
    )
    parser.add_argument(
        "--peer-seconds", type=float, default=12.0, help="of text for slow peers (default: 12)"
    )
    parser.add_argument(
        "--minutes", type=float, default=0.0, help="begin no further rounds after so long"
    )
    parser.add_argument("--num-proc", type=int, default=2, help="workers and cores (default: 2)")
    parser.add_argument("--only", help="these contestants, or sweeps; comma-separated")
    parser.add_argument("--sweeps", action="store_true", help="the sweeps instead of the table")
    parser.add_argument("--keep", action="store_true", help="keep the corpora (gigabytes)")
    parser.add_argument("--results", default=results.RESULTS)
    return parser.parse_args()


def measured(field: Field, arguments: argparse.Namespace) -> dict[str, object]:
    num_bytes = parsed_count(arguments.bytes)
    whole = Recipe(num_bytes, arguments.corpus)
    wanted = arguments.only.split(",") if arguments.only else [c.name for c in EVERYBODY]
    field.say(f"English, gpt2, {arguments.num_proc} cores")
    races, absent = [], []
    for contestant in EVERYBODY:
        if contestant.name not in wanted and contestant is not TOKENMILL:
            continue
        if reason := contestant.missing():
            absent.append(Row.absent(contestant, reason))
            field.say(f"  {contestant.name}: left out: {reason}")
        else:
            races.append(race_of(contestant, field, whole, arguments))
    for number in range(arguments.rounds):
        if number and field.is_late(0.6):
            break
        field.say(f"round {number + 1} of {arguments.rounds}")
        for race in races:
            if number < (arguments.peer_rounds if race.is_share else arguments.rounds):
                race.run()
    rows = [Row.of(race, races[0]) for race in races] + absent
    cases = [
        against_bare(field, num_bytes, arguments, "multilingual", "gpt2"),
        against_bare(field, num_bytes, arguments, "english", "cl100k_base"),
    ]
    first = [field.first_token_seconds(whole) for _ in range(FIRST_TOKEN_RUNS)]
    return {
        "table": [row.to_plain() for row in rows],
        "against_bare": cases,
        "first_token_seconds": [round(seconds, 2) for seconds in first],
        "demo_seconds": demo_seconds(field, arguments),
    }


def race_of(
    contestant: Contestant, field: Field, whole: Recipe, arguments: argparse.Namespace
) -> Race:
    """A contestant and the text that it gets."""
    share = int(contestant.slow_mb_per_s * arguments.peer_seconds) * 10**6
    if not share or share >= whole.num_bytes:
        share = whole.num_bytes
    return Race(contestant, field, whole, share)


def against_bare(
    field: Field, num_bytes: int, arguments: argparse.Namespace, language: str, encoding: str
) -> dict[str, object]:
    field.say(f"{language}, {encoding}: tokenmill and the bare loop")
    recipe = Recipe(num_bytes, arguments.corpus, language)
    races = [Race(c, field, recipe, num_bytes, encoding) for c in (TOKENMILL, BARE)]
    for number in range(arguments.rounds):
        if number and field.is_late(0.9):
            break
        for race in races:
            race.run()
    mill, bare = (Row.of(race, races[0]) for race in races)
    return {"language": language, "encoding": encoding, "target": 0.88} | {
        "tokenmill": mill.to_plain(),
        "bare": bare.to_plain(),
    }


def demo_seconds(field: Field, arguments: argparse.Namespace) -> float:
    """100 MB, start-up and all: the median of three."""
    race = Race(TOKENMILL, field, Recipe(10**8, arguments.corpus), 10**8)
    for _ in range(3):
        race.run()
    return round(statistics.median(race.seconds), 2) if race.seconds else 0.0


if __name__ == "__main__":
    sys.exit(main())
