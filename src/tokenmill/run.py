"""One run: plan, encode, assemble, publish; over as many attempts as it takes.

    OUT/tokenmill.json              the manifest: this folder is a finished dataset
    OUT/.tokenmill/plan.json        an unfinished run: the same command continues it
    OUT/.tokenmill/ID/records/      the encoded slices
    OUT/.tokenmill/ID/tasks/        the finished shard tasks

Every attempt looks at these in this order and does the missing work. There is no other state.
"""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
from collections import deque
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from tokenmill.assemble.books import Assembly
from tokenmill.assemble.earlier import earlier_records
from tokenmill.config import Config
from tokenmill.corpus.fetch import RemoteInputs
from tokenmill.corpus.inputs import FoundInputs, found_inputs
from tokenmill.corpus.plan import Cutter, Plan, differences, input_differences, make_plan, notes_on
from tokenmill.corpus.spans import HUB_SCHEME, Input, Slice
from tokenmill.dataset.manifest import Manifest, make_manifest, quarantine_file
from tokenmill.dataset.output_names import OutputNames
from tokenmill.dataset.publication import publish
from tokenmill.dataset.workspace import Workspace
from tokenmill.encode.job import Job, Step
from tokenmill.encode.ledger import Ledger
from tokenmill.encode.record import PartRecord
from tokenmill.encodings import EncodingId
from tokenmill.errors import InputError, NetworkError
from tokenmill.estimate.room import room_warning
from tokenmill.formats import get_format
from tokenmill.runners import Runner, Stopped, Watch
from tokenmill.runners.start import cutting_runner, encoding_of
from tokenmill.runners.workload import Workload
from tokenmill.settings import identity_of, job_of, layout_of, num_buckets, resolved, wish_of
from tokenmill.storage import files, objects
from tokenmill.storage.store import store_of
from tokenmill.words.plural import counted, noun_for


class RunWatch(Watch, Protocol):
    """A Watch that is also told of the plan and of every record."""

    def planned(self, plan: Plan, done: Collection[int]) -> None:
        """The slices are known; earlier attempts have encoded those with the indices `done`."""

    def recorded(self, record: PartRecord) -> None:
        """A slice is done."""


