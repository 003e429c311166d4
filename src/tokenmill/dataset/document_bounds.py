"""The document index: where documents of a split begin and end, by number and by token.

    units      a split is cut into units: a shard whose format stores document boundaries, or a
               stretch of up to 16M tokens that is searched for EOT ids (the manifest's marks)
    ends       of a unit's documents, found when first needed; the last 64 MB stay in memory, and
               what took long to find goes into the cache on disk (index_cache.py)
    counts     of ends in each unit. The manifest has them; without one, all units are scanned

If the split was cut inside a document, that document has no EOT id and is the last one.
"""

from __future__ import annotations

import collections
import functools
import itertools
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.dataset.index_cache import IndexCache
from tokenmill.dataset.open_shards import OpenShards
from tokenmill.dataset.stream import Stream
from tokenmill.errors import ConfigError, IntegrityError
from tokenmill.runners.machine import available_cpus
from tokenmill.runners.threads import in_threads

UNIT_TOKENS = 16 << 20
MAX_KEPT_BYTES = 64 << 20
MIN_CACHED_TOKENS = 1 << 20  # scanning a smaller unit is faster than opening a file
READ_TOKENS = 4 << 20

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Unit:
    shard: int
    start: int  # in tokens of the shard
    stop: int
    num_marks: int | None  # ends or EOT ids, if the manifest says how many


