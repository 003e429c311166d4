"""Shard orders, carried out: read the bytes of parts, dress them as a shard, put it in its place.

    write_shard(order) -> WrittenShard      anywhere, in any order, once or twice: the same bytes

The shard grows in a local scratch folder by the same code as ever (shards.py); its files then get
their final names, and last a record in `WORK/orders/` says so. In an object store that is an upload
of whole objects and a conditional create; what has a record is not written again.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill import storage
from tokenmill.arrays import binary_array, indices, offsets_of
from tokenmill.documents import data_of
from tokenmill.formats import DTYPE_BYTES, Layout, Shard, get_format
from tokenmill.objectstore import in_parallel, is_url
from tokenmill.orders import ShardOrder, Source, Stretch, shard_orders
from tokenmill.record import SPLITS, PartRecord, part_path
from tokenmill.seal import sealed, unsealed
from tokenmill.shards import Batch, Output, Tail, shard_from, write_index_files, write_shard_files

READ_BYTES = 32 << 20  # of a part in memory at a time
ORDERS_NAME = "orders"


@dataclass(frozen=True, slots=True)
class WrittenShard:
    """A shard that is in its place. None: its tokens filled no sample, and there is no file."""

    plan_id: str
    stream: int
    index: int
    shard: Shard | None
    tail: Tail

    def to_plain(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @staticmethod
    def from_plain(plain: dict[str, Any]) -> WrittenShard:
        shard = None if plain["shard"] is None else shard_from(plain["shard"])
        return WrittenShard(**{**plain, "shard": shard, "tail": Tail(**plain["tail"])})


def write_shard(order: ShardOrder) -> WrittenShard:
    """Write one shard's files and its record."""
    with _scratch_folder(order) as scratch:
        batches = (_batch(order, stretch) for stretch in order.stretches)
        split = SPLITS[order.stream]
        shard, tail = write_shard_files(scratch, order.layout, split, order.place, batches)
        if shard is not None:
            put_shard(shard, scratch, order.target)
    written = WrittenShard(order.plan_id, order.stream, order.place.index, shard, tail)
    storage.make_folder(os.path.dirname(_record_path(order)))
    data = json.dumps(written.to_plain(), sort_keys=True).encode()
    storage.write_record(_record_path(order), sealed(data))
    return written


def put_shard(shard: Shard, scratch: str, target: str) -> None:
    """Give a finished shard's files their final names."""
    for name in (shard.name, *(file.name for file in shard.side_files)):
        path = os.path.join(target, name)
        storage.make_folder(os.path.dirname(path))
        storage.put_file(os.path.join(scratch, name), path)


def written_shards(orders: Sequence[ShardOrder]) -> dict[tuple[int, int], WrittenShard]:
    """What earlier attempts wrote, by stream and index. A record means: the files are there."""
    found = {}
    paths = [_record_path(order) for order in orders]
    for order, data in zip(orders, storage.read_files(paths), strict=True):
        try:
            written = WrittenShard.from_plain(unsealed(data or b""))
        except (ValueError, KeyError, TypeError):
            continue
        place = (order.stream, order.place.index)
        if (written.plan_id, written.stream, written.index) == (order.plan_id, *place):
            found[place] = written
    return found


def has_orders(work: str) -> bool:
    """Whether orders were carried out for this folder."""
    return os.path.isdir(os.path.join(work, ORDERS_NAME))


class OrderAssembler:
    """Does what assemble.Assembler does, but only once all records are there, shard by shard.

    `write` carries out orders: a runner's `write_shards`.
    """

    next = 0  # no part is used up before the end

    def __init__(
        self,
        work: str,
        target: str,
        layout: Layout,
        num_buckets: int,
        write: Callable[[Iterable[ShardOrder]], Iterator[WrittenShard]],
    ) -> None:
        self._work = work
        self.folder = target
        self._layout = layout
        self._num_buckets = num_buckets
        self._write = write
        self._records: dict[int, PartRecord] = {}

    def add(self, record: PartRecord) -> None:
        self._records[record.slice_index] = record

    def finish(self) -> Output:
        """Write every shard that has no record yet; list them all."""
        records = [self._records[index] for index in sorted(self._records)]
        found = shard_orders(self._work, self.folder, self._layout, self._num_buckets, records)
        orders = list(found)
        written = written_shards(orders)
        missing = [one for one in orders if (one.stream, one.place.index) not in written]
        for shard in self._write(missing):
            written[shard.stream, shard.index] = shard
        return output_of(self.folder, self._layout, written.values())

    def close(self) -> None:
        """Nothing is held open."""