class SilentWatch:
    """Does nothing: the default of `tokenmill.prepare`."""

    def planned(self, plan: Plan, done: Collection[int]) -> None: ...

    def recorded(self, record: PartRecord) -> None: ...

    def step(self, slice_: Slice, step: Step) -> None: ...

    def notice(self, message: str) -> None: ...

    def should_stop(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class PrepareRequest:
    """The request to `prepare`. If `inputs` is None, inputs are not compared."""

    identity: dict[str, Any]
    inputs: Sequence[Input] | None
    what = "run"

    def load(self, path: str) -> Plan:
        return Plan.load(path)

    def changes_since(self, plan: Plan) -> list[str]:
        return differences(plan, self.identity, self.inputs or ())

    def changes_from(self, manifest: Manifest) -> list[str]:
        if self.inputs is None:
            return []
        before = {source.path: (source.num_bytes, source.digest) for source in manifest.inputs}
        after = {source.name: (source.num_bytes, source.digest) for source in self.inputs}
        return input_differences(before, after)


def run(config: Config, runner: Runner, watch: RunWatch) -> Manifest:
    objects.listen(watch.notice)
    encoding = encoding_of(config)
    config = resolved(config, encoding)
    workspace = Workspace(config.out)
    with store_of(config.out).desk(workspace.folder) as scratch:
        attempt = functools.partial(_attempt, config, encoding, workspace, runner, watch, scratch)
        manifest = attempt() or attempt()
    assert manifest is not None  # a new run is never discarded as damaged
    return manifest


def _attempt(
    config: Config,
    encoding: EncodingId,
    workspace: Workspace,
    runner: Runner,
    watch: RunWatch,
    scratch: str,
) -> Manifest | None:
    """The dataset; None: try again (see Workspace). `scratch` is a local folder for downloads."""
    identity = identity_of(config, encoding)
    try:
        remote = RemoteInputs(config, scratch, watch.notice)
        found = all_inputs(config, remote)
    except NetworkError:
        # A finished dataset needs no network: if a server does not answer, inputs are not compared.
        manifest = None
        if not config.overwrite:
            manifest = workspace.finished(PrepareRequest(identity, None))
        if manifest is None:
            raise
        return manifest
    request = PrepareRequest(identity, found.inputs)

    def rehearse() -> None:
        """Plan first, so that a command that cannot be planned changes nothing."""
        cutter = functools.partial(runner.cut, watch=watch)
        require_slices(new_plan(config, encoding, cutter), config)

    def attempt() -> Manifest:
        if config.overwrite:
            _tell_of_unlisted(config, watch)
        return _carried_out(config, encoding, request, found, remote, runner, watch, scratch)

    return workspace.dataset(request, attempt, config.overwrite, watch.notice, rehearse)


def _tell_of_unlisted(config: Config, watch: RunWatch) -> None:
    """Announce files that --overwrite replaces and no manifest lists, so that the user can still
    stop."""
    if names := names_of(config).unlisted_in(config.out):
        shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
        num_files = counted(len(names), "file")
        watch.notice(f"--overwrite replaces {num_files} that no manifest lists: {shown}")


def _carried_out(
    config: Config,
    encoding: EncodingId,
    request: PrepareRequest,
    found: FoundInputs,
    remote: RemoteInputs,
    runner: Runner,
    watch: RunWatch,
    scratch: str,
) -> Manifest:
    cutter = functools.partial(runner.cut, watch=watch)
    make = functools.partial(_new_plan_of, config, request, found, remote, cutter, scratch)
    workspace = Workspace(config.out)
    with workspace.held(names_of(config), config.overwrite):
        plan = workspace.begin_or_continue(request, make)
        if warning := room_warning(config, plan):
            watch.notice(warning)
        work = workspace.work_of(plan.plan_id)
        with contextlib.closing(remote):
            assembly = assembly_of(config, encoding, plan, work)
            job = job_of(config, encoding, plan, work)
            places = places_of(plan, found.inputs)
            records = _encode(job, plan, runner, remote, places, assembly, watch)
            return completed(config, plan, records, assembly)


def completed(config: Config, plan: Plan, records: Ledger, assembly: Assembly) -> Manifest:
    """Publish the shards and write the manifest, once all parts and shard tasks are done."""
    require_few_bad(records, config)
    _require_some_written(records, config)
    output = assembly.finished()
    quarantine = quarantine_file(assembly.folder, records.quarantined)
    notes = notes_on(plan, records.counts.num_rows)
    manifest = make_manifest(plan.identity, plan.inputs, records, output, quarantine, notes)
    replaced = names_of(config).replaced_in(config.out) if config.overwrite else None
    if store_of(config.out).has_quick_calls:
        # Checked again: during a run of hours, files may have appeared there.
        _require_inputs_apart(config, plan.inputs)
    publish(config.out, plan.plan_id, manifest, replaced)
    return manifest


def names_of(config: Config) -> OutputNames:
    return OutputNames(get_format(config.format), config.name)


def places_of(plan: Plan, inputs: Iterable[Input]) -> dict[str, str]:
    """The local paths of inputs, by name, where they differ from the plan's: another download
    cache, another machine."""
    planned = {source.name: source.path for source in plan.inputs}
    return {s.name: s.path for s in inputs if s.path != planned.get(s.name, s.path)}


def assembly_of(config: Config, encoding: EncodingId, plan: Plan, work: str) -> Assembly:
    layout = layout_of(config, encoding)
    num_slices, buckets = len(plan.slices), num_buckets(config, plan)
    return Assembly(work, plan.plan_id, layout, wish_of(config), num_slices, buckets)


def all_inputs(config: Config, remote: RemoteInputs) -> FoundInputs:
    """The corpus: every input, local or remote, in order."""
    found = found_inputs(config, remote.inputs, remote.again)
    if config.out:
        _require_inputs_apart(config, found.inputs)
    return found


def _require_inputs_apart(config: Config, inputs: Iterable[Input]) -> None:
    """Raise ConfigError if the run would replace an input. Our own downloads may be in the work
    folder."""
    paths = [source.path for source in inputs if not source.name.startswith(HUB_SCHEME)]
    names_of(config).require_apart(config.out, paths)


def new_plan(config: Config, encoding: EncodingId, cutter: Cutter | None = None) -> Plan:
    """The plan that a new run would use; writes nothing to the output folder."""
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
        Workspace(config.out).forget_plan()
        raise InputError(
            f"nothing to write: no document has text (documents: {counts.num_written:,})",
            hint="are these the right files, and is --text-column the right column?",
        )
    if not counts.num_written:
        Workspace(config.out).forget_plan()  # nothing to resume
        raise InputError(
            f"nothing to write: of {counted(counts.num_rows, 'row')}, {counts.num_empty:,} "
            f"{noun_for(counts.num_empty, 'is', 'are')} empty, "
            f"{counts.num_null:,} null, {counts.num_quarantined:,} quarantined",
            hint="are these the right files, and is --text-column the right column?",
        )
    drops_tail = config.seq_len and get_format(config.format).traits.boundaries
    if drops_tail and max(records.num_tokens_by_split) < (config.seq_len or 0):
        Workspace(config.out).forget_plan()
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
    """Encode all slices without a record, writing shards meanwhile; returns all records."""
    records = earlier_records(job, range(len(plan.slices)))
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
    """The records of these slices as the runner produces them; fewer than slices if the watch stops
    the run. With an assembly, due shard tasks are carried out before new slices."""
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
    """A runner's records, typed as what they are at run time: a generator, which can be closed."""
    return records


def _new_plan_of(
    config: Config,
    request: PrepareRequest,
    found: FoundInputs,
    remote: RemoteInputs,
    cutter: Cutter,
    scratch: str,
) -> Plan:
    structures = os.path.join(scratch, "structure")
    files.make_folder(structures)
    plan = make_plan(request.identity, found.inputs, config, remote.structure_of, cutter)
    files.remove_folder(structures)
    require_slices(plan, config)
    return replace(plan, notes=found.notes)


def require_slices(plan: Plan, config: Config) -> None:
    if not plan.slices:
        raise InputError(f"no documents in {', '.join(config.sources)}")
