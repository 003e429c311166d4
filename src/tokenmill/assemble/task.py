"""Shard tasks and their records: plain data that is sent to workers and stored as JSON."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tokenmill.encode.record import SPLITS
from tokenmill.formats import Layout, SideFile
from tokenmill.storage.checked_json import checked_object, checksummed
from tokenmill.storage.store import save_record, store_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

SHARDS_NAME = "shards"  # in the work folder: staged shards
_TASKS_NAME = "tasks"
_LENGTHS_NAME = "lengths"
# In place of a piece's number: the side files of a shard in pieces; a sidecar (sidecars.py).
SIDE_FILES, SIDECAR = -1, -2
Place = tuple[int, int, int]  # of a task: stream, shard, piece


class Block(NamedTuple):
    """Consecutive documents of a stream that are read together: a chunk of a part, one bucket of
    all parts, or a stretch of another dataset. `key` identifies it to its source. With
    `first_token` and `first_document` it is the rest of a block."""

    key: tuple[int, ...]
    num_tokens: int
    num_documents: int
    first_token: int = 0
    first_document: int = 0

    @property
    def whole(self) -> Stretch:
        return self.stretch(0, self.num_tokens, 0, self.num_documents)

    def stretch(self, start: int, stop: int, first: int, last: int) -> Stretch:
        token, document = self.first_token, self.first_document
        return Stretch(self.key, start + token, stop + token, first + document, last + document)

    def cut_at(self, num_tokens: int, num_documents: int) -> tuple[Block, Block]:
        """The first `num_tokens` and `num_documents`, and the rest."""
        token, document = self.first_token, self.first_document
        return (
            Block(self.key, num_tokens, num_documents, token, document),
            Block(
                self.key,
                self.num_tokens - num_tokens,
                self.num_documents - num_documents,
                token + num_tokens,
                document + num_documents,
            ),
        )


class Stretch(NamedTuple):
    """Tokens `start` to `stop` of a block; `first` to `last` are its documents that end there."""

    key: tuple[int, ...]
    start: int
    stop: int
    first: int
    last: int

    @property
    def is_empty(self) -> bool:
        return self.start == self.stop and self.first == self.last


@dataclass(frozen=True, slots=True)
class End:
    """Where a piece ends: the tokens and documents of the split's stream before it, and whether its
    shard also ends there."""

    num_tokens: int
    num_documents: int
    closes_shard: bool


@dataclass(frozen=True, slots=True)
class Tail:
    """The last tokens of a split that is cut into samples: too few for another sample."""

    num_tokens: int = 0
    num_eot: int = 0


class TaskSource(Protocol):
    """Where a task's content comes from."""

    def to_plain(self) -> dict[str, Any]:
        """Plain data from which another process can open the source."""


class TokenSource(TaskSource, Protocol):
    """Where tokens come from: parts, or another dataset."""

    def tokens(self, stretch: Stretch) -> Iterable[Any]:
        """The bytes of the stretch's tokens, in pieces of any size."""

    def lengths(self, stretch: Stretch) -> npt.NDArray[np.uint32]:
        """The lengths of the stretch's documents, in tokens."""


