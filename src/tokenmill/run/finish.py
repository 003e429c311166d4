"""`finish`: assembles one run's shards from the parts that its tasks encoded (`partition.py`)."""

from __future__ import annotations

import shlex
from typing import Any

from tokenmill.assemble.books import Assembly
from tokenmill.assemble.duplicates import Duplicates
from tokenmill.assemble.resume import earlier_records
from tokenmill.assemble.selection import RecordSelection
from tokenmill.assemble.token_limit import TokenLimit
from tokenmill.config import Config
from tokenmill.corpus.plan import Plan
from tokenmill.dataset.manifest import Manifest
from tokenmill.dataset.workspace import Workspace
from tokenmill.encode.job import Job
from tokenmill.encode.ledger import Ledger, saved_ledger
from tokenmill.encode.record import committed_record
from tokenmill.encodings import EncodingId
from tokenmill.errors import ConfigError, ConflictError, InputError, IntegrityError
from tokenmill.run.completion import completed
from tokenmill.run.context import RunContext, assembly_of, names_of
from tokenmill.run.partition_notes import incomplete, noted
from tokenmill.run.slice_queue import SliceQueue, encode_and_assemble
from tokenmill.run.watch import RunWatch, SilentWatch
from tokenmill.runners.start import writing_runner
from tokenmill.storage import objects
from tokenmill.storage.store import store_of


def finish(
    out: str,
    watch: RunWatch | None = None,
    max_bad_fraction: float | None = None,
    num_proc: int | None = None,
) -> Manifest:
    """Assemble the parts that tasks have encoded in `out`, and return the manifest.

    Needs nothing but the folder, unless --limit-tokens has to read a slice again. Raises
    ConflictError if a slice is missing or tasks are still running.
    """
    watch = watch or SilentWatch()
    objects.report_retries_to(watch.notice)
    workspace = Workspace(out)
    if (manifest := workspace.finished_dataset()) is not None:
        workspace.require_files(manifest)
        if store_of(out).is_local and workspace.has_plan:
            raise ConflictError(
                f"{out} holds a finished dataset, and the unfinished run that is to replace it",
                hint="run that run's command again, with --overwrite: it resumes",
            )
        workspace.remove_leftovers()
        return manifest
    if not workspace.has_plan:
        raise ConfigError(
            f"there is nothing to finish in {out}: no plan",
            hint=f"begin with: tokenmill prepare SOURCE -o {shlex.quote(out)} --partition 1/N",
        )
    plan = Plan.load(workspace.plan_path)
    for note in plan.notes:
        watch.notice(note)
    config, encoding = _config_of(plan, out, max_bad_fraction)
    return _made_dataset(config, encoding, plan, watch, num_proc)


def _made_dataset(
    config: Config, encoding: EncodingId, plan: Plan, watch: RunWatch, num_proc: int | None
) -> Manifest:
    out, workspace = config.out, Workspace(config.out)
    work = workspace.work_of(plan.plan_id)
    job = Job.of(config, encoding, plan, work)
    # Without locks, cleaning up would abort the uploads of running tasks.
    records = None if store_of(out).is_local else _all_records(job, plan, workspace, watch)
    with workspace.held(names_of(config)):
        if records is None:
            records = _all_records(job, plan, workspace, watch)
        assembly = assembly_of(config, encoding, plan, work)
        with writing_runner(num_proc) as runner:
            context = RunContext(config, encoding, runner, watch, "")
            _assemble(context, job, plan, records, assembly)
        return completed(config, plan, assembly.records, assembly, context.watch.notice)


def _all_records(job: Job, plan: Plan, workspace: Workspace, watch: RunWatch) -> Ledger:
    """Every slice's record. Raises ConflictError if a record or its part is missing."""
    indices = range(len(plan.slices))
    max_tokens = plan.identity["options"].get("limit_tokens")
    if job.dedup:
        duplicates = Duplicates(job.work, job.plan_id, plan.slices)
        records = earlier_records(job, range(duplicates.num_indices), watch.notice)
        _, missing = duplicates.resumed(records)
        if missing:
            raise incomplete(workspace, len(indices), missing, "not encoded yet, or damaged")
        return records
    num_indices = len(indices) + (max_tokens is not None)
    records = earlier_records(job, range(num_indices), watch.notice)
    if max_tokens is not None:
        limit = TokenLimit(max_tokens, plan.slices, {})
        limit.resumed(records)
        if limit.last is not None:
            return records  # what is missing is after the limit
    if missing := [index for index in indices if index not in records]:
        saved = saved_ledger(job.work, job.plan_id)
        filed = [committed_record(job.work, i, job.plan_id) for i in missing if i not in saved]
        how = "damaged" if all(filed) else "not encoded yet"
        raise incomplete(workspace, len(indices), missing, how)
    return records


def _assemble(
    context: RunContext, job: Job, plan: Plan, records: Ledger, assembly: Assembly
) -> None:
    """Write all shards, after leaving out duplicates (--dedup) and encoding the slice that reaches
    --limit-tokens again."""
    selection, num_slices = RecordSelection.of(context.config, job, plan, {}), len(plan.slices)
    records, _ = selection.resumed(records, num_slices)
    selection.end(assembly)
    slices = selection.left_of([])
    context.watch.planned(plan, range(num_slices) if selection.duplicates else records)
    assembly.resume(records)
    try:
        encode_and_assemble(context, job, SliceQueue(slices, None, selection), assembly)
    except (ConfigError, InputError, IntegrityError) as error:
        limit = selection.limit
        if limit is None or limit.last is None or limit.is_complete:
            raise
        raise ConflictError(
            f"the slice that reaches --limit-tokens cannot be encoded again here: {error.message}",
            hint=f"run the tasks' command without --partition: it also finishes "
            f"{shlex.quote(context.config.out)}",
        ) from error


def _config_of(plan: Plan, out: str, max_bad_fraction: float | None) -> tuple[Config, EncodingId]:
    """The configuration of the plan, as far as assembly needs it. `max_bad_fraction` is not part of
    it; None: not given."""
    given: dict[str, Any] = {}
    if max_bad_fraction is not None:
        given["max_bad_fraction"] = max_bad_fraction
    try:
        # The plan does not have the vocabulary's path, which --limit-tokens may need.
        source = noted(Workspace(out)).get("vocabulary")
        encoding = EncodingId.from_plain({**plan.identity["encoding"], "source": source})
        options = dict(plan.identity["options"])
    except (KeyError, TypeError) as error:
        raise IntegrityError(f"the plan in {out} lacks its {error}") from error
    names = tuple(source.name for source in plan.inputs)
    return Config(sources=names, out=out, **options, **given), encoding
