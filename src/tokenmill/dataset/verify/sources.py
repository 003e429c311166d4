"""Encodes documents again from the sources, with the reference, and compares them with the shards.

A sample is spread evenly over the corpus: one document from each of N stretches, by a fixed seed,
so that it can be repeated. Comparing all documents takes as long as the reference takes (tiktoken:
12 MB of text per second and core); a split is compared up to the first document that differs. Both
go through the corpus in the order of the plan, with the mill's own decision about rows, so that a
difference is told by file and row, and nothing is written to disk.
"""

from __future__ import annotations

import concurrent.futures
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.arrays import indices
from tokenmill.dataset.dataset import Dataset
from tokenmill.dataset.kept_rows import KeptRows, sidecars_of
from tokenmill.dataset.made_with import is_same, made_with_of, model_in_cache, vocabulary_file
from tokenmill.dataset.manifest import MANIFEST_NAME, Manifest
from tokenmill.dataset.modified_inputs import ModifiedInputs
from tokenmill.dataset.verify.checks import Failure, Findings
from tokenmill.dataset.verify.document_index import DocumentIndex
from tokenmill.dataset.verify.scan import OnProgress, size_of
from tokenmill.dataset.verify.source_corpus import (
    CHANGED,
    Corpus,
    NotAtHand,
    SplitTexts,
    corpus_of,
)
from tokenmill.encode.record import SPLITS, Counts
from tokenmill.encodings import Encoding, EncodingId, get_encoding
from tokenmill.encodings.loading import reference_of
from tokenmill.encodings.reference import NOT_FAILURES
from tokenmill.errors import ConfigError, InputError, IntegrityError, NetworkError
from tokenmill.formats import Files
from tokenmill.wording.plural import counted

NOT_ASKED_FOR = "not asked for: --sample 100 or --full"
SAMPLE_SEED = 0
_COUNTS = ("num_rows", "num_written", "num_filtered", "num_empty", "num_null", "num_quarantined")
_AT_ONCE = 32  # documents per thread call: a call costs as much as a short document
_LIBRARIES = {
    "tiktoken": "tiktoken",
    "tekken": "tiktoken",
    "huggingface": "tokenizers",
    "sentencepiece": "tokenizers",
    "sentencepiece-library": "sentencepiece",
    "vocab-merges": "tokenizers",
}
Ids = npt.NDArray[np.int64]
# The first and the end token of a document in its stream; None: it is missing.
Bounds = tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Asked:
    """How much to encode again, and where the inputs are now (empty: at their old paths)."""

    sample: int
    full: bool
    sources: tuple[str, ...]
    num_proc: int

    def __bool__(self) -> bool:
        return bool(self.is_to_encode or self.sources)

    @property
    def is_to_encode(self) -> bool:
        return bool(self.sample or self.full)


def check_sources(
    dataset: Dataset,
    asked: Asked,
    named: EncodingId | None,
    findings: Findings,
    progress: OnProgress,
) -> None:
    """`named` is the tokenizer, if the user names its file."""
    manifest = dataset.manifest
    assert manifest is not None, "foreign shards have no sources"
    try:
        corpus = corpus_of(dataset.files, manifest, asked.sources)
        _check_inputs(dataset, manifest, corpus, asked, findings)
        if not asked.is_to_encode:
            findings.skipped("sources", NOT_ASKED_FOR)
            return
        _require_room_for_documents(dataset.files, manifest, corpus)
        encoding = identity_of_tokenizer(manifest, named)
        where = DocumentIndex(dataset, manifest, corpus)
        with concurrent.futures.ThreadPoolExecutor(asked.num_proc) as pool:
            encoder = Reencoder(encoding, manifest.identity, pool)
            has_kept = manifest.identity["options"].get("keep") is not None
            kept = _KeptValues(dataset.files, manifest) if has_kept else None
            found = _Comparison(where, corpus, encoder, progress, kept)
            if asked.full:
                found.all()
            else:
                found.sample(asked.sample)
    except NotAtHand as reason:
        _report_unable(asked, str(reason), reason.hint, findings)
    except (InputError, IntegrityError, NetworkError) as error:
        if isinstance(error, NetworkError) and not findings.num_failures:
            raise  # otherwise the faults found so far are reported
        _report_unable(asked, error.message, error.hint, findings)
    else:
        _report(found, manifest, encoder, findings)


