"""One run: plan, encode, assemble, publish; over however many attempts it takes.

    OUT/tokenmill.json              the manifest: this folder is a finished dataset
    OUT/.tokenmill/plan.json        an unfinished run: the same command resumes it
    OUT/.tokenmill/ID/records/      what is encoded
    OUT/.tokenmill/ID/tasks/        what is assembled

Every attempt looks at these, in this order, and does what is missing. There is no other state.

Read this first: it names every stage, in order. The stages are in corpus/ (plan), encode/ (a slice
becomes a part), assemble/ (parts become shards) and dataset/ (manifest, publication); run/ has the
steps between them, runners/ the processes that do the work.
"""

from __future__ import annotations

import contextlib

from tokenmill.assemble.books import Assembly
from tokenmill.assemble.resume import earlier_records
from tokenmill.assemble.selection import RecordSelection
from tokenmill.config import Config
from tokenmill.corpus.hub_inputs import HubInputs
from tokenmill.corpus.inputs import FoundInputs
from tokenmill.corpus.plan import Plan
from tokenmill.corpus.standard_input import kept_standard_input
from tokenmill.corpus.unchanged import require_unmodified
from tokenmill.dataset.manifest import Manifest
from tokenmill.dataset.pinned_revisions import begun_in, is_surely_made_from
from tokenmill.dataset.workspace import Workspace, space_warning
from tokenmill.encode.ledger import Ledger
from tokenmill.encodings.lookup import encoding_of
from tokenmill.errors import NetworkError
from tokenmill.run.completion import completed
from tokenmill.run.context import (
    RunContext,
    all_inputs,
    assembly_of,
    moved_inputs,
    names_of,
    new_plan,
    require_slices,
)
from tokenmill.run.request import PrepareRequest, request_of
from tokenmill.run.slice_queue import SliceQueue, encode_and_assemble
from tokenmill.run.watch import RunWatch
from tokenmill.runners import Runner, Stopped
from tokenmill.settings import resolved
from tokenmill.storage import objects
from tokenmill.storage.store import staging_folder
from tokenmill.wording.plural import counted


def run(config: Config, runner: Runner, watch: RunWatch) -> Manifest:
    """Make the dataset, resume an earlier attempt at it, or return the manifest of a finished one.

    Raises Stopped if the watch asks for that; calling it again resumes.
    """
    objects.report_retries_to(watch.notice)
    encoding = encoding_of(config)
    config = resolved(config, encoding)

    def stop_if_asked() -> None:
        if watch.should_stop():
            raise Stopped

    with (
        kept_standard_input(config, watch.notice, stop_if_asked) as config,
        staging_folder(Workspace(config.out).folder) as scratch,
    ):
        context = RunContext(config, encoding, runner, watch, scratch)
        manifest = _attempt(context) or _attempt(context)
    assert manifest is not None  # only resuming can ask for another attempt
    return manifest


def _attempt(context: RunContext) -> Manifest | None:
    """The manifest; None: try again (see `Workspace.dataset`)."""
    with contextlib.ExitStack() as opened:
        return _attempt_with(context, opened)


def _attempt_with(context: RunContext, opened: contextlib.ExitStack) -> Manifest | None:
    config, watch = context.config, context.watch
    workspace = Workspace(config.out)
    try:
        begun = begun_in(config, context.identity)
        remote = HubInputs(config, context.scratch, watch.notice, begun.revisions)
        opened.callback(remote.close)
        begun.require_cached(remote)
        found = all_inputs(config, remote)
        if begun.revisions and config.overwrite:
            request = request_of(context, found, remote)
            if not workspace.is_continued(request):  # a new run takes what is on the Hub now
                remote = HubInputs(config, context.scratch, watch.notice)
                opened.callback(remote.close)
                found = all_inputs(config, remote)
    except NetworkError:
        # A finished dataset needs no network if it was certainly made from these sources.
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
    request = request_of(context, found, remote)

    def rehearse() -> None:
        """Plan without writing, so that a command that fails to plan changes nothing."""
        require_slices(new_plan(config, context.encoding, context.runner, watch), config)

    def attempt() -> Manifest:
        if config.overwrite:
            _warn_of_unlisted(config, watch)
        return _made_dataset(context, request, found, remote)

    return workspace.dataset(request, attempt, config.overwrite, watch.notice, rehearse)


def _warn_of_unlisted(config: Config, watch: RunWatch) -> None:
    """Say which files --overwrite will replace that tokenmill may not have written."""
    if names := names_of(config).unlisted_in(config.out):
        shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
        num_files = counted(len(names), "file")
        watch.notice(f"--overwrite replaces {num_files} that no manifest lists: {shown}")


def _made_dataset(
    context: RunContext, request: PrepareRequest, found: FoundInputs, remote: HubInputs
) -> Manifest:
    config = context.config

    def make_plan() -> Plan:
        remote.begin_all(found.inputs)
        plan = context.plan_of(found, remote)
        require_slices(plan, config)
        return plan

    workspace = Workspace(config.out)
    # `remote` is closed before the lock is released, so that the next run finds no file in use.
    with contextlib.ExitStack() as stack:
        stack.enter_context(workspace.held(names_of(config), config.overwrite))
        stack.enter_context(contextlib.closing(remote))
        plan = workspace.begin_or_continue(request, make_plan)
        stack.enter_context(workspace.cleared_if_discarded(plan.plan_id))
        for note in (*plan.notes, *filter(None, [space_warning(config, plan)])):
            context.watch.notice(note)
        assembly = assembly_of(config, context.encoding, plan, workspace.work_of(plan.plan_id))
        records = _encode(context, plan, found, remote, assembly)
        require_unmodified(plan.inputs)
        remote.keep_revisions()
        return completed(config, plan, records, assembly, context.watch.notice)


def _encode(
    context: RunContext, plan: Plan, found: FoundInputs, remote: HubInputs, assembly: Assembly
) -> Ledger:
    """Encode the slices without a record and write all shards; returns all records."""
    job = context.job_of(plan)
    moved, num_slices = moved_inputs(plan, found.inputs), len(plan.slices)
    selection = RecordSelection.of(context.config, job, plan, moved)
    indices = range(selection.num_indices(num_slices))
    records = earlier_records(job, indices, context.watch.notice)
    if selection.limit is not None and remote.inputs:
        _forget_after_gap(records, num_slices)
    records, missing = selection.resumed(records, num_slices)
    context.watch.planned(plan, sorted(set(range(num_slices)).difference(missing)))
    selection.end(assembly)
    slices = selection.left_of([plan.slices[index].read_from(moved) for index in missing])
    assembly.resume(records)
    remote.footers |= plan.footers
    queue = SliceQueue(slices, remote, selection)
    encode_and_assemble(context, job, queue, assembly)
    return records


def _forget_after_gap(records: Ledger, num_slices: int) -> None:
    """Forget the records after the first slice without one: the slice that reaches the limit is
    read again, so this attempt must fetch its file."""
    after = num_slices + 1  # the index of the first slice without copies (--dedup)
    known = {index if index < num_slices else index - after for index in records}
    gap = next((index for index in range(num_slices) if index not in known), num_slices)
    for index in range(gap, num_slices):
        records.discard(index)
        records.discard(after + index)
