"""The estimate: what the text comes to, and what follows for a run: sizes, time and disk."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from typing import Any

from tokenmill import storage
from tokenmill.config import Config
from tokenmill.documents import EOTS_PER_DOCUMENT
from tokenmill.encodings import EncodingId
from tokenmill.encodings.loading import engine_of
from tokenmill.encodings.reference import ReferenceEngine
from tokenmill.errors import ConfigError, InputError
from tokenmill.estimate.findings import Findings, findings_of
from tokenmill.estimate.frame import Frame, frame_of
from tokenmill.estimate.ratio import CONFIDENCE
from tokenmill.estimate.sample import SLOW_SAMPLE, Sample
from tokenmill.formats import DTYPE_BYTES, NAMES
from tokenmill.runners.start import encoding_of, num_proc_of
from tokenmill.settings import resolved

# What a format writes for each document beside its tokens.
DOCUMENT_BYTES = {"megatron": 20, "datatrove": 8, "olmo": 12}
COMPRESSED_FORMATS = ("parquet",)
# The most that output and work folder hold together, as a multiple of the output.
PEAK_FACTOR, SHUFFLED_PEAK_FACTOR = 1.2, 2.2
# Of what a worker reads and encodes while it runs alone, how much each of several does, with parts
# and shards to be written and hashed besides. Fitted to six runs with 2 workers on 2 cores, which
# other work shared: estimates were 0.8 to 1.6 times what the run then took.
WORKER_EFFICIENCY = 0.7
START_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """What `prepare` would find and make, about. Plain values; None: not known."""

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
    confidence: float  # that the true number lies between these
    bytes_per_token: float
    method: str  # counted, sample, sample and token_count, or assumed
    sampled_bytes: int
    sampled_cells: int
    output_bytes: dict[str, int | None]  # by format; None: it cannot hold these tokens
    num_proc: int
    text_bytes_per_second: int | None  # of one worker that runs alone, as measured here
    seconds: float | None
    disk_bytes: int  # at most, while it runs
    shuffled_disk_bytes: int
    download_bytes: int
    free_bytes: int | None
    estimate_seconds: float
    notes: tuple[str, ...]

    def to_plain(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def estimate(asked: Config, sample: Sample | None = None) -> Estimate:
    """What a run with this configuration would come to. Nothing is written."""
    began = time.monotonic()
    if asked.limit_docs is not None:
        raise ConfigError("an estimate is of the whole corpus: --limit-docs does not apply to it")
    encoding = encoding_of(asked)
    config = resolved(asked, encoding)
    sample = sample or default_sample(encoding)
    frame = frame_of(config, sample.cell_bytes)
    found = findings_of(frame, config, encoding, sample)
    num_tokens = _num_tokens(found, config)
    if not num_tokens:
        raise InputError(
            f"nothing to encode: no document in {', '.join(config.sources)} has text",
            hint="are these the right files, and is --text-column the right column?",
        )
    reach = None if found.relative_reach is None else found.relative_reach * num_tokens
    sizes = {name: _output_bytes(name, asked, encoding, found) for name in NAMES}
    # Parts and unfinished shards are never compressed.
    held_bytes = max(sizes.get(config.format) or 0, num_tokens * DTYPE_BYTES[config.dtype])
    speed = found.seconds_per_byte
    return Estimate(
        num_inputs=len(frame.inputs) + len(frame.absent.inputs),
        input_bytes=sum(source.num_bytes for source in frame.inputs) + frame.absent.num_bytes,
        text_bytes=round(found.text_bytes),
        num_documents=max(1, round(found.num_documents)),
        tokenizer=encoding.name,
        format=config.format,
        eot=str(config.eot),
        dtype=config.dtype,
        num_tokens=num_tokens,
        num_tokens_low=None if reach is None else max(0, round(num_tokens - reach)),
        num_tokens_high=None if reach is None else round(num_tokens + reach),
        confidence=CONFIDENCE,
        bytes_per_token=found.text_bytes / num_tokens,
        method=found.method,
        sampled_bytes=found.sampled_bytes,
        sampled_cells=found.sampled_cells,
        output_bytes=sizes,
        num_proc=num_proc_of(config),
        text_bytes_per_second=round(1 / speed) if speed else None,
        seconds=_run_seconds(found.text_bytes * speed, frame, num_proc_of(config))
        if speed
        else None,
        disk_bytes=round(held_bytes * PEAK_FACTOR),
        shuffled_disk_bytes=round(held_bytes * SHUFFLED_PEAK_FACTOR),
        download_bytes=frame.absent.num_bytes,
        free_bytes=storage.free_bytes(config.out) if config.out else None,
        estimate_seconds=time.monotonic() - began,
        notes=(*frame.notes, *found.notes),
    )


def default_sample(encoding: EncodingId) -> Sample:
    """As much as is encoded in a second or two."""
    is_slow = isinstance(engine_of(encoding), ReferenceEngine)
    return SLOW_SAMPLE if is_slow else Sample()


def _num_tokens(found: Findings, config: Config) -> int:
    return round(found.num_tokens + EOTS_PER_DOCUMENT[str(config.eot)] * found.num_documents)


def _output_bytes(name: str, asked: Config, encoding: EncodingId, found: Findings) -> int | None:
    """The size of all files in a format, by its own defaults where nothing else was asked for."""
    try:
        config = resolved(dataclasses.replace(asked, format=name), encoding)
    except ConfigError:
        return None
    token_bytes: float = DTYPE_BYTES[config.dtype]
    if name in COMPRESSED_FORMATS:
        token_bytes = found.packed_bytes_per_token
    document_bytes = DOCUMENT_BYTES.get(name, 0)
    return round(_num_tokens(found, config) * token_bytes + found.num_documents * document_bytes)


def _run_seconds(worker_seconds: float, frame: Frame, num_proc: int) -> float:
    """How long a run takes that is so much work for one worker alone."""
    efficiency = WORKER_EFFICIENCY if num_proc > 1 else 1.0
    # No two workers share a unit, and a compressed file is one, however large.
    largest = max(unit.text_bytes for unit in frame.units) / max(1, frame.text_bytes)
    return START_SECONDS + worker_seconds * max(largest, 1 / (num_proc * efficiency))
