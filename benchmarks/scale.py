"""A million slices without data: what the driver of a run has to bear, measured and bounded.

    python benchmarks/scale.py [--slices 1000000] [--write]

Everything here is the product's own code, plan, records, ledger, progress, manifest, but for what
touches text and tokens: a stub stands in for the readers (it says what spans a file has), for the
workers (it hands out records) and for the copying of parts. Record files are real, one a slice.
Each stage runs in a process of its own, so that its peak memory is its own. Fails (exit 1) if plan
or resume take over 60 s or any stage over 1 GB. `--write` keeps the result in benchmarks/scale.json
and renews the tables in docs/scale.md; what touches data is measured by scale_model.py.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator

import xxhash
from tokenmill.shards import Output, Tail

from tokenmill import __version__, storage
from tokenmill.assemble import Assembler
from tokenmill.cli.progress import Progress, SignalStop
from tokenmill.config import Config
from tokenmill.corpus import Input, Slice, Span
from tokenmill.encodings import get_encoding
from tokenmill.fetch import RemoteInputs
from tokenmill.formats import Shard
from tokenmill.job import Job
from tokenmill.manifest import make_manifest
from tokenmill.partition import Partition
from tokenmill.plan import Cut, Plan, differences, make_plan
from tokenmill.record import Counts, PartRecord, Run, part_path, record_path
from tokenmill.run import _encode, places_of
from tokenmill.runners import Watch
from tokenmill.seal import sealed
from tokenmill.settings import identity_of, job_of, layout_of, num_buckets, resolved
from tokenmill.tasks import _encode as encode_share
from tokenmill.tasks import _num_recorded

MAX_SECONDS = 60.0
MAX_BYTES = 1e9
SPANS_PER_FILE = 60  # 2 GB of text a file, as FineWeb's are
IN_FLIGHT = 4_000  # slices of a large cluster that are encoded at a time and end in any order
PART = b"part"  # what stands for a part
UNASSEMBLED = 0.1  # the share of slices whose parts a resume still needs
SEED = 1

ENCODING = get_encoding("gpt2").identity
CONFIG = resolved(Config(sources=("corpus/",), out="out", val="none"), ENCODING)
IDENTITY = identity_of(CONFIG, ENCODING)


def inputs_of(num_slices: int) -> list[Input]:
    return [
        Input(
            f"/data/corpus/CC-MAIN-2024-10/{number:06d}_00000.parquet",
            "parquet",
            None,
            2_147_000_000 + number,
            1_700_000_000_000_000_000 + number,
            hashlib.sha256(b"%d" % number).hexdigest(),
        )
        for number in range(-(-num_slices // SPANS_PER_FILE))
    ]


def cutter(inputs: Iterable[Input], options: object, max_rows: int | None) -> Iterator[Cut]:
    """Says what spans a file has, as a reader would from its footer."""
    for source in inputs:
        spans = (
            Span(source, 8 * i, 8 * i + 8, (32 << 20) - i, 8_000 * i, 8_000)
            for i in range(SPANS_PER_FILE)
        )
        yield Cut(tuple(spans))


def record_of(index: int, plan_id: str) -> PartRecord:
    documents = 7_000 + index % 1_000
    return PartRecord(
        index,
        plan_id,
        len(PART),
        xxhash.xxh3_128(PART).hexdigest(),
        (Run((7_600_000 + index % 9_999, 0), (documents, 0)),),
        Counts(documents + 3, documents, 2, 1, 0, 0, (32 << 20) - index % 9_999),
    )


class StubRunner:
    """Draws slices as a cluster's workers would, and yields their records in any order."""

    def __init__(self, plan_id: str) -> None:
        self._plan_id = plan_id
        self._random = random.Random(SEED)

    def cut(self, *_: object) -> Iterator[Cut]:
        raise AssertionError("the plan was made without a runner")

    def run(self, job: Job, slices: Iterable[Slice | None], watch: Watch) -> Iterator[PartRecord]:
        under_way: list[int] = []
        for slice_ in slices:
            assert slice_ is not None
            json.dumps(slice_.to_plain())  # what a worker is sent
            under_way.append(slice_.index)
            if len(under_way) >= IN_FLIGHT:
                yield self._ended(under_way)
        while under_way:
            yield self._ended(under_way)

    def _ended(self, under_way: list[int]) -> PartRecord:
        at = self._random.randrange(len(under_way))
        under_way[at], under_way[-1] = under_way[-1], under_way[at]
        # Through JSON, as it comes from a worker.
        plain = json.dumps(record_of(under_way.pop(), self._plan_id).to_plain())
        return PartRecord.from_plain(json.loads(plain))


