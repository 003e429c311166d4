"""One run: plan, encode, assemble, prove; over however many attempts it takes.

    OUT/tokenmill.json           the manifest: this folder is a finished dataset
    OUT/.tokenmill/plan.json     a run is under way: the same command continues it
    OUT/.tokenmill/records/      what is encoded      OUT/.tokenmill/bench-*/      what is assembled

Every attempt looks at these, in this order, and does what is missing. Nothing else is remembered.
"""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from typing import Any, Protocol

from tokenmill import objectstore, storage
from tokenmill.assemble import Assembler
from tokenmill.config import Config
from tokenmill.corpus import Input, Slice
from tokenmill.encodings import EncodingId
from tokenmill.errors import ConflictError, InputError, IntegrityError, NetworkError
from tokenmill.fetch import RemoteInputs
from tokenmill.formats import Layout, get_format
from tokenmill.fulfil import OrderAssembler, WrittenShard, has_orders
from tokenmill.hub import SCHEME
from tokenmill.inputs import in_order, inputs_of
from tokenmill.job import Job, Step
from tokenmill.ledger import Ledger
from tokenmill.manifest import Manifest, make_manifest, quarantine_file
from tokenmill.objectstore import is_url
from tokenmill.orders import ShardOrder
from tokenmill.output import (
    WORK_NAME,
    conflict,
    finished,
    publish,
    remove_leftovers,
    remove_output,
    work_folder,
)
from tokenmill.part import PART_CHECKSUM
from tokenmill.plan import Cutter, Plan, differences, make_plan
from tokenmill.record import PartRecord, committed_records, part_path
from tokenmill.runners import Runner, Stopped, Watch
from tokenmill.runners.start import cutting_runner, encoding_of, started_runner
from tokenmill.settings import identity_of, job_of, layout_of, num_buckets, resolved
from tokenmill.workbench import last_cursor

AnyAssembler = Assembler | OrderAssembler


class RunWatch(Watch, Protocol):
    """A Watch that also sees the run begin and end."""

    def planned(self, plan: Plan, done: Collection[int]) -> None:
        """The slices are known; those of the indices `done` were encoded by earlier attempts."""

    def recorded(self, record: PartRecord) -> None:
        """A slice is done."""


class SilentWatch:
    """Looks on and says nothing: what `tokenmill.prepare` uses unless told otherwise."""

    def planned(self, plan: Plan, done: Collection[int]) -> None: ...

    def recorded(self, record: PartRecord) -> None: ...

    def step(self, slice_: Slice, step: Step) -> None: ...

    def notice(self, message: str) -> None: ...

    def should_stop(self) -> bool:
        return False


def prepare(
    sources: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    watch: RunWatch | None = None,
    **options: Any,
) -> Manifest:
    """Turn text into training-ready shards in the folder `out`, and return the proof.

    `options` are the fields of `tokenmill.Config`: the command line's long options with
    underscores. Calling it again with the same arguments continues an interrupted run, or returns
    the manifest of a finished one.
    """
    if isinstance(sources, (str, os.PathLike)):
        sources = [sources]
    config = Config(
        sources=tuple(os.fspath(source) for source in sources), out=os.fspath(out), **options
    )
    with started_runner(config) as runner:
        return run(config, runner, watch or SilentWatch())


def run(config: Config, runner: Runner, watch: RunWatch) -> Manifest:
    objectstore.listen(watch.notice)
    if not is_url(config.out):
        return _run(config, runner, watch, os.path.join(config.out, WORK_NAME))
    with tempfile.TemporaryDirectory(prefix="tokenmill-") as scratch:
        try:
            return _run(config, runner, watch, scratch)
        except ConflictError as error:
            # There is no lock: another run of the same plan may have been faster, and cleaned up.
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            encoding = encoding_of(config)
            identity = identity_of(resolved(config, encoding), encoding)
            manifest = finished(config.out, identity, None)
            if manifest is None:
                raise
            remove_leftovers(config.out)
            return manifest


