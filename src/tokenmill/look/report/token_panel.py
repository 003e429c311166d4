"""The panel of tokens: the most frequent, and those never used, by kind."""

from __future__ import annotations

from collections.abc import Iterator

from tokenmill.look.report import words
from tokenmill.look.report.blocks import paragraph, section, table, tokens_inline
from tokenmill.look.report.charts import share_bar
from tokenmill.look.report.figures import Figures, TokenFigures
from tokenmill.look.web import Element, Node, element
from tokenmill.wording.plural import counted


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
