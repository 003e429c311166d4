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
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from tokenmill.assemble.books import Assembly
from tokenmill.assemble.duplicates import Duplicates
from tokenmill.assemble.kept import Sidecars
from tokenmill.assemble.resume import earlier_records
from tokenmill.assemble.token_limit import TokenLimit
from tokenmill.config import Config
from tokenmill.corpus.download.progress import DownloadProgress
from tokenmill.corpus.fetch import RemoteInputs
from tokenmill.corpus.inputs import FoundInputs, found_inputs
from tokenmill.corpus.plan import (
    Plan,
    differences,
    input_differences,
    make_plan,
    notes_on,
)
from tokenmill.corpus.spans import HUB_SCHEME, Input, Slice
from tokenmill.corpus.standard_input import as_typed, kept_standard_input
from tokenmill.dataset.manifest import Manifest, make_manifest, quarantine_file
from tokenmill.dataset.output_names import OutputNames
from tokenmill.dataset.pinned_revisions import begun_in, is_surely_made_from
from tokenmill.dataset.publication import publish
from tokenmill.dataset.source_totals import notes_on_sources, source_totals
from tokenmill.dataset.workspace import Workspace
from tokenmill.encode.job import Job, Step
from tokenmill.encode.ledger import Ledger
from tokenmill.encode.record import Counts, PartRecord
from tokenmill.encodings import EncodingId
from tokenmill.encodings.hub_model import begun_with, model_revision
from tokenmill.errors import InputError, NetworkError
from tokenmill.estimate.disk_check import room_warning
from tokenmill.formats import get_format
from tokenmill.runners import Runner, Stopped, Watch
from tokenmill.runners.start import cutting_runner, encoding_of
from tokenmill.runners.workload import Workload
from tokenmill.settings import (
    fitting_options_of,
    identity_of,
    job_of,
    layout_of,
    num_buckets,
    resolved,
)
from tokenmill.storage import files, objects
from tokenmill.storage.store import store_of
from tokenmill.words.plural import counted, noun_for


class RunWatch(Watch, Protocol):
    """A Watch that also sees the run begin and end."""

    def planned(self, plan: Plan, done: Collection[int]) -> None:
        """The slices are known; those of the indices `done` were encoded by earlier attempts."""

    def downloading(self, progress: Callable[[], DownloadProgress | None]) -> None:
        """Files are being downloaded; `progress` says how far that is, at any time."""

    def recorded(self, record: PartRecord) -> None:
        """A slice is done."""


