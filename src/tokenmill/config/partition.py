"""`--partition I/N`: which slices of a divided run belong to one task."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tokenmill.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Partition:
    """One task of a divided run: `number` of `count`, counted from 1, such as 1/3, 2/3, 3/3.

    Its slices are adjacent, so that most files are read (or fetched) by one task only. Taking every
    Nth slice would balance slices of different cost, but all hold about the same amount of text.
    The rule affects only who does the work: any N gives the same bytes, and tasks with different Ns
    may work on one run.
    """

    number: int
    count: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.count:
            raise ConfigError(
                f"there is no partition {self}: partitions are numbered from 1",
                hint=f"--partition 1/{max(1, self.count)} to "
                f"--partition {max(1, self.count)}/{max(1, self.count)}, one for each task",
            )

    @staticmethod
    def parsed(text: str) -> Partition:
        match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text.strip())
        if match is None:
            raise ConfigError(
                f"--partition is I/N, got {text!r}",
                hint="--partition 1/3, --partition 2/3 and --partition 3/3, one for each task",
            )
        return Partition(int(match[1]), int(match[2]))

    def of(self, num_slices: int) -> range:
        """The indices of this partition's slices."""
        return range(
            (self.number - 1) * num_slices // self.count, self.number * num_slices // self.count
        )

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"
