"""The row of a source that a document was made from, read again and compared with its tokens.

What --keep kept of a document names its file and row. Without it, the slice that a document came
from follows from the manifest, and the slice is read up to the document; that is refused where
nothing but reading the whole corpus would tell (--dedup).

At most MAX_READ_BYTES of text are read: a row group or a byte offset is reached directly, but a
compressed file can only be read from its start. Rows that --where leaves out are not among those
bytes, so there is a time limit too.
"""

from __future__ import annotations

import concurrent.futures
import functools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from tokenmill.corpus.readers import (
    BYTE_KINDS,
    Reader,
    ReadOptions,
    compression_of,
    reader_for,
)
from tokenmill.corpus.rows import Rows, documents
from tokenmill.corpus.spans import HUB_SCHEME, Input, Span
from tokenmill.dataset.dataset import Dataset
from tokenmill.dataset.manifest import Manifest
from tokenmill.dataset.verify.document_index import DocumentIndex
from tokenmill.dataset.verify.source_corpus import (
    Corpus,
    NotAtHand,
    config_of,
    corpus_of,
    located_inputs,
)
from tokenmill.dataset.verify.sources import Reencoder, first_difference
from tokenmill.encode.kept_file import shown_name
from tokenmill.encodings import EncodingId
from tokenmill.errors import InputError
from tokenmill.storage.store import store_of
from tokenmill.wording.plural import counted

MAX_READ_BYTES = 256 << 20
MAX_READ_SECONDS = 30.0
MAX_COMPARED_TOKENS = 1 << 23
# Limits without --keep: inputs that are planned again, bytes of files that are cut again, and
# documents that are sorted.
MAX_PLANNED_INPUTS = 4096
MAX_CUT_BYTES = 1 << 30
# The same over a network, where each input is a request or two, one after the other.
MAX_PLANNED_OBJECTS = 64
MAX_FETCHED_BYTES = 64 << 20
MAX_SHUFFLED_DOCUMENTS = 50_000_000
_KEEP = "prepare it with --keep '' to keep the file and row of each document"


class Document(NamedTuple):
    """A document of a split, to look for."""

    split: str
    number: int
    start: int
    stop: int
    kept: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class SourceRow:
    """`place` is where the row is, in words: 'row 17', 'line 18'. A row has several texts if its
    list is divided into documents."""

    source: str  # its name; "" if sources have none
    file: str
    place: str
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RowComparison:
    """A document against its row: same, part (the split holds a piece of it), differs, or
    unknown (it was not compared, and `why` says why)."""

    verdict: str
    why: str = ""
    text: int = 0  # which of the row's texts is compared
    token: int | None = None  # the first that differs


class DocumentSources:
    """Finds the source rows of a dataset's documents."""

    def __init__(self, dataset: Dataset, sources: Sequence[str] = ()) -> None:
        """`sources` are where the inputs are now, if they moved."""
        self._dataset = dataset
        self._sources = sources

    def row(self, document: Document) -> SourceRow:
        """Raises NotAtHand, which says why and what to type, and InputError for a broken file."""
        manifest = self._dataset.manifest
        if manifest is None:
            raise NotAtHand("without a manifest nothing says what these shards were made from")
        if document.kept is not None:
            return _row_by_place(manifest, document.kept, self._sources)
        require_planned(manifest, self._sources)
        index, corpus = self._index
        return _row_by_slice(index, corpus, document)

    @functools.cached_property
    def _index(self) -> tuple[DocumentIndex, Corpus]:
        manifest = self._dataset.manifest
        assert manifest is not None
        corpus = corpus_of(self._dataset.files, manifest, self._sources)
        return DocumentIndex(self._dataset, manifest, corpus), corpus

    def compared(
        self, document: Document, row: SourceRow, encoding: EncodingId | None
    ) -> RowComparison:
        """The row's text, encoded again by the reference, against the document's tokens."""
        manifest = self._dataset.manifest
        assert manifest is not None, "it led to the row"
        if encoding is None:
            return RowComparison("unknown", "the tokenizer is not known: --tokenizer FILE")
        most = max(document.stop - document.start, sum(map(len, row.texts)))
        if most > MAX_COMPARED_TOKENS:
            return RowComparison("unknown", f"it is longer than {MAX_COMPARED_TOKENS:,} tokens")
        import pyarrow as pa

        stream = self._dataset.streams[document.split]
        found = stream.tokens(document.start, document.stop)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            encoder = Reencoder(encoding, manifest.identity, pool)
            again = list(encoder.documents(pa.array(row.texts, pa.large_string())))
        is_at_edge = document.start == 0 or document.stop == stream.num_tokens
        return _best([_compared(found, ids, is_at_edge, n) for n, ids in enumerate(again)])


def _compared(found: Any, expected: Any, is_at_edge: bool, number: int) -> RowComparison:
    at = first_difference(found, expected)
    if at is None:
        return RowComparison("same", text=number)
    if is_at_edge and 0 < len(found) < len(expected):
        ends = expected[: len(found)], expected[-len(found) :]
        if any(first_difference(found, end) is None for end in ends):
            why = f"{len(found):,} of the row's {counted(len(expected), 'token')}"
            return RowComparison("part", why, number)
    was = f"is {int(found[at])}" if at < len(found) else "is not there"
    should = f"the row gives {int(expected[at])}" if at < len(expected) else "the row ends before"
    return RowComparison("differs", f"token {at:,} {was}, {should}", number, at)


def _best(compared: list[RowComparison]) -> RowComparison:
    """The best match among the documents of a row."""
    ranks = ("same", "part", "differs")
    if not compared:
        return RowComparison("differs", "the row has no text now")
    return min(compared, key=lambda one: (ranks.index(one.verdict), -(one.token or 0)))


