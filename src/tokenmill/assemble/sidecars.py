"""Sidecars: what is kept of a split's documents (--keep), in the order of its documents.

    __kept__/train-00000.pq     parquet: row i of a split's sidecars is document i of the split

Trainers must not take them for shards. So the folder's name begins with two underscores, which
`datasets`, pyarrow and Spark skip, and the files do not end with .parquet, for scripts that glob
`**/*.parquet`.

A sidecar has a million documents, wherever shards end. Its rows come from the kept files of parts
(encode/kept_file.py), which stay until the dataset is complete, so sidecars are cut once, when all
parts are there. If the end of a split cuts a document in two, both splits have a row for it.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.arrays import indices, numbers_of
from tokenmill.assemble.task import SIDECAR, Block, End, Place, ShardRecord, ShardTask, Stretch
from tokenmill.encode.kept_file import KEY, KeptFile, KeptReader, kept_schema
from tokenmill.encode.record import SPLITS, PartRecord
from tokenmill.errors import DamagedWorkError
from tokenmill.formats import Create, Layout
from tokenmill.formats.parquet_sink import Sink
from tokenmill.storage.store import each, save_record, store_of, wait_for

if TYPE_CHECKING:
    import pyarrow.parquet as pq

FOLDER = "__kept__"
PATTERN = rf"{FOLDER}/(train|val)-\d{{5,}}\.pq"
DOCUMENTS_PER_SIDECAR = 1 << 20
# To show one document, one row group is read.
GROUP_ROWS = 1 << 14
GROUP_BYTES = 16 << 20
_CHUNKS_NAME = "kept.bin"


def sidecar_name(split: str, number: int) -> str:
    return f"{FOLDER}/{split}-{number:05d}.pq"


@dataclass(frozen=True, slots=True)
class Sidecar:
    """A finished sidecar."""

    name: str
    num_documents: int
    num_bytes: int
    sha256: str


@dataclass(frozen=True)
class KeptParts:
    """The kept rows of one split of the parts. Blocks are those of the tokens: a chunk (its kept
    file and its number there), or one bucket of every part."""

    work: str
    split: int
    types: str | None
    is_shuffled: bool

    def to_plain(self) -> dict[str, Any]:
        return {
            "kind": "kept",
            "work": self.work,
            "split": self.split,
            "types": self.types,
            "is_shuffled": self.is_shuffled,
        }

    def blocks(self, records: Iterable[PartRecord]) -> Iterator[Block]:
        """The chunks in plan order, for documents that are not shuffled."""
        for record in records:
            chunks = [chunk for chunk in record.chunks if chunk.num_documents[self.split]]
            for number, chunk in enumerate(chunks):
                key = (record.part, len(chunks), record.kept_bytes[self.split], number)
                yield Block(key, chunk.num_tokens[self.split], chunk.num_documents[self.split])

    def save_chunks(self, records: Iterable[PartRecord], num_buckets: int) -> None:
        """Save the list of chunks, which tasks need if documents are shuffled."""
        rows = [
            (*block.key[:1], num_buckets * block.key[1], block.key[2], num_buckets * block.key[3])
            for block in self.blocks(records)
        ]
        save_record(self._chunks_path, np.array(rows, "<i8").tobytes())

    def rows(self, stretch: Stretch) -> pa.Table:
        """The kept rows of a stretch's documents."""
        return self._block(stretch.key).slice(stretch.first, stretch.last - stretch.first)

    def lengths(self, block: Block) -> npt.NDArray[np.integer]:
        """The tokens of each document of a block."""
        tokens = self._block(block.key).column("_tokens").combine_chunks()
        return numbers_of(tokens)[block.first_document :][: block.num_documents]

    def _block(self, key: tuple[int, ...]) -> pa.Table:
        schema = kept_schema(self.types)
        reader = KeptReader(self.work, self.split, self.types, self.is_shuffled)
        if not self.is_shuffled:
            *file, number = key
            return pa.Table.from_batches(reader.batches(KeptFile(*file), number, number + 1))
        [bucket] = key

        def read(chunk: tuple[int, ...]) -> list[pa.RecordBatch]:
            *file, first = chunk
            return list(reader.batches(KeptFile(*file), first + bucket, first + bucket + 1))

        batches = list(itertools.chain(*each(store_of(self.work), read, self._chunks)))
        if not batches:
            return schema.empty_table()
        table = pa.Table.from_batches(batches).combine_chunks()
        order = np.argsort(numbers_of(table.column(KEY).combine_chunks()), kind="stable")
        return table.take(indices(order)).drop_columns([KEY])

    @property
    def _chunks_path(self) -> str:
        return f"{self.work}/{self.split}-{_CHUNKS_NAME}"

    @functools.cached_property
    def _chunks(self) -> Sequence[tuple[int, ...]]:
        wait_for(self._chunks_path)
        rows = np.frombuffer(store_of(self.work).read(self._chunks_path), "<i8")
        if len(rows) % 4:
            raise DamagedWorkError(
                f"{self._chunks_path} is damaged", hint="start again: --overwrite"
            )
        return [tuple(row) for row in rows.reshape(-1, 4).tolist()]


