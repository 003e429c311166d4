"""A download on a line that is a formula, in no time: when each file would be complete.

The decisions are those of `corpus/download/`: how many connections, and which range is next and how
long. The line is that of `hub_server.Line`: a limit for each connection and one for all, and a
latency before an answer, twice as long on a new connection.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hub_server import CHUNK_BYTES
from tokenmill.corpus.download.connection_count import ConnectionCount
from tokenmill.corpus.download.file_download import FileDownload, FileRange, RemoteFile
from tokenmill.corpus.download.http_source import MAX_STREAMS
from tokenmill.corpus.download.line_meter import LineMeter


class _Source:
    max_streams = MAX_STREAMS
    fills_line = False


class _Queue:
    """Bytes that go through one after the other. Who is late may catch up a bit."""

    def __init__(self, bytes_per_second: float) -> None:
        self._bytes_per_second = bytes_per_second
        self._free_at = 0.0

    def through_at(self, num_bytes: int, now: float) -> float:
        self._free_at = max(now - 0.05, self._free_at) + num_bytes / self._bytes_per_second
        return max(now, self._free_at)


@dataclass(eq=False)
class _Connection:
    queue: _Queue
    is_new: bool = True


@dataclass
class SimulatedLine:
    each: float
    line: float
    latency_seconds: float
    _now: float = 0.0
    _events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = field(
        default_factory=list
    )

    def complete_at(self, sizes: Sequence[int], folder: Path) -> list[float]:
        """When each file is complete, in seconds from the first request to the CDN."""
        self._numbers = itertools.count()
        self._all = _Queue(self.line)
        self._chunk_bytes = int(min(CHUNK_BYTES, min(self.each, self.line) / 20))
        self._count = ConnectionCount(0.0, self.latency_seconds)
        self._meter = LineMeter(self.latency_seconds)
        self._files = [_file(folder, number, size) for number, size in enumerate(sizes)]
        self._kept: list[_Connection] = []
        found: dict[str, float] = {}
        self._take_ranges()
        while len(found) < len(sizes):
            self._now, _, happen, arguments = heapq.heappop(self._events)
            happen(*arguments)
            for file in self._files:
                if file.num_bytes == file.remote.num_bytes:
                    found.setdefault(file.remote.name, self._now)
        for file in self._files:
            file.partial.close()
        return [found[file.remote.name] for file in self._files]

    def _later(self, at: float, happen: Callable[..., None], *arguments: Any) -> None:
        heapq.heappush(self._events, (at, next(self._numbers), happen, arguments))

    def _take_ranges(self) -> None:
        while sum(len(file.in_flight) for file in self._files) < self._count.wanted:
            wish = self._meter.range_wish(self._each())
            found = (file.next_range(wish, self._count.wanted) for file in self._files)
            range_ = next(filter(None, found), None)
            if range_ is None:
                self._count.idled(self._now)
                return
            connection = self._kept.pop() if self._kept else _Connection(_Queue(self.each))
            latencies = 2 if connection.is_new else 1
            connection.is_new = False
            answered_at = self._now + latencies * self.latency_seconds
            self._later(answered_at, self._send, connection, range_, range_.start)

    def _each(self) -> float:
        return self._meter.bytes_per_second(self._now) / max(1, self._count.wanted)

    def _send(self, connection: _Connection, range_: FileRange, start: int) -> None:
        stop = min(start + self._chunk_bytes, range_.stop)
        queues = (connection.queue, self._all)
        through_at = max(queue.through_at(stop - start, self._now) for queue in queues)
        self._later(through_at, self._arrive, connection, range_, stop)

    def _arrive(self, connection: _Connection, range_: FileRange, stop: int) -> None:
        num_bytes = stop - range_.start
        range_.file.partial.ranges.add(range_.start, stop)
        range_.start = stop
        self._count.latency_seconds = self.latency_seconds
        self._meter.arrived(num_bytes, self._now)
        self._count.arrived(num_bytes, self._now)
        if stop < range_.stop:
            self._send(connection, range_, stop)
        else:
            range_.file.in_flight.remove(range_)
            self._kept.append(connection)
        self._take_ranges()


def _file(folder: Path, number: int, size: int) -> FileDownload:
    path, source = str(folder / f"{number}.partial"), _Source()
    nothing: Any = None
    return FileDownload(
        RemoteFile(str(number), size, "sha256:", path, source, *[nothing] * 4)  # type: ignore[arg-type]
    )
