"""What a line brings: its rate of late, and how long an answer takes."""

from __future__ import annotations

from collections import deque

from tokenmill.corpus.download.file_download import RangeWish

MIN_RANGE_BYTES = 2 << 20
MAX_RANGE_BYTES = 64 << 20
FIRST_RANGE_BYTES = 4 << 20  # as long as nothing is known
RANGE_SECONDS = 0.5
LEAST_LATENCIES = 4.0
MOST_LATENCIES = 10.0
METERED_SECONDS = 3.0
_STEP_SECONDS = 0.1


class LineMeter:
    """Pure: time comes from the caller."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()  # time, bytes up to then
        self._num_bytes = 0
        self.latency_seconds = 0.0

    def arrived(self, num_bytes: int, now: float) -> None:
        self._num_bytes += num_bytes
        if not self._samples or now - self._samples[-1][0] >= _STEP_SECONDS:
            self._samples.append((now, self._num_bytes))
            self._forget_old(now)

    def answered(self, seconds: float, num_bytes: int, num_connections: int, now: float) -> None:
        """A request's first bytes have arrived after some seconds, of which they took a part."""
        each = self.bytes_per_second(now) / max(1, num_connections)
        latency = max(0.0, seconds - num_bytes / each) if each else seconds
        self.latency_seconds += (latency - self.latency_seconds) / 4

    def bytes_per_second(self, now: float) -> float:
        self._forget_old(now)
        if len(self._samples) < 2:
            return 0.0
        began, before = self._samples[0]
        return (self._num_bytes - before) / max(now - began, _STEP_SECONDS)

    def _forget_old(self, now: float) -> None:
        while self._samples and now - self._samples[0][0] > METERED_SECONDS:
            self._samples.popleft()

    def range_wish(self, num_connections: int, now: float) -> RangeWish:
        each = self.bytes_per_second(now) / max(1, num_connections)
        if not each:
            return RangeWish(MIN_RANGE_BYTES, FIRST_RANGE_BYTES)
        least_seconds = LEAST_LATENCIES * self.latency_seconds
        most_seconds = max(RANGE_SECONDS, MOST_LATENCIES * self.latency_seconds)
        return RangeWish(_bounded(each * least_seconds), _bounded(each * most_seconds))


def _bounded(num_bytes: float) -> int:
    return int(min(max(num_bytes, MIN_RANGE_BYTES), MAX_RANGE_BYTES))
