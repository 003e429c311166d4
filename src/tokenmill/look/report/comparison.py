"""Two datasets side by side: what changed from the first to the second."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tokenmill.look.report import words
from tokenmill.look.report.blocks import (
    Row,
    navigation,
    page,
    paragraph,
    section,
    shown_document,
    table,
    tokens_inline,
)
from tokenmill.look.report.charts import figure, keys, length_chart, ratio_chart
from tokenmill.look.report.figures import (
    Figures,
    LengthFigures,
    ShownDocument,
    SplitFigures,
    TokenCount,
)
from tokenmill.look.report.pairs import Pair
from tokenmill.look.web import Element, Node, element
from tokenmill.wording.quantities import shown_bytes

NUM_DOCUMENTS = 4
_ROWS = {
    "num_rows": "rows",
    "num_filtered": "rows filtered",
    "num_empty": "rows empty",
    "num_null": "rows null",
    "num_quarantined": "rows quarantined",
}


def comparison_page(first: Figures, second: Figures, pairs: Sequence[Pair] = ()) -> bytes:
    names = first.glance.folder, second.glance.folder
    sections = [
        one
        for one in (
            _numbers(first, second),
            _making(first, second),
            _lengths(first, second),
            _ratios(first, second),
            _tokens(first, second),
            _kinds(first, second),
            _documents(first, second, pairs),
        )
        if one is not None
    ]
    return page(
        f"{names[0]} and {names[1]}: report",
        [
            element(
                "header",
                element("h1", f"A: {names[0]}, B: {names[1]}"),
                [
                    paragraph(f"{letter}: {words.made(one.glance)} {words.how_measured(one)}")
                    for letter, one in zip("AB", (first, second), strict=True)
                ],
            ),
            navigation(sections),
            element("main", sections),
            element("footer", paragraph("Made by tokenmill report.")),
        ],
    )


def _numbers(first: Figures, second: Figures) -> Element:
    rows = [
        (name, _shown(name, a), _shown(name, b), _change(a, b))
        for name, a, b in _measures(first, second)
        if a is not None or b is not None
    ]
    return section("numbers", "What changed", table(("", "A", "B", "B compared with A"), rows))


def _measures(first: Figures, second: Figures) -> Iterator[tuple[str, float | None, float | None]]:
    a, b = first.glance, second.glance
    yield "tokens", a.num_tokens, b.num_tokens
    yield "documents", a.num_documents, b.num_documents
    yield "size", a.num_bytes, b.num_bytes
    yield "text", a.text_bytes, b.text_bytes
    yield "bytes per token", a.bytes_per_token, b.bytes_per_token
    yield "ids in the vocabulary", _ids(first), _ids(second)
    yield "ids that occur", _seen(first), _seen(second)
    for name, title in _ROWS.items():
        yield title, _counted(first, name), _counted(second, name)
    yield "duplicates", _duplicates(first), _duplicates(second)


def _counted(figures: Figures, name: str) -> int | None:
    return None if figures.proof is None else figures.proof.counts.get(name, 0)


def _ids(figures: Figures) -> int | None:
    tokenizer = figures.glance.tokenizer
    return None if tokenizer is None else int(tokenizer["n_vocab"])


def _seen(figures: Figures) -> int | None:
    """None if only a sample was read: how many there are depends on its size."""
    found = figures.tokens
    return None if found is None or not found.is_exact else found.num_seen


def _duplicates(figures: Figures) -> int | None:
    found = [one.duplicates for one in figures.splits if one.duplicates is not None]
    if not found or not all(one.is_exact for one in found):
        return None
    return sum(one.num_duplicates for one in found)


def _shown(name: str, value: float | None) -> str:
    if value is None:
        return "not known"
    if name in ("size", "text"):
        return shown_bytes(value)
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"


def _change(a: float | None, b: float | None) -> str:
    if a is None or b is None:
        return ""
    if a == b:
        return "the same"
    return f"{b / a - 1:+.1%}" if a else f"+{b:,}"


def _making(first: Figures, second: Figures) -> Element | None:
    """The options that differ."""
    rows: list[Row] = []
    for kind in ("options", "versions"):
        values = [
            {} if one.proof is None else dict(words.plain_rows(getattr(one.proof, kind)))
            for one in (first, second)
        ]
        for name in sorted(values[0].keys() | values[1].keys()):
            said = [value.get(name, "–") for value in values]
            if said[0] != said[1]:
                rows.append((name, *said))
    tokenizers = [one.glance.tokenizer for one in (first, second)]
    if tokenizers[0] != tokenizers[1]:
        rows.insert(0, ("tokenizer", *(_tokenizer(one) for one in (first, second))))
    if not rows:
        return None
    return section("making", "How they were made", table(("", "A", "B"), rows, (0, 1, 2), (1, 2)))


def _tokenizer(figures: Figures) -> str:
    found = figures.glance.tokenizer
    return "not known" if found is None else f"{found['name']}, sha256 {found['sha256'][:12]}"


def _keys(first: Figures, second: Figures, marks: tuple[str, str]) -> Element:
    """The legend."""
    named = zip("AB", (first, second), marks, strict=True)
    return keys((mark, f"{letter}: {one.glance.folder}") for letter, one, mark in named)


def _both(first: Figures, second: Figures) -> Iterator[tuple[SplitFigures, SplitFigures]]:
    others = {one.split: one for one in second.splits}
    for one in first.splits:
        if one.split in others:
            yield one, others[one.split]


def _lengths(first: Figures, second: Figures) -> Element | None:
    shown: list[Node] = []
    for a, b in _both(first, second):
        if a.lengths is not None and b.lengths is not None:
            shown += _length_figure(a.split, a.lengths, b.lengths)
    if not shown:
        return None
    legend = _keys(first, second, ("bar", "bar2"))
    return section("lengths", "Document lengths", legend, shown)


def _length_figure(split: str, a: LengthFigures, b: LengthFigures) -> Iterator[Node]:
    label = f"{split}: tokens per document in both, as shares of their documents"
    caption = "Tokens per document, on a log scale, as shares of the documents of each."
    yield element("h3", split)
    yield figure(lambda width: length_chart(width, [("A", a), ("B", b)], label), caption)
    heads = ("", "mean", *a.percentiles, "longest", "measured on")
    yield table(
        heads,
        [
            (
                letter,
                f"{one.mean:,.1f}",
                *(f"{value:,}" for value in one.percentiles.values()),
                words.longest(one),
                words.measured(one),
            )
            for letter, one in zip("AB", (a, b), strict=True)
        ],
        (0, len(heads) - 1),
    )


def _ratios(first: Figures, second: Figures) -> Element | None:
    shown: list[Node] = []
    for a, b in _both(first, second):
        if all(one.stretches and one.stretches[0].num_bytes is not None for one in (a, b)):
            shown += _ratio_figure(a, b)
    if not shown:
        return None
    legend = _keys(first, second, ("line", "line2"))
    return section("ratio", "Bytes per token along the corpus", legend, shown)


def _ratio_figure(a: SplitFigures, b: SplitFigures) -> Iterator[Node]:
    label = f"{a.split}: bytes per token along both"
    caption = "Bytes of text per token, from the beginning to the end of each."
    yield element("h3", a.split)
    yield figure(lambda width: ratio_chart(width, [("A", a), ("B", b)], label), caption)


def _tokens(first: Figures, second: Figures) -> Element | None:
    """The most frequent ids of both, if they have the same tokenizer."""
    if first.tokens is None or second.tokens is None or _is_other_tokenizer(first, second):
        return None
    a = {one.token: one for one in first.tokens.most}
    b = {one.token: one for one in second.tokens.most}
    rows = [
        (
            str(token),
            _piece(a.get(token) or b[token]),
            f"{a[token].share:.2%}" if token in a else "not among the first 30",
            f"{b[token].share:.2%}" if token in b else "not among the first 30",
        )
        for token in [*a, *(token for token in b if token not in a)]
    ]
    return section(
        "tokens", "The most frequent tokens", table(("id", "token", "A", "B"), rows, (1,))
    )


def _piece(one: TokenCount) -> Node:
    return "" if one.piece is None else tokens_inline([one.piece])


def _is_other_tokenizer(first: Figures, second: Figures) -> bool:
    tokenizers = [one.glance.tokenizer for one in (first, second)]
    return None in tokenizers or tokenizers[0] != tokenizers[1]


def _kinds(first: Figures, second: Figures) -> Element | None:
    if first.tokens is None or second.tokens is None:
        return None
    a, b = ({one.kind: one for one in f.kinds} for f in (first.tokens, second.tokens))
    if not a or not b:
        return None
    rows = []
    for kind in [*a, *(kind for kind in b if kind not in a)]:
        known = [found.get(kind) for found in (a, b)]
        rows.append(
            (
                kind,
                *("" if one is None else f"{one.share:.2%}" for one in known),
                *(
                    "" if one is None else f"{one.num_ids - one.num_seen:,} of {one.num_ids:,}"
                    for one in known
                ),
            )
        )
    unseen = [
        "never used" if one.is_exact else "not in the sample"
        for one in (first.tokens, second.tokens)
    ]
    heads = ("kind", "A: share", "B: share", f"A: ids {unseen[0]}", f"B: ids {unseen[1]}")
    return section("kinds", "Tokens by kind", table(heads, rows))


def _documents(first: Figures, second: Figures, pairs: Sequence[Pair]) -> Element | None:
    if not first.documents and not second.documents:
        return None
    if pairs:
        return section(
            "documents",
            "The same documents",
            paragraph("Each change of colour is a new token; the text is the same in both."),
            [_pair(pair.first, pair.second, pair.first.why.capitalize()) for pair in pairs],
        )
    rows = zip(first.documents[:NUM_DOCUMENTS], second.documents[:NUM_DOCUMENTS], strict=False)
    return section(
        "documents",
        "Documents",
        paragraph("The datasets do not hold the same documents in the same order."),
        [_pair(a, b, None) for a, b in rows],
    )


def _pair(a: ShownDocument, b: ShownDocument, why: str | None) -> Element:
    return element(
        "div",
        shown_document(a, f"A: {why or a.why}"),
        shown_document(b, f"B: {why or b.why}"),
        class_="pair",
    )