class SilentWatch:
    """Looks on and says nothing: what `tokenmill.prepare` uses unless told otherwise."""

    def planned(self, plan: Plan, done: Collection[int]) -> None: ...

    def downloading(self, progress: Callable[[], DownloadProgress | None]) -> None: ...

    def recorded(self, record: PartRecord) -> None: ...

    def step(self, slice_: Slice, step: Step) -> None: ...

    def notice(self, message: str) -> None: ...

    def should_stop(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class PrepareRequest:
    """What `prepare` was asked for; `inputs` of None are not compared."""

    identity: dict[str, Any]
    inputs: Sequence[Input] | None
    what = "run"

    def load(self, path: str) -> Plan:
        return Plan.load(path)

    def changes_since(self, plan: Plan) -> list[str]:
        changes = differences(plan, self.identity, self.inputs or ())
        return changes + _tokenizer_then(self.identity, plan) if changes else []

    def changes_from(self, manifest: Manifest) -> list[str]:
        if self.inputs is None:
            return []
        before = {source.label: (source.num_bytes, source.digest) for source in manifest.inputs}
        after = {source.label: (source.num_bytes, source.digest) for source in self.inputs}
        return _tokenizer_then(self.identity, manifest) + input_differences(before, after)


def _tokenizer_then(identity: dict[str, Any], begun: Plan | Manifest) -> list[str]:
    """How to name a tokenizer that has changed on the Hub since."""
    then, now = begun.identity["encoding"], identity["encoding"]
    named = begun_with(begun.revisions, then["name"])
    is_another = then["name"] == now["name"] and then["sha256"] != now["sha256"]
    return [f"it was made with {named}"] if named and is_another else []


@dataclass(frozen=True, slots=True)
class RunContext:
    """What every step of a run needs, besides the corpus."""

    config: Config  # resolved
    encoding: EncodingId
    runner: Runner
    watch: RunWatch
    scratch: str  # a local folder for what has to be fetched

    @property
    def identity(self) -> dict[str, Any]:
        return identity_of(self.config, self.encoding)

    def plan_of(self, found: FoundInputs, remote: RemoteInputs) -> Plan:
        """A new plan; nothing is written to the output folder."""
        structures = os.path.join(self.scratch, "structure")
        files.make_folder(structures)
        cutter = functools.partial(self.runner.cut, watch=self.watch)
        plan = make_plan(self.identity, found.inputs, self.config, remote.structure_of, cutter)
        files.remove_folder(structures)
        revisions = {**remote.revisions, **model_revision(self.encoding)}
        paths = {s.name: [*map(as_typed, s.paths)] for s in self.config.named}
        return replace(plan, notes=found.notes, revisions=revisions, source_paths=paths)

    def job_of(self, plan: Plan) -> Job:
        work = Workspace(self.config.out).work_of(plan.plan_id)
        return job_of(self.config, self.encoding, plan, work)


def run(config: Config, runner: Runner, watch: RunWatch) -> Manifest:
    objects.report_retries_to(watch.notice)
    encoding = encoding_of(config)
    config = resolved(config, encoding)

    def stop_if_asked() -> None:
        if watch.should_stop():
            raise Stopped

    with (
        kept_standard_input(config, watch.notice, stop_if_asked) as config,
        store_of(config.out).staging(Workspace(config.out).folder) as scratch,
    ):
        context = RunContext(config, encoding, runner, watch, scratch)
        manifest = _attempt(context) or _attempt(context)
    assert manifest is not None  # what has just begun is not continued
    return manifest


def _attempt(context: RunContext) -> Manifest | None:
    """The dataset; None: try again, see Workspace."""
    with contextlib.ExitStack() as opened:
        return _attempt_with(context, opened)


def _attempt_with(context: RunContext, opened: contextlib.ExitStack) -> Manifest | None:
    config, watch = context.config, context.watch
    workspace = Workspace(config.out)
    try:
        begun = begun_in(config, context.identity)
        remote = RemoteInputs(config, context.scratch, watch.notice, begun.revisions)
        opened.callback(remote.close)
        begun.require_cached(remote)
        found = all_inputs(config, remote)
        if begun.revisions and config.overwrite:
            request = PrepareRequest(context.identity, found.inputs)
            if not workspace.is_continued(request):  # it begins, with what is on the Hub now
                remote = RemoteInputs(config, context.scratch, watch.notice)
                opened.callback(remote.close)
                found = all_inputs(config, remote)
    except NetworkError:
        # A finished dataset needs no network, if it is certain that it was made from these sources.
        manifest = None
        if not config.overwrite:
            manifest = workspace.finished(PrepareRequest(context.identity, None))
        if manifest is None or not is_surely_made_from(config, manifest):
            raise
        return manifest
    request = PrepareRequest(context.identity, found.inputs)

    def rehearse() -> None:
        """A command that cannot be planned changes nothing."""
        require_slices(new_plan(config, context.encoding, context.runner, watch), config)

    def attempt() -> Manifest:
        if config.overwrite:
            _tell_of_unlisted(config, watch)
        return _carried_out(context, request, found, remote)

    return workspace.dataset(request, attempt, config.overwrite, watch.notice, rehearse)


def _tell_of_unlisted(config: Config, watch: RunWatch) -> None:
    """Before what may be somebody else's is replaced, there is time to say no."""
    if names := names_of(config).unlisted_in(config.out):
        shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
        num_files = counted(len(names), "file")
        watch.notice(f"--overwrite replaces {num_files} that no manifest lists: {shown}")


def _carried_out(
    context: RunContext, request: PrepareRequest, found: FoundInputs, remote: RemoteInputs
) -> Manifest:
    config = context.config

    def make() -> Plan:
        remote.begin_all(found.inputs)
        plan = context.plan_of(found, remote)
        require_slices(plan, config)
        return plan

    workspace = Workspace(config.out)
    # Closed before the folder is given up, so that the next run finds no file in use.
    with workspace.held(names_of(config), config.overwrite), contextlib.closing(remote):
        plan = workspace.begin_or_continue(request, make)
        if warning := room_warning(config, plan):
            context.watch.notice(warning)
        assembly = assembly_of(config, context.encoding, plan, workspace.work_of(plan.plan_id))
        records = _encode(context, plan, found, remote, assembly)
        remote.keep_revisions()
        return completed(config, plan, records, assembly)


def completed(config: Config, plan: Plan, records: Ledger, assembly: Assembly) -> Manifest:
    """All parts are encoded and all shard tasks done: publish the shards, and prove them."""
    require_few_bad(records, config)
    _require_some_written(records, config)
    output = assembly.finished()
    quarantine = quarantine_file(assembly.folder, records.quarantined)
    notes = (*notes_on(plan, records.counts.num_rows), *_notes_on_limit(config, records))
    sources = source_totals(plan, records, output.split_rule == "documents")
    notes = (*notes, *notes_on_sources(sources))
    manifest = make_manifest(
        plan.identity, plan.inputs, records, output, quarantine, notes, plan.revisions
    )
    manifest = replace(manifest, sources=sources)
    replaced = names_of(config).replaced_in(config.out) if config.overwrite else None
    if store_of(config.out).has_quick_calls:
        # Again: a run may take hours, and what was put there since?
        _require_inputs_apart(config, plan.inputs)
    publish(config.out, plan.plan_id, manifest, replaced)
    return manifest


def _notes_on_limit(config: Config, records: Ledger) -> Iterator[str]:
    """Where --limit-tokens ended the run. Rows after that are not counted."""
    if config.limit_tokens is None:
        return
    limit = f"--limit-tokens {config.limit_tokens:,}"
    if records.last_place:
        yield f"{limit} is reached: the last document is {records.last_place}"
    else:
        yield f"{limit} is not reached: the sources have {records.num_tokens:,} tokens"


def names_of(config: Config) -> OutputNames:
    return OutputNames(get_format(config.format), config.name)


def places_of(plan: Plan, inputs: Iterable[Input]) -> dict[str, str]:
    """Where inputs are read here, by name, if that is not where the plan was made: another cache
    of downloads, another machine."""
    planned = {source.name: source.path for source in plan.inputs}
    return {s.name: s.path for s in inputs if s.path != planned.get(s.name, s.path)}


def assembly_of(config: Config, encoding: EncodingId, plan: Plan, work: str) -> Assembly:
    layout = layout_of(config, encoding)
    num_slices, buckets = len(plan.slices), num_buckets(config, plan)
    sidecars = None
    if config.keep is not None:
        sidecars = Sidecars(work, plan.plan_id, layout, plan.kept_types)
    options = fitting_options_of(config, plan)
    return Assembly(work, plan.plan_id, layout, options, num_slices, buckets, sidecars)


def all_inputs(config: Config, remote: RemoteInputs) -> FoundInputs:
    """The corpus: every input, here or elsewhere, in its order."""
    found = found_inputs(config, remote.inputs, remote.again)
    if config.out:
        _require_inputs_apart(config, found.inputs)
    return found


def _require_inputs_apart(config: Config, inputs: Iterable[Input]) -> None:
    """No file of the user's may be replaced. What we fetch ourselves may be in the work folder."""
    paths = [source.path for source in inputs if not source.name.startswith(HUB_SCHEME)]
    names_of(config).require_apart(config.out, paths)


def new_plan(
    config: Config,
    encoding: EncodingId,
    runner: Runner | None = None,
    watch: RunWatch | None = None,
) -> Plan:
    """The plan that a run would begin with; nothing is written to the output folder."""
    with contextlib.ExitStack() as stack:
        runner = runner or stack.enter_context(cutting_runner(config))
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        context = RunContext(config, encoding, runner, watch or SilentWatch(), folder)
        remote = RemoteInputs(config, folder, lambda message: None)
        stack.enter_context(contextlib.closing(remote))
        return context.plan_of(all_inputs(config, remote), remote)


def require_few_bad(records: Ledger, config: Config) -> None:
    counts = records.counts
    if counts.num_quarantined > config.max_bad_fraction * counts.num_rows:
        first = next(records.quarantined)
        raise InputError(
            f"{counts.num_quarantined:,} of {counts.num_rows:,} rows "
            f"{noun_for(counts.num_quarantined, 'is', 'are')} bad, more than "
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
        Workspace(config.out).forget_plan()  # there is nothing to resume
        raise InputError(
            f"nothing to write: of {counted(counts.num_rows, 'row')}, {_shown_reasons(counts)}",
            hint="are these the right files, and is --text-column the right column?"
            if not counts.num_filtered
            else "let more rows in: another --where, or a larger --sample",
        )
    drops_tail = config.seq_len and get_format(config.format).traits.boundaries
    if drops_tail and max(records.num_tokens_by_split) < (config.seq_len or 0):
        Workspace(config.out).forget_plan()
        raise InputError(
            f"nothing to write: {num_tokens:,} tokens fill no sample of {config.seq_len:,}",
            hint="a smaller --seq-len, or --seq-len document for a sample of each document",
        )


def _shown_reasons(counts: Counts) -> str:
    """Why rows were not written."""
    reasons = [
        (counts.num_empty, "empty"),
        (counts.num_null, "null"),
        (counts.num_quarantined, "quarantined"),
    ]
    if counts.num_filtered:
        reasons.insert(0, (counts.num_filtered, "filtered"))
    if counts.num_duplicates:
        reasons.append((counts.num_duplicates, "duplicates"))
    (first, why), *others = reasons
    rest = (f"{count:,} {reason}" for count, reason in others)
    return ", ".join([f"{first:,} {noun_for(first, 'is', 'are')} {why}", *rest])


def _encode(
    context: RunContext, plan: Plan, found: FoundInputs, remote: RemoteInputs, assembly: Assembly
) -> Ledger:
    """Encode what has no record yet, and have shards written on the way; all records."""
    job = context.job_of(plan)
    places = places_of(plan, found.inputs)
    duplicates = duplicates_of(context.config, job, plan)
    limit = limit_of(context.config, plan, places, duplicates)
    num_indices = len(plan.slices) + (limit is not None)
    records = earlier_records(job, range(duplicates.num_indices if duplicates else num_indices))
    if limit is not None and remote.inputs:
        forget_after_gap(records, len(plan.slices))
    missing = [index for index in range(len(plan.slices)) if index not in records]
    if duplicates is not None:
        records, missing = duplicates.resumed(records)
    context.watch.planned(plan, sorted(set(range(len(plan.slices))).difference(missing)))
    slices = [plan.slices[index].read_from(places) for index in missing]
    if limit is not None:
        records = limit.resumed(records)
        end_at(limit, assembly)
        if limit.last is not None:
            slices = [] if limit.is_complete else [limit.last]
        if duplicates is not None and limit.last is not None:
            duplicates.end()
    assembly.resume(records)
    for _ in encoded(context, job, slices, remote, assembly, limit, duplicates):
        pass  # the assembly adds it to the records
    if not assembly.is_done:
        raise Stopped
    return records


def limit_of(
    config: Config, plan: Plan, places: Mapping[str, str], duplicates: Duplicates | None = None
) -> TokenLimit | None:
    if config.limit_tokens is None:
        return None
    if duplicates is None:
        return TokenLimit(config.limit_tokens, plan.slices, places)
    return TokenLimit(config.limit_tokens, plan.slices, places, duplicates.copies_at)


def duplicates_of(config: Config, job: Job, plan: Plan) -> Duplicates | None:
    if config.dedup is None:
        return None
    return Duplicates(job.work, job.plan_id, plan.slices)


def end_at(limit: TokenLimit | None, assembly: Assembly) -> None:
    """Tell the assembly which slice is the last, if a limit has shown it."""
    if limit is not None and limit.last is not None:
        assembly.end_with(limit.last_index, limit.num_slices)


def forget_after_gap(records: Ledger, num_slices: int) -> None:
    """Forget records after the first slice without one. The slice that reaches a limit is read
    again, so its file must be fetched in this attempt."""
    after = num_slices + 1  # the index of the first slice's part without copies (--dedup)
    known = {index if index < num_slices else index - after for index in records}
    gap = next((index for index in range(num_slices) if index not in known), num_slices)
    for index in range(gap, num_slices):
        records.discard(index)
        records.discard(after + index)


def encoded(
    context: RunContext,
    job: Job,
    slices: Sequence[Slice],
    remote: RemoteInputs | None,
    assembly: Assembly | None = None,
    limit: TokenLimit | None = None,
    duplicates: Duplicates | None = None,
    is_wanted: Callable[[Slice], bool] = lambda slice_: True,
) -> Generator[PartRecord, None, None]:
    """Records of these slices as the runner makes them; fewer than slices if the watch stops it.
    With an assembly, shard tasks are carried out as they become due, before new slices. With a
    limit, slices after it are not begun, and those that were are not passed on. With duplicates,
    only records of parts without copies are passed on. Whether a slice is still wanted is asked
    when it is about to begin. Without `remote`, all inputs are here."""
    if remote is not None and remote.inputs:
        remote.begin(slices)
        context.watch.downloading(remote.progress)
    under_way: dict[int, Slice] = {}  # from the plan, without a record that is passed on

    def begun() -> Iterator[Slice | None]:
        arriving: Iterator[Slice | None] = iter(slices)
        if remote is not None:
            arriving = remote.as_they_arrive(slices)
        if limit is not None:
            arriving = limit.handed_out(arriving, under_way)
        if duplicates is not None:
            arriving = duplicates.handed_out(arriving)
        for slice_ in arriving:
            if slice_ is not None and not slice_.is_pruning:
                if not is_wanted(slice_):
                    continue
                under_way[slice_.index] = slice_
            yield slice_

    def release(done: Iterable[Slice | None]) -> None:
        for slice_ in done:
            if remote is not None and slice_ is not None:
                remote.release(slice_)

    def needed(record: PartRecord) -> list[PartRecord]:
        """The records that can be passed on, now that there is this one."""
        found = [record] if duplicates is None else duplicates.added([record])
        if limit is None:
            release([under_way.pop(record.slice_index, None)])
            return found
        before = [limit.added([one], under_way.pop(one.slice_index, None)) for one in found]
        if duplicates is not None and limit.last is not None:
            duplicates.end()
        release(limit.take_done())
        return [one for some in before for one in some]

    num_slices = len(slices) + (limit is not None) + (duplicates is not None)
    workload = Workload(begun(), num_slices, deque() if assembly is None else assembly.due)
    if assembly is None or assembly.is_done:
        workload.close()
    with contextlib.closing(
        _generator(context.runner.run(job, workload, context.watch))
    ) as running:
        for record in running:
            if isinstance(record, PartRecord):
                if record.slice_index in under_way:
                    context.watch.recorded(record)
                for one in needed(record):
                    if assembly is not None:
                        end_at(limit, assembly)
                        assembly.add(one)
                    yield one
            elif assembly is not None:
                assembly.done(record)
            if assembly is not None and assembly.is_done:
                workload.close()


def _generator(records: Iterator[Any]) -> Any:
    """A runner's records as what they are at run time: a generator, which can be closed."""
    return records


def require_slices(plan: Plan, config: Config) -> None:
    if not plan.slices:
        raise InputError(f"no documents in {', '.join(config.sources)}")
