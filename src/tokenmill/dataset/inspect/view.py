"""One document, or the surroundings of a token: the ids, and their place in the dataset.

A document is found by its number through the manifest's marks or the format's own index. By a
token, it is found by searching outwards from it, without counting from the start. So a place in a
foreign 100 GB file is shown at once too, but without the document's number.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokenmill.dataset.inspect.folder import LookedInto
from tokenmill.dataset.inspect.token_bytes import pieces
from tokenmill.dataset.stream import MAX_DOCUMENT_TOKENS, READ_TOKENS, Stream
from tokenmill.errors import ConfigError

# Tokens around a token, if no document is known.
WINDOW_TOKENS = 256
# Without a manifest, numbers of documents are counted up to here and not beyond.
COUNT_TOKENS = 1 << 29
# The same over a network, with or without a manifest, whose marks are further apart.
FAR_COUNT_TOKENS = 1 << 18
_STEP_TOKENS = 1 << 16
_JOINED_BY_LIBRARY = ("huggingface", "sentencepiece", "sentencepiece-library", "vocab-merges")


@dataclass(frozen=True)
class View:
    """Tokens to show. Positions are counted from the start of the split."""

    split: str
    document: int | None  # its number; None: not known, or not a document
    is_document: bool
    start: int  # of the document, or of the window
    stop: int
    shown_start: int  # of what `ids` holds
    shown_stop: int
    token_offset: int | None  # the token that was asked for
    shard: str
    shard_start: int  # the position of the first token in that shard
    last_shard: str
    num_bytes: int | None  # of the whole text; None: no tokenizer, or too much
    ids: tuple[int, ...]
    kept: dict[str, Any] | None = None  # of the document (--keep)

    @property
    def num_tokens(self) -> int:
        return self.stop - self.start

    def to_plain(self, looked: LookedInto) -> dict[str, Any]:
        plain = {
            "split": self.split,
            "document": self.document,
            "is_document": self.is_document,
            "start": self.start,
            "num_tokens": self.num_tokens,
            "num_bytes": self.num_bytes,
            "token_offset": self.token_offset,
            "shard": self.shard,
            "shard_start": self.shard_start,
            "last_shard": self.last_shard,
            "shown_start": self.shown_start,
            "ids": list(self.ids),
            **({} if self.kept is None else {"kept": self.kept}),
        }
        if looked.encoding is None or looked.token_bytes is None:
            return {**plain, "text": None}
        found = pieces(looked.token_bytes, self.ids)
        if looked.encoding.identity.kind in _JOINED_BY_LIBRARY:
            # The library has its own rules for joining tokens (it drops a first space, for
            # example).
            known = [i for piece in found if piece.kind == "text" for i in piece.ids]
            return {**plain, "text": looked.encoding.decode(known)}
        text = "".join(piece.text for piece in found if piece.kind == "text")
        return {**plain, "text": text.encode(errors="surrogateescape").decode(errors="replace")}


def document(looked: LookedInto, split: str | None, number: int, max_tokens: int) -> View:
    """The document of that number; its first `max_tokens` tokens are in the view."""
    stream = looked.stream(split)
    _require_documents(looked, stream)
    found = stream.document(number)
    if found is None:
        raise _no_such_document(looked, stream, number)
    return _view(looked, stream, found, number, max_tokens)


def random_document(
    looked: LookedInto, split: str | None, seed: int | None, max_tokens: int
) -> View:
    """A random document, all equally likely; if documents are not counted, the one at a random
    token, which is more often a long one."""
    stream = looked.stream(split)
    _require_documents(looked, stream)
    rng = random.Random(seed)
    count = looked.num_documents(stream.split)
    if count and _is_counted_quickly(looked, stream, stream.num_tokens):
        return document(looked, stream.split, rng.randrange(count), max_tokens)
    if not stream.num_tokens:
        raise ConfigError(f"{stream.split} is empty", hint="choose another with --split")
    return token_offset(looked, stream.split, rng.randrange(stream.num_tokens), max_tokens)


def token_offset(
    looked: LookedInto,
    split: str | None,
    token: int,
    max_tokens: int,
    window_tokens: int = WINDOW_TOKENS,
) -> View:
    """The document that holds a token of the split; if documents are unknown, `window_tokens`
    around the token."""
    stream = looked.stream(split)
    if not 0 <= token < stream.num_tokens:
        raise ConfigError(
            f"{stream.split} has no token {token:,}: they are numbered 0 to "
            f"{stream.num_tokens - 1:,}"
            if stream.num_tokens
            else f"{stream.split} is empty",
            hint=f"--token-offset {max(0, stream.num_tokens - 1)}",
        )
    if not stream.knows_documents:
        half = window_tokens // 2
        found = max(0, token - half), min(stream.num_tokens, token + max(1, half))
        return _view(looked, stream, found, None, max_tokens, token)
    bounds = _extent(looked, stream, token)
    number = None
    if _is_counted_quickly(looked, stream, token):
        number = stream.document_at(token)
    if bounds is None:
        number = stream.document_at(token)
        bounds = None if number is None else stream.document(number)
    assert bounds is not None, "knows_documents"
    return _view(looked, stream, bounds, number, max_tokens, token)


def _is_counted_quickly(looked: LookedInto, stream: Stream, token: int) -> bool:
    """Whether the documents before a token can be counted without a long wait."""
    if looked.dataset.manifest is not None and looked.dataset.files.is_local:
        return True
    if stream.has_boundaries:
        return looked.is_indexed_quickly(stream.split)
    return token <= (COUNT_TOKENS if looked.dataset.files.is_local else FAR_COUNT_TOKENS)


def _view(
    looked: LookedInto,
    stream: Stream,
    bounds: tuple[int, int],
    number: int | None,
    max_tokens: int,
    token: int | None = None,
) -> View:
    start, stop = bounds
    shown_start, shown_stop = start, stop
    if stop - start > max_tokens:
        if token is not None:
            shown_start = max(start, min(token - max_tokens // 2, stop - max_tokens))
        shown_stop = shown_start + max_tokens
    shard, shard_start = stream.shard_at(start)
    last_shard = stream.shard_at(max(start, stop - 1))[0]
    return View(
        split=stream.split,
        document=number,
        is_document=stream.knows_documents,
        start=start,
        stop=stop,
        shown_start=shown_start,
        shown_stop=shown_stop,
        token_offset=token,
        shard=shard.name,
        shard_start=shard_start,
        last_shard=last_shard.name,
        num_bytes=_num_bytes(looked, stream, start, stop),
        ids=tuple(stream.tokens(shown_start, shown_stop).tolist()),
        kept=looked.kept(stream.split, number),
    )


def _extent(looked: LookedInto, stream: Stream, token: int) -> tuple[int, int] | None:
    """The bounds of the document at a token, searched outwards up to MAX_DOCUMENT_TOKENS, because
    the EOT ids may belong to another tokenizer. None if the bounds are not found."""
    has_eot = looked.dataset.eot in ("append", "prepend")
    # Over a network, reading around a token is cheaper than the ends of all documents of a shard.
    if stream.has_boundaries and (looked.dataset.files.is_local or not has_eot):
        shard, within = stream.shard_at(token)
        ends = shard.open().ends()
        assert ends is not None, "has_boundaries"
        number = int(np.searchsorted(ends, within, "right"))
        first = int(ends[number - 1]) if number else 0
        return token - within + first, token - within + int(ends[number])
    if not has_eot:
        return None
    eot_id = looked.dataset.eot_id
    is_append = looked.dataset.eot == "append"
    middle = token + (not is_append)
    end, most = middle, min(stream.num_tokens, middle + MAX_DOCUMENT_TOKENS)
    while end < most:
        stop = min(most, end + _STEP_TOKENS)
        found = np.flatnonzero(stream.tokens(end, stop) == eot_id)
        if len(found):
            end += int(found[0]) + is_append
            break
        end = stop
    start, least = middle, max(0, middle - MAX_DOCUMENT_TOKENS)
    while start > least:
        first = max(least, start - _STEP_TOKENS)
        found = np.flatnonzero(stream.tokens(first, start) == eot_id)
        if len(found):
            start = first + int(found[-1]) + is_append
            break
        start = first
    return start, end


def _num_bytes(looked: LookedInto, stream: Stream, start: int, stop: int) -> int | None:
    table = looked.token_bytes
    if table is None or stop - start > MAX_DOCUMENT_TOKENS:
        return None
    return sum(
        table.num_bytes(stream.tokens(first, min(stop, first + READ_TOKENS)))
        for first in range(start, stop, READ_TOKENS)
    )


def _require_documents(looked: LookedInto, stream: Stream) -> None:
    if stream.knows_documents:
        return
    if looked.dataset.manifest is None and looked.dataset.eot_id is None:
        raise ConfigError(
            f"{looked.dataset.name} does not say where documents end",
            hint="name the tokenizer whose EOT ids separate them: --tokenizer gpt2; "
            "or look at a place: --token-offset 0",
        )
    raise ConfigError(
        f"{looked.dataset.name} does not say where documents end: EOT ids do not separate them",
        hint="look at a place: --token-offset 0",
    )


def _no_such_document(looked: LookedInto, stream: Stream, number: int) -> ConfigError:
    count = looked.num_documents(stream.split)
    if count is None:
        last = stream.document_at(stream.num_tokens - 1) if stream.num_tokens else None
        count = 0 if last is None else last + 1
    if not count:
        return ConfigError(f"{stream.split} has no documents", hint="choose another with --split")
    return ConfigError(
        f"{stream.split} has no document {number:,}: they are numbered 0 to {count - 1:,}",
        hint=f"--doc {count - 1} is the last",
    )
