"""Inputs on the Hub, downloaded in the order of the plan while earlier ones are encoded.

The plan needs only a parquet file's footer, so it is made before any file is downloaded: the footer
goes into a sparse file of the right size, which is all that a reader needs to cut spans. No hash
covers a footer alone, so it is compared with that of the whole file once that is here. Files of
other kinds must be downloaded whole before they can be cut.

A slice waits for its whole files, because only a whole file can be compared with its hash. If every
file is certainly needed, the download starts before the plan is made. Without --keep-downloads the
files go into the work folder: at most AHEAD_BYTES at a time (or as many as one slice needs), and
each is removed once the last of its slices has a record.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import itertools
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from tokenmill.config import Config, of_source
from tokenmill.corpus.hub_errors import explained
from tokenmill.corpus.hub_names import DatasetName, HubSource, hub_source
from tokenmill.corpus.readers.naming import kind_named
from tokenmill.corpus.spans import Input, Slice
from tokenmill.errors import NetworkError
from tokenmill.storage import disk
from tokenmill.storage.range_reader import BackgroundCall
from tokenmill.storage.retry import Notice

if TYPE_CHECKING:
    from tokenmill.corpus.downloads import DownloadProgress, Downloads
    from tokenmill.storage.hub import Hub, HubFile

AHEAD_BYTES = 4 << 30
NUM_FOOTERS = 8  # requested at a time
# How much of a parquet file's end is read at first, at least: long texts in the statistics of 1,000
# rows make a footer of 3.5 kB for each row group. For FineWeb's files of 2.1 GB it is more than
# their footers have (0.3 MB).
END_BYTES = 128 << 10
MAGIC = b"PAR1"


def most_bytes_ahead(sizes: Sequence[int]) -> int:
    """The most disk space that files of these sizes take, if they are not kept."""
    return min(sum(sizes), AHEAD_BYTES + max(sizes, default=0))


def input_of(hub: Hub, file: HubFile, input_format: str | None) -> Input:
    """A file of the Hub as an input, whether it is here or not."""
    kind, compression = kind_named(file.url, input_format)
    path = hub.path(file) or hub.place(file)
    return Input(path, kind, compression, file.num_bytes, 0, file.digest, file.url)


class HubInputs:
    """The run's inputs from the Hub; empty if no source is on the Hub. `revisions` are those of an
    earlier attempt."""

    def __init__(
        self, config: Config, work: str, notice: Notice, revisions: Mapping[str, str] | None = None
    ) -> None:
        self._unfinished = os.path.join(config.out, ".tokenmill")
        self._structures = os.path.join(work, "structure")
        self._structure_numbers = itertools.count()
        self._keeps = config.keep_downloads
        self._needs_all = config.limit_tokens is None
        self._is_whole = not (config.limit_docs or config.limit_tokens or config.where)
        self._looks_ahead = config.limit_docs is None
        self._files: dict[str, HubFile] = {}  # by URL, which is an input's name
        self._present: set[str] = set()  # URLs of files that were here before, perhaps damaged
        self.inputs: list[Input] = []
        self.again: list[str] = []  # names of files that more than one source named
        self.revisions: dict[str, str] = {}  # commits of branches and tags, by OWNER/NAME@REVISION
        if any(map(hub_source, config.sources)):
            from tokenmill.storage.hub import Hub  # takes 70 ms, which only Hub inputs should pay

            folder = None if self._keeps else os.path.join(work, "downloads")
            self._hub = Hub(notice, folder)
            for name, own in config.by_source().items():
                with of_source(name):
                    self._add(name, own, revisions or {})
        self._numbers = {source.name: i for i, source in enumerate(self.inputs)}
        self._footers: dict[str, BackgroundCall[bytes | None]] = {}
        self.footers: dict[str, str] = {}  # hashes of those that the plan was made from, by name
        self._uses: collections.Counter[str] = collections.Counter()  # slices to be encoded
        self._held: dict[str, int] = {}  # bytes of files that are started and still needed
        self._awaited: set[str] = set()  # files that the next slice needs
        self._changed = threading.Condition()
        self._whole_files: Downloads | None = None  # of kinds that must be whole to be cut
        self._downloads: Downloads | None = None
        self._queue: list[str] = []  # the files of `_downloads`, in order

    def _add(self, name: str, config: Config, revisions: Mapping[str, str]) -> None:
        """Add the inputs of a named source, or of all sources if they have no names."""
        found: dict[str, HubFile] = {}
        sources = [source for source in map(hub_source, config.sources) if source is not None]
        for file in self._listed(sources, revisions):
            if file.url in found:
                self.again.append(file.url)
            found[file.url] = file
        self._files |= found
        inputs = (input_of(self._hub, file, config.input_format) for file in found.values())
        self.inputs += [dataclasses.replace(one, source=name) for one in inputs]
        self._present |= {url for url, file in found.items() if self._hub.path(file)}

    def _listed(
        self, sources: Iterable[HubSource | DatasetName], revisions: Mapping[str, str]
    ) -> list[HubFile]:
        from tokenmill.corpus.hub_listing import HubListing

        listing = HubListing(self._hub, revisions)
        try:
            return [file for source in sources for file in listing.files(source)]
        except BaseException:
            self._hub.close()
            raise
        finally:
            self.revisions |= listing.used

    @property
    def is_offline(self) -> bool:
        """Whether the inputs come from the cache alone."""
        return bool(self._files) and self._hub.is_offline

    def keep_revisions(self) -> None:
        """Note the revisions in the cache, for offline mode, if it has all the files."""
        if self._files and all(map(self._hub.path, self._files.values())):
            for name, commit in self.revisions.items():
                repo, _, revision = name.partition("@")
                self._hub.keep_revision(repo, revision, commit)

    # Before there is a plan

    def structure_of(self, source: Input) -> Input:
        """An input that a reader can cut into spans, perhaps before the file is downloaded."""
        file = self._files.get(source.name)
        if file is None:
            return source
        if source.kind != "parquet":
            return dataclasses.replace(source, path=self._downloaded_whole(file))
        if path := self._path_before_plan(file):
            self.footers[source.name] = _hash_of(_footer_in(path, file.num_bytes))
            return dataclasses.replace(source, path=path)
        footer = self._footer(source.name)
        if footer is None:  # a whole file has a hash
            return dataclasses.replace(source, path=self._fetched(file))
        self.footers[source.name] = _hash_of(footer)
        path = os.path.join(self._structures, f"{next(self._structure_numbers):08d}.parquet")
        disk.write_sparse_file(path, source.num_bytes, {source.num_bytes - len(footer): footer})
        return dataclasses.replace(source, path=path)

    def _path_before_plan(self, file: HubFile) -> str | None:
        """Where the file is, if it was here already, or has just arrived and has the right hash."""
        if file.url in self._present:
            return self._hub.path(file)
        return None if self._downloads is None else self._downloads.here.get(file.url)

    def _downloaded_whole(self, file: HubFile) -> str:
        """The path of a whole file; downloads the next ones like it, too, if all are needed."""
        if not self._looks_ahead:
            return self._fetched(file)
        if self._whole_files is None:
            kinds = ((source.name, source.kind) for source in self.inputs)
            names = dict.fromkeys(name for name, kind in kinds if kind != "parquet")
            self._whole_files = self._begun(names)
        return self._whole_files.wait_for(file)

    def _fetched(self, file: HubFile) -> str:
        with explained(HubSource(file.repo, file.commit, file.path), self._hub.client):
            return self._hub.fetch(file)

    def _footer(self, name: str) -> bytes | None:
        """A file's footer. Also requests those of the next files, if all will be needed."""
        at = self._numbers[name]
        for near in self.inputs[at : at + (NUM_FOOTERS if self._looks_ahead else 1)]:
            file = self._files[near.name]
            is_lacking = near.kind == "parquet" and self._path_before_plan(file) is None
            is_wanted = near.name == name or is_lacking  # the file itself may have just arrived
            if is_wanted and near.name not in self._footers:
                self._footers[near.name] = BackgroundCall(partial(_footer_at, self._hub, file))
        return self._footers.pop(name).result()

    def begin_all(self, inputs: Iterable[Input]) -> None:
        """Start to download the files of a new run before it has slices, if each is certainly
        needed."""
        if self._is_whole and all(source.kind == "parquet" for source in self.inputs):
            self._fetch([source.name for source in inputs if source.name in self._files])

    # Once there is one

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
            self._downloads = self._begun(queue, self._may_begin)

    def _begun(
        self, names: Iterable[str], may_begin: Callable[[HubFile], bool] = lambda file: True
    ) -> Downloads:
        from tokenmill.corpus.downloads import Downloads

        wanted = [self._files[name] for name in names]
        return Downloads(self._hub, wanted, may_begin, self._changed)

    def as_they_arrive(self, slices: Iterable[Slice]) -> Iterator[Slice | None]:
        """The slices, each once its files have arrived; None while the next one must wait."""
        for slice_ in slices:
            needed = _names(slice_).keys() & self._files.keys()
            with self._changed:
                self._awaited = needed  # these are downloaded whatever the space they take
                self._changed.notify_all()
            while self._downloads is not None and not needed <= self._downloads.here.keys():
                if self._downloads.error is not None:
                    raise self._downloads.error
                yield None
            here = {} if self._downloads is None else self._downloads.here
            for name in needed & here.keys():
                self._require_footer(name, here[name])
            yield slice_.read_from({name: here[name] for name in needed & here.keys()})

    def _require_footer(self, name: str, path: str) -> None:
        """Make sure that the plan was made from the footer that the whole file has."""
        planned = self.footers.pop(name, None)
        if planned and planned != _hash_of(_footer_in(path, self._files[name].num_bytes)):
            raise NetworkError(
                f"{name}: the plan was made from other bytes than the file has, because they came "
                "wrong over the network",
                hint=f"rm -r {self._unfinished}, then run the same command again",
            )

    def release(self, slice_: Slice) -> None:
        """Note that a slice is done; files that no other slice needs may be removed."""
        for source in slice_.inputs_read:
            if source.name in self._files:
                self._uses[source.name] -= 1
                if self._uses[source.name]:
                    continue
                self._hub.release(self._files[source.name])
                with self._changed:
                    self._held.pop(source.name, None)
                    self._changed.notify_all()

    def progress(self) -> DownloadProgress | None:
        """The download as it is now; None if there is nothing to download."""
        return None if self._downloads is None else self._downloads.progress()

    def close(self) -> None:
        for downloads in (self._whole_files, self._downloads):
            if downloads is not None:
                downloads.close()
        if self._files:
            self._hub.close()

    def _may_begin(self, file: HubFile) -> bool:
        may_have_all = self._keeps and self._needs_all
        has_room = may_have_all or sum(self._held.values()) + file.num_bytes <= AHEAD_BYTES
        if has_room or file.url in self._awaited:
            self._held[file.url] = file.num_bytes
            return True
        return False


