"""Shard tasks and their records: plain data that travels to workers and is kept as JSON."""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass
from typing import Any

from tokenmill import storage
from tokenmill.formats import Layout, SideFile
from tokenmill.record import SPLITS
from tokenmill.seal import sealed, unsealed

SHARDS_NAME = "shards"  # in the work folder: shards on their way
_TASKS_NAME = "tasks"
_LENGTHS_NAME = "lengths"
SIDES = -1  # instead of a piece's number: the files beside a shard, once its pieces are there


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive whole documents of a split that are read together: a run of a part, one bucket of
    all parts, or a stretch of another dataset. `key` tells its source which one it is."""

    key: tuple[int, ...]
    num_tokens: int
    num_documents: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """Tokens `start` to `stop` of a block; `first` to `last` are its documents that end there."""

    key: tuple[int, ...]
    start: int
    stop: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class End:
    """Where a piece ends: tokens and documents of the split's stream before that place, and whether
    its shard ends there, too."""

    num_tokens: int
    num_documents: int
    closes_shard: bool


@dataclass(frozen=True, slots=True)
class Tail:
    """What is left of a split when it is cut into samples: too few tokens for one more."""

    num_tokens: int = 0
    num_eot: int = 0


@dataclass(frozen=True, slots=True)
class ShardTask:
    """One piece of a shard to be written, or all of it, or the files beside it."""

    work: str
    plan_id: str
    layout: Layout
    source: dict[str, Any]  # what sources.py opens
    stream: int  # position in SPLITS
    shard: int  # number in its stream
    piece: int  # number in its shard, or SIDES
    stretches: tuple[Stretch, ...]
    first_token: int  # of the piece, in its shard
    shard_tokens: int  # of the whole shard; 0 where its header does not say
    first_document: int  # of the shard, in its split; counted where the layout has boundaries
    end: End
    num_pieces: int = 0  # of the shard, with SIDES

    @property
    def is_whole(self) -> bool:
        """Whether the shard is this piece and nothing else."""
        return self.piece == 0 and self.end.closes_shard

    @property
    def num_tokens(self) -> int:
        return sum(stretch.stop - stretch.start for stretch in self.stretches)

    @property
    def path(self) -> str:
        """Where its record is."""
        return task_path(self.work, self.stream, self.shard, self.piece)

    def lengths_path(self, piece: int) -> str:
        """Where a piece keeps its documents' lengths for the files beside the shard."""
        path = task_path(self.work, self.stream, self.shard, piece, _LENGTHS_NAME)
        return path.removesuffix(".json") + ".u4"

    def to_plain(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @staticmethod
    def from_plain(plain: dict[str, Any]) -> ShardTask:
        stretches = (Stretch(**{**s, "key": tuple(s["key"])}) for s in plain["stretches"])
        layout, end = Layout(**plain["layout"]), End(**plain["end"])
        return ShardTask(**{**plain, "layout": layout, "stretches": tuple(stretches), "end": end})


@dataclass(frozen=True, slots=True)
class ShardRecord:
    """The proof that a shard task is done; of a piece unless `piece` is SIDES."""

    plan_id: str
    stream: int
    shard: int
    piece: int
    end: End
    num_tokens: int = 0
    num_eot: int = 0
    num_bytes: int = 0  # of the shard's file; 0: too few tokens for a sample, so there is no file
    sha256: tuple[str, ...] = ()  # of these bytes; of each piece of a file where there are several
    marks: tuple[tuple[int, int], ...] = ()  # (EOT ids in the piece before, token of the shard)
    side_files: tuple[SideFile, ...] = ()
    tail: Tail = Tail()
    tags: dict[str, str | None] = dataclasses.field(default_factory=dict)  # of objects, by name

    @property
    def place(self) -> tuple[int, int, int]:
        return self.stream, self.shard, self.piece

    def save(self, work: str) -> None:
        data = json.dumps(dataclasses.asdict(self), sort_keys=True).encode()
        storage.write_record(task_path(work, *self.place), sealed(data))

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
    name = "sides" if piece == SIDES else f"{piece:06d}"
    return os.path.join(work, folder, f"{SPLITS[stream]}-{shard:08d}-{name}.json")


def make_folders(work: str) -> None:
    """Make the folders that tasks write into."""
    for name in (SHARDS_NAME, _TASKS_NAME, _LENGTHS_NAME):
        storage.make_folder(os.path.join(work, name))
        storage.remove_temporaries(os.path.join(work, name))


def saved_record(
    work: str, plan_id: str, place: tuple[int, int, int]
) -> ShardRecord | None:
    """The record that an earlier attempt left, if there is one of this plan and it is whole."""
    try:
        record = ShardRecord.from_plain(unsealed(storage.read_file(task_path(work, *place))))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    return record if (record.plan_id, record.place) == (plan_id, place) else None
