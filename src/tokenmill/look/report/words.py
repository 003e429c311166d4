"""Sentences about figures, for the page and the card."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tokenmill.dataset.inspect import Glance
from tokenmill.look.report.figures import (
    DuplicateFigures,
    Figures,
    LengthFigures,
    ProofFigures,
    SplitFigures,
    TokenFigures,
)
from tokenmill.wording.plural import counted
from tokenmill.wording.quantities import shown_count

_EOT_WORDS = {
    "append": "appended to each document",
    "prepend": "prepended to each document",
    "both": "around each document",
}


def made(found: Glance) -> str:
    """One sentence about the dataset."""
    if found.tokenizer is None:
        tokens = "Tokens of a tokenizer that is not known"
    else:
        tokens = f"Tokens of {found.tokenizer['name']}"
    order = {None: "", True: ", shuffled", False: ", in the order of the corpus"}[found.is_shuffled]
    whose = "" if found.has_manifest else "; not written by tokenmill"
    return (
        f"{tokens} as {found.dtype}, format {found.format} ({found.trainers}), "
        f"{_eot(found)}{order}{whose}."
    )


def _eot(found: Glance) -> str:
    if found.eot is None:
        return "EOT ids not known"
    if found.eot == "none":
        return "no EOT ids"
    name = "" if found.eot_token is None else f"{found.eot_token}, "
    return f"EOT ({name}{found.eot_id}) {_EOT_WORDS[found.eot]}"


def how_measured(figures: Figures) -> str:
    if figures.is_exact:
        return "All tokens were read: the figures are exact."
    total = figures.glance.num_tokens
    return (
        f"Sampled: {shown_count(figures.num_read)} of {shown_count(total)} tokens were read, from "
        "places that are the same every time. For exact figures: --exact."
    )


def measured(lengths: LengthFigures) -> str:
    if lengths.is_exact:
        return f"all {counted(lengths.num_documents, 'document')}"
    return f"a sample of {counted(lengths.num_documents, 'document')}"


def longest(lengths: LengthFigures) -> str:
    """A sample says only that there is one as long."""
    return f"{lengths.max:,}" if lengths.is_exact else f"≥ {lengths.max:,}"


def share(part: float, whole: float) -> str:
    return f"{part / whole:.2%}" if whole else ""


def outlying(split: SplitFigures) -> str:
    num = sum(one.is_outlier for one in split.stretches)
    if not num:
        return "no stretch stands out"
    shown = "" if num <= len(split.outliers) else f", of which {len(split.outliers)} are marked"
    return f"{counted(num, 'stretch', 'stretches')} of {len(split.stretches)} stand out{shown}"


def token_use(found: TokenFigures) -> str:
    seen = "are used" if found.is_exact else "are in the sample"
    of = "" if found.num_ids is None else f" of {found.num_ids:,}"
    half = counted(found.half, "id")
    return (
        f"{found.num_seen:,}{of} ids {seen}; the most frequent {half} make up half of all tokens."
    )


def unseen(found: TokenFigures) -> str:
    return "never used" if found.is_exact else "not in the sample"


def duplicates(found: DuplicateFigures) -> str:
    number = f"{found.num_duplicates:,}"
    part = share(found.num_duplicates, found.num_documents)
    of = counted(found.num_documents, "document")
    if not found.is_exact:
        there = f"{number} with the tokens of another one" if found.num_duplicates else "no pair"
        return (
            f"not known. Among {of} of a sample there is {there}, but such a sample finds nearly "
            "none of the pairs of a large corpus. --exact compares all."
        )
    return f"{number} of {of} ({part}) have the same tokens as an earlier one."


def origin(proof: ProofFigures) -> str:
    said = {} if proof.converted_from is None else proof.converted_from
    return "Converted from " + ", ".join(f"{name} {value}" for name, value in said.items()) + "."


def plain_rows(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        (name, value if isinstance(value, str) else json.dumps(value))
        for name, value in sorted(values.items())
        if value is not None
    ]
