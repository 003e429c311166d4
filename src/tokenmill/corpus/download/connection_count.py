"""How many connections: as many as make the whole faster.

The count doubles as long as that adds at least 15% of what it would add if each connection brought
as much as the others, and then there are as many as what they brought takes. If it does not, the
line is full, or the server limits us; it is tried again later, ever less often, with half as many
more. The 16 of the start shorten the wait for the first file, which encoding waits for; far away,
where a step takes three latencies, there are 32. A slow line goes back to eight, and to more only
if those brought more: a line of 10 Mbit/s nearby never has more than 16. Where a CDN limits each
connection, 64 are reached in two steps. One step would bring the first file 0.1 s earlier there,
and up to 0.6 s later on a line that 16 fill.

A connection has one request at a time and a buffer of 512 KiB: 64 requests and 32 MiB at most.

Only time in which every connection had something to fetch is measured.
"""

from __future__ import annotations

FIRST_CONNECTIONS = 16
FAR_CONNECTIONS = 32  # at first, from this latency on
FAR_SECONDS = 0.1
MAX_CONNECTIONS = 64  # the most of hf_xet, too, unless it is told to use more
# A line that brings so many bytes a second is not one that many connections hurt.
FAST_LINE = 16 << 20
FAST_CONNECTIONS = 32  # at least so many are tried first on a fast line
FEW_CONNECTIONS = 8  # on a slow one
# A measurement takes so long, and so many bytes for each connection: they arrive in blocks.
MEASURED_SECONDS = 0.1
MEASURED_BYTES = 1 << 19
SETTLING_LATENCIES = 2.0  # a new connection has sent nothing before it is made and asked
WORTHWHILE = 0.15
SLACK = 1.25  # more than what a trial brought takes
FIRST_GROWTH = 2.0
LATER_GROWTH = 1.5
# The first pause after a trial that failed, also in measurements; then twice as long, and so on.
RETRIAL_SECONDS = 1.0
RETRIAL_MEASUREMENTS = 5
LONGEST_RETRIAL_FACTOR = 32


class ConnectionCount:
    """`wanted` follows from what it is told. Pure: time comes from the caller."""

    def __init__(self, now: float, latency_seconds: float = 0.0) -> None:
        is_far = latency_seconds >= FAR_SECONDS
        self.wanted = min(FAR_CONNECTIONS if is_far else FIRST_CONNECTIONS, MAX_CONNECTIONS)
        self.latency_seconds = latency_seconds  # of the line, as far as is known
        self._before: tuple[int, float] | None = None  # count and rate, while more are tried
        self._growth = FIRST_GROWTH
        self._retrial_factor = 1
        self._next_trial_at = now
        self._has_bytes = False  # nothing is measured before the first ones
        self._is_first = True  # the measurement
        self._many: tuple[int, float] | None = None  # count and rate, while few are measured
        self._begin(now)

    def _begin(self, now: float) -> None:
        self._measured_from = now + SETTLING_LATENCIES * self.latency_seconds
        self._num_bytes = 0

    def arrived(self, num_bytes: int, now: float) -> None:
        if not self._has_bytes:
            self._has_bytes = True
            self._measured_from = now
            return
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
        self._is_first, self._many = False, None
        self._give_up_trial(now)
        self._begin(now)

    def _judge(self, rate: float, now: float) -> None:
        is_first, self._is_first = self._is_first, False
        if is_first and rate < FAST_LINE:
            self._many = self.wanted, rate
            self.wanted = min(self.wanted, FEW_CONNECTIONS)
            return
        if self._many is not None:
            (count, before), self._many = self._many, None
            if rate < before * (1 + WORTHWHILE):  # as if many had been tried after few
                self._before, self.wanted, rate = (self.wanted, rate), count, before
            # Otherwise the line was not up to speed when many were measured.
        if self._before is not None:
            count, before = self._before
            is_worthwhile = rate >= before * (1 + WORTHWHILE * (self.wanted / count - 1))
            enough = round(count * rate / before * (SLACK if is_worthwhile else 1.0))
            self.wanted = min(self.wanted, max(count, enough))
            if not is_worthwhile:
                self._give_up_trial(now)
                return
        self._before = None
        if self.wanted < MAX_CONNECTIONS and now >= self._next_trial_at:
            self._before = self.wanted, rate
            is_fast = self._growth == FIRST_GROWTH and rate >= FAST_LINE
            more = max(int(self.wanted * self._growth), FAST_CONNECTIONS if is_fast else 0)
            self.wanted = min(MAX_CONNECTIONS, max(self.wanted + 1, more))

    def _give_up_trial(self, now: float) -> None:
        self._before = None
        self._growth = LATER_GROWTH
        measured_seconds = max(0.0, now - self._measured_from)
        pause = max(RETRIAL_SECONDS, RETRIAL_MEASUREMENTS * measured_seconds)
        self._next_trial_at = now + pause * self._retrial_factor
        self._retrial_factor = min(LONGEST_RETRIAL_FACTOR, 2 * self._retrial_factor)
