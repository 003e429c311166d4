"""The corpus that a dataset was made from: its inputs, found by their contents, and the documents
in them, cut and filtered by the mill again.

Names only help: they choose between files of the same contents, and distinguish a changed input
from a missing one.
"""

from __future__ import annotations

import copy
import functools
import itertools
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.config import Config
from tokenmill.corpus.hub_inputs import input_of
from tokenmill.corpus.hub_names import SCHEME, HubSource
from tokenmill.corpus.plan import Plan
from tokenmill.corpus.planning import make_plan
from tokenmill.corpus.readers import Reader, reader_for
from tokenmill.corpus.rows import Rows, documents
from tokenmill.corpus.source_files import inputs_of
from tokenmill.corpus.spans import Input, Slice, Span
from tokenmill.dataset.kept_rows import kept_value
from tokenmill.dataset.made_with import made_with_of
from tokenmill.dataset.manifest import QUARANTINE_NAME, Manifest, ManifestInput
from tokenmill.encode.documents import held_out
from tokenmill.encode.job import Job
from tokenmill.encode.kept_file import KEPT
from tokenmill.encode.mill import SpanDocuments, documents_in
from tokenmill.encode.record import SPLITS, Counts
from tokenmill.encode.seen_texts import SeenTexts
from tokenmill.errors import ConfigError, InputError, IntegrityError, NetworkError
from tokenmill.formats import Files
from tokenmill.storage.store import store_of

_MOVED = "--source DIR: a folder that holds the inputs now"
CHANGED = (
    "--source DIR: a folder that holds the inputs as they were; "
    "to make the dataset from what they are now: `tokenmill prepare` with --overwrite"
)


