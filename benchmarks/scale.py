"""A million slices without data: what the driver of a run has to bear, measured and bounded.

    python benchmarks/scale.py [--slices 1000000] [--write]

Everything here is the product's own code, from the plan to the published manifest, but for what
touches text and tokens: a stub stands in for the readers (it says what spans a file has) and for
the workers (it hands out records of parts and of shard tasks). Record files are real, one a slice
(if no checkpoint has it) and one a shard task. What the stub takes is not the driver's time and is
taken off.
Each stage runs in a process of its own, so that its peak memory is its own. Fails (exit 1) if plan
or resume take over 60 s or any stage over 1 GB. `--write` keeps the result in benchmarks/scale.json
and renews the tables in docs/scale.md; what touches data is measured by scale_model.py.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import hashlib
import itertools
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
from collections.abc import Iterable, Iterator
from typing import Any

import xxhash

from tokenmill import __version__
from tokenmill.assemble.parts_in_use import UsedParts
from tokenmill.assemble.task import ShardRecord, ShardTask, make_folders, saved_record, task_path
from tokenmill.assemble.writing import MARK_TOKENS, shard_name
from tokenmill.cli.progress import Progress
from tokenmill.cli.signals import SignalStop
from tokenmill.config import Config, Partition
from tokenmill.corpus.hub_inputs import HubInputs
from tokenmill.corpus.input_spans import Cut
from tokenmill.corpus.inputs import FoundInputs
from tokenmill.corpus.plan import Plan
from tokenmill.corpus.planning import make_plan
from tokenmill.corpus.spans import Input, Slice, Span
from tokenmill.dataset.places import plan_path, work_of
from tokenmill.encode import ledger
from tokenmill.encode.job import Job
from tokenmill.encode.record import SPLITS, Counts, PartChunk, PartRecord, part_path, record_path
from tokenmill.encodings import get_encoding
from tokenmill.prepare import _made_dataset
from tokenmill.run.context import RunContext, assembly_of
from tokenmill.run.partition import _encode as encode_share
from tokenmill.run.partition import _num_missing
from tokenmill.run.request import PrepareRequest
from tokenmill.runners import Watch
from tokenmill.settings import identity_of, resolved
from tokenmill.storage.checked_json import checksummed
from tokenmill.storage.store import store_of

MAX_SECONDS = 60.0
MAX_BYTES = 1e9
SPANS_PER_FILE = 60  # 2 GB of text a file, as FineWeb's are
IN_FLIGHT = 4_000  # tasks of a large cluster that are under way at a time and end in any order
DOCUMENT_TOKENS = 1_000  # with the EOT id, which ends it
PART = b"part"  # what stands for a part
UNASSEMBLED = 0.1  # the share of slices whose parts a resume still needs
SEED = 1

ENCODING = get_encoding("gpt2").identity
DIGEST = hashlib.sha256(b"").hexdigest()


def config_of(out: str) -> Config:
    return resolved(Config(sources=("corpus/",), out=out), ENCODING)


IDENTITY = identity_of(config_of("out"), ENCODING)


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
    """Nine of ten slices have something for validation."""
    documents, held_out = 7_000 + index % 1_000, index % 10
    digest = xxhash.xxh3_128(PART).hexdigest()
    return PartRecord(
        index,
        plan_id,
        (len(PART), len(PART) if held_out else 0),
        (digest, digest if held_out else ""),
        (
            PartChunk(
                (DOCUMENT_TOKENS * documents, DOCUMENT_TOKENS * held_out), (documents, held_out)
            ),
        ),
        Counts(documents + held_out + 3, documents + held_out, 2, 1, 0, 0, (32 << 20) - index % 99),
    )


def shard_record_of(task: ShardTask) -> ShardRecord:
    """What a worker would say of the task, with as many marks as it would set."""
    first = -(-task.first_token // MARK_TOKENS) * MARK_TOKENS
    marks = range(first, task.first_token + task.num_tokens, MARK_TOKENS)
    stop = task.end.num_tokens
    start = stop - task.num_tokens
    return ShardRecord(
        task.plan_id,
        task.stream,
        task.shard,
        task.piece,
        task.end,
        num_tokens=task.num_tokens,
        num_eot=stop // DOCUMENT_TOKENS - start // DOCUMENT_TOKENS,
        num_bytes=2 * task.num_tokens,
        sha256=(DIGEST,),
        marks=tuple((mark // DOCUMENT_TOKENS, mark) for mark in marks),
    )


class Stub:
    """Draws tasks as a cluster's workers would, and yields their records in any order.

    Its own time and CPU time, in which it does what workers do, are in `seconds` and `cpu_seconds`.
    """

    def __init__(self, is_resumed: bool) -> None:
        self.seconds = self.cpu_seconds = 0.0
        self._is_resumed = is_resumed
        self._random = random.Random(SEED)

    def cut(self, *_: object, **__: object) -> Iterator[Cut]:
        raise AssertionError("the plan was made without a runner")

    def run(
        self, job: Job, work: Iterable[Slice | ShardTask | None], watch: Watch
    ) -> Iterator[PartRecord | ShardRecord]:
        under_way: list[Slice | ShardTask] = []
        draw = iter(work)
        while True:
            item = next(draw, self)
            if item is self and not under_way:
                return
            if isinstance(item, Slice | ShardTask):
                json.dumps(item.to_plain())  # what a worker is sent
                under_way.append(item)
            if not isinstance(item, Slice | ShardTask) or len(under_way) >= IN_FLIGHT:
                assert under_way, "nothing is due, nothing is under way, and nothing is done"
                at = self._random.randrange(len(under_way))
                under_way[at], under_way[-1] = under_way[-1], under_way[at]
                yield self._done(job, under_way.pop())

    def _done(self, job: Job, item: Slice | ShardTask) -> PartRecord | ShardRecord:
        """A record, through JSON, as it comes from a worker."""
        with self._off_the_clock():
            line = self._worked(job, item)
        plain = json.loads(line)
        if isinstance(item, Slice):
            return PartRecord.from_plain(plain)
        return ShardRecord.from_plain(plain)

    def _worked(self, job: Job, item: Slice | ShardTask) -> str:
        if isinstance(item, Slice):
            record = record_of(item.index, job.plan_id)
            write_part(job.work, record)
            write_checksummed(record_path(job.work, item.index), record.to_plain())
            return json.dumps(record.to_plain())
        found = None
        if self._is_resumed:
            found = saved_record(item.work, item.plan_id, (item.stream, item.shard, item.piece))
        grow_shard(item)
        return json.dumps(dataclasses.asdict(found or shard_record_of(item)))

    @contextlib.contextmanager
    def _off_the_clock(self) -> Iterator[None]:
        began, cpu = time.monotonic(), time.process_time()
        try:
            yield
        finally:
            self.seconds += time.monotonic() - began
            self.cpu_seconds += time.process_time() - cpu


def write_part(work: str, record: PartRecord) -> None:
    for split, num_bytes in enumerate(record.num_bytes):
        if num_bytes:
            with open(part_path(work, record.slice_index, split), "wb") as file:
                file.write(PART)


def grow_shard(task: ShardTask) -> None:
    """Make the shard's file as long as it is with this piece, without a byte in it."""
    path = os.path.join(task.work, "shards", shard_name(task))
    num_bytes = 2 * (task.first_token + task.num_tokens)
    if os.path.getsize(path) < num_bytes:
        os.truncate(path, num_bytes)


