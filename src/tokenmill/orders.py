"""Shard orders: what goes into each shard, told from the records before any shard is written.

Once every part has its record, shards do not depend on one another: shard k is a stretch of its
split's token stream. An order names the bytes of parts that it is made of, as plain data, so that
any process that sees the work folder can carry it out (fulfil.py), in any order, twice if need be.

Where documents may be cut, the records say it all. Where a format keeps documents whole, the
document at which a shard ends is found in the lengths of the one part in which that falls; where
documents are shuffled, in one bucket of every part. The rules are those of shards.py, which cuts
while parts still arrive; a test compares the two for every format.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill import storage
from tokenmill.formats import DTYPE_BYTES, Layout
from tokenmill.objectstore import in_parallel
from tokenmill.part import PartDirectory, PartReader
from tokenmill.record import SPLITS, PartRecord, part_path
from tokenmill.shards import ShardPlace, split_of


@dataclass(frozen=True, slots=True)
class Source:
    """Some documents in a part file: of a run, or of one bucket of a run."""

    slice_index: int
    tokens_at: int  # in bytes, like the other two
    num_tokens: int
    lengths_at: int
    num_documents: int
    keys_at: int = 0  # if shuffled


@dataclass(frozen=True, slots=True)
class Stretch:
    """What is assembled at once: a run, or one bucket of every part, sorted by key. Of it, tokens
    `start` to `stop`; with boundaries, these are its documents `first` to `last`."""

    sources: tuple[Source, ...]
    start: int
    stop: int
    first: int
    last: int

    @staticmethod
    def whole(*sources: Source) -> Stretch:
        num_documents = sum(source.num_documents for source in sources)
        return Stretch(sources, 0, sum(s.num_tokens for s in sources), 0, num_documents)

    @property
    def num_tokens(self) -> int:
        return self.stop - self.start

    @property
    def num_documents(self) -> int:
        return self.last - self.first


@dataclass(frozen=True, slots=True)
class ShardOrder:
    """One shard to be written: everything that `fulfil.write_shard` has to know."""

    work: str  # where the parts are
    target: str  # where the shard's files go
    plan_id: str
    layout: Layout
    stream: int  # position in SPLITS
    place: ShardPlace
    is_shuffled: bool
    stretches: tuple[Stretch, ...]

    def to_plain(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @staticmethod
    def from_plain(plain: dict[str, Any]) -> ShardOrder:
        stretches = tuple(
            Stretch(**{**s, "sources": tuple(Source(**source) for source in s["sources"])})
            for s in plain["stretches"]
        )
        return ShardOrder(
            **{
                **plain,
                "layout": Layout(**plain["layout"]),
                "place": ShardPlace(**plain["place"]),
                "stretches": stretches,
            }
        )


def shard_orders(
    work: str, target: str, layout: Layout, num_buckets: int, records: Sequence[PartRecord]
) -> Iterator[ShardOrder]:
    """An order for each shard, split by split. `records` are all records, in plan order."""
    for stream in range(len(SPLITS)):
        parts = _Parts(work, layout, num_buckets, stream)
        stretches = parts.buckets(records) if num_buckets else parts.runs(records)
        before = dict.fromkeys(SPLITS, 0)
        for index, cut in enumerate(_cuts(stretches, layout, parts)):
            split = split_of(layout, SPLITS[stream], index)
            yield ShardOrder(
                work,
                target,
                records[0].plan_id,
                layout,
                stream,
                ShardPlace(index, before[split]),
                bool(num_buckets),
                tuple(cut),
            )
            if layout.has_boundaries:
                before[split] += sum(stretch.num_documents for stretch in cut)


class _Parts:
    """One split of all parts, as stretches."""

    def __init__(self, work: str, layout: Layout, num_buckets: int, stream: int) -> None:
        self._work = work
        self._dtype = layout.dtype
        self._token_bytes = DTYPE_BYTES[layout.dtype]
        self._num_buckets = num_buckets
        self._stream = stream

    def runs(self, records: Iterable[PartRecord]) -> Iterator[Stretch]:
        for record in records:
            for run in self._reader(record).runs(self._stream):
                yield Stretch.whole(
                    Source(
                        record.slice_index,
                        run.tokens_at,
                        run.num_tokens,
                        run.lengths_at,
                        run.num_documents,
                    )
                )

    def buckets(self, records: Sequence[PartRecord]) -> Iterator[Stretch]:
        def directories(record: PartRecord) -> list[PartDirectory]:
            return self._reader(record).directories(self._stream)

        found = [
            (record.slice_index, directory)
            for record, of_part in zip(records, in_parallel(directories, records), strict=True)
            for directory in of_part
        ]
        for bucket in range(self._num_buckets if found else 0):
            yield Stretch.whole(*(self._in_bucket(bucket, *one) for one in found))

    def _in_bucket(self, bucket: int, slice_index: int, directory: PartDirectory) -> Source:
        (first, first_token), (last, last_token) = directory.starts[bucket : bucket + 2].tolist()
        return Source(
            slice_index,
            directory.tokens_at + first_token * self._token_bytes,
            last_token - first_token,
            directory.lengths_at + 4 * first,
            last - first,
            directory.keys_at + 4 * first,
        )

    def lengths(self, stretch: Stretch) -> npt.NDArray[np.uint32]:
        """Of all documents of a whole stretch, in the order in which they are assembled."""
        ranges = [[(s.lengths_at, s.lengths_at + 4 * s.num_documents)] for s in stretch.sources]
        if self._num_buckets:
            for source, one in zip(stretch.sources, ranges, strict=True):
                one.append((source.keys_at, source.keys_at + 4 * source.num_documents))
        found = list(in_parallel(self._read, zip(stretch.sources, ranges, strict=True)))
        lengths = np.frombuffer(b"".join(data[0] for data in found), "<u4")
        if not self._num_buckets:
            return lengths
        keys = np.frombuffer(b"".join(data[1] for data in found), "<u4")
        return lengths[np.argsort(keys, kind="stable")]

    def _read(self, wanted: tuple[Source, list[tuple[int, int]]]) -> list[bytes]:
        source, ranges = wanted
        return storage.read_ranges(part_path(self._work, source.slice_index), ranges)

    def _reader(self, record: PartRecord) -> PartReader:
        return PartReader(self._work, record, self._dtype, self._num_buckets)


def _cuts(stretches: Iterable[Stretch], layout: Layout, parts: _Parts) -> Iterator[list[Stretch]]:
    """The stretches of each shard, cut as shards.py cuts."""
    held: list[Stretch] = []
    for stretch in stretches:
        if layout.has_boundaries:
            pieces = _between_documents(stretch, layout, parts, held)
        else:
            pieces = _through_documents(stretch, layout, held)
        for piece in pieces:
            if piece is None:
                yield held.copy()
                held.clear()
            else:
                held.append(piece)
    if held:
        yield held


def _through_documents(
    stretch: Stretch, layout: Layout, held: list[Stretch]
) -> Iterator[Stretch | None]:
    """Pieces of a stretch, and None wherever a shard is full. `held` is what the shard has."""
    start, limit = 0, layout.shard_tokens
    if not stretch.num_tokens and held:
        yield stretch  # it may still be a place to note (shards.MARK_TOKENS)
    while start < stretch.num_tokens:
        stop = stretch.num_tokens
        if limit is not None:
            stop = min(stop, start + limit - sum(one.num_tokens for one in held))
        yield dataclasses.replace(stretch, start=start, stop=stop)
        start = stop
        if limit is not None and sum(one.num_tokens for one in held) == limit:
            yield None


def _between_documents(
    stretch: Stretch, layout: Layout, parts: _Parts, held: list[Stretch]
) -> Iterator[Stretch | None]:
    """The same, where a shard ends before the document that would be too much for it."""
    limit = layout.shard_tokens
    if limit is None or sum(one.num_tokens for one in held) + stretch.num_tokens <= limit:
        if stretch.num_documents or held:
            yield stretch
        return
    ends = np.cumsum(parts.lengths(stretch), dtype=np.int64)
    document = start = 0
    while document < len(ends):
        room = limit - sum(one.num_tokens for one in held)
        next_document = int(np.searchsorted(ends, start + room, "right"))
        if next_document <= document and any(one.num_documents for one in held):
            if not document:  # the shard that it is too much for may note where it begins
                yield Stretch(stretch.sources, 0, 0, 0, 0)
            yield None
            continue
        next_document = max(next_document, document + 1)  # larger than a shard: alone
        stop = int(ends[next_document - 1])
        yield Stretch(stretch.sources, start, stop, document, next_document)
        document, start = next_document, stop
