"""Carries out a shard task: reads the tokens, lays them out in the format, writes them to storage.

    carry_out(task) -> ShardRecord        on any worker, in any order, once or twice: the same bytes

A raw shard (a header and its tokens) is written directly into its file in WORK/shards, each piece
by any worker. Any other shard is written by its format from a file of tokens. In an object store a
shard is one task: its files are made in a local scratch folder and uploaded.

The record is written last and says that the bytes exist and are durable. A task with a record is
done, if the bytes still match the record.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from tokenmill.assemble.sidecars import sidecar_name, write_sidecar
from tokenmill.assemble.task import (
    SIDE_FILES,
    SIDECAR,
    ShardRecord,
    ShardTask,
    Stretch,
    Tail,
    TokenSource,
    saved_record,
    shards_folder,
)
from tokenmill.encode.part import PART_CHECKSUM
from tokenmill.encode.record import SPLITS
from tokenmill.errors import IntegrityError
from tokenmill.formats import DTYPE_BYTES, Contents, File, Layout, SideFile, get_format
from tokenmill.storage import disk
from tokenmill.storage.file_piece import FilePiece
from tokenmill.storage.hashing import sha256_at
from tokenmill.storage.new_file import NewFile
from tokenmill.storage.store import new_file, staging_folder, store_of, wait_for

# The distance between marks (the number of EOT ids so far) in a long shard. With marks, a search
# for a document does not start at the beginning; searching 16M tokens takes milliseconds.
MARK_TOKENS = 16 << 20


def carry_out(task: ShardTask) -> ShardRecord:
    """Write the task's bytes and its record."""
    return drafted(task).commit()


def drafted(task: ShardTask) -> Draft:
    """Write the task's bytes. The task is done once the draft is committed, which waits for the
    disk or the network and may happen in another thread."""
    record = _record_of(task)
    if record is not None and _is_intact(task, record):
        return Draft(task, record, "", is_saved=True)
    held = contextlib.ExitStack()
    try:
        staging = held.enter_context(staging_folder(_folder(task)))
        draft = _Writing(task, staging).draft()
        if draft.file is not None:
            held.callback(draft.file.close)
        draft.held = held
        return draft
    except BaseException as error:
        held.close()
        if not isinstance(error, IntegrityError):
            raise
        # Without a lock, another run may have done this task and removed its parts.
        done = _record_of(task)
        if done is not None and _is_intact(task, done):
            return Draft(task, done, "", is_saved=True)
        if record is None:
            raise
        message = f"{shard_name(task)} changed since it was written, and {error.message}"
        raise type(error)(message, hint=error.hint) from error


def _record_of(task: ShardTask) -> ShardRecord | None:
    return saved_record(task.work, task.plan_id, task.place)


@dataclass
class Draft:
    """A task whose bytes are written, in `staging`, but may not be durable yet. `commit` closes
    `held`."""

    task: ShardTask
    record: ShardRecord
    staging: str
    is_saved: bool = False
    file: FilePiece | None = None  # the file that is still open
    held: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def commit(self) -> ShardRecord:
        """Make the bytes durable and write the record."""
        if self.is_saved:
            return self.record
        names = [file.name for file in self.record.side_files]
        if self.record.num_bytes:
            names.insert(0, shard_name(self.task))
        with self.held:
            store, folder, tags = store_of(self.task.work), _folder(self.task), {}
            if not store.is_local:
                for name in names:
                    tags[name] = store.put(f"{self.staging}/{name}", f"{folder}/{name}")
            elif self.file is not None:  # all other files are committed already
                self.file.sync()
            self.record = dataclasses.replace(self.record, tags=tags)
            self.record.save(self.task.work)
        self.is_saved = True
        return self.record


def shard_split(layout: Layout, stream: int, shard: int) -> str:
    """The split that a stream's shard belongs to."""
    return "val" if layout.first_shard_is_val and not shard else SPLITS[stream]


def shard_name(task: ShardTask) -> str:
    if task.piece == SIDECAR:
        return sidecar_name(SPLITS[task.stream], task.shard)
    split = shard_split(task.layout, task.stream, task.shard)
    return get_format(task.layout.format).shard_name(task.layout.name, split, task.shard)


