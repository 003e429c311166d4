"""Inspect a dataset: a summary, its documents as text, a search through them.

    looked = look_into("data/mine")       opens it and finds its tokenizer (folder.py)
    glance(looked)                        a summary of plain values (glance.py, lengths.py)
    document(looked, "train", 17)         one document's tokens and their place (view.py)
    search_text(looked, ["train"], "…")   documents that contain a text (search.py)

It returns data and prints nothing, and reads only what is shown: a folder of 100 GB opens as fast
as one of 100 kB. Opening checks the sizes of files; `verify` reads them.
"""

from tokenmill.dataset.inspect.folder import LookedInto, look_into
from tokenmill.dataset.inspect.glance import Glance, SplitGlance, glance
from tokenmill.dataset.inspect.lengths import Lengths, Spans, document_spans
from tokenmill.dataset.inspect.search import Hit, Searched, search_ids, search_text
from tokenmill.dataset.inspect.token_bytes import TextPiece, TokenBytes, pieces
from tokenmill.dataset.inspect.view import (
    COUNT_TOKENS,
    WINDOW_TOKENS,
    View,
    document,
    random_document,
    token_offset,
)

__all__ = [
    "COUNT_TOKENS",
    "WINDOW_TOKENS",
    "Glance",
    "Hit",
    "Lengths",
    "LookedInto",
    "Searched",
    "Spans",
    "SplitGlance",
    "TextPiece",
    "TokenBytes",
    "View",
    "document",
    "document_spans",
    "glance",
    "look_into",
    "pieces",
    "random_document",
    "search_ids",
    "search_text",
    "token_offset",
]
