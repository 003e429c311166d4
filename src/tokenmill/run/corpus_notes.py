"""Notes for the user on the corpus, known only once it has been read."""

from __future__ import annotations

from collections.abc import Iterator

from tokenmill.config import Config
from tokenmill.corpus.plan import Plan
from tokenmill.encode.ledger import Ledger


def notes_on(plan: Plan, num_rows: int) -> tuple[str, ...]:
    """Notes on the corpus, given the number of rows found in it."""
    options = plan.identity["options"]
    separator, limit = options["separator"], options["limit_docs"]
    if separator is None or (limit is not None and num_rows >= limit):
        return plan.notes
    texts = [source for source in plan.inputs if source.kind == "text"]
    if not texts:  # then the separator joins the strings of lists
        return plan.notes
    other_rows = 0 if len(texts) == len(plan.inputs) else _num_rows_of_tables(plan)
    if other_rows is None or num_rows - other_rows > len(texts):
        return plan.notes
    if len(texts) == 1:
        return (*plan.notes, f"--separator {separator!r} divides nothing: the file is one document")
    note = f"--separator {separator!r} divides none of {len(texts):,} files: each is one document"
    return (*plan.notes, note)


def _num_rows_of_tables(plan: Plan) -> int | None:
    """The number of rows in inputs that are not plain text; None if one does not state it."""
    found = 0
    for slice_ in plan.slices:
        for span in slice_.spans:
            if span.input.kind != "text":
                if span.num_rows is None:
                    return None
                found += span.num_rows
    return found


def notes_on_limit(config: Config, records: Ledger) -> Iterator[str]:
    """A note on where --limit-tokens ended the run, or that it did not."""
    if config.limit_tokens is None:
        return
    limit = f"--limit-tokens {config.limit_tokens:,}"
    if records.last_place:
        yield f"{limit} is reached: the last document is {records.last_place}"
    else:
        yield f"{limit} is not reached: the sources have {records.num_tokens:,} tokens"
