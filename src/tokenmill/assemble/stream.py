"""One split's shards: blocks in, tasks out; records of tasks in, finished shards out."""

from __future__ import annotations

import collections
import dataclasses

from tokenmill.assemble.cuts import WHOLE, Piece, Pieces, ShardCutter
from tokenmill.assemble.parts_in_use import are_removed_early
from tokenmill.assemble.task import (
    SIDE_FILES,
    Block,
    End,
    ShardRecord,
    ShardTask,
    Tail,
    TokenSource,
    saved_record,
)
from tokenmill.assemble.writing import header_of, shard_split
from tokenmill.formats import DTYPE_BYTES, Format, Layout, Shard, get_format
from tokenmill.storage import hashing
from tokenmill.storage.store import store_of


class ShardStream:
    """The shards of one stream. Every call returns the tasks that have become due."""

    def __init__(
        self, work: str, plan_id: str, layout: Layout, number: int, source: TokenSource
    ) -> None:
        self._work = work
        self._plan_id = plan_id
        self._layout = layout
        self._number = number  # position in SPLITS
        self._source = source
        self._format = get_format(layout.format)
        self._cutter = ShardCutter(
            layout,
            _pieces_of(layout, self._format, work),
            lambda block: source.lengths(block.whole),
            self._known_end,
        )
        self.end_of_tasks = 0  # tokens of the stream that tasks cover
        self.first_shard_tokens = 0
        # The next three are of the current shard, which may have a million pieces.
        self._pieces: list[Piece] = []  # those without a task yet
        self._num_pieces = 0  # those with tokens
        self._shard_tokens = 0
        self._documents_before: collections.Counter[str] = collections.Counter()  # by split
        self._shard_begin = End(0, 0, False)
        # Shards of several pieces that have side files: their pieces without a record, and the task
        # for the side files, which is due once all have one.
        self._waiting: dict[int, tuple[set[int], ShardTask | None]] = {}
        self._due: list[ShardTask] = []
        self._num_open = 0  # tasks without a record
        self._records: dict[int, list[ShardRecord]] = {}  # by shard

    def feed(self, block: Block) -> list[ShardTask]:
        for piece in self._cutter.feed(block):
            self._add(piece)
        return self._taken()

    def finish(self) -> list[ShardTask]:
        """End the stream: no block follows."""
        for piece in self._cutter.finish():
            self._add(piece)
        return self._taken()

    def done(self, record: ShardRecord) -> list[ShardTask]:
        """Add the record of a finished task."""
        self._num_open -= 1
        self._records.setdefault(record.shard, []).append(record)
        if record.shard in self._waiting and record.piece != SIDE_FILES:
            self._waiting[record.shard][0].discard(record.piece)
            self._release_side_files(record.shard)
        return self._taken()

    @property
    def is_done(self) -> bool:
        return not self._num_open and not self._waiting

    @property
    def tail(self) -> Tail:
        tails = [record.tail for records in self._records.values() for record in records]
        return Tail(sum(t.num_tokens for t in tails), sum(t.num_eot for t in tails))

    def shards(self) -> list[Shard]:
        """All shards, once everything is done. A shard whose tokens filled no sample has no file
        and is left out."""
        found, num_documents = [], 0
        for number in sorted(self._records):
            records = sorted(self._records[number], key=lambda record: record.piece)
            end = max(record.end.num_documents for record in records)
            if any(record.num_bytes for record in records):
                found.append(self._shard_of(records, end - num_documents))
            num_documents = end
        return found

    # From pieces to tasks

    def _taken(self) -> list[ShardTask]:
        due, self._due = self._due, []
        return due

    def _add(self, piece: Piece) -> None:
        self._pieces.append(piece)
        self._num_pieces += bool(piece.stretches)
        self._shard_tokens += sum(stretch.stop - stretch.start for stretch in piece.stretches)
        if piece.end.closes_shard:
            self._hand_out(self._shard_tokens)
            self._close_shard(piece)
        elif not header_of(self._layout, 0):  # a header would need the length of the shard
            self._hand_out(0)

    def _hand_out(self, shard_tokens: int) -> None:
        """Make tasks for the current shard's pieces that have none yet."""
        pieces, self._pieces = self._pieces, []
        for piece in pieces:
            self.end_of_tasks = piece.end.num_tokens
            if not piece.stretches:
                self._save_end(piece)
                continue
            task = self._task(piece, shard_tokens)
            if self._layout.has_boundaries and not task.is_whole:
                self._waiting.setdefault(piece.shard, (set(), None))[0].add(piece.number)
            self._num_open += 1
            self._due.append(task)

    def _close_shard(self, last: Piece) -> None:
        if last.shard in self._waiting:
            sides = dataclasses.replace(
                self._task(last, self._shard_tokens),
                piece=SIDE_FILES,
                stretches=(),
                first_token=0,
                num_pieces=self._num_pieces,
            )
            self._waiting[last.shard] = self._waiting[last.shard][0], sides
            self._release_side_files(last.shard)
        if last.shard == 0:
            self.first_shard_tokens = last.end.num_tokens
        split = shard_split(self._layout, self._number, last.shard)
        documents = last.end.num_documents - self._shard_begin.num_documents
        self._documents_before[split] += documents
        self._num_pieces = self._shard_tokens = 0
        self._shard_begin = last.end

    def _release_side_files(self, shard: int) -> None:
        """Hand out the task for a shard's side files, once all its pieces are written."""
        missing, sides = self._waiting[shard]
        if sides is not None and not missing:
            del self._waiting[shard]
            self._num_open += 1
            self._due.append(sides)

    def _task(self, piece: Piece, shard_tokens: int) -> ShardTask:
        split = shard_split(self._layout, self._number, piece.shard)
        return ShardTask(
            work=self._work,
            plan_id=self._plan_id,
            layout=self._layout,
            source=self._source,
            stream=self._number,
            shard=piece.shard,
            piece=piece.number,
            stretches=piece.stretches,
            first_token=piece.first_token,
            shard_tokens=shard_tokens,
            first_document=self._documents_before[split],
            end=piece.end,
        )

    def _save_end(self, piece: Piece) -> None:
        """Save the end of a shard whose last piece has no bytes: once the next shard is written,
        the lengths are gone, and a later attempt could not find it."""
        place = (self._number, piece.shard, piece.number)
        ShardRecord(self._plan_id, *place, piece.end).save(self._work)

    def _known_end(self, shard: int, piece: int) -> End | None:
        if not are_removed_early(self._work):
            return None  # the parts still show it
        record = saved_record(self._work, self._plan_id, (self._number, shard, piece))
        return None if record is None else record.end

    # From records to shards

    def _shard_of(self, records: list[ShardRecord], num_documents: int) -> Shard:
        number = records[0].shard
        split = shard_split(self._layout, self._number, number)
        marks: list[tuple[int, int]] = []
        num_eot = 0
        for record in records:
            marks += [(num_eot + before, token) for before, token in record.marks]
            num_eot += record.num_eot
        sha256 = tuple(digest for record in records for digest in record.sha256)
        return Shard(
            name=self._format.shard_name(self._layout.name, split, number),
            split=split,
            num_tokens=sum(record.num_tokens for record in records),
            num_eot=num_eot,
            num_documents=num_documents if self._layout.has_boundaries else None,
            num_bytes=sum(record.num_bytes for record in records),
            sha256=sha256[0] if len(sha256) == 1 else sha256,
            marks=tuple(marks),
            side_files=tuple(file for record in records for file in record.side_files),
        )


def _pieces_of(layout: Layout, format_: Format, work: str) -> Pieces:
    """The piece sizes of a raw file, if its store supports pieces; else one piece per shard."""
    if not store_of(work).is_local or not format_.traits.is_raw:
        return WHOLE
    width = DTYPE_BYTES[layout.dtype]
    header = format_.header(layout.shard_tokens or 0, layout.dtype)
    return Pieces((hashing.PIECE_BYTES - len(header)) // width, hashing.PIECE_BYTES // width)