def write_checksummed(path: str, plain: dict[str, Any]) -> None:
    with open(path, "wb") as file:
        file.write(checksummed(json.dumps(plain, sort_keys=True).encode()))


class Stages:
    """The stages, each in a process of its own; what one leaves in `folder` the next one finds."""

    def __init__(self, folder: str, num_slices: int) -> None:
        self.out = os.path.join(folder, "out")
        self.new = os.path.join(folder, "new")  # where a run begins from its first slice
        self.inputs = inputs_of(num_slices)
        self.num_slices = SPANS_PER_FILE * len(self.inputs)
        self.stub = Stub(is_resumed=False)

    def plan(self) -> None:
        """Cut the inputs, freeze the plan, write it, compute its id."""
        plan = make_plan(IDENTITY, self.inputs, config_of(self.out), cutter=cutter)
        os.makedirs(os.path.dirname(plan_path(self.out)))
        assert plan.create(plan_path(self.out)) and plan.plan_id

    def records(self) -> None:
        """What the workers leave on disk, and a driver that was killed: not a driver's time."""
        plan = Plan.load(plan_path(self.out))
        work = made_work(self.out, plan)
        first_part = int(self.num_slices * (1 - UNASSEMBLED))
        assembly = assembly_of(config_of(self.out), ENCODING, plan, work)
        num_used = [0 for _ in SPLITS]
        last_saved = self.num_slices * 8 // 9 + 1  # killed just before the next checkpoint
        for index in range(self.num_slices):
            record = record_of(index, plan.plan_id)
            ledger.MIN_RECORDS = 1 if index == last_saved else self.num_slices
            if index > last_saved:
                write_checksummed(record_path(work, index), record.to_plain())
            assembly.add(record)
            while index < first_part and assembly.due:
                task = assembly.due.popleft()
                done = shard_record_of(task)
                write_checksummed(task_path(work, *done.place), dataclasses.asdict(done))
                num_used[task.stream] = task.stretches[-1].key[0]
        for index in range(min(num_used), self.num_slices):
            write_part(work, record_of(index, plan.plan_id))
        for split, index in itertools.product(range(len(SPLITS)), range(max(num_used))):
            if min(num_used) <= index < num_used[split]:
                store_of(work).remove(part_path(work, index, split))
        UsedParts([[[0, number]] for number in num_used]).save(work)

    def resume(self) -> None:
        """The same run, killed when all slices were encoded and nine tenths assembled."""
        self.stub = Stub(is_resumed=True)
        self._run(self.out)

    def task(self) -> None:
        """One of a thousand tasks, repeated: its share of records, and what others lack."""
        plan = Plan.load(plan_path(self.out))
        work = work_of(self.out, plan.plan_id)
        context = RunContext(config_of(self.out), ENCODING, self.stub, _progress(), work)
        remote = HubInputs(context.config, work, print)
        own, found = Partition(1000, 1000), FoundInputs(tuple(self.inputs))
        assert encode_share(context, plan, own, found, remote)
        assert _num_missing(work, plan) == 0

    def schedule(self) -> None:
        """A run from its first slice to its manifest, by workers who take no time."""
        os.makedirs(os.path.dirname(plan_path(self.new)))
        shutil.copyfile(plan_path(self.out + ".plan"), plan_path(self.new))
        made_work(self.new, Plan.load(plan_path(self.new)))
        self._run(self.new)

    def _run(self, out: str) -> None:
        config, found = config_of(out), FoundInputs(tuple(self.inputs))
        remote = HubInputs(config, out, print)
        request = PrepareRequest(IDENTITY, found.inputs)
        context = RunContext(config, ENCODING, self.stub, _progress(), out)
        manifest = _made_dataset(context, request, found, remote)
        assert len(manifest.slice_documents["train"]) == self.num_slices
        assert os.listdir(out) and not os.path.exists(plan_path(out))


