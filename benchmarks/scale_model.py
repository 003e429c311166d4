"""What measured constants say for corpora that nobody has here: the tables of docs/scale.md.

    python benchmarks/scale_model.py --measure [--corpus DIR] [--bytes 200M]     about a minute
    python benchmarks/scale_model.py                                             renews the tables

Constants are measured on one core, in CPU seconds, which a busy machine does not change much;
`python benchmarks/scale.py --write` adds what the driver takes. All are kept in scale.json, and the
arithmetic is `estimate`: a function of that file, which a test compares with the page.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
RESULTS = os.path.join(HERE, "scale.json")
DOCS = os.path.join(HERE, "..", "docs", "scale.md")

RUNS = 3
SLICE_BYTES = 32 << 20  # Config.slice_bytes
TOKEN_BYTES = 2  # uint16: gpt2
TEXT_BYTES_PER_TOKEN = 4.4  # English, gpt2
SHARD_TOKENS = 100_000_000
# Requests to an object store, from the protocol (docs/ARCHITECTURE.md).
SLICE_READS = {"size and tag of the input": 1, "its footer": 1, "row groups (4 MB of text)": 8}
SLICE_WRITES = {"the part": 1, "its record, if there is none": 1}
ASSEMBLY_READS = {"the part": 1, "again where a shard ends in it: one in 13": 1 / 13}
SHARD_WRITES = {"pieces of 50 MB": 4, "begin and end": 2, "the shard's record": 1}
# What an S3 prefix grants, by its documentation: https://docs.aws.amazon.com/AmazonS3
GETS_PER_SECOND, PUTS_PER_SECOND = 5_500, 3_500


@dataclass(frozen=True)
class Cluster:
    what: str
    num_nodes: int
    num_cores: int  # of a node
    bytes_per_second: float  # of a node, to and from its storage

    @property
    def cores(self) -> int:
        return self.num_nodes * self.num_cores


SIZES = {
    "10B": (10e9, Cluster("a laptop, NVMe", 1, 8, 2e9)),
    "1T": (1e12, Cluster("4 nodes, 25 Gbit/s each", 4, 64, 3e9)),
    "15T": (15e12, Cluster("32 nodes, 25 Gbit/s each", 32, 64, 3e9)),
}


@dataclass(frozen=True)
class Estimate:
    """What a corpus of so many tokens takes on a cluster: in seconds, unless the name says so."""

    text_bytes: float
    num_slices: int
    num_shards: int
    plan: float
    encode: float  # all cores
    storage: float  # all that crosses to and from storage, by all nodes
    assemble_here: float  # by the cores of one node: `finish`
    assemble_there: float  # by all cores, while others encode
    resume: float
    driver_bytes: float
    num_gets: int
    num_puts: int
    requests: float  # at what one prefix grants


def estimate(num_tokens: float, cluster: Cluster, constants: dict[str, Any]) -> Estimate:
    stages, driver = constants["stages"], constants["driver"]
    text_bytes = num_tokens * TEXT_BYTES_PER_TOKEN
    token_bytes = num_tokens * TOKEN_BYTES
    num_slices = round(text_bytes / SLICE_BYTES)
    num_shards = round(num_tokens / SHARD_TOKENS)
    a_slice = {
        name: s["cpu_seconds"] / driver["num_slices"] for name, s in driver["stages"].items()
    }
    footers = text_bytes / 1e9 * stages["plan_seconds_per_gb"]
    encode = text_bytes / 1e9 * stages["encode_seconds_per_gb"] / cluster.cores
    assemble = token_bytes / 1e9 * stages["assemble_seconds_per_gb"]
    # In: the text as it is stored. Then parts out and in again, and shards out.
    moved = text_bytes * stages["stored_bytes_per_text_byte"] + 3 * token_bytes
    num_gets = round(num_slices * (sum(SLICE_READS.values()) + sum(ASSEMBLY_READS.values())))
    num_puts = round(
        num_slices * sum(SLICE_WRITES.values()) + num_shards * sum(SHARD_WRITES.values())
    )
    at_rest = driver["stages"]["task"]["peak_bytes"] / 4  # libraries; the rest grows with slices
    peak = max(driver["stages"][name]["peak_bytes"] for name in ("plan", "schedule", "resume"))
    return Estimate(
        text_bytes,
        num_slices,
        num_shards,
        plan=footers + num_slices * a_slice["plan"],
        encode=encode,
        storage=moved / (cluster.num_nodes * cluster.bytes_per_second),
        assemble_here=assemble / cluster.num_cores,
        assemble_there=assemble / cluster.cores,
        resume=num_slices * a_slice["resume"],
        driver_bytes=at_rest + (peak - at_rest) * num_slices / driver["num_slices"],
        num_gets=num_gets,
        num_puts=num_puts,
        requests=num_gets / GETS_PER_SECOND + num_puts / PUTS_PER_SECOND,
    )


def measured(corpus: str | None, num_bytes: int) -> dict[str, Any]:
    """Each stage that touches data: the median of RUNS, each in a process of its own, because an
    engine that has seen a text encodes it twice as fast."""
    from corpus import Recipe

    with tempfile.TemporaryDirectory(prefix="tokenmill-scale-") as folder:
        made = Recipe(num_bytes, corpus).corpus(folder)
        runs = []
        for number in range(RUNS):
            out = os.path.join(folder, f"out{number}")
            command = [sys.executable, __file__, "--once", made, out]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
            runs.append(json.loads(done.stdout.splitlines()[-1]))
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def measured_once(corpus: str, out: str) -> dict[str, float]:
    """CPU seconds per GB of text, or of tokens, on one core; and how the sizes compare."""
    from tokenmill.config import Config, Partition
    from tokenmill.corpus.planning import make_plan
    from tokenmill.corpus.source_files import inputs_of
    from tokenmill.dataset.verify import verify
    from tokenmill.run import SilentWatch
    from tokenmill.run.finish import finish
    from tokenmill.run.partition import encode_partition
    from tokenmill.runners.inline import InlineRunner

    config = Config(sources=(corpus,), out=out, val="none", num_proc=1)
    inputs = inputs_of(config.sources, None)
    small = dataclasses.replace(config, out=f"{out}-warm", limit_docs=100)
    one = Partition(1, 1)
    encode_partition(small, one, InlineRunner(), SilentWatch())  # loads the engine
    plan = cpu_seconds(lambda: [make_plan({}, inputs, config) for _ in range(100)]) / 100
    encode = cpu_seconds(lambda: encode_partition(config, one, InlineRunner(), SilentWatch()))
    assemble = cpu_seconds(lambda: finish(out))
    check = cpu_seconds(lambda: verify(out))
    manifest = finish(out)
    text_bytes, token_gb = manifest.counts.text_bytes, manifest.num_bytes / 1e9
    return {
        "text_bytes": text_bytes,
        "text_bytes_per_token": round(text_bytes / manifest.num_tokens, 2),
        "stored_bytes_per_text_byte": round(sum(s.num_bytes for s in inputs) / text_bytes, 2),
        "plan_seconds_per_gb": round(plan / text_bytes * 1e9, 4),
        "encode_seconds_per_gb": round(encode / text_bytes * 1e9, 2),
        "assemble_seconds_per_gb": round(assemble / token_gb, 2),
        "verify_seconds_per_gb": round(check / token_gb, 2),
    }


def cpu_seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


# The tables.


def constants_table(constants: dict[str, Any]) -> str:
    stages, driver = constants["stages"], constants["driver"]
    of_driver, num_slices = driver["stages"], driver["num_slices"]
    names = ("plan", "encode", "assemble", "verify")
    rate = {name: stages[f"{name}_seconds_per_gb"] for name in names}
    slice_tokens = SLICE_BYTES / TEXT_BYTES_PER_TOKEN
    rows = [
        ("plan: read footers, cut", f"{rate['plan']:.3f} s of CPU per GB of text"),
        (
            "encode: read, encode, write the part, sync",
            f"{rate['encode']:.1f} s per GB of text ({1000 / rate['encode']:.0f} MB/s a core)",
        ),
        (
            "assemble: read the part, check, write and hash the shard",
            f"{rate['assemble']:.1f} s per GB of tokens ({1 / rate['assemble']:.2f} GB/s)",
        ),
        (
            "verify: hash and scan",
            f"{rate['verify']:.1f} s per GB of tokens ({1 / rate['verify']:.2f} GB/s a core)",
        ),
        (
            "a slice",
            f"{SLICE_BYTES >> 20} MiB of text, {slice_tokens / 1e6:.1f}M tokens, "
            f"a part of {slice_tokens * TOKEN_BYTES / 1e6:.0f} MB",
        ),
        ("a record", f"{of_driver['records']['file_bytes']:.0f} bytes"),
        (
            "a slice in the plan, and in the manifest",
            f"{of_driver['plan']['file_bytes'] / num_slices:.0f} and "
            f"{of_driver['resume']['file_bytes'] / num_slices:.0f} bytes",
        ),
        (
            "requests per slice",
            f"{sum(SLICE_READS.values()) + sum(ASSEMBLY_READS.values()):.1f} GETs "
            f"({_listed(SLICE_READS | ASSEMBLY_READS)}), {sum(SLICE_WRITES.values()):.0f} PUTs "
            f"({_listed(SLICE_WRITES)})",
        ),
        ("requests per shard", f"{sum(SHARD_WRITES.values())} PUTs ({_listed(SHARD_WRITES)})"),
    ]
    return _table(("what", "measured or counted"), rows)


def driver_table(constants: dict[str, Any]) -> str:
    names = {
        "plan": "make the plan, write it",
        "schedule": "a whole run: load the plan, hand out slices, take records, write the manifest",
        "resume": "resume: load the plan, read every record, check parts, write the manifest",
        "task": "a task of 1,000, repeated: load the plan, its records, what others lack",
    }
    stages = constants["driver"]["stages"]
    rows = [
        (
            text,
            f"{stages[name]['cpu_seconds']:.0f} s",
            f"{stages[name]['seconds']:.0f} s",
            f"{stages[name]['peak_bytes'] / 1e6:.0f} MB",
        )
        for name, text in names.items()
    ]
    return _table(("the driver's work", "CPU", "on the clock", "memory"), rows)


def sizes_table(constants: dict[str, Any]) -> str:
    rows: list[tuple[str, ...]] = []
    found = {size: estimate(*given, constants) for size, given in SIZES.items()}
    clusters = [cluster for _, cluster in SIZES.values()]
    all_of = list(found.values())
    rows += [
        ("on", *(f"{c.what}: {c.cores:,} cores" for c in clusters)),
        ("text", *(_bytes(e.text_bytes) for e in all_of)),
        ("slices, shards of 100M", *(f"{e.num_slices:,}, {e.num_shards:,}" for e in all_of)),
        ("plan, on one core", *(_seconds(e.plan) for e in all_of)),
        ("encode, all cores", *(_seconds(e.encode) for e in all_of)),
        ("storage traffic, all nodes", *(_seconds(e.storage) for e in all_of)),
        ("assembly by `finish`, on one node", *(_seconds(e.assemble_here) for e in all_of)),
        ("assembly on all cores", *(_seconds(e.assemble_there) for e in all_of)),
        ("resume: read all records", *(_seconds(e.resume) for e in all_of)),
        ("driver's memory", *(_bytes(e.driver_bytes) for e in all_of)),
        ("GETs, PUTs on S3", *(f"{_count(e.num_gets)}, {_count(e.num_puts)}" for e in all_of)),
        ("these at one prefix's rate", *(_seconds(e.requests) for e in all_of)),
        ("**first bottleneck, files**", *(_first(e, on_objects=False) for e in all_of)),
        ("**first bottleneck, objects**", *(_first(e, on_objects=True) for e in all_of)),
    ]
    return _table(("", *SIZES), rows)


def _first(found: Estimate, on_objects: bool) -> str:
    """What takes longest: with `finish` on a file system, with Ray on an object store."""
    stages = {"planning": found.plan, "encoding": found.encode, "storage": found.storage}
    if on_objects:
        stages["requests to one prefix"] = found.requests
        stages["assembly"] = found.assemble_there
    else:
        stages["assembly on one node"] = found.assemble_here
    name = max(stages, key=lambda name: stages[name])
    return f"{name}, {_seconds(stages[name])}"


def _listed(counts: dict[str, float]) -> str:
    return "; ".join(what if number < 2 else f"{number} {what}" for what, number in counts.items())


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, ("---", *("--:" for _ in head[1:])), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _seconds(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s" if seconds >= 1 else "under 1 s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _bytes(number: float) -> str:
    return (
        f"{number / 1e12:.1f} TB"
        if number >= 1e12
        else (f"{number / 1e9:.1f} GB" if number >= 1e9 else f"{number / 1e6:.0f} MB")
    )


def _count(number: float) -> str:
    return f"{number / 1e6:.1f}M" if number >= 1e6 else f"{number / 1e3:.0f}K"


def tables(constants: dict[str, Any]) -> dict[str, str]:
    """The page's tables by the names of their markers."""
    return {
        "constants": constants_table(constants),
        "driver": driver_table(constants),
        "sizes": sizes_table(constants),
    }


