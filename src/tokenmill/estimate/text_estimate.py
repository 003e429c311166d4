"""The totals of a corpus, for any format: from the survey's cells, or assumed."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from tokenmill.config import Config
from tokenmill.corpus.readers import ReadOptions
from tokenmill.encode.buckets import TEXT_BYTES_PER_TOKEN
from tokenmill.encode.documents import specials_per_document
from tokenmill.encodings import Encoding, EncodingId
from tokenmill.estimate.cells import Reading
from tokenmill.estimate.publisher_count import COLUMN, PublisherCount, publisher_count
from tokenmill.estimate.ratio import Design, Total, ratio_total
from tokenmill.estimate.sample import Drawing, Sample, drawing_of
from tokenmill.estimate.sampling_frame import Frame
from tokenmill.estimate.survey import Measured, Survey
from tokenmill.wording.plural import counted, noun_for

_WHERE_NOTE = (
    "only reading shows which rows pass --where: this counts every row group that its statistics "
    "do not rule out"
)


@dataclass(frozen=True, slots=True)
class TextEstimate:
    method: str
    text_bytes: float
    num_documents: float  # that are written
    num_tokens: float  # without EOT
    relative_margin: float | None  # half the interval around all tokens, EOT included
    sampled_bytes: int = 0
    sampled_cells: int = 0
    seconds_per_byte: float | None = None  # of text, of one worker
    packed_bytes_per_token: float = 1.0  # where a format compresses
    num_bad: int = 0  # of the rows read
    notes: tuple[str, ...] = ()


def text_estimate_of(
    frame: Frame, config: Config, encoding: EncodingId, sample: Sample
) -> TextEstimate:
    if not frame.units:
        return _assumed(frame, config)
    sample = sample.among(frame.inputs)
    # The share of --sample is known, and is applied to the result.
    read = dataclasses.replace(ReadOptions.of(config), sample=None)
    options = dataclasses.replace(read, batch_bytes=sample.cell_bytes)
    reading = Reading(options, config.empty == "keep", sample.cell_bytes)
    survey = Survey(Encoding(encoding), reading)
    drawing = drawing_of(frame.units, sample)
    cells = survey.measured(frame.units, drawing)
    if drawing is None:
        found = _counted(cells)
    else:
        found = _extrapolated(frame, cells, reading, specials_per_document(config.eot, config.bos))
        if not frame.absent.inputs and config.limit_docs is None and config.where is None:
            found = _compared_with_publisher(found, frame, drawing, cells, encoding)
    found = dataclasses.replace(
        found,
        sampled_bytes=sum(cell.text_bytes for cell in cells),
        sampled_cells=len(cells),
        seconds_per_byte=reading.seconds_per_byte,
        packed_bytes_per_token=survey.packed_bytes_per_token,
        num_bad=reading.num_bad,
        notes=found.notes + _notes_on(reading, config),
    )
    return _with_absent(found, frame, config)


def _assumed(frame: Frame, config: Config) -> TextEstimate:
    text_bytes, num_rows = frame.absent.text_bytes, frame.absent.num_rows
    return TextEstimate(
        "assumed",
        text_bytes=text_bytes,
        num_documents=num_rows or 0,
        num_tokens=text_bytes / TEXT_BYTES_PER_TOKEN,
        relative_margin=None,
        notes=(
            f"no text was read: the files are on the Hub. {TEXT_BYTES_PER_TOKEN} bytes per token "
            "are assumed (English: 4 to 5, Chinese: 1.5 to 3); for an interval and a time, "
            "download one of them and estimate again: files in the cache are sampled",
            *((_WHERE_NOTE,) if config.where is not None else ()),
        ),
    )


def _counted(cells: list[Measured]) -> TextEstimate:
    return TextEstimate(
        "counted",
        text_bytes=sum(cell.text_bytes for cell in cells),
        num_documents=sum(cell.num_documents for cell in cells),
        num_tokens=sum(cell.num_tokens for cell in cells),
        relative_margin=0.0,
    )


def _extrapolated(
    frame: Frame, cells: list[Measured], reading: Reading, num_eots: int
) -> TextEstimate:
    design = _design(cells)
    weights = np.array([cell.cell.weight for cell in cells])
    measures = weights * [cell.cell.frame_bytes for cell in cells]

    def total(amounts: list[int]) -> Total:
        return ratio_total(weights * amounts, measures, design, frame.text_bytes)

    tokens = total([cell.num_tokens for cell in cells])
    if frame.num_rows is not None:
        num_documents = frame.num_rows * reading.num_kept / max(1, reading.num_rows)
        varying = tokens
    else:
        num_documents = total([cell.num_documents for cell in cells]).value
        varying = total([cell.num_tokens + num_eots * cell.num_documents for cell in cells])
    error = math.hypot(varying.error, _head_error(cells, design, varying))
    low, high = dataclasses.replace(varying, error=error).interval
    return TextEstimate(
        "sample",
        text_bytes=total([cell.text_bytes for cell in cells]).value,
        num_documents=num_documents,
        num_tokens=tokens.value,
        relative_margin=(high - low) / 2 / max(1.0, tokens.value + num_eots * num_documents),
    )


def _design(cells: list[Measured]) -> Design:
    return Design.of([cell.draw.weight for cell in cells], [cell.draw.group for cell in cells])


def _head_error(cells: list[Measured], design: Design, total: Total) -> float:
    """What the unknown size of compressed files adds to the total's standard error."""
    of_units: dict[int, float] = defaultdict(float)
    weighted = design.weights * [cell.cell.weight * cell.num_tokens for cell in cells]
    for cell, tokens in zip(cells, weighted, strict=True):
        of_units[cell.unit] += float(tokens) * cell.cell.frame_error
    return math.hypot(*of_units.values()) * total.value / max(1.0, float(weighted.sum()))


