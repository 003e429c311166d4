"""One run divided among many commands (tasks): for Slurm arrays, Kubernetes jobs and the like.

    tokenmill prepare SOURCE -o OUT --partition I/N     `encode_partition`: N tasks, in any order
    tokenmill finish OUT                                `finish`: once, after all tasks

Tasks share a folder and nothing else. The first task to make the plan writes it; the others compare
theirs with it. A task only adds parts and records, whose names and bytes do not depend on the task
that writes them. So tasks may be repeated or run twice at once, and no task removes or locks
another's files. The tasks share the run's lock, which keeps ordinary runs and `finish` out. Where
locks do not work, those find the same files, no matter which task wrote them last.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tokenmill.assemble.books import Assembly
from tokenmill.assemble.duplicates import Duplicates, forget_without_hashes
from tokenmill.assemble.parts_in_use import UsedParts
from tokenmill.assemble.resume import earlier_records, needed_files
from tokenmill.assemble.token_limit import TokenLimit
from tokenmill.config import Config, Partition
from tokenmill.corpus.fetch import RemoteInputs
from tokenmill.corpus.inputs import FoundInputs
from tokenmill.corpus.plan import Plan
from tokenmill.corpus.spans import Slice
from tokenmill.dataset.manifest import Manifest
from tokenmill.dataset.pinned_revisions import begun_in
from tokenmill.dataset.workspace import Workspace, changes_between
from tokenmill.encode.checkpoint import saved_ledger
from tokenmill.encode.job import Job
from tokenmill.encode.ledger import Ledger
from tokenmill.encode.record import (
    PARTS_NAME,
    RECORDS_NAME,
    Counts,
    committed_record,
    record_path,
    recorded_indices,
)
from tokenmill.encode.text_hashes import hashes_path
from tokenmill.encodings import EncodingId
from tokenmill.errors import ConfigError, ConflictError, InputError, IntegrityError
from tokenmill.run import (
    PrepareRequest,
    RunContext,
    RunWatch,
    SilentWatch,
    all_inputs,
    assembly_of,
    completed,
    duplicates_of,
    encoded,
    end_at,
    limit_of,
    names_of,
    places_of,
    require_slices,
)
from tokenmill.runners import Runner, Stopped
from tokenmill.runners.start import encoding_of, writing_runner
from tokenmill.settings import identity_of, job_of, resolved
from tokenmill.storage import files, objects
from tokenmill.storage.store import store_of
from tokenmill.words.plural import noun_for

_SHOWN_RANGES = 5


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """What a task did, and which work is left in the run."""

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
    # Not in the work folder, so that a task can remove its own downloads.
    begun = begun_in(config, identity_of(config, encoding))
    with (
        tempfile.TemporaryDirectory(prefix="tokenmill-", ignore_cleanup_errors=True) as scratch,
        contextlib.closing(RemoteInputs(config, scratch, watch.notice, begun.revisions)) as remote,
    ):
        begun.require_cached(remote)
        context = RunContext(config, encoding, runner, watch, scratch)
        found = all_inputs(config, remote)
        request = PrepareRequest(context.identity, found.inputs)
        if (manifest := workspace.finished(request)) is not None:
            with contextlib.suppress(ConflictError):  # others may still be working
                workspace.remove_leftovers(request)
            return _report_of_finished(manifest, partition)
        plan = None
        if not workspace.has_plan:
            plan = context.plan_of(found, remote)
            require_slices(plan, config)
        with workspace.shared(names_of(config)):
            if (manifest := workspace.finished(request)) is not None:
                return _report_of_finished(manifest, partition)
            plan = workspace.begin_or_continue(request, functools.partial(_given, plan))
            work = workspace.work_of(plan.plan_id)
            for name in (PARTS_NAME, RECORDS_NAME):
                files.make_folder(os.path.join(work, name))
            _note(workspace, partition, encoding)
            records = _encode(context, plan, partition, found, remote)
            return PartitionReport(
                partition,
                len(plan.slices),
                len(records),
                records.num_tokens,
                records.counts,
                _num_missing(work, plan),
            )


def _given(plan: Plan | None) -> Plan | None:
    return plan


def finish(
    out: str,
    watch: RunWatch | None = None,
    max_bad_fraction: float | None = None,
    num_proc: int | None = None,
) -> Manifest:
    """Assemble the parts that tasks have encoded in `out`, and return the manifest. Needs only
    `out`.

    Raises ConflictError if a slice is missing, or if tasks are still running.
    """
    watch = watch or SilentWatch()
    objects.report_retries_to(watch.notice)
    workspace = Workspace(out)
    if (manifest := workspace.finished_dataset()) is not None:
        workspace.require_files(manifest)
        _remove_leftovers(workspace, manifest)
        return manifest
    if not workspace.has_plan:
        raise ConfigError(
            f"there is nothing to finish in {out}: no plan",
            hint=f"begin with: tokenmill prepare SOURCE -o {shlex.quote(out)} --partition 1/N",
        )
    plan = Plan.load(workspace.plan_path)
    config, encoding = _config_of(plan, out, max_bad_fraction)
    work = workspace.work_of(plan.plan_id)
    job = job_of(config, encoding, plan, work)
    # Without locks, cleaning up would abort the uploads of running tasks.
    records = None if store_of(out).has_locks else _all_records(job, plan, workspace)
    with workspace.held(names_of(config)):
        records = _all_records(job, plan, workspace) if records is None else records
        assembly = assembly_of(config, encoding, plan, work)
        with writing_runner(num_proc) as runner:
            context = RunContext(config, encoding, runner, watch, "")
            _assemble(context, job, plan, records, assembly)
        return completed(config, plan, assembly.records, assembly)


def _remove_leftovers(workspace: Workspace, manifest: Manifest) -> None:
    """Remove what is left of the run that made this dataset; not of one that was to replace it."""
    plan = Plan.load(workspace.plan_path) if workspace.has_plan else None
    identity, inputs = (plan.identity, plan.inputs) if plan else (manifest.identity, None)
    request = PrepareRequest(identity, inputs)
    if not changes_between(request, manifest):
        workspace.remove_leftovers(request)


def _all_records(job: Job, plan: Plan, workspace: Workspace) -> Ledger:
    """Every slice's record. Raises ConflictError if a record or its part is missing."""
    indices = range(len(plan.slices))
    max_tokens = plan.identity["options"].get("limit_tokens")
    if job.dedup:
        duplicates = Duplicates(job.work, job.plan_id, plan.slices)
        records = earlier_records(job, range(duplicates.num_indices))
        _, missing = duplicates.resumed(records)
        if missing:
            raise _incomplete(workspace, len(indices), missing, "not encoded yet, or damaged")
        return records
    records = earlier_records(job, range(len(indices) + (max_tokens is not None)))
    if max_tokens is not None:
        limit = TokenLimit(max_tokens, plan.slices, {})
        limit.resumed(records)
        if limit.last is not None:
            return records  # what is missing is after the limit
    if missing := [index for index in indices if index not in records]:
        saved = saved_ledger(job.work, job.plan_id)
        filed = [committed_record(job.work, i, job.plan_id) for i in missing if i not in saved]
        how = "damaged" if all(filed) else "not encoded yet"
        raise _incomplete(workspace, len(indices), missing, how)
    return records


