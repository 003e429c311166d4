"""The panels of a page.

Of each split, with charts: its size, document lengths, bytes per token along it. Of all: tokens,
origins, and what the dataset is and how to check it.
"""

from __future__ import annotations

from collections.abc import Iterator

from tokenmill.dataset.recipe import FROM_FILE
from tokenmill.look.report import words
from tokenmill.look.report.blocks import command, details, paragraph, section, table, tokens_inline
from tokenmill.look.report.charts import figure, length_chart, ratio_chart, share_bar, shown_range
from tokenmill.look.report.figures import (
    DuplicateFigures,
    Figures,
    LengthFigures,
    SourceFigures,
    SplitFigures,
    TokenFigures,
)
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


def tokens_panel(figures: Figures) -> Element | None:
    found = figures.tokens
    if found is None:
        return None
    beyond = ""
    if found.num_beyond:
        beyond = f" {counted(found.num_beyond, 'token')} have ids beyond the vocabulary."
    return section(
        "tokens",
        "Tokens",
        paragraph(f"{words.token_use(found)}{beyond}"),
        table(
            ("id", "token", "times", "share", ""),
            [
                (
                    str(one.token),
                    tokens_inline([one.piece]) if one.piece is not None else "",
                    f"{one.num_times:,}",
                    f"{one.share:.2%}",
                    share_bar(one.share, found.most[0].share),
                )
                for one in found.most
            ],
            (1, 4),
        ),
        _kinds(found),
    )


def _kinds(found: TokenFigures) -> Iterator[Node]:
    if not found.kinds:
        return
    unseen = words.unseen(found)
    yield element("h3", f"By kind, and what is {unseen}")
    yield table(
        ("kind", "ids", unseen, "share of tokens", f"some that are {unseen}"),
        [
            (
                one.kind,
                f"{one.num_ids:,}",
                f"{one.num_ids - one.num_seen:,}",
                f"{one.share:.2%}",
                tokens_inline(one.unseen) if one.unseen else "",
            )
            for one in found.kinds
        ],
        (0, 4),
        (4,),
    )


def _counts(source: SourceFigures) -> tuple[str, ...]:
    found = source.num_rows, source.num_documents, source.num_tokens
    return tuple(f"{number or 0:,}" for number in found)


def sources_panel(figures: Figures) -> Element | None:
    if not figures.sources:
        return None
    has_counts = any(one.num_tokens is not None for one in figures.sources)
    heads = ("source", "files", "size", *(("rows", "documents", "tokens") if has_counts else ()))
    rows: list[tuple[Element | str, ...]] = [
        (
            element("code", one.name),
            f"{one.num_files:,}",
            shown_bytes(one.num_bytes),
            *(_counts(one) if has_counts else ()),
        )
        for one in figures.sources
    ]
    more = figures.num_sources - len(figures.sources)
    return section(
        "sources",
        "Sources",
        table(heads, rows, (0,), (0,)),
        [paragraph(f"and {more:,} more: see tokenmill.json", soft=True)] if more else [],
    )


def quarantine_panel(figures: Figures) -> Element | None:
    found = figures.quarantine
    if figures.proof is None:
        return None
    if not found.num_rows:
        return section("quarantine", "Quarantine", paragraph("No bad rows: nothing was left out."))
    partly = "" if found.is_listed else " The list could not be read as a whole."
    return section(
        "quarantine",
        "Quarantine",
        paragraph(
            f"{found.num_rows:,} of {counted(figures.proof.counts['num_rows'], 'row')} could not "
            f"be encoded and were left out; tokenmill-quarantine.jsonl lists them.{partly}"
        ),
        table(
            ("reason", "rows"),
            [(reason, f"{number:,}") for reason, number in found.reasons],
            (0,),
            (0,),
        ),
        details(
            "the first rows",
            table(
                ("file", "place", "reason"),
                [(element("code", path), place, reason) for path, place, reason in found.rows],
                (0, 1, 2),
                (0, 2),
            ),
        ),
    )


def duplicates_panel(figures: Figures) -> Element | None:
    known = [(one.split, one.duplicates) for one in figures.splits if one.duplicates is not None]
    if not known:
        return None
    shown: list[Node] = []
    for split, found in known:
        shown += [paragraph(f"{split}: {words.duplicates(found)}"), *_repeated(found)]
    return section("duplicates", "Duplicates", shown)


def _repeated(found: DuplicateFigures) -> Iterator[Node]:
    if found.repeated:
        yield table(
            ("times", "tokens", "the first, and the second"),
            [
                (
                    f"{one.num_times:,}",
                    f"{one.first.num_tokens:,}",
                    element(
                        "span",
                        element("code", one.first.command),
                        element("br"),
                        element("code", one.second.command),
                    ),
                )
                for one in found.repeated
            ],
            (2,),
        )


def proof_panel(figures: Figures) -> Element:
    proof, found = figures.proof, figures.glance
    if proof is None:
        told = [
            paragraph(f"The {name} is inferred: {why}.") for name, why in found.inferred.items()
        ]
        return section(
            "proof",
            "Proof",
            paragraph(
                "There is no tokenmill.json, so nothing says what these shards should hold: the "
                "figures below describe what is in the files."
            ),
            told,
            paragraph("To check what can be checked without one:"),
            command(figures.verify_command),
        )
    files = [
        (
            element("code", one.name),
            f"{one.num_tokens:,}" if one.num_tokens else "",
            shown_bytes(one.num_bytes),
            element("code", one.sha256),
            "whole file" if one.num_pieces == 1 else f"first of {one.num_pieces:,} pieces",
        )
        for one in proof.files
    ]
    more = proof.num_files - len(proof.files)
    options = {name: value for name, value in proof.options.items() if name != "named"}
    return section(
        "proof",
        "Proof",
        paragraph(
            f"The sizes of all {counted(proof.num_files, 'file')} match the manifest, "
            "tokenmill.json. This report did not hash them; to check every hash, id and count:",
        ),
        command(figures.verify_command),
        paragraph("The manifest's own sha256: ", element("code", proof.manifest_sha256)),
        paragraph(f"{counted(proof.counts['num_rows'], 'row')} = {proof.shown_counts}."),
        _how_it_was_made(figures),
        command(proof.command),
        [paragraph(words.origin(proof))] if proof.converted_from else [],
        details(
            f"{counted(proof.num_files, 'file')} and their sha256",
            table(("file", "tokens", "size", "sha256", "of"), files, (0, 3, 4), (3,)),
            [paragraph(f"and {more:,} more: see tokenmill.json", soft=True)] if more else [],
        ),
        details(
            "options and versions",
            table(("option", "value"), words.plain_rows(options), (0, 1), (1,)),
            table(("version of", ""), words.plain_rows(proof.versions), (0, 1)),
        ),
    )


def _how_it_was_made(figures: Figures) -> Element:
    if figures.proof is None or figures.proof.command != FROM_FILE:
        return paragraph("To make it again (SOURCE stands for the inputs):")
    printing = element("code", f"{figures.inspect_command} --config")
    return paragraph("To make it again, with what ", printing, " prints as tokenmill.toml:")
