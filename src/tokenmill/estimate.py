"""Estimates a run in seconds, from a sample: its tokens, its size and its duration.

The plan says where all the text is without reading it. Its text is divided into 64 equal stretches,
and a place is drawn in each. From there 2 MB of text go through the mill's own code for documents
and are encoded. Tokens per planned byte, times the planned bytes, are the estimate; two standard
errors are its spread. A corpus of up to 64 MB is counted. Text that is not on this machine is
assumed to be like the rest.

Neighbouring draws are compared, not each with their mean: a corpus is often ordered (by language,
by date), and its order should not widen the spread.

Of a large compressed file only the start can be read, so its rest is assumed to be like it, which
no sample can check. The estimate says so.
"""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import itertools
import math
import os
import random
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.arrays import offsets_of
from tokenmill.config import Config, of_source
from tokenmill.corpus.hub_inputs import HubInputs
from tokenmill.corpus.input_spans import Cut, cut, cut_here
from tokenmill.corpus.inputs import found_inputs
from tokenmill.corpus.opening import opened, unreadable_input
from tokenmill.corpus.plan import Plan
from tokenmill.corpus.planning import make_plan
from tokenmill.corpus.readers import COMPRESSED_TEXT_RATIO, ReadOptions, reader_for
from tokenmill.corpus.readers.bytestream import native_file
from tokenmill.corpus.readers.decompression import text_stream
from tokenmill.corpus.readers.json_array import is_array
from tokenmill.corpus.rows import documents
from tokenmill.corpus.spans import Input, Span
from tokenmill.dataset.workspace import absent_inputs, needed_bytes
from tokenmill.encode.buckets import TEXT_BYTES_PER_TOKEN
from tokenmill.encode.documents import data_of, specials_per_document
from tokenmill.encode.job import Job
from tokenmill.encode.mill import SpanDocuments, documents_in
from tokenmill.encode.seen_texts import SeenTexts
from tokenmill.encodings import Encoding, EncodingId
from tokenmill.encodings.loading import engine_of
from tokenmill.encodings.lookup import encoding_of
from tokenmill.encodings.reference import ReferenceEngine
from tokenmill.errors import InputError, NetworkError
from tokenmill.formats import DTYPE_BYTES
from tokenmill.runners.start import num_proc_of
from tokenmill.settings import resolved
from tokenmill.storage import disk, disk_space
from tokenmill.storage.range_reader import ByteFile
from tokenmill.storage.scratch import scratch_folder
from tokenmill.wording.plural import counted

READ_BYTES = 32 << 20  # of text, at most, of the piece of a file in which a place was drawn
ENCODE_BYTES = 4 << 20  # a call of the engine costs a millisecond, so small texts share one
MAX_FILES = 64  # opened for a draw: opening one takes as long as encoding 20 kB
MAX_FOOTERS = 24  # fetched from the Hub; they stand for those of the other files
# The speed of each of several workers, which also write and hash, relative to one that reads and
# encodes alone: fitted to runs with 2 workers.
WORKER_EFFICIENCY = 0.7
START_SECONDS = 1.0
_NO_TEXTS = pa.nulls(0, pa.large_string())


@dataclass(frozen=True, slots=True)
class Sample:
    """How much is encoded: 128 MB take a second."""

    num_draws: int = 64
    draw_bytes: int = 2 << 20
    counted_bytes: int = 64 << 20  # a corpus with no more text is counted
    seed: int = 0


SLOW_SAMPLE = Sample(draw_bytes=256 << 10, counted_bytes=16 << 20)  # engines of 2 to 12 MB/s


