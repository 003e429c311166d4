"""A finished dataset's splits as batches of whole documents: what convert feeds to shards.py.

Each shard of the source is compared with its sha256 as it is opened: damage is not passed on under
a fresh manifest.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokenmill import mirror, storage
from tokenmill.dataset import Dataset, path_inside
from tokenmill.errors import IntegrityError
from tokenmill.formats import Layout, ShardReader
from tokenmill.manifest import Manifest
from tokenmill.shards import Batch
from tokenmill.stream import Documents, Stream, StreamShard

READ_TOKENS = 4 << 20


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a split: what comes before it."""

    num_documents: int = 0
    num_tokens: int = 0


class CheckedSource:
    """The splits of `source`, in what the layout stores tokens as."""

    def __init__(self, source: Dataset, origin: Manifest, layout: Layout) -> None:
        _require_side_files(source, origin)
        self._layout = layout
        self._dtype = np.dtype(layout.dtype).newbyteorder("<")
        self._is_strange = source.manifest is None
        self._max_id = origin.identity["encoding"]["max_token_value"]
        self._held = contextlib.ExitStack()
        self._streams = {
            split: _checked_stream(source, origin, stream, self._held)
            for split, stream in source.streams.items()
        }

    def batches(self, split: str, start: Position) -> Iterator[tuple[Batch, Position]]:
        """The split from `start` on, where a batch must begin; with each, where it ends.

        Where batches begin does not depend on `start`.
        """
        if split not in self._streams:
            return
        documents, tokens = start.num_documents, start.num_tokens
        for found in self._streams[split].documents(READ_TOKENS, documents, tokens):
            documents += 0 if found.lengths is None else len(found.lengths)
            tokens += len(found.tokens)
            yield self._as_batch(found, split), Position(documents, tokens)

    def close(self) -> None:
        self._held.close()

    def _as_batch(self, documents: Documents, split: str) -> Batch:
        tokens = documents.tokens
        # Of our own datasets this is known; in others' shards anything may stand.
        if len(tokens) and (self._is_strange or tokens.dtype != self._dtype):
            low, high = int(tokens.min()), int(tokens.max())
            if low < 0 or high > self._max_id:
                raise IntegrityError(
                    f"{split}: token id {low if low < 0 else high} is not one of "
                    f"{self._layout.encoding}, whose ids end at {self._max_id}",
                    hint="is --tokenizer the one that made these tokens?",
                )
            tokens = tokens.astype(self._dtype, copy=False)
        data: Any = np.ascontiguousarray(tokens).view(np.uint8)
        width = self._dtype.itemsize
        return Batch(
            len(tokens),
            lambda start, stop: [data[start * width : stop * width]],
            documents.lengths if self._layout.has_boundaries else None,
        )


def _require_side_files(source: Dataset, origin: Manifest) -> None:
    for file in origin.files if source.manifest is not None else ():
        if file.split is None:
            _require_sha256(source.folder, file.name, file.sha256)


def _checked_stream(
    source: Dataset, origin: Manifest, stream: Stream, held: contextlib.ExitStack
) -> Stream:
    """The stream, whose shards are compared with their sha256 when they are opened. The last one
    that was is kept at hand: it is read once more."""
    if source.manifest is None:
        return stream
    sha256 = {file.name: file.sha256 for file in origin.shards}

    def opened(shard: StreamShard) -> ShardReader:
        held.close()
        held.enter_context(mirror.held(path_inside(source.folder, shard.name)))
        _require_sha256(source.folder, shard.name, sha256[shard.name])
        reader = shard.open()
        if reader.num_tokens != shard.num_tokens:
            raise IntegrityError(
                f"{shard.name} holds {reader.num_tokens:,} tokens, but the manifest says "
                f"{shard.num_tokens:,}"
            )
        return reader

    return stream.with_shards(
        [dataclasses.replace(s, open=functools.partial(opened, s)) for s in stream.shards]
    )


def _require_sha256(folder: str, name: str, expected: str) -> None:
    path = path_inside(folder, name)
    with mirror.in_order(path) as file:
        found = storage.sha256_of(file)
    if found != expected:
        raise IntegrityError(
            f"{path} is not the file that the manifest describes: its sha256 differs",
            hint=f"tokenmill verify {folder}",
        )
