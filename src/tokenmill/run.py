"""One run: plan, encode, assemble, prove; over however many attempts it takes.

    OUT/tokenmill.json              the manifest: this folder is a finished dataset
    OUT/.tokenmill/plan.json        a run is under way: the same command continues it
    OUT/.tokenmill/ID/records/      what is encoded
    OUT/.tokenmill/ID/tasks/        what is assembled

Every attempt looks at these, in this order, and does what is missing. Nothing else is remembered.
"""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

from tokenmill.assemble.books import Assembly
from tokenmill.assemble.use import UsedParts
from tokenmill.config import Config
from tokenmill.corpus.fetch import RemoteInputs
from tokenmill.corpus.inputs import FoundInputs, found_inputs
from tokenmill.corpus.plan import Cutter, Plan, differences, make_plan, notes_on
from tokenmill.corpus.spans import HUB_SCHEME, Input, Slice
from tokenmill.dataset.manifest import Manifest, make_manifest, quarantine_file
from tokenmill.dataset.output import (
    WORK_NAME,
    conflict,
    discard_work,
    finished,
    is_settled,
    plan_path,
    publish,
    remove_leftovers,
    replaced_names,
    require_inputs_apart,
    unlisted_names,
    work_folder,
    work_of,
)
from tokenmill.encode.job import Job, Step
from tokenmill.encode.ledger import Ledger
from tokenmill.encode.part import PART_CHECKSUM
from tokenmill.encode.record import PartRecord, committed_records, part_path
from tokenmill.encodings import EncodingId
from tokenmill.errors import (
    ConflictError,
    DamagedWorkError,
    InputError,
    IntegrityError,
    NetworkError,
)
from tokenmill.estimate.room import room_warning
from tokenmill.formats import get_format
from tokenmill.runners import Runner, Stopped, Watch
from tokenmill.runners.start import cutting_runner, encoding_of
from tokenmill.runners.workload import Workload
from tokenmill.settings import identity_of, job_of, layout_of, num_buckets, resolved, wish_of
from tokenmill.storage import disk, files, objects
from tokenmill.storage.objects import in_parallel, is_url
from tokenmill.storage.scratch import scratch_folder
from tokenmill.words.plural import counted, noun_for


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


def run(config: Config, runner: Runner, watch: RunWatch) -> Manifest:
    objects.listen(watch.notice)
    if not is_url(config.out):
        return _run(config, runner, watch, os.path.join(config.out, WORK_NAME))
    with scratch_folder() as scratch:
        return _run(config, runner, watch, scratch)


def _run(config: Config, runner: Runner, watch: RunWatch, scratch: str) -> Manifest:
    """`scratch` is a local folder for what has to be fetched."""
    encoding = encoding_of(config)
    config = resolved(config, encoding)
    identity = identity_of(config, encoding)
    try:
        remote = RemoteInputs(config, scratch, watch.notice)
        found = all_inputs(config, remote)
    except NetworkError:
        # A finished dataset needs no network, and who does not answer has nothing to compare.
        if not config.overwrite and (manifest := finished(config.out, identity, None)):
            return manifest
        raise
    inputs = list(found.inputs)
    is_continued = False
    if config.overwrite:
        is_continued = is_settled(config.out) and _is_continued(config, identity, inputs)
        if not is_continued:
            # A command that cannot be planned changes nothing.
            plan = new_plan(config, encoding, functools.partial(runner.cut, watch=watch))
            _require_slices(plan, config)
            discard_work(config.out)
        _tell_of_unlisted(config, watch)
    elif (manifest := finished(config.out, identity, inputs)) is not None:
        remove_leftovers(config.out, identity)
        return manifest
    try:
        return _carried_out(config, encoding, found, remote, runner, watch, scratch)
    except ConflictError:
        # There is no lock in an object store: another run of the same plan may have been faster.
        manifest = None
        if is_url(config.out):
            with contextlib.suppress(ConflictError):
                manifest = finished(config.out, identity, inputs)
        if manifest is None:
            raise
        remove_leftovers(config.out, identity)
        return manifest
    except DamagedWorkError as error:
        if not is_continued:
            raise
        watch.notice(f"{error.message}\nstarting again, as --overwrite says")
    discard_work(config.out)
    return _run(config, runner, watch, scratch)


def _tell_of_unlisted(config: Config, watch: RunWatch) -> None:
    """Before what may be somebody else's is replaced, there is time to say no."""
    names = unlisted_names(config.out, get_format(config.format), config.name)
    if names:
        shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
        num_files = counted(len(names), "file")
        watch.notice(f"--overwrite replaces {num_files} that no manifest lists: {shown}")


def _is_continued(config: Config, identity: dict[str, Any], inputs: list[Input]) -> bool:
    """Whether this very run is under way, so that --overwrite continues it."""
    if not files.exists(plan_path(config.out)):
        return False
    try:
        return not differences(Plan.load(plan_path(config.out)), identity, inputs)
    except (IntegrityError, ConflictError):
        return False