def _report_unable(asked: Asked, reason: str, hint: str | None, findings: Findings) -> None:
    findings.unable("inputs", reason, hint)
    if asked.is_to_encode:
        findings.unable("sources", reason, hint)
    else:
        findings.skipped("sources", NOT_ASKED_FOR)


def _require_room_for_documents(files: Files, manifest: Manifest, corpus: Corpus) -> None:
    """Raise NotAtHand for an impossible number of documents: it decides how much memory is needed,
    and may be forged. A document without tokens takes no byte of a shard, but a row."""
    sizes = [size_of(files, file.name) for file in manifest.files]
    num_bytes = sum(size for size in sizes if isinstance(size, int))
    num_rows = corpus.num_rows
    if num_rows is None:  # a row takes a byte, its line's end
        num_rows = sum(source.num_bytes for source in corpus.plan.inputs)
    num_documents = sum(map(sum, manifest.slice_documents.values()))
    if num_documents > max(num_bytes, num_rows):
        raise NotAtHand(
            f"{counted(num_documents, 'document')} do not fit into {counted(num_bytes, 'byte')}, "
            f"nor come from {counted(num_rows, 'row')}"
        )


def _check_inputs(
    dataset: Dataset, manifest: Manifest, corpus: Corpus, asked: Asked, findings: Findings
) -> None:
    """Read inputs again that were modified since. Raises NotAtHand if one has changed."""
    inputs, again = corpus.plan.inputs, ""
    modified = ModifiedInputs.of(manifest, dataset.files.path_of(MANIFEST_NAME), inputs)
    if modified.inputs:
        if changes := modified.changes(lambda: corpus.plan, corpus.config, asked.num_proc):
            more = f", and {len(changes) - 1:,} more" if len(changes) > 1 else ""
            raise NotAtHand(f"{changes[0]}{more}", CHANGED)
        again = f" ({modified}: read again)"
    num_rows, said = corpus.num_rows, manifest.counts.num_rows
    if num_rows not in (None, said):
        message = f"accounts for {counted(said, 'row')}, but the inputs have {num_rows:,}"
        findings.failed("inputs", Failure(MANIFEST_NAME, message))
    rows = f", {counted(num_rows, 'row')}" if num_rows is not None else ""
    findings.passed("inputs", f"{counted(len(inputs), 'file')}, unchanged{again}{rows}")


def _report(found: _Comparison, manifest: Manifest, encoder: Reencoder, findings: Findings) -> None:
    for failure in found.failures:
        findings.failed("sources", failure)
    for name in _COUNTS if found.counts is not None else ():
        here, said = getattr(found.counts, name), getattr(manifest.counts, name)
        if here != said:
            message = f"says {name} = {said:,}, but the inputs come to {here:,}"
            findings.failed("inputs", Failure(MANIFEST_NAME, message))
    if found.unreadable is not None:
        findings.unable("sources", found.unreadable)
        return
    if not found.num_documents:
        why = "the shards hold none"
        if count := found.num_in_tail:
            why = f"all {count:,} are in the tail that fills no sample and was left out"
        findings.unable("sources", f"no document was compared: {why}")
        return
    by_engine = encoder.num_by_engine
    but = f" ({by_engine:,} by the engine: {encoder.name} failed)" if by_engine else ""
    documents = counted(found.num_documents, "document")
    what = f"{documents} encoded again with {encoder.name}{but}, all the same"
    if found.num_in_tail:
        what += f"; {found.num_in_tail:,} more are in the tail that was left out"
    findings.passed("sources", what)