def _compared_with_publisher(
    found: TextEstimate,
    frame: Frame,
    drawing: Drawing,
    cells: list[Measured],
    encoding: EncodingId,
) -> TextEstimate:
    """The estimate by the publisher's token counts, if they exist and are more precise."""
    count = publisher_count(frame.inputs, frame.units, drawing)
    if count is None:
        return found
    is_theirs = encoding.name in ("gpt2", "r50k_base")
    said = f"the column {COLUMN} sums to {count.total:,}" + (
        "" if is_theirs else f", which counts the tokens of another tokenizer than {encoding.name}"
    )
    tokens, ratio = _by_publisher(count, cells)
    low, high = tokens.interval
    margin = (high - low) / 2 / max(1.0, tokens.value)
    if found.relative_margin is None or margin >= found.relative_margin:
        return dataclasses.replace(
            found, notes=(*found.notes, f"{said}; not used: bytes of text predict better")
        )
    note = (
        f"{said}; in the sample, {encoding.name} makes {ratio:.4f} tokens for each of them, and "
        "this ratio is the estimate"
    )
    return dataclasses.replace(
        found,
        method="sample and token_count",
        num_tokens=tokens.value,
        relative_margin=margin,
        notes=(*found.notes, note),
    )


def _by_publisher(count: PublisherCount, cells: list[Measured]) -> tuple[Total, float]:
    weights = np.array([cell.cell.weight for cell in cells])
    theirs = [int(count.rows[cell.unit][cell.cell.rows].sum()) for cell in cells]
    tokens = ratio_total(
        weights * [cell.num_tokens for cell in cells],
        weights * theirs,
        _design(cells),
        count.total,
    )
    return tokens, tokens.value / max(1, count.total)


def _with_absent(found: TextEstimate, frame: Frame, config: Config) -> TextEstimate:
    """Add the remote files, assuming that they are like the local ones."""
    absent = frame.absent
    if not absent.inputs:
        return found
    scale = 1 + absent.text_bytes / max(1, frame.text_bytes)
    num_documents = found.num_documents * scale
    if absent.num_rows is not None and config.where is None:
        num_documents = found.num_documents + absent.num_rows
    total = len(frame.inputs) + len(absent.inputs)
    verb = noun_for(len(absent.inputs), "is", "are")
    note = (
        f"{len(absent.inputs):,} of {total:,} files {verb} on the Hub: only the size is known, and "
        "the text is assumed to be like that of the local files; so there is no interval"
    )
    return dataclasses.replace(
        found,
        method="sample",
        text_bytes=found.text_bytes * scale,
        num_documents=num_documents,
        num_tokens=found.num_tokens * scale,
        relative_margin=None,
        notes=(*found.notes, note),
    )


def _notes_on(reading: Reading, config: Config) -> tuple[str, ...]:
    notes = []
    if reading.num_heads:
        notes.append(
            f"{counted(reading.num_heads, 'compressed file')} or large row "
            f"{noun_for(reading.num_heads, 'group')} read from the start only: "
            "the rest is assumed to be similar"
        )
    if reading.num_bad:
        share = reading.num_bad / max(1, reading.num_rows)
        limit = (
            f"; prepare stops beyond --max-bad-fraction {config.max_bad_fraction}"
            if share > config.max_bad_fraction
            else ""
        )
        notes.append(f"{share:.2%} of the sampled rows are bad and would be left out{limit}")
    return tuple(notes)
