"""Opens inputs for reading: a local file, or an object read in ranges.

While one input is read, the first bytes that the next ones need are prefetched: whole small objects
(`with_small_ahead`), footers of tables (`with_structure_ahead`).
"""

from __future__ import annotations

import collections
import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from tokenmill.corpus.spans import Input, Span
from tokenmill.errors import InputError, TokenmillError
from tokenmill.storage.objects import bucket
from tokenmill.storage.range_reader import (
    MAX_AHEAD_OBJECTS,
    MIN_READ_BYTES,
    SMALL_OBJECT_BYTES,
    ByteFile,
    Range,
    RangedFile,
)
from tokenmill.storage.store import store_of

Item = TypeVar("Item")


def ranged_file(source: Input) -> RangedFile | None:
    """The input, read in prefetched ranges; None if its path can be opened and mapped."""
    if store_of(source.path).is_local:
        return None
    fetch = functools.partial(bucket(source.path).fetch, source.path)
    key = (source.path, source.digest)
    return RangedFile(fetch, source.num_bytes, key, is_whole=True)


@contextlib.contextmanager
def opened(source: Input, expected: Iterable[Range] = ()) -> Iterator[ByteFile]:
    """The input's bytes. `expected` lists the ranges that will be read, in order."""
    ranged = ranged_file(source)
    if ranged is None:
        with open(source.path, "rb") as file:
            yield file
        return
    with contextlib.closing(ranged):
        ranged.expect(expected)
        yield ranged


def unreadable_input(source: Input, error: Exception) -> TokenmillError:
    """The error for an input that cannot be read; a network failure stays one."""
    if isinstance(error, TokenmillError):
        return error
    reason = getattr(error, "strerror", None) or error
    return InputError(f"{source.name}: cannot be read: {reason}")


def with_small_ahead(spans: Iterable[Span]) -> Iterator[Span]:
    """The spans. Small objects, which take one request each, are prefetched while an earlier span
    is processed."""
    return _with_edges_ahead(
        spans, lambda span: span.input, _whole_if_small, lambda span: not span.is_ruled_out
    )


def with_structure_ahead(sources: Iterable[Input]) -> Iterator[Input]:
    """The inputs. Footers or heads of the next ones are prefetched while one is processed."""
    return _with_edges_ahead(sources, lambda source: source, _structure_edge)


def _with_edges_ahead(
    items: Iterable[Item],
    input_of: Callable[[Item], Input],
    wanted: Callable[[Input], Range | None],
    is_read: Callable[[Item], bool] = lambda item: True,
) -> Iterator[Item]:
    waiting: collections.deque[Item] = collections.deque()
    for item in items:
        source = input_of(item)
        ranged = ranged_file(source) if is_read(item) else None
        edge = None if ranged is None else wanted(source)
        if ranged is not None and edge is not None:
            ranged.prefetch(*edge)
        waiting.append(item)
        if edge is None or len(waiting) > MAX_AHEAD_OBJECTS:
            yield waiting.popleft()
    yield from waiting


def _whole_if_small(source: Input) -> Range | None:
    return (0, source.num_bytes) if source.num_bytes <= SMALL_OBJECT_BYTES else None


def _structure_edge(source: Input) -> Range | None:
    """The range that describes the content: the end of a table, the beginning of a text."""
    if source.num_bytes <= SMALL_OBJECT_BYTES:
        return 0, source.num_bytes
    if source.kind == "parquet":
        return source.num_bytes - MIN_READ_BYTES, source.num_bytes
    return 0, SMALL_OBJECT_BYTES
