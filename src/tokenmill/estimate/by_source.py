"""Named sources: each is estimated with its own options, and then they are added up."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tokenmill.corpus.plan import Plan
from tokenmill.corpus.slices import SliceTable
from tokenmill.corpus.spans import Input
from tokenmill.estimate.sampling_frame import Absent, Frame
from tokenmill.estimate.text_estimate import TextEstimate


@dataclass(frozen=True, slots=True)
class SourceEstimate:
    """One copy of a source, and how many there are."""

    name: str
    frame: Frame
    found: TextEstimate
    repeat: int = 1


def first_copy(plan: Plan, name: str, repeat: int) -> Plan:
    """The plan of one copy of one source."""
    inputs = tuple(source for source in plan.inputs if source.source == name)
    found = [at for at in range(len(plan.slices)) if plan.slices.source_of(at) == name]
    slices = (plan.slices[at] for at in found[: len(found) // repeat])
    return Plan(plan.identity, inputs, SliceTable.of(inputs, slices), plan.notes)


def joined_frame(sources: Sequence[SourceEstimate]) -> Frame:
    absent = [one.frame.absent for one in sources]
    copies = [one.repeat for one in sources]
    rows = [
        None if a.num_rows is None else a.num_rows * n for a, n in zip(absent, copies, strict=True)
    ]
    return Frame(
        _once(source for one in sources for source in one.frame.inputs),
        tuple(unit for one in sources for unit in one.frame.units * one.repeat),
        Absent(
            _once(source for a in absent for source in a.inputs),
            sum(a.text_bytes * n for a, n in zip(absent, copies, strict=True)),
            None if None in rows else sum(found or 0 for found in rows),
        ),
        sum(one.frame.num_slices * one.repeat for one in sources),
        tuple(dict.fromkeys(note for one in sources for note in one.frame.notes)),
    )


def _once(inputs: Iterable[Input]) -> tuple[Input, ...]:
    """Each file once: two sources may share it."""
    return tuple({source.name: source for source in inputs}.values())


def joined_estimate(sources: Sequence[SourceEstimate]) -> TextEstimate:
    """The sum. The errors of sources are independent; those of copies of one source are equal."""
    scaled = [_scaled(one.found, one.repeat) for one in sources]
    methods = {found.method for found in scaled}
    num_tokens = sum(found.num_tokens for found in scaled)
    margins = [(found.relative_margin, found.num_tokens) for found in scaled]
    known = [margin * tokens for margin, tokens in margins if margin is not None]
    timed = [found for found in scaled if found.seconds_per_byte is not None]
    timed_bytes = sum(found.text_bytes for found in timed)
    seconds = sum(found.text_bytes * (found.seconds_per_byte or 0.0) for found in timed)
    return TextEstimate(
        methods.pop() if len(methods) == 1 else "sample",
        text_bytes=sum(found.text_bytes for found in scaled),
        num_documents=sum(found.num_documents for found in scaled),
        num_tokens=num_tokens,
        relative_margin=None
        if len(known) < len(margins)
        else math.hypot(*known) / max(1.0, num_tokens),
        sampled_bytes=sum(one.found.sampled_bytes for one in sources),
        sampled_cells=sum(one.found.sampled_cells for one in sources),
        seconds_per_byte=seconds / timed_bytes if timed_bytes else None,
        packed_bytes_per_token=sum(f.packed_bytes_per_token * f.num_tokens for f in scaled)
        / max(1.0, num_tokens),
        num_bad=sum(found.num_bad for found in scaled),
        notes=tuple(f"source {one.name}: {note}" for one in sources for note in one.found.notes),
    )


def _scaled(found: TextEstimate, repeat: int) -> TextEstimate:
    return dataclasses.replace(
        found,
        text_bytes=found.text_bytes * repeat,
        num_documents=found.num_documents * repeat,
        num_tokens=found.num_tokens * repeat,
        num_bad=found.num_bad * repeat,
    )
