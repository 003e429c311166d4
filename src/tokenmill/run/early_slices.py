"""Slices that are encoded while their files are still arriving.

A parquet file's row groups follow each other, so a slice can be read as soon as its file is here up
to the end of its last row group: from the partial file, into which the footer has been written. But
the hash covers the whole file, so nobody knows yet whether these bytes are right. Such an early
slice leaves a part without a record, in a folder of this attempt: after a kill it does not exist.
Its record waits here. When its files are complete and have the right hash, the slice is handed out
again with the record, and the worker moves the part to its place (encode/early.py). If a download
had to start over, or the early attempt failed for whatever reason, the slice is handed out again as
it is, and encoded like any other.

It pays where files are few and large: with a single file, download and encoding take as long as the
longer of them, not as both.
"""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tokenmill.corpus.fetch import RemoteInputs
from tokenmill.corpus.spans import Slice
from tokenmill.encode.record import PARTS_NAME, PartRecord
from tokenmill.storage import files

EARLY_NAME = "early"  # in the work folder


@dataclass(slots=True)
class _Begun:
    slice_: Slice  # as planned
    record: PartRecord | None = None  # once the early attempt has ended


class EarlySlices:
    """`work` is the run's folder of parts and records."""

    def __init__(self, remote: RemoteInputs, work: str) -> None:
        self._remote = remote
        self._work = work
        self._folder = ""
        self._begun: dict[int, _Begun] = {}  # by index

    def as_they_arrive(self, slices: Iterable[Slice]) -> Iterator[Slice | None]:
        """The slices, each once its files have arrived, or before that as an early one and then
        again; None while nothing can begin."""
        remote = self._remote
        for slice_ in slices:
            remote.await_files(slice_)
            while not remote.has_arrived(slice_):
                yield from self._complete()
                if (readable := remote.from_partial_files(slice_)) is not None:
                    self._begun[slice_.index] = _Begun(slice_)
                    yield dataclasses.replace(readable, early_folder=self._made_folder())
                    break
                remote.raise_error()
                yield None
            else:
                yield from self._complete()
                yield slice_
        while self._begun:
            yield from self._complete()
            if self._begun:
                remote.raise_error()
                yield None

    def _made_folder(self) -> str:
        """The folder for the parts. The first call makes it, and removes those of earlier attempts,
        which are lost."""
        if not self._folder:
            all_attempts = os.path.join(self._work, EARLY_NAME)
            files.remove_folder(all_attempts)
            self._folder = os.path.join(all_attempts, secrets.token_hex(8))
            files.make_folder(os.path.join(self._folder, PARTS_NAME))
        return self._folder

    def note(self, record: PartRecord) -> None:
        """Note the record of an early attempt. The slices may be drawn in another thread."""
        self._begun[record.slice_index].record = record

    def _complete(self) -> Iterator[Slice]:
        """The slices whose early attempt has ended and whose files are complete now."""
        for index, begun in list(self._begun.items()):
            if begun.record is not None and self._remote.has_arrived(begun.slice_):
                del self._begun[index]
                yield self._settled(begun.slice_, begun.record)

    def _settled(self, slice_: Slice, record: PartRecord) -> Slice:
        if not record.chunks or self._remote.has_restarted(slice_):
            return slice_
        saved = json.dumps(record.to_plain())
        return dataclasses.replace(slice_, early_folder=self._folder, early_record=saved)