def _encode(
    context: RunContext, plan: Plan, partition: Partition, found: FoundInputs, remote: RemoteInputs
) -> Ledger:
    """Encode the partition's slices without a record; returns all its records."""
    job, watch = context.job_of(plan), context.watch
    own = partition.of(len(plan.slices))
    records = earlier_records(job, own)
    if job.dedup:
        forget_without_hashes(job, records)
    share = Plan(plan.identity, plan.inputs, plan.slices[own.start : own.stop])
    watch.planned(share, records)
    missing = [index for index in own if index not in records]
    places = places_of(plan, found.inputs)

    def is_recorded(index: int) -> bool:
        # A request for each slice would take longer than it saves.
        is_quick = store_of(job.work).has_quick_calls
        return is_quick and committed_record(job.work, index, job.plan_id) is not None

    damaged = set(filter(is_recorded, missing))

    def is_wanted(slice_: Slice) -> bool:
        # The same task may run elsewhere at the same time: its finished slices count.
        return slice_.index in damaged or not is_recorded(slice_.index)

    slices = [plan.slices[index].read_from(places) for index in missing]
    with contextlib.closing(encoded(context, job, slices, remote, is_wanted=is_wanted)) as fresh:
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
    """Make parts, their hashes and records durable. An ordinary run does not, because it can make
    them again. But after a task ends, its machine may be released together with its unwritten
    pages."""
    work, used = job.work, UsedParts.of(job.work)
    parts = [file.path for record in records.values() for file in needed_files(work, record, used)]
    if job.dedup:
        parts += [hashes_path(work, index) for index in records]
    filed = [record_path(work, index) for index in records if not records.is_saved(index)]
    for paths in (parts, filed):
        if paths:
            files.sync_files(os.path.dirname(paths[0]), map(os.path.basename, paths))