def renewed(page: str, constants: dict[str, Any]) -> str:
    """The page with its tables as the constants have them."""
    for name, table in tables(constants).items():
        begin, end = f"<!-- {name}:begin (make scale) -->", f"<!-- {name}:end -->"
        before, _, rest = page.partition(begin)
        _, found, after = rest.partition(end)
        assert found, f"the page has no place for {name}"
        page = f"{before}{begin}\n{table}\n{end}{after}"
    return page


def kept() -> dict[str, Any]:
    if not os.path.exists(RESULTS):
        return {}
    with open(RESULTS) as file:
        found: dict[str, Any] = json.load(file)
        return found


def keep(**found: Any) -> None:
    """Put results into the file, and into the page once all are there."""
    constants = {**kept(), **found}
    with open(RESULTS, "w") as file:
        file.write(json.dumps(constants, indent=1, sort_keys=True) + "\n")
    if {"stages", "driver"} <= constants.keys():
        with open(DOCS) as file:
            page = file.read()
        with open(DOCS, "w") as file:
            file.write(renewed(page, constants))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--measure", action="store_true", help="measure the stages anew")
    parser.add_argument("--corpus", help="folder of parquet files to take paragraphs from")
    parser.add_argument(
        "--bytes", type=int, default=200_000_000, help="how much text to measure on"
    )
    parser.add_argument("--once", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.once:
        print(json.dumps(measured_once(*arguments.once)))
        return 0
    keep(**({"stages": measured(arguments.corpus, arguments.bytes)} if arguments.measure else {}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
