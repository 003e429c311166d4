"""Which cells are sampled: two from every stratum, chosen by a seed.

Two from each, because neighbours are alike: many small strata beat few large ones. A large file has
its own strata, because the next file may be in another language. Small files share strata.
"""

from __future__ import annotations

import bisect
import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tokenmill.corpus.spans import Input, Slice
from tokenmill.errors import ConfigError

MIN_CELLS = 8
# Opening a file takes as long as reading and encoding 20 kB, so a cell has only a few small files.
CELL_FILES = 64


@dataclass(frozen=True, slots=True)
class Sample:
    """The size of the sample. 128 cells of 512 KiB take half a second to encode."""

    num_cells: int = 128
    cell_bytes: int = 512 << 10
    seed: int = 0

    def __post_init__(self) -> None:
        if self.num_cells < MIN_CELLS or self.num_cells % 2:
            raise ConfigError(
                f"a sample has an even number of cells, {MIN_CELLS} or more; got {self.num_cells}"
            )
        if self.cell_bytes <= 0:
            raise ConfigError(f"a cell has at least one byte, got {self.cell_bytes}")

    def among(self, inputs: Sequence[Input]) -> Sample:
        """The same number of cells, each of CELL_FILES files at most."""
        if not inputs:
            return self
        file_bytes = sum(source.num_bytes for source in inputs) / len(inputs)
        most = max(1, int(CELL_FILES * file_bytes))
        return replace(self, cell_bytes=min(self.cell_bytes, most))


# For an engine that encodes 2 to 12 MB/s: a few seconds at most.
SLOW_SAMPLE = Sample(num_cells=64, cell_bytes=128 << 10)


@dataclass(frozen=True, slots=True)
class Draw:
    """A sampled cell."""

    number: int  # of the cell in its unit
    weight: float  # how many cells of the corpus it represents
    group: int  # its file, if that is large, or a run of small ones


Drawing = dict[int, list[Draw]]  # by unit, all in the order of the corpus


def drawing_of(units: Sequence[Slice], sample: Sample) -> Drawing | None:
    """Two cells from each stratum; None if the sample would be the whole corpus."""
    ends = [0, *itertools.accumulate(num_cells(unit, sample.cell_bytes) for unit in units)]
    if ends[-1] <= sample.num_cells:
        return None
    rng = random.Random(sample.seed)
    stratum_cells = 2 * ends[-1] / sample.num_cells
    drawing: Drawing = {}
    for group, (first, last) in enumerate(itertools.pairwise(_borders(units, ends, stratum_cells))):
        num_strata = max(1, round((last - first) / stratum_cells))
        edges = [first + (last - first) * i // num_strata for i in range(num_strata + 1)]
        for start, stop in itertools.pairwise(edges):
            drawn = sorted(rng.sample(range(start, stop), min(2, stop - start)))
            for cell in drawn:
                unit = bisect.bisect_right(ends, cell) - 1
                draw = Draw(cell - ends[unit], (stop - start) / len(drawn), group)
                drawing.setdefault(unit, []).append(draw)
    return drawing


def _borders(units: Sequence[Slice], ends: Sequence[int], stratum_cells: float) -> list[int]:
    """The cells at which a large file begins or ends."""
    borders = {0, ends[-1]}
    numbered = enumerate(units)
    for path, members in itertools.groupby(numbered, lambda member: _path_of(member[1])):
        numbers = [number for number, _ in members]
        first, last = ends[numbers[0]], ends[numbers[-1] + 1]
        if path is not None and last - first >= stratum_cells:
            borders |= {first, last}
    return sorted(borders)


def _path_of(unit: Slice) -> str | None:
    """The file of the unit; None if it has several."""
    paths = {span.input.path for span in unit.spans}
    return paths.pop() if len(paths) == 1 else None


def num_cells(unit: Slice, cell_bytes: int) -> int:
    """The number of cells in a unit, at least 1."""
    return max(1, round(unit.text_bytes / cell_bytes))