@dataclass(frozen=True, slots=True)
class ShardTask:
    """A task to write a piece of a shard, a whole shard, a shard's side files, or a sidecar."""

    work: str
    plan_id: str
    layout: Layout
    source: TaskSource  # a TokenSource, unless the task is a sidecar
    stream: int  # position in SPLITS
    shard: int  # number in its stream
    piece: int  # number in its shard, SIDE_FILES or SIDECAR
    stretches: tuple[Stretch, ...]
    first_token: int  # of the piece, in its shard
    shard_tokens: int  # of the whole shard; may be 0 if there is no header to state it
    first_document: int  # of the shard, in its split, if the layout has boundaries
    end: End
    num_pieces: int = 0  # of the shard, for SIDE_FILES

    @property
    def is_whole(self) -> bool:
        """Whether this piece is the whole shard."""
        return self.piece == 0 and self.end.closes_shard

    @property
    def place(self) -> Place:
        return self.stream, self.shard, self.piece

    @property
    def num_tokens(self) -> int:
        return sum(stretch.stop - stretch.start for stretch in self.stretches)

    @property
    def path(self) -> str:
        """The path of its record."""
        return task_path(self.work, *self.place)

    def lengths_path(self, piece: int) -> str:
        """The path of a piece's document lengths, which the side files need."""
        path = task_path(self.work, self.stream, self.shard, piece, _LENGTHS_NAME)
        return path.removesuffix(".json") + ".u4"

    def to_plain(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in self.__slots__}
        return {
            **plain,
            "layout": dataclasses.asdict(self.layout),
            "source": self.source.to_plain(),
            "stretches": [(s.key, s.start, s.stop, s.first, s.last) for s in self.stretches],
            "end": dataclasses.astuple(self.end),
        }

    @staticmethod
    def from_plain(plain: dict[str, Any], source: TaskSource) -> ShardTask:
        stretches = (Stretch(tuple(key), *rest) for key, *rest in plain["stretches"])
        return ShardTask(
            **{
                **plain,
                "layout": Layout(**plain["layout"]),
                "source": source,
                "stretches": tuple(stretches),
                "end": End(*plain["end"]),
            }
        )


@dataclass(frozen=True, slots=True)
class ShardRecord:
    """The proof that a shard task is done: a piece, unless `piece` is SIDE_FILES or SIDECAR."""

    plan_id: str
    stream: int
    shard: int
    piece: int
    end: End
    num_tokens: int = 0
    num_eot: int = 0
    num_bytes: int = 0  # of the shard's file; 0: too few tokens for a sample, so there is no file
    sha256: tuple[str, ...] = ()  # of these bytes; one per piece of a larger file
    marks: tuple[tuple[int, int], ...] = ()  # (EOT ids of the piece before it, token of the shard)
    side_files: tuple[SideFile, ...] = ()
    tail: Tail = Tail()
    tags: dict[str, str | None] = dataclasses.field(default_factory=dict)  # of objects, by name

    @property
    def place(self) -> Place:
        return self.stream, self.shard, self.piece

    def save(self, work: str) -> None:
        data = json.dumps(dataclasses.asdict(self), sort_keys=True).encode()
        save_record(task_path(work, *self.place), checksummed(data))

    @staticmethod
    def from_plain(plain: dict[str, Any]) -> ShardRecord:
        return ShardRecord(
            **{
                **plain,
                "end": End(**plain["end"]),
                "sha256": tuple(plain["sha256"]),
                "marks": tuple((eot, token) for eot, token in plain["marks"]),
                "side_files": tuple(SideFile(**file) for file in plain["side_files"]),
                "tail": Tail(**plain["tail"]),
            }
        )


def task_path(work: str, stream: int, shard: int, piece: int, folder: str = _TASKS_NAME) -> str:
    name = {SIDE_FILES: "sides", SIDECAR: "kept"}.get(piece, f"{piece:06d}")
    return os.path.join(work, folder, f"{SPLITS[stream]}-{shard:08d}-{name}.json")


def shards_folder(work: str) -> str:
    """The folder of a run's shards: beside its other work until they are moved into place, or, in
    a bucket, where nothing can be moved, the folder of the finished dataset."""
    if store_of(work).is_local:
        return os.path.join(work, SHARDS_NAME)
    return os.path.join(os.path.dirname(os.path.dirname(work)), os.path.basename(work))


def make_folders(work: str, names: Iterable[str]) -> None:
    """Make these folders and those that tasks write to, and remove what killed attempts have left
    there."""
    store = store_of(work)
    names = (*names, SHARDS_NAME, _TASKS_NAME, _LENGTHS_NAME)
    for name in names:
        store.make_folder(os.path.join(work, name))
    store.sweep(work, names)
    if not store.is_local:
        store.sweep(shards_folder(work), ())


def saved_record(work: str, plan_id: str, place: Place) -> ShardRecord | None:
    """The record of an earlier attempt; None if it is missing, damaged or of another plan."""
    try:
        data = store_of(work).read(task_path(work, *place))
        record = ShardRecord.from_plain(checked_object(data))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    return record if (record.plan_id, record.place) == (plan_id, place) else None