# By what was kept


def _row_by_place(manifest: Manifest, kept: dict[str, Any], sources: Sequence[str]) -> SourceRow:
    file, row, byte = kept.get("_file"), kept.get("_row"), kept.get("_byte", 0)
    source = kept.get("_source") or ""
    entry = next(
        (s for s in manifest.inputs if (shown_name(s.path), s.source) == (file, source)), None
    )
    if entry is None or type(row) is not int or type(byte) is not int or row < 0 or byte < 0:
        raise NotAtHand(f"its kept row names row {row!r} of {file!r}, which is not an input")
    config = config_of(manifest).by_source().get(source)
    if config is None:
        raise NotAtHand(f"its kept row names the source {source!r}, which the manifest does not")
    [here] = located_inputs([entry], sources, {entry.source: config.input_format})
    is_list = config.lists == "documents"
    options = replace(ReadOptions.of(config), keep=() if is_list else None)
    reader = reader_for(here.kind, options)
    span = _span_of(reader, here, row, byte)
    parts = documents(reader, span, options)
    found = list(_texts_of(parts, row - span.first_row, str(file), is_list))
    if not found:
        raise NotAtHand(f"{file} has no document in row {row:,} now")
    what = f"row {row}" if is_list else reader.place(span, row - span.first_row)
    return SourceRow(source, str(file), what, tuple(found))


def _span_of(reader: Reader, source: Input, row: int, byte: int) -> Span:
    """The span to read from: nothing before it is read."""
    if source.kind in BYTE_KINDS:
        return Span(source, byte, source.num_bytes, source.num_bytes - byte)
    spans = [span for span in reader.spans(source) if span.first_row <= row]
    if not spans:
        raise NotAtHand(f"{source.name} has no row {row:,} now")
    return spans[-1]


def _texts_of(parts: Iterator[Rows], row: int, file: str, is_list: bool) -> Iterator[str]:
    """The texts of row number `row` of a span; those of a list may be in several batches."""
    budget, is_found = _ReadBudget(), False
    for rows in parts:
        numbers = rows.file_rows
        for at in np.flatnonzero(numbers == row).tolist():
            is_found = True
            if rows.texts[at].is_valid:
                yield rows.texts[at].as_py()
        if (is_found and not is_list) or (len(numbers) and numbers[-1] > row):
            return
        budget.spend(rows.texts.nbytes, file)


class _ReadBudget:
    """How much is read for one row."""

    def __init__(self) -> None:
        self._num_bytes = 0
        self._until = time.monotonic() + MAX_READ_SECONDS

    def spend(self, num_bytes: int, file: str) -> None:
        """Raises NotAtHand if that was too much."""
        self._num_bytes += num_bytes
        far = "" if self._num_bytes <= MAX_READ_BYTES else f"{MAX_READ_BYTES >> 20} MB"
        if not far and time.monotonic() > self._until:
            far = f"{MAX_READ_SECONDS:g} s"
        if far:
            raise NotAtHand(
                f"the row comes after more than {far} of {file} that cannot be skipped",
                "store it as parquet, or uncompressed: then a row is reached directly",
            )


# By the manifest's counts of documents


def require_planned(manifest: Manifest, sources: Sequence[str] = ()) -> None:
    """Raise NotAtHand if only reading everything would tell where documents come from."""
    options, inputs = manifest.identity["options"], manifest.inputs
    num_csv_bytes = sum(s.num_bytes for s in inputs if s.path.lower().endswith((".csv", ".tsv")))
    places = sources or [s.path for s in inputs if not s.path.startswith(HUB_SCHEME)]
    is_local = all(store_of(place).is_local for place in places)
    is_large = any(s.num_bytes > MAX_CUT_BYTES and compression_of(s.path) for s in inputs)
    reason = None
    if options.get("dedup") is not None:
        reason = "--dedup left documents out, and only the whole corpus tells which"
    elif len(inputs) > MAX_PLANNED_INPUTS:
        reason = f"it was made from {counted(len(inputs), 'input')}"
    elif not is_local and len(inputs) > MAX_PLANNED_OBJECTS:
        reason = (
            f"its inputs are {len(inputs):,} objects in a store, which would all have to be read"
        )
    elif num_csv_bytes > (MAX_CUT_BYTES if is_local else MAX_FETCHED_BYTES):
        reason = (
            f"its CSV files have {counted(num_csv_bytes, 'byte')}, which would all have to be read"
        )
    elif options.get("limit_tokens") is not None and is_large:
        reason = "the slice that --limit-tokens cut short may be a large compressed file"
    elif options.get("shuffle") and manifest.num_documents > MAX_SHUFFLED_DOCUMENTS:
        reason = f"{counted(manifest.num_documents, 'document')} would have to be sorted"
    if reason is not None:
        raise NotAtHand(reason, _KEEP)


def _row_by_slice(index: DocumentIndex, corpus: Corpus, document: Document) -> SourceRow:
    split, slice_index, position = index.origin(document.split, document.number, document.start)
    budget = _ReadBudget()
    for pair, _ in corpus.documents(slice_index):
        some = pair[split]
        if position < len(some.texts):
            source = some.span.input
            text = some.texts[position].as_py()
            place = some.reader.place(some.span, int(some.rows.numbers[position]))
            return SourceRow(source.source, shown_name(source.name), place, (text,))
        position -= len(some.texts)
        budget.spend(sum(one.texts.nbytes for one in pair), some.span.input.name)
    raise InputError("the inputs give fewer documents than the manifest says")
