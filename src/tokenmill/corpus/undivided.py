"""Notes on text files that are one document each, but were probably meant to be many.

Looks at the first 64 KiB of the largest uncompressed file, and at the sizes of all.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterable, Iterator

from tokenmill.corpus.opening import opened
from tokenmill.corpus.spans import HUB_SCHEME, Input
from tokenmill.errors import TokenmillError
from tokenmill.storage.store import store_of
from tokenmill.wording.quantities import shown_bytes

MARKERS = ("<|endoftext|>", "<|end_of_text|>")  # common separators of documents
LARGE_BYTES = 4_000_000  # more than nearly all books
_HEAD_BYTES = 1 << 16


def notes_on_undivided(inputs: Iterable[Input]) -> Iterator[str]:
    """At most one note on the text files of a source without --separator."""
    texts = [source for source in inputs if source.kind == "text"]
    plain = [source for source in texts if not source.compression and _is_near(source)]
    if plain:
        source = max(plain, key=_size)
        if marker := _marker_in(_head(source)):
            yield (
                f"{source.name} has {marker} in it, as text; without --separator the file is one "
                f"document: --separator {shlex.quote(marker)} makes a document of each piece"
            )
            return
    large = [source for source in texts if source.num_bytes >= LARGE_BYTES]
    if large:
        largest = max(large, key=_size)
        more = f", and so are {len(large) - 1:,} other large files" if len(large) > 1 else ""
        yield (
            f"{largest.name}, {shown_bytes(largest.num_bytes)}, is one document{more}: "
            r"--separator '\n\n' would make a document of each paragraph"
        )


def _is_near(source: Input) -> bool:
    """Whether reading its head costs nothing, or is worth a request."""
    if source.name.startswith(HUB_SCHEME):
        return False
    return store_of(source.path).has_quick_calls or source.num_bytes >= LARGE_BYTES


def _size(source: Input) -> int:
    return source.num_bytes


def _head(source: Input) -> bytes:
    head = b""
    with contextlib.suppress(OSError, TokenmillError), opened(source, [(0, _HEAD_BYTES)]) as file:
        head = file.read(min(_HEAD_BYTES, source.num_bytes))
    return head


def _marker_in(head: bytes) -> str | None:
    """The marker between the documents of a file, if it occurs more than once."""
    return next((marker for marker in MARKERS if head.count(marker.encode()) > 1), None)
