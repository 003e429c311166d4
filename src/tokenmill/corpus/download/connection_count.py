"""How many connections: as many as make the whole faster.

The count grows as long as that adds at least 15% of what it would add if each connection brought
as much as the others, and then there are as many as what they brought takes. If it does not, the
line is full, or the server limits us; it is tried again later, ever less often, with half as many
more. So a line of 10 Mbit/s stays with the few that it began with. Where a CDN limits each
connection, 32 are reached in one step, a tenth of a second after the first bytes: a line that
already brings 16 MB/s is not one that many connections hurt.

Only time in which every connection had something to fetch is measured.
"""

from __future__ import annotations

FIRST_CONNECTIONS = 8
MAX_CONNECTIONS = 32
MAX_AHEAD = 16  # requests beyond that, whose answers begin as other ranges end
FAR_SECONDS = 0.1  # a latency from which on it pays to ask ahead
# A measurement takes so long, and so many bytes for each connection: they arrive in blocks.
MEASURED_SECONDS = 0.1
MEASURED_BYTES = 1 << 19
SETTLING_LATENCIES = 2.0  # a new connection has sent nothing before it is made and asked
WORTHWHILE = 0.15
SLACK = 1.25  # more than what a trial brought takes
FIRST_GROWTH = 2.0
FAST_GROWTH = 4.0  # the first, on a line that brings so many bytes a second
FAST_LINE = 16 << 20
LATER_GROWTH = 1.5
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
        self._growth = FIRST_GROWTH
        self._retrial_factor = 1
        self._next_trial_at = now
        self._has_bytes = False  # nothing is measured before the first ones
        self._may_ask_ahead = True
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

    @property
    def max_ahead(self) -> int:
        """How many ranges may be asked for while as many others are about to end. Far away, the
        wait for answers makes the most connections bring less than they could."""
        is_far = self.latency_seconds >= FAR_SECONDS
        is_most = self.wanted == MAX_CONNECTIONS
        return MAX_AHEAD if is_far and is_most and self._may_ask_ahead else 0

    def refused(self, now: float) -> None:
        """The server has said that it is too much (429, 503)."""
        self._may_ask_ahead = False
        self.wanted = max(1, self.wanted // 2)
        self._give_up_trial(now)
        self._begin(now)

    def _judge(self, rate: float, now: float) -> None:
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
            more = int(self.wanted * (FAST_GROWTH if is_fast else self._growth))
            self.wanted = min(MAX_CONNECTIONS, max(self.wanted + 1, more))

    def _give_up_trial(self, now: float) -> None:
        self._before = None
        self._growth = LATER_GROWTH
        measured_seconds = max(0.0, now - self._measured_from)
        pause = max(RETRIAL_SECONDS, RETRIAL_MEASUREMENTS * measured_seconds)
        self._next_trial_at = now + pause * self._retrial_factor
        self._retrial_factor = min(LONGEST_RETRIAL_FACTOR, 2 * self._retrial_factor)
