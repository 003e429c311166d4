"""When files arrive, on the lines of the benchmark's grid (`benchmarks/overlap.py`), simulated."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulated_line import SimulatedLine
from tokenmill.corpus.download import connection_count
from tokenmill.corpus.download.connection_count import MAX_CONNECTIONS

MB = 10**6
SIZES = [36_500_000] * 12
# MB/s a connection, MB/s in all, and ms of latency: seconds until the first file and until the last
ARRIVALS = {
    (5, 50, 1): (0.99, 8.77),
    (5, 50, 50): (1.05, 8.85),
    (5, 50, 200): (1.08, 9.22),
    (5, 500, 1): (0.42, 1.64),
    (5, 500, 50): (0.46, 1.72),
    (5, 500, 200): (0.58, 2.89),
    (5, 2000, 1): (0.42, 1.64),
    (5, 2000, 50): (0.46, 1.72),
    (5, 2000, 200): (0.58, 2.89),
    (40, 50, 1): (0.93, 8.76),
    (40, 50, 50): (0.97, 8.81),
    (40, 50, 200): (1.08, 9.11),
    (40, 500, 1): (0.09, 0.88),
    (40, 500, 50): (0.15, 0.96),
    (40, 500, 200): (0.42, 1.57),
    (40, 2000, 1): (0.08, 0.28),
    (40, 2000, 50): (0.15, 0.52),
    (40, 2000, 200): (0.40, 1.25),
    (200, 50, 1): (0.93, 8.76),
    (200, 50, 50): (0.97, 8.81),
    (200, 50, 200): (1.08, 9.11),
    (200, 500, 1): (0.09, 0.88),
    (200, 500, 50): (0.15, 0.96),
    (200, 500, 200): (0.42, 1.57),
    (200, 2000, 1): (0.02, 0.22),
    (200, 2000, 50): (0.15, 0.43),
    (200, 2000, 200): (0.40, 1.20),
}


def arrivals(point: tuple[int, int, int], folder: Path) -> list[float]:
    each, line, latency = point
    return SimulatedLine(each * MB, line * MB, latency / 1000).complete_at(SIZES, folder)


def ideal(point: tuple[int, int, int], num_files: int) -> float:
    """If 32 connections were there from the first moment, and brought one file after the other."""
    each, line, latency = point
    seconds = sum(SIZES[:num_files]) / (min(line, 32 * each) * MB)
    return seconds + 2 * latency / 1000


@pytest.mark.parametrize("point", ARRIVALS, ids=lambda point: "/".join(map(str, point)))
def test_files_arrive_almost_as_early_as_the_line_could_bring_them(point, tmp_path):
    found = arrivals(point, tmp_path)
    first, last = ARRIVALS[point]
    assert found[0] <= first + 0.02
    assert max(found) <= last + 0.02
    for number, complete_at in enumerate(found):  # in order, so that encoding need not wait
        assert complete_at <= ideal(point, number + 2) + 0.1 + 4 * point[2] / 1000


def test_single_file_then_has_all_connections(tmp_path):
    [found] = SimulatedLine(5 * MB, 500 * MB, 0.001).complete_at([1000 * MB], tmp_path)
    assert found <= 1000 / (MAX_CONNECTIONS * 5) + 0.3


def test_home_line_then_many_connections_are_never_tried_at_once(tmp_path, monkeypatch):
    most = []
    wanted = connection_count.ConnectionCount.arrived

    def noted(self: connection_count.ConnectionCount, num_bytes: int, now: float) -> None:
        wanted(self, num_bytes, now)
        most.append(self.wanted)

    monkeypatch.setattr(connection_count.ConnectionCount, "arrived", noted)
    SimulatedLine(5 * MB, 1.25 * MB, 0.03).complete_at([20 * MB] * 3, tmp_path)
    assert max(most) <= 16
