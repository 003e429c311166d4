"""The inline runner: slices one after the other, in the calling process. Forks nothing.

Inputs are cut here, too: a file that kills its reader kills the run, now or when it is encoded.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from tokenmill.corpus import Input, Slice
from tokenmill.job import Job, Step
from tokenmill.plan import Cut, cut_here
from tokenmill.readers import ReadOptions
from tokenmill.record import PartRecord
from tokenmill.runners import Watch

if TYPE_CHECKING:
    from tokenmill.fulfil import WrittenShard
    from tokenmill.orders import ShardOrder

WAIT_SECONDS = 0.05  # between two looks for the next slice


class _Stopped(BaseException):
    """Unwinds `encode_slice`; a BaseException, so that nothing on the way takes it for an error."""


class InlineRunner:
    def cut(
        self, inputs: Iterable[Input], options: ReadOptions, max_rows: int | None, watch: Watch
    ) -> Iterator[Cut]:
        return cut_here(inputs, options, max_rows)

    def run(self, job: Job, slices: Iterable[Slice | None], watch: Watch) -> Iterator[PartRecord]:
        from tokenmill.mill import encode_slice

        for slice_ in slices:
            if slice_ is None:
                if watch.should_stop():
                    return
                time.sleep(WAIT_SECONDS)
                continue

            def report(step: Step, slice_: Slice = slice_) -> None:
                if watch.should_stop():
                    raise _Stopped
                watch.step(slice_, step)

            try:
                record = encode_slice(job, slice_, report)
            except _Stopped:
                return
            yield record

    def is_spread(self) -> bool:
        return False

    def write_shards(self, orders: Iterable[ShardOrder], watch: Watch) -> Iterator[WrittenShard]:
        from tokenmill.fulfil import write_shard

        for order in orders:
            if watch.should_stop():
                return
            yield write_shard(order)