def output_of(target: str, layout: Layout, written: Iterable[WrittenShard]) -> Output:
    """All that was made, once the files that list the shards are written, too."""
    in_order = sorted(written, key=lambda one: (one.stream, one.index))
    shards = tuple(one.shard for one in in_order if one.shard is not None)
    # Only a stream's last shard can have a tail.
    tails = {split: Tail() for split in SPLITS} | {SPLITS[w.stream]: w.tail for w in in_order}
    index_files = write_index_files(target, get_format(layout.format), layout, shards)
    return Output(shards, index_files, tails)


def _record_path(order: ShardOrder) -> str:
    name = f"{SPLITS[order.stream]}-{order.place.index:08d}.json"
    return os.path.join(order.work, ORDERS_NAME, name)


def _scratch_folder(order: ShardOrder) -> tempfile.TemporaryDirectory[str]:
    """On the disk where the shard is to go, or on any if it goes to an object store."""
    parent = None if is_url(order.target) else order.work
    return tempfile.TemporaryDirectory(prefix="tokenmill-shard-", dir=parent)


def _batch(order: ShardOrder, stretch: Stretch) -> Batch:
    if order.is_shuffled:
        return _sorted_batch(order, stretch)
    [source] = stretch.sources
    path = part_path(order.work, source.slice_index)
    lengths = None
    if order.layout.has_boundaries:
        bounds = source.lengths_at + 4 * stretch.first, source.lengths_at + 4 * stretch.last
        lengths = np.frombuffer(storage.read_ranges(path, [bounds])[0], "<u4")
    width = DTYPE_BYTES[order.layout.dtype]
    pieces = functools.partial(_pieces, path, source.tokens_at + stretch.start * width, width)
    return Batch(stretch.num_tokens, pieces, lengths)


def _pieces(path: str, tokens_at: int, width: int, first: int, last: int) -> Iterator[bytes]:
    stop = tokens_at + last * width
    for start in range(tokens_at + first * width, stop, READ_BYTES):
        yield from storage.read_ranges(path, [(start, min(start + READ_BYTES, stop))])


def _sorted_batch(order: ShardOrder, stretch: Stretch) -> Batch:
    """One bucket of every part, sorted by key, and of that what belongs into this shard."""
    width = DTYPE_BYTES[order.layout.dtype]
    sources = [source for source in stretch.sources if source.num_documents]
    read = functools.partial(_read_source, order.work, width)
    found = list(in_parallel(read, sources))
    keys = np.concatenate([np.empty(0, np.uint32), *(keys for keys, _ in found)])
    documents = pa.concat_arrays([binary_array(np.zeros(1, np.int64), b""), *(d for _, d in found)])
    documents = documents.take(indices(np.argsort(keys, kind="stable")))
    data = data_of(documents)[stretch.start * width : stretch.stop * width]
    lengths = (np.diff(offsets_of(documents)) // width).astype(np.uint32)
    return Batch(
        stretch.num_tokens,
        lambda start, stop: [data[start * width : stop * width]],
        lengths[stretch.first : stretch.last],
    )


def _read_source(
    work: str, width: int, source: Source
) -> tuple[npt.NDArray[np.uint32], pa.LargeBinaryArray]:
    count = source.num_documents
    lengths_data, keys_data, data = storage.read_ranges(
        part_path(work, source.slice_index),
        [
            (source.lengths_at, source.lengths_at + 4 * count),
            (source.keys_at, source.keys_at + 4 * count),
            (source.tokens_at, source.tokens_at + width * source.num_tokens),
        ],
    )
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(np.frombuffer(lengths_data, "<u4"), out=offsets[1:])
    return np.frombuffer(keys_data, "<u4"), binary_array(offsets * width, data)
