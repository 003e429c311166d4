"""What a line brings: its rate of late, and how long an answer takes."""

from __future__ import annotations

from collections import deque

from tokenmill.corpus.download.file_download import RangeWish

MIN_RANGE_BYTES = 1 << 20
MAX_RANGE_BYTES = 64 << 20
# As long as the rate is not known: what a connection of this rate brings in a latency.
FIRST_RATE = 25_000_000
MAX_FIRST_RANGE_BYTES = 5 << 20
RANGE_SECONDS = 0.5
LEAST_LATENCIES = 3.0
MOST_LATENCIES = 10.0
METERED_SECONDS = 3.0
_STEP_SECONDS = 0.1


class LineMeter:
    """Pure: time and latency come from the caller."""

    def __init__(self, latency_seconds: float = 0.0) -> None:
        self._samples: deque[tuple[float, int]] = deque()  # time, bytes up to then
        self._num_bytes = 0
        self.latency_seconds = latency_seconds

    def arrived(self, num_bytes: int, now: float) -> None:
        self._num_bytes += num_bytes
        if not self._samples or now - self._samples[-1][0] >= _STEP_SECONDS:
            self._samples.append((now, self._num_bytes))
            self._forget_old(now)

    def bytes_per_second(self, now: float) -> float:
        self._forget_old(now)
        if len(self._samples) < 2:
            return 0.0
        began, before = self._samples[0]
        return (self._num_bytes - before) / max(now - began, _STEP_SECONDS)

    def _forget_old(self, now: float) -> None:
        while self._samples and now - self._samples[0][0] > METERED_SECONDS:
            self._samples.popleft()

    def range_wish(self, each: float) -> RangeWish:
        """`each`: bytes per second of a connection; 0: not known."""
        if not each:
            first = _bounded(FIRST_RATE * self.latency_seconds)
            return RangeWish(MIN_RANGE_BYTES, min(first, MAX_FIRST_RANGE_BYTES))
        least_seconds = LEAST_LATENCIES * self.latency_seconds
        most_seconds = max(RANGE_SECONDS, MOST_LATENCIES * self.latency_seconds)
        return RangeWish(_bounded(each * least_seconds), _bounded(each * most_seconds))


def _bounded(num_bytes: float) -> int:
    return int(min(max(num_bytes, MIN_RANGE_BYTES), MAX_RANGE_BYTES))