# The tokenizer


def identity_of_tokenizer(manifest: Manifest, named: EncodingId | None) -> EncodingId:
    """The encoding that made the tokens: the one the user named, or a builtin or cached one. Raises
    NotAtHand if there is neither."""
    if named is not None:
        return named
    made_with = made_with_of(manifest.identity["encoding"])
    found = None
    # A manifest names an encoding, never a file to read.
    if os.sep in made_with.name or os.path.exists(made_with.name):
        model = model_in_cache(made_with)
        found = None if model is None else model.identity
    else:
        try:
            eot, bos = made_with.eot, made_with.bos_option
            found = get_encoding(made_with.name, eot=eot, bos=bos).identity
        except (ConfigError, IntegrityError):
            found = None
    if found is None or not is_same(found, made_with):
        raise NotAtHand(
            f"its tokenizer does not come with the package: {vocabulary_file(made_with)}",
            hint="--tokenizer FILE, with the path of the same file",
        )
    return found


class Reencoder:
    """Encodes documents with their EOT and BOS ids in threads: the reference releases the GIL."""

    def __init__(
        self,
        identity: EncodingId,
        made_as: Mapping[str, Any],
        pool: concurrent.futures.ThreadPoolExecutor,
    ) -> None:
        """`made_as` is the identity in the manifest."""
        options = made_as["options"]
        eot = options["eot"]
        self._identity = identity
        self._reference = reference_of(identity)
        self._before = [identity.eot_token] if eot in ("prepend", "both") else []
        self._after = [identity.eot_token] if eot in ("append", "both") else []
        if options.get("bos"):
            self._before = [made_as["encoding"]["bos_token"]]
        self._pool = pool
        self.num_by_engine = 0  # documents that the reference could not encode

    @property
    def name(self) -> str:
        return _LIBRARIES.get(self._identity.kind, self._identity.kind)

    def documents(self, texts: pa.LargeStringArray) -> Iterator[Ids]:
        some = [texts[at : at + _AT_ONCE] for at in range(0, len(texts), _AT_ONCE)]
        for documents in self._pool.map(self._documents, some):
            yield from documents

    def _documents(self, texts: pa.LargeStringArray) -> list[Ids]:
        return [self._document(text) for text in texts.to_pylist()]

    def _document(self, text: str) -> Ids:
        try:
            ids = self._reference.encode_ordinary(text)
        except NOT_FAILURES:
            raise
        except BaseException:  # a panic of the reference, which the engine did not share
            self.num_by_engine += 1
            ids = Encoding(self._identity).encode_ordinary_batch([text])[0]
        return np.array([*self._before, *ids, *self._after], np.int64)


# The comparison


@dataclass(frozen=True)
class _Again:
    """A document that was encoded again."""

    split: int
    number: int  # in its stream
    ids: Ids
    texts: SplitTexts
    at: int  # in texts


