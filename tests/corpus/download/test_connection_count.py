"""How many connections are used, on lines that are a formula."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tokenmill.corpus.download.connection_count import (
    FEW_CONNECTIONS,
    FIRST_CONNECTIONS,
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
    assert sum(found) / len(found) <= 2.2 * enough


def test_home_line_then_there_are_few():
    found = counts(lambda n: 1.25 * MB, 300)
    assert sum(found) / len(found) < FEW_CONNECTIONS + 1
    assert max(found) <= 16


def test_line_that_is_slow_for_each_then_many_are_not_given_up_for_long():
    found = counts(lambda n: min(n * 0.5, 20) * MB, 20)
    assert all(n >= 36 for n in found[10:])


def test_line_that_is_slow_at_first_then_there_are_as_many_as_allowed():
    sent = 0.0

    def rate(n: int) -> float:
        nonlocal sent
        sent += BLOCK
        return n * MB * (0.3 if sent < 10 * MB else 5)

    assert counts(rate, 5)[3] == MAX_CONNECTIONS


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


def test_server_that_refuses_before_anything_is_measured_then_fewer_stay_fewer():
    count, now = ConnectionCount(0.0), 0.0
    count.refused(now)
    count.refused(now)
    while now < 0.9:
        now += BLOCK / (10 * MB)
        count.arrived(BLOCK, now)
        assert count.wanted == FIRST_CONNECTIONS // 4