def _assemble(
    context: RunContext, job: Job, plan: Plan, records: Ledger, assembly: Assembly
) -> None:
    """Write all shards; before that, leave out duplicates and encode the slice that reaches a limit
    again."""
    duplicates = duplicates_of(context.config, job, plan)
    limit = limit_of(context.config, plan, {}, duplicates)
    if duplicates is not None:
        records, _ = duplicates.resumed(records)
    slices = []
    if limit is not None:
        records = limit.resumed(records)
        end_at(limit, assembly)
        if limit.last is not None and duplicates is not None:
            duplicates.end()
        slices = [limit.last] if limit.last is not None and not limit.is_complete else []
    context.watch.planned(plan, records if duplicates is None else range(len(plan.slices)))
    assembly.resume(records)
    try:
        for _ in encoded(context, job, slices, None, assembly, limit, duplicates):
            pass  # the assembly adds it to the records
    except (ConfigError, InputError, IntegrityError) as error:
        if limit is None or limit.last is None or limit.is_complete:
            raise
        raise ConflictError(
            f"the slice that reaches --limit-tokens cannot be encoded again here: {error.message}",
            hint=f"the command of the tasks without --partition also finishes "
            f"{shlex.quote(context.config.out)}",
        ) from error
    if not assembly.is_done:
        raise Stopped


def _report_of_finished(manifest: Manifest, partition: Partition) -> PartitionReport:
    num_slices = max((len(numbers) for numbers in manifest.slice_documents.values()), default=0)
    num_own = len(partition.of(num_slices))
    return PartitionReport(partition, num_slices, num_own, 0, Counts(), 0, is_finished=True)


def _num_missing(work: str, plan: Plan) -> int | None:
    """The number of slices without a record; None where counting them would take a request each."""
    if not store_of(work).has_quick_calls:
        return None
    saved = saved_ledger(work, plan.plan_id)
    own = range(len(plan.slices))  # the slice that --limit-tokens cuts short comes after these
    num_filed = sum(index in own and index not in saved for index in recorded_indices(work))
    return len(own) - len(saved) - num_filed


def _config_of(plan: Plan, out: str, max_bad_fraction: float | None) -> tuple[Config, EncodingId]:
    """The configuration of the plan, as far as assembly needs it."""
    given: dict[str, Any] = {}
    if max_bad_fraction is not None:
        given["max_bad_fraction"] = max_bad_fraction
    try:
        # A plan does not hold the vocabulary's path; a limit may need it.
        source = _noted(Workspace(out)).get("vocabulary")
        encoding = EncodingId.from_plain({**plan.identity["encoding"], "source": source})
        options = dict(plan.identity["options"])
    except (KeyError, TypeError) as error:
        raise IntegrityError(f"the plan in {out} lacks its {error}") from error
    names = tuple(source.name for source in plan.inputs)
    return Config(sources=names, out=out, **options, **given), encoding


# The last N given to a task, for messages; and where the vocabulary is.


def _note(workspace: Workspace, partition: Partition, encoding: EncodingId) -> None:
    noted = {"num_partitions": partition.count, "vocabulary": encoding.source}
    if _noted(workspace) != noted:
        data = json.dumps(noted).encode()
        files.write_file(os.path.join(workspace.folder, "partitions.json"), data)


def _noted(workspace: Workspace) -> dict[str, Any]:
    try:
        noted = json.loads(files.read_file(os.path.join(workspace.folder, "partitions.json")))
        source, count = noted["vocabulary"], noted["num_partitions"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    is_known = isinstance(source, str | None) and isinstance(count, int) and count > 0
    return {"num_partitions": count, "vocabulary": source} if is_known else {}


def _incomplete(
    workspace: Workspace, num_slices: int, lacking: list[int], how: str
) -> ConflictError:
    """The error that says which slices are missing or damaged, their partitions, and what to
    type."""
    out = workspace.out
    lines = [
        f"{len(lacking):,} of {num_slices:,} slices in {out} {noun_for(len(lacking), 'is', 'are')} "
        f"{how}: {_shown_ranges(lacking)}"
    ]
    again = "the `tokenmill prepare` command of the tasks that failed"
    count = _noted(workspace).get("num_partitions")
    if count is not None:
        owners = _owners(lacking, num_slices, count)
        lines.append(f"of --partition {', '.join(map(str, owners[:10]))}")
        if len(owners) > 10:
            lines[-1] += f" and {len(owners) - 10:,} more of {count:,}"
        again = f"the same `tokenmill prepare` command with --partition {owners[0]}"
        if len(owners) > 1:
            again += " and so on"
    return ConflictError(
        "\n  ".join(lines), hint=f"run {again}, then: tokenmill finish {shlex.quote(out)}"
    )


def _owners(indices: Sequence[int], num_slices: int, count: int) -> list[Partition]:
    """The partitions that these slices belong to."""
    numbers = {((index + 1) * count - 1) // num_slices + 1 for index in indices}
    return [Partition(number, count) for number in sorted(numbers)]


def _shown_ranges(numbers: list[int]) -> str:
    """Sorted numbers as ranges: 1, 4-7, 9."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    shown = [f"{a}" if a == b else f"{a}-{b}" for a, b in ranges[:_SHOWN_RANGES]]
    return ", ".join(shown) + (", ..." if len(ranges) > _SHOWN_RANGES else "")
