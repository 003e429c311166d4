"""Shards in the making: token streams cut into files of a format, safe at every moment.

`ShardSet` takes each split's tokens, whole documents at a time, and cuts them into shards: where a
shard is full, through documents if need be, or between documents where the format holds their
boundaries. The cuts are a function of the token stream alone. Assembly feeds it from parts, convert
from another dataset.

An open shard is a growing file of tokens; beside it grows one of document lengths, if the format
wants them. A format that is not a header and tokens (Traits.is_raw) has its shard written from
these once they are complete: a second copy, of one shard at a time. `state()` is all that is needed
to go on after a crash, once `sync()` has returned; the caller keeps it, and calls `retire()` when
it has.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill import storage
from tokenmill.errors import IntegrityError
from tokenmill.formats import (
    DTYPE_BYTES,
    Contents,
    File,
    Format,
    Layout,
    Shard,
    SideFile,
    get_format,
)
from tokenmill.record import SPLITS

# How often a long shard notes where a document starts, so that one can be found without a search
# from the beginning: a search through 16M tokens takes milliseconds.
MARK_TOKENS = 16 << 20


@dataclass(frozen=True)
class Batch:
    """Some whole documents. `pieces(start, stop)` are the bytes of those tokens, bit by bit."""

    num_tokens: int
    pieces: Callable[[int, int], Iterable[Any]]
    lengths: npt.NDArray[np.uint32] | None = None  # needed where the layout has boundaries

    def after(self, num_documents: int, num_tokens: int) -> Batch:
        """What follows its first documents, which have so many tokens."""
        return Batch(
            self.num_tokens - num_tokens,
            lambda start, stop: self.pieces(start + num_tokens, stop + num_tokens),
            None if self.lengths is None else self.lengths[num_documents:],
        )


@dataclass(frozen=True, slots=True)
class Tail:
    """What is left of a split when it is cut into samples: too few tokens for one more."""

    num_tokens: int = 0
    num_eot: int = 0


@dataclass(frozen=True, slots=True)
class Output:
    """All that was made, in the order of the streams."""

    shards: tuple[Shard, ...]
    index_files: tuple[SideFile, ...]
    tails: dict[str, Tail]

    @property
    def sizes(self) -> dict[str, int]:
        """Every file's name and size."""
        side_files = [file for shard in self.shards for file in shard.side_files]
        sizes = {shard.name: shard.num_bytes for shard in self.shards}
        return sizes | {file.name: file.num_bytes for file in (*side_files, *self.index_files)}


@dataclass(frozen=True, slots=True)
class ShardPlace:
    """Where a shard stands in its stream: its number, and how many documents of its split come
    before it (counted where the layout has boundaries)."""

    index: int
    first_document: int


FIRST = ShardPlace(0, 0)


def split_of(layout: Layout, stream: str, index: int) -> str:
    """The split that a stream's shard number `index` belongs to."""
    return "val" if layout.first_shard_is_val and not index else stream


def write_shard_files(
    folder: str, layout: Layout, split: str, place: ShardPlace, batches: Iterable[Batch]
) -> tuple[Shard | None, Tail]:
    """One shard of a stream on its own, its files in a folder; None if no sample is full."""
    stream = _ShardStream(layout, get_format(layout.format), folder, split, None, place)
    with contextlib.closing(stream):
        for batch in batches:
            stream.put(batch)
        stream.finish()
    stream.retire()
    if len(stream.shards) > 1:
        raise IntegrityError(f"{split} shard {place.index} was given more than it can hold")
    return (stream.shards[0] if stream.shards else None), stream.tail


def write_index_files(
    folder: str, format_: Format, layout: Layout, shards: Sequence[Shard]
) -> tuple[SideFile, ...]:
    """The files that list each split's shards, for formats that have such."""
    written = []
    for split in SPLITS:
        of_split = [shard for shard in shards if shard.split == split]
        files = format_.index(split, of_split, layout) if of_split else {}
        for name, data in sorted(files.items()):
            with _created(folder, name) as file:
                file.write(data)
            written.append(_as_side_file(name, file))
    return tuple(written)


class ShardSet:
    """The shards of all splits."""

    def __init__(
        self, folder: str, layout: Layout, state: dict[str, Any], format_: Format | None = None
    ) -> None:
        self._folder = folder
        self._layout = layout
        self._format = format_ or get_format(layout.format)
        self.streams = [
            _ShardStream(layout, self._format, folder, split, state.get(split)) for split in SPLITS
        ]

    def put(self, split: int, batch: Batch) -> None:
        self.streams[split].put(batch)

    def sync(self) -> None:
        for stream in self.streams:
            stream.sync()

    def state(self) -> dict[str, Any]:
        return {stream.split: stream.state() for stream in self.streams}

    def retire(self) -> None:
        """Remove what finished shards were made of. Only once a `state()` that has them is safe."""
        for stream in self.streams:
            stream.retire()

    def finish(self) -> Output:
        """Close the last shards and list them."""
        for stream in self.streams:
            stream.finish()
        shards = [shard for stream in self.streams for shard in stream.shards]
        index_files = write_index_files(self._folder, self._format, self._layout, shards)
        tails = {stream.split: stream.tail for stream in self.streams}
        return Output(tuple(shards), index_files, tails)

    def close(self) -> None:
        for stream in self.streams:
            stream.close()


