"""Where in the shards each document of the corpus is.

Without a shuffle, documents are in the order of the slices. In a shuffled run a document's position
is the rank of its key (encode/documents.py) among all keys of its split: 20 bytes of memory per
document. Keys are numbered across the chunks of a part (encode/part.py); the manifest has the
chunks of parts with more than one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools

import numpy as np
import numpy.typing as npt

from tokenmill.dataset.dataset import Dataset
from tokenmill.dataset.manifest import Manifest
from tokenmill.dataset.stream import Stream
from tokenmill.dataset.verify.checks import Failure
from tokenmill.dataset.verify.source_corpus import Corpus, NotAtHand
from tokenmill.encode.documents import shuffle_keys
from tokenmill.encode.record import SPLITS
from tokenmill.errors import IntegrityError
from tokenmill.formats import DTYPE_BYTES
from tokenmill.wording.plural import counted

Numbers = npt.NDArray[np.int64]


class DocumentIndex:
    def __init__(self, dataset: Dataset, manifest: Manifest, corpus: Corpus) -> None:
        self._dataset = dataset
        self._files = {file.name: file for file in manifest.files}
        self._corpus = corpus
        self._one_stream = manifest.one_stream
        if self._one_stream is not None:
            first, second = self._one_stream
            before, after = manifest.splits.get(first), manifest.splits.get(second)
            if before and before.num_tail_tokens and after and after.num_tokens:
                raise NotAtHand(
                    f"a conversion left out the end of {first}, so nothing says where the "
                    f"documents of {second} begin"
                )
        # The split that documents were meant for: val, if a random choice put all of them there.
        self._origin = int(bool(self._one_stream) and any(manifest.slice_documents.get("val", ())))
        self.streams = self._streams(manifest)
        self.tails = [0, 0]
        for split, totals in manifest.splits.items():
            position = self._origin if self._one_stream else SPLITS.index(split)
            self.tails[position] += totals.num_tail_tokens
        counts = [manifest.slice_documents.get(split, []) for split in SPLITS]
        if {len(numbers) for numbers in counts} != {corpus.num_slices}:
            raise NotAtHand(
                f"the corpus is cut into {counted(corpus.num_slices, 'slice')} by this "
                f"version, and was cut into {len(counts[0]):,}"
            )
        self.slice_documents = counts
        self._before = [np.cumsum([0, *numbers], dtype=np.int64) for numbers in counts]
        self._chunks = manifest.slice_chunks
        self.is_shuffled = corpus.config.shuffle

    def number(self, split: int, slice_index: int, position: int) -> int:
        """The number, in the split's stream, of a slice's document number `position`."""
        number = int(self._before[split][slice_index]) + position
        return int(self._ranks[split][number]) if self.is_shuffled else number

    def origin(self, split: str, number: int, start: int) -> tuple[int, int, int]:
        """Where a document of a split comes from, whose first token is `start`: the split and the
        slice that it was encoded for, and its place among the slice's documents of that split."""
        position = SPLITS.index(split)
        if self._one_stream is not None:
            position, number = self._origin, self._number_in_stream(split, start)
        if self.is_shuffled:
            number = int(np.flatnonzero(self._ranks[position] == number)[0])
        before = self._before[position]
        index = int(np.searchsorted(before, number, "right")) - 1
        return position, index, number - int(before[index])

    def _number_in_stream(self, split: str, start: int) -> int:
        assert self._one_stream is not None
        first, second = self._one_stream
        if split == second and first in self._dataset.streams:
            start += self._dataset.streams[first].num_tokens
        stream = self.streams[self._origin]
        number = None if stream is None else stream.document_at(start)
        if number is None:
            raise NotAtHand("without EOT ids nothing says where documents begin")
        return number

    def require_known_documents(self) -> None:
        """Raise NotAtHand if nothing says where documents begin."""
        if all(stream is None or stream.knows_documents for stream in self.streams):
            return
        but = "" if self.is_shuffled else "; --full goes through them in order"
        raise NotAtHand(f"without EOT ids nothing says where documents begin{but}")

    def bounds(self, split: int) -> Numbers:
        """The starts of the documents in the split's stream, and the end of the last."""
        stream = self.streams[split]
        lengths = [np.zeros(1, np.int64)]
        for documents in stream.documents() if stream is not None else ():
            assert documents.lengths is not None, "knows_documents"
            lengths.append(documents.lengths.astype(np.int64))
        return np.cumsum(np.concatenate(lengths))

    def failure(self, split: int, token: int, message: str) -> Failure:
        """The failure for a wrong token of a split's stream."""
        stream = self.streams[split]
        if stream is None or not stream.shards:
            return Failure(SPLITS[split], message)
        shard, within = stream.shard_at(min(token, max(0, stream.num_tokens - 1)))
        own, first = next(
            (stream, position)
            for stream in self._dataset.streams.values()
            for position, one in enumerate(stream.shards)
            if one.name == shard.name
        )
        document = byte = None
        with contextlib.suppress(IntegrityError):  # a shard before it may be unreadable
            document = own.document_at(own.start_of(first) + within)
        if self._dataset.format.traits.is_raw:
            file, width = self._files[shard.name], DTYPE_BYTES[self._corpus.config.dtype]
            byte = file.num_bytes - (file.num_tokens - within) * width
        return Failure(shard.name, message, document, byte)

    def _streams(self, manifest: Manifest) -> list[Stream | None]:
        """The streams that slices go into: one for each split, or one that was cut in two."""
        found = self._dataset.streams
        if self._one_stream is None:
            return [found.get(split) for split in SPLITS]
        shards = [s for split in self._one_stream if split in found for s in found[split].shards]
        has_boundaries = any(stream.has_boundaries for stream in found.values())
        if has_boundaries and manifest.converted_from is not None:
            # A conversion stores the two pieces of a cut document separately; EOT ids show it
            # whole.
            has_boundaries = False
            shards = [dataclasses.replace(shard, num_documents=None) for shard in shards]
        eot, eot_id = self._dataset.eot, self._dataset.eot_id
        stream = Stream("train", shards, has_boundaries, eot, eot_id)
        return [None, stream] if self._origin else [stream, None]

    @functools.cached_property
    def _ranks(self) -> list[Numbers]:
        """Of the documents of each split, in the order of the corpus."""
        keys: list[list[npt.NDArray[np.uint32]]] = [[], []]
        for index, counts in enumerate(zip(*self.slice_documents, strict=True)):
            first = 0
            for chunk in self._chunks.get(str(index), [counts]):
                for split, count in enumerate(chunk):
                    own = self._corpus.index_of(index)
                    keys[split].append(shuffle_keys(self._corpus.config.seed, own, first, count))
                    first += count
        ranks = []
        for of_split in keys:
            order = np.argsort(np.concatenate([np.empty(0, np.uint32), *of_split]), kind="stable")
            rank = np.empty(len(order), np.int64)
            rank[order] = np.arange(len(order))
            ranks.append(rank)
        return ranks