class DocumentBounds:
    """`key` identifies the dataset's content for the cache; None: nothing is cached."""

    def __init__(
        self, stream: Stream, shards: OpenShards, cache: IndexCache | None = None, key: Any = None
    ) -> None:
        if not stream.knows_documents:
            raise ConfigError(
                f"nothing says where the documents of {stream.split} end",
                hint="name the tokenizer that made the tokens: tokenizer='gpt2'; if the tokens "
                "have no EOT ids, only .tokens() and .blocks() can be used",
            )
        self._stream = stream
        self._shards = shards
        self._cache = cache if key is not None else None
        self._key = key
        self._units = list(_units(stream))
        self._starts = np.array(
            [stream.start_of(unit.shard) + unit.start for unit in self._units], np.int64
        )
        self._kept: collections.OrderedDict[int, Numbers] = collections.OrderedDict()
        self._num_kept_bytes = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return int(self._before[-1]) + self._has_tail

    def bounds(self, number: int) -> tuple[int, int]:
        """The first token of a document, and the end."""
        return 0 if number == 0 else self._end(number - 1), self._end(number)

    def numbers_at(self, tokens: Numbers) -> Numbers:
        """The number of the document that holds each token."""
        units = np.searchsorted(self._starts, tokens, "right") - 1
        found = np.empty(len(tokens), np.int64)
        for unit in sorted(set(units.tolist())):
            those = units == unit
            within = np.searchsorted(self._ends(unit), tokens[those] - self._starts[unit], "right")
            found[those] = self._before[unit] + within
        return found

    def ends_between(self, start: int, stop: int) -> Numbers:
        """Where documents end after token `start` and up to `stop`."""
        first = max(0, int(np.searchsorted(self._starts, start, "right")) - 1)
        last = int(np.searchsorted(self._starts, stop, "right"))
        found = [self._ends(unit) + self._starts[unit] for unit in range(first, last)]
        ends = np.concatenate([np.empty(0, np.int64), *found])
        return ends[np.searchsorted(ends, start, "right") : np.searchsorted(ends, stop, "right")]

    def all_ends(self) -> Iterator[Numbers]:
        """Where documents end, in order, one unit at a time."""
        for unit in range(len(self._units)):
            yield self._ends(unit) + self._starts[unit]
        if self._has_tail:
            yield np.array([self._stream.num_tokens])

    def _end(self, number: int) -> int:
        if number == self._before[-1]:
            return self._stream.num_tokens
        unit = int(np.searchsorted(self._before, number, "right")) - 1
        return int(self._starts[unit] + self._ends(unit)[number - self._before[unit]])

    @functools.cached_property
    def _has_tail(self) -> int:
        """1 if the last document has no end of its own, else 0."""
        stream = self._stream
        if not stream.num_tokens or stream.has_boundaries:
            return 0
        if stream.eot == "prepend":
            return 1
        if stream.eot == "append":
            return int(self._last_token() != stream.eot_id)
        total = int(self._before[-1])
        return int(not total or self._end(total - 1) < stream.num_tokens)

    def _last_token(self) -> int:
        filled = [number for number, shard in enumerate(self._stream.shards) if shard.num_tokens]
        end = self._stream.shards[filled[-1]].num_tokens
        return int(self._shards.tokens(filled[-1], end - 1, end)[0])

    @functools.cached_property
    def _num_marks(self) -> Numbers:
        known = [unit.num_marks for unit in self._units]
        unknown = [position for position, count in enumerate(known) if count is None]
        counts = in_threads(lambda unit: len(self._marks(unit)), unknown, available_cpus())
        for position, count in zip(unknown, counts, strict=True):
            known[position] = count
        return np.array(known, np.int64)

    @functools.cached_property
    def _before(self) -> Numbers:
        """The number of documents that end before each unit, and the total."""
        marks, stream = self._num_marks, self._stream
        total = np.concatenate([[0], np.cumsum(marks, dtype=np.int64)])
        if stream.has_boundaries:
            return total
        if stream.eot == "both":
            return (total + stream.has_lead()) // 2
        if stream.eot == "prepend" and stream.num_tokens and not stream.has_lead():
            total[1:] -= 1
        return total

    def _ends(self, unit: int) -> Numbers:
        """The ends in a unit, in tokens from its start."""
        marks, eot = self._marks(unit), self._stream.eot
        if self._stream.has_boundaries or eot == "append":
            return marks
        if eot == "prepend":
            return marks[1:] if self._starts[unit] == 0 and len(marks) and not marks[0] else marks
        before = int(self._num_marks[:unit].sum())
        return marks[(before + 1 + self._stream.has_lead()) % 2 :: 2]

    def _marks(self, unit: int) -> Numbers:
        """The ends that the format stores, or the positions after EOT ids (prepend: of EOT ids)."""
        with self._lock:
            if unit in self._kept:
                self._kept.move_to_end(unit)
                return self._kept[unit]
        found = self._cached(unit)
        with self._lock:
            if unit not in self._kept:
                self._num_kept_bytes += found.nbytes
            self._kept[unit] = found
            while self._num_kept_bytes > MAX_KEPT_BYTES and len(self._kept) > 1:
                self._num_kept_bytes -= self._kept.popitem(last=False)[1].nbytes
        return found

    def _cached(self, unit: int) -> Numbers:
        one = self._units[unit]
        if self._cache is None or one.stop - one.start < MIN_CACHED_TOKENS:
            return self._found(one)
        stream = self._stream
        eot = None if stream.has_boundaries else [stream.eot == "prepend", stream.eot_id]
        name = stream.shards[one.shard].name
        key = [1, self._key, name, one.start, one.stop, eot]
        found = self._cache.get(key)
        if found is None:
            found = self._found(one)
            self._cache.put(key, found)
        return found

    def _found(self, unit: _Unit) -> Numbers:
        stream = self._stream
        if stream.has_boundaries:
            found = self._shards.ends(unit.shard)
        else:
            shift = 0 if stream.eot == "prepend" else 1
            found = np.concatenate([np.empty(0, np.int64), *self._eots(unit)]) + shift
        if unit.num_marks is not None and unit.num_marks != len(found):
            what = "documents" if stream.has_boundaries else "EOT ids"
            raise IntegrityError(
                f"{stream.shards[unit.shard].name}: tokens {unit.start:,} to {unit.stop:,} hold "
                f"{len(found):,} {what}, but should hold {unit.num_marks:,}"
            )
        return found

    def _eots(self, unit: _Unit) -> Iterator[Numbers]:
        for start in range(unit.start, unit.stop, READ_TOKENS):
            stop = min(start + READ_TOKENS, unit.stop)
            tokens = self._shards.tokens(unit.shard, start, stop)
            yield np.flatnonzero(tokens == self._stream.eot_id) + (start - unit.start)


def _units(stream: Stream) -> Iterator[_Unit]:
    for position, shard in enumerate(stream.shards):
        num_documents = shard.num_documents
        if stream.has_boundaries:
            yield _Unit(position, 0, shard.num_tokens, num_documents)
        elif num_documents is not None and stream.eot != "both":
            marks = sorted({(0, 0), *shard.marks, (num_documents, shard.num_tokens)})
            for (before, start), (after, stop) in itertools.pairwise(marks):
                if stop > start:
                    yield _Unit(position, start, stop, after - before)
        else:
            for start in range(0, shard.num_tokens, UNIT_TOKENS):
                stop = min(start + UNIT_TOKENS, shard.num_tokens)
                yield _Unit(position, start, stop, None)
