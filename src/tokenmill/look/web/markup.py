"""HTML and SVG as data: the one place where text becomes markup.

A child that is a string is text, and is escaped when it is written; only an `Element` becomes a
tag. There is no way to pass raw markup through, so no caller can forget to escape. Tags and
attributes come from our code and are checked against a list: a page has no script, no style
attribute and no external link.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tokenmill.wording.escapes import printable

_TAG = re.compile(r"[a-z][a-z0-9]*")
_ATTRIBUTE = re.compile(r"(?!on)[a-zA-Z][a-zA-Z0-9-]*")
_FORBIDDEN_TAGS = frozenset(
    ("script", "iframe", "object", "embed", "base", "form", "link", "img", "style", "meta")
)
_FORBIDDEN_ATTRIBUTES = frozenset(("style", "src", "srcset", "srcdoc", "action", "formaction"))
_VOID = frozenset(["br", "hr", "wbr"])


@dataclass(frozen=True, slots=True)
class Element:
    tag: str
    attributes: tuple[tuple[str, str], ...]
    children: tuple[Node, ...]


Node = str | Element


def element(tag: str, *children: Node | Iterable[Node], **attributes: object) -> Element:
    """An element. `class_` is `class`, an underscore in other names is a hyphen; an attribute that
    is None or False is left out, and one that is True has no value. Raises ValueError for forbidden
    tags and attributes."""
    if not _TAG.fullmatch(tag) or tag in _FORBIDDEN_TAGS:
        raise ValueError(f"no element {tag!r} in a page")
    named = tuple(
        (_name(name), "" if value is True else str(value))
        for name, value in attributes.items()
        if value is not None and value is not False
    )
    for name, value in named:
        if name in _FORBIDDEN_ATTRIBUTES or (name == "href" and not value.startswith("#")):
            raise ValueError(f"no attribute {name}={value!r} in a page")
    return Element(tag, named, tuple(_flat(children)))


def written(node: Node) -> str:
    """The markup of a node."""
    return "".join(_written(node))


def escaped(text: str) -> str:
    """Text escaped for elements and quoted attributes. Control characters, and those that reorder a
    line or are invisible, are shown as escapes: `\\u202e`."""
    return html.escape(printable(text, keep_lines=True))


def _name(name: str) -> str:
    found = name.rstrip("_").replace("_", "-")
    if not _ATTRIBUTE.fullmatch(found):
        raise ValueError(f"no attribute {name!r} in a page")
    return found


def _flat(children: Iterable[Node | Iterable[Node]]) -> Iterator[Node]:
    for child in children:
        if isinstance(child, (str, Element)):
            yield child
        else:
            yield from child


def _written(node: Node) -> Iterator[str]:
    if isinstance(node, str):
        yield escaped(node)
        return
    yield f"<{node.tag}"
    for name, value in node.attributes:
        yield f' {name}="{escaped(value)}"' if value else f" {name}"
    yield ">"
    for child in node.children:
        yield from _written(child)
    if node.tag not in _VOID:
        yield f"</{node.tag}>"
