"""The end of a run: checks that something was written and that few rows are bad, then publishes the
shards with their manifest."""

from __future__ import annotations

from collections.abc import Callable

from tokenmill.assemble.books import Assembly
from tokenmill.config import Config
from tokenmill.corpus.plan import Plan
from tokenmill.dataset.manifest import Manifest
from tokenmill.dataset.new_manifest import make_manifest, quarantine_file
from tokenmill.dataset.publication import publish
from tokenmill.dataset.workspace import Workspace
from tokenmill.encode.ledger import Ledger
from tokenmill.encode.record import Counts
from tokenmill.errors import InputError
from tokenmill.formats import get_format
from tokenmill.run.context import names_of, require_inputs_apart
from tokenmill.run.corpus_notes import separator_note
from tokenmill.storage.store import store_of
from tokenmill.wording.plural import counted, noun_for


def completed(
    config: Config,
    plan: Plan,
    records: Ledger,
    assembly: Assembly,
    notice: Callable[[str], None],
) -> Manifest:
    """Publish the dataset and return its manifest, once all shard tasks are done. Raises InputError
    if nothing was written, or if too many rows are bad."""
    require_few_bad(records, config)
    _require_some_written(records, config)
    output = assembly.finished()
    quarantine = quarantine_file(assembly.folder, records.quarantined)
    manifest = make_manifest(plan, records, output, quarantine)
    if note := separator_note(config, plan, records.counts.num_rows):
        notice(note)
    replaced = names_of(config).replaced_in(config.out) if config.overwrite else None
    if store_of(config.out).is_local:
        # Again: inputs may have been put there since the run began, hours ago.
        require_inputs_apart(config, plan.inputs)
    publish(config.out, plan.plan_id, manifest, replaced)
    return manifest


def require_few_bad(records: Ledger, config: Config) -> None:
    counts = records.counts
    if counts.num_quarantined > config.max_bad_fraction * counts.num_rows:
        first = next(records.quarantined)
        raise InputError(
            f"{counts.num_quarantined:,} of {counts.num_rows:,} rows "
            f"{noun_for(counts.num_quarantined, 'is', 'are')} bad, more than "
            f"--max-bad-fraction {config.max_bad_fraction} allows; "
            f"the first: {first.path}, {first.place}: {first.reason}",
            hint=_advice(first.reason)
            if 2 * counts.num_quarantined > counts.num_rows
            else "look at it; to leave such rows out, raise --max-bad-fraction: the run resumes",
        )


def _advice(reason: str) -> str:
    """What to do if most rows are bad: then it is the file, and not its rows."""
    if reason.startswith("invalid UTF-8"):
        return "if it is Latin-1, convert it first: iconv -f ISO-8859-1 -t UTF-8"
    if reason.startswith("not JSON"):
        return "is it JSON? --input-format csv, tsv or text reads it as another kind"
    return "look at it: are these the right files, and is --text-column the right column?"


def _require_some_written(records: Ledger, config: Config) -> None:
    counts, num_tokens = records.counts, records.num_tokens
    if counts.num_written and not (num_tokens and counts.text_bytes):
        Workspace(config.out).forget_plan()
        raise InputError(
            "nothing to write: "
            f"{counted(counts.num_written, 'document')}, but none of them has text",
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
    """Why rows were not written: 3 are empty, 1 null, 0 quarantined."""
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
