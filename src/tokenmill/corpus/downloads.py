"""Files of the Hub, downloaded in order, several at a time.

Each thread takes the first file that no other has (`storage/hub.py` fetches it and compares its
hash). The threads are daemons: one may be waiting for a server, and must not delay our exit.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tokenmill.corpus.hub_errors import explained
from tokenmill.corpus.hub_names import HubSource
from tokenmill.storage.hub import Hub, HubFile, Transfer

NUM_THREADS = 8  # as many as `snapshot_download` has
RATE_SECONDS = 5.0  # over which the speed is measured


@dataclass(frozen=True, slots=True)
class DownloadProgress:
    """A download at one moment. Files that were here count as arrived once they are hashed."""

    num_bytes: int  # arrived
    total_bytes: int
    num_files: int  # complete, hash compared
    total_files: int
    bytes_per_second: float  # recently; 0: nothing arrives


class Downloads:
    """Starts at once. `may_begin(file)` is called, with `changed` held, before a file is started;
    when its answer changes, `changed` must be notified."""

    def __init__(
        self,
        hub: Hub,
        wanted: Sequence[HubFile],
        may_begin: Callable[[HubFile], bool] = lambda file: True,
        changed: threading.Condition | None = None,
    ) -> None:
        self.here: dict[str, str] = {}  # paths of complete and right files, by URL
        self.error: BaseException | None = None
        self._changed = changed or threading.Condition()
        self._hub = hub
        self._may_begin = may_begin
        self._wanted = wanted
        self._total_bytes = sum(file.num_bytes for file in wanted)
        self._left = deque(wanted)
        self._transfers: dict[str, Transfer] = {}  # of files in flight
        self._num_bytes = 0  # of complete files
        self._is_closed = False
        self._rates = deque([(time.monotonic(), 0)])
        for _ in range(min(NUM_THREADS, len(wanted))):
            threading.Thread(target=self._serve, name="download", daemon=True).start()

    def close(self) -> None:
        """Begin no more files, and end those in flight at their next byte."""
        with self._changed:
            self._is_closed = True
            for transfer in self._transfers.values():
                transfer.stop()
            self._changed.notify_all()

    def wait(self) -> None:
        """Wait until all files are here."""
        for file in self._wanted:
            self.wait_for(file)

    def wait_for(self, file: HubFile) -> str:
        """The file's path, once it is here."""
        with self._changed:
            self._changed.wait_for(lambda: self.error or file.url in self.here)
        if self.error is not None:
            raise self.error
        return self.here[file.url]

    def progress(self) -> DownloadProgress:
        with self._changed:
            in_flight = sum(transfer.num_bytes for transfer in self._transfers.values())
            num_bytes = self._num_bytes + in_flight
            return DownloadProgress(
                num_bytes,
                self._total_bytes,
                len(self.here),
                len(self._wanted),
                self._rate(num_bytes),
            )

    def _rate(self, num_bytes: int) -> float:
        now = time.monotonic()
        self._rates.append((now, num_bytes))
        while self._rates[1][0] < now - RATE_SECONDS:
            self._rates.popleft()
        began, before = self._rates[0]
        return max(0, num_bytes - before) / max(now - began, 1e-3)

    def _serve(self) -> None:
        try:
            while (file := self._next()) is not None:
                source = HubSource(file.repo, file.commit, file.path)
                with explained(source, self._hub.client):
                    path = self._hub.fetch(file, self._transfers[file.url])
                with self._changed:
                    del self._transfers[file.url]
                    self._num_bytes += file.num_bytes
                    self.here[file.url] = path
                    self._changed.notify_all()
        except BaseException as error:
            with self._changed:
                self.error = self.error or error
                self._changed.notify_all()

    def _next(self) -> HubFile | None:
        """The next file, once it may begin; None: there is nothing left to do."""
        with self._changed:
            while self._left and not self._is_closed and self.error is None:
                if self._may_begin(self._left[0]):
                    file = self._left.popleft()
                    self._transfers[file.url] = Transfer()
                    return file
                self._changed.wait()
        return None
