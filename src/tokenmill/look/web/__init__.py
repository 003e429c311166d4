"""Building blocks of our HTML pages: elements that escape by default, coloured tokens, one style.

element("p", text)            a node; any text in it is escaped when it is written (markup.py)
token_spans(pieces)           tokens as coloured spans, each with its ids (token_spans.py)
STYLE                         the colours of both themes (style.py)
"""

from tokenmill.look.web.markup import Element, Node, element, written
from tokenmill.look.web.style import STYLE
from tokenmill.look.web.token_spans import shown_text, text_runs, token_spans

__all__ = [
    "STYLE",
    "Element",
    "Node",
    "element",
    "shown_text",
    "text_runs",
    "token_spans",
    "written",
]
