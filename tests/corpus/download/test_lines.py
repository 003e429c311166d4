"""When files arrive, on the lines of the benchmark's grid (`benchmarks/overlap.py`), simulated."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from simulated_line import SimulatedLine
from tokenmill.corpus.download import connection_count
from tokenmill.corpus.download.connection_count import MAX_CONNECTIONS

MB = 10**6
SIZES = [37 * MB] * 12
GRID = list(itertools.product((5, 40, 200), (50, 500, 2000), (1, 50, 200)))


def arrivals(point: tuple[int, int, int], folder: Path) -> list[float]:
    each, line, latency = point
    return SimulatedLine(each * MB, line * MB, latency / 1000).complete_at(SIZES, folder)


def ideal(point: tuple[int, int, int], num_files: int) -> float:
    """If all connections that may be were there from the first moment, and brought one file after
    the other."""
    each, line, latency = point
    seconds = sum(SIZES[:num_files]) / (min(line, MAX_CONNECTIONS * each) * MB)
    return seconds + 2 * latency / 1000


@pytest.mark.parametrize("point", GRID, ids=lambda point: "/".join(map(str, point)))
def test_files_arrive_almost_as_early_as_the_line_could_bring_them(point, tmp_path):
    latency = point[2] / 1000
    found = arrivals(point, tmp_path)
    assert found[0] <= ideal(point, 1) + 0.35 + 4 * latency
    assert max(found) <= ideal(point, len(SIZES)) + 0.3 + 5 * latency
    for number, complete_at in enumerate(found):  # in order, so that encoding need not wait
        assert complete_at <= ideal(point, number + 2) + 0.3 + 5 * latency


def test_far_away_the_next_ranges_are_asked_for_before_others_end(tmp_path, monkeypatch):
    point = (5, 500, 200)
    ahead = arrivals(point, tmp_path)
    monkeypatch.setattr(connection_count, "MAX_AHEAD", 0)
    assert max(ahead) < 0.95 * max(arrivals(point, tmp_path))


def test_home_line_then_many_connections_are_never_tried_at_once(tmp_path, monkeypatch):
    most = []
    wanted = connection_count.ConnectionCount.arrived

    def noted(self: connection_count.ConnectionCount, num_bytes: int, now: float) -> None:
        wanted(self, num_bytes, now)
        most.append(self.wanted)

    monkeypatch.setattr(connection_count.ConnectionCount, "arrived", noted)
    SimulatedLine(5 * MB, 1.25 * MB, 0.03).complete_at([20 * MB] * 3, tmp_path)
    assert max(most) <= 2 * connection_count.FIRST_CONNECTIONS
