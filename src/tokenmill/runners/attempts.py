"""The attempts at one slice: what to try next after its worker died.

    plain        up to 3 times: the machine was short of memory, or someone killed the worker
    careful      one document at a time, each reported before it is encoded, so that the last one
                 reported is the one that kills. It must be the same document twice: after a single
                 death, random kills from outside would change the output
    without it   on_bad_document decides: quarantine the document, or raise WorkerError

A stalled slice goes to careful at once: it has taken minutes already. A slice that ran out of
memory is careful while nothing else runs. All attempts but the first are alone in their worker, so
that the death of a worker that also wrote a shard can be counted only once, and blames no document.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tokenmill.corpus.readers import reader_for
from tokenmill.corpus.spans import Slice, Span
from tokenmill.encode.job import NO_CAUTION, Caution, Job, Step
from tokenmill.errors import WorkerError
from tokenmill.runners.exit_diagnosis import Death, printable
from tokenmill.storage.store import store_of

MAX_ATTEMPTS = 3
MAX_LEFT_OUT = 20  # per slice; with more, single documents are not the cause


class Attempts:
    def __init__(self, job: Job, slice_: Slice) -> None:
        self.slice_ = slice_
        self.step: Step | None = None  # the progress of the current attempt
        self.is_exclusive = False  # run it while nothing else runs
        self._job = job
        self._caution = NO_CAUTION
        self._num_failed = 0  # with this caution
        self._is_memory = False
        self._last_place: Step | None = None  # where the previous careful attempt ended

    def order(self) -> dict[str, Any]:
        """The message to a worker for the next attempt."""
        self.step = None
        skip = [[span, row, reason] for (span, row), reason in self._caution.skip.items()]
        caution = {"skip": skip, "one_by_one": self._caution.one_by_one}
        return {
            "job": self._job.to_plain(),
            "slice": self.slice_.to_plain(),
            "caution": caution,
            "prefetch": not self.slice_.is_pruning
            and not store_of(self.slice_.spans[0].input.path).is_local,
        }

    def failed(self, death: Death) -> str:
        """Record a failed attempt and return what happens next; WorkerError if there is nothing
        left to try."""
        self._num_failed += 1
        self._is_memory |= death.is_memory
        if self._caution.one_by_one:
            return self._failed_carefully(death)
        if self._num_failed < MAX_ATTEMPTS and not death.is_stall:
            return f"it is tried again, attempt {self._num_failed + 1} of {MAX_ATTEMPTS}"
        self._next_caution(Caution(self._caution.skip, one_by_one=True))
        return "it is tried again document by document, to find the one that does this"

    @property
    def is_alone(self) -> bool:
        return self._num_failed > 0 or self._caution.one_by_one

    @property
    def doing(self) -> str:
        return f"encoding {self.where}"

    @property
    def where(self) -> str:
        """The slice, with file and rows as precisely as its last step says."""
        if self.step is None:
            first = self.slice_.spans[0]
            return f"slice {self.slice_.index} ({printable(first.input.name)}, at its beginning)"
        span = self.slice_.spans[self.step.span]
        return f"slice {self.slice_.index} ({printable(span.input.name)}, {_rows(span, self.step)})"

    def _failed_carefully(self, death: Death) -> str:
        place, before = self.step, self._last_place
        self._last_place = place
        if self._num_failed == 1 or not _is_same_place(place, before):
            if self._num_failed >= MAX_ATTEMPTS:
                raise self._error(death, "and not twice at the same document")
            return "it is tried once more document by document, to be sure"
        if place is None or place.num_rows != 1:
            raise self._error(death, "between documents, when reading or writing")
        document = (place.span, place.row)
        if self._job.on_bad_document == "error":
            raise self._document_error(death, place)
        # Documents come in order: this one cannot precede one that was already left out.
        if self._caution.skip and document < max(self._caution.skip):
            raise self._error(death, "between documents, when reading or writing")
        if len(self._caution.skip) >= MAX_LEFT_OUT:
            raise self._error(death, f"after {MAX_LEFT_OUT} of its documents were left out")
        skip = {**self._caution.skip, document: _reason(death)}
        self._next_caution(replace(self._caution, skip=skip))
        return "this document does it every time: it is left out and listed as quarantined"

    def _next_caution(self, caution: Caution) -> None:
        self._caution = caution
        self._num_failed = 0
        self._last_place = None
        self.is_exclusive = self._is_memory

    def _error(self, death: Death, when: str) -> WorkerError:
        return WorkerError(
            f"workers keep dying at {self.where}, {when}\n{death.explained}", hint=_hint(death)
        )

    def _document_error(self, death: Death, step: Step) -> WorkerError:
        span = self.slice_.spans[step.span]
        try:
            place = reader_for(span.input.kind, self._job.read_of(span.input)).place(span, step.row)
        except Exception:  # a file that kills its readers may fail here too
            place = _rows(span, step)
        return WorkerError(
            f"{printable(span.input.name)}, {printable(place)}: this document {_reason(death)}\n"
            f"{death.explained}",
            hint="leave it out and continue: --on-bad-document quarantine",
        )


def _is_same_place(one: Step | None, other: Step | None) -> bool:
    if one is None or other is None:
        return one is other
    return (one.span, one.row, one.num_rows) == (other.span, other.row, other.num_rows)


def _reason(death: Death) -> str:
    """Written to the manifest, so it must be deterministic: no number of attempts, for example."""
    if death.is_stall:
        return f"hangs the worker that encodes it ({death.cause})"
    if death.is_memory:
        return f"needs more memory than there is ({death.cause})"
    return f"kills the worker that encodes it ({death.cause})"


def _hint(death: Death) -> str:
    if death.is_memory:
        return "nothing else ran beside it: give the machine or container more memory"
    if death.is_stall:
        return "if the disk is only slow, allow more: --stall-timeout 3000; the run resumes"
    return "check that file; leave it out if it is damaged. The same command resumes"


def _rows(span: Span, step: Step) -> str:
    """The step's rows, counted from 0: in the file if known, else after a byte offset."""
    first = step.row + (span.first_row if span.num_rows is not None else 0)
    rows = (
        f"row {first:,}" if step.num_rows == 1 else f"rows {first:,}-{first + step.num_rows - 1:,}"
    )
    return rows if span.num_rows is not None else f"{rows} after byte {span.start:,}"
