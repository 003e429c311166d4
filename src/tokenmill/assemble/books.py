"""The books of an assembly: which shard tasks are due, which are done, which parts can be removed.

Records of parts arrive in any order. A task is due as soon as they cover its stretch of the stream;
a shuffle needs all of them first. Then the records of tasks arrive. A part is removed when every
task that reads it has a record, so that the disk never holds the output twice.

The due tasks are a function of the records alone. A resumed run hands out the same tasks again; the
worker that gets a finished task notices that it is done (writing.py).
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tokenmill.assemble.fitting import Fitted, FittingOptions, PartTotals, Share, fitted
from tokenmill.assemble.parts_in_use import PartsInUse
from tokenmill.assemble.sidecars import Sidecar, Sidecars, SplitEnd
from tokenmill.assemble.sources import PartsInOrder, ShuffledParts
from tokenmill.assemble.stream import ShardStream
from tokenmill.assemble.task import (
    SIDECAR,
    Block,
    ShardRecord,
    ShardTask,
    Tail,
    TokenSource,
    make_folders,
    shards_folder,
)
from tokenmill.assemble.writing import created
from tokenmill.encode.ledger import Ledger, save_if_grown
from tokenmill.encode.record import PARTS_NAME, RECORDS_NAME, SPLITS, PartRecord
from tokenmill.formats import Layout, Shard, SideFile, get_format

# The bound on tasks waiting to be handed out. A resumed run could have a hundred thousand at once,
# of 10 kB each; more are cut as these finish.
MAX_DUE = 1024


@dataclass(frozen=True, slots=True)
class Output:
    """All files, in the order of the streams. `split_rule` says how validation data was chosen:
    "documents", "tokens" (the last of the stream) or "first-shard"."""

    shards: tuple[Shard, ...]
    index_files: tuple[SideFile, ...]
    tails: dict[str, Tail]
    split_rule: str = "documents"
    sidecars: tuple[Sidecar, ...] = ()

    @property
    def sizes(self) -> dict[str, int]:
        """Every file's name and size."""
        side_files = [file for shard in self.shards for file in shard.side_files]
        sizes = {shard.name: shard.num_bytes for shard in self.shards}
        sizes |= {file.name: file.num_bytes for file in (*side_files, *self.index_files)}
        return sizes | {file.name: file.num_bytes for file in self.sidecars}


class Books:
    """The streams of an assembly, from any source."""

    def __init__(self, work: str, plan_id: str, folders: Iterable[str] = ()) -> None:
        """`folders` are others of the work folder that this run writes to."""
        self.folder = shards_folder(work)
        self.due: collections.deque[ShardTask] = collections.deque()  # not handed out yet
        self._work = work
        self._plan_id = plan_id
        self._streams: list[ShardStream] = []
        make_folders(work, folders)

    def add_stream(self, layout: Layout, number: int, source: TokenSource) -> ShardStream:
        """Add the next stream, whose tasks read from `source`."""
        self._streams.append(ShardStream(self._work, self._plan_id, layout, number, source))
        return self._streams[-1]

    def tasks(self) -> Iterator[ShardTask | None]:
        """The due tasks until all are done; None: nothing is due until `done` is called again."""
        while self.due or not self.is_done:
            yield self.due.popleft() if self.due else None

    def done(self, record: ShardRecord) -> None:
        """Add the record of a finished task."""
        self.due.extend(self._streams[record.stream].done(record))

    @property
    def is_done(self) -> bool:
        return all(stream.is_done for stream in self._streams)

    def output(self, layout: Layout) -> Output:
        """All files. First writes the index files, which list the shards."""
        shards = tuple(shard for stream in self._streams for shard in stream.shards())
        tails = {split: Tail() for split in SPLITS}
        tails |= {SPLITS[number]: stream.tail for number, stream in enumerate(self._streams)}
        return Output(shards, _index_files(self.folder, layout, shards), tails)


