"""What `--dedup` and `--limit-tokens` leave of a run's records. Without either, all of
them."""

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
class Choice:
    duplicates: Duplicates | None = None
    limit: TokenLimit | None = None

    @classmethod
    def of(cls, config: Config, job: Job, plan: Plan, places: Mapping[str, str]) -> Choice:
        """`places`: see TokenLimit."""
        duplicates = Duplicates(job.work, job.plan_id, plan.slices) if config.dedup else None
        if config.limit_tokens is None:
            return cls(duplicates)
        if duplicates is None:
            return cls(None, TokenLimit(config.limit_tokens, plan.slices, places))
        limit = TokenLimit(config.limit_tokens, plan.slices, places, duplicates.copies_at)
        return cls(duplicates, limit)

    def num_indices(self, num_slices: int) -> int:
        """Of records that there may be: those of slices that are encoded again come last."""
        if self.duplicates is not None:
            return self.duplicates.num_indices
        return num_slices + (self.limit is not None)

    @property
    def num_again(self) -> int:
        """Kinds of slices that are encoded again: parts without copies, the one cut short."""
        return (self.duplicates is not None) + (self.limit is not None)

    def resumed(self, records: Ledger, num_slices: int) -> tuple[Ledger, list[int]]:
        """The records of earlier attempts that are known to count, and the slices without one."""
        if self.duplicates is not None:
            records, missing = self.duplicates.resumed(records)
        else:
            missing = [index for index in range(num_slices) if index not in records]
        if self.limit is not None:
            records = self.limit.resumed(records)
        self._end_duplicates()
        return records, missing

    def left_of(self, slices: list[Slice]) -> list[Slice]:
        """What is to be encoded of these: once the limit is known, only the slice it cuts short."""
        if self.limit is None or self.limit.last is None:
            return slices
        return [] if self.limit.is_complete else [self.limit.last]

    def handed_out(
        self, slices: Iterator[Slice | None], under_way: Mapping[int, Slice]
    ) -> Iterator[Slice | None]:
        if self.limit is not None:
            slices = self.limit.handed_out(slices, under_way)
        return slices if self.duplicates is None else self.duplicates.handed_out(slices)

    def added(self, record: PartRecord, under_way: dict[int, Slice]) -> Iterable[PartRecord]:
        """The records that can be passed on, now that there is this one; takes slices whose record
        is passed on out of `under_way`."""
        found = [record] if self.duplicates is None else self.duplicates.added([record])
        if self.limit is None:
            return found
        needed = [self.limit.added([one], under_way.pop(one.slice_index, None)) for one in found]
        self._end_duplicates()
        return [one for some in needed for one in some]

    def end(self, assembly: Assembly) -> None:
        """Tell the assembly which slice is the last, if the limit has shown it."""
        if self.limit is not None and self.limit.last is not None:
            assembly.end_with(self.limit.last_index, self.limit.num_slices)

    def _end_duplicates(self) -> None:
        if self.duplicates is not None and self.limit is not None and self.limit.last is not None:
            self.duplicates.end()


EVERYTHING = Choice()