def _carried_out(
    config: Config,
    encoding: EncodingId,
    found: FoundInputs,
    remote: RemoteInputs,
    runner: Runner,
    watch: RunWatch,
    scratch: str,
) -> Manifest:
    inputs = list(found.inputs)
    identity = identity_of(config, encoding)
    cutter = functools.partial(runner.cut, watch=watch)
    format_ = get_format(config.format)
    with work_folder(config.out, format_, config.name, config.overwrite):
        make = functools.partial(_new_plan_of, config, identity, found, remote, cutter, scratch)
        plan = _continued_or_new_plan(config, identity, inputs, make)
        if warning := room_warning(config, plan):
            watch.notice(warning)
        work = work_of(config.out, plan.plan_id)
        with contextlib.closing(remote):
            assembly = assembly_of(config, encoding, plan, work)
            job = job_of(config, encoding, plan, work)
            places = places_of(plan, inputs)
            records = _encode(job, plan, runner, remote, places, assembly, watch)
            return completed(config, plan, records, assembly)


def completed(config: Config, plan: Plan, records: Ledger, assembly: Assembly) -> Manifest:
    """All parts are encoded and all shard tasks done: publish the shards, and prove them."""
    require_few_bad(records, config)
    _require_some_written(records, config)
    output = assembly.finished()
    quarantine = quarantine_file(assembly.folder, records.quarantined)
    notes = notes_on(plan, records.counts.num_rows)
    manifest = make_manifest(plan.identity, plan.inputs, records, output, quarantine, notes)
    replaced: set[str] | None = None
    format_ = get_format(config.format)
    if config.overwrite:
        replaced = replaced_names(config.out, format_, config.name)
    if not is_url(config.out):  # again: a run may take hours, and what was put there since?
        _require_inputs_apart(config, plan.inputs)
    publish(config.out, plan.plan_id, manifest, replaced)
    return manifest


def places_of(plan: Plan, inputs: Iterable[Input]) -> dict[str, str]:
    """Where inputs are read here, by name, if that is not where the plan was made: another cache
    of downloads, another machine."""
    planned = {source.name: source.path for source in plan.inputs}
    return {s.name: s.path for s in inputs if s.path != planned.get(s.name, s.path)}


def assembly_of(config: Config, encoding: EncodingId, plan: Plan, work: str) -> Assembly:
    layout = layout_of(config, encoding)
    num_slices, buckets = len(plan.slices), num_buckets(config, plan)
    return Assembly(work, plan.plan_id, layout, wish_of(config), num_slices, buckets)


def all_inputs(config: Config, remote: RemoteInputs) -> FoundInputs:
    """The corpus: every input, here or elsewhere, in its order."""
    found = found_inputs(config, remote.inputs, remote.again)
    if config.out:
        _require_inputs_apart(config, found.inputs)
    return found


def _require_inputs_apart(config: Config, inputs: Iterable[Input]) -> None:
    """No file of the user's may be replaced. What we fetch ourselves may be in the work folder."""
    paths = [source.path for source in inputs if not source.name.startswith(HUB_SCHEME)]
    require_inputs_apart(config.out, get_format(config.format), config.name, paths)


def new_plan(config: Config, encoding: EncodingId, cutter: Cutter | None = None) -> Plan:
    """The plan that a run would begin with; nothing is written to the output folder."""
    with contextlib.ExitStack() as stack:
        if cutter is None:
            runner = stack.enter_context(cutting_runner(config))
            cutter = functools.partial(runner.cut, watch=SilentWatch())
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        remote = RemoteInputs(config, folder, lambda message: None)
        files.make_folder(os.path.join(folder, "structure"))
        found = all_inputs(config, remote)
        identity = identity_of(config, encoding)
        plan = make_plan(identity, found.inputs, config, remote.structure_of, cutter)
        return replace(plan, notes=found.notes)


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
    counts, num_tokens = records.counts, records.num_tokens
    if counts.num_written and not (num_tokens and counts.text_bytes):
        files.remove(plan_path(config.out))
        raise InputError(
            f"nothing to write: no document has text (documents: {counts.num_written:,})",
            hint="are these the right files, and is --text-column the right column?",
        )
    if not counts.num_written:
        files.remove(plan_path(config.out))  # there is nothing to resume
        raise InputError(
            f"nothing to write: of {counted(counts.num_rows, 'row')}, {counts.num_empty:,} "
            f"{noun_for(counts.num_empty, 'is', 'are')} empty, "
            f"{counts.num_null:,} null, {counts.num_quarantined:,} quarantined",
            hint="are these the right files, and is --text-column the right column?",
        )
    drops_tail = config.seq_len and get_format(config.format).traits.boundaries
    if drops_tail and max(records.num_tokens_by_split) < (config.seq_len or 0):
        files.remove(plan_path(config.out))
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
    assembly: Assembly,
    watch: RunWatch,
) -> Ledger:
    """Encode what has no record yet, and have shards written on the way; all records."""
    records = committed(job, range(len(plan.slices)))
    watch.planned(plan, records)
    missing = [index for index in range(len(plan.slices)) if index not in records]
    assembly.resume(records)
    slices = (plan.slices[index].read_from(places) for index in missing)
    for _ in encoded(job, slices, runner, remote, watch, assembly):
        pass  # the assembly adds it to the records
    if not assembly.is_done:
        raise Stopped
    return records