class Assembly(Books):
    """Makes shards from parts. `num_buckets` is 0 unless documents are shuffled."""

    def __init__(
        self,
        work: str,
        plan_id: str,
        layout: Layout,
        options: FittingOptions,
        num_slices: int,
        num_buckets: int,
        sidecars: Sidecars | None = None,
    ) -> None:
        super().__init__(work, plan_id, (PARTS_NAME, RECORDS_NAME))
        self._layout = layout
        self._options = options
        self._num_slices = num_slices
        self._last_index: int | None = None  # of the last slice, if --limit-tokens cut it short
        self._num_buckets = num_buckets
        self.records = Ledger()  # of parts
        self._totals = PartTotals()
        self._fitted: Fitted | None = None
        self._sources: list[PartsInOrder | ShuffledParts] = []
        self._shares: Sequence[Share | None] = ()
        self._num_fed = 0  # parts fed to the streams, in plan order
        self._is_fed = False  # all parts are fed
        self._parts = PartsInUse(work)
        self._sidecars = sidecars  # None: nothing is kept (--keep)

    def resume(self, records: Ledger) -> None:
        """Continue from the records of earlier attempts; this attempt adds its own."""
        self.records = records
        save_if_grown(self._work, records)
        documents = (sum(records.num_documents(split)) for split in range(len(SPLITS)))
        self._totals = PartTotals(records.num_tokens_by_split, (next(documents), next(documents)))
        self._feed()

    def add(self, record: PartRecord) -> None:
        """Add the record of a finished part."""
        self.records.add(record)
        save_if_grown(self._work, self.records)
        if record.part_index is not None:
            self._parts.replaced(record.slice_index)
        if self._fitted is None:
            self._totals += record
        self._feed()

    def end_with(self, index: int, num_slices: int) -> None:
        """Note that there are only `num_slices` slices, the last of them with this index."""
        self._num_slices = num_slices
        self._last_index = index

    def done(self, record: ShardRecord) -> None:
        if record.piece == SIDECAR:
            assert self._sidecars is not None
            self._sidecars.done(record)
            return
        super().done(record)
        self._parts.task_done(record.place)
        self._feed()

    @property
    def is_done(self) -> bool:
        is_kept = self._sidecars is None or self._sidecars.is_done
        return self._is_fed and is_kept and super().is_done

    def finished(self) -> Output:
        """All files, once everything is done."""
        assert self._fitted is not None
        output = self.output(self._fitted.layout)
        kept = () if self._sidecars is None else self._sidecars.files()
        return dataclasses.replace(output, split_rule=self._fitted.split_rule, sidecars=kept)

    def _feed(self) -> None:
        """Cut the stream as far as the records cover it, up to MAX_DUE tasks."""
        is_all = len(self.records) == self._num_slices
        if self._is_fed or (self._num_buckets and not is_all):
            return
        if self._fitted is None:
            self._fitted = fitted(self._layout, self._options, self._totals, is_all)
            if self._fitted is None:
                return
            self._begin(self._fitted)
        if self._num_buckets:
            self._feed_buckets()
        else:
            self._feed_parts()
        if is_all and (self._num_buckets or self._num_fed == self._num_slices):
            self._is_fed = True
            for number in range(len(self._streams)):
                self._hand_out(number, self._streams[number].finish())
            if self._sidecars is not None:
                self.due.extend(self._sidecar_tasks(self._sidecars, self._fitted))

    def _sidecar_tasks(self, sidecars: Sidecars, found: Fitted) -> Iterator[ShardTask]:
        """The tasks that write sidecars, once all parts are fed."""
        records = [self.records[self._index_at(number)] for number in range(self._num_slices)]
        ends: dict[int, SplitEnd | None] = dict.fromkeys(range(len(SPLITS)))
        if found.layout.first_shard_is_val:
            ends = {0: SplitEnd(("val", "train"), self._streams[0].first_shard_tokens)}
        elif found.val_tokens is not None:
            ends = {found.stream: SplitEnd(("train", "val"), self._streams[0].end_of_tasks)}
        for split, end in ends.items():
            source = sidecars.source(split, bool(self._num_buckets))
            blocks = source.blocks(records)
            if self._num_buckets:
                source.save_chunks(records, self._num_buckets)
                tokens = next(s for s in self._sources if s.split == split)
                assert isinstance(tokens, ShuffledParts)
                blocks = tokens.blocks()
            yield from sidecars.tasks(source, blocks, end)

    def _begin(self, found: Fitted) -> None:
        """Create the streams, now that the content of each is known."""
        origins: Iterable[int] = range(len(SPLITS))
        self._shares = (None, None)
        if found.val_tokens is not None:
            origins = (found.stream,) * len(SPLITS)
            num_train = sum(self._totals.num_tokens) - found.val_tokens
            self._shares = (Share(found.layout, num_train, False), Share(found.layout, num_train))
        for number, split in enumerate(origins):
            self._sources.append(self._source(found.layout, split))
            self.add_stream(found.layout, number, self._sources[-1])

    def _source(self, layout: Layout, split: int) -> PartsInOrder | ShuffledParts:
        if self._num_buckets:
            return ShuffledParts(self._work, split, layout.dtype, self._num_buckets)
        return PartsInOrder(self._work, split, layout.dtype)

    def _feed_parts(self) -> None:
        """Feed the parts after the last one fed, as far as they have records."""
        while self._num_fed < self._num_slices and len(self.due) < MAX_DUE:
            index = self._index_at(self._num_fed)
            if index not in self.records:
                break
            self._num_fed += 1
            sizes, chunks = self.records.extent(index)
            index = self.records.part_of(index)
            for split, num_bytes in enumerate(sizes):
                if not num_bytes:
                    self._parts.no_part((split, index))
            for number, source in enumerate(self._sources):
                assert isinstance(source, PartsInOrder)
                for block in source.blocks(index, chunks):
                    self._put(number, block)

    def _index_at(self, number: int) -> int:
        """The index of the record of the plan's slice `number`."""
        if self._last_index is not None and number == self._num_slices - 1:
            return self._last_index
        return number

    def _feed_buckets(self) -> None:
        for number, source in enumerate(self._sources):
            assert isinstance(source, ShuffledParts)
            source.save_chunks(self.records.values())
            for block in source.blocks():
                self._put(number, block)

    def _put(self, number: int, block: Block) -> None:
        source, share = self._sources[number], self._shares[number]
        if share is not None:
            file = (source.split, block.key[0])
            block = share.of(block, source)
            if share.is_divided and not self._num_buckets:
                self._parts.keep(file)  # every attempt needs its lengths to find the same cut
        if not block.num_tokens:
            return
        if not self._num_buckets:
            self._parts.block_fed(number, (source.split, block.key[0]), block.num_tokens)
        self._hand_out(number, self._streams[number].feed(block))

    def _hand_out(self, number: int, tasks: list[ShardTask]) -> None:
        if not tasks:
            return
        self.due.extend(tasks)
        if not self._num_buckets:
            split = self._sources[number].split
            for task in tasks:
                self._parts.task_made(task, split)
            self._parts.blocks_done(number, self._streams[number].end_of_tasks)


def _index_files(folder: str, layout: Layout, shards: Sequence[Shard]) -> tuple[SideFile, ...]:
    """Write the files that list each split's shards, if the format has them."""
    written = []
    for split in SPLITS:
        of_split = [shard for shard in shards if shard.split == split]
        index = get_format(layout.format).index(split, of_split, layout) if of_split else {}
        for name, data in sorted(index.items()):
            with created(folder, name) as file:
                file.write(data)
            written.append(SideFile(name, file.num_bytes, file.digest))
    return tuple(written)