def header_of(layout: Layout, num_tokens: int) -> bytes:
    """The bytes before the tokens in a shard's file."""
    format_ = get_format(layout.format)
    return format_.header(num_tokens, layout.dtype) if format_.traits.is_raw else b""


def _folder(task: ShardTask) -> str:
    """The folder of the shard's files until the dataset is complete."""
    return shards_folder(task.work)


def _byte_of(task: ShardTask) -> int:
    """The offset of the piece in its file."""
    if task.piece in (0, SIDE_FILES, SIDECAR):
        return 0
    header = header_of(task.layout, task.shard_tokens)
    return len(header) + task.first_token * DTYPE_BYTES[task.layout.dtype]


def _is_intact(task: ShardTask, record: ShardRecord) -> bool:
    """Whether the record describes this stretch and the bytes of its files are unchanged."""
    if record.end != task.end:
        return False
    store, folder = store_of(task.work), _folder(task)

    def has(name: str, start: int, num_bytes: int, sha256: tuple[str, ...], pieces: bool) -> bool:
        path = os.path.join(folder, name)
        if not store.is_local:
            found = store.stat(path)
            return found is not None and found.sha256 == record.tags.get(name)
        return sha256_at(path, start, start + num_bytes, pieces) == sha256

    if not all(
        has(file.name, 0, file.num_bytes, (file.sha256,), False) for file in record.side_files
    ):
        return False
    is_raw = get_format(task.layout.format).traits.is_raw
    return not record.num_bytes or has(
        shard_name(task), _byte_of(task), record.num_bytes, record.sha256, is_raw
    )


