"""Downloads files in order over several connections, hashes them as they arrive, and moves each
into place if its hash is right.

Each connection is a thread that takes the earliest range that is missing and not in flight, so the
first file arrives first, and as fast as the line allows. One more thread hashes. Threads hold the
lock to take a range and to note what has arrived; receiving, writing and hashing happen without it.

A transient error pauses only its file; other files continue. A Retry-After pauses all.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable

from tokenmill.corpus.download.byte_source import HandedOver
from tokenmill.corpus.download.connection_count import ConnectionCount
from tokenmill.corpus.download.file_download import FileDownload, FileRange, RemoteFile
from tokenmill.corpus.download.http_source import FileChanged
from tokenmill.corpus.download.line_meter import LineMeter
from tokenmill.corpus.download.progress import DownloadProgress
from tokenmill.errors import NetworkError, TokenmillError
from tokenmill.storage import files
from tokenmill.storage.partial_file import InUse
from tokenmill.storage.retry import Notice, Retry, status_of

CLOSE_SECONDS = 2.0
IN_USE_SECONDS = 1.0  # between two looks at a file that another run is downloading
IDLE_SECONDS = 0.2
HASHING_IDLE_SECONDS = 0.05
HASHED_BLOCKS = 16  # between two looks for other work
MAX_FILLING = 2  # streams of sources that fill the line
MAX_ATTEMPTS = 2  # at a file that comes with a wrong hash


class Downloads:
    """Starts at once. `may_begin(name)` is called, with `changed` held, before a file is started;
    when its answer changes, `changed` must be notified."""

    def __init__(
        self,
        remote_files: Iterable[RemoteFile],
        retry: Retry,
        notice: Notice,
        may_begin: Callable[[str], bool] = lambda name: True,
        changed: threading.Condition | None = None,
    ) -> None:
        self.changed = changed or threading.Condition()
        self.here: set[str] = set()
        self.restarted: set[str] = set()  # files whose first bytes were wrong
        self.error: BaseException | None = None
        self._left = {file.name: file for file in remote_files}
        self._total_files = len(self._left)
        self._total_bytes = sum(file.num_bytes for file in self._left.values())
        self._num_bytes = 0
        self._open: dict[str, FileDownload] = {}
        self._to_verify: dict[str, RemoteFile] = {}  # in place, with the right size
        self._wrong: set[str] = set()  # in place, with wrong bytes
        self._in_use: dict[str, float] = {}  # by another run; when to look again
        self._retry = retry
        self._notice = notice
        self._may_begin = may_begin
        self._is_closing = False
        self._is_closed = False
        self._hashed: FileDownload | None = None  # the one that is being hashed
        self._count = ConnectionCount(time.monotonic(), retry.quickest_seconds)
        self._meter = LineMeter(retry.quickest_seconds)
        self._threads: list[threading.Thread] = []
        self._num_connections = 0
        with self.changed:
            self._start(self._check, "hash")
            self._start_connections()

    def stop(self) -> None:
        """Make no more requests. Connections may be cut from now on."""
        with self.changed:
            self._is_closing = True
            self.changed.notify_all()

    def close(self) -> None:
        self.stop()
        # A thread may be waiting for a silent server; as a daemon it does not delay our exit.
        deadline = time.monotonic() + CLOSE_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        with self.changed:
            self._is_closed = True
            self._close_unused()

    def _close_unused(self) -> None:
        """After `close`: close the files that no thread uses any more, so that others can."""
        for download in list(self._open.values()) if self._is_closed else ():
            if not download.in_flight and download is not self._hashed:
                del self._open[download.remote.name]
                download.partial.close()

    def wait(self) -> None:
        """Wait until all files are here."""
        for name in list(self._left):
            self.wait_for(name)

    def wait_for(self, name: str) -> None:
        with self.changed:
            self.changed.wait_for(lambda: self.error or name in self.here)
        if self.error is not None:
            raise self.error

    def arrived_from_start(self, name: str) -> int:
        """How many bytes of a partial file are here, without a gap. 0 also if it is not being
        downloaded, or had to be restarted."""
        with self.changed:
            download = self._open.get(name)
            if download is None or download.is_spoiled or name in self.restarted:
                return 0
            return download.partial.prefix

    def supply_end(self, name: str, data: bytes) -> str | None:
        """Write the last bytes of a file, which are known from elsewhere, into its partial file, as
        far as they are not there, and return that file's path. None: it is not being downloaded."""
        with self.changed:
            download = self._open.get(name)
            if download is None or download.is_spoiled or name in self.restarted:
                return None
            self._num_bytes += download.supply_end(data)
            return download.remote.partial_path

    def end_of(self, name: str, num_bytes: int) -> bytes | None:
        """The last bytes of a file that is being downloaded, if they are here."""
        with self.changed:
            download = self._open.get(name)
            return None if download is None else download.end(num_bytes)

    def progress(self) -> DownloadProgress:
        with self.changed:
            num_in_flight = sum(len(download.in_flight) for download in self._open.values())
            return DownloadProgress(
                self._num_bytes,
                self._total_bytes,
                len(self.here),
                self._total_files,
                num_in_flight,
                self._meter.bytes_per_second(time.monotonic()),
            )

    # Threads

    def _start(self, work: Callable[[], None], name: str) -> None:
        def guarded() -> None:
            try:
                work()
            except BaseException as error:
                with self.changed:
                    self.error = self.error or error
                    self.changed.notify_all()

        thread = threading.Thread(target=guarded, name=name, daemon=True)
        self._threads = [*filter(threading.Thread.is_alive, self._threads), thread]
        thread.start()

    def _start_connections(self) -> None:
        while self._num_connections < self._count.wanted:
            self._num_connections += 1
            self._start(self._serve, "connection")

    def _each(self, now: float) -> float:
        """Bytes per second of a connection; 0: not known."""
        return self._meter.bytes_per_second(now) / max(1, self._count.wanted)

    @property
    def _is_over(self) -> bool:
        return self._is_closing or self.error is not None or not self._left

    # A connection

    def _serve(self) -> None:
        while (range_ := self._range_to_fetch()) is not None:
            self._fetch(range_)

    def _range_to_fetch(self) -> FileRange | None:
        """The next range, once there is one; None: this connection is no longer needed."""
        with self.changed:
            while not self._is_over:
                now = time.monotonic()
                if self._num_connections > self._count.wanted:
                    break
                range_ = self._next_range(now) if now >= self._retry.silent_until else None
                if range_ is not None:
                    return range_
                self._count.idled(now)
                self.changed.wait(IDLE_SECONDS)
            self._num_connections -= 1
            return None

    def _next_range(self, now: float) -> FileRange | None:
        wish = self._meter.range_wish(self._each(now))
        for name, remote in self._left.items():
            if name in self._to_verify or self._in_use.get(name, 0.0) > now:
                continue
            if remote.source.fills_line and self._num_filling() >= MAX_FILLING:
                return None
            download = self._open.get(name)
            if download is None:
                if self._has_open(remote.partial_path):
                    continue  # the same file by another name
                if not self._may_begin(name):
                    return None
                download = self._begun(remote, now)
            if download is not None and download.not_before <= now:
                range_ = download.next_range(wish, self._count.wanted)
                if range_ is not None:
                    return range_
        return None

    def _num_filling(self) -> int:
        return sum(len(d.in_flight) for d in self._open.values() if d.remote.source.fills_line)

    def _begun(self, remote: RemoteFile, now: float) -> FileDownload | None:
        """The file's download, opened; None if the file must be verified or waited for first."""
        is_wrong = remote.name in self._wrong
        if not is_wrong and remote.has_size():
            self._to_verify[remote.name] = remote
            return None
        files.make_folder_of(remote.partial_path)
        try:
            download = FileDownload(remote)
        except InUse:
            self._note_in_use(remote, now)
            return None
        if not is_wrong and remote.has_size():  # another run has just finished it
            _remove(download)
            self._to_verify[remote.name] = remote
            return None
        self._open[remote.name] = download
        self._num_bytes += download.num_bytes
        return download

    def _has_open(self, partial_path: str) -> bool:
        return any(download.remote.partial_path == partial_path for download in self._open.values())

    def _note_in_use(self, remote: RemoteFile, now: float) -> None:
        if remote.name not in self._in_use:
            self._notice(f"another run is downloading {remote.name}; waiting for it")
        self._in_use[remote.name] = now + IN_USE_SECONDS

    def _fetch(self, range_: FileRange) -> None:
        asked_at = time.monotonic()
        download = range_.file
        try:
            with contextlib.closing(
                download.remote.source.stream(range_.start, range_.stop)
            ) as blocks:
                for block in blocks:
                    if self._is_closing or download.is_spoiled:
                        return
                    self._note_arrival(download, download.write(range_, block), asked_at)
            if range_.start < range_.stop:
                raise ConnectionError(f"{download.remote.name} ended at {range_.start:,} bytes")
        except TokenmillError:
            raise
        except HandedOver:
            pass
        except FileChanged as change:
            self._spoil(download, str(change))
        except Exception as error:
            self._note_failure(download, error, asked_at)
        finally:
            with self.changed:
                download.in_flight.remove(range_)
                self._close_unused()
                self.changed.notify_all()

    def _note_arrival(self, download: FileDownload, num_bytes: int, asked_at: float) -> None:
        now = time.monotonic()
        with self.changed:
            self._num_bytes += num_bytes
            if asked_at > download.answered_at:
                download.answered_at = asked_at
                if latency := download.remote.source.latency_seconds:
                    self._meter.latency_seconds = self._count.latency_seconds = latency
                self._retry.answered()
            if asked_at > download.failed_at:
                download.num_failures = 0
            self._meter.arrived(num_bytes, now)
            self._count.arrived(num_bytes, now)
            if not self._is_over:
                self._start_connections()

    def _note_failure(self, download: FileDownload, error: Exception, asked_at: float) -> None:
        now = time.monotonic()
        with self.changed:
            if self._is_closing:
                return
            if asked_at <= download.failed_at:
                return  # several connections failed together
            if status_of(error) in (429, 503):
                self._count.refused(now)
            if not download.num_failures:
                download.failing_since = now
            pause = self._retry.pause_after(error, download.num_failures, download.failing_since)
            download.num_failures += 1
            download.failed_at = now
            download.not_before = now + (pause or 0.0)
        if pause is None:
            with download.remote.explained():
                raise error

    def _spoil(self, download: FileDownload, why: str) -> None:
        with self.changed:
            if not download.is_spoiled:
                self._notice(f"{why}; again from its start")
                download.is_spoiled = True

    # The thread that hashes

    def _check(self) -> None:
        while True:
            with self.changed:
                if self._is_over:
                    self.changed.notify_all()
                    return
                work = self._next_check()
                if work is None:
                    self.changed.wait(HASHING_IDLE_SECONDS)
                    continue
            try:
                work()
            finally:
                with self.changed:
                    self._hashed = None
                    self._close_unused()

    def _next_check(self) -> Callable[[], None] | None:
        for remote in self._to_verify.values():
            return lambda: self._verify(remote)
        for download in self._open.values():
            if download.can_restart:
                self._num_bytes -= download.num_bytes
                self.restarted.add(download.remote.name)
                download.restart()
            if download.is_complete:
                self._hashed = download
                return lambda: self._finish(download)
            if download.can_hash:
                self._hashed = download
                return lambda: _hash(download)
        return None

    def _verify(self, remote: RemoteFile) -> None:
        is_right = remote.is_right()
        with self.changed:
            del self._to_verify[remote.name]
            if is_right:
                self._num_bytes += remote.num_bytes
                self._note_here(remote.name)
            else:
                self._wrong.add(remote.name)

    def _finish(self, download: FileDownload) -> None:
        remote, found = download.remote, download.digest
        if found == remote.digest:
            remote.put_in_place()
            with self.changed:
                self._close(download)
                self._note_here(remote.name)
            return
        download.num_attempts += 1
        if download.num_attempts < MAX_ATTEMPTS:
            self._spoil(download, f"{remote.name} came as {found}, not {remote.digest}")
            return
        files.remove(remote.partial_path)
        with self.changed:
            self._close(download)
        raise NetworkError(
            f"{remote.name} came with the wrong bytes twice: {found}, expected {remote.digest}",
            hint="something between here and the Hub changes data: try another network",
        )

    def _close(self, download: FileDownload) -> None:
        """Close a complete file, to which no thread writes any more."""
        del self._open[download.remote.name]
        download.partial.remove_journal()
        download.partial.close()

    def _note_here(self, name: str) -> None:
        del self._left[name]
        self.here.add(name)
        self.changed.notify_all()


def _remove(download: FileDownload) -> None:
    files.remove(download.remote.partial_path)
    download.partial.remove_journal()
    download.partial.close()


def _hash(download: FileDownload) -> None:
    for _ in range(HASHED_BLOCKS):
        if not download.can_hash:
            return
        download.hash_some()
