"""The frame: what the corpus consists of, as far as that is known without reading its text.

Inputs that are here, or in an object store, are planned as a run would plan them, which checks
every footer and schema; only the slices are smaller. Parquet files on the Hub are known by their
footers: of many files, the footers of some, which stand for the others by their size.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

from tokenmill import storage
from tokenmill.config import Config
from tokenmill.corpus import Input, Slice
from tokenmill.errors import InputError
from tokenmill.fetch import RemoteInputs
from tokenmill.inputs import found_inputs
from tokenmill.objectstore import is_url
from tokenmill.plan import make_plan, read_options
from tokenmill.readers import reader_for

MAX_FOOTERS = 24  # to be fetched, at three requests each
COMPRESSED_TEXT_RATIO = 3  # text : compressed bytes, of files that are not here


@dataclass(frozen=True, slots=True)
class Absent:
    """The inputs that are elsewhere."""

    inputs: tuple[Input, ...] = ()
    text_bytes: int = 0
    num_rows: int | None = 0  # None: their files do not say

    @property
    def num_bytes(self) -> int:
        return sum(source.num_bytes for source in self.inputs)


@dataclass(frozen=True, slots=True)
class Frame:
    inputs: tuple[Input, ...]  # that are here
    units: tuple[Slice, ...]  # what they consist of
    absent: Absent
    notes: tuple[str, ...] = ()  # on how the inputs were found

    @property
    def text_bytes(self) -> int:
        """Of the units: bytes of text as the plan has them, more or less what a reader finds."""
        return sum(unit.text_bytes for unit in self.units)

    @property
    def num_rows(self) -> int | None:
        """Of the units; None where a file does not say."""
        found = [span.num_rows for unit in self.units for span in unit.spans]
        known = [num_rows for num_rows in found if num_rows is not None]
        return sum(known) if len(known) == len(found) else None


def frame_of(config: Config, cell_bytes: int) -> Frame:
    """Raises InputError or ConfigError for what a run is bound to fail on."""
    with tempfile.TemporaryDirectory() as folder:
        remote = RemoteInputs(config, folder, lambda message: None)
        storage.make_folder(os.path.join(folder, "structure"))
        found = found_inputs(config, remote.inputs, remote.again)
        here = [source for source in found.inputs if _is_here(source)]
        units = _units(here, config, cell_bytes)
        absent = _absent([s for s in found.inputs if not _is_here(s)], config, remote)
    if not units and not absent.text_bytes:
        raise InputError(
            f"no documents in {', '.join(config.sources)}", hint="are these the right files?"
        )
    return Frame(tuple(here), units, absent, found.notes)


def _is_here(source: Input) -> bool:
    """Whether it can be read now. An object can, by ranges."""
    return is_url(source.path) or storage.size(source.path) == source.num_bytes


def is_plain(source: Input) -> bool:
    """Can it be entered at any byte?"""
    return source.kind in ("jsonl", "text") and not source.compression


def _units(inputs: Sequence[Input], config: Config, cell_bytes: int) -> tuple[Slice, ...]:
    """What can be read on its own: as small as it gets, but for what can be entered anywhere.

    Cutting a plain file costs a read at every cut, for which there is no need here.
    """
    fine = dataclasses.replace(config, slice_bytes=cell_bytes)
    tables = make_plan({}, [source for source in inputs if not is_plain(source)], fine)
    plain = make_plan({}, [source for source in inputs if is_plain(source)], config)
    return tuple(unit for unit in (*tables.slices, *plain.slices) if unit.text_bytes)


def _absent(inputs: Sequence[Input], config: Config, remote: RemoteInputs) -> Absent:
    parquet = [source for source in inputs if source.kind == "parquet"]
    if len(parquet) < len(inputs):
        sizes = (
            source.num_bytes * (COMPRESSED_TEXT_RATIO if source.compression else 1)
            for source in inputs
        )
        return Absent(tuple(inputs), sum(sizes), None)
    step = max(1, -(-len(parquet) // MAX_FOOTERS))
    known = parquet[::step]
    reader_options = read_options(config)
    spans = [
        span
        for source in known
        for span in reader_for(source.kind, reader_options).spans(remote.structure_of(source))
    ]
    scale = sum(s.num_bytes for s in inputs) / max(1, sum(s.num_bytes for s in known))
    text_bytes = round(scale * sum(span.text_bytes for span in spans))
    return Absent(tuple(inputs), text_bytes, round(scale * sum(s.num_rows or 0 for s in spans)))
