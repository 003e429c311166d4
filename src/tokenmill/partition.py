"""A partition: which slices are a task's, when a run is shared out among tasks beforehand.

Neighbouring slices, so that a task reads few files, and most files are read (or fetched) by one
task only. The alternative, every Nth slice, would even out slices that take longer in one part of
the corpus than in another; slices are cut to the same amount of text, so there is little to even
out. Nothing depends on the rule but who does what: any N gives the same bytes, and tasks of
different Ns may follow one another.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tokenmill.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Partition:
    """`number` of `count`, from 1, as people write it: 1/3, 2/3, 3/3."""

    number: int
    count: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.count:
            raise ConfigError(
                f"there is no partition {self}: they are numbered from 1",
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