class NoData(Assembler):
    """The assembler, but for the copying."""

    def _copy(self, record: PartRecord) -> None:
        pass


class Stages:
    """The stages, each in a process of its own; what one leaves in `work` the next one finds."""

    def __init__(self, work: str, num_slices: int) -> None:
        self.work = work
        self.num_slices = SPANS_PER_FILE * len(inputs_of(num_slices))
        self.plan_path = os.path.join(work, "plan.json")

    def plan(self) -> None:
        """Cut the inputs, freeze the plan, write it, compute its id."""
        plan = make_plan(IDENTITY, inputs_of(self.num_slices), CONFIG, cutter=cutter)
        assert plan.create(self.plan_path) and plan.plan_id

    def load(self) -> Plan:
        """What every attempt and every task begins with."""
        inputs = inputs_of(self.num_slices)
        plan = Plan.load(self.plan_path)
        assert not differences(plan, IDENTITY, inputs) and not places_of(plan, inputs)
        return plan

    def schedule(self) -> None:
        """A run from its first slice to its manifest, by workers who take no time."""
        plan = self.load()
        self.work = os.path.join(self.work, "new")
        os.makedirs(os.path.join(self.work, "records"))
        self._run(plan, 0)

    def records(self) -> None:
        """What the workers leave on disk: not the driver's time."""
        plan_id = Plan.load(self.plan_path).plan_id
        first_part = int(self.num_slices * (1 - UNASSEMBLED))
        for index in range(self.num_slices):
            data = sealed(json.dumps(record_of(index, plan_id).to_plain(), sort_keys=True).encode())
            with open(record_path(self.work, index), "wb") as file:
                file.write(data)
            if index >= first_part:
                with open(part_path(self.work, index), "wb") as file:
                    file.write(PART)

    def resume(self) -> None:
        """The same run, killed when all slices were encoded and nine tenths assembled."""
        plan = self.load()
        self._run(plan, int(self.num_slices * (1 - UNASSEMBLED)))

    def task(self) -> None:
        """One of a thousand tasks, repeated: its share of records, and what others lack."""
        plan = self.load()
        job = job_of(CONFIG, ENCODING, plan, self.work)
        remote = RemoteInputs(CONFIG, self.work, print)
        inputs, watch = list(plan.inputs), _progress()
        own = Partition(1000, 1000)
        assert encode_share(job, plan, own, StubRunner(""), remote, inputs, watch)
        assert _num_recorded(self.work) == self.num_slices

    def _run(self, plan: Plan, num_assembled: int) -> None:
        job = job_of(CONFIG, ENCODING, plan, self.work)
        layout = layout_of(CONFIG, ENCODING)
        assembler = NoData(self.work, layout, num_buckets(CONFIG, plan))
        assembler.next = num_assembled
        remote = RemoteInputs(CONFIG, self.work, print)
        runner = StubRunner(plan.plan_id)
        records = _encode(job, plan, runner, remote, {}, assembler, _progress())
        assert len(records) == self.num_slices == assembler.next
        num_tokens, num_documents = records.num_tokens, records.counts.num_written
        shard = Shard("train.bin", "train", num_tokens, num_documents, None, 2 * num_tokens, "0")
        output = Output((shard,), (), {"train": Tail(), "val": Tail()})
        manifest = make_manifest(plan.identity, plan.inputs, records, output, None)
        storage.write_file(os.path.join(self.work, "tokenmill.json"), manifest.to_json())


