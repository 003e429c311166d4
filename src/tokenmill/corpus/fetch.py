"""Remote inputs, downloaded one at a time while earlier ones are encoded.

The plan needs only a parquet file's footer, so it is made before any file is downloaded: head and
footer go into a sparse file of the right size, and a reader needs no more to cut spans. Files of
other kinds must be downloaded whole before they can be cut.

Files are fetched one at a time, so that the first arrives early and encoding begins early. Without
--keep-downloads the files go into the work folder. At most two wait there (or as many as one slice
needs), and each is removed once the last of its slices has a record.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import os
import threading
from collections.abc import Iterable, Iterator
from functools import partial

from tokenmill.config import Config
from tokenmill.corpus.hub import Closing, Hub
from tokenmill.corpus.hub_names import HubFile, hub_source
from tokenmill.corpus.spans import Input, Slice
from tokenmill.storage import disk, files
from tokenmill.storage.retry import Notice

MAX_WAITING_FILES = 2
CLOSE_SECONDS = 2.0


class RemoteInputs:
    """The run's inputs from the Hub; empty if no source is on the Hub."""

    def __init__(self, config: Config, work: str, notice: Notice) -> None:
        self._structures = os.path.join(work, "structure")
        self._structure_numbers = itertools.count()
        self._keeps = config.keep_downloads
        self._files: dict[str, HubFile] = {}
        self.inputs: list[Input] = []
        self.again: list[str] = []  # names of files that more than one source named
        sources = [found for found in map(hub_source, config.sources) if found is not None]
        if sources:
            self._hub = Hub(None if self._keeps else os.path.join(work, "downloads"), notice)
            for source in sources:
                for file in self._hub.files(source):
                    if file.url in self._files:
                        self.again.append(file.url)
                    self._files[file.url] = file
            self.inputs = [self._hub.input(f, config.input_format) for f in self._files.values()]
        self._uses: collections.Counter[str] = collections.Counter()  # slices to be encoded
        self._queue: list[HubFile] = []
        self._here: set[str] = set()
        self._waiting: set[str] = set()  # downloaded files that slices still need
        self._awaited: set[str] = set()  # files that the next slice needs
        self._error: BaseException | None = None
        self._is_closing = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._fetch_all, name="fetch", daemon=True)

    def structure_of(self, source: Input) -> Input:
        """An input that a reader can cut into spans before the file is downloaded."""
        file = self._files.get(source.name)
        if file is None or self._hub.is_here(file):
            return source
        if source.kind != "parquet":
            self._hub.download(file)
            return source
        head, footer = self._hub.parquet_edges(file)
        path = os.path.join(self._structures, f"{next(self._structure_numbers):08d}.parquet")
        disk.write_sparse_file(
            path, source.num_bytes, {0: head, source.num_bytes - len(footer): footer}
        )
        return dataclasses.replace(source, path=path)

    def begin(self, slices: Iterable[Slice]) -> None:
        """Start to fetch the files of these slices, in order."""
        for slice_ in slices if self._files else ():
            for name in {source.name for source in slice_.inputs_read} & self._files.keys():
                if not self._uses[name]:
                    self._queue.append(self._files[name])
                self._uses[name] += 1
        if self._queue:
            self._thread.start()

    def as_they_arrive(self, slices: Iterable[Slice]) -> Iterator[Slice | None]:
        """The slices, each once its files have arrived; None while the next one must wait."""
        for slice_ in slices:
            needed = {source.name for source in slice_.inputs_read} & self._files.keys()
            with self._changed:
                self._awaited = needed
                self._changed.notify_all()
            while not needed <= self._here:
                if self._error is not None:
                    raise self._error
                yield None
            yield slice_

    def release(self, slice_: Slice) -> None:
        """Note that a slice is done; files that no other slice needs may be removed."""
        for source in slice_.inputs_read:
            if source.name in self._files:
                self._uses[source.name] -= 1
                if not self._uses[source.name] and not self._keeps:
                    files.remove(source.path)
                with self._changed:
                    if not self._uses[source.name]:
                        self._waiting.discard(source.name)
                    self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        if self._thread.is_alive():
            # The thread may be in a pause between two retries; as a daemon it does not delay our
            # exit.
            self._thread.join(CLOSE_SECONDS)

    @property
    def progress(self) -> tuple[int, int]:
        """The number of files downloaded, and of files needed."""
        return len(self._here), len(self._queue)

    def _fetch_all(self) -> None:
        try:
            for file in self._queue:
                with self._changed:
                    self._changed.wait_for(partial(self._may_fetch, file))
                    if self._is_closing:
                        return
                self._hub.download(file, lambda: self._is_closing)
                with self._changed:
                    self._waiting.add(file.url)
                    self._here.add(file.url)
        except Closing:
            return
        except BaseException as error:
            self._error = error

    def _may_fetch(self, file: HubFile) -> bool:
        has_room = self._keeps or len(self._waiting) < MAX_WAITING_FILES
        return has_room or file.url in self._awaited or self._is_closing
