"""Cuts one input into spans, which can be read independently.

Native code parses footers, and a crafted footer can kill the process that reads it. So the caller
chooses where `cut` runs: the processes runner runs it in its workers, which may die.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from tokenmill.corpus.opening import with_structure_ahead
from tokenmill.corpus.readers import Reader, ReadOptions, reader_for
from tokenmill.corpus.spans import Input, Span


@dataclass(frozen=True, slots=True)
class Cut:
    """The spans of an input, and their number of rows if requested."""

    spans: tuple[Span, ...]
    num_rows: int | None = None
    kept_types: str | None = None  # of the columns of --keep


class InputCutter(Protocol):
    def __call__(
        self, inputs: Iterable[Input], options: ReadOptions, max_rows: int | None
    ) -> Iterator[Cut]:
        """The result of `cut` for each input, in order; may take a few inputs in advance."""


def cut(
    source: Input,
    options: ReadOptions,
    max_rows: int | None = None,
    alive: Callable[[], None] = lambda: None,
) -> Cut:
    """Cut one input into spans; with `max_rows`, up to that many rows that --where and --sample let
    in.

    If the file does not state its number of rows, they are counted; `alive` is called meanwhile.
    """
    reader = reader_for(source.kind, options)
    spans = reader.spans(source)
    types = _kept_types(reader, source, options.keep) if options.keep and spans else None
    if max_rows is None:
        return Cut(tuple(spans), None, types)
    limited: list[Span] = []
    left = max_rows
    for span in spans:
        found, last = span.num_rows, left
        if found is None or options.filters_rows:
            found, last = _reach(reader, span, options, left, alive)
        if found >= left:
            share = 1.0 if options.filters_rows else left / found
            text_bytes = max(1, int(span.text_bytes * share))
            limited.append(dataclasses.replace(span, max_rows=last, text_bytes=text_bytes))
            return Cut(tuple(limited), max_rows, types)
        left -= found
        limited.append(span)
    return Cut(tuple(limited), max_rows - left, types)


def _reach(
    reader: Reader, span: Span, options: ReadOptions, wanted: int, alive: Callable[[], None]
) -> tuple[int, int]:
    """How many rows of the span go in, at most `wanted`, and how many rows that takes."""
    from tokenmill.corpus.rows import documents

    found = 0
    for rows in documents(reader, span, options):
        alive()
        if found + len(rows) >= wanted:
            return wanted, int(rows.numbers[wanted - found - 1]) + 1
        found += len(rows)
    return found, 0


def _kept_types(reader: Reader, source: Input, columns: tuple[str, ...]) -> str:
    # Imports pyarrow, which a process that only plans should not wait for.
    from tokenmill.corpus.columns import kept_types_of

    return kept_types_of(reader.schema(source), columns, source.name)


def cut_here(
    inputs: Iterable[Input], options: ReadOptions, max_rows: int | None = None
) -> Iterator[Cut]:
    """The InputCutter that works in this process."""
    return (cut(source, options, max_rows) for source in with_structure_ahead(inputs))
