"""Planning: reads every footer and schema, and cuts slices of about 32 MB of text.

It depends only on the inputs and the configuration, never on the number of workers. A wrong column
in file 900 fails here, in seconds, before a token is written.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokenmill.config import Config, of_source
from tokenmill.corpus.input_spans import Cut, InputCutter, cut_here
from tokenmill.corpus.plan import Plan
from tokenmill.corpus.readers import ReadOptions
from tokenmill.corpus.slices import SliceTable
from tokenmill.corpus.spans import Input, Slice, Span
from tokenmill.errors import ConfigError

if TYPE_CHECKING:
    from tokenmill.corpus.readers.kept_columns import KeptSchema


def make_plan(
    identity: dict[str, Any],
    inputs: Iterable[Input],
    config: Config,
    structure_of: Callable[[Input], Input] = lambda source: source,
    cutter: InputCutter = cut_here,
) -> Plan:
    """Cut the inputs into slices. Raises ConfigError or InputError for anything that is certain to
    fail.

    `structure_of` maps an input that is not downloaded yet to one that can already be cut.
    """
    inputs = tuple(inputs)
    kept = _kept_schema() if config.kept_columns else None
    slices = SliceTable.of(
        inputs, _numbered(_all_slices(inputs, config, structure_of, cutter, kept))
    )
    return Plan(identity, inputs, slices, kept_types=None if kept is None else kept.text)


def _all_slices(
    inputs: tuple[Input, ...],
    config: Config,
    structure_of: Callable[[Input], Input],
    cutter: InputCutter,
    kept: KeptSchema | None,
) -> Iterator[Slice]:
    """The slices of each source, in order, as many times as it is repeated. No slice has spans of
    two sources or of two copies, so what a slice counts belongs to one source."""
    left = None if config.limit_docs is None else _RowsLeft(config.limit_docs)
    by_source: dict[str, list[Input]] = collections.defaultdict(list)
    for source in inputs if config.named else ():
        by_source[source.source].append(source)
    for name, own in config.by_source().items():
        some = by_source[name] if name else inputs
        options = ReadOptions.of(own)
        copies = range(config.repeat_of(name))
        with of_source(name):
            if left is not None:
                for _ in copies:
                    spans = _limited(some, left, options, structure_of, cutter, kept)
                    yield from _slices(spans, config.slice_bytes)
                continue
            cuts = cutter((structure_of(s) for s in some), options, None)
            spans = _spans(some, cuts, kept)
            slices: Iterable[Slice] = _slices(spans, config.slice_bytes)
            slices = slices if len(copies) == 1 else list(slices)
            for _ in copies:
                yield from slices


def _numbered(slices: Iterable[Slice]) -> Iterator[Slice]:
    for index, slice_ in enumerate(slices):
        yield slice_ if slice_.index == index else dataclasses.replace(slice_, index=index)


def _kept_schema() -> KeptSchema:
    # It loads pyarrow, which a process that only plans need not wait for.
    from tokenmill.corpus.readers.kept_columns import KeptSchema

    return KeptSchema()


def num_slices_in(spans: Iterable[Span], slice_bytes: int) -> int:
    """How many slices these spans make."""
    return sum(1 for _ in _slices(spans, slice_bytes))


def _slices(spans: Iterable[Span], slice_bytes: int) -> Iterator[Slice]:
    held: list[Span] = []
    index = held_bytes = 0
    for span in spans:
        if held and held_bytes + span.text_bytes > slice_bytes:
            yield Slice(index, tuple(held))
            index, held, held_bytes = index + 1, [], 0
        held.append(span)
        held_bytes += span.text_bytes
    if held:
        yield Slice(index, tuple(held))


def _spans(inputs: Iterable[Input], cuts: Iterable[Cut], kept: KeptSchema | None) -> Iterator[Span]:
    for source, found in zip(inputs, cuts, strict=True):
        if kept is not None and found.kept_types is not None:
            kept.add(found.kept_types, source.name)
        for span in found.spans:
            yield dataclasses.replace(span, input=source)


@dataclass
class _RowsLeft:
    """How many rows --limit-docs still lets in."""

    num_rows: int


def _limited(
    inputs: Iterable[Input],
    left: _RowsLeft,
    options: ReadOptions,
    structure_of: Callable[[Input], Input],
    cutter: InputCutter,
    kept: KeptSchema | None,
) -> Iterator[Span]:
    """The spans of the first rows, as many as are left. Takes one input at a time and stops when it
    has enough."""
    for source in inputs:
        if not left.num_rows:
            return
        structure = structure_of(source)
        if options.is_choosy and structure != source:
            raise ConfigError(
                f"{source.name}: how many of its rows go in is known once it is downloaded, so "
                "--limit-docs cannot be applied to --where or --sample here",
                hint="--limit-tokens 100M in place of --limit-docs",
            )
        cuts = list(cutter([structure], options, left.num_rows))
        left.num_rows -= cuts[0].num_rows or 0
        yield from _spans([source], cuts, kept)