class _Comparison:
    def __init__(
        self,
        where: DocumentIndex,
        corpus: Corpus,
        encoder: Reencoder,
        progress: OnProgress,
        kept: _KeptValues | None,
    ) -> None:
        self._where = where
        self._corpus = corpus
        self._encoder = encoder
        self._progress = progress
        self._kept = kept
        self._ended: set[int] = set()  # splits whose comparison has ended
        self._at = [0, 0]  # tokens of each stream, when all are compared in order
        self._tail_room = list(where.tails)  # tokens of tails that no document has claimed
        self.num_documents = 0  # compared
        self.num_in_tail = 0  # not compared: none of their tokens is in a shard
        self.failures: list[Failure] = []
        self.unreadable: str | None = None  # why a split could not be compared to its end
        self.counts: Counts | None = None  # the counts of all rows, if all were read

    def sample(self, num_documents: int) -> None:
        """Compare `num_documents` from all over the corpus."""
        self._where.require_known_documents()
        chosen = _chosen(self._where.slice_documents, num_documents)
        total = sum(len(positions) for wanted in chosen.values() for positions in wanted)
        num_seen = 0
        for index, wanted in chosen.items():
            for again in self._encoded(index, wanted):
                num_seen += 1
                self._compare(again, self._by_number)
                self._progress("encoding again", num_seen, total)
        if num_seen < total:
            message = "says that slices gave more documents than the inputs have"
            self.failures.append(Failure(MANIFEST_NAME, message))

    def all(self) -> None:
        """Compare every document."""
        total = sum(map(sum, self._where.slice_documents))
        locate = self._by_rank() if self._where.is_shuffled else self._in_order
        with_tokens = {split for split, s in enumerate(self._where.streams) if s is not None}
        self.counts = Counts()
        num_seen = 0
        for index in range(self._corpus.num_slices):
            for again in self._encoded(index, None):
                num_seen += 1
                if again.split not in self._ended:
                    num_failures = len(self.failures)
                    self._compare(again, locate)
                    if len(self.failures) > num_failures:
                        self._ended.add(again.split)
                self._progress("encoding again", num_seen, total)
            if self._ended >= with_tokens and self._ended:
                self.counts = None
                return
        for split, stream in enumerate(self._where.streams):
            if stream is None or split in self._ended or self._where.is_shuffled:
                continue
            if (more := stream.num_tokens - self._at[split]) > 0:
                what = f"{counted(more, 'token')} of no document"
                self.failures.append(self._where.failure(split, self._at[split], what))

    def _encoded(self, index: int, wanted: Sequence[set[int]] | None) -> Iterator[_Again]:
        """The documents of a slice, encoded again: those at the `wanted` positions of each split,
        or all of the splits that are still compared."""
        firsts = [0, 0]
        for pair, counts in self._corpus.documents(index):
            for split, some in enumerate(pair):
                first, firsts[split] = firsts[split], firsts[split] + len(some.texts)
                if wanted is not None:
                    own = sorted(at - first for at in wanted[split] if first <= at < firsts[split])
                else:
                    stop = min(firsts[split], self._where.slice_documents[split][index])
                    own = list(range(0 if split in self._ended else stop - first))
                texts = some.texts.take(indices(np.array(own, np.int64)))
                ids = self._encoder.documents(texts)
                for at, found in zip(own, ids, strict=True):
                    number = self._where.number(split, index, first + at)
                    yield _Again(split, number, found, some, at)
            if self.counts is not None:
                self.counts += counts
            if wanted and all(max(w, default=-1) < n for w, n in zip(wanted, firsts, strict=True)):
                return
        for split, numbers in enumerate(self._where.slice_documents if wanted is None else ()):
            if firsts[split] != numbers[index]:
                name = self._corpus.plan.slices[index].spans[0].input.name
                message = (
                    f"says that slice {index} gave {counted(numbers[index], 'document')} to "
                    f"{SPLITS[split]}, but there are {firsts[split]:,} (from {name})"
                )
                self.failures.append(Failure(MANIFEST_NAME, message))

    # The place of a document

    def _by_number(self, again: _Again) -> Bounds:
        stream = self._where.streams[again.split]
        return None if stream is None else stream.document(again.number)

    def _by_rank(self) -> Callable[[_Again], Bounds]:
        self._where.require_known_documents()
        bounds = [self._where.bounds(split) for split in range(len(SPLITS))]

        def located(again: _Again) -> Bounds:
            own = bounds[again.split][again.number : again.number + 2].tolist()
            return (own[0], own[1]) if len(own) == 2 else None

        return located

    def _in_order(self, again: _Again) -> Bounds:
        start = self._at[again.split]
        self._at[again.split] += len(again.ids)
        return start, self._at[again.split]

    # What differs

    def _compare(self, again: _Again, locate: Callable[[_Again], Bounds]) -> None:
        stream, expected = self._where.streams[again.split], again.ids
        num_tokens = 0 if stream is None else stream.num_tokens
        try:
            start, stop = locate(again) or (num_tokens, num_tokens)
            num_beyond = min(max(0, start + len(expected) - num_tokens), len(expected))
            if num_beyond and num_beyond <= self._tail_room[again.split]:
                self._tail_room[again.split] -= num_beyond
                if num_beyond == len(expected):
                    self.num_in_tail += 1
                    return
                expected = expected[:-num_beyond]
            elif num_beyond and num_beyond == len(expected):
                self._differs(again, num_tokens, "is not there")
                return
            found = again.ids[:0] if stream is None else stream.tokens(start, stop)
            self.num_documents += 1
            at = first_difference(found, expected)
            other = self._kept and self._kept.difference(again)
        except IntegrityError as error:
            self.unreadable = error.message
            self._ended.add(again.split)
            return
        if other:
            self._differs(again, start, f"its kept row {other}")
        if at is not None:
            was = f"is {int(found[at])}" if at < len(found) else "is not there"
            should = f"should be {int(expected[at])}" if at < len(expected) else "should not be"
            self._differs(again, start + at, f"token {at:,} of the document {was}, and {should}")

    def _differs(self, again: _Again, token: int, what: str) -> None:
        message = f"{what} (from {again.texts.place(again.at)})"
        self.failures.append(self._where.failure(again.split, token, message))