class _ShardStream:
    """One split's tokens on their way into shards."""

    def __init__(
        self,
        layout: Layout,
        format_: Format,
        folder: str,
        split: str,
        state: dict[str, Any] | None,
        place: ShardPlace = FIRST,
    ) -> None:
        self.split = split
        self._place = place
        self._layout = layout
        self._format = format_
        self._folder = folder
        self._token_bytes = DTYPE_BYTES[layout.dtype]
        self._dtype = np.dtype(layout.dtype).newbyteorder("<")
        # A shard is opened with the header of a full one; finish() corrects that of the last.
        self._header = b""
        if self._format.traits.is_raw:
            self._header = self._format.header(layout.shard_tokens or 0, layout.dtype)
        self._file: storage.GrowingFile | None = None
        self._lengths: storage.GrowingFile | None = None
        self._spent: list[str] = []  # growing files of finished shards
        state = state or _BEGINNING
        self._num_tokens = state["num_tokens"]  # of the open shard, like the next three
        self._num_eot = state["num_eot"]
        self._num_documents = state["num_documents"]
        self._marks = [(eot, token) for eot, token in state["marks"]]
        self.shards = [shard_from(shard) for shard in state["shards"]]
        self.tail = Tail(**state["tail"])
        for shard in self.shards:
            path = os.path.join(folder, shard.name)
            if storage.size(path) not in (None, shard.num_bytes):
                raise IntegrityError(
                    f"{path} changed since it was written", hint="start anew with --overwrite"
                )
        if state["is_open"]:
            num_bytes = len(self._header) + self._num_tokens * self._token_bytes
            self._open(num_bytes, state["sha256"])

    def put(self, batch: Batch) -> None:
        since_mark = self._num_tokens - (self._marks[-1][1] if self._marks else 0)
        if since_mark >= MARK_TOKENS:
            self._marks.append((self._num_eot, self._num_tokens))
        if self._layout.has_boundaries:
            self._put_documents(batch)
        else:
            self._put_tokens(batch)

    def finish(self) -> None:
        if self._file is None:
            return
        if self._format.traits.is_raw:
            header = self._format.header(self._num_tokens, self._layout.dtype)
            if header != self._header:
                self._file.replace_start(header)
        self._complete()

    def sync(self) -> None:
        for file in (self._file, self._lengths):
            if file is not None:
                file.sync()

    def close(self) -> None:
        for file in (self._file, self._lengths):
            if file is not None:
                file.close()

    def state(self) -> dict[str, Any]:
        return {
            "num_tokens": self._num_tokens,
            "num_eot": self._num_eot,
            "num_documents": self._num_documents,
            "marks": self._marks,
            "is_open": self._file is not None,
            "sha256": [file.sha256 for file in (self._file, self._lengths) if file is not None],
            "shards": [asdict(shard) for shard in self.shards],
            "tail": asdict(self.tail),
        }

    def retire(self) -> None:
        for path in self._spent:
            storage.remove(path)
        self._spent = []

    def _put_tokens(self, batch: Batch) -> None:
        start = 0
        while start < batch.num_tokens:
            if self._file is None:
                self._open()
            stop = batch.num_tokens
            if self._layout.shard_tokens is not None:
                stop = min(stop, start + self._layout.shard_tokens - self._num_tokens)
            self._append(batch, start, stop)
            start = stop
            if self._num_tokens == self._layout.shard_tokens:
                self._complete()

    def _put_documents(self, batch: Batch) -> None:
        """A shard ends before the document that would be too much for it."""
        assert batch.lengths is not None
        ends = np.cumsum(batch.lengths, dtype=np.int64)
        document = start = 0
        while document < len(ends):
            if self._file is None:
                self._open()
            next_document = len(ends)
            if self._layout.shard_tokens is not None:
                room = self._layout.shard_tokens - self._num_tokens
                next_document = int(np.searchsorted(ends, start + room, "right"))
                if next_document <= document and self._num_documents:
                    self._complete()
                    continue
                next_document = max(next_document, document + 1)  # larger than a shard: alone
            stop = int(ends[next_document - 1])
            self._append(batch, start, stop)
            assert self._lengths is not None
            self._lengths.write(batch.lengths[document:next_document].astype("<u4", copy=False))
            self._num_documents += next_document - document
            document, start = next_document, stop

    def _append(self, batch: Batch, start: int, stop: int) -> None:
        assert self._file is not None
        for piece in batch.pieces(start, stop):
            self._file.write(piece)
            self._num_eot += _count(np.frombuffer(piece, self._dtype), self._layout.eot_id)
        self._num_tokens += stop - start

    def _open(self, num_bytes: int = 0, sha256: Sequence[str | None] = (None, None)) -> None:
        """Open the next shard's files, new, or `num_bytes` long and of this hash, as synced."""
        path = os.path.join(self._folder, self._shard_name())
        if os.path.dirname(self._shard_name()):
            storage.make_folder(os.path.dirname(path))
        tokens_path = path if self._format.traits.is_raw else path + ".tokens"
        start = self._header if num_bytes else b""
        self._file = storage.GrowingFile(tokens_path, num_bytes, sha256[0], start)
        if not num_bytes:
            self._file.write(self._header)
        if self._layout.has_boundaries:
            lengths_bytes = 4 * self._num_documents
            self._lengths = storage.GrowingFile(path + ".lengths", lengths_bytes, sha256[1])

    def _complete(self) -> None:
        assert self._file is not None
        for file in (self._file, self._lengths):
            if file is not None:
                file.finish()
        tokens = _mapped(self._file.path, self._dtype, len(self._header), self._num_tokens)
        if self._layout.seq_len and self._format.traits.boundaries:
            whole = len(tokens) - len(tokens) % self._layout.seq_len
            rest, tokens = tokens[whole:], tokens[:whole]
            self.tail = Tail(len(rest), _count(rest, self._layout.eot_id))
            self._num_eot -= self.tail.num_eot
        if len(tokens) or self._num_documents:
            self.shards.append(self._finished_shard(tokens))
        if not self._format.traits.is_raw:
            self._spent.append(self._file.path)
        if self._lengths is not None:
            self._spent.append(self._lengths.path)
        self._file = self._lengths = None
        self._num_tokens = self._num_eot = self._num_documents = 0
        self._marks = []

    def _finished_shard(self, tokens: npt.NDArray[np.unsignedinteger]) -> Shard:
        assert self._file is not None
        name, split = self._shard_name(), self._shard_split()
        made: dict[str, SideFile] = {}

        @contextlib.contextmanager
        def create(file_name: str) -> Iterator[File]:
            with _created(self._folder, file_name) as file:
                yield file
            made[file_name] = _as_side_file(file_name, file)

        lengths = None
        if self._lengths is not None:
            lengths = _mapped(self._lengths.path, np.dtype("<u4"), 0, self._num_documents)
        before = self._place.first_document
        before += sum(s.num_documents or 0 for s in self.shards if s.split == split)
        self._format.write(Contents(name, split, tokens, lengths, before, self._layout), create)
        if self._format.traits.is_raw:
            main = SideFile(name, self._file.num_bytes, self._file.sha256)
        else:
            main = made.pop(name)
        return Shard(
            name,
            split,
            len(tokens),
            self._num_eot,
            self._num_documents if self._layout.has_boundaries else None,
            main.num_bytes,
            main.sha256,
            tuple(self._marks),
            tuple(made[side_name] for side_name in sorted(made)),
        )

    def _shard_split(self) -> str:
        return split_of(self._layout, self.split, self._shard_index())

    def _shard_name(self) -> str:
        index = self._shard_index()
        return self._format.shard_name(self._layout.name, self._shard_split(), index)

    def _shard_index(self) -> int:
        return self._place.index + len(self.shards)


