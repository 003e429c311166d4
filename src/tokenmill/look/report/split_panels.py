"""The panels with charts of each split: its size, document lengths, bytes per token along it."""

from __future__ import annotations

from collections.abc import Iterator

from tokenmill.look.report import words
from tokenmill.look.report.axes import figure
from tokenmill.look.report.blocks import details, paragraph, section, table
from tokenmill.look.report.charts import length_chart, ratio_chart, shown_range
from tokenmill.look.report.figures import Figures, LengthFigures, SplitFigures
from tokenmill.look.web import Element, Node, element
from tokenmill.wording.plural import counted
from tokenmill.wording.quantities import shown_bytes


def splits_panel(figures: Figures) -> Element:
    found = figures.glance
    rows = [
        (
            one.split,
            f"{one.num_tokens:,}",
            words.share(one.num_tokens, found.num_tokens),
            "not counted" if one.num_documents is None else f"{one.num_documents:,}",
            f"{one.num_shards:,}",
            shown_bytes(one.num_bytes),
        )
        for one in found.splits
    ]
    heads = ("split", "tokens", "share", "documents", "shards", "size")
    rule = [paragraph(f"Validation: {found.split_rule}.")] if found.split_rule else []
    return section("splits", "Splits", table(heads, rows), rule)


def lengths_panel(figures: Figures) -> Element:
    known = [(one.split, one.lengths) for one in figures.splits if one.lengths is not None]
    if not known:
        return section(
            "lengths",
            "Document lengths",
            paragraph("Nothing says where documents end. ", figures.missing or ""),
        )
    shown: list[Node] = []
    for split, lengths in known:
        shown += _length_figure(split, lengths)
    heads = ("split", "mean", *known[0][1].percentiles, "longest")
    rows = [
        (
            split,
            f"{one.mean:,.1f}",
            *(f"{value:,}" for value in one.percentiles.values()),
            words.longest(one),
        )
        for split, one in known
    ]
    return section("lengths", "Document lengths", table(heads, rows), shown)


def _length_figure(split: str, lengths: LengthFigures) -> Iterator[Node]:
    measured = words.measured(lengths)
    label = f"{split}: how many documents have how many tokens; half have up to "
    label += f"{lengths.percentiles['p50']:,}"
    caption = (
        "Tokens per document, with EOT ids, on a log scale; dashed lines are percentiles. "
        f"Measured on {measured}."
    )
    yield element("h3", split)
    yield figure(lambda width: length_chart(width, [(split, lengths)], label), caption)
    rows = [
        (
            shown_range(one),
            f"{one.num_documents:,}",
            words.share(one.num_documents, lengths.num_documents),
        )
        for one in lengths.bins
    ]
    yield details(f"the numbers: {split}", table(("length", "documents", "share"), rows))


def ratios_panel(figures: Figures) -> Element:
    known = [one for one in figures.splits if any(s.num_bytes is not None for s in one.stretches)]
    if not known:
        why = figures.missing or "there are no tokens"
        return section("ratio", "Bytes per token", paragraph(f"Not known: {why}."))
    shown: list[Node] = []
    for one in known:
        shown += _ratio_figure(one)
    return section("ratio", "Bytes per token along the corpus", shown)


def _ratio_figure(split: SplitFigures) -> Iterator[Node]:
    num, name = len(split.stretches), split.split
    how = "all tokens" if split.is_exact else f"{split.num_read // num:,} tokens of each"
    equal = counted(num, "equal stretch", "equal stretches")
    caption = f"Bytes of text per token in {equal}; {how} were read."
    label = f"{name}: bytes per token along the corpus; {words.outlying(split)}"
    yield element("h3", name)
    yield figure(lambda width: ratio_chart(width, [(name, split)], label), caption)
    said = words.outlying(split).capitalize()
    if not split.outliers:
        yield paragraph(f"{said}.")
    else:
        yield paragraph(f"{said}. To look there:")
        yield table(
            ("", "from token", "bytes per token", "command"),
            [
                (
                    letter,
                    f"{split.stretches[number].start:,}",
                    f"{split.stretches[number].bytes_per_token:.2f}",
                    element("code", line),
                )
                for letter, (number, line) in zip("ABCDEFGH", split.outliers, strict=False)
            ],
            (0, 3),
        )
    yield details(
        f"the numbers: {name}",
        table(
            ("from token", "to", "bytes per token"),
            [
                (f"{one.start:,}", f"{one.stop:,}", f"{one.bytes_per_token:.2f}")
                for one in split.stretches
                if one.bytes_per_token is not None
            ],
            (),
        ),
    )