@dataclass(frozen=True, slots=True)
class SplitEnd:
    """Where a stream is cut into two splits, in this order: after `num_tokens`."""

    splits: tuple[str, str]
    num_tokens: int


class Sidecars:
    """The sidecars of a run: tasks out, their records in."""

    def __init__(self, work: str, plan_id: str, layout: Layout, types: str | None) -> None:
        self._work = work
        self._plan_id = plan_id
        self._layout = layout
        self._types = types
        self._num_rows: dict[Place, int] = {}  # of tasks without a record
        self._made: dict[Place, Sidecar] = {}

    def source(self, split: int, is_shuffled: bool) -> KeptParts:
        return KeptParts(self._work, split, self._types, is_shuffled)

    def tasks(
        self, source: KeptParts, blocks: Iterable[Block], end: SplitEnd | None
    ) -> Iterator[ShardTask]:
        """The tasks of a stream's sidecars, once all its blocks are known."""
        if end is None:
            yield from self._split_tasks(SPLITS[source.split], source, blocks)
            return
        for split, own in zip(end.splits, _divided(list(blocks), source, end), strict=True):
            yield from self._split_tasks(split, source, own)

    def done(self, record: ShardRecord) -> None:
        [file] = record.side_files
        rows = self._num_rows.pop(record.place)
        self._made[record.place] = Sidecar(file.name, rows, file.num_bytes, file.sha256)

    @property
    def is_done(self) -> bool:
        return not self._num_rows

    def files(self) -> tuple[Sidecar, ...]:
        return tuple(self._made[place] for place in sorted(self._made))

    def _split_tasks(
        self, split: str, source: KeptParts, blocks: Iterable[Block]
    ) -> Iterator[ShardTask]:
        first = 0
        for number, stretches in enumerate(_cut(blocks)):
            rows = sum(stretch.last - stretch.first for stretch in stretches)
            task = ShardTask(
                work=self._work,
                plan_id=self._plan_id,
                layout=self._layout,
                source=source,
                stream=SPLITS.index(split),
                shard=number,
                piece=SIDECAR,
                stretches=tuple(stretches),
                first_token=0,
                shard_tokens=0,
                first_document=first,
                end=End(0, first + rows, True),
            )
            first += rows
            self._num_rows[task.place] = rows
            yield task


def _divided(
    blocks: list[Block], source: KeptParts, end: SplitEnd
) -> tuple[list[Block], list[Block]]:
    """The blocks of each split; a document that is cut in two is in both."""
    before: list[Block] = []
    left = end.num_tokens
    for at, block in enumerate(blocks):
        if block.num_tokens > left:
            ends = np.cumsum(source.lengths(block), dtype=np.int64)
            whole = int(np.searchsorted(ends, left, "right"))
            begun = whole + bool(left > (ends[whole - 1] if whole else 0))
            head, rest = block.cut_at(0, begun)[0], block.cut_at(0, whole)[1]
            return [*before, head], [rest, *blocks[at + 1 :]]
        before.append(block)
        left -= block.num_tokens
    return before, []


def _cut(blocks: Iterable[Block]) -> Iterator[list[Stretch]]:
    """The stretches of each sidecar: DOCUMENTS_PER_SIDECAR documents."""
    held: list[Stretch] = []
    room = DOCUMENTS_PER_SIDECAR
    for block in blocks:
        first = 0
        while first < block.num_documents:
            last = min(block.num_documents, first + room)
            held.append(block.stretch(0, 0, first, last))
            room -= last - first
            first = last
            if not room:
                yield held
                held, room = [], DOCUMENTS_PER_SIDECAR
    if held:
        yield held


def write_sidecar(task: ShardTask, name: str, create: Create) -> None:
    """Write a sidecar. Its row groups depend on the task alone, so the bytes are always the
    same."""
    source = task.source
    assert isinstance(source, KeptParts)
    schema = kept_schema(source.types)
    with create(name) as file, _writer(file, schema) as writer:
        for group in _groups(source.rows(stretch) for stretch in task.stretches):
            writer.write_table(group.cast(schema), row_group_size=len(group))


def _writer(file: Any, schema: pa.Schema) -> AbstractContextManager[pq.ParquetWriter]:
    import pyarrow.parquet as pq  # takes 30 ms, which only --keep should pay

    writer: AbstractContextManager[pq.ParquetWriter] = pq.ParquetWriter(
        Sink(file), schema, compression="zstd", compression_level=3
    )
    return writer


def _groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The rows in tables of at most GROUP_ROWS rows and about GROUP_BYTES."""
    held: list[pa.Table] = []
    num_rows = num_bytes = 0
    for table in tables:
        for piece in _pieces(table):
            if held and (num_rows + len(piece) > GROUP_ROWS or num_bytes > GROUP_BYTES):
                yield pa.concat_tables(held)
                held, num_rows, num_bytes = [], 0, 0
            held.append(piece)
            num_rows += len(piece)
            num_bytes += piece.nbytes
    if held:
        yield pa.concat_tables(held)


def _pieces(table: pa.Table) -> Iterator[pa.Table]:
    num_pieces = max(1, -(-len(table) // GROUP_ROWS), table.nbytes // GROUP_BYTES)
    step = max(1, -(-len(table) // num_pieces))
    return (table.slice(first, step) for first in range(0, len(table), step))