def _run(config: Config, runner: Runner, watch: RunWatch, scratch: str) -> Manifest:
    """`scratch` is a local folder for what has to be fetched."""
    encoding = encoding_of(config)
    config = resolved(config, encoding)
    identity = identity_of(config, encoding)
    try:
        remote = RemoteInputs(config, scratch, watch.notice)
        inputs = all_inputs(config, remote)
    except NetworkError:
        # A finished dataset needs no network, and who does not answer has nothing to compare.
        if not config.overwrite and (manifest := finished(config.out, identity, None)):
            return manifest
        raise
    cutter = functools.partial(runner.cut, watch=watch)
    is_continued = False
    if config.overwrite:
        is_continued = _make_way(config, encoding, identity, inputs, cutter)
    elif (manifest := finished(config.out, identity, inputs)) is not None:
        remove_leftovers(config.out)
        return manifest
    try:
        return _carried_out(config, encoding, inputs, remote, runner, watch, scratch)
    except IntegrityError as error:
        if not is_continued or "--overwrite" not in (error.hint or ""):
            raise
        watch.notice(f"{error.message}\nas --overwrite says, all is begun anew")
    remove_output(config.out, get_format(config.format), config.name)
    return _run(config, runner, watch, scratch)


def _carried_out(
    config: Config,
    encoding: EncodingId,
    inputs: list[Input],
    remote: RemoteInputs,
    runner: Runner,
    watch: RunWatch,
    scratch: str,
) -> Manifest:
    identity = identity_of(config, encoding)
    cutter = functools.partial(runner.cut, watch=watch)
    with work_folder(config.out, get_format(config.format), config.name) as top:
        make = functools.partial(_new_plan_of, config, identity, inputs, remote, cutter, scratch)
        plan = _continued_or_new_plan(top, config, identity, inputs, make)
        work = work_of(config.out, plan)
        assembler = assembler_of(config, encoding, plan, work, runner, watch)
        with contextlib.closing(assembler), contextlib.closing(remote):
            job = job_of(config, encoding, plan, work)
            places = places_of(plan, inputs)
            records = _encode(job, plan, runner, remote, places, assembler, watch)
            return completed(config, plan, records, assembler)


def completed(config: Config, plan: Plan, records: Ledger, assembler: AnyAssembler) -> Manifest:
    """All is encoded and handed to the assembler: finish the shards, publish them, prove them."""
    require_few_bad(records, config)
    _require_some_written(records, config)
    output = assembler.finish()
    quarantine = quarantine_file(assembler.folder, records.quarantined)
    manifest = make_manifest(plan.identity, plan.inputs, records, output, quarantine)
    publish(assembler.folder, config.out, manifest)
    return manifest


def places_of(plan: Plan, inputs: Iterable[Input]) -> dict[str, str]:
    """Where inputs are read here, by name, if that is not where the plan was made: another cache
    of downloads, another machine."""
    planned = {source.name: source.path for source in plan.inputs}
    return {s.name: s.path for s in inputs if s.path != planned.get(s.name, s.path)}


def work_of(out: str, plan: Plan) -> str:
    """Where parts and records are. In an object store each plan has a place of its own, so that a
    late worker of a run that was given up cannot touch those of the next."""
    work = os.path.join(out, WORK_NAME)
    return os.path.join(work, plan.plan_id[:16]) if is_url(out) else work


def assembler_of(
    config: Config, encoding: EncodingId, plan: Plan, work: str, runner: Runner, watch: RunWatch
) -> AnyAssembler:
    layout, buckets = layout_of(config, encoding), num_buckets(config, plan)
    if not _is_by_orders(config, layout, work, runner):
        return Assembler(work, layout, buckets)

    def write(orders: Iterable[ShardOrder]) -> Iterator[WrittenShard]:
        yield from runner.write_shards(orders, watch)
        if watch.should_stop():
            raise Stopped

    target = config.out if is_url(config.out) else os.path.join(work, "shards")
    return OrderAssembler(work, target, layout, buckets, write)


