"""The progress of a run: one moving line on a terminal or in a notebook, a line every few seconds
elsewhere, nothing with -q.

While files are downloaded, the line shows both download and encoding, and the longer time left.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from array import array
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, TextIO

from tokenmill.cli.moving_line import MovingLine, is_notebook
from tokenmill.cli.screen import labelled, printable, shown_count, shown_rate, shown_seconds
from tokenmill.cli.signals import Interrupted, SignalStop
from tokenmill.corpus.spans import Slice
from tokenmill.encode.job import Step
from tokenmill.encode.record import PartRecord
from tokenmill.wording.plural import counted, noun_for

if TYPE_CHECKING:
    from tokenmill.corpus.downloads import DownloadProgress
    from tokenmill.corpus.plan import Plan
    from tokenmill.dataset.manifest import Manifest

IDLE_SECONDS = 1.0  # slices move more often than that
DOWNLOAD_SECONDS = 0.5  # a rate that changes more often cannot be read


class DownloadWatch:
    """The progress of a download, at most half a second old, and its time left."""

    def __init__(self, progress: Callable[[], DownloadProgress | None]) -> None:
        self._progress = progress
        self._now = progress()
        self._looked_at = self._began = time.monotonic()
        self._first_bytes = self._now.num_bytes if self._now else 0

    def look(self) -> None:
        now = time.monotonic()
        if now - self._looked_at >= DOWNLOAD_SECONDS:
            self._now, self._looked_at = self._progress(), now

    @property
    def is_done(self) -> bool:
        return self._now is None or self._now.num_files >= self._now.total_files

    @property
    def seconds_left(self) -> float:
        """At the average speed so far; 0 if nothing has arrived."""
        if self._now is None or self._now.num_bytes <= self._first_bytes:
            return 0.0
        seconds = self._looked_at - self._began
        missing = self._now.total_bytes - self._now.num_bytes
        return seconds * missing / (self._now.num_bytes - self._first_bytes)

    def __str__(self) -> str:
        assert self._now is not None
        share = self._now.num_bytes / max(1, self._now.total_bytes)
        rate = self._now.bytes_per_second
        speed = shown_rate(rate) if rate >= 1 else "waiting"
        done, total = self._now.num_files, self._now.total_files
        return f"down {share:4.0%} {speed} {done:,}/{total:,} {noun_for(total, 'file')}"


class Progress:
    """The RunWatch of the command line, and its LimitWatch."""

    def __init__(
        self, stop: SignalStop, workers: Callable[[int], str], quiet: bool, stream: TextIO
    ) -> None:
        self._stop = stop
        self._workers_of = workers  # the workers for a number of slices, in words
        self._workers = ""
        self._quiet = quiet
        self._stream = stream
        self._moving = MovingLine(stream, quiet)
        self._made_at = self._began = self._moving.shown_at = time.monotonic()
        self._total_bytes = self._done_bytes = 0
        self._heard_at = self._began  # the last event of any slice
        self._idle_seconds = 0.0  # while all workers waited for files
        self._in_flight: dict[int, tuple[int, int, int]] = {}  # slice -> rows, tokens, bytes
        self._positions: dict[int, tuple[int, int]] = {}  # slice -> span and row of its last step
        self._first = 0  # the first slice to encode
        self._sizes = array("q")  # of each slice from there on: estimated bytes of text
        self._missing = 0
        self._download: DownloadWatch | None = None
        self._limit: tuple[int, int] | None = None  # tokens of finished slices, --limit-tokens
        self._resumed_share = 0.0
        self.num_rows = self.num_tokens = self.text_bytes = 0  # of finished slices
        self.resumed_slices = 0
        self.plan: Plan | None = None  # None: there was nothing to do

    def planned(self, plan: Plan, done: Collection[int]) -> None:
        self.plan = plan
        self._began = self._moving.shown_at = time.monotonic()
        self._total_bytes = plan.text_bytes
        self._first = plan.slices[0].index if plan.slices else 0
        self._sizes = plan.slices.sizes
        self._done_bytes = sum(map(self._size, done))
        self._resumed_share = self._share()
        self._heard_at = self._began
        self._missing = len(plan.slices) - len(done)
        self._workers = self._workers_of(self._missing)
        self._stop.can_wait = self._missing > 0
        self.resumed_slices = len(done)
        if done and not self._quiet:
            self._line(
                f"resuming: {len(done):,} of {counted(len(plan.slices), 'slice')} "
                f"{noun_for(len(done), 'is', 'are')} done"
            )

    def downloading(self, progress: Callable[[], DownloadProgress | None]) -> None:
        self._download = DownloadWatch(progress)

    def step(self, slice_: Slice, step: Step) -> None:
        self._hear()
        if self._is_again(slice_.index):
            return
        position = step.span, step.row
        if position < self._positions.get(slice_.index, position):  # it has begun again
            self._in_flight.pop(slice_.index, None)
        self._positions[slice_.index] = position
        rows, tokens, text_bytes = self._in_flight.get(slice_.index, (0, 0, 0))
        self._in_flight[slice_.index] = (
            rows + step.done_rows,
            tokens + step.done_tokens,
            text_bytes + step.done_bytes,
        )
        self._show()

    def recorded(self, record: PartRecord) -> None:
        self._hear()
        self._in_flight.pop(record.slice_index, None)
        self._positions.pop(record.slice_index, None)
        self.text_bytes += record.counts.text_bytes
        if self._is_again(record.slice_index):
            return
        self._done_bytes += self._size(record.slice_index)
        self.num_rows += record.counts.num_rows
        self.num_tokens += record.num_tokens
        self._missing -= 1
        if not self._missing:
            # Show the next line at once: the one after may take a while.
            self._moving.shown_at = self._began
            self._stop.can_wait = False
            if self._stop.signum:
                raise Interrupted(self._stop.signum)
        self._show()

    def limited(self, num_tokens: int, max_tokens: int) -> None:
        is_first, self._limit = self._limit is None, (num_tokens, max_tokens)
        if is_first:
            self._resumed_share = self._share()
        self._show()

    def notice(self, message: str) -> None:
        self._line(f"warning: {message}")

    def should_stop(self) -> bool:
        if self._is_downloading:  # there may be nothing to encode for minutes
            self._show()
        return self._stop.signum != 0

    @property
    def seconds(self) -> float:
        """The time since the command began."""
        return time.monotonic() - self._made_at

    @property
    def has_worked(self) -> bool:
        """Whether this run encoded or resumed anything: False if the dataset was complete."""
        return self.num_rows > 0 or self.resumed_slices > 0

    @property
    def what_is_kept(self) -> str:
        """What a stopped run leaves to the next one, in words."""
        if self._download is None:
            return "what was encoded is kept"
        return "whole files and the tokens made from them are kept"

    @property
    def _is_downloading(self) -> bool:
        if self._download is None:
            return False
        self._download.look()
        if self._download.is_done:
            self._download = None
        return self._download is not None

    def end(self) -> None:
        """Erase the moving line."""
        self._moving.end()

    def conclude(self, manifest: Manifest, out: str) -> None:
        """Replace the moving line by the first line of the summary, and the notes."""
        from tokenmill.cli.summary import summary

        seconds = time.monotonic() - self._began if self.has_worked else None
        self._line(summary(manifest, out, seconds, self.text_bytes)[0])
        for note in manifest.notes:
            self._line(f"note: {note}")

    def _line(self, text: str) -> None:
        self.end()
        line = labelled(printable(text, keep_lines=True), self._stream, os.environ)
        print(line, file=self._stream, flush=True)

    def _show(self) -> None:
        now = time.monotonic()
        if self._moving.is_due(now):
            self._moving.write(now, self._fields(now))

    def _size(self, index: int) -> int:
        return 0 if self._is_again(index) else self._sizes[index - self._first]

    def _is_again(self, index: int) -> bool:
        """Whether it is made from a slice of the plan, whose documents are counted already: cut
        short (--limit-tokens), or without copies (--dedup)."""
        return index - self._first >= len(self._sizes)

    def _fields(self, now: float) -> list[str]:
        in_flight = self._in_flight.items()
        num_rows = self.num_rows + sum(done[0] for _, done in in_flight)
        num_tokens = self.num_tokens + sum(done[1] for _, done in in_flight)
        text_bytes = self.text_bytes + sum(done[2] for _, done in in_flight)
        share = self._share()
        rate, left = self._speed(now, text_bytes, share)
        documents = counted(num_rows, "document")
        tokens = f"{shown_count(num_tokens)} {noun_for(num_tokens, 'token')}"
        speed = [shown_rate(rate)] if rate else []
        if self._download is not None:
            encoding = " ".join((f"encode {share:4.0%}", *speed))
            fields = [str(self._download), encoding, *([tokens, documents] if num_tokens else [])]
            left = max(left, self._download.seconds_left)
        else:
            fields = [f"{share:4.0%}", documents, tokens, *speed]
        if self._workers:  # known once there is a plan
            fields.append(self._workers)
        if self.plan is not None and (not self._missing or self._is_limit_reached):
            fields.append("writing shards")
        elif left:  # else it is unknown
            fields.append(f"{shown_seconds(left)} left")
        return fields

    @property
    def _is_limit_reached(self) -> bool:
        return self._limit is not None and self._limit[0] >= self._limit[1]

    def _share(self) -> float:
        """How much is encoded: of the corpus, or of the limit if that comes first."""
        in_flight = self._in_flight.items()
        done = self._done_bytes + sum(min(done[2], self._size(i)) for i, done in in_flight)
        share = done / self._total_bytes if self._total_bytes else 0.0
        if self._limit is not None:
            num_tokens, max_tokens = self._limit
            num_tokens += sum(done[1] for _, done in in_flight)
            share = max(share, num_tokens / max_tokens)
        return min(1.0, share)

    def _speed(self, now: float, text_bytes: int, share: float) -> tuple[float, float]:
        """Bytes of text per second of encoding, and the seconds left; 0 if unknown."""
        fresh = share - self._resumed_share
        seconds = now - self._began - self._idle_seconds - self._waited(now)
        if fresh <= 0 or seconds <= 0:
            return 0.0, 0.0
        return text_bytes / seconds, seconds * (1 - share) / fresh

    def _hear(self) -> None:
        now = time.monotonic()
        self._idle_seconds += self._waited(now)
        self._heard_at = now

    def _waited(self, now: float) -> float:
        """The time since the last event, if all workers are waiting for files."""
        silent = now - self._heard_at
        return silent if self._download is not None and silent > IDLE_SECONDS else 0.0


@contextlib.contextmanager
def stderr_progress(workers: Callable[[int], str], quiet: bool) -> Iterator[Progress]:
    """The progress of a command. A signal stops it gracefully, then ends the process."""
    from tokenmill.runners import Stopped

    stop = SignalStop()
    stop.install()
    progress = Progress(stop, workers, quiet, sys.stderr)
    try:
        yield progress
    except (Stopped, Interrupted):
        progress.end()
        print(
            f"stopped; {progress.what_is_kept}. To continue, run the same command again.",
            file=sys.stderr,
        )
        stop.die_by(stop.signum)
        raise
    finally:
        progress.end()


@contextlib.contextmanager
def shown_progress(workers: Callable[[int], str]) -> Iterator[Progress]:
    """The progress for a caller in Python, whose signal handlers are not changed."""
    # A notebook shows stderr with a red background.
    stream = sys.stdout if is_notebook(sys.stdout) else sys.stderr
    progress = Progress(SignalStop(), workers, False, stream)
    try:
        yield progress
    finally:
        progress.end()
