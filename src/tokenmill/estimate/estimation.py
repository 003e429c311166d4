"""The estimate: tokens and documents, and the resulting sizes, time and disk space of a run."""

from __future__ import annotations

import dataclasses
import math
import time
from dataclasses import dataclass
from typing import Any

from tokenmill.config import Config, of_source
from tokenmill.corpus.plan import Plan
from tokenmill.encode.documents import specials_per_document
from tokenmill.encodings import EncodingId
from tokenmill.encodings.loading import engine_of
from tokenmill.encodings.lookup import encoding_of
from tokenmill.encodings.reference import ReferenceEngine
from tokenmill.errors import ConfigError, InputError
from tokenmill.estimate.already_here import held_bytes, needed_for_downloads
from tokenmill.estimate.bounds import most_of
from tokenmill.estimate.by_source import (
    SourceEstimate,
    first_copy,
    joined_estimate,
    joined_frame,
)
from tokenmill.estimate.footprint import Amount, Footprint, expected_footprint, max_footprint
from tokenmill.estimate.ratio import CONFIDENCE
from tokenmill.estimate.sample import SLOW_SAMPLE, Sample
from tokenmill.estimate.sampling_frame import Frame, frame_of, frame_of_plan
from tokenmill.estimate.text_estimate import TextEstimate, text_estimate_of
from tokenmill.formats import NAMES
from tokenmill.runners.start import num_proc_of
from tokenmill.settings import resolved
from tokenmill.storage import disk_space

# The speed of each of several workers, which also write and hash parts and shards, relative to a
# single worker that only reads and encodes. Fitted to six runs with 2 workers on 2 cores shared
# with other work: estimates were 0.8 to 1.6 times the duration of the run.
WORKER_EFFICIENCY = 0.7
START_SECONDS = 1.0
DEDUP_NOTE = (
    "a sample cannot find duplicates: with --dedup, documents, tokens and sizes will be at most "
    "these"
)