class _Writing:
    """The state of one `drafted` call."""

    def __init__(self, task: ShardTask, staging: str) -> None:
        self._task = task
        self._layout = task.layout
        self._staging = staging
        self._name = shard_name(task)
        self._format = get_format(task.layout.format)
        self._source = cast(TokenSource, task.source)  # not read for a sidecar
        self._dtype = np.dtype(task.layout.dtype).newbyteorder("<")
        self._made: dict[str, SideFile] = {}
        self._scan = EotScan(task.layout.eot_id, self._dtype, task.first_token)
        self._record = ShardRecord(task.plan_id, *task.place, task.end)

    def draft(self) -> Draft:
        if os.path.dirname(self._name):
            disk.make_folder(os.path.dirname(os.path.join(self._staging, self._name)))
        if self._task.piece == SIDE_FILES:
            return self._draft_side_files()
        if self._task.piece == SIDECAR:
            return self._draft_sidecar()
        return self._draft_raw() if self._format.traits.is_raw else self._draft_formatted()

    def _draft_raw(self) -> Draft:
        """Write header and tokens at their offset; side files too if this is the whole shard."""
        task, lengths = self._task, None
        file = FilePiece(os.path.join(self._staging, self._name), _byte_of(task))
        try:
            if task.piece == 0:
                file.write(header_of(self._layout, task.shard_tokens))
            self._copy_tokens(file)
            if self._layout.has_boundaries:
                lengths = self._lengths()
                if not task.is_whole:
                    self._save_lengths(lengths)
            if task.is_whole:
                self._write_side_files(task.num_tokens, lengths)
        except BaseException:
            file.close()
            raise
        record = dataclasses.replace(self._counted(), num_bytes=file.num_bytes, sha256=file.digests)
        return Draft(task, record, self._staging, file=file)

    def _draft_side_files(self) -> Draft:
        task = self._task
        paths = [task.lengths_path(piece) for piece in range(task.num_pieces)]
        for path in paths:
            wait_for(path)
        found = b"".join(map(store_of(task.work).read, paths))
        self._write_side_files(task.shard_tokens, np.frombuffer(found, "<u4"))
        return self._with_side_files(self._record)

    def _draft_sidecar(self) -> Draft:
        write_sidecar(self._task, self._name, self._create)
        return self._with_side_files(self._record)

    def _draft_formatted(self) -> Draft:
        """Have the format write the shard from a file of tokens."""
        task, layout = self._task, self._layout
        lengths = self._lengths() if layout.has_boundaries else None
        tail = Tail()
        with new_file(f"{self._staging}/{self._name}.tokens", PART_CHECKSUM()) as scratch:
            self._copy_tokens(scratch)
            tokens = _mapped(scratch.path, self._dtype, 0, task.num_tokens)
            if layout.seq_len and self._format.traits.boundaries:
                whole = len(tokens) - len(tokens) % layout.seq_len
                rest, tokens = tokens[whole:], tokens[:whole]
                tail = Tail(len(rest), int(np.count_nonzero(rest == layout.eot_id)))
            if len(tokens):
                self._format_files(tokens, lengths)
            num_tokens = len(tokens)
            del tokens
        record = dataclasses.replace(
            self._counted(),
            num_tokens=num_tokens,
            num_eot=self._scan.num_eot - tail.num_eot,
            tail=tail,
        )
        main = self._made.pop(self._name, None)
        if main is not None:
            record = dataclasses.replace(record, num_bytes=main.num_bytes, sha256=(main.sha256,))
        return self._with_side_files(record)

    def _with_side_files(self, record: ShardRecord) -> Draft:
        record = dataclasses.replace(record, side_files=self._side_files())
        return Draft(self._task, record, self._staging)

    @property
    def _stretches(self) -> Iterator[Stretch]:
        return (stretch for stretch in self._task.stretches if not stretch.is_empty)

    def _copy_tokens(self, file: Any) -> None:
        for stretch in self._stretches:
            for data in self._source.tokens(stretch):
                file.write(data)
                self._scan.add(data)

    def _lengths(self) -> npt.NDArray[np.uint32]:
        found = [self._source.lengths(stretch) for stretch in self._stretches]
        return np.concatenate([np.empty(0, np.uint32), *found])

    def _save_lengths(self, lengths: npt.NDArray[np.uint32]) -> None:
        path = self._task.lengths_path(self._task.piece)
        store_of(path).write(path, lengths.astype("<u4", copy=False).tobytes())

    def _write_side_files(self, num_tokens: int, lengths: npt.NDArray[np.uint32] | None) -> None:
        path = os.path.join(self._staging, self._name)
        header = header_of(self._layout, self._task.shard_tokens)
        self._format_files(_mapped(path, self._dtype, len(header), num_tokens), lengths)

    def _format_files(
        self, tokens: npt.NDArray[Any], lengths: npt.NDArray[np.uint32] | None
    ) -> None:
        """Have the format write its files: a raw format only side files, any other all of them."""
        split = shard_split(self._layout, self._task.stream, self._task.shard)
        first = self._task.first_document
        contents = Contents(self._name, split, tokens, lengths, first, self._layout)
        self._format.write(contents, self._create)

    @contextlib.contextmanager
    def _create(self, name: str) -> Iterator[File]:
        with created(self._staging, name) as file:
            yield file
        self._made[name] = SideFile(name, file.num_bytes, file.digest)

    def _counted(self) -> ShardRecord:
        """The record, with the fields that follow from the tokens."""
        return dataclasses.replace(
            self._record,
            num_tokens=self._task.num_tokens,
            num_eot=self._scan.num_eot,
            marks=tuple(self._scan.marks),
            side_files=self._side_files(),
        )

    def _side_files(self) -> tuple[SideFile, ...]:
        return tuple(self._made[name] for name in sorted(self._made))


class EotScan:
    """Counts EOT ids, and marks how many come before every 16M-th token of the shard."""

    def __init__(self, eot_id: int, dtype: np.dtype[Any], first_token: int) -> None:
        self.num_eot = 0
        self.marks: list[tuple[int, int]] = []
        self._eot_id = eot_id
        self._dtype = dtype
        self._token = first_token

    def add(self, data: Any) -> None:
        tokens = np.frombuffer(data, self._dtype)
        while len(tokens):
            if self._token and not self._token % MARK_TOKENS:
                self.marks.append((self.num_eot, self._token))
            some = tokens[: MARK_TOKENS - self._token % MARK_TOKENS]
            self.num_eot += int(np.count_nonzero(some == self._eot_id))
            self._token += len(some)
            tokens = tokens[len(some) :]


@contextlib.contextmanager
def created(folder: str, name: str) -> Iterator[NewFile]:
    """A new file of a dataset, by its name relative to the folder."""
    path = os.path.join(folder, name)
    with new_file(path) as file:
        yield file
        file.commit()


def _mapped(path: str, dtype: Any, offset: int, num_items: int) -> Any:
    if not num_items:
        return np.empty(0, dtype)
    return np.memmap(path, dtype, "r", offset, (num_items,))