def _names(slice_: Slice) -> dict[str, None]:
    """The inputs that a slice reads, in order."""
    return dict.fromkeys(source.name for source in slice_.inputs_read)


def _footer_at(hub: Hub, file: HubFile) -> bytes | None:
    """The footer of a parquet file on the Hub; None: the server sends something else."""
    size = file.num_bytes
    with explained(HubSource(file.repo, file.commit, file.path), hub.client):
        end = hub.end(file, max(min(END_BYTES, size // 16), size // 4096, min(size, 8)))
        if end is not None and (num_bytes := _footer_bytes(end, size)) > len(end):
            end = hub.end(file, num_bytes)
        if end is None or not end.endswith(MAGIC):
            return None
        return end[-num_bytes:]


def _footer_in(path: str, size: int) -> bytes:
    """The footer of a parquet file that is here."""
    with open(path, "rb") as file:
        file.seek(-min(size, 8), os.SEEK_END)
        file.seek(-_footer_bytes(file.read(), size), os.SEEK_END)
        return file.read()


def _footer_bytes(end: bytes, size: int) -> int:
    """How many bytes the footer of a parquet file has, by its last bytes."""
    num_bytes = 8 + int.from_bytes(end[-8:-4], "little")
    return num_bytes if num_bytes <= size else min(size, 8)


def _hash_of(footer: bytes) -> str:
    return hashlib.sha256(footer).hexdigest()[:16]