class NotAtHand(Exception):
    """An input or the tokenizer is missing, so documents cannot be encoded again. The message says
    what is missing, the hint what to type."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True)
class SplitTexts:
    """The documents of some consecutive rows that belong to one split."""

    rows: Rows
    span: Span
    reader: Reader

    @property
    def texts(self) -> pa.LargeStringArray:
        return self.rows.texts

    def kept(self, position: int) -> dict[str, Any]:
        """What should be kept of a document."""
        keys = [key for key in self.rows.keys if key.startswith(KEPT)]
        return {key.removeprefix(KEPT): kept_value(self.rows[key][position]) for key in keys}

    def place(self, position: int) -> str:
        where = self.reader.place(self.span, int(self.rows.numbers[position]))
        return f"{self.span.input.name}, {where}"


class Corpus:
    """The documents of each slice, in the order of the plan."""

    def __init__(
        self,
        config: Config,
        plan: Plan,
        job: Job,
        quarantined: Mapping[str, frozenset[str]],
        num_documents: Sequence[int] | None,
    ) -> None:
        """`quarantined` are the places of rows that were left out, by input. `num_documents` are
        those of each slice, if --limit-tokens ended the run: the last slice was cut short."""
        self.config = config
        self.plan = plan
        self._job = job
        self._quarantined = quarantined
        self._num_documents = num_documents
        self.num_slices = len(plan.slices) if num_documents is None else len(num_documents)
        self._seen = SeenTexts() if job.dedup else None
        self._num_seen = 0  # slices whose texts are in _seen

    def index_of(self, place: int) -> int:
        """The index under which the slice at a place was encoded."""
        is_last = self._num_documents is not None and place == self.num_slices - 1
        return len(self.plan.slices) if is_last else place

    @functools.cached_property
    def num_rows(self) -> int | None:
        """The number of rows that the files state; None if they do not, or if a limit left some
        out."""
        if self._num_documents is not None:
            return None
        spans = [span for slice_ in self.plan.slices for span in slice_.spans]
        if any(span.num_rows is None for span in spans):
            return None
        return sum(min(span.num_rows or 0, span.max_rows or (1 << 63)) for span in spans)

    def documents(self, index: int) -> Iterator[tuple[tuple[SplitTexts, SplitTexts], Counts]]:
        """The documents of a slice for train and for val, in order, and the counts of its rows.
        With --dedup, slices are read in order, those between two calls, too."""
        slice_ = self.plan.slices[index]
        if self._seen is not None:
            assert index >= self._num_seen, "copies can only be told in the order of the plan"
            for passed in range(self._num_seen, index):
                for _ in self._documents(self.plan.slices[passed], self._seen):
                    pass
            self._num_seen = index + 1
        if self.index_of(index) != index:
            slice_ = self._shortened(slice_)
        for found in self._documents(slice_, self._seen):
            num_bad, num_copies = len(found.rows.rejected), len(found.copies)
            rest = Counts(
                num_written=len(found.texts), num_quarantined=num_bad, num_duplicates=num_copies
            )
            yield self._split(found), found.counts + rest

    def _documents(self, slice_: Slice, seen: SeenTexts | None) -> Iterator[SpanDocuments]:
        for span in slice_.spans:
            options = self._job.read_of(span.input)
            reader = reader_for(span.input.kind, options)
            for rows in documents(reader, span, options):
                skipped = self._skipped(span, reader, rows)
                found = documents_in(self._job, span, reader, rows, skipped)
                yield found if seen is None else found.without_copies(seen)

    def _skipped(self, span: Span, reader: Reader, rows: Rows) -> dict[int, str]:
        """Rows that were quarantined, some because a worker died of them."""
        places = self._quarantined.get(span.input.label)
        if not places:
            return {}
        numbers = rows.numbers.tolist()
        return {row: "quarantined" for row in numbers if reader.place(span, row) in places}

    def _shortened(self, slice_: Slice) -> Slice:
        """The last slice up to its last document."""
        assert self._num_documents is not None
        left, seen = self._num_documents[-1], copy.deepcopy(self._seen)
        for number, span in enumerate(slice_.spans):
            for found in self._documents(Slice(slice_.index, (span,)), seen):
                if 0 < left <= len(found.rows):
                    head = replace(span, max_rows=int(found.rows.numbers[left - 1]) + 1)
                    return Slice(slice_.index, (*slice_.spans[:number], head))
                left -= len(found.rows)
        return slice_

    def _split(self, found: SpanDocuments) -> tuple[SplitTexts, SplitTexts]:
        is_val = np.zeros(len(found.texts), np.bool_)
        if self.config.val_fraction:
            is_val = held_out(found.texts, self.config.val_fraction, self.config.seed)

        def only(flags: npt.NDArray[np.bool_]) -> SplitTexts:
            rows = found.rows.documents(np.flatnonzero(flags))
            return SplitTexts(rows, found.span, found.reader)

        return only(~is_val), only(is_val)


def corpus_of(files: Files, manifest: Manifest, sources: Sequence[str]) -> Corpus:
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
    try:
        job = Job.of(config, made_with_of(manifest.identity["encoding"]), plan, "")
    except IntegrityError as error:
        raise NotAtHand(error.message, error.hint) from None
    num_documents = None
    written = manifest.num_tokens + sum(s.num_tail_tokens for s in manifest.splits.values())
    if config.limit_tokens is not None and written >= config.limit_tokens:
        counts = [manifest.slice_documents.get(split, []) for split in SPLITS]
        num_documents = [sum(both) for both in zip(*counts, strict=False)]
        if not 0 < len(num_documents) <= len(plan.slices):
            num_documents = None
    return Corpus(config, plan, job, _quarantined(files, manifest), num_documents)


def config_of(manifest: Manifest) -> Config:
    """The options of the run. Raises NotAtHand if this version does not know them."""
    try:
        return Config(sources=("-",), **manifest.identity["options"])
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise NotAtHand(f"its options are not known to this version: {error}") from None


def _quarantined(files: Files, manifest: Manifest) -> dict[str, frozenset[str]]:
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


# Inputs


def located_inputs(
    entries: Sequence[ManifestInput],
    sources: Sequence[str],
    input_formats: Mapping[str, str | None],
) -> list[Input]:
    """Every input, in order, at its old path or among `sources`. `input_formats` are those of the
    named sources, or of "". Raises NotAtHand, which describes the first missing or changed
    input."""
    formats = [input_formats.get(entry.source) for entry in entries]
    among = {one: _listed(sources, one) for one in dict.fromkeys(formats)} if sources else {}
    found: list[Input] = []
    lost: list[tuple[ManifestInput, _Files | NotAtHand]] = []
    for entry, input_format in zip(entries, formats, strict=True):
        try:
            files = among[input_format] if sources else _where_it_was(entry, input_format)
        except NotAtHand as reason:
            lost.append((entry, reason))
            continue
        if (same := files.same(entry)) is None:
            lost.append((entry, files))
        else:
            found.append(replace(same, digest=entry.digest, origin=entry.path, source=entry.source))
    if lost:
        first, why = lost[0]
        if isinstance(why, _Files):
            why = why.lost(first, {one.path for one in found}, ", ".join(sources))
        more = f", and {len(lost) - 1:,} more of {len(entries):,} inputs are not as they were"
        raise NotAtHand(f"{why}{more if len(lost) > 1 else ''}", why.hint)
    return found


def _where_it_was(entry: ManifestInput, input_format: str | None) -> _Files:
    """The file at the old path of an input; of one from the Hub, if the cache still has it."""
    try:
        if entry.path.startswith(SCHEME):
            return _Files([_in_cache(entry, input_format)])
        if store_of(entry.path).is_local and not os.path.lexists(entry.path):
            raise NotAtHand(f"{entry.path} was not found where it was", _MOVED)
        [here] = inputs_of([entry.path], input_format)
    except (InputError, ConfigError) as error:
        raise NotAtHand(error.message, _MOVED) from None
    except ValueError:
        raise NotAtHand(f"{entry.path} is no longer a file", _MOVED) from None
    return _Files([here])


def _in_cache(entry: ManifestInput, input_format: str | None) -> Input:
    from tokenmill.storage.hub import Hub, HubFile

    source, hub = HubSource.parsed(entry.path), Hub(lambda message: None)
    file = HubFile(source.repo, source.revision, source.pattern, entry.num_bytes, entry.digest)
    if hub.path(file) is None:
        fetch = f"{source.download_command}, then --source DIR"
        raise NotAtHand(f"{entry.path} was not found in the cache of the Hub", fetch)
    return input_of(hub, file, input_format)


def _listed(sources: Sequence[str], input_format: str | None) -> _Files:
    """The files in `sources`. One of them may have none of this format, but not all."""
    found: dict[str, Input] = {}
    refusal = None
    for source in sources:
        try:
            found |= {one.path: one for one in inputs_of([source], input_format)}
        except (InputError, ConfigError) as error:
            refusal = refusal or error
    if refusal is not None and not found:
        raise NotAtHand(refusal.message, refusal.hint or _MOVED)
    return _Files(found.values())


class _Files:
    """Files by their contents and by their names."""

    def __init__(self, inputs: Iterable[Input]) -> None:
        self._by_size: dict[int, list[Input]] = defaultdict(list)
        self._by_name: dict[str, list[Input]] = defaultdict(list)
        self._by_digest: dict[tuple[int, str], dict[str, list[Input]]] = {}
        for one in inputs:
            self._by_size[one.num_bytes].append(one)
            self._by_name[one.path.rpartition("/")[2]].append(one)

    def same(self, entry: ManifestInput) -> Input | None:
        """The file with these contents; of several, the one with the most similar path."""
        key = entry.num_bytes, _algorithm(entry.digest)
        if key not in self._by_digest:
            self._by_digest[key] = defaultdict(list)
            for one in self._by_size.get(entry.num_bytes, ()):
                self._by_digest[key][_digest(one, key[1])].append(one)
        return _most_like(entry, self._by_digest[key].get(entry.digest, ()))

    def lost(self, entry: ManifestInput, taken: set[str], where: str) -> NotAtHand:
        """What happened to an input whose contents were not found: there may be a file of its name
        that is no other input."""
        namesakes = self._by_name[entry.path.rpartition("/")[2]]
        here = _most_like(entry, [one for one in namesakes if one.path not in taken])
        if here is None:
            return NotAtHand(f"{entry.path} was not found at {where}", _MOVED)
        name = entry.path if here.path == entry.path else f"{here.path} (then {entry.path})"
        algorithm = _algorithm(entry.digest)
        how = "it has another tag" if algorithm == "tag" else "the same size, but other bytes"
        if here.num_bytes != entry.num_bytes:
            how = f"it has {here.num_bytes:,} bytes, and had {entry.num_bytes:,}"
        elif not _digest(here, algorithm):
            what = f"{here.path} cannot be compared with {entry.path}: one of them is known by its"
            folder = entry.path.rpartition("/")[0] if algorithm == "tag" else "DIR, with copies"
            return NotAtHand(f"{what} store's tag alone", f"--source {folder}")
        return NotAtHand(f"{name} has changed since it was read: {how}", CHANGED)


def _algorithm(digest: str) -> str:
    """The kind of a digest: "" for the ends of a file, else the hash or tag that it names."""
    name, colon, _ = digest.partition(":")
    return name if colon else ""


def _digest(here: Input, algorithm: str) -> str:
    """A file's digest of that kind; "" if it has none."""
    if _algorithm(here.digest) == algorithm and here.origin is None:
        return here.digest
    if here.has_tag or algorithm in ("", "tag"):
        return ""
    from tokenmill.storage.hub import digest_of

    return digest_of(here.path, algorithm)


def _most_like(entry: ManifestInput, candidates: Iterable[Input]) -> Input | None:
    """The file whose path has most names in common with the input's, from the end."""

    def likeness(one: Input) -> int:
        pairs = zip(reversed(one.path.split("/")), reversed(entry.path.split("/")), strict=False)
        return len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))

    return max(candidates, key=likeness, default=None)
