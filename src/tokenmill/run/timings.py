"""`--timings FILE`: appends the progress of a run, about once a second, to a file outside of it.

A watch around the run's own watch, so the run itself knows nothing of it. Like the progress line it
reacts to events and has no thread, because a process with threads may not fork. If the disk takes
no more lines, the timings end, but the run continues.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterator

from tokenmill.config import Config
from tokenmill.corpus.download.progress import DownloadProgress
from tokenmill.corpus.plan import Plan
from tokenmill.corpus.spans import Slice
from tokenmill.dataset.timings import (
    COMPLETE,
    FAILED,
    STOPPED,
    Moment,
    TimedAttempt,
    beginning,
    moment_line,
    read_timings,
    run_hash,
)
from tokenmill.encode.job import Step
from tokenmill.encode.record import PartRecord
from tokenmill.errors import ConfigError, ConflictError, InputError, OutputError
from tokenmill.run.request import PrepareRequest
from tokenmill.run.watch import RunWatch, tell_limit
from tokenmill.runners import Stopped
from tokenmill.storage.appended_file import AppendedFile

LINE_SECONDS = 1.0
# From this many lines on, the next one waits for 1/2,000 of the time so far: 9,600 lines, 1.4 MB,
# in a week.
EVERY_SECOND_LINES = 2_000

_HINT = "choose another file with --timings"


@contextlib.contextmanager
def timed(config: Config, watch: RunWatch) -> Iterator[RunWatch]:
    """The watch, wrapped to write the run's timings if they were asked for."""
    if config.timings is None:
        yield watch
        return
    timing = TimedWatch(watch, _opened(config.timings))
    try:
        yield timing
    except BaseException as error:
        is_failure = isinstance(error, Exception) and not isinstance(error, Stopped)
        timing.close(FAILED if is_failure else STOPPED)
        raise
    timing.close(COMPLETE)


def require_own_timings(config: Config, request: PrepareRequest) -> None:
    """Raise an error if the timings file is an input, or has lines of another run."""
    path = config.timings
    if path is None or not os.path.exists(path):
        return
    inputs = request.inputs or ()
    if any(os.path.exists(one.path) and os.path.samefile(one.path, path) for one in inputs):
        raise ConfigError(
            f"--timings {path} is among the files that the sources name",
            hint="choose a file outside of them",
        )
    if not os.path.getsize(path):
        return
    own = run_hash(request.identity, inputs)
    if any(attempt.run != own for attempt in _timings(path)):
        raise ConflictError(
            f"{path} has the timings of another run: other sources, other options or another "
            "version of tokenmill",
            hint=f"{_HINT}, or remove {path}",
        )


def _timings(path: str) -> tuple[TimedAttempt, ...]:
    try:
        return read_timings(path).attempts
    except InputError as error:
        raise ConflictError(f"{error.message}, and nothing is appended to it", _HINT) from error


def _opened(path: str) -> AppendedFile:
    try:
        return AppendedFile(path, _HINT)
    except FileExistsError:
        raise ConflictError(f"{path} is not a regular file", hint=_HINT) from None
    except BlockingIOError:
        raise ConflictError(
            f"another run is writing its timings to {path}",
            hint="a file for each: --timings timings-2.jsonl; `report` takes several",
        ) from None


class TimedWatch:
    """A RunWatch that writes timings and forwards every event to another one."""

    def __init__(self, watch: RunWatch, file: AppendedFile) -> None:
        self._watch = watch
        self._file: AppendedFile | None = file
        self._began = self._next = float("inf")  # at `planned`
        self._num_slices = 0
        self._done = (0, 0, 0)  # documents, tokens, bytes of finished slices
        self._in_flight: dict[int, tuple[int, int, int]] = {}
        self._progress: Callable[[], DownloadProgress | None] = lambda: None
        self._first_bytes = self._last_bytes = 0  # downloaded, at first and at last

    def planned(self, plan: Plan, done: Collection[int]) -> None:
        run = run_hash(plan.identity, plan.inputs)
        self._append(beginning(TimedAttempt(run, time.time(), len(plan.slices), len(done))))
        self._began = time.monotonic()
        self._next = self._began + LINE_SECONDS
        self._watch.planned(plan, done)

    def downloading(self, progress: Callable[[], DownloadProgress | None]) -> None:
        self._progress = progress
        now = progress()
        self._first_bytes = self._last_bytes = now.num_bytes if now is not None else 0
        self._watch.downloading(progress)

    def step(self, slice_: Slice, step: Step) -> None:
        documents, tokens, text_bytes = self._in_flight.get(slice_.index, (0, 0, 0))
        self._in_flight[slice_.index] = (
            documents + step.done_rows,
            tokens + step.done_tokens,
            text_bytes + step.done_bytes,
        )
        self._look()
        self._watch.step(slice_, step)

    def recorded(self, record: PartRecord) -> None:
        self._in_flight.pop(record.slice_index, None)
        counts = record.counts.num_rows, record.num_tokens, record.counts.text_bytes
        self._done = _sum((self._done, counts))
        self._num_slices += 1
        self._look()
        self._watch.recorded(record)

    def limited(self, num_tokens: int, max_tokens: int) -> None:
        tell_limit(self._watch, num_tokens, max_tokens)

    def notice(self, message: str) -> None:
        self._watch.notice(message)

    def should_stop(self) -> bool:
        self._look()  # also while nothing is encoded
        return self._watch.should_stop()

    def close(self, end: str) -> None:
        """Note how the attempt ended, unless it had nothing to do."""
        if self._began < float("inf"):
            self._append(moment_line(self._moment(), end))
        if self._file is not None:
            self._file.close()

    def _look(self) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + max(LINE_SECONDS, (now - self._began) / EVERY_SECOND_LINES)
            self._append(moment_line(self._moment()))

    def _moment(self) -> Moment:
        now = self._progress()
        if now is not None:
            self._last_bytes = max(self._last_bytes, now.num_bytes)
        done = _sum((self._done, *self._in_flight.values()))
        seconds, downloaded = time.monotonic() - self._began, self._last_bytes - self._first_bytes
        return Moment(seconds, self._num_slices, *done, downloaded)

    def _append(self, line: bytes) -> None:
        if self._file is None:
            return
        try:
            self._file.append(line)
        except OutputError as error:
            self._file.close()
            self._file = None
            self._watch.notice(f"the timings end here: {error.message}")


def _sum(counts: Collection[tuple[int, int, int]]) -> tuple[int, int, int]:
    documents, tokens, text_bytes = map(sum, zip(*counts, strict=True))
    return documents, tokens, text_bytes