@dataclass(frozen=True, slots=True)
class Estimate:
    """Approximately what `prepare` would read and write. Plain values; None: unknown."""

    num_inputs: int
    input_bytes: int
    text_bytes: int
    num_documents: int
    tokenizer: str
    format: str
    eot: str
    dtype: str
    num_tokens: int  # with EOT
    num_tokens_low: int | None
    num_tokens_high: int | None
    confidence: float  # that the true number is between these
    bytes_per_token: float
    method: str  # counted, sample, sample and token_count, or assumed
    sampled_bytes: int
    sampled_cells: int
    output_bytes: dict[str, int | None]  # by format; None: it cannot hold these tokens
    max_output_bytes: int | None  # in `format`: what the size of the inputs allows
    num_slices: int
    num_proc: int  # workers that would have work
    text_bytes_per_second: int | None  # of a single worker, as measured here
    seconds: float | None
    disk_bytes: int  # the most that output and work folder will hold together, about
    max_disk_bytes: int | None  # an upper bound for any text
    shuffled_disk_bytes: int
    download_bytes: int
    held_bytes: int  # what an unfinished run already holds
    needed_bytes: int  # space still needed on the output's disk, downloads included
    free_bytes: int | None
    estimate_seconds: float
    notes: tuple[str, ...]

    @property
    def fits(self) -> bool:
        return self.free_bytes is None or self.needed_bytes <= self.free_bytes

    def to_plain(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def estimate(asked: Config, sample: Sample | None = None, plan: Plan | None = None) -> Estimate:
    """The estimate of a run with this configuration. Writes nothing. With the run's `plan`, nothing
    is listed and planned again."""
    began = time.monotonic()
    encoding = encoding_of(asked)
    config = resolved(asked, encoding)
    sample = sample or default_sample(encoding)
    frame, found = _surveyed(config, encoding, sample, plan)
    found = _limited(found, config)
    num_tokens = _num_tokens(found, config)
    if not num_tokens:
        is_chosen = config.where is not None or config.sample is not None
        raise InputError(
            f"nothing to encode: no row of the sample from {', '.join(config.sources)} passes "
            "--where and --sample and has text"
            if is_chosen
            else f"nothing to encode: no document in {', '.join(config.sources)} has text",
            hint="let more rows in: another --where, or a larger --sample"
            if is_chosen
            else "are these the right files, and is --text-column the right column?",
        )
    margin = None if found.relative_margin is None else found.relative_margin * num_tokens
    num_proc = num_proc_of(config, frame.num_slices)
    most = _max_footprint(frame, config, encoding, found)
    footprint, held = _footprint(config, found, frame), held_bytes(config.out)
    downloads = needed_for_downloads(frame.absent.inputs, config)
    speed = found.seconds_per_byte
    return Estimate(
        num_inputs=len(frame.all_inputs),
        input_bytes=sum(source.num_bytes for source in frame.all_inputs),
        text_bytes=round(found.text_bytes),
        num_documents=max(1, round(found.num_documents)),
        tokenizer=encoding.name,
        format=config.format,
        eot=str(config.eot),
        dtype=config.dtype,
        num_tokens=num_tokens,
        num_tokens_low=None if margin is None else max(0, round(num_tokens - margin)),
        num_tokens_high=None if margin is None else round(num_tokens + margin),
        confidence=CONFIDENCE,
        bytes_per_token=found.text_bytes / num_tokens,
        method=found.method,
        sampled_bytes=found.sampled_bytes,
        sampled_cells=found.sampled_cells,
        output_bytes={name: _output_bytes(name, asked, encoding, found, frame) for name in NAMES}
        | {config.format: footprint.output_bytes},
        max_output_bytes=most.output_bytes if most else None,
        num_slices=frame.num_slices,
        num_proc=num_proc,
        text_bytes_per_second=round(1 / speed) if speed else None,
        seconds=_run_seconds(found.text_bytes * speed, frame, num_proc) if speed else None,
        disk_bytes=footprint.disk_bytes,
        max_disk_bytes=most.disk_bytes if most else None,
        shuffled_disk_bytes=_footprint(_shuffled(config), found, frame).disk_bytes,
        download_bytes=frame.absent.num_bytes,
        held_bytes=held,
        needed_bytes=max(0, footprint.disk_bytes + downloads - held),
        free_bytes=disk_space.free_bytes(config.out) if config.out else None,
        estimate_seconds=time.monotonic() - began,
        notes=(*frame.notes, *found.notes, *([] if config.dedup is None else [DEDUP_NOTE])),
    )


def _surveyed(
    config: Config, encoding: EncodingId, sample: Sample, plan: Plan | None
) -> tuple[Frame, TextEstimate]:
    """The corpus and its estimate before limits; named sources are estimated one by one."""
    found: list[SourceEstimate] = []
    for name, own in config.by_source().items():
        # A limit counts the rows of all copies, so a plan with a limit is used as it is.
        is_whole = plan is not None and config.limit_docs is not None
        repeat = 1 if is_whole else config.repeat_of(name)
        planned = plan if plan is None or not name else first_copy(plan, name, repeat)
        with of_source(name):
            frame = frame_of_plan(planned, own, sample) if planned else frame_of(own, sample)
            if not frame.is_empty:
                text = _sampled(text_estimate_of(frame, own, encoding, sample), own)
                found.append(SourceEstimate(name, frame, text, repeat))
    if not found:
        raise InputError(
            f"no documents in {', '.join(config.sources)}", hint="are these the right files?"
        )
    if not config.named:
        return found[0].frame, found[0].found
    return joined_frame(found), joined_estimate(found)


def default_sample(encoding: EncodingId) -> Sample:
    """A sample that is encoded in a second or two."""
    is_slow = isinstance(engine_of(encoding), ReferenceEngine)
    return SLOW_SAMPLE if is_slow else Sample()


def _num_tokens(found: TextEstimate, config: Config) -> int:
    num_specials = specials_per_document(config.eot, config.bos) * found.num_documents
    return round(found.num_tokens + num_specials)


def _sampled(found: TextEstimate, config: Config) -> TextEstimate:
    """The share of --sample, which is known and need not be measured."""
    if config.sample is None:
        return found
    # Two standard errors of the number of rows drawn, and one more for their lengths.
    num_drawn = max(1.0, found.num_documents * config.sample)
    margin = 3 * math.sqrt((1 - config.sample) / num_drawn)
    return dataclasses.replace(
        found,
        method="sample" if found.method == "counted" else found.method,
        text_bytes=found.text_bytes * config.sample,
        num_documents=found.num_documents * config.sample,
        num_tokens=found.num_tokens * config.sample,
        relative_margin=None
        if found.relative_margin is None
        else math.hypot(found.relative_margin, margin),
    )


def _limited(found: TextEstimate, config: Config) -> TextEstimate:
    """At most --limit-docs documents (remote files are counted whole) and --limit-tokens tokens, to
    the end of the last document."""
    share = 1.0
    if config.limit_docs is not None:
        share = min(share, config.limit_docs / max(1.0, found.num_documents))
    is_reached = False
    if config.limit_tokens is not None:
        own = config.limit_tokens / max(1, _num_tokens(found, config))
        is_reached, share = own < share, min(share, own)
    return dataclasses.replace(
        found,
        text_bytes=found.text_bytes * share,
        num_documents=found.num_documents * share,
        num_tokens=found.num_tokens * share,
        method="sample" if is_reached and found.method == "counted" else found.method,
        relative_margin=0.0 if is_reached else found.relative_margin,
    )


def _output_bytes(
    name: str, asked: Config, encoding: EncodingId, found: TextEstimate, frame: Frame
) -> int | None:
    """The size of all files in a format, with its defaults for options that are not set."""
    try:
        config = resolved(dataclasses.replace(asked, format=name), encoding)
    except ConfigError:
        return None
    return _footprint(config, found, frame).output_bytes


def _footprint(config: Config, found: TextEstimate, frame: Frame) -> Footprint:
    """The footprint; for the disk, at the upper end of the interval, to be safe."""
    amount = _amount(frame, _num_tokens(found, config), found.num_documents)
    num_proc = num_proc_of(config, frame.num_slices)
    output = expected_footprint(config, amount, num_proc, found.packed_bytes_per_token)
    high = amount.num_tokens * (1 + (found.relative_margin or 0.0))
    amount = dataclasses.replace(amount, num_tokens=high)
    disk = expected_footprint(config, amount, num_proc, found.packed_bytes_per_token)
    return Footprint(output.output_bytes, disk.disk_bytes)


def _max_footprint(
    frame: Frame, config: Config, encoding: EncodingId, found: TextEstimate
) -> Footprint | None:
    if found.method == "counted":
        num_tokens = _num_tokens(found, config)
        amount = _amount(frame, num_tokens, found.num_documents, found.num_bad)
        return max_footprint(config, amount)
    most = None if config.named else most_of(frame.all_inputs, config, encoding)
    if most is None:
        return None
    amount = _amount(frame, most.num_tokens, most.num_documents, most.num_bad)
    return max_footprint(config, amount)


def _amount(frame: Frame, num_tokens: float, num_documents: float, num_bad: float = 0) -> Amount:
    inputs = frame.all_inputs
    return Amount(
        num_tokens,
        num_documents,
        num_slices=frame.num_slices,
        num_inputs=len(inputs),
        name_bytes=sum(len(source.name) for source in inputs),
        planned_bytes=frame.text_bytes + frame.absent.text_bytes,
        num_bad=num_bad,
    )


def _shuffled(config: Config) -> Config:
    return dataclasses.replace(config, shuffle=True)


def _run_seconds(worker_seconds: float, frame: Frame, num_proc: int) -> float:
    """The duration of a run that takes a single worker `worker_seconds`."""
    efficiency = WORKER_EFFICIENCY if num_proc > 1 else 1.0
    # No two workers share a unit, and a compressed file is one unit of any size.
    largest = max(unit.text_bytes for unit in frame.units) / max(1, frame.text_bytes)
    return START_SECONDS + worker_seconds * max(largest, 1 / (num_proc * efficiency))
