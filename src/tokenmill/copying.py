"""The copying of a conversion: a dataset's batches into shards, from wherever an attempt got to.

    FolderCopy    shards grow on a workbench in OUT/.tokenmill, whose cursor says how far they are
    StoreCopy     a shard grows in a local scratch folder and is uploaded when it is full; then its
                  record, OUT/.tokenmill/ID/orders/SPLIT-K.json, says that it is there

What a folder holds survives a crash, so that it may end in the middle of a shard. A scratch folder
may be gone, or another machine's: after the last shard that has a record one begins anew. It takes
one shard, twice where the format is not a header and tokens; where the format has one file a split,
that is the split. ID is the beginning of the plan's hash (run.work_of).
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from tokenmill import storage
from tokenmill.batches import CheckedSource, Position
from tokenmill.errors import IntegrityError
from tokenmill.formats import Layout, Shard
from tokenmill.fulfil import WrittenShard, output_of, put_shard
from tokenmill.objectstore import MAX_PARALLEL
from tokenmill.output import WORK_NAME, conflict
from tokenmill.plan import identity_differences
from tokenmill.record import SPLITS
from tokenmill.seal import seal_of, sealed, unsealed
from tokenmill.shards import Output, ShardSet, Tail, state_after
from tokenmill.workbench import Workbench

CHECKPOINT_TOKENS = 128 << 20

# Told after every batch how many tokens are done; returns whether to stop.
Watcher = Callable[[int], bool]


class Stopped(Exception):
    """The watcher asked to stop; what was done is kept."""


class CopyPlan:
    """What a conversion was asked for, in `path`: whoever comes second asks for the same."""

    def __init__(self, path: str, asked: dict[str, Any]) -> None:
        self._path = path
        self._asked = asked
        self._data = sealed(json.dumps(asked, sort_keys=True).encode())
        self.plan_id = seal_of(self._data)

    def begin_or_continue(self) -> None:
        if _loaded(self._path) is None:
            with contextlib.suppress(IntegrityError):  # another was first
                storage.write_record(self._path, self._data)
        self.require()

    def require(self) -> None:
        """Raise ConflictError if another plan is there, FileNotFoundError if there is none."""
        begun = _loaded(self._path)
        if begun is None:
            raise FileNotFoundError(f"there is no {self._path}")
        if changes := identity_differences(begun, self._asked):
            out = os.path.dirname(os.path.dirname(self._path))
            raise conflict(f"the conversion in {out} was begun differently", changes)


class FolderCopy:
    def __init__(self, source: CheckedSource, layout: Layout, work: str) -> None:
        storage.remove_temporaries(work)
        self._source = source
        self._bench = Workbench(work)
        self.folder = self._bench.folder
        done = self._bench.cursor.get("done", {})
        self._done = {split: Position(*done.get(split, (0, 0))) for split in SPLITS}
        self._shards = ShardSet(self.folder, layout, self._bench.cursor.get("streams", {}))
        self._unsynced_tokens = 0

    def run(self, watch: Watcher) -> Output:
        for number, split in enumerate(SPLITS):
            for batch, end in self._source.batches(split, self._done[split]):
                self._shards.put(number, batch)
                self._done[split] = end
                self._unsynced_tokens += batch.num_tokens
                if self._unsynced_tokens >= CHECKPOINT_TOKENS:
                    self._checkpoint()
                if watch(sum(done.num_tokens for done in self._done.values())):
                    self._checkpoint()
                    raise Stopped
        output = self._shards.finish()
        self._checkpoint()
        return output

    def close(self) -> None:
        self._shards.close()

    def _checkpoint(self) -> None:
        self._shards.sync()
        done = {split: (at.num_documents, at.num_tokens) for split, at in self._done.items()}
        self._bench.save({"done": done, "streams": self._shards.state()})
        self._shards.retire()
        self._unsynced_tokens = 0


@dataclass(frozen=True, slots=True)
class _Record:
    """A shard that is in its place, and where the batch begins that what follows it is from. None:
    nothing follows; if the shard before it was the last one, there is no shard either."""

    written: WrittenShard
    batch: Position | None

    def to_json(self) -> bytes:
        batch = None if self.batch is None else asdict(self.batch)
        plain = {"written": self.written.to_plain(), "batch": batch}
        return sealed(json.dumps(plain, sort_keys=True).encode())

    @staticmethod
    def parsed(data: bytes) -> _Record:
        plain = unsealed(data)
        batch = None if plain["batch"] is None else Position(**plain["batch"])
        return _Record(WrittenShard.from_plain(plain["written"]), batch)


class StoreCopy:
    def __init__(self, source: CheckedSource, layout: Layout, out: str, plan: CopyPlan) -> None:
        self._source = source
        self._layout = layout
        self._out = self.folder = out
        self._plan = plan
        work = os.path.join(out, WORK_NAME, plan.plan_id[:16])
        storage.remove_temporaries(work)
        self._folder = os.path.join(work, "orders")
        self._records = {split: self._found_records(split) for split in SPLITS}
        shards = {split: self._shards_of(split) for split in SPLITS}
        self._done = {split: _end_of(shards[split]).num_tokens for split in SPLITS}
        self._scratch = tempfile.TemporaryDirectory(prefix="tokenmill-shard-")
        states = {split: state_after(shards[split]) for split in SPLITS}
        self._shards = ShardSet(self._scratch.name, layout, states)

    def run(self, watch: Watcher) -> Output:
        for number, split in enumerate(SPLITS):
            records = self._records[split]
            begin = records[-1].batch if records else Position()
            if begin is not None:
                self._copy(number, begin, watch)
        self._plan.require()
        written = [record.written for records in self._records.values() for record in records]
        return output_of(self._out, self._layout, written)

    def close(self) -> None:
        self._shards.close()
        self._scratch.cleanup()

    def _copy(self, number: int, begin: Position, watch: Watcher) -> None:
        """The rest of a split, of which `begin` is where a batch begins."""
        split, stream = SPLITS[number], self._shards.streams[number]
        done = _end_of(stream.shards)
        skipped = done.num_documents - begin.num_documents, done.num_tokens - begin.num_tokens
        for batch, end in self._source.batches(split, begin):
            stream.put(batch.after(*skipped))
            skipped = 0, 0
            for shard in self._new_shards(number):
                self._keep(number, shard, Tail(), begin)
            self._done[split], begin = end.num_tokens, end
            if watch(sum(self._done.values())):
                raise Stopped
        stream.finish()
        last = self._new_shards(number)
        self._keep(number, last[0] if last else None, stream.tail, None)

    def _new_shards(self, number: int) -> list[Shard]:
        """Those that are finished and have no record."""
        stream = self._shards.streams[number]
        stream.retire()
        return stream.shards[len(self._records[SPLITS[number]]) :]

    def _keep(self, number: int, shard: Shard | None, tail: Tail, batch: Position | None) -> None:
        self._plan.require()
        if shard is not None:
            put_shard(shard, self._scratch.name, self._out)
        records = self._records[SPLITS[number]]
        written = WrittenShard(self._plan.plan_id, number, len(records), shard, tail)
        record = _Record(written, batch)
        storage.write_record(self._record_path(SPLITS[number], len(records)), record.to_json())
        records.append(record)

    def _shards_of(self, split: str) -> list[Shard]:
        found = [record.written.shard for record in self._records[split]]
        return [shard for shard in found if shard is not None]

    def _found_records(self, split: str) -> list[_Record]:
        """What earlier attempts wrote, up to the first that is not there or not whole."""
        found: list[_Record] = []
        for data in self._read_records(split):
            try:
                found.append(_Record.parsed(data or b""))
            except (ValueError, KeyError, TypeError):
                break
        return found

    def _read_records(self, split: str) -> Iterator[bytes | None]:
        """Twice as many at a time as before: where there is none, not many were asked for."""
        first, count = 0, 1
        while True:
            numbers = range(first, first + count)
            yield from storage.read_files([self._record_path(split, n) for n in numbers])
            first, count = first + count, min(2 * count, MAX_PARALLEL)

    def _record_path(self, split: str, index: int) -> str:
        return os.path.join(self._folder, f"{split}-{index:08d}.json")


def _end_of(shards: Iterable[Shard]) -> Position:
    """Documents are counted where the layout has boundaries."""
    found = list(shards)
    num_documents = sum(shard.num_documents or 0 for shard in found)
    return Position(num_documents, sum(shard.num_tokens for shard in found))


def _loaded(path: str) -> dict[str, Any] | None:
    try:
        return unsealed(storage.read_file(path))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise IntegrityError(
            f"{path} is damaged: {error}", hint="start anew with --overwrite"
        ) from error
