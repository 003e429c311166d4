"""The corpus that a dataset was made from: the same files, cut and filtered the same way.

Readers and planning are shared with the mill. What happens to a row is decided here again, in
simple code, so that a mistake in the mill is found.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.arrays import mask, offsets_of
from tokenmill.config import Config
from tokenmill.corpus.plan import Plan
from tokenmill.corpus.planning import make_plan
from tokenmill.corpus.readers import Reader, ReadOptions, TextBatch, reader_for
from tokenmill.corpus.slices import SliceTable
from tokenmill.corpus.spans import Input, Slice, Span
from tokenmill.dataset.kept_rows import kept_value
from tokenmill.dataset.manifest import QUARANTINE_NAME, Manifest
from tokenmill.dataset.verify.input_candidates import NotAtHand, located_inputs
from tokenmill.encode.documents import held_out
from tokenmill.encode.kept_file import shown_name
from tokenmill.encode.record import SPLITS, Counts
from tokenmill.errors import ConfigError, InputError, IntegrityError, NetworkError
from tokenmill.formats import DatasetFiles


@dataclass(frozen=True)
class SplitTexts:
    """The documents of some consecutive rows that belong to one split."""

    texts: pa.LargeStringArray
    rows: npt.NDArray[np.int64]  # of the span
    span: Span
    reader: Reader
    columns: pa.StructArray | None = None  # those of --keep

    def kept(self, position: int) -> dict[str, Any]:
        """What should be kept of a document."""
        own = {} if self.columns is None else kept_value(self.columns[position])
        row = self.span.first_row + own.pop("_row", int(self.rows[position]))
        source = self.span.input
        place = {"_source": source.source or None, "_file": shown_name(source.name), "_row": row}
        return {**place, **own}

    def place(self, position: int) -> str:
        where = self.reader.place(self.span, int(self.rows[position]))
        return f"{self.span.input.name}, {where}"


class _Written(NamedTuple):
    """Documents of a span."""

    texts: pa.LargeStringArray
    rows: npt.NDArray[np.int64]  # of the span
    columns: pa.StructArray | None  # those of --keep

    def only(self, is_in: npt.NDArray[np.bool_]) -> _Written:
        columns = None if self.columns is None else self.columns.filter(mask(is_in))
        return _Written(self.texts.filter(mask(is_in)), self.rows[is_in], columns)


@dataclass(frozen=True)
class Corpus:
    config: Config
    plan: Plan
    quarantined: Mapping[str, frozenset[str]]  # by input: the places of rows that were left out
    # The index under which the last slice was encoded, if --limit-tokens cut it short.
    last_index: int | None = None
    uncut: Plan | None = None  # then also the plan before that
    firsts: FirstTexts | None = None  # with --dedup: which documents are the first of equal ones

    @functools.cached_property
    def by_source(self) -> dict[str, Config]:
        return self.config.by_source()

    def index_of(self, place: int) -> int:
        """The index under which the slice at a place was encoded."""
        is_last = self.last_index is not None and place == len(self.plan.slices) - 1
        return self.last_index if is_last and self.last_index is not None else place

    def cut_short(self, num_documents: Sequence[int]) -> Corpus:
        """The corpus up to a limit: as many slices as there are numbers, the last one cut short."""
        last, slices = len(num_documents) - 1, self.plan.slices
        if not 0 <= last < len(slices):
            return self
        cut = chain(slices[:last], [self._shortened(slices[last], num_documents[last])])
        plan = replace(self.plan, slices=SliceTable.of(self.plan.inputs, cut), saved_id="")
        return replace(self, plan=plan, last_index=len(slices), uncut=self.plan)

    def _shortened(self, slice_: Slice, num_documents: int) -> Slice:
        """The slice up to its document number `num_documents`."""
        for number, span in enumerate(slice_.spans):
            for (train, val), _ in self.documents(Slice(slice_.index, (span,))):
                rows = np.sort(np.concatenate([train.rows, val.rows]))
                if 0 < num_documents <= len(rows):
                    head = replace(span, max_rows=int(rows[num_documents - 1]) + 1)
                    return Slice(slice_.index, (*slice_.spans[:number], head))
                num_documents -= len(rows)
        return slice_

    @property
    def num_rows(self) -> int | None:
        """The number of rows that the files state; None if they do not."""
        total = 0
        for slice_ in self.plan.slices:
            for span in slice_.spans:
                if span.num_rows is None:
                    return None
                total += min(span.num_rows, span.max_rows or span.num_rows)
        return total

    def documents(self, slice_: Slice) -> Iterator[tuple[tuple[SplitTexts, SplitTexts], Counts]]:
        """The slice's documents for train and for val, in order, and the counts of its rows."""
        for span in slice_.spans:
            at, is_first = 0, None if self.firsts is None else self.firsts.of(self, span)
            for reader, written, counts in self._written(span):
                if is_first is None:
                    yield self._split(span, reader, written), counts
                    continue
                is_kept = is_first[at : at + len(written.texts)]
                at += len(is_kept)
                num_copies = len(is_kept) - int(is_kept.sum())
                yield (
                    self._split(span, reader, written.only(is_kept)),
                    counts + Counts(num_written=-num_copies, num_duplicates=num_copies),
                )

    def _written(self, span: Span) -> Iterator[tuple[Reader, _Written, Counts]]:
        """The documents that are written unless they are duplicates."""
        own = self.by_source.get(span.input.source, self.config)
        reader = reader_for(span.input.kind, ReadOptions.of(own, self.plan.kept_types))
        for batch in reader.batches(span):
            yield reader, *self._sifted(span, reader, batch)

    def texts(self, span: Span) -> Iterator[pa.LargeStringArray]:
        """All texts of a span, duplicates included."""
        return (written.texts for _, written, _ in self._written(span))

    def _sifted(self, span: Span, reader: Reader, batch: TextBatch) -> tuple[_Written, Counts]:
        texts, rows = batch.texts, batch.rows
        is_bad = np.zeros(len(texts), np.bool_)
        is_bad[list(batch.bad)] = True
        if places := self.quarantined.get(span.input.label):
            found = [reader.place(span, batch.first_row + row) in places for row in rows.tolist()]
            is_bad |= np.array(found, np.bool_)
        is_null = is_empty = np.zeros(len(texts), np.bool_)
        if texts.null_count:  # only then, because the call may import pandas
            is_null = np.asarray(texts.is_null()) & ~is_bad
        if self.config.empty == "drop":
            is_empty = (np.diff(offsets_of(texts)) == 0) & ~is_null & ~is_bad
        keep = ~(is_bad | is_null | is_empty)
        written = _Written(texts, batch.first_row + rows, batch.kept).only(keep)
        counts = Counts(
            num_rows=batch.num_rows,
            num_filtered=batch.num_rows - len(keep),
            num_written=len(written.texts),
            num_empty=int(is_empty.sum()),
            num_null=int(is_null.sum()),
            num_quarantined=int(is_bad.sum()),
        )
        return written, counts

    def _split(
        self, span: Span, reader: Reader, written: _Written
    ) -> tuple[SplitTexts, SplitTexts]:
        is_val = np.zeros(len(written.texts), np.bool_)
        if self.config.val_fraction:
            is_val = held_out(written.texts, self.config.val_fraction, self.config.seed)
        train, val = (written.only(own) for own in (~is_val, is_val))
        return (
            SplitTexts(train.texts, train.rows, span, reader, train.columns),
            SplitTexts(val.texts, val.rows, span, reader, val.columns),
        )