def _is_by_orders(config: Config, layout: Layout, work: str, runner: Runner) -> bool:
    """Whether shards are written one by one when all is encoded, or as parts arrive.

    On a disk it is as it was begun: either way may have used up what the other needs.
    """
    if is_url(config.out) or has_orders(work):
        return True
    return layout.shard_tokens is not None and runner.is_spread() and not last_cursor(work)


def all_inputs(config: Config, remote: RemoteInputs) -> list[Input]:
    """The corpus: every input, here or elsewhere, in its order."""
    others = [source for source in config.sources if not source.startswith(SCHEME)]
    return in_order([*inputs_of(others, config.input_format), *remote.inputs])


def new_plan(config: Config, encoding: EncodingId, cutter: Cutter | None = None) -> Plan:
    """The plan that a run would begin with; nothing is written to the output folder."""
    with contextlib.ExitStack() as stack:
        if cutter is None:
            runner = stack.enter_context(cutting_runner(config))
            cutter = functools.partial(runner.cut, watch=SilentWatch())
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        remote = RemoteInputs(config, folder, lambda message: None)
        storage.make_folder(os.path.join(folder, "structure"))
        inputs = all_inputs(config, remote)
        identity = identity_of(config, encoding)
        return make_plan(identity, inputs, config, remote.structure_of, cutter)


def require_few_bad(records: Ledger, config: Config) -> None:
    counts = records.counts
    if counts.num_quarantined > config.max_bad_fraction * counts.num_rows:
        first = next(records.quarantined)
        raise InputError(
            f"{counts.num_quarantined:,} of {counts.num_rows:,} rows are bad, more than "
            f"--max-bad-fraction {config.max_bad_fraction} allows; "
            f"the first: {first.path}, {first.place}: {first.reason}",
            hint="look at it; if such rows may be left out, raise --max-bad-fraction: it resumes",
        )


def _require_some_written(records: Ledger, config: Config) -> None:
    plan_path = os.path.join(config.out, WORK_NAME, "plan.json")
    counts, num_tokens = records.counts, records.num_tokens
    if not counts.num_written or not num_tokens:
        storage.remove(plan_path)  # there is nothing to resume
        raise InputError(
            f"nothing to write: of {counts.num_rows:,} rows, {counts.num_empty:,} are empty, "
            f"{counts.num_null:,} null, {counts.num_quarantined:,} quarantined",
            hint="are these the right files, and is --text-column the right column?",
        )
    drops_tail = config.seq_len and get_format(config.format).traits.boundaries
    if drops_tail and max(records.num_tokens_by_split) < (config.seq_len or 0):
        storage.remove(plan_path)
        raise InputError(
            f"nothing to write: {num_tokens:,} tokens fill no sample of {config.seq_len:,}",
            hint="a smaller --seq-len, or --seq-len document for a sample of each document",
        )


def _encode(
    job: Job,
    plan: Plan,
    runner: Runner,
    remote: RemoteInputs,
    places: dict[str, str],
    assembler: AnyAssembler,
    watch: RunWatch,
) -> Ledger:
    """Encode what has no record yet, assembling on the way; all records."""
    num_assembled = assembler.next if not job.num_buckets else 0
    records = committed(job, range(len(plan.slices)), num_assembled)
    watch.planned(plan, records)
    for index in records:
        if index >= num_assembled:
            assembler.add(records[index])
    missing = [index for index in range(len(plan.slices)) if index not in records]
    slices = (plan.slices[index].read_from(places) for index in missing)
    with contextlib.closing(encoded(job, slices, runner, remote, watch)) as fresh:
        for record in fresh:
            records.add(record)
            assembler.add(record)
    if len(records) < len(plan.slices):
        raise Stopped
    return records


