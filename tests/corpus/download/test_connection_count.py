"""How many connections are used, on lines that are a formula."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tokenmill.corpus.download.connection_count import (
    FIRST_CONNECTIONS,
    MAX_AHEAD,
    MAX_CONNECTIONS,
    ConnectionCount,
)

MB = 10**6
BLOCK = 256 << 10


def counts(rate: Callable[[int], float], seconds: float, noise: float = 0.1) -> list[int]:
    """What is wanted, second by second, if `rate(connections)` is what the line brings."""
    chance = random.Random(1)
    now, count, found = 0.0, ConnectionCount(0.0), []
    while now < seconds:
        now += BLOCK / (rate(count.wanted) * chance.uniform(1 - noise, 1 + noise))
        count.arrived(BLOCK, now)
        found += [count.wanted] * (int(now) - len(found))
    return found


def test_connections_that_are_limited_each_then_there_are_as_many_as_allowed():
    assert counts(lambda n: n * 40 * MB, 5)[3] == MAX_CONNECTIONS


@pytest.mark.parametrize(("each", "line"), [(5, 50), (40, 500), (40, 2000), (200, 2000)])
def test_line_that_is_full_then_connections_are_enough_and_not_many_more(each, line):
    enough = line / each
    found = counts(lambda n: min(n * each, line) * MB, 60)
    assert all(min(0.9 * enough, MAX_CONNECTIONS) <= n for n in found[5:])
    assert sum(found) / len(found) <= max(FIRST_CONNECTIONS + 1, 2.2 * enough)


def test_home_line_then_the_few_of_the_start_stay():
    found = counts(lambda n: 1.25 * MB, 300)
    assert sum(found) / len(found) < FIRST_CONNECTIONS + 1


def test_line_that_suffers_from_many_then_they_are_taken_back():
    found = counts(lambda n: 10 * MB if n <= 8 else 5 * MB, 120)
    assert sum(n > 8 for n in found) < len(found) / 6


def test_time_without_work_then_says_nothing_about_the_line():
    count, now = ConnectionCount(0.0), 0.0
    for _ in range(1000):
        now += 0.001
        count.arrived(BLOCK, now)
        count.idled(now)
    assert count.wanted == FIRST_CONNECTIONS


def test_server_that_refuses_then_half_as_many():
    count = ConnectionCount(0.0)
    count.refused(1.0)
    assert count.wanted == FIRST_CONNECTIONS // 2
    for _ in range(3):
        count.refused(1.0)
    assert count.wanted == 1


def test_ahead_when_the_server_has_refused_then_nothing_is_asked_ahead_again():
    count = ConnectionCount(0.0)
    count.latency_seconds, count.wanted = 0.2, MAX_CONNECTIONS
    assert count.max_ahead == MAX_AHEAD
    count.refused(1.0)
    count.wanted = MAX_CONNECTIONS
    assert count.max_ahead == 0