class FirstTexts:
    """Which documents are the first with their text, in plan order. All texts are read once, and 80
    bytes are kept for each. Not the mill's hash function, so that a mistake there is found."""

    def __init__(self) -> None:
        self._flags: dict[tuple[Input, int, int], npt.NDArray[np.bool_]] | None = None

    def of(self, corpus: Corpus, span: Span) -> npt.NDArray[np.bool_]:
        """A flag for each document of the span that would be written without --dedup."""
        if self._flags is None:
            self._flags = self._found(corpus)
        return self._flags[span.input, span.start, span.stop]

    def _found(self, corpus: Corpus) -> dict[tuple[Input, int, int], npt.NDArray[np.bool_]]:
        seen: set[bytes] = set()
        found = {}
        for span in (span for slice_ in corpus.plan.slices for span in slice_.spans):
            flags = []
            for texts in corpus.texts(span):
                for text in texts:
                    digest = hashlib.blake2b(text.as_buffer(), digest_size=16).digest()
                    flags.append(digest not in seen)
                    seen.add(digest)
            found[span.input, span.start, span.stop] = np.array(flags, np.bool_)
        return found


def corpus_of(files: DatasetFiles, manifest: Manifest, sources: Sequence[str]) -> Corpus:
    """The corpus, from its old paths or from `sources`. Raises NotAtHand if it is missing or
    changed."""
    config = config_of(manifest)
    if not manifest.inputs:
        raise NotAtHand(
            "it was converted from foreign shards, and nothing says what those were made from",
            hint="leave --sample, --full and --source out",
        )
    formats = {name: own.input_format for name, own in config.by_source().items()}
    inputs = located_inputs(manifest.inputs, sources, formats)
    try:
        plan = make_plan(manifest.identity, inputs, config)
    except (InputError, ConfigError) as error:
        raise NotAtHand(error.message, error.hint) from None
    except (TypeError, ValueError) as error:  # options of a forged manifest
        raise NotAtHand(f"its options cannot be used: {error!r}") from None
    firsts = None if config.dedup is None else FirstTexts()
    corpus = Corpus(config, plan, _quarantined(files, manifest), firsts=firsts)
    written = manifest.num_tokens + sum(s.num_tail_tokens for s in manifest.splits.values())
    if config.limit_tokens is None or written < config.limit_tokens:
        return corpus
    counts = [manifest.slice_documents.get(split, []) for split in SPLITS]
    return corpus.cut_short([sum(both) for both in zip(*counts, strict=False)])


def config_of(manifest: Manifest) -> Config:
    """The options of the run. Raises NotAtHand if this version does not know them."""
    try:
        return Config(sources=("-",), **manifest.identity["options"])
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise NotAtHand(f"its options are not known to this version: {error}") from None


def _quarantined(files: DatasetFiles, manifest: Manifest) -> dict[str, frozenset[str]]:
    if not any(file.name == QUARANTINE_NAME for file in manifest.files):
        return {}
    found = defaultdict(set)
    try:
        with files.open(QUARANTINE_NAME) as file:
            for line in file:
                row = json.loads(line)
                found[str(row["path"])].add(str(row["place"]))
    except NetworkError:
        raise
    except (OSError, ValueError, KeyError, TypeError, IntegrityError) as error:
        raise NotAtHand(f"{QUARANTINE_NAME} cannot be read: {error}") from None
    return {path: frozenset(places) for path, places in found.items()}
