"""The lengths of a split's documents: of all if the split is small, else of a sample.

The sample is unbiased: the split is cut into blocks of tokens, some are drawn, and every document
that *starts* in one of them is measured to its end. So short and long documents are equally likely
to be drawn. (The document at a random token is more often a long one.)

It reads 64 blocks of 8,192 tokens, up to four times as many if few documents start in them, and the
rest of the last document of each: 64 reads of 16 kB in a folder of 100 GB. If shards must be
unpacked, it reads fewer and larger blocks of a few shards. Over a network, it reads an eighth of
that.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.dataset.dataset import Dataset
from tokenmill.dataset.stream import Stream

PERCENTILES = (1, 10, 50, 90, 99)
# In a split up to this size all documents are measured; the limit is lower if shards must be
# unpacked.
EXACT_TOKENS = 16 << 20
UNPACKED_EXACT_TOKENS = 4 << 20
SAMPLE_TOKENS = 1 << 19
BLOCK_TOKENS = 8192
UNPACKED_BLOCK_TOKENS = 65536
MAX_ROUNDS = 4
FEW_DOCUMENTS = 500
NUM_SHARDS = 4
# Over a network: a read takes a request of at least 64 KiB.
FAR_SAMPLE_TOKENS = 1 << 16
FAR_INDEX_TOKENS = 1 << 24
# If only the format's own index has the ends of documents, it is read for this many tokens; for
# fewer if they must be unpacked.
INDEX_TOKENS = 1 << 30
UNPACKED_INDEX_TOKENS = 1 << 24
# A longer document is measured only up to this length, so the sample understates it.
FOLLOW_TOKENS = 1 << 20


@dataclass(frozen=True, slots=True)
class Lengths:
    """Lengths of documents in tokens, with their EOT ids."""

    num_documents: int  # that were measured
    is_exact: bool  # all there are, not a sample
    mean: float
    percentiles: dict[str, int]  # p1, p10 ...
    max: int

    def to_plain(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Spans:
    """Documents of a split by place: where each starts, and its length, in tokens."""

    starts: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    is_exact: bool  # all there are, not a sample


def document_lengths(dataset: Dataset, split: str, seed: int = 0) -> Lengths | None:
    """None if documents cannot be separated, or not without reading too much."""
    spans = document_spans(dataset, split, seed)
    if spans is None or not len(spans.lengths):
        return None
    # Nearest rank: each percentile is the length of a document.
    at = np.percentile(spans.lengths, PERCENTILES, method="inverted_cdf")
    return Lengths(
        len(spans.lengths),
        spans.is_exact,
        float(spans.lengths.mean()),
        {f"p{p}": int(value) for p, value in zip(PERCENTILES, at, strict=True)},
        int(spans.lengths.max()),
    )


def document_spans(dataset: Dataset, split: str, seed: int = 0) -> Spans | None:
    """The documents that are measured; None if they cannot be separated."""
    stream = dataset.streams[split]
    if not stream.knows_documents or not stream.num_tokens:
        return None
    is_raw, is_local = dataset.format.traits.is_raw, dataset.files.is_local
    most = EXACT_TOKENS if is_raw else UNPACKED_EXACT_TOKENS
    if stream.num_tokens <= (most if is_local else FAR_SAMPLE_TOKENS):
        found = [d.lengths for d in stream.documents() if d.lengths is not None]
        lengths = np.concatenate([np.empty(0, np.int64), *found])
        return Spans(np.cumsum(lengths) - lengths, lengths, is_exact=True)
    rng = random.Random(seed)
    # EOT ids that a manifest guarantees are found faster than the ends of all documents.
    has_eot = dataset.manifest is not None and dataset.eot in ("append", "prepend", "both")
    if stream.has_boundaries and not has_eot:
        most = INDEX_TOKENS if is_raw else UNPACKED_INDEX_TOKENS
        return _of_some_shards(stream, rng, most if is_local else min(most, FAR_INDEX_TOKENS))
    blocks = _some_blocks(stream, rng, is_raw)
    if not is_local:
        num_blocks = FAR_SAMPLE_TOKENS // (BLOCK_TOKENS if is_raw else UNPACKED_BLOCK_TOKENS)
        blocks = [blocks[0][:: max(1, len(blocks[0]) // num_blocks)]]
    return _starting_in_some(dataset, stream, blocks)


def _of_some_shards(stream: Stream, rng: random.Random, max_tokens: int) -> Spans:
    """All documents of a few random shards, by the format's own index."""
    starts, lengths, num_tokens = [np.empty(0, np.int64)], [np.empty(0, np.int64)], 0
    shards = range(len(stream.shards))
    for position in sorted(rng.sample(shards, min(NUM_SHARDS, len(shards)))):
        num_tokens += stream.shards[position].num_tokens
        ends = stream.shards[position].open().ends() if num_tokens <= max_tokens else None
        if ends is not None:
            lengths.append(np.diff(ends, prepend=0))
            starts.append(stream.start_of(position) + ends - lengths[-1])
    is_exact = len(lengths) - 1 == len(shards)
    return Spans(np.concatenate(starts), np.concatenate(lengths), is_exact)


