"""How fast a run was, from the files that `prepare --timings` wrote.

Time is running time: the pause between two attempts takes no room on the axis, so that a run that
was killed on Friday and resumed on Monday does not look slow. Attempts that ran at once, such as
tasks of --partition, are added up.
"""

from __future__ import annotations

import datetime
import glob
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tokenmill.dataset.manifest import Manifest
from tokenmill.dataset.timings import COMPLETE, TimedAttempt, Timings, read_timings, run_hash
from tokenmill.errors import ConfigError, ConflictError, InputError
from tokenmill.look.report.figures import (
    AttemptFigures,
    Pause,
    ThroughputBin,
    ThroughputFigures,
)

MAX_BINS = 80
MIN_BIN_SECONDS = 1.0  # there is about a line for each second
SHOWN_ATTEMPTS = 30
SHOWN_PAUSES = 30
MIN_PAUSE_SECONDS = 0.5
_COUNTS = ("documents", "tokens", "text_bytes", "downloaded")

Floats = npt.NDArray[np.float64]


def throughput_of(
    named: Iterable[str], manifest: Manifest | None, folder: str
) -> ThroughputFigures:
    """Raises ConflictError for a file from another run than the one that made this dataset."""
    paths = list(dict.fromkeys(itertools.chain.from_iterable(map(_found, named))))
    if manifest is None:
        raise ConfigError(
            f"{folder} has no tokenmill.json, so nothing says which run made it",
            hint="leave --timings out",
        )
    own = run_hash(manifest.identity, manifest.inputs)
    attempts: list[TimedAttempt] = []
    num_unreadable = num_earlier = 0
    for path in paths:
        found = _read(path)
        if any(attempt.run != own for attempt in found.attempts):
            raise _of_another(path, manifest, folder)
        latest = _latest(found.attempts)
        num_earlier += len(found.attempts) - len(latest)
        num_unreadable += found.num_unreadable
        attempts += latest
    return _figures(attempts, num_earlier, num_unreadable)


def _found(named: str) -> Sequence[str]:
    """The files that a name or a glob stands for."""
    return sorted(glob.glob(named)) if glob.has_magic(named) and glob.glob(named) else [named]


def _read(path: str) -> Timings:
    try:
        return read_timings(path)
    except FileNotFoundError:
        raise InputError(
            f"there is no {path}",
            hint="tokenmill prepare ... --timings FILE writes it while it runs, and cannot later",
        ) from None


def _of_another(path: str, manifest: Manifest, folder: str) -> ConflictError:
    hint = "it belongs to a run with other sources, other options or another version of tokenmill"
    if manifest.converted_from is not None:
        hint = f"{folder} was made by `tokenmill convert`: give the dataset that `prepare` made"
    return ConflictError(f"{path} does not have the timings of {folder}", hint=hint)


def _latest(attempts: Sequence[TimedAttempt]) -> Sequence[TimedAttempt]:
    """The attempts that made the dataset: one that started again after a complete run replaced its
    dataset."""
    first = 0
    for number, (before, one) in enumerate(itertools.pairwise(attempts), 1):
        if before.end == COMPLETE and not one.num_resumed:
            first = number
    return attempts[first:]


def _figures(
    attempts: list[TimedAttempt], num_earlier: int, num_unreadable: int
) -> ThroughputFigures:
    attempts.sort(key=lambda one: one.time)
    times = [(one.time, one.time + one.last.seconds) for one in attempts]
    segments = _union(times)
    clock = _Clock(segments)
    return ThroughputFigures(
        seconds=round(clock.seconds, 3),
        num_documents=sum(one.last.documents for one in attempts),
        num_tokens=sum(one.last.tokens for one in attempts),
        text_bytes=sum(one.last.text_bytes for one in attempts),
        downloaded_bytes=sum(one.last.downloaded for one in attempts),
        writing_seconds=_writing_seconds(attempts),
        bins=tuple(_bins(attempts, clock)),
        pauses=tuple(_pauses(segments, clock)),
        num_attempts=len(attempts),
        attempts=tuple(map(_attempt, attempts[-SHOWN_ATTEMPTS:])),
        num_earlier=num_earlier,
        num_unreadable=num_unreadable,
    )


