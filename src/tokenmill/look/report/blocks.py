"""The building blocks of a page: sections, tables, commands, tokens."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence

from tokenmill.dataset.inspect import TextPiece
from tokenmill.look.report.figures import ShownDocument
from tokenmill.look.web import STYLE, Element, Node, element, token_spans, written
from tokenmill.look.web.markup import escaped
from tokenmill.wording.plural import counted

MARK = "<!-- tokenmill report -->"  # identifies a report, which may be replaced

Row = Sequence[Node]


def page(title: str, body: Iterable[Node]) -> bytes:
    """A whole HTML file. It loads nothing: its policy allows only its own style."""
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    text = "".join(map(written, body))
    return (
        f'<!doctype html>\n{MARK}\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        f"<title>{escaped(title)}</title><style>{STYLE}</style></head>\n<body>{text}</body></html>\n"
    ).encode()


def section(anchor: str, title: str, *children: Node | Iterable[Node]) -> Element:
    return element("section", element("h2", title), *children, id=anchor)


def navigation(sections: Sequence[Element]) -> Element:
    links = []
    for one in sections:
        heading = one.children[0]
        assert isinstance(heading, Element)
        anchor = dict(one.attributes)["id"]
        links.append(element("li", element("a", heading.children, href=f"#{anchor}")))
    return element("nav", element("ul", links), aria_label="Sections")


def paragraph(*children: Node, soft: bool = False) -> Element:
    return element("p", *children, class_="soft" if soft else None)


def command(text: str) -> Element:
    return element("pre", text)


def table(
    heads: Sequence[str], rows: Iterable[Row], left: Iterable[int] = (0,), wide: Iterable[int] = ()
) -> Element:
    """Columns are right-aligned numbers unless they are listed in `left`; a column in `wide` may
    break anywhere."""
    left, wide = set(left), set(wide)

    def cell(tag: str, number: int, content: Node) -> Element:
        names = ["n"] if number not in left else ["w"] if number in wide else []
        scope = "col" if tag == "th" else None
        return element(tag, content, class_=" ".join(names) or None, scope=scope)

    head = element("tr", [cell("th", number, text) for number, text in enumerate(heads)])
    body = [
        element("tr", [cell("td", number, content) for number, content in enumerate(row)])
        for row in rows
    ]
    whole = element("table", element("thead", head), element("tbody", body))
    return element("div", whole, class_="wrap", tabindex=0, role="group", aria_label="table")


def details(summary: str, *children: Node | Iterable[Node], is_open: bool = False) -> Element:
    return element("details", element("summary", summary), *children, open=is_open)


def big_numbers(named: Iterable[tuple[str, str, str]]) -> Element:
    """Name, number, and a smaller line below."""
    return element(
        "dl",
        [
            element(
                "div",
                element("dt", name),
                element("dd", number, [element("small", below)] if below else []),
            )
            for name, number, below in named
        ],
        class_="big",
    )


def tokens_inline(found: Sequence[TextPiece]) -> Element:
    """A few tokens in a cell."""
    spans: list[Node] = []
    for span in token_spans(found):
        spans += [span, " "]
    return element("span", spans, class_="tok")


def shown_document(one: ShownDocument, title: str) -> Element:
    """A document: where it is, its first tokens in colour, its ids, and the command for it."""
    num_tokens = one.place.num_tokens
    said = [counted(num_tokens, "token")]
    if one.num_bytes is not None:
        said.append(counted(one.num_bytes, "byte"))
    if one.bytes_per_token is not None:
        said.append(f"{one.bytes_per_token:.2f} bytes per token")
    what = f"document {one.place.document:,}" if one.place.document is not None else ""
    what = what or f"{'document' if one.is_document else 'tokens'} at token {one.place.start:,}"
    cut = f"; the first {len(one.ids):,} are shown" if num_tokens > len(one.ids) else ""
    ids = "[" + ", ".join(map(str, one.ids)) + "]"
    text: list[Node] = [*token_spans(one.pieces)] if one.pieces else [ids]
    return element(
        "article",
        element("h3", title),
        paragraph(f"{one.place.split}, {what}: {', '.join(said)}{cut}.", soft=True),
        element("div", text, class_="doc", tabindex=0, role="group", aria_label="tokens"),
        [details(f"{counted(len(one.ids), 'id')} as a list", command(ids))] if one.pieces else [],
        command(one.place.command),
    )
