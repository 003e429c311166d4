"""The sampling frame: what is known of the corpus without reading its text.

Local inputs and objects are planned as in a run, which checks every footer and schema; only the
slices are smaller. Parquet files on the Hub are known by their footers; of many files, only some
footers are fetched, and represent the others by size.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from tokenmill.config import Config
from tokenmill.corpus.hub_inputs import HubInputs
from tokenmill.corpus.inputs import found_inputs
from tokenmill.corpus.plan import Plan
from tokenmill.corpus.planning import make_plan, num_slices_in
from tokenmill.corpus.readers import ReadOptions, reader_for
from tokenmill.corpus.spans import Input, Slice
from tokenmill.estimate.already_here import local_and_remote
from tokenmill.estimate.bounds import is_plain
from tokenmill.estimate.cells import num_rows_of
from tokenmill.estimate.sample import Sample
from tokenmill.storage import files
from tokenmill.storage.scratch import scratch_folder

MAX_FOOTERS = 24  # fetched from the Hub
COMPRESSED_TEXT_RATIO = 3  # text : compressed bytes, of remote files


@dataclass(frozen=True, slots=True)
class Absent:
    """The inputs that are not on this machine."""

    inputs: tuple[Input, ...] = ()
    text_bytes: int = 0
    num_rows: int | None = 0  # None: the files do not state it

    @property
    def num_bytes(self) -> int:
        return sum(source.num_bytes for source in self.inputs)


@dataclass(frozen=True)
class Frame:
    inputs: tuple[Input, ...]  # local ones and objects
    units: tuple[Slice, ...]  # what they consist of
    absent: Absent
    num_slices: int  # of the run, about
    notes: tuple[str, ...] = ()  # on how the inputs were found

    @functools.cached_property
    def text_bytes(self) -> int:
        """Of the units: bytes of text by the plan, about what a reader finds."""
        return sum(unit.text_bytes for unit in self.units)

    @property
    def num_rows(self) -> int | None:
        """Of the units; None if a file does not state it."""
        found = [num_rows_of(span) for unit in self.units for span in unit.spans]
        known = [num_rows for num_rows in found if num_rows is not None]
        return sum(known) if len(known) == len(found) else None

    @property
    def is_empty(self) -> bool:
        return not self.units and not self.absent.text_bytes

    @property
    def all_inputs(self) -> tuple[Input, ...]:
        return (*self.inputs, *self.absent.inputs)


def frame_of(config: Config, sample: Sample) -> Frame:
    """Raises InputError or ConfigError for anything that a run would certainly fail on, except an
    empty corpus."""
    with (
        scratch_folder() as folder,
        contextlib.closing(HubInputs(config, folder, lambda message: None)) as remote,
    ):
        files.make_folder(os.path.join(folder, "structure"))
        found = found_inputs(config, remote.inputs, remote.again)
        here, elsewhere = local_and_remote(found.inputs)
        units = _units(here, config, sample.among(here).cell_bytes)
        absent = _absent(elsewhere, config, remote)
    num_slices = num_slices_in((span for unit in units for span in unit.spans), config.slice_bytes)
    num_slices += absent.text_bytes // config.slice_bytes
    return Frame(tuple(here), units, absent, num_slices, found.notes)


def frame_of_plan(plan: Plan, config: Config, sample: Sample) -> Frame:
    """The frame of a run that has a plan: nothing is listed, hashed or fetched again."""
    here, elsewhere = local_and_remote(plan.inputs)
    planned = tuple(plan.slices)
    if elsewhere or config.limit_docs is not None or all(map(is_plain, here)):
        units = _present(planned, set(elsewhere))
    else:
        units = _units(here, config, sample.among(here).cell_bytes)
    return Frame(tuple(here), units, _absent_in(planned, elsewhere), len(planned), plan.notes)


def _units(inputs: Sequence[Input], config: Config, cell_bytes: int) -> tuple[Slice, ...]:
    """The units that can be read on their own: as small as possible, except plain files, which can
    be read from any byte.

    Cutting a plain file costs a read at every cut, which is not needed here. A limit counts the
    rows of all inputs together, so with one they are cut as in a run.
    """
    if config.limit_docs is not None:
        return tuple(unit for unit in make_plan({}, inputs, config).slices if unit.text_bytes)
    fine = dataclasses.replace(config, slice_bytes=cell_bytes)
    tables = make_plan({}, [source for source in inputs if not is_plain(source)], fine)
    plain = make_plan({}, [source for source in inputs if is_plain(source)], config)
    return tuple(unit for unit in (*tables.slices, *plain.slices) if unit.text_bytes)


def _present(slices: Iterable[Slice], elsewhere: AbstractSet[Input]) -> tuple[Slice, ...]:
    """The slices, without remote inputs."""
    kept = (
        Slice(s.index, tuple(span for span in s.spans if span.input not in elsewhere))
        for s in slices
    )
    return tuple(unit for unit in kept if unit.text_bytes)


def _absent_in(slices: Iterable[Slice], elsewhere: Sequence[Input]) -> Absent:
    wanted = set(elsewhere)
    spans = [span for s in slices for span in s.spans if span.input in wanted]
    num_rows = [num_rows_of(span) for span in spans]
    known = [found for found in num_rows if found is not None]
    return Absent(
        tuple(elsewhere),
        sum(span.text_bytes for span in spans),
        sum(known) if len(known) == len(num_rows) else None,
    )


def _absent(inputs: Sequence[Input], config: Config, remote: HubInputs) -> Absent:
    parquet = [source for source in inputs if source.kind == "parquet"]
    if len(parquet) < len(inputs):
        sizes = (
            source.num_bytes * (COMPRESSED_TEXT_RATIO if source.compression else 1)
            for source in inputs
        )
        return Absent(tuple(inputs), sum(sizes), None)
    step = max(1, -(-len(parquet) // MAX_FOOTERS))
    known = parquet[::step]
    reader_options = ReadOptions.of(config)
    spans = [
        span
        for source in known
        for span in reader_for(source.kind, reader_options).spans(remote.structure_of(source))
    ]
    scale = sum(s.num_bytes for s in inputs) / max(1, sum(s.num_bytes for s in known))
    text_bytes = round(scale * sum(span.text_bytes for span in spans))
    return Absent(tuple(inputs), text_bytes, round(scale * sum(s.num_rows or 0 for s in spans)))
