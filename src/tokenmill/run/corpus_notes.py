"""A note for the user that is known only once the corpus has been read: a separator that divides
nothing."""

from __future__ import annotations

from tokenmill.config import Config
from tokenmill.corpus.plan import Plan


def separator_note(config: Config, plan: Plan, num_rows: int) -> str | None:
    num_texts = sum(source.kind == "text" for source in plan.inputs)
    if not num_texts or not _divides_nothing(config, plan, num_rows, num_texts):
        return None
    what = "the file is one document"
    if num_texts > 1:
        what = f"each of {num_texts:,} files is one document"
    return f"--separator {config.separator!r} divides nothing: {what}"


def _divides_nothing(config: Config, plan: Plan, num_rows: int, num_texts: int) -> bool:
    """Whether there is a separator, and every text file turned out to be one row."""
    limit = config.limit_docs
    if config.separator is None or (limit is not None and num_rows >= limit):
        return False
    other_rows = 0 if num_texts == len(plan.inputs) else _num_rows_of_tables(plan)
    return other_rows is not None and num_rows - other_rows <= num_texts


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