def _some_blocks(stream: Stream, rng: random.Random, is_raw: bool) -> list[list[tuple[int, int]]]:
    """Random stretches of tokens, in rounds of SAMPLE_TOKENS."""
    size = BLOCK_TOKENS if is_raw else UNPACKED_BLOCK_TOKENS
    num_blocks = SAMPLE_TOKENS // size
    drawn = [
        (start, min(start + size, stop))
        for first, stop in ([(0, stream.num_tokens)] if is_raw else _some_shards(stream, rng))
        for start in _sample(rng, range(first, stop, size), MAX_ROUNDS * num_blocks)
    ]
    rng.shuffle(drawn)
    return [
        sorted(drawn[begin : begin + num_blocks])
        for begin in range(0, MAX_ROUNDS * num_blocks, num_blocks)
    ]


def _some_shards(stream: Stream, rng: random.Random) -> list[tuple[int, int]]:
    """The token ranges of a few random shards; large shards are likelier."""
    ends = list(itertools.accumulate(shard.num_tokens for shard in stream.shards))
    drawn = set(rng.choices(range(len(ends)), [s.num_tokens for s in stream.shards], k=NUM_SHARDS))
    return [(ends[number] - stream.shards[number].num_tokens, ends[number]) for number in drawn]


def _sample(rng: random.Random, population: range, most: int) -> list[int]:
    return rng.sample(population, min(most, len(population)))


def _starting_in_some(
    dataset: Dataset, stream: Stream, rounds: list[list[tuple[int, int]]]
) -> Spans:
    """The documents that start in blocks, of as many rounds as are needed."""
    assert dataset.eot_id is not None
    found: list[tuple[int, int]] = []
    for blocks in rounds:
        if len(found) < FEW_DOCUMENTS:
            for start, stop in blocks:
                found += _starting_in(stream, start, stop, str(dataset.eot), dataset.eot_id)
    spans = np.array(found, np.int64).reshape(-1, 2)
    return Spans(spans[:, 0], spans[:, 1], is_exact=False)


def _starting_in(
    stream: Stream, start: int, stop: int, eot: str, eot_id: int
) -> list[tuple[int, int]]:
    """The start and the length of the documents that start at a token from `start` to `stop`."""
    lead = 1 if eot == "append" and start else 0
    tokens = stream.tokens(start - lead, stop)
    found = np.flatnonzero(tokens == eot_id) - lead + start
    if eot == "append":
        starts = found + 1
    elif eot == "prepend":
        starts = found
    else:  # an EOT that follows text ends a document, the next one begins one
        is_text = np.flatnonzero(tokens != eot_id)
        first_text = start + int(is_text[0]) if len(is_text) and start else start
        later = found[found >= first_text]
        starts = later[1::2] if start else later[::2]
    if not start:
        starts = np.union1d(starts, [0])
    starts = starts[starts < stop]
    if not len(starts):
        return []
    last = int(starts[-1])
    lengths = [*np.diff(starts).tolist(), _end_of(stream, last, eot, eot_id) - last]
    return list(zip(starts.tolist(), lengths, strict=True))


def _end_of(stream: Stream, start: int, eot: str, eot_id: int) -> int:
    """Where the document that starts at `start` ends, or how far it was followed."""
    first = start + (eot != "append")
    position, step = first, BLOCK_TOKENS
    while position < min(stream.num_tokens, first + FOLLOW_TOKENS):
        found = np.flatnonzero(stream.tokens(position, position + step) == eot_id)
        if len(found):
            return position + int(found[0]) + (eot != "prepend")
        position, step = position + step, 2 * step
    return min(position, stream.num_tokens)
