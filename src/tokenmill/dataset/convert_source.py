"""A finished dataset as blocks of tokens: the source of a conversion.

The source is scanned once before anything is written, in parallel segments: a piece of a raw file,
or a whole shard. Each segment is compared with its sha256, so that a fresh manifest never covers
damaged tokens. If the target stores document boundaries, the scan records them. After that, a block
is a stretch of whole documents, and any number of tasks may read at once.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.assemble.task import Block, Stretch
from tokenmill.dataset.dataset import Dataset
from tokenmill.dataset.manifest import Manifest, OutputFile
from tokenmill.dataset.stream import Stream
from tokenmill.encode.record import SPLITS
from tokenmill.errors import ConfigError, IntegrityError
from tokenmill.formats import Layout
from tokenmill.storage import hashing
from tokenmill.storage.store import read_in_order, read_ranges, store_of

READ_TOKENS = 4 << 20
COPY_BYTES = 1 << 20
SEGMENT_TOKENS = 128 << 20  # of a shard whose file has no known sha256


@dataclass(frozen=True, slots=True)
class Segment:
    """Tokens `start` to `stop` of a shard. `piece` is the piece of its file to compare with its
    sha256; None: nothing to compare."""

    split: str
    shard: int  # position in the stream
    start: int
    stop: int
    piece: int | None


class DatasetTokens:
    """The splits of `source`, in the layout's dtype. `folder` is for working files. Unless
    `may_cut`, documents must be those that EOT ids tell apart if the layout stores no bounds."""

    def __init__(
        self, source: Dataset, origin: Manifest, layout: Layout, folder: str, may_cut: bool
    ) -> None:
        self._source = source
        self._layout = layout
        self._folder = folder
        self._dtype = np.dtype(layout.dtype).newbyteorder("<")
        self._is_foreign = source.manifest is None
        # A run gives each document an EOT id of its own.
        is_of_run = source.manifest is not None and source.manifest.converted_from is None
        is_safe = layout.has_boundaries or is_of_run or source.eot not in ("append", "prepend")
        self._needs_own_eot = not (is_safe or may_cut)
        self._max_id = origin.identity["encoding"]["max_token_value"]
        self._files = {file.name: file for file in origin.files} if source.manifest else {}
        self._local = threading.local()
        self.held = contextlib.ExitStack()  # objects that are hashed now and read later

    # The scan

    def checks(self) -> Iterator[functools.partial[None]]:
        """Calls that compare the files that are not shards."""
        for file in self._files.values():
            if file.split is None:
                yield functools.partial(self._require_sha256, file)

    def segments(self, split: str) -> list[Segment]:
        if split not in self._source.streams:
            return []
        stream, found = self._source.streams[split], []
        for position, shard in enumerate(stream.shards):
            bounds, is_checked = self._bounds(split, position), shard.name in self._files
            for number, (start, stop) in enumerate(itertools.pairwise(bounds)):
                piece = number if is_checked else None
                found.append(Segment(split, position, start, stop, piece))
        return found

    def scan(self, segment: Segment) -> npt.NDArray[np.int64]:
        """Compare a segment with its sha256, and return where documents end in it, in tokens of the
        split, as far as the segment alone shows it (`blocks` does the rest)."""
        stream = self._stream(segment.split)
        name = stream.shards[segment.shard].name
        if segment.piece is not None:
            self._require_sha256(self._files[name], segment.piece)
        if self._needs_own_eot and stream.has_boundaries:
            self._require_own_eot(stream, segment)
        if not self._layout.has_boundaries:
            return np.empty(0, np.int64)
        begin = stream.start_of(segment.shard)
        if stream.has_boundaries:
            ends = stream.ends_of(segment.shard)
            first = np.searchsorted(ends, segment.start, "right" if segment.start else "left")
            return ends[first : np.searchsorted(ends, segment.stop, "right")] + begin
        return _eots(stream, begin + segment.start, begin + segment.stop)

    def _require_own_eot(self, stream: Stream, segment: Segment) -> None:
        """Refuse documents with an EOT id inside or none of their own, except for the first and
        last of a split, which may lack their edges."""
        begin, ends = stream.start_of(segment.shard), stream.ends_of(segment.shard)
        if stream.eot == "append":
            places = ends - 1
            cut = stream.num_tokens - 1
        else:
            places, cut = np.append(0, ends[:-1])[: len(ends)], 0
        places = places[(places >= segment.start) & (places < segment.stop)] + begin
        found = _eots(stream, begin + segment.start, begin + segment.stop)
        if not any(np.array_equal(found, one) for one in (places, places[places != cut])):
            raise ConfigError(
                f"{self._layout.format} tells documents apart by EOT ids alone, and some of "
                f"{stream.shards[segment.shard].name} hold one inside, or have none of their own",
                hint="--drop boundaries cuts them at every EOT id; megatron, olmo, datatrove and "
                "parquet keep them",
            )

    def blocks(self, split: str, scanned: Iterable[npt.NDArray[np.int64]]) -> Iterator[Block]:
        """The split as blocks, given the results of `scan` for each of its segments."""
        stream = self._source.streams[split]
        if not self._layout.has_boundaries:
            for segment in self.segments(split):
                begin = stream.start_of(segment.shard) + segment.start
                yield Block((_SPLIT_NUMBERS[split], begin, -1), segment.stop - segment.start, 0)
            return
        done = num_eot = number = 0
        for found in scanned:
            ends = _document_ends(stream, found, num_eot)
            num_eot += len(found)
            if len(ends):
                yield self._block(split, number, done, ends)
                done, number = int(ends[-1]), number + 1
        if done < stream.num_tokens:  # a document without an end of its own
            yield self._block(split, number, done, np.array([stream.num_tokens]))

    def _block(self, split: str, number: int, start: int, ends: npt.NDArray[np.int64]) -> Block:
        lengths = np.diff(ends, prepend=start)
        if len(lengths) and int(lengths.max()) > np.iinfo(np.uint32).max:
            raise IntegrityError(f"{split}: a document of {int(lengths.max()):,} tokens")
        store_of(self._folder).write(
            self._lengths_path(split, number), lengths.astype("<u4").tobytes(), is_durable=False
        )
        key = (_SPLIT_NUMBERS[split], start, number)
        return Block(key, int(ends[-1]) - start, len(ends))

    # As a TokenSource

    def tokens(self, stretch: Stretch) -> Iterator[Any]:
        split, begin, _ = stretch.key
        if self._is_same_on_disk:
            yield from self._bytes(SPLITS[split], begin + stretch.start, begin + stretch.stop)
            return
        stream = self._stream(SPLITS[split])
        for at in range(begin + stretch.start, begin + stretch.stop, READ_TOKENS):
            found = stream.tokens(at, min(at + READ_TOKENS, begin + stretch.stop))
            yield np.ascontiguousarray(self._cast(found, SPLITS[split])).view(np.uint8)

    def lengths(self, stretch: Stretch) -> npt.NDArray[np.uint32]:
        split, _, number = stretch.key
        wanted = [(4 * stretch.first, 4 * stretch.last)]
        [data] = read_ranges(self._lengths_path(SPLITS[split], number), wanted)
        return np.frombuffer(data, "<u4")

    def to_plain(self) -> dict[str, Any]:
        raise TypeError("a conversion stays in its process")

    # Reading

    @functools.cached_property
    def _is_same_on_disk(self) -> bool:
        """Whether source and target store tokens as the same bytes. Raw reads avoid memory maps, on
        which the threads of a process would wait for each other."""
        is_local = self._source.files.is_local and not self._is_foreign
        is_same = np.dtype(self._source.dtype).newbyteorder("<") == self._dtype
        return is_local and is_same and self._source.format.traits.is_raw

    def _bytes(self, split: str, start: int, stop: int) -> Iterator[Any]:
        """The bytes of tokens `start` to `stop` of a split, across raw shards."""
        stream, width = self._source.streams[split], self._dtype.itemsize
        while start < stop:
            shard, within = stream.shard_at(start)
            count = min(stop - start, shard.num_tokens - within)
            path = self._source.files.local_path(shard.name)
            assert path is not None, "objects are not read raw"
            header = self._files[shard.name].num_bytes - shard.num_tokens * width
            first = header + within * width
            yield from read_in_order(path, first, first + count * width, COPY_BYTES)
            start += count

    def _stream(self, split: str) -> Stream:
        """This thread's own stream: a stream keeps its current shard open."""
        streams = self._local.__dict__
        if split not in streams:
            stream = self._source.streams[split]
            streams[split] = stream.with_shards(stream.shards)
        found: Stream = streams[split]
        return found

    def _cast(self, tokens: npt.NDArray[np.integer], split: str) -> npt.NDArray[np.integer]:
        # Our own datasets are known to be valid; foreign shards may hold anything.
        if not len(tokens) or (tokens.dtype == self._dtype and not self._is_foreign):
            return tokens
        low, high = int(tokens.min()), int(tokens.max())
        if low < 0 or high > self._max_id:
            raise IntegrityError(
                f"{split}: token id {low if low < 0 else high} is not one of "
                f"{self._layout.encoding}, whose ids end at {self._max_id}",
                hint="is --tokenizer the one that made these tokens?",
            )
        return tokens.astype(self._dtype, copy=False)

    def _bounds(self, split: str, position: int) -> list[int]:
        """The bounds of a shard's segments, in its tokens."""
        shard = self._source.streams[split].shards[position]
        num_tokens = shard.num_tokens
        file = self._files.get(shard.name)
        if file is None:
            return [*range(0, num_tokens, SEGMENT_TOKENS), num_tokens]
        if isinstance(file.sha256, str) or not self._source.files.is_local:
            return [0, num_tokens]
        width = np.dtype(shard.open().dtype).itemsize
        header = file.num_bytes - num_tokens * width
        inner = range(hashing.PIECE_BYTES, file.num_bytes, hashing.PIECE_BYTES)
        return [0, *((at - header) // width for at in inner), num_tokens]

    def _require_sha256(self, file: OutputFile, piece: int = 0) -> None:
        source = self._source.files
        self.held.enter_context(source.held(file.name))
        path = None if isinstance(file.sha256, str) else source.local_path(file.name)
        if path is None:
            with source.in_order(file.name) as opened:
                found = hashing.sha256_of(opened, in_pieces=not isinstance(file.sha256, str))
            is_same = found == file.sha256
        else:
            start = piece * hashing.PIECE_BYTES
            stop = min(start + hashing.PIECE_BYTES, file.num_bytes)
            digests = hashing.sha256_at(path, start, stop, True)
            is_same = digests == file.sha256[piece : piece + 1]
            is_same = is_same and os.path.getsize(path) == file.num_bytes
        if not is_same:
            raise IntegrityError(
                f"{source.path_of(file.name)} is not the file that the manifest describes: its "
                "sha256 differs",
                hint=f"tokenmill verify {source.label}",
            )

    def _lengths_path(self, split: str, number: int) -> str:
        return os.path.join(self._folder, f"source-{split}-{number:08d}.u4")


_SPLIT_NUMBERS = {split: number for number, split in enumerate(SPLITS)}


def _eots(stream: Stream, start: int, stop: int) -> npt.NDArray[np.int64]:
    """Where EOT ids are, in tokens of the split."""
    found = [
        np.flatnonzero(stream.tokens(at, min(at + READ_TOKENS, stop)) == stream.eot_id) + at
        for at in range(start, stop, READ_TOKENS)
    ]
    return np.concatenate([np.empty(0, np.int64), *found])


def _document_ends(
    stream: Stream, found: npt.NDArray[np.int64], num_eot: int
) -> npt.NDArray[np.int64]:
    """Where documents end, given the positions of EOT ids (or of boundaries, if the format has
    them)."""
    if stream.has_boundaries:
        return found
    if stream.eot == "prepend":
        return found[found > 0]
    if stream.eot == "both":
        return found[(num_eot + 1 + stream.has_lead()) % 2 :: 2] + 1
    return found + 1
