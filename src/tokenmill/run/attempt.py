"""One run: plan, encode, assemble, prove; over however many attempts it takes.

    OUT/tokenmill.json              the manifest: this folder is a finished dataset
    OUT/.tokenmill/plan.json        a run is under way: the same command continues it
    OUT/.tokenmill/ID/records/      what is encoded
    OUT/.tokenmill/ID/tasks/        what is assembled

Every attempt looks at these, in this order, and does what is missing. Nothing else is remembered.
"""

from __future__ import annotations

import contextlib

from tokenmill.assemble.books import Assembly
from tokenmill.assemble.choice import Choice
from tokenmill.assemble.resume import earlier_records
from tokenmill.config import Config
from tokenmill.corpus.fetch import RemoteInputs
from tokenmill.corpus.inputs import FoundInputs
from tokenmill.corpus.plan import Plan
from tokenmill.corpus.standard_input import kept_standard_input
from tokenmill.dataset.manifest import Manifest
from tokenmill.dataset.pinned_revisions import begun_in, is_surely_made_from
from tokenmill.dataset.workspace import Workspace
from tokenmill.encode.ledger import Ledger
from tokenmill.encodings.configured import encoding_of
from tokenmill.errors import NetworkError
from tokenmill.estimate.disk_check import space_warning
from tokenmill.run.completion import completed
from tokenmill.run.context import (
    RunContext,
    all_inputs,
    assembly_of,
    names_of,
    new_plan,
    places_of,
    require_slices,
)
from tokenmill.run.request import PrepareRequest
from tokenmill.run.slice_queue import encoded
from tokenmill.run.timings import require_own_timings, timed
from tokenmill.run.watch import RunWatch
from tokenmill.runners import Runner, Stopped
from tokenmill.settings import resolved
from tokenmill.storage import objects
from tokenmill.storage.store import store_of
from tokenmill.words.plural import counted


def run(config: Config, runner: Runner, watch: RunWatch) -> Manifest:
    objects.report_retries_to(watch.notice)
    encoding = encoding_of(config)
    config = resolved(config, encoding)

    def stop_if_asked() -> None:
        if watch.should_stop():
            raise Stopped

    with (
        timed(config, watch) as told,
        kept_standard_input(config, watch.notice, stop_if_asked) as config,
        store_of(config.out).staging(Workspace(config.out).folder) as scratch,
    ):
        context = RunContext(config, encoding, runner, told, scratch)
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
        # A glob may name more files than when the dataset was made.
        watch.notice(
            "the Hub does not answer: complete for the "
            f"{counted(len(manifest.inputs), 'file')} that it was made from"
        )
        return manifest
    request = PrepareRequest(context.identity, found.inputs)
    require_own_timings(config, request)

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
        if warning := space_warning(config, plan):
            context.watch.notice(warning)
        assembly = assembly_of(config, context.encoding, plan, workspace.work_of(plan.plan_id))
        records = _encode(context, plan, found, remote, assembly)
        remote.keep_revisions()
        return completed(config, plan, records, assembly)


def _encode(
    context: RunContext, plan: Plan, found: FoundInputs, remote: RemoteInputs, assembly: Assembly
) -> Ledger:
    """Encode what has no record yet, and have shards written on the way; all records."""
    job = context.job_of(plan)
    places, num_slices = places_of(plan, found.inputs), len(plan.slices)
    choice = Choice.of(context.config, job, plan, places)
    indices = range(choice.num_indices(num_slices))
    records = earlier_records(job, indices, context.watch.notice)
    if choice.limit is not None and remote.inputs:
        _forget_after_gap(records, num_slices)
    records, missing = choice.resumed(records, num_slices)
    context.watch.planned(plan, sorted(set(range(num_slices)).difference(missing)))
    choice.end(assembly)
    slices = choice.left_of([plan.slices[index].read_from(places) for index in missing])
    assembly.resume(records)
    for _ in encoded(context, job, slices, remote, choice, assembly):
        pass  # the assembly adds it to the records
    if not assembly.is_done:
        raise Stopped
    return records


def _forget_after_gap(records: Ledger, num_slices: int) -> None:
    """Forget records after the first slice without one. The slice that reaches a limit is read
    again, so its file must be fetched in this attempt."""
    after = num_slices + 1  # the index of the first slice's part without copies (--dedup)
    known = {index if index < num_slices else index - after for index in records}
    gap = next((index for index in range(num_slices) if index not in known), num_slices)
    for index in range(gap, num_slices):
        records.discard(index)
        records.discard(after + index)
