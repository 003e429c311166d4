"""One run divided among many commands (tasks): for Slurm arrays, Kubernetes jobs and the like.

    tokenmill prepare SOURCE -o OUT --partition I/N     `encode_partition`: N tasks, in any order
    tokenmill finish OUT                                `finish`: once, after all tasks

Tasks share a folder and nothing else. The first task to make the plan writes it; the others compare
theirs with it. A task only adds parts and records, whose names and bytes do not depend on the task
that writes them, so a task may be repeated, or run twice at once. No task removes the files of
another. Tasks share the run's lock, which keeps ordinary runs and `finish` out. Where locks do not
work, those find the same files, no matter which task wrote them last.
"""

from __future__ import annotations

import contextlib
import functools
import os
from dataclasses import dataclass

from tokenmill.assemble.duplicates import forget_without_hashes
from tokenmill.assemble.parts_in_use import UsedParts
from tokenmill.assemble.resume import earlier_records, needed_files
from tokenmill.config import Config, Partition
from tokenmill.corpus.hub_inputs import HubInputs
from tokenmill.corpus.inputs import FoundInputs
from tokenmill.corpus.plan import Plan
from tokenmill.corpus.spans import Slice
from tokenmill.dataset.manifest import Manifest
from tokenmill.dataset.pinned_revisions import begun_in
from tokenmill.dataset.workspace import Workspace
from tokenmill.encode.job import Job
from tokenmill.encode.ledger import Ledger, saved_ledger
from tokenmill.encode.record import (
    PARTS_NAME,
    RECORDS_NAME,
    Counts,
    committed_record,
    record_path,
    recorded_indices,
)
from tokenmill.encode.text_hashes import hashes_path
from tokenmill.encodings.lookup import encoding_of
from tokenmill.errors import ConfigError, ConflictError
from tokenmill.run.context import (
    RunContext,
    all_inputs,
    moved_inputs,
    names_of,
    require_slices,
)
from tokenmill.run.partition_notes import note
from tokenmill.run.request import request_of
from tokenmill.run.slice_queue import SliceQueue, encoded
from tokenmill.run.watch import RunWatch
from tokenmill.runners import Runner, Stopped
from tokenmill.settings import identity_of, resolved
from tokenmill.storage import disk, objects
from tokenmill.storage.scratch import scratch_folder
from tokenmill.storage.store import store_of


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """What a task did, and how much work is left in the run."""

    partition: Partition
    num_slices: int  # of the whole run
    num_own: int  # of this partition, all encoded now
    num_tokens: int  # of this partition
    counts: Counts
    num_missing: int | None  # slices of other partitions without a record; None: unknown
    is_finished: bool = False  # by `finish`, before this task began


def encode_partition(
    config: Config, partition: Partition, runner: Runner, watch: RunWatch
) -> PartitionReport:
    """Encode one partition's slices; other tasks and `finish` do the rest of the run."""
    if config.overwrite:
        raise ConfigError(
            "--overwrite with --partition: every task would remove the work of the others",
            hint=f"remove {config.out} by hand, then start the tasks",
        )
    objects.report_retries_to(watch.notice)
    encoding = encoding_of(config)
    config = resolved(config, encoding)
    workspace = Workspace(config.out)
    begun = begun_in(config, identity_of(config, encoding))
    with (
        # Not in the work folder, so that a task can remove its own downloads.
        scratch_folder() as scratch,
        contextlib.closing(HubInputs(config, scratch, watch.notice, begun.revisions)) as remote,
    ):
        begun.require_cached(remote)
        context = RunContext(config, encoding, runner, watch, scratch)
        found = all_inputs(config, remote)
        request = request_of(context, found, remote)
        if (manifest := workspace.finished(request)) is not None:
            with contextlib.suppress(ConflictError):  # others may still be working
                workspace.remove_leftovers()
            return _report_of_finished(manifest, partition)
        own_plan = None
        if not workspace.has_plan:
            own_plan = context.plan_of(found, remote)
            require_slices(own_plan, config)
        with workspace.shared(names_of(config)):
            if (manifest := workspace.finished(request)) is not None:
                return _report_of_finished(manifest, partition)
            plan = workspace.begin_or_continue(request, lambda: own_plan)
            work = workspace.work_of(plan.plan_id)
            for name in (PARTS_NAME, RECORDS_NAME):
                store_of(work).make_folder(os.path.join(work, name))
            note(workspace, partition, encoding)
            with workspace.marked(str(partition), functools.partial(_warn, watch, partition)):
                records = _encode(context, plan, partition, found, remote)
            return PartitionReport(
                partition,
                len(plan.slices),
                len(records),
                records.num_tokens,
                records.counts,
                _num_missing(work, plan),
            )


