"""The mill: `encode_slice`, the pure function that does the work of the product.

    corpus --plan--> slices --encode_slice--> parts --assemble--> shards --> manifest

`encode_slice` reads one slice as Arrow text, encodes it, applies the document policy and commits a
part. Its output depends only on the job and the slice, so it may run in any process on any machine,
once or twice, in any order. run/ plans the slices, hands them to a runner and assembles the parts.

Text never becomes a Python `str` here, and tokens leave the process only through the part file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from tokenmill.arrays import mask, nulls_of, offsets_of
from tokenmill.corpus.opening import with_small_ahead
from tokenmill.corpus.prefetch import documents_of
from tokenmill.corpus.readers import Reader
from tokenmill.corpus.rows import Rows, joined
from tokenmill.corpus.spans import Slice, Span
from tokenmill.corpus.unchanged import require_unchanged, unchanged_objects
from tokenmill.encode.content import SliceContent
from tokenmill.encode.documents import data_of, document_bytes, held_out, specials_per_document
from tokenmill.encode.job import NO_CAUTION, Caution, Job, Report, Step
from tokenmill.encode.kept_file import with_kept
from tokenmill.encode.part import TOKENS, PartWriter
from tokenmill.encode.pruning import copies_of, pruned
from tokenmill.encode.record import Counts, PartRecord, Quarantined
from tokenmill.encode.seen_texts import SeenTexts
from tokenmill.encode.text_hashes import HASHES, hashed, hashes_array, hashes_of
from tokenmill.encodings import Encoding, TokenArray
from tokenmill.errors import InputError

# Each call of the engine has about a millisecond of overhead, so small batches (a million small
# files) are encoded together. Each batch may keep a mapped file open, hence the second bound.
HOLD_BYTES = 1 << 20
HOLD_BATCHES = 256


def encode_slice(
    job: Job, slice_: Slice, report: Report | None = None, caution: Caution = NO_CAUTION
) -> PartRecord:
    """Encode one slice, commit its part and its record, and return the record.

    Raises InputError for a bad document if the job says so; otherwise bad documents are quarantined
    in the record.
    """
    if slice_.is_pruning:
        return pruned(job, slice_)
    writer = PartWriter(
        job.work,
        slice_.index,
        job.dtype,
        job.num_buckets,
        job.seed,
        has_hashes=job.dedup and slice_.max_tokens is None,
        kept_types=job.read.kept_types,
    )
    try:
        work = _SliceWork(job, slice_, writer, report or (lambda step: None), caution)
        with unchanged_objects(slice_.inputs_read):
            if slice_.max_tokens is not None:
                slice_ = work.shortened(slice_.max_tokens)
                work.forget_texts()
            for number, span in enumerate(with_small_ahead(slice_.spans)):
                work.encode_span(number, span)
            work.encode_held()
        quarantined = tuple(work.quarantined)
        return writer.commit(
            job.plan_id,
            work.counts,
            quarantined,
            content=work.content.digest,
            last_place=work.last_place,
        )
    finally:
        writer.discard()


@dataclass(frozen=True, slots=True)
class SpanDocuments:
    """What goes to the engine of some consecutive rows."""

    span: Span
    reader: Reader
    rows: Rows  # the documents alone, and which rows were rejected; with what is kept of them
    counts: Counts  # of all rows, except those that are written, rejected or copies
    copies: dict[int, bytes] = field(default_factory=dict)  # hashes of left-out copies, by row

    @property
    def texts(self) -> pa.LargeStringArray:
        return self.rows.texts

    def without_copies(self, seen: SeenTexts) -> SpanDocuments:
        """The documents whose text was not seen before, which is now seen; with their hashes."""
        hashes = hashed(self.texts)
        is_first = seen.add(hashes["hash"])
        rows = self.rows.with_column(HASHES, hashes_array(hashes))
        copies = np.flatnonzero(~is_first)
        numbers = rows.numbers
        return replace(
            self,
            rows=rows.documents(np.flatnonzero(is_first)),
            copies={int(numbers[i]): hashes["hash"][i].tobytes() for i in copies},
        )


def documents_in(
    job: Job, span: Span, reader: Reader, rows: Rows, skipped: Mapping[int, str]
) -> SpanDocuments:
    """Separate the rows to encode from those that are filtered, rejected, null or empty. `skipped`
    are rows that are known to be bad."""
    texts, numbers = rows.texts, rows.numbers
    found = rows
    if skipped:
        bad = {row: why for row, why in skipped.items() if row in numbers}
        found = replace(rows, rejected={**rows.rejected, **bad})
    keep = np.ones(len(rows), np.bool_)
    keep[rows.positions_of(found.rejected)] = False
    num_null = num_empty = 0
    if texts.null_count:
        null = nulls_of(texts)
        num_null = int(np.count_nonzero(null & keep))
        keep &= ~null
    if job.empty == "drop":
        empty = np.diff(offsets_of(texts)) == 0
        num_empty = int(np.count_nonzero(empty & keep))
        keep &= ~empty
    counts = Counts(
        num_rows=rows.num_covered,
        num_filtered=rows.num_covered - len(rows),
        num_empty=num_empty,
        num_null=num_null,
        num_replaced=len(rows.replaced),
    )
    if job.read.keep is not None:
        found = replace(found, batch=with_kept(span, rows, job.read.kept_types))
    return SpanDocuments(span, reader, found.documents(np.flatnonzero(keep)), counts)


class _SliceWork:
    """The state of one `encode_slice` call."""

    def __init__(
        self, job: Job, slice_: Slice, writer: PartWriter, report: Report, caution: Caution
    ) -> None:
        self._job = job
        self._slice = slice_
        self._writer = writer
        self._report = report
        self._caution = caution
        self._encoding = Encoding(job.encoding)
        self._number = 0  # of the span that is being read
        self._held: list[SpanDocuments] = []
        self._held_bytes = 0
        self._last = (0, 0, 0)  # rows, tokens, bytes encoded since the last step
        self.counts = Counts()
        self.quarantined: list[Quarantined] = []
        self.content = SliceContent()
        self.last_place = ""  # of the last document, if a limit cut the slice short
        self._seen: SeenTexts | None = None
        self._failed: dict[bytes, str] = {}  # texts that cannot be encoded, by their hash
        self.forget_texts()

    def forget_texts(self) -> None:
        """With --dedup: forget the texts seen so far, except copies of earlier slices' texts."""
        if self._job.dedup:
            self._seen = SeenTexts()
            if self._slice.copies:
                rows, is_copy = copies_of(self._job, self._slice)
                self._seen.add(rows["hash"][is_copy])

    def encode_span(self, number: int, span: Span) -> None:
        if not span.is_ruled_out:
            require_unchanged(span.input)
        reader, parts = documents_of(span, self._job.read_of(span.input))
        self._number = number
        for rows in parts:
            self._report(Step(number, rows.first_row, rows.num_covered, *self._last))
            self._last = (0, 0, 0)
            if span.input.has_unknown_middle:
                self.content.add(number, rows)
            held = self._documents(number, span, reader, rows)
            self._held.append(held)
            self._held_bytes += len(data_of(held.texts))
            is_full = self._held_bytes >= HOLD_BYTES or len(self._held) >= HOLD_BATCHES
            if is_full or self._caution.one_by_one:
                self.encode_held()

    def shortened(self, max_tokens: int) -> Slice:
        """The slice up to the document that reaches `max_tokens`. Finding it encodes the slice once
        more, so that its rows can then be counted like those of any other slice."""
        for number, span in enumerate(self._slice.spans):
            reader, parts = documents_of(span, self._job.read_of(span.input))
            self._number = number
            for rows in parts:
                self._report(Step(number, rows.first_row, rows.num_covered))
                held = self._documents(number, span, reader, rows)
                tokens = self._encoded([held], held.texts)
                specials = specials_per_document(self._job.eot, self._job.bos)
                lengths = np.diff(tokens.offsets) + specials
                lengths[list(tokens.failed)] = 0
                ends = np.cumsum(lengths)
                if len(ends) and ends[-1] >= max_tokens:
                    row = int(held.rows.numbers[np.searchsorted(ends, max_tokens)])
                    self.last_place = f"{span.input.label}, {reader.place(span, row)}"
                    head = replace(span, max_rows=row + 1)
                    return Slice(self._slice.index, (*self._slice.spans[:number], head))
                max_tokens -= int(ends[-1]) if len(ends) else 0
        return replace(self._slice, max_tokens=None)

    def encode_held(self) -> None:
        """Encode all held batches in one call of the engine."""
        held, self._held, self._held_bytes = self._held, [], 0
        if not held:
            return
        batch = joined([one.rows for one in held]).batch
        texts = batch.column("text")
        tokens = self._encoded(held, texts)
        if self._seen is not None:
            hashes = hashes_of(batch)
            self._failed |= {hashes["hash"][i].tobytes(): r for i, r in tokens.failed.items()}
        first = 0
        for one in held:
            failed = {
                i - first: r for i, r in tokens.failed.items() if 0 <= i - first < len(one.texts)
            }
            self._count(one, {int(one.rows.numbers[i]): reason for i, reason in failed.items()})
            first += len(one.texts)

        job = self._job
        bos_id = job.encoding.bos_token if job.bos else None
        data = document_bytes(tokens, job.dtype, job.encoding.eot_token, job.eot, bos_id)
        names = [name for name in batch.schema.names if name not in ("row", "text")]
        encoded = pa.RecordBatch.from_arrays([data, *map(batch.column, names)], [TOKENS, *names])
        if tokens.failed:
            good = np.ones(len(texts), np.bool_)
            good[list(tokens.failed)] = False
            texts, encoded = texts.filter(mask(good)), encoded.filter(mask(good))
        self._append(texts, encoded)
        text_bytes = len(data_of(texts))
        self.counts += Counts(num_written=len(texts), text_bytes=text_bytes)
        self._last = (sum(one.counts.num_rows for one in held), len(tokens.ids), text_bytes)

    def _documents(self, number: int, span: Span, reader: Reader, rows: Rows) -> SpanDocuments:
        skip = self._caution.skip.items()
        skipped = {row: reason for (of_span, row), reason in skip if of_span == number}
        found = documents_in(self._job, span, reader, rows, skipped)
        return found if self._seen is None else found.without_copies(self._seen)

    def _encoded(self, held: list[SpanDocuments], texts: pa.LargeStringArray) -> TokenArray:
        if not self._caution.one_by_one:
            return self._encoding.encode_array(texts, self._job.dtype)
        [one] = held
        ids, lengths = [np.empty(0, np.uint32)], [0]
        failed: dict[int, str] = {}
        for i in range(len(texts)):
            self._report(Step(self._number, int(one.rows.numbers[i]), 1))
            tokens = self._encoding.encode_array(texts.slice(i, 1))
            ids.append(tokens.ids)
            lengths.append(len(tokens.ids))
            if tokens.failed:
                failed[i] = tokens.failed[0]
        # The last document is not to blame for failures from here on.
        self._report(Step(self._number, one.rows.stop, 0))
        return TokenArray(np.concatenate(ids), np.cumsum(lengths, dtype=np.int64), failed)

    def _count(self, held: SpanDocuments, failed: dict[int, str]) -> None:
        """Count a batch's rows, and quarantine the bad ones."""
        bad = {**held.rows.rejected, **failed}
        num_duplicates = len(held.copies)
        if self._failed:  # a text that cannot be encoded is bad each time
            again = {i: self._failed[key] for i, key in held.copies.items() if key in self._failed}
            bad |= again
            num_duplicates -= len(again)
        for row, reason in sorted(bad.items()):
            self._leave_out(held.span, held.reader, row, reason)
        self.counts += held.counts
        self.counts += Counts(num_quarantined=len(bad), num_duplicates=num_duplicates)

    def _leave_out(self, span: Span, reader: Reader, row: int, reason: str) -> None:
        place = reader.place(span, row)
        if self._job.on_bad_document == "error":
            raise InputError(
                f"{span.input.name}, {place}: {reason}",
                hint="fix it, or leave it out: --on-bad-document quarantine",
            )
        self.quarantined.append(Quarantined(span.input.label, place, reason))

    def _append(self, texts: pa.LargeStringArray, encoded: pa.RecordBatch) -> None:
        if self._job.val_fraction:
            is_val = held_out(texts, self._job.val_fraction, self._job.seed)
            if is_val.any():
                self._writer.append(1, encoded.filter(mask(is_val)))
                encoded = encoded.filter(mask(~is_val))
        self._writer.append(0, encoded)
