"""A dataset becomes figures: read this first.

    stretches    the split cut into 256; a window of each, or all of it          tally.py
    documents    all of a small split, else an unbiased sample                   measured.py
    exact        all stretches and all documents, by all cores

`bincount` holds the GIL, so a command forks, and each fork counts neighbouring stretches. A process
that cannot fork uses threads.

What can be read in about ten seconds is read whole (`is_quick`): by its size and format, not by a
clock, so that a dataset always has the same report. Only OUT is read, and nothing is written.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tokenmill.dataset.inspect import LookedInto, glance
from tokenmill.dataset.split import Split
from tokenmill.look.report.document_keys import Numbers
from tokenmill.look.report.duplicates import exact_duplicates, sampled_duplicates
from tokenmill.look.report.figures import (
    DuplicateFigures,
    Figures,
    LengthFigures,
    ShownDocument,
    SplitFigures,
    StretchFigures,
)
from tokenmill.look.report.measured import MeasuredDocuments, length_figures, measured
from tokenmill.look.report.origins import proof_of, quarantine_of, sources_of
from tokenmill.look.report.places import Commands
from tokenmill.look.report.shown_documents import rated_documents, shown_documents
from tokenmill.look.report.tally import (
    ReadStretch,
    SplitTally,
    Tallying,
    largest_row,
    stretches_of,
)
from tokenmill.look.report.token_use import token_figures
from tokenmill.runners.forks import in_forks
from tokenmill.runners.spawn import may_fork
from tokenmill.runners.threads import in_threads

FAR_THREADS = 8
# Tokens of a split that are read whole, unless the user asks for all: about ten seconds on 2 cores,
# if the format stores them as they are, and if shards must be unpacked; over a network, 32 MiB.
QUICK_TOKENS = 1 << 28
QUICK_UNPACKED_TOKENS = 1 << 26
QUICK_FAR_TOKENS = 1 << 24
# Below this, starting processes takes longer than counting.
MIN_TOKENS_APART = 1 << 24
NUM_OUTLIERS = 8
# A stretch stands out if it is this many (scaled) median deviations off, and a tenth.
OUTLYING_DEVIATIONS, OUTLYING_SHARE = 5.0, 0.1


OnProgress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class SurveyOptions:
    """How a dataset is read."""

    is_exact: bool = False  # all tokens, however many
    sampled: frozenset[str] = frozenset()  # splits that are sampled even if they are quick to read
    with_text: bool = True
    num_proc: int = 1
    progress: OnProgress = lambda what, done, total: None


def survey(looked: LookedInto, reading: SurveyOptions, commands: Commands | None = None) -> Figures:
    """The figures of a dataset; `commands` add the options that its folder does not state."""
    dataset, manifest, table = looked.dataset, looked.dataset.manifest, looked.token_bytes
    commands = Commands(looked) if commands is None else commands
    surveyed = [_split(looked, name, reading, commands) for name in dataset.streams]
    counts = [found.counts for found in surveyed if len(found.counts)]
    sources, num_sources = ([], 0) if manifest is None else sources_of(manifest)
    is_exact = all(found.figures.is_exact for found in surveyed)
    usual = next((f for f in surveyed if f.figures.split == commands.usual_split), None)
    return Figures(
        glance=glance(looked),
        proof=None if manifest is None else proof_of(manifest),
        splits=tuple(found.figures for found in surveyed),
        tokens=token_figures(_summed(counts), table, is_exact) if counts else None,
        sources=tuple(sources),
        num_sources=num_sources,
        quarantine=quarantine_of(looked),
        documents=usual.documents if usual is not None and reading.with_text else (),
        num_documents_compared=0 if usual is None else usual.num_compared,
        missing=looked.missing,
        verify_command=commands.verify(),
        inspect_command=commands.inspect(),
    )


@dataclass(frozen=True, slots=True)
class _Surveyed:
    figures: SplitFigures
    counts: Numbers
    documents: tuple[ShownDocument, ...]
    num_compared: int


def _split(looked: LookedInto, name: str, reading: SurveyOptions, commands: Commands) -> _Surveyed:
    split = Split(looked, name, lambda: None, None)
    is_exact = reading.is_exact or (name not in reading.sampled and is_quick(looked, name))
    stretches = stretches_of(split.num_tokens, is_exact, looked.dataset.files.is_local)
    tally = _tally(looked, split, stretches, reading, is_exact)
    has_all = is_exact and split.stream.knows_documents
    found = measured(looked, split, tally.ends if has_all else None)
    if has_all:
        lengths, duplicates = _of_all(split, tally, commands)
    else:
        lengths, duplicates = _of_some(split, found, commands)
    figures = _stretch_figures(stretches, tally.num_bytes)
    return _Surveyed(
        SplitFigures(
            name,
            split.num_tokens,
            sum(stretch.num_read for stretch in stretches),
            all(stretch.num_read == stretch.stop - stretch.start for stretch in stretches),
            lengths,
            figures,
            _outliers(name, figures, commands),
            duplicates,
        ),
        tally.counts,
        tuple(shown_documents(looked, split, found, commands)) if reading.with_text else (),
        0 if found is None else len(rated_documents(found)),
    )


def is_quick(looked: LookedInto, split: str) -> bool:
    """Whether a split is read whole by default."""
    dataset = looked.dataset
    most = QUICK_TOKENS if dataset.format.traits.is_raw else QUICK_UNPACKED_TOKENS
    if not dataset.files.is_local:
        most = min(most, QUICK_FAR_TOKENS)
    return dataset.streams[split].num_tokens <= most


def _tally(
    looked: LookedInto,
    split: Split,
    stretches: list[ReadStretch],
    reading: SurveyOptions,
    is_exact: bool,
) -> SplitTally:
    table, is_local = looked.token_bytes, looked.dataset.files.is_local
    if not stretches:
        return SplitTally.joined([])
    how = Tallying(
        split,
        largest_row(table, split),
        None if table is None else table.lengths,
        with_documents=is_exact and split.stream.knows_documents,
    )

    def progress(num_tokens: int) -> None:
        reading.progress("reading", num_tokens, split.num_tokens)

    is_large = is_exact and split.num_tokens >= MIN_TOKENS_APART
    num_proc = reading.num_proc if is_large and is_local else 1
    if num_proc > 1 and may_fork():
        groups = _neighbours(stretches, num_proc)
        found = in_forks(lambda group, advance: how.of(group, advance).arrays, groups, progress)
        return SplitTally.joined(SplitTally(*arrays) for arrays in found)
    groups = _neighbours(stretches, num_proc if is_local else len(stretches))
    told = _Told(progress)
    num_threads = num_proc if is_local else FAR_THREADS
    return SplitTally.joined(in_threads(lambda group: how.of(group, told.add), groups, num_threads))


def _neighbours(stretches: list[ReadStretch], num_groups: int) -> list[list[ReadStretch]]:
    num_groups = min(num_groups, len(stretches))
    bounds = [len(stretches) * i // num_groups for i in range(num_groups + 1)]
    return [stretches[a:b] for a, b in itertools.pairwise(bounds)]


class _Told:
    """The sum of the progress that threads report."""

    def __init__(self, progress: Callable[[int], None]) -> None:
        self._progress = progress
        self._lock = threading.Lock()
        self._sum = 0

    def add(self, count: int) -> None:
        with self._lock:
            self._sum += count
            self._progress(self._sum)


def _of_all(
    split: Split, tally: SplitTally, commands: Commands
) -> tuple[LengthFigures | None, DuplicateFigures | None]:
    lengths = np.diff(tally.ends, prepend=0)
    if not len(lengths):
        return None, None
    starts = tally.ends - lengths
    duplicates = exact_duplicates(split, starts, lengths, tally.keys, commands)
    return length_figures(lengths, is_exact=True), duplicates


def _of_some(
    split: Split, found: MeasuredDocuments | None, commands: Commands
) -> tuple[LengthFigures | None, DuplicateFigures | None]:
    if found is None or not len(found):
        return None, None
    duplicates = sampled_duplicates(split, found, commands) if found.num_read else None
    return length_figures(found.lengths, found.is_exact), duplicates


def _stretch_figures(
    stretches: list[ReadStretch], known_bytes: Numbers
) -> tuple[StretchFigures, ...]:
    num_bytes: Sequence[int | None] = known_bytes.tolist() or [None] * len(stretches)
    ratios = [
        None if count is None or not stretch.num_read else count / stretch.num_read
        for stretch, count in zip(stretches, num_bytes, strict=True)
    ]
    limits = _usual(np.array([ratio for ratio in ratios if ratio is not None]))
    return tuple(
        StretchFigures(
            stretch.start,
            stretch.stop,
            stretch.num_read,
            stretch.read_start,
            count,
            ratio,
            ratio is not None and not limits[0] <= ratio <= limits[1],
        )
        for stretch, count, ratio in zip(stretches, num_bytes, ratios, strict=True)
    )


def _usual(ratios: np.ndarray[tuple[int], np.dtype[np.float64]]) -> tuple[float, float]:
    """The range of bytes per token in which a stretch does not stand out."""
    if len(ratios) < 8:
        return -np.inf, np.inf
    middle = _median(ratios)
    spread = 1.4826 * _median(np.abs(ratios - middle))
    margin = max(OUTLYING_DEVIATIONS * spread, OUTLYING_SHARE * middle)
    return middle - margin, middle + margin


def _median(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    """As `np.median`, which imports numpy.ma for it: 16 ms."""
    ordered = np.sort(values)
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return float((low + high) / 2)


def _outliers(
    split: str, figures: tuple[StretchFigures, ...], commands: Commands
) -> tuple[tuple[int, str], ...]:
    known = np.array([f.bytes_per_token or 0.0 for f in figures])
    middle = _median(known) if figures else 0.0
    odd = [number for number, one in enumerate(figures) if one.is_outlier]
    odd.sort(key=lambda number: -abs((figures[number].bytes_per_token or 0.0) - middle))
    return tuple(
        (number, commands.at(split, figures[number].read_start))
        for number in sorted(odd[:NUM_OUTLIERS])
    )


def _summed(counts: list[Numbers]) -> Numbers:
    """Counts by id, which have different lengths if splits have different dtypes."""
    total = np.zeros(max(map(len, counts)), np.int64)
    for one in counts:
        total[: len(one)] += one
    return total
