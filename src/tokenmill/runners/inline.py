"""The inline runner: one task after another, in the calling process.

Inputs are cut here too, so a file that crashes its reader ends the run.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from tokenmill.corpus.input_spans import Cut, cut_here
from tokenmill.corpus.readers import ReadOptions
from tokenmill.corpus.spans import Input, Slice
from tokenmill.encode.job import Job, Step
from tokenmill.encode.record import PartRecord
from tokenmill.runners import Watch

if TYPE_CHECKING:
    from tokenmill.assemble.task import ShardRecord, ShardTask

WAIT_SECONDS = 0.05  # between two checks for the next slice


class _StopRequested(BaseException):
    """Unwinds `encode_slice`; a BaseException, so that no handler treats it as an error."""


class InlineRunner:
    def cut(
        self, inputs: Iterable[Input], options: ReadOptions, max_rows: int | None, watch: Watch
    ) -> Iterator[Cut]:
        return cut_here(inputs, options, max_rows)

    def run(
        self, job: Job, work: Iterable[Slice | ShardTask | None], watch: Watch
    ) -> Iterator[PartRecord | ShardRecord]:
        from tokenmill.assemble.writing import carry_out
        from tokenmill.encode.mill import encode_slice

        for item in work:
            if item is None:
                if watch.should_stop():
                    return
                time.sleep(WAIT_SECONDS)
                continue
            if not isinstance(item, Slice):
                if watch.should_stop():
                    return
                yield carry_out(item)
                continue

            def report(step: Step, slice_: Slice = item) -> None:
                if watch.should_stop():
                    raise _StopRequested
                watch.step(slice_, step)

            try:
                record = encode_slice(job, item, report)
            except _StopRequested:
                return
            yield record