def encoded(
    job: Job,
    slices: Iterable[Slice],
    runner: Runner,
    remote: RemoteInputs,
    watch: RunWatch,
    assembly: Assembly | None = None,
) -> Generator[PartRecord, None, None]:
    """Records of these slices as the runner makes them; fewer than slices if the watch stops it.
    With an assembly, shard tasks are carried out as they become due, before new slices."""
    slices = list(slices)
    if remote.inputs:
        remote.begin(slices)
    under_way: dict[int, Slice] = {}

    def begun() -> Iterator[Slice | None]:
        for slice_ in remote.as_they_arrive(slices):
            if slice_ is not None:
                under_way[slice_.index] = slice_
            yield slice_

    workload = Workload(begun(), len(slices), deque() if assembly is None else assembly.due)
    if assembly is None or assembly.is_done:
        workload.close()
    with contextlib.closing(_generator(runner.run(job, workload, watch))) as running:
        for record in running:
            if isinstance(record, PartRecord):
                remote.release(under_way.pop(record.slice_index))
                watch.recorded(record)
                if assembly is not None:
                    assembly.add(record)
                yield record
            elif assembly is not None:
                assembly.done(record)
            if assembly is not None and assembly.is_done:
                workload.close()


def _generator(records: Iterator[Any]) -> Any:
    """A runner's records as what they are at run time: a generator, which can be closed."""
    return records


def committed(job: Job, indices: Sequence[int]) -> Ledger:
    """The records of earlier attempts. A part that is still needed must be whole."""
    used = UsedParts.of(job.work)
    records = Ledger()

    check = functools.partial(_if_whole, job.work, used)

    def with_large_parts() -> Iterator[PartRecord]:
        """The others are added at once: a thread takes longer than a look at a small file."""
        for record in filter(None, committed_records(job.work, indices, job.plan_id)):
            needed = needed_splits(record, used)
            is_large = any(record.num_bytes[split] > _SMALL_BYTES for split in needed)
            if needed and (is_large or is_url(job.work)):
                yield record
            elif not needed or check(record):
                records.add(record)

    for record in filter(None, in_parallel(check, with_large_parts())):
        records.add(record)
    return records


_SMALL_BYTES = 1 << 16


def needed_splits(record: PartRecord, used: UsedParts) -> list[int]:
    """The splits whose part files are still needed."""
    return [
        split
        for split, num_bytes in enumerate(record.num_bytes)
        if num_bytes and (split, record.slice_index) not in used
    ]


def _if_whole(work: str, used: UsedParts, record: PartRecord) -> PartRecord | None:
    """The record, if the part files that are still needed are what it says."""
    for split in needed_splits(record, used):
        path = part_path(work, record.slice_index, split)
        if files.size(path) != record.num_bytes[split]:
            return None
        # An object does not change by a crash.
        if not is_url(path) and _checksum_of(path) != record.checksum[split]:
            return None
    return record


def _checksum_of(path: str) -> str:
    checksum = PART_CHECKSUM()
    with open(path, "rb") as file:
        while block := file.read(1 << 22):
            checksum.update(block)
    return str(checksum.hexdigest())


def _continued_or_new_plan(
    config: Config, identity: dict[str, Any], inputs: list[Input], make: Callable[[], Plan]
) -> Plan:
    path = plan_path(config.out)
    is_continued = files.exists(path)
    plan = continued_plan(config.out, identity, inputs) if is_continued else make()
    if is_url(path):
        try:
            if not is_continued:
                plan.save(path)
        except IntegrityError:  # another run was first
            return continued_plan(config.out, identity, inputs)
        return plan
    work = work_of(config.out, plan.plan_id)
    for name in ("parts", "records"):
        files.make_folder(os.path.join(work, name))
        disk.remove_temporaries(os.path.join(work, name))
    disk.remove_temporaries(os.path.dirname(path))
    if not is_continued:
        plan.save(path)
    return plan


def continued_plan(out: str, identity: dict[str, Any], inputs: list[Input]) -> Plan:
    """The plan of the run that is under way. Raises ConflictError if it is another run's."""
    plan = Plan.load(plan_path(out))
    changes = differences(plan, identity, inputs)
    if changes:
        raise conflict(f"the run in {out} was begun differently", changes)
    return plan


def _new_plan_of(
    config: Config,
    identity: dict[str, Any],
    found: FoundInputs,
    remote: RemoteInputs,
    cutter: Cutter,
    scratch: str,
) -> Plan:
    structures = os.path.join(scratch, "structure")
    files.make_folder(structures)
    plan = make_plan(identity, found.inputs, config, remote.structure_of, cutter)
    files.remove_folder(structures)
    _require_slices(plan, config)
    return replace(plan, notes=found.notes)


def _require_slices(plan: Plan, config: Config) -> None:
    if not plan.slices:
        raise InputError(f"no documents in {', '.join(config.sources)}")
