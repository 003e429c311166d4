"""One slice and its attempts: what to try next when it killed its worker.

    plain        up to 3 times: the machine was short of memory, someone killed the worker
    careful      document by document, each named before it is encoded, so that the last one named
                 is the one that kills. Once is not enough to blame it, or whoever kills workers at
                 random would change the output: it has to be the same document twice
    without it   on_bad_document decides: left out and listed, or WorkerError

A stall goes to careful at once: it has been given minutes already. What killed for lack of memory
is careful with the machine to itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tokenmill.corpus.readers import reader_for
from tokenmill.corpus.spans import Slice, Span
from tokenmill.encode.job import NO_CAUTION, Caution, Job, Step
from tokenmill.errors import WorkerError
from tokenmill.runners.death import Death, printable
from tokenmill.storage.store import store_of

MAX_ATTEMPTS = 3
MAX_LEFT_OUT = 20  # per slice; more than that is no longer about single documents


class Attempts:
    def __init__(self, job: Job, slice_: Slice) -> None:
        self.slice_ = slice_
        self.step: Step | None = None  # where the attempt under way stands
        self.is_alone = False  # run it while nothing else runs
        self._job = job
        self._caution = NO_CAUTION
        self._num_failed = 0  # with this caution
        self._is_memory = False
        self._last_place: Step | None = None  # where the careful attempt before this one ended

    def order(self) -> dict[str, Any]:
        """What to send to a worker for the next attempt."""
        self.step = None
        skip = [[span, row, reason] for (span, row), reason in self._caution.skip.items()]
        caution = {"skip": skip, "one_by_one": self._caution.one_by_one}
        return {
            "job": self._job.to_plain(),
            "slice": self.slice_.to_plain(),
            "caution": caution,
            "prefetch": not store_of(self.slice_.spans[0].input.path).has_quick_calls,
        }

    def failed(self, death: Death) -> str:
        """Take note of a failed attempt and say what comes next; WorkerError if nothing does."""
        self._num_failed += 1
        self._is_memory |= death.is_memory
        if self._caution.one_by_one:
            return self._failed_carefully(death)
        if self._num_failed < MAX_ATTEMPTS and not death.is_stall:
            return f"it is tried again, attempt {self._num_failed + 1} of {MAX_ATTEMPTS}"
        self._next_caution(Caution(self._caution.skip, one_by_one=True))
        return "it is tried again document by document, to find the one that does this"

    @property
    def doing(self) -> str:
        return f"encoding {self.where}"

    @property
    def where(self) -> str:
        """The slice, and as precisely as its last step tells, the file and rows."""
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
        # Documents are met in order: the one before a document that was left out cannot be next.
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
        self.is_alone = self._is_memory

    def _error(self, death: Death, when: str) -> WorkerError:
        return WorkerError(
            f"workers keep dying at {self.where}, {when}\n{death.explained}", hint=_hint(death)
        )

    def _document_error(self, death: Death, step: Step) -> WorkerError:
        span = self.slice_.spans[step.span]
        try:
            place = reader_for(span.input.kind, self._job.read).place(span, step.row)
        except Exception:  # a file that kills its readers may not be read here either
            place = _rows(span, step)
        return WorkerError(
            f"{printable(span.input.name)}, {printable(place)}: this document {_reason(death)}\n"
            f"{death.explained}",
            hint="leave it out and go on: --on-bad-document quarantine",
        )


def _is_same_place(one: Step | None, other: Step | None) -> bool:
    if one is None or other is None:
        return one is other
    return (one.span, one.row, one.num_rows) == (other.span, other.row, other.num_rows)


def _reason(death: Death) -> str:
    """Goes into the manifest: nothing in it may depend on chance, as the number of tries does."""
    if death.is_stall:
        return f"hangs the worker that encodes it ({death.cause})"
    if death.is_memory:
        return f"needs more memory than there is ({death.cause})"
    return f"kills the worker that encodes it ({death.cause})"


def _hint(death: Death) -> str:
    if death.is_memory:
        return "it had the machine to itself: give the machine or container more memory"
    if death.is_stall:
        return "if the disk is only slow, allow more: --stall-timeout 3000; the run resumes"
    return "check that file; leave it out if it is damaged. The same command resumes"


def _rows(span: Span, step: Step) -> str:
    """The step's rows, counted from 0: in the file where that is known, else from a byte on."""
    first = step.row + (span.first_row if span.num_rows is not None else 0)
    rows = (
        f"row {first:,}" if step.num_rows == 1 else f"rows {first:,}-{first + step.num_rows - 1:,}"
    )
    return rows if span.num_rows is not None else f"{rows} after byte {span.start:,}"
