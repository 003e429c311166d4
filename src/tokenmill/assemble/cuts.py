"""Where shards and their pieces end: a function of the token stream alone.

A shard ends where it is full, in the middle of a document if need be. If the format stores document
boundaries, a shard ends before the document that does not fit; a document larger than a shard gets
its own shard. A piece of a shard's file ends at a fixed byte, wherever that is.

If documents may be cut, the number of tokens determines the end. Otherwise the end is found in the
document lengths of its block. If an earlier attempt has written both sides of that end, those
lengths are gone, and its record says where the end is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tokenmill.assemble.task import Block, End, Stretch
from tokenmill.formats import Layout

Lengths = Callable[[Block], npt.NDArray[np.uint32]]
KnownEnd = Callable[[int, int], End | None]  # of a shard's piece


@dataclass(frozen=True, slots=True)
class Pieces:
    """The sizes of a shard's pieces, in tokens; the first piece also holds the header."""

    first: float = math.inf
    other: float = math.inf


WHOLE = Pieces()


@dataclass(frozen=True, slots=True)
class Piece:
    """A complete piece of a shard."""

    shard: int
    number: int
    stretches: tuple[Stretch, ...]
    first_token: int  # in the shard
    end: End


class ShardCutter:
    """Cuts one split's stream, block by block."""

    def __init__(
        self, layout: Layout, pieces: Pieces, lengths_of: Lengths, known_end: KnownEnd
    ) -> None:
        self._layout = layout
        self._limit = math.inf if layout.shard_tokens is None else layout.shard_tokens
        self._pieces = pieces
        self._lengths_of = lengths_of
        self._known_end = known_end
        self._shard = self._piece = 0
        self._held: list[Stretch] = []  # of the current piece
        self._piece_tokens = 0
        self._shard_tokens = 0
        self._shard_documents = 0  # those that end in the shard
        self._num_tokens = self._num_documents = 0  # of the stream, in stretches so far
        self._ends: tuple[Block, npt.NDArray[np.int64]] | None = None  # of the current block

    def feed(self, block: Block) -> Iterator[Piece]:
        """The pieces that this block completes."""
        start = document = 0
        begin = (self._num_tokens, self._num_documents)
        while start < block.num_tokens or document < block.num_documents:
            if self._layout.has_boundaries:
                end = self._between_documents(block, start, document, begin)
            else:
                end = self._through_documents(block, start)
            stop, last, is_piece, is_shard = end
            self._hold(block.stretch(start, stop, document, last), is_shard)
            start, document = stop, last
            if is_piece or is_shard:
                yield self._closed(is_shard)

    def finish(self) -> Iterator[Piece]:
        """The last piece, if any tokens are left."""
        if self._held or self._piece:
            yield self._closed(True)

    def _hold(self, stretch: Stretch, is_shard: bool) -> None:
        num_tokens = stretch.stop - stretch.start
        # If a shard ends because the next block's first document does not fit, the task also names
        # that block, so that its lengths, which show that, stay until the task has its record.
        if not stretch.is_empty or (is_shard and self._held):
            self._held.append(stretch)
        self._piece_tokens += num_tokens
        self._shard_tokens += num_tokens
        self._num_tokens += num_tokens
        self._shard_documents += stretch.last - stretch.first
        self._num_documents += stretch.last - stretch.first

    def _closed(self, is_shard: bool) -> Piece:
        first = self._shard_tokens - self._piece_tokens
        end = End(self._num_tokens, self._num_documents, is_shard)
        piece = Piece(self._shard, self._piece, tuple(self._held), first, end)
        self._held, self._piece_tokens = [], 0
        self._piece += 1
        if is_shard:
            self._shard, self._piece = self._shard + 1, 0
            self._shard_tokens = self._shard_documents = 0
        return piece

    @property
    def _piece_room(self) -> float:
        size = self._pieces.other if self._piece else self._pieces.first
        return size - self._piece_tokens

    def _through_documents(self, block: Block, start: int) -> tuple[int, int, bool, bool]:
        """Where the current piece ends in the block: token, document, whether the piece is
        complete, and whether its shard is."""
        room, piece_room = self._limit - self._shard_tokens, self._piece_room
        taken = int(min(block.num_tokens - start, room, piece_room))
        stop = start + taken
        last = block.num_documents if stop == block.num_tokens else 0
        return stop, last, taken == piece_room, taken == room

    def _between_documents(
        self, block: Block, start: int, document: int, begin: tuple[int, int]
    ) -> tuple[int, int, bool, bool]:
        """The same for shards that end between documents. `begin` is where the block begins in the
        stream: tokens, documents."""
        room, piece_room = self._limit - self._shard_tokens, self._piece_room
        left = block.num_tokens - start
        if left <= room and left <= piece_room:
            return block.num_tokens, block.num_documents, left == piece_room, False
        known = self._known_end(self._shard, self._piece)
        if known is not None:
            stop, last = known.num_tokens - begin[0], known.num_documents - begin[1]
            return stop, last, True, known.closes_shard
        ends = self._ends_of(block)
        stop, last, is_shard = block.num_tokens, block.num_documents, False
        if left > room:
            is_shard = True
            last = int(np.searchsorted(ends, start + room, "right"))
            if last <= document:
                # The document that does not fit begins the next shard, or is larger than any shard.
                last = document if self._shard_documents else document + 1
            stop = int(ends[last - 1]) if last > document else start
        if stop - start < piece_room:
            return stop, last, False, is_shard
        if stop - start > piece_room:
            stop, is_shard = start + int(piece_room), False
            last = int(np.searchsorted(ends, stop, "right"))
        return stop, last, True, is_shard

    def _ends_of(self, block: Block) -> npt.NDArray[np.int64]:
        """The end of each document of the block, in tokens of the block."""
        if self._ends is None or self._ends[0] != block:
            self._ends = block, np.cumsum(self._lengths_of(block), dtype=np.int64)
        return self._ends[1]