_BEGINNING: dict[str, Any] = {
    "num_tokens": 0,
    "num_eot": 0,
    "num_documents": 0,
    "marks": [],
    "is_open": False,
    "shards": [],
    "tail": {},
}


def state_after(shards: Sequence[Shard]) -> dict[str, Any]:
    """The state of a stream that these shards are finished of, and no other is begun."""
    return {**_BEGINNING, "shards": [asdict(shard) for shard in shards]}


@contextlib.contextmanager
def _created(folder: str, name: str) -> Iterator[storage.NewFile]:
    path = os.path.join(folder, name)
    with storage.NewFile(os.path.dirname(path), os.path.basename(path)) as file:
        yield file
        file.commit()


def _as_side_file(name: str, file: Any) -> SideFile:
    return SideFile(name, file.num_bytes, file.digest)


def shard_from(plain: dict[str, Any]) -> Shard:
    """The shard that `asdict` made plain."""
    marks = tuple((eot, token) for eot, token in plain["marks"])
    return Shard(
        **{**plain, "marks": marks, "side_files": tuple(SideFile(**f) for f in plain["side_files"])}
    )


def _mapped(path: str, dtype: Any, offset: int, num_items: int) -> Any:
    if not num_items:
        return np.empty(0, dtype)
    return np.memmap(path, dtype, "r", offset, (num_items,))


def _count(tokens: npt.NDArray[np.unsignedinteger], wanted: int) -> int:
    return int(np.count_nonzero(tokens == wanted))