def _attempt(one: TimedAttempt) -> AttemptFigures:
    began = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=int(one.time))
    last = one.last
    return AttemptFigures(
        began.isoformat(" "),
        last.seconds,
        last.slices,
        one.num_resumed,
        one.num_slices,
        last.documents,
        last.tokens,
        last.text_bytes,
        last.downloaded,
        one.end,
    )


# Running time


@dataclass(frozen=True, slots=True)
class _Clock:
    """From the time of day to running time."""

    segments: list[tuple[float, float]]  # in which an attempt ran, in order, apart

    @property
    def seconds(self) -> float:
        return sum(stop - start for start, stop in self.segments)

    def running(self, times: Floats) -> Floats:
        bounds = np.array(self.segments, np.float64).ravel()
        lengths = np.array([(0.0, stop - start) for start, stop in self.segments]).ravel()
        found: Floats = np.interp(times, bounds, np.cumsum(lengths))
        return found


def _union(times: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    segments: list[tuple[float, float]] = []
    for start, stop in sorted(times):
        if segments and start <= segments[-1][1] + MIN_PAUSE_SECONDS:
            segments[-1] = (segments[-1][0], max(stop, segments[-1][1]))
        else:
            segments.append((start, stop))
    return segments


def _pauses(segments: list[tuple[float, float]], clock: _Clock) -> Iterator[Pause]:
    """The longest ones, in order."""
    found = [(after[0] - before[1], before[1]) for before, after in itertools.pairwise(segments)]
    found.sort(reverse=True)
    shown = sorted(found[:SHOWN_PAUSES], key=lambda pause: pause[1])
    at = clock.running(np.array([start for _, start in shown]))
    for (seconds, _), place in zip(shown, at.tolist(), strict=True):
        yield Pause(round(place, 3), round(seconds, 3))


def _bins(attempts: list[TimedAttempt], clock: _Clock) -> Iterator[ThroughputBin]:
    """The work in equal parts of the running time; empty for a run that is too short."""
    num_bins = min(MAX_BINS, int(clock.seconds / MIN_BIN_SECONDS))
    if num_bins < 2:
        return
    edges = np.linspace(0.0, clock.seconds, num_bins + 1)
    done = np.zeros((len(_COUNTS), num_bins))
    for one in attempts:
        seconds = np.array([0.0, *(moment.seconds for moment in one.moments)])
        running = clock.running(one.time + seconds)
        for row, name in enumerate(_COUNTS):
            counts = np.array([0.0, *(getattr(moment, name) for moment in one.moments)])
            # Progress goes back if a slice starts again after its worker died.
            counts = np.maximum.accumulate(counts)
            done[row] += np.diff(np.interp(edges, running, counts))
    rates = np.rint(done / (edges[1] - edges[0])).astype(object)
    for number in range(num_bins):
        start, stop = edges[number : number + 2].tolist()
        yield ThroughputBin(round(start, 3), round(stop, 3), *map(int, rates[:, number]))


def _writing_seconds(attempts: list[TimedAttempt]) -> float | None:
    """From the last slice to the end; None if that was not seen, or not by one attempt alone. An
    attempt that began with all slices, such as `finish`, did nothing else."""
    if attempts and attempts[-1].end == COMPLETE:
        last = attempts[-1]
        if 0 < last.num_slices <= last.num_resumed:
            return round(last.last.seconds, 3)
    ends = [one for one in attempts if one.end == COMPLETE]
    if len(ends) != 1 or attempts[-1] is not ends[0]:
        return None
    one = ends[0]
    encoded = (m for m in one.moments if m.slices + one.num_resumed >= one.num_slices)
    return round(one.last.seconds - next(encoded, one.last).seconds, 3)