def encoded(
    job: Job, slices: Iterable[Slice], runner: Runner, remote: RemoteInputs, watch: RunWatch
) -> Generator[PartRecord, None, None]:
    """Records of these slices as the runner makes them; fewer than slices if the watch stops it."""
    if remote.inputs:
        slices = list(slices)
        remote.begin(slices)
    under_way: dict[int, Slice] = {}

    def begun() -> Iterator[Slice | None]:
        for slice_ in remote.as_they_arrive(slices):
            if slice_ is not None:
                under_way[slice_.index] = slice_
            yield slice_

    with contextlib.closing(_generator(runner.run(job, begun(), watch))) as running:
        for record in running:
            remote.release(under_way.pop(record.slice_index))
            watch.recorded(record)
            yield record


def _generator(records: Iterator[PartRecord]) -> Any:
    """A runner's records as what they are at run time: a generator, which can be closed."""
    return records


def committed(job: Job, indices: Sequence[int], num_assembled: int) -> Ledger:
    """The records of earlier attempts. A part that assembly still needs must be whole."""
    records = Ledger()
    for record in committed_records(job.work, indices, job.plan_id):
        if record is None:
            continue
        if record.slice_index < num_assembled or is_whole(job.work, record):
            records.add(record)
    return records


def is_whole(work: str, record: PartRecord) -> bool:
    path = part_path(work, record.slice_index)
    if is_url(path):
        return True  # an object does not change by a crash, and its length is compared when read
    if storage.size(path) != record.num_bytes:
        return False
    checksum = PART_CHECKSUM()
    with open(path, "rb") as file:
        while block := file.read(1 << 22):
            checksum.update(block)
    return checksum.hexdigest() == record.checksum


def _continued_or_new_plan(
    work: str,
    config: Config,
    identity: dict[str, Any],
    inputs: list[Input],
    make: Callable[[], Plan],
) -> Plan:
    path = os.path.join(work, "plan.json")
    is_continued = storage.exists(path)
    plan = _continued_plan(path, config, identity, inputs) if is_continued else make()
    if is_url(path):
        try:
            if not is_continued:
                plan.save(path)
        except IntegrityError:  # another run was first
            return _continued_plan(path, config, identity, inputs)
        return plan
    for name in ("parts", "records"):
        storage.make_folder(os.path.join(work, name))
        storage.remove_temporaries(os.path.join(work, name))
    storage.remove_temporaries(work)
    if not is_continued:
        plan.save(path)
    return plan


def _continued_plan(
    path: str, config: Config, identity: dict[str, Any], inputs: list[Input]
) -> Plan:
    plan = Plan.load(path)
    changes = differences(plan, identity, inputs)
    if changes:
        raise conflict(f"the run in {config.out} was begun differently", changes)
    return plan


def _new_plan_of(
    config: Config,
    identity: dict[str, Any],
    inputs: list[Input],
    remote: RemoteInputs,
    cutter: Cutter,
    scratch: str,
) -> Plan:
    structures = os.path.join(scratch, "structure")
    storage.make_folder(structures)
    plan = make_plan(identity, inputs, config, remote.structure_of, cutter)
    storage.remove_folder(structures)
    if not plan.slices:
        raise InputError(f"no documents in {', '.join(config.sources)}")
    return plan


def _make_way(
    config: Config,
    encoding: EncodingId,
    identity: dict[str, Any],
    inputs: list[Input],
    cutter: Cutter,
) -> bool:
    """Do what --overwrite asks for: remove what is there, unless it is this very run, unfinished,
    which is then continued (True).

    A command that cannot be planned removes nothing.
    """
    path = os.path.join(config.out, WORK_NAME, "plan.json")
    if storage.exists(path):
        with contextlib.suppress(IntegrityError):
            if not differences(Plan.load(path), identity, inputs):
                return True
    if is_url(config.out) or os.path.isdir(config.out):
        new_plan(config, encoding, cutter)
        remove_output(config.out, get_format(config.format), config.name)
    return False
