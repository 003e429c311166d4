"""How many connections: as many as make the whole faster.

The count is doubled as long as that adds at least 15% of what it would add if each connection
brought as much as the others. If it does not, the line is full, or the server limits us, and the
count is taken back. Later it is tried again, ever less often, with half as many more. So a line
of 10 Mbit/s stays with the few that it began with, and where a CDN limits each connection, 32 are
reached after two steps.

Only time in which every connection had something to fetch is measured.
"""

from __future__ import annotations

FIRST_CONNECTIONS = 8
MAX_CONNECTIONS = 32
# A measurement takes so long, and so many bytes for each connection: they arrive in blocks.
MEASURED_SECONDS = 0.2
MEASURED_BYTES = 1 << 20
SETTLING_LATENCIES = 2.0  # a new connection has sent nothing before it is made and asked
WORTHWHILE = 0.15
# The first pause after a trial that failed, also in measurements; then twice as long, and so on.
RETRIAL_SECONDS = 1.0
RETRIAL_MEASUREMENTS = 5
LONGEST_RETRIAL_FACTOR = 32


class ConnectionCount:
    """`wanted` follows from what it is told. Pure: time comes from the caller."""

    def __init__(self, now: float) -> None:
        self.wanted = FIRST_CONNECTIONS
        self.latency_seconds = 0.0  # of the line, as far as is known
        self._before: tuple[int, float] | None = None  # count and rate, while more are tried
        self._growth = 2.0
        self._retrial_factor = 1
        self._next_trial_at = now
        self._begin(now)

    def _begin(self, now: float) -> None:
        self._measured_from = now + SETTLING_LATENCIES * self.latency_seconds
        self._num_bytes = 0

    def arrived(self, num_bytes: int, now: float) -> None:
        if now < self._measured_from:
            return
        self._num_bytes += num_bytes
        seconds = now - self._measured_from
        if seconds >= MEASURED_SECONDS and self._num_bytes >= MEASURED_BYTES * self.wanted:
            self._judge(self._num_bytes / seconds, now)
            self._begin(now)

    def idled(self, now: float) -> None:
        """A connection had nothing to fetch: what was measured says nothing about the line."""
        self._begin(now)

    def refused(self, now: float) -> None:
        """The server has said that it is too much (429, 503)."""
        self.wanted = max(1, self.wanted // 2)
        self._give_up_trial(now)
        self._begin(now)

    def _judge(self, rate: float, now: float) -> None:
        if self._before is not None:
            count, before = self._before
            if rate < before * (1 + WORTHWHILE * (self.wanted / count - 1)):
                self.wanted = count
                self._give_up_trial(now)
                return
        self._before = None
        if self.wanted < MAX_CONNECTIONS and now >= self._next_trial_at:
            self._before = self.wanted, rate
            more = max(self.wanted + 1, int(self.wanted * self._growth))
            self.wanted = min(MAX_CONNECTIONS, more)

    def _give_up_trial(self, now: float) -> None:
        self._before = None
        self._growth = 1.5
        measured_seconds = max(0.0, now - self._measured_from)
        pause = max(RETRIAL_SECONDS, RETRIAL_MEASUREMENTS * measured_seconds)
        self._next_trial_at = now + pause * self._retrial_factor
        self._retrial_factor = min(LONGEST_RETRIAL_FACTOR, 2 * self._retrial_factor)
