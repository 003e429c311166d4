"""The summary of a dataset: counts from the manifest, lengths from a sample."""

from __future__ import annotations

import os
import random
import shlex
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from tokenmill.dataset.dataset import Dataset
from tokenmill.dataset.inspect.folder import LookedInto
from tokenmill.dataset.inspect.lengths import Lengths, document_lengths
from tokenmill.dataset.manifest import Manifest
from tokenmill.dataset.notes import split_words, training_notes
from tokenmill.dataset.source_totals import SourceTotals
from tokenmill.dataset.stream import Tokens

# Without a manifest, bytes per token are measured on this many tokens at random places.
_SAMPLE_TOKENS = 4096
_NUM_SAMPLES = 32


@dataclass(frozen=True, slots=True)
class SplitGlance:
    split: str
    num_tokens: int
    num_documents: int | None  # None: unknown without reading everything
    num_shards: int
    num_bytes: int  # of its shards
    lengths: Lengths | None


@dataclass(frozen=True, slots=True)
class Glance:
    folder: str
    format: str
    trainers: str
    has_manifest: bool
    tokenizer: dict[str, Any] | None  # name, sha256, n_vocab
    dtype: str
    eot: str | None  # append, prepend, both or none; None: not known
    eot_token: str | None
    eot_id: int | None
    bos_token: str | None  # that begins every document
    bos_id: int | None
    is_shuffled: bool | None
    num_tokens: int
    num_documents: int | None
    num_bytes: int
    text_bytes: int | None
    bytes_per_token: float | None
    tokens_per_byte: float | None
    is_ratio_exact: bool  # counted for the manifest, not sampled
    splits: tuple[SplitGlance, ...]
    split_rule: str | None  # how the validation split was chosen; None: not known
    notes: tuple[str, ...]  # what to know before training; a second line is a command
    inferred: dict[str, str]  # dtype, eot: the evidence for what the files do not say
    sources: dict[str, SourceTotals]  # by name, if they have names

    def to_plain(self) -> dict[str, Any]:
        return asdict(self)


def glance(looked: LookedInto, split: str | None = None, seed: int = 0) -> Glance:
    """The summary of the dataset, or of one split."""
    dataset, manifest, made_with = looked.dataset, looked.dataset.manifest, looked.made_with
    names = dataset.streams if split is None else [looked.stream(split).split]
    splits = tuple(_split(looked, name, seed) for name in names)
    counts = [split.num_documents for split in splits]
    known = None if None in counts else sum(count or 0 for count in counts)
    options = {} if manifest is None else manifest.identity["options"]
    text_bytes, ratio = _text(looked, manifest, seed)
    return Glance(
        folder=dataset.name,
        format=dataset.format.name,
        trainers=dataset.format.trainers,
        has_manifest=manifest is not None,
        tokenizer=None
        if made_with is None
        else {"name": made_with.name, "sha256": made_with.sha256, "n_vocab": made_with.n_vocab},
        dtype=dataset.dtype,
        eot=options.get("eot", dataset.eot),
        eot_token=None if made_with is None else made_with.eot,
        eot_id=dataset.eot_id if made_with is None else made_with.eot_token,
        bos_token=None if made_with is None or not options.get("bos") else made_with.bos,
        bos_id=dataset.bos_id,
        is_shuffled=None if manifest is None else bool(options.get("shuffle")),
        num_tokens=dataset.num_tokens,
        num_documents=known if manifest is None else manifest.num_documents or known,
        num_bytes=sum(s.num_bytes for s in splits) if manifest is None else manifest.num_bytes,
        text_bytes=text_bytes,
        bytes_per_token=ratio,
        tokens_per_byte=1 / ratio if ratio else None,
        is_ratio_exact=text_bytes is not None,
        splits=splits,
        split_rule=None if manifest is None else split_words(manifest),
        notes=_notes(looked),
        inferred={name: found.why for name, found in dataset.inferred.items()},
        sources={} if manifest is None else manifest.sources,
    )


def _notes(looked: LookedInto) -> tuple[str, ...]:
    dataset, made_with = looked.dataset, looked.made_with
    if dataset.manifest is not None:
        return dataset.manifest.notes
    notes = list(_notes_on_folders(dataset))
    if made_with is not None:
        notes += training_notes(dataset.format.name, dataset.dtype, dataset.eot, made_with)
    return tuple(notes)


def _notes_on_folders(dataset: Dataset) -> Iterator[str]:
    """Shards of one split in several folders may belong to several datasets."""
    for split, stream in dataset.streams.items():
        folders = sorted({os.path.dirname(shard.name) for shard in stream.shards})
        if len(folders) > 1:
            names = ", ".join(name or "." for name in folders[:5])
            names += f" and {len(folders) - 5:,} more" if len(folders) > 5 else ""
            one = shlex.quote(dataset.files.path_of(next(filter(None, folders))))
            yield (
                f"{split} has shards in {len(folders):,} folders: {names}; if they are different "
                f"datasets, look at each alone\ntokenmill inspect {one}"
            )
            return


def _split(looked: LookedInto, split: str, seed: int) -> SplitGlance:
    dataset = looked.dataset
    stream = dataset.streams[split]
    lengths = document_lengths(dataset, split, seed)
    num_documents = looked.num_documents(split)
    if num_documents is None and lengths is not None and lengths.is_exact:
        num_documents = lengths.num_documents
    return SplitGlance(
        split,
        stream.num_tokens,
        num_documents,
        len(stream.shards),
        sum(dataset.files.size(shard.name) or 0 for shard in stream.shards),
        lengths,
    )


def _text(
    looked: LookedInto, manifest: Manifest | None, seed: int
) -> tuple[int | None, float | None]:
    """The bytes of text, if counted, and bytes per token, EOT ids included."""
    if manifest is not None and manifest.counts.text_bytes:
        tails = sum(totals.num_tail_tokens for totals in manifest.splits.values())
        num_tokens = manifest.num_tokens + tails
        text_bytes = manifest.counts.text_bytes
        return text_bytes, text_bytes / num_tokens if num_tokens else None
    table = looked.token_bytes
    if table is None or not looked.dataset.num_tokens:
        return None, None
    num_bytes = num_tokens = 0
    for tokens in _some_tokens(looked.dataset, seed):
        num_bytes += table.num_bytes(tokens)
        num_tokens += len(tokens)
    return None, num_bytes / num_tokens


def _some_tokens(dataset: Dataset, seed: int) -> Iterator[Tokens]:
    """All tokens if they are few, else those at random places."""
    if dataset.num_tokens <= _NUM_SAMPLES * _SAMPLE_TOKENS:
        yield from (stream.tokens(0, stream.num_tokens) for stream in dataset.streams.values())
        return
    rng = random.Random(seed)
    for stream in dataset.streams.values():
        num_places = -(-_NUM_SAMPLES * stream.num_tokens // dataset.num_tokens)
        for place in sorted(rng.randrange(stream.num_tokens) for _ in range(num_places)):
            yield stream.tokens(place, place + _SAMPLE_TOKENS)
