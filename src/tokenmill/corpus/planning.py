"""Planning: reads every footer and schema, and cuts slices of about 32 MB of text.

The result depends only on the inputs and the configuration, never on the number of workers. A wrong
column in file 900 fails here, in seconds, before a token is written.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
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
    from tokenmill.corpus.columns import KeptSchema


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
    kept: KeptSchema | None = None
    if config.kept_columns:
        # Imports pyarrow, which a process that only plans should not wait for.
        from tokenmill.corpus.columns import KeptSchema

        kept = KeptSchema()
    cutting = _Cutting(structure_of, cutter, kept)
    slices = SliceTable.of(inputs, _numbered(_all_slices(inputs, config, cutting)))
    return Plan(identity, inputs, slices, kept_types=None if kept is None else kept.text)


def _all_slices(inputs: tuple[Input, ...], config: Config, cutting: _Cutting) -> Iterator[Slice]:
    """The slices of each source, in order, as many times as it is repeated. No slice has spans of
    two sources or two copies, so its counts belong to one source."""
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
                    spans = cutting.limited_spans(some, options, left)
                    yield from _slices(spans, config.slice_bytes)
                continue
            slices: Iterable[Slice] = _slices(cutting.spans(some, options), config.slice_bytes)
            slices = slices if len(copies) == 1 else list(slices)
            for _ in copies:
                yield from slices


def _numbered(slices: Iterable[Slice]) -> Iterator[Slice]:
    for index, slice_ in enumerate(slices):
        yield slice_ if slice_.index == index else dataclasses.replace(slice_, index=index)


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


@dataclass
class _RowsLeft:
    """How many rows --limit-docs still lets in."""

    num_rows: int


@dataclass(frozen=True, slots=True)
class _Cutting:
    """Cuts inputs into spans, and adds the types of their kept columns to `kept`."""

    structure_of: Callable[[Input], Input]
    cutter: InputCutter
    kept: KeptSchema | None

    def spans(self, inputs: Sequence[Input], options: ReadOptions) -> Iterator[Span]:
        cuts = self.cutter(map(self.structure_of, inputs), options, None)
        return self._noted(inputs, cuts)

    def limited_spans(
        self, inputs: Iterable[Input], options: ReadOptions, left: _RowsLeft
    ) -> Iterator[Span]:
        """The spans of the first rows, as many as are left. Cuts one input at a time, and stops
        when it has enough."""
        for source in inputs:
            if not left.num_rows:
                return
            structure = self.structure_of(source)
            if options.filters_rows and structure != source:
                raise ConfigError(
                    f"{source.name}: --limit-docs counts the rows that --where or --sample let in, "
                    "which are unknown until the file is downloaded",
                    hint="--limit-tokens 100M instead of --limit-docs",
                )
            cuts = list(self.cutter([structure], options, left.num_rows))
            left.num_rows -= cuts[0].num_rows or 0
            yield from self._noted([source], cuts)

    def _noted(self, inputs: Iterable[Input], cuts: Iterable[Cut]) -> Iterator[Span]:
        for source, found in zip(inputs, cuts, strict=True):
            if self.kept is not None and found.kept_types is not None:
                self.kept.add(found.kept_types, source.name)
            for span in found.spans:
                yield dataclasses.replace(span, input=source)