def made_work(out: str, plan: Plan) -> str:
    """The work folder, with files that stand for shards."""
    work = work_of(out, plan.plan_id)
    make_folders(work, ("parts", "records"))
    for split in SPLITS:
        with open(os.path.join(work, "shards", f"{split}.bin"), "wb"):
            pass
    return work


def _progress() -> Progress:
    workers = f"{IN_FLIGHT} workers"
    return Progress(SignalStop(), lambda num_slices: workers, False, open(os.devnull, "w"))


DRIVER = ("plan", "schedule", "resume", "task")  # `records` is what workers do


def simulated(num_slices: int, folder: str | None) -> dict[str, dict[str, float]]:
    """Seconds, CPU seconds and peak bytes of each stage; and the size of plan and records."""
    found: dict[str, dict[str, float]] = {}
    top = tempfile.mkdtemp(prefix="tokenmill-scale-", dir=folder)
    out = os.path.join(top, "out")
    try:
        for stage in ("plan", "records", "task", "resume", "schedule"):
            command = [sys.executable, __file__, "--stage", stage, "--work", top]
            command += ["--slices", str(num_slices)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            found[stage] = json.loads(done.stdout.splitlines()[-1])
            shown = found[stage]
            print(
                f"{stage:9} {shown['seconds']:6.1f} s  {shown['cpu_seconds']:6.1f} s of CPU  "
                f"{shown['peak_bytes'] / 1e6:5.0f} MB at most",
                flush=True,
            )
            if stage == "plan":
                found[stage]["file_bytes"] = os.path.getsize(plan_path(out))
                os.makedirs(os.path.dirname(plan_path(out + ".plan")))
                shutil.copyfile(plan_path(out), plan_path(out + ".plan"))
            elif stage == "records":
                work = work_of(out, Plan.load(plan_path(out)).plan_id)
                found[stage]["file_bytes"] = os.path.getsize(record_path(work, num_slices - 1))
        found["resume"]["file_bytes"] = os.path.getsize(os.path.join(out, "tokenmill.json"))
    finally:
        shutil.rmtree(top)
    return found


def staged(stages: Stages, name: str) -> None:
    began, cpu = time.monotonic(), time.process_time()
    getattr(stages, name)()
    found = {
        "seconds": round(time.monotonic() - began - stages.stub.seconds, 2),
        "cpu_seconds": round(time.process_time() - cpu - stages.stub.cpu_seconds, 2),
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
        staged(Stages(arguments.work, arguments.slices), arguments.stage)
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