@dataclass(frozen=True, slots=True)
class Estimate:
    """About what `prepare` would read and write. Plain values; None: unknown."""

    num_inputs: int
    input_bytes: int
    text_bytes: int
    num_documents: int | None
    tokenizer: str
    format: str
    eot: str
    dtype: str
    num_tokens: int  # with EOT
    num_tokens_low: int | None  # two standard errors below; the same if they were counted
    num_tokens_high: int | None
    bytes_per_token: float
    method: str  # counted, sample, or assumed
    sampled_bytes: int
    output_bytes: int
    needed_bytes: int  # space still needed on the output's disk while it runs, about
    free_bytes: int | None
    download_bytes: int
    num_proc: int  # workers that would have work
    seconds: float | None
    notes: tuple[str, ...]

    @property
    def fits(self) -> bool:
        return self.free_bytes is None or self.needed_bytes <= self.free_bytes

    def to_plain(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def estimate(asked: Config, plan: Plan | None = None, sample: Sample | None = None) -> Estimate:
    """The estimate of a run with this configuration. Writes nothing. With the run's `plan`, nothing
    is listed and planned again."""
    encoding = encoding_of(asked)
    config = resolved(asked, encoding)
    if sample is None:
        sample = SLOW_SAMPLE if isinstance(engine_of(encoding), ReferenceEngine) else Sample()
    plan = plan or _local_plan(config)
    absent = absent_inputs(plan.inputs)
    names = {source.name for source in absent}
    spans = [span for slice_ in plan.slices for span in slice_.spans]
    with scratch_folder() as folder:
        survey = _Survey(config, encoding, plan, folder)
        here = [span for span in spans if span.input.name not in names]
        found = _with_absent(survey.total(here, sample), config, here, spans)
    found, is_limited = _limited(found, config)
    num_tokens = round(found.num_tokens)
    if not num_tokens:
        raise _nothing(config, spans, survey.first_bad)
    reach = None if found.spread is None else (0.0 if is_limited else found.spread) * num_tokens
    num_proc = num_proc_of(config, max(len(plan.slices), plan.text_bytes // config.slice_bytes))
    worker_seconds = survey.seconds_per_byte * found.text_bytes
    shared = num_proc * (WORKER_EFFICIENCY if num_proc > 1 else 1.0)
    return Estimate(
        num_inputs=len(plan.inputs),
        input_bytes=sum(source.num_bytes for source in plan.inputs),
        text_bytes=round(found.text_bytes),
        num_documents=round(found.num_documents) or None,
        tokenizer=encoding.name,
        format=config.format,
        eot=str(config.eot),
        dtype=config.dtype,
        num_tokens=num_tokens,
        num_tokens_low=None if reach is None else max(0, round(num_tokens - reach)),
        num_tokens_high=None if reach is None else round(num_tokens + reach),
        bytes_per_token=found.text_bytes / num_tokens,
        method="sample" if is_limited and found.method == "counted" else found.method,
        sampled_bytes=survey.num_encoded,
        output_bytes=num_tokens * DTYPE_BYTES[config.dtype],
        needed_bytes=needed_bytes(config, absent, num_tokens),
        free_bytes=disk_space.free_bytes(config.out) if config.out else None,
        download_bytes=sum(source.num_bytes for source in absent),
        num_proc=num_proc,
        seconds=START_SECONDS + worker_seconds / shared if here else None,
        notes=(*plan.notes, *_notes(config, survey, found, len(absent), len(plan.inputs))),
    )


@dataclass(frozen=True, slots=True)
class _Total:
    num_tokens: float  # with EOT
    num_documents: float
    text_bytes: float
    spread: float | None = 0.0  # two standard errors of the tokens, relative to them
    method: str = "counted"

    def times(self, factor: float) -> _Total:
        return dataclasses.replace(
            self,
            num_tokens=self.num_tokens * factor,
            num_documents=self.num_documents * factor,
            text_bytes=self.text_bytes * factor,
        )


class _Survey:
    """Reads documents as the mill does, encodes them, and keeps the time."""

    def __init__(self, config: Config, encoding: EncodingId, plan: Plan, folder: str) -> None:
        self._folder = folder
        self._job = Job.of(config, encoding, plan, "")
        self._num_specials = specials_per_document(config.eot, config.bos)
        self._encoding = Encoding(encoding)
        self._spent = {"read": (0.0, 0), "encode": (0.0, 0)}  # seconds, bytes of text
        self.num_rows = self.num_bad = self.num_heads = 0
        self.first_bad = ""  # where it is, and why

    @property
    def num_encoded(self) -> int:
        return self._spent["encode"][1]

    @property
    def seconds_per_byte(self) -> float:
        """The time for a byte of text, of one worker that runs alone."""
        return sum(seconds / max(1, size) for seconds, size in self._spent.values())

    def total(self, spans: Sequence[Span], sample: Sample) -> _Total:
        text_bytes = sum(span.text_bytes for span in spans)
        self._encoding.encode_array(_NO_TEXTS)  # loads the engine
        if text_bytes <= sample.counted_bytes:
            return self._count(spans)
        found = np.array(list(self._rates(spans, text_bytes, sample)))
        weights, rates = found[:, 0], found[:, 1:]
        num_tokens, num_documents, size = (weights @ rates).tolist()
        left = max(0.0, 1 - self.num_encoded / max(1.0, size))
        variance = float(np.square(np.diff(rates[:, 0])).sum()) / max(1, 2 * (len(rates) - 1))
        error = math.sqrt(variance * left * float(weights @ weights))
        spread = 2 * error / max(1.0, num_tokens)
        return _Total(num_tokens, num_documents, size, spread, "sample")

    def _count(self, spans: Iterable[Span]) -> _Total:
        """Everything; with --dedup, without copies."""
        seen = SeenTexts() if self._job.dedup else None
        num_tokens = num_documents = text_bytes = held_bytes = 0
        held: list[pa.Array] = []
        batches = itertools.chain.from_iterable(map(self._documents, spans))
        for found in itertools.chain(batches, [None]):
            if found is not None:
                held.append((found if seen is None else found.without_copies(seen)).texts)
                held_bytes += len(data_of(held[-1]))
            if held and (found is None or held_bytes >= ENCODE_BYTES):
                texts = pa.concat_arrays(held)
                tokens, num_failed = self._encoded(texts)
                num_tokens += tokens
                num_documents += len(texts) - num_failed
                text_bytes += held_bytes
                held, held_bytes = [], 0
        return _Total(num_tokens + self._num_specials * num_documents, num_documents, text_bytes)

    def _rates(
        self, spans: Sequence[Span], text_bytes: int, sample: Sample
    ) -> Iterator[tuple[float, float, float, float]]:
        """Of each draw, in order: the planned bytes that it stands for; tokens, documents and bytes
        of text for each of them."""
        rng = random.Random(sample.seed)
        for draw in _draws(spans, text_bytes / sample.num_draws, rng):
            texts, planned = self._texts(draw.spans, draw.count * sample.draw_bytes, rng)
            size, documents = len(data_of(texts)) / planned, len(texts) / planned
            for window in _windows(texts, draw.count, sample.draw_bytes, rng):
                tokens, _ = self._encoded(window)
                per_byte = tokens / max(1, len(data_of(window)))
                rate = per_byte * size + self._num_specials * documents
                yield draw.planned_bytes / draw.count, rate, documents, size

    def _texts(
        self, spans: Sequence[Span], num_wanted: int, rng: random.Random
    ) -> tuple[pa.LargeStringArray, float]:
        """The texts of the first spans, and how many planned bytes they are; of a span that is too
        large a part, if something says how much of the span that is."""
        parts: list[pa.LargeStringArray] = []
        planned = 0.0
        for whole in spans[:MAX_FILES]:
            if planned >= num_wanted:
                break
            size, num_rows, share = 0, 0, 1.0
            span = self._part(whole, num_wanted, rng)
            for found in self._documents(span):
                parts.append(found.texts)
                size += len(data_of(found.texts))
                num_rows += found.counts.num_rows
                if size >= READ_BYTES and span.num_rows:
                    share = num_rows / min(span.num_rows, span.max_rows or span.num_rows)
                    break
            planned += share * span.text_bytes
        # A file that is one text is mapped, and not copied.
        texts = parts[0] if len(parts) == 1 else pa.concat_arrays([*parts, _NO_TEXTS])
        return texts, max(1.0, planned)

    def _documents(self, span: Span) -> Iterator[SpanDocuments]:
        began = time.perf_counter()
        options = self._job.read_of(span.input)
        reader = reader_for(span.input.kind, options)
        with of_source(span.input.source):
            for rows in documents(reader, span, options):
                found = documents_in(self._job, span, reader, rows, {})
                self._note("read", began, len(data_of(found.texts)))
                self.num_rows += found.counts.num_rows
                bad = found.rows.rejected
                self.num_bad += len(bad)
                if bad and not self.first_bad:
                    row = min(bad)
                    place = found.reader.place(found.span, row)
                    self.first_bad = f"{found.span.input.name}, {place}: {bad[row]}"
                yield found
                began = time.perf_counter()

    def _encoded(self, texts: pa.LargeStringArray) -> tuple[int, int]:
        """How many tokens the texts are, and how many texts cannot be encoded."""
        began = time.perf_counter()
        tokens = self._encoding.encode_array(texts)
        self._note("encode", began, len(data_of(texts)))
        return len(tokens.ids), len(tokens.failed)

    def _note(self, doing: str, began: float, num_bytes: int) -> None:
        seconds, before = self._spent[doing]
        self._spent[doing] = (seconds + time.perf_counter() - began, before + num_bytes)

    def _part(self, span: Span, num_wanted: int, rng: random.Random) -> Span:
        """A part of a large span that can be read on its own, if there is one."""
        source = span.input
        is_large = span.text_bytes > (READ_BYTES if source.compression else 4 * num_wanted)
        mark = self._mark_of(source)
        if (
            not is_large
            or span.max_rows is not None
            or (source.kind == "jsonl" and is_array(source))
        ):
            return span
        if source.compression:
            return self._head(span, num_wanted // 2)
        if mark is None or source.kind in ("csv", "tsv"):  # a newline may be within quotes
            return span
        start = span.start + int(rng.random() * (span.stop - span.start - num_wanted))
        try:
            with opened(source) as file:
                edges = [
                    _end_of_document(file, place, mark) for place in (start, start + num_wanted)
                ]
        except OSError as error:
            raise unreadable_input(source, error) from error
        start, stop = min(edges[0], span.stop), min(edges[1], span.stop)
        if start >= stop:  # documents are longer than that
            return span
        return dataclasses.replace(span, start=start, stop=stop, text_bytes=stop - start)

    def _mark_of(self, source: Input) -> bytes | None:
        """What ends a document in a file that can be cut there."""
        if source.kind != "text":
            return b"\n" if source.kind in ("jsonl", "csv", "tsv") else None
        separator = self._job.read_of(source).separator
        return None if separator is None else separator.encode()

    def _head(self, span: Span, num_bytes: int) -> Span:
        """The start of a compressed file, as a file of its own.

        How much of the whole it is follows from the compressed bytes that were read. They run ahead
        of the text, by about the same number at both places where they are compared.
        """
        source, num_bytes = span.input, max(num_bytes, READ_BYTES // 2)
        began = time.perf_counter()
        assert source.compression is not None
        try:
            with native_file(source) as (file, expect):
                expect([(0, num_bytes)])
                stream = text_stream(pa.PythonFile(_SmallReads(file), mode="r"), source.compression)
                data = stream.read(num_bytes // 4)
                half, at_half = len(data), file.tell()
                data += stream.read(num_bytes - half)
                num_read = file.tell()
        except NetworkError:
            raise
        except (OSError, pa.ArrowException) as error:
            raise InputError(
                f"{source.name}: broken {source.compression} stream: {error}",
                hint="fetch it again",
            ) from error
        self._note("read", began, 0)
        total = float(len(data))
        if len(data) == num_bytes:
            self.num_heads += 1
            if num_read == at_half:
                half = at_half = 0
            total = source.num_bytes * (len(data) - half) / max(1, num_read - at_half)
        mark = self._mark_of(source) or b"\n"
        if len(data) < total and (end := data.rfind(mark)) >= 0:
            data = data[: end + len(mark)]
        path = os.path.join(self._folder, f"head-{self.num_heads}")
        disk.write_sparse_file(path, len(data), {0: data})
        planned = round(span.text_bytes * len(data) / max(1.0, total))
        head = dataclasses.replace(source, path=path, compression=None, num_bytes=len(data))
        return Span(head, 0, len(data), planned)


@dataclass(frozen=True, slots=True)
class _Draw:
    """Where to read: `count` pieces of the first of these spans."""

    spans: Sequence[Span]
    count: int
    planned_bytes: int  # that they stand for


def _draws(spans: Sequence[Span], stretch_bytes: float, rng: random.Random) -> Iterator[_Draw]:
    """A place in each stretch of neighbouring small spans; in a large span as many as it has
    stretches, so that no large file counts for more or less than it is."""
    first = planned = 0
    ends: list[int] = []
    for number, span in enumerate(spans):
        planned += span.text_bytes
        ends.append(planned)
        if planned >= stretch_bytes or number + 1 == len(spans):
            drawn = first + bisect.bisect_right(ends, rng.random() * planned)
            count = max(1, round(planned / stretch_bytes))
            yield _Draw(spans[drawn : number + 1], count, planned)
            first, planned, ends = number + 1, 0, []


class _SmallReads:
    """A file that is read in small pieces, so that its position shows how much was decompressed."""

    closed = False

    def __init__(self, file: pa.NativeFile) -> None:
        self._file = file

    def read(self, size: int = 4096) -> bytes:
        found: bytes = self._file.read(min(size, 4096))
        return found

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._file.seek(offset, whence))

    def close(self) -> None:
        self.closed = True


def _end_of_document(file: ByteFile, place: int, mark: bytes) -> int:
    """The first end of a document after a place; far beyond it if there is none near."""
    file.seek(place)
    found = file.read(1 << 20).find(mark)
    return place + (found + len(mark) if found >= 0 else 1 << 62)


def _windows(
    texts: pa.LargeStringArray, count: int, num_bytes: int, rng: random.Random
) -> Iterator[pa.LargeStringArray]:
    """Pieces of the texts, one at random from each of `count` equal stretches. The first and last
    text of a piece may be cut, between two characters."""
    offsets = offsets_of(texts)
    data = np.frombuffer(texts.buffers()[2] or b"", np.uint8)
    edges = np.linspace(offsets[0], offsets[-1], count + 1).astype(np.int64)
    for low, high in itertools.pairwise(edges.tolist()):
        start = low + int(rng.random() * max(0, high - low - num_bytes))
        stop = min(high, start + num_bytes)
        start, stop = (_between_characters(data, place, offsets[-1]) for place in (start, stop))
        inner = offsets[np.searchsorted(offsets, start, "right") : np.searchsorted(offsets, stop)]
        bounds = np.array([start, *inner, stop], np.int64)
        buffers = [None, pa.py_buffer(bounds), texts.buffers()[2]]
        yield pa.Array.from_buffers(pa.large_string(), len(bounds) - 1, buffers)


def _between_characters(data: npt.NDArray[np.uint8], place: int, end: int) -> int:
    while place < end and data[place] & 0xC0 == 0x80:
        place += 1
    return place


def _with_absent(
    found: _Total, config: Config, here: Sequence[Span], spans: Sequence[Span]
) -> _Total:
    """With the text that is not on this machine."""
    if len(here) == len(spans):
        return found
    text_bytes = float(sum(span.text_bytes for span in spans))
    if found.num_tokens:
        whole = found.times(text_bytes / sum(span.text_bytes for span in here))
        return dataclasses.replace(whole, spread=None, method="sample")
    num_rows = 0 if any(span.num_rows is None for span in spans) else _rows_of(spans)
    assumed = _Total(text_bytes / TEXT_BYTES_PER_TOKEN, num_rows, text_bytes, None, "assumed")
    return assumed.times(config.sample or 1.0)


def _limited(found: _Total, config: Config) -> tuple[_Total, bool]:
    """At most --limit-docs documents (files on the Hub were taken whole) and --limit-tokens tokens;
    and whether the latter end the run."""
    if config.limit_docs is not None and found.num_documents > config.limit_docs:
        found = found.times(config.limit_docs / found.num_documents)
    if config.limit_tokens is None or found.num_tokens <= config.limit_tokens:
        return found, False
    return found.times(config.limit_tokens / found.num_tokens), True


def _notes(
    config: Config, survey: _Survey, found: _Total, num_absent: int, num_inputs: int
) -> Iterator[str]:
    if found.method == "assumed":
        yield (
            f"no text was read: the files are on the Hub. {TEXT_BYTES_PER_TOKEN} bytes per token "
            "are assumed (English: 4 to 5, Chinese: 1.5 to 3); files in the cache are sampled"
        )
    elif num_absent:
        yield (
            f"{num_absent:,} of {num_inputs:,} files on the Hub: their text is assumed to be "
            "like that of the local files, so there is no spread"
        )
    if survey.num_heads:
        yield (
            f"only the start of {counted(survey.num_heads, 'compressed file')} was read: the rest "
            "is assumed to be like it"
        )
    if survey.num_bad:
        share = survey.num_bad / survey.num_rows
        limit = f"; prepare stops beyond --max-bad-fraction {config.max_bad_fraction}"
        yield (
            f"{share:.2%} of the rows that were read are bad and would be left out"
            f"{limit if share > config.max_bad_fraction else ''}"
        )
    if config.dedup is not None and found.method != "counted":
        yield "a sample cannot find duplicates: with --dedup it will be at most this"


def _nothing(config: Config, spans: Sequence[Span], first_bad: str) -> InputError:
    where = ", ".join(config.sources)
    if first_bad:
        return InputError(
            f"nothing to encode: {first_bad}",
            hint="no row that was read is good; `tokenmill prepare` says what to do",
        )
    if not spans:
        return InputError(f"no documents in {where}", hint="are these the right files?")
    if config.where is not None or config.sample is not None:
        return InputError(
            f"nothing to encode: no row read from {where} passes --where and --sample and has text",
            hint="let more rows in: another --where, or a larger --sample",
        )
    return InputError(
        f"nothing to encode: no document in {where} has text",
        hint="are these the right files, and is --text-column the right column?",
    )


def _local_plan(config: Config) -> Plan:
    """A plan made in this process. Of files on the Hub only footers are fetched, of many files of
    some; other files are known by their size."""
    with (
        scratch_folder() as folder,
        contextlib.closing(HubInputs(config, folder, lambda message: None)) as remote,
    ):
        disk.make_folder(os.path.join(folder, "structure"))
        found = found_inputs(config, remote.inputs, remote.again)
        absent = absent_inputs(found.inputs)
        names = {source.name for source in absent}
        parquet = [source.name for source in absent if source.kind == "parquet"]
        with_footer = set(parquet[:: max(1, -(-len(parquet) // MAX_FOOTERS))])
        known = [0, 0, 0]  # of the footers: bytes of files, bytes of text, rows

        def cut_or_assumed(
            inputs: Iterable[Input], options: ReadOptions, max_rows: int | None
        ) -> Iterator[Cut]:
            for source in inputs:
                if source.name not in names:
                    yield cut(source, options, max_rows)
                elif source.name in with_footer:
                    rows = None if options.filters_rows else max_rows
                    spans = cut(remote.structure_of(source), options, rows).spans
                    known[0] += source.num_bytes
                    known[1] += sum(span.text_bytes for span in spans)
                    known[2] += _rows_of(spans)
                    yield Cut(spans, _rows_of(spans))
                else:
                    yield Cut((_assumed(source, known),))

        cutter = cut_or_assumed if absent else cut_here
        return dataclasses.replace(
            make_plan({}, found.inputs, config, cutter=cutter), notes=found.notes
        )


def _rows_of(spans: Iterable[Span]) -> int:
    return sum(min(s.num_rows or 0, s.max_rows or s.num_rows or 0) for s in spans)


def _assumed(source: Input, known: Sequence[int]) -> Span:
    """A file on the Hub: parquet like the files whose footers are known, others by their size."""
    if source.kind == "parquet":
        share = source.num_bytes / known[0]
        return Span(source, 0, 1, round(known[1] * share), num_rows=round(known[2] * share))
    text_bytes = source.num_bytes * (COMPRESSED_TEXT_RATIO if source.compression else 1)
    return Span(source, 0, source.num_bytes, text_bytes)
