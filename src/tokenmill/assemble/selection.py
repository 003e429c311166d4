"""Which records of a run count, given `--dedup` and `--limit-tokens`; without either, all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tokenmill.assemble.books import Assembly
from tokenmill.assemble.duplicates import Duplicates
from tokenmill.assemble.token_limit import TokenLimit
from tokenmill.config import Config
from tokenmill.corpus.plan import Plan
from tokenmill.corpus.spans import Slice
from tokenmill.encode.job import Job
from tokenmill.encode.ledger import Ledger
from tokenmill.encode.record import PartRecord


@dataclass(frozen=True, slots=True)
class RecordSelection:
    duplicates: Duplicates | None = None
    limit: TokenLimit | None = None

    @classmethod
    def of(cls, config: Config, job: Job, plan: Plan, moved: Mapping[str, str]) -> RecordSelection:
        """`moved`: see TokenLimit."""
        duplicates = Duplicates(job.work, job.plan_id, plan.slices) if config.dedup else None
        if config.limit_tokens is None:
            return cls(duplicates)
        if duplicates is None:
            return cls(None, TokenLimit(config.limit_tokens, plan.slices, moved))
        limit = TokenLimit(config.limit_tokens, plan.slices, moved, duplicates.copies_in)
        return cls(duplicates, limit)

    def num_indices(self, num_slices: int) -> int:
        """The bound on the indices of records; slices that are encoded again have the highest."""
        if self.duplicates is not None:
            return self.duplicates.num_indices
        return num_slices + (self.limit is not None)

    @property
    def num_again(self) -> int:
        """How many kinds of slices are encoded again: those with copies, the one cut short."""
        return (self.duplicates is not None) + (self.limit is not None)

    def resumed(self, records: Ledger, num_slices: int) -> tuple[Ledger, list[int]]:
        """The records of earlier attempts that certainly count, and the slices that have none."""
        if self.duplicates is not None:
            records, missing = self.duplicates.resumed(records)
        else:
            missing = [index for index in range(num_slices) if index not in records]
        if self.limit is not None:
            records = self.limit.resumed(records)
        self._end_duplicates()
        return records, missing

    def left_of(self, slices: list[Slice]) -> list[Slice]:
        """Which of these are still to be encoded: after the limit is reached, only the slice that
        it cuts short."""
        if self.limit is None or self.limit.last is None:
            return slices
        return [] if self.limit.is_complete else [self.limit.last]

    def handed_out(
        self, slices: Iterator[Slice | None], in_flight: Mapping[int, Slice]
    ) -> Iterator[Slice | None]:
        if self.limit is not None:
            slices = self.limit.handed_out(slices, in_flight)
        return slices if self.duplicates is None else self.duplicates.handed_out(slices)

    def added(self, record: PartRecord, in_flight: dict[int, Slice]) -> Iterable[PartRecord]:
        """The records that can be passed on, now that there is this one. With a limit, removes
        their slices from `in_flight`."""
        found = [record] if self.duplicates is None else self.duplicates.added([record])
        if self.limit is None:
            return found
        needed = [self.limit.added([one], in_flight.pop(one.slice_index, None)) for one in found]
        self._end_duplicates()
        return [one for some in needed for one in some]

    def end(self, assembly: Assembly) -> None:
        """Tell the assembly which slice is the last, once the limit is reached."""
        if self.limit is not None and self.limit.last is not None:
            assembly.end_with(self.limit.last_index, self.limit.num_slices)

    def _end_duplicates(self) -> None:
        if self.duplicates is not None and self.limit is not None and self.limit.last is not None:
            self.duplicates.end()


ALL_RECORDS = RecordSelection()