class _KeptValues:
    """What --keep kept of documents, to compare with their sources."""

    def __init__(self, files: Files, manifest: Manifest) -> None:
        self._rows = {s: KeptRows(files, sidecars_of(manifest, s)) for s in SPLITS}
        self._one_stream = manifest.one_stream
        self._num_written = manifest.counts.num_written

    def difference(self, again: _Again) -> str | None:
        """What differs in the kept row of a document; None: nothing."""
        found = self._row(again.split, again.number)
        if found is None:
            return "is not there"
        for name, value in again.texts.kept(again.at).items():
            was = found.get(name)
            if was != value and str(was) != str(value):  # NaN differs from NaN
                return f"has {name} {was!r}, and its source {value!r}"
        return None

    def _row(self, split: int, number: int) -> dict[str, Any] | None:
        """The row of a document by its number in its stream, which may be cut in two splits."""
        if self._one_stream is None:
            return self._rows[SPLITS[split]].row(number)
        first, second = (self._rows[name] for name in self._one_stream)
        if number < first.num_rows:
            return first.row(number)
        num_twice = first.num_rows + second.num_rows - self._num_written
        return second.row(number - first.num_rows + num_twice)


def first_difference(found: npt.NDArray[np.integer], expected: Ids) -> int | None:
    """Where two documents begin to differ; None: nowhere."""
    common = min(len(found), len(expected))
    is_other = found[:common] != expected[:common]
    if is_other.any():
        return int(np.argmax(is_other))
    return None if len(found) == len(expected) else common


def _chosen(slice_documents: Sequence[list[int]], count: int) -> dict[int, tuple[set[int], ...]]:
    """Positions of documents by slice and split: one from each of `count` equal stretches."""
    totals = np.cumsum([0, *(sum(counts) for counts in zip(*slice_documents, strict=True))])
    num_documents = int(totals[-1])
    count = min(count, num_documents)
    rng = random.Random(SAMPLE_SEED)
    chosen: dict[int, tuple[set[int], ...]] = {}
    for stretch in range(count):
        start, stop = (number * num_documents // count for number in (stretch, stretch + 1))
        document = rng.randrange(start, stop)
        index = int(np.searchsorted(totals, document, "right")) - 1
        position, split = document - int(totals[index]), 0
        if position >= slice_documents[0][index]:
            position, split = position - slice_documents[0][index], 1
        chosen.setdefault(index, (set(), set()))[split].add(position)
    return chosen
