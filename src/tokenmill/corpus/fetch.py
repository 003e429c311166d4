"""Inputs on the Hub, downloaded in the order of the plan while earlier ones are encoded.

The plan needs only a parquet file's footer, so it is made before any file is downloaded: the footer
goes into a sparse file of the right size, which is all that a reader needs to cut spans. Files of
other kinds must be downloaded whole before they can be cut.

`download/` fetches several ranges at a time, those of the first file first. If every file is
certainly needed, it starts before the plan is made. A slice waits for its whole files, because only
a whole file can be compared with its hash; `run/early_slices.py` does not, and makes sure of the
hash afterwards. Without --keep-downloads the files go into the work
folder: at most AHEAD_BYTES at a time (or as many as one slice needs), and each is removed once the
last of its slices has a record.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from tokenmill.config import Config, of_source
from tokenmill.corpus.download.progress import DownloadProgress
from tokenmill.corpus.hub_names import DatasetName, HubFile, HubSource, hub_source
from tokenmill.corpus.spans import Input, Slice, Span
from tokenmill.storage import disk, files
from tokenmill.storage.range_reader import BackgroundCall
from tokenmill.storage.retry import Notice

if TYPE_CHECKING:
    from tokenmill.corpus.download.downloads import Downloads

AHEAD_BYTES = 4 << 30
NUM_FOOTERS = 32  # requested at a time
KEPT_FOOTER_BYTES = 64 << 20  # of files that may be read before they are complete
# Some old writers count a few bytes too few for a row group.
MARGIN_BYTES = 4096


def most_bytes_ahead(sizes: Sequence[int]) -> int:
    """The most disk space that files of these sizes take, if they are not kept."""
    return min(sum(sizes), AHEAD_BYTES + max(sizes, default=0))


class RemoteInputs:
    """The run's inputs from the Hub; empty if no source is on the Hub. `revisions` are those of an
    earlier attempt."""

    def __init__(
        self, config: Config, work: str, notice: Notice, revisions: Mapping[str, str] | None = None
    ) -> None:
        self._structures = os.path.join(work, "structure")
        self._structure_numbers = itertools.count()
        self._keeps = config.keep_downloads
        self._needs_all = config.limit_tokens is None
        self._is_whole = not (config.limit_docs or config.limit_tokens or config.where)
        self._looks_ahead = config.limit_docs is None
        self._files: dict[str, HubFile] = {}
        self.inputs: list[Input] = []
        self.again: list[str] = []  # names of files that more than one source named
        if any(map(hub_source, config.sources)):
            from tokenmill.corpus.hub import Hub  # takes 70 ms, which only Hub inputs should pay

            folder = None if self._keeps else os.path.join(work, "downloads")
            self._hub = Hub(folder, notice, revisions)
            for name, own in config.by_source().items():
                with of_source(name):
                    self._add(name, own)
        self._numbers = {source.name: i for i, source in enumerate(self.inputs)}
        self._footers: dict[str, BackgroundCall[bytes]] = {}
        self._kept_footers: dict[str, bytes] = {}
        self._late_footers: dict[str, BackgroundCall[bytes]] = {}  # requested again
        self._uses: collections.Counter[str] = collections.Counter()  # slices to be encoded
        self._held: dict[str, int] = {}  # bytes of files that are started and still needed
        self._awaited: set[str] = set()  # files that the next slice needs
        self._changed = threading.Condition()
        self._whole_files: Downloads | None = None  # of kinds that must be whole to be cut
        self._downloads: Downloads | None = None
        self._queue: list[str] = []  # the files of `_downloads`, in order

    def _listed(self, sources: Iterable[HubSource | DatasetName]) -> list[HubFile]:
        try:
            return [file for source in sources for file in self._hub.files(source)]
        except BaseException:
            self._hub.close()
            raise

    def _add(self, name: str, config: Config) -> None:
        """Add the inputs of a named source, or of all sources if they have no names."""
        found: dict[str, HubFile] = {}
        sources = [source for source in map(hub_source, config.sources) if source is not None]
        for file in self._listed(sources):
            if file.url in found:
                self.again.append(file.url)
            found[file.url] = file
        self._files |= found
        inputs = (self._hub.input(file, config.input_format) for file in found.values())
        self.inputs += [dataclasses.replace(one, source=name) for one in inputs]

    @property
    def revisions(self) -> dict[str, str]:
        """The commits that branches and tags stand for in this run, by OWNER/NAME@REVISION."""
        return self._hub.revisions.used if self._files else {}

    @property
    def is_offline(self) -> bool:
        """Whether the inputs come from the cache alone."""
        return bool(self._files) and self._hub.is_offline

    def keep_revisions(self) -> None:
        """Save the revisions in the cache, for offline mode, if it has all the files."""
        if self._files and all(map(self._hub.is_here, self._files.values())):
            self._hub.keep_revisions()

    def structure_of(self, source: Input) -> Input:
        """An input that a reader can cut into spans before the file is downloaded."""
        file = self._files.get(source.name)
        if file is None or self._hub.is_here(file):
            return source
        if source.kind != "parquet":
            self._download_whole(source.name)
            return source
        footer = self._footer(source.name)
        self._keep_footer(source.name, footer)
        path = os.path.join(self._structures, f"{next(self._structure_numbers):08d}.parquet")
        disk.write_sparse_file(path, source.num_bytes, {source.num_bytes - len(footer): footer})
        return dataclasses.replace(source, path=path)

    def _keep_footer(self, name: str, footer: bytes) -> None:
        if sum(map(len, self._kept_footers.values())) + len(footer) <= KEPT_FOOTER_BYTES:
            self._kept_footers[name] = footer

    def _download_whole(self, name: str) -> None:
        """Download a whole file; meanwhile the next ones like it, if all will be needed."""
        if not self._looks_ahead:
            self._hub.download(self._files[name])
            return
        if self._whole_files is None:
            kinds = ((source.name, source.kind) for source in self.inputs)
            names = dict.fromkeys(name for name, kind in kinds if kind != "parquet")
            self._whole_files = self._hub.downloads([self._files[name] for name in names])
        self._whole_files.wait_for(name)

    def _footer(self, name: str) -> bytes:
        """A file's footer. Also requests those of the next files, if all will be needed."""
        at = self._numbers[name]
        for near in self.inputs[at : at + (NUM_FOOTERS if self._looks_ahead else 1)]:
            file = self._files[near.name]
            is_lacking = near.kind == "parquet" and not self._hub.is_here(file)
            is_wanted = near.name == name or is_lacking  # the file itself may have just arrived
            if is_wanted and near.name not in self._footers:
                self._footers[near.name] = BackgroundCall(partial(self._hub.parquet_footer, file))
        return self._footers.pop(name).result()

    def begin_all(self, inputs: Iterable[Input]) -> None:
        """Start to download the files of a new run before it has slices, if each is certainly
        needed."""
        if self._is_whole and all(source.kind == "parquet" for source in self.inputs):
            self._fetch([source.name for source in inputs if source.name in self._files])

    def begin(self, slices: Iterable[Slice]) -> None:
        """Start to download the files of these slices, in order."""
        queue: list[str] = []
        for slice_ in slices if self._files else ():
            for name in filter(self._files.__contains__, _names(slice_)):
                if not self._uses[name]:
                    queue.append(name)
                self._uses[name] += 1
        if [name for name in self._queue if name in self._uses] != queue:
            if self._downloads is not None:
                self._downloads.close()
            self._fetch(queue)

    def _fetch(self, queue: list[str]) -> None:
        self._queue = queue
        if queue:
            wanted = [self._files[name] for name in queue]
            self._downloads = self._hub.downloads(wanted, self._may_begin, self._changed)

    def as_they_arrive(self, slices: Iterable[Slice]) -> Iterator[Slice | None]:
        """The slices, each once its files have arrived; None while the next one must wait."""
        for slice_ in slices:
            self.await_files(slice_)
            while not self.has_arrived(slice_):
                self.raise_error()
                yield None
            yield slice_

    def await_files(self, slice_: Slice) -> None:
        """Note that this slice is next: its files are downloaded whatever the space they take."""
        with self._changed:
            self._awaited = _names(slice_).keys() & self._files.keys()
            self._changed.notify_all()

    def has_arrived(self, slice_: Slice) -> bool:
        """Whether all files of a slice are complete, with the right hash."""
        needed = _names(slice_).keys() & self._files.keys()
        return self._downloads is None or needed <= self._downloads.here

    def raise_error(self) -> None:
        """Raise the error that has ended the download, if one has."""
        if self._downloads is not None and self._downloads.error is not None:
            raise self._downloads.error

    def from_partial_files(self, slice_: Slice) -> Slice | None:
        """The slice, read from partial files, if they hold all that it needs."""
        paths: dict[str, str] = {}  # of partial files
        for span in slice_.spans:
            name = span.input.name
            if span.is_ruled_out:
                continue  # its file may be one that nothing is read of
            if self._downloads is None or not self._can_be_read(span):
                return None
            if name in self._files and name not in self._downloads.here and name not in paths:
                footer = self._footer_for_reading(name)
                path = footer and self._downloads.supply_end(name, footer)
                if not path:
                    return None
                paths[name] = path
        return slice_.read_from(paths)

    def _can_be_read(self, span: Span) -> bool:
        name = span.input.name
        assert self._downloads is not None
        if name not in self._files or name in self._downloads.here:
            return True
        end = min(span.end_byte + MARGIN_BYTES, span.input.num_bytes)
        return span.end_byte > 0 and end <= self._downloads.arrived_from_start(name)

    def _footer_for_reading(self, name: str) -> bytes | None:
        """A file's footer, if it is known. A resumed run has it in the partial file, or requests it
        again in the background."""
        assert self._downloads is not None
        if name in self._kept_footers:
            return self._kept_footers[name]
        if tail := self._downloads.end_of(name, 8):
            num_bytes = 8 + int.from_bytes(tail[:4], "little")
            if footer := self._downloads.end_of(name, num_bytes):
                return footer
        if name not in self._late_footers:
            file = self._files[name]
            self._late_footers[name] = BackgroundCall(partial(self._hub.parquet_footer, file))
        call = self._late_footers[name]
        return call.result() if call.is_done and not call.has_failed else None

    def has_restarted(self, slice_: Slice) -> bool:
        """Whether the download of one of its files had to start over, because bytes were wrong."""
        return self._downloads is not None and not self._downloads.restarted.isdisjoint(
            _names(slice_)
        )

    def release(self, slice_: Slice) -> None:
        """Note that a slice is done; files that no other slice needs may be removed."""
        for source in slice_.inputs_read:
            if source.name in self._files:
                self._uses[source.name] -= 1
                if self._uses[source.name]:
                    continue
                if not self._keeps:
                    files.remove(source.path)
                self._kept_footers.pop(source.name, None)
                self._late_footers.pop(source.name, None)
                with self._changed:
                    self._held.pop(source.name, None)
                    self._changed.notify_all()

    def close(self) -> None:
        active = [d for d in (self._whole_files, self._downloads) if d is not None]
        for downloads in active:
            downloads.stop()
        if self._files:
            self._hub.close()
        for downloads in active:
            downloads.close()

    def progress(self) -> DownloadProgress | None:
        """The download as it is now; None if there is nothing to download."""
        return None if self._downloads is None else self._downloads.progress()

    def _may_begin(self, name: str) -> bool:
        size = self._files[name].num_bytes
        may_have_all = self._keeps and self._needs_all
        has_room = may_have_all or sum(self._held.values()) + size <= AHEAD_BYTES
        if has_room or name in self._awaited:
            self._held[name] = size
            return True
        return False


def _names(slice_: Slice) -> dict[str, None]:
    """The inputs that a slice reads, in order."""
    return dict.fromkeys(source.name for source in slice_.inputs_read)