def _warn(watch: RunWatch, partition: Partition, other: str) -> None:
    watch.notice(
        f"--partition {partition} is already running, as {other}: both encode the same slices; "
        "stop one of them"
    )


def _encode(
    context: RunContext, plan: Plan, partition: Partition, found: FoundInputs, remote: HubInputs
) -> Ledger:
    """Encode the slices of the partition that have no record; returns all its records."""
    job, watch = context.job_of(plan), context.watch
    own = partition.of(len(plan.slices))
    records = earlier_records(job, own, watch.notice)
    if job.dedup:
        forget_without_hashes(job, records)
    share = Plan(plan.identity, plan.inputs, plan.slices[own.start : own.stop])
    watch.planned(share, records)
    missing = [index for index in own if index not in records]
    moved = moved_inputs(plan, found.inputs)

    def is_recorded(index: int) -> bool:
        # In an object store, a request for each slice would cost more than it saves.
        is_quick = store_of(job.work).is_local
        return is_quick and committed_record(job.work, index, job.plan_id) is not None

    damaged = set(filter(is_recorded, missing))

    def is_wanted(slice_: Slice) -> bool:
        # The same task may be running elsewhere; skip slices that it has finished.
        return slice_.index in damaged or not is_recorded(slice_.index)

    slices = [plan.slices[index].read_from(moved) for index in missing]
    remote.footers |= plan.footers
    queue = SliceQueue(slices, remote, is_wanted=is_wanted)
    with contextlib.closing(encoded(context, job, queue)) as fresh:
        for record in fresh:
            records.add(record)
    if watch.should_stop():
        raise Stopped
    for index in missing:
        if index not in records:
            by_another = committed_record(job.work, index, job.plan_id)
            if by_another is None:
                raise Stopped
            records.add(by_another)
            watch.recorded(by_another)
    _sync(job, records)
    return records


def _sync(job: Job, records: Ledger) -> None:
    """Make parts, hashes and records durable. An ordinary run does not, because it can make them
    again; but a task's machine may be released when the task ends, with its unwritten pages."""
    if not store_of(job.work).is_local:
        return
    work, used = job.work, UsedParts.of(job.work)
    parts = [file.path for record in records.values() for file in needed_files(work, record, used)]
    if job.dedup:
        parts += [hashes_path(work, index) for index in records]
    filed = [record_path(work, index) for index in records if not records.is_saved(index)]
    for paths in (parts, filed):
        if paths:
            disk.sync_files(os.path.dirname(paths[0]), map(os.path.basename, paths))


def _report_of_finished(manifest: Manifest, partition: Partition) -> PartitionReport:
    num_slices = max((len(numbers) for numbers in manifest.slice_documents.values()), default=0)
    num_own = len(partition.of(num_slices))
    return PartitionReport(partition, num_slices, num_own, 0, Counts(), 0, is_finished=True)


def _num_missing(work: str, plan: Plan) -> int | None:
    """The number of slices without a record; None if counting them would take a request each."""
    if not store_of(work).is_local:
        return None
    saved = saved_ledger(work, plan.plan_id)
    own = range(len(plan.slices))  # the slice that --limit-tokens cuts short has a higher index
    num_filed = sum(index in own and index not in saved for index in recorded_indices(work))
    return len(own) - len(saved) - num_filed
