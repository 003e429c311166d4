"""A reader of JSON lines by an outside package, whose code can fail: tokenmill's way to run yours.

Installed as such packages are, by an entry point of the group `tokenmill.readers`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import mishap
import pyarrow.compute as pc

from tokenmill.corpus.readers.jsonl import JsonlReader
from tokenmill.corpus.rows import Rows
from tokenmill.corpus.spans import Span


class FaultyReader(JsonlReader):
    def rows(self, span: Span) -> Iterator[Rows]:
        mark = os.environ.get("PEER_RAISE")
        if not os.path.basename(span.input.path).startswith(os.environ.get("PEER_RAISE_IN", "")):
            mark = None
        for rows in super().rows(span):
            if mark:
                for text in rows.texts.filter(pc.match_substring(rows.texts, mark)):
                    mishap.document(text.as_py())
            yield rows
