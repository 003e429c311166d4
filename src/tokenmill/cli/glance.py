"""The overview that `tokenmill inspect` prints without options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenmill.cli.screen import shown_bytes
from tokenmill.cli.summary import note_lines
from tokenmill.wording.plural import counted

if TYPE_CHECKING:
    from tokenmill.dataset.inspect import Glance

_EOT_WORDS = {
    "append": "appended to each document",
    "prepend": "prepended to each document",
    "both": "around each document",
    "none": "none",
}


def glance_lines(found: Glance) -> list[str]:
    made = "" if found.has_manifest else "; not written by tokenmill: inferred from the files"
    lines = [f"{found.folder}: format {found.format} ({found.trainers}){made}"]
    if found.tokenizer is None:
        lines.append("  tokenizer  unknown; name it with --tokenizer")
    else:
        name, sha256 = found.tokenizer["name"], found.tokenizer["sha256"]
        lines.append(
            f"  tokenizer  {name}, {counted(found.tokenizer['n_vocab'], 'id')}, "
            f"sha256 {sha256[:12]}"
        )
    eot = "unknown" if found.eot is None else _EOT_WORDS[found.eot]
    if found.eot_token is not None and found.eot != "none":
        eot += f": {found.eot_token}, {found.eot_id}"
    if "eot" in found.inferred:
        eot += f" ({'inferred: ' if found.eot else ''}{found.inferred['eot']})"
    order = {None: "", True: "; shuffled", False: "; in the order of the corpus"}[found.is_shuffled]
    dtype = found.dtype
    if "dtype" in found.inferred:
        dtype += f" (inferred: {found.inferred['dtype']})"
    lines.append(f"  tokens     {found.num_tokens:,} as {dtype}, {shown_bytes(found.num_bytes)}")
    lines.append(f"  EOT        {eot}{order}")
    if "order" in found.inferred:
        lines.append(f"  order      by the numbers in the names: {found.inferred['order']}")
    if found.bos_token is not None:
        lines.append(f"  BOS        prepended to each document: {found.bos_token}, {found.bos_id}")
    if found.bytes_per_token is not None and found.tokens_per_byte is not None:
        text = "about " if found.text_bytes is None else f"{shown_bytes(found.text_bytes)}, "
        lines.append(
            f"  text       {text}{found.bytes_per_token:.2f} bytes per token, "
            f"{found.tokens_per_byte:.3f} tokens per byte"
        )
    if found.split_rule is not None:
        lines.append(f"  val        {found.split_rule}")
    rows: list[tuple[str, ...]] = [("split", "tokens", "documents", "shards", "bytes")]
    rows += [
        (
            split.split,
            f"{split.num_tokens:,}",
            "not counted" if split.num_documents is None else f"{split.num_documents:,}",
            f"{split.num_shards:,}",
            shown_bytes(split.num_bytes),
        )
        for split in found.splits
    ]
    notes = note_lines(found.notes)
    tables = [*table(rows), *source_lines(found), *lengths_lines(found)]
    return [*lines, "", *tables, *([""] if notes else []), *notes]


def source_lines(found: Glance) -> list[str]:
    """The counts of each named source, and its tokens in each split."""
    if not found.sources:
        return []
    reasons = ["filtered", "empty", "null", "quarantined"]
    if any(one.counts.num_duplicates for one in found.sources.values()):
        reasons.append("duplicates")
    splits = list(dict.fromkeys(split for one in found.sources.values() for split in one.splits))
    rows = [("source", "rows", "documents", *reasons, "text", "tokens", *splits)]
    for name, one in found.sources.items():
        left_out = (getattr(one.counts, f"num_{reason}") for reason in reasons)
        tokens = (one.splits[s].num_tokens if s in one.splits else 0 for s in splits)
        counts = (one.counts.num_rows, one.counts.num_written, *left_out)
        text = shown_bytes(one.counts.text_bytes)
        numbers = (f"{number:,}" for number in (one.num_tokens, *tokens))
        rows.append((name, *(f"{count:,}" for count in counts), text, *numbers))
    return ["", *table(rows)]


def lengths_lines(found: Glance) -> list[str]:
    measured = [(split.split, split.lengths) for split in found.splits if split.lengths]
    if not measured:
        return []
    names = list(measured[0][1].percentiles)
    rows = [("tokens per document", "mean", *names, "longest", "measured")]
    for split, lengths in measured:
        of = "all" if lengths.is_exact else "a sample of"
        rows.append(
            (
                split,
                f"{lengths.mean:,.1f}",
                *(f"{lengths.percentiles[name]:,}" for name in names),
                f"{lengths.max:,}" if lengths.is_exact else f">= {lengths.max:,}",
                f"{of} {lengths.num_documents:,}",
            )
        )
    return ["", *table(rows)]


def table(rows: list[tuple[str, ...]]) -> list[str]:
    """Rows as lines: the first column aligned left, the others right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            f"{cell:<{width}}" if number == 0 else f"{cell:>{width}}"
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