def _progress() -> Progress:
    workers = f"{IN_FLIGHT} workers"
    return Progress(SignalStop(), lambda num_slices: workers, False, open(os.devnull, "w"))


DRIVER = ("plan", "schedule", "resume", "task")  # `records` is what workers do


def simulated(num_slices: int, folder: str | None) -> dict[str, dict[str, float]]:
    """Seconds, CPU seconds and peak bytes of each stage; and the size of plan and records."""
    found: dict[str, dict[str, float]] = {}
    work = tempfile.mkdtemp(prefix="tokenmill-scale-", dir=folder)
    try:
        for name in ("parts", "records"):
            os.mkdir(os.path.join(work, name))
        for stage in ("plan", "records", "resume", "task", "schedule"):
            command = [sys.executable, __file__, "--stage", stage, "--work", work]
            command += ["--slices", str(num_slices)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            found[stage] = json.loads(done.stdout.splitlines()[-1])
            shown = found[stage]
            print(
                f"{stage:9} {shown['seconds']:6.1f} s  {shown['cpu_seconds']:6.1f} s of CPU  "
                f"{shown['peak_bytes'] / 1e6:5.0f} MB at most",
                flush=True,
            )
        found["plan"]["file_bytes"] = os.path.getsize(os.path.join(work, "plan.json"))
        found["records"]["file_bytes"] = os.path.getsize(record_path(work, num_slices // 2))
        found["resume"]["file_bytes"] = os.path.getsize(os.path.join(work, "tokenmill.json"))
    finally:
        shutil.rmtree(work)
    return found


def staged(stage: Callable[[], object]) -> None:
    began, cpu = time.monotonic(), time.process_time()
    stage()
    found = {
        "seconds": round(time.monotonic() - began, 2),
        "cpu_seconds": round(time.process_time() - cpu, 2),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    print(json.dumps(found))


def too_much(stages: dict[str, dict[str, float]]) -> list[str]:
    """What exceeds its bound. Where others keep the machine busy, CPU time is what counts."""
    is_busy = os.getloadavg()[1] > (os.cpu_count() or 1)
    which = "cpu_seconds" if is_busy else "seconds"
    if is_busy:
        print("this machine is busy with other things: CPU seconds count", file=sys.stderr)
    found = [
        f"{stage} takes {stages[stage][which]:.0f} s, over {MAX_SECONDS:.0f}"
        for stage in ("plan", "resume")
        if stages[stage][which] > MAX_SECONDS
    ]
    return found + [
        f"{stage} takes {stages[stage]['peak_bytes'] / 1e9:.2f} GB of memory, over 1"
        for stage in DRIVER
        if stages[stage]["peak_bytes"] > MAX_BYTES
    ]


def machine() -> dict[str, str]:
    with open("/proc/cpuinfo") as file:
        names = [line.split(":")[1].strip() for line in file if line.startswith("model name")]
    return {
        "cpu": names[0] if names else platform.machine(),
        "python": platform.python_version(),
        "tokenmill": __version__,
        "date": time.strftime("%Y-%m-%d"),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--slices", type=int, default=1_000_000)
    parser.add_argument("--folder", help="where to put the records (default: the system's)")
    parser.add_argument("--write", action="store_true", help="keep the result, renew docs/scale.md")
    parser.add_argument("--stage", help=argparse.SUPPRESS)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.stage:
        staged(getattr(Stages(arguments.work, arguments.slices), arguments.stage))
        return 0
    stages = simulated(arguments.slices, arguments.folder)
    wrong = too_much(stages)
    for line in wrong:
        print(f"error: {line}", file=sys.stderr)
    if arguments.write:
        import scale_model

        scale_model.keep(driver={"num_slices": arguments.slices, **machine(), "stages": stages})
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
