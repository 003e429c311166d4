"""The plan: inputs and configuration, frozen into a list of slices before any work begins.

Planning reads every footer and schema and cuts slices of about 32 MB of text. It depends only on
the inputs and the configuration, never on the number of workers. A wrong column in file 900 fails
here, in seconds, before a token is written.

Native code parses footers, and a crafted footer can kill the process that reads it. So the caller
chooses where `cut` runs: the processes runner runs it in its workers, which may die.

The plan is written once, as `plan.json`, and only read after that: a later attempt continues with
its slices if `differences` finds no change.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from tokenmill.config import Config, of_source
from tokenmill.corpus.opening import with_structure_ahead
from tokenmill.corpus.readers import Reader, ReadOptions, reader_for
from tokenmill.corpus.slices import SliceTable
from tokenmill.corpus.spans import Input, Slice, Span
from tokenmill.errors import ConfigError, ConflictError, DamagedWorkError
from tokenmill.storage import files
from tokenmill.storage.checked_json import checked_object, checksum_of, checksummed

if TYPE_CHECKING:
    from tokenmill.corpus.readers.kept_columns import KeptSchema

PLAN_VERSION = 2


@dataclass(frozen=True)
class Plan:
    identity: dict[str, Any]  # what determines the bytes: options, encoding, versions
    inputs: tuple[Input, ...]
    slices: SliceTable
    # Notes on how the corpus was found. Saved with the plan, so that every attempt and `finish` say
    # the same, but not part of `plan_id`, because they affect no byte.
    notes: tuple[str, ...] = ()
    # The commits that branches and tags of the Hub stood for when the run began. Every attempt
    # reads these. The names of the inputs have them too, so they are no part of `plan_id`, either.
    revisions: Mapping[str, str] = field(default_factory=dict)
    saved_id: str = field(default="", compare=False)  # the id in the loaded file
    # What each named source was given, for the manifest: affects no byte, either.
    source_paths: Mapping[str, Sequence[str]] = field(default_factory=dict)
    kept_types: str | None = None  # of the columns of --keep (corpus/readers/kept_columns.py)

    @property
    def text_bytes(self) -> int:
        return self.slices.text_bytes

    @functools.cached_property
    def plan_id(self) -> str:
        return self.saved_id or hashlib.sha256(self.to_json()).hexdigest()

    def to_json(self) -> bytes:
        """The bytes whose hash is the plan's id: everything except notes and revisions."""
        return json.dumps(self._to_plain(), sort_keys=True).encode()

    def create(self, path: str) -> bool:
        """Save the plan unless one exists; whether this plan was saved."""
        return files.create_file(path, self._checksummed())

    @staticmethod
    def load(path: str) -> Plan:
        try:
            data = files.read_file(path)
            plain = checked_object(data)
            if "converted_from" in plain:
                raise ConflictError(
                    f"{path} belongs to an unfinished conversion",
                    hint="run the same `tokenmill convert` again: it resumes; or use --overwrite",
                )
            if plain.get("tokenmill_plan") != PLAN_VERSION:
                raise ValueError(f"plan version {plain.get('tokenmill_plan')!r}")
            inputs = tuple(Input(*fields) for fields in plain["inputs"])
            slices = SliceTable.from_plain(inputs, plain["slices"])
            notes = tuple(str(note) for note in plain.get("notes", ()))
            revisions = {str(name): str(c) for name, c in plain.get("revisions", {}).items()}
            plan_id = str(plain.get("plan_id", checksum_of(data)))
            paths = {str(n): list(map(str, p)) for n, p in plain.get("source_paths", {}).items()}
            types = plain.get("kept_types")
            return Plan(plain["identity"], inputs, slices, notes, revisions, plan_id, paths, types)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            raise DamagedWorkError(
                f"{path} is not a plan that this version can read: {error!r}",
                hint="start again with --overwrite",
            ) from error

    def _to_plain(self) -> dict[str, Any]:
        return {
            "tokenmill_plan": PLAN_VERSION,
            "identity": self.identity,
            "inputs": [source.to_plain() for source in self.inputs],
            "slices": self.slices.to_plain(),
            **({} if self.kept_types is None else {"kept_types": self.kept_types}),
        }

    def _checksummed(self) -> bytes:
        beside = {"notes": self.notes, "revisions": self.revisions}
        beside |= {"source_paths": self.source_paths}
        beside = {name: value for name, value in beside.items() if value}
        if not beside:
            return checksummed(self.to_json())  # whose checksum is the plan's id
        plain = {**self._to_plain(), **beside, "plan_id": self.plan_id}
        return checksummed(json.dumps(plain, sort_keys=True).encode())


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
        """The result of `cut` for each input, in order; may draw a few inputs ahead."""


def cut(
    source: Input,
    options: ReadOptions,
    max_rows: int | None = None,
    alive: Callable[[], None] = lambda: None,
) -> Cut:
    """Cut one input into spans; with `max_rows`, only its first rows that go in.

    If the file does not state its number of rows, they are counted; `alive` is called meanwhile.
    """
    reader = reader_for(source.kind, options)
    spans = reader.spans(source)
    types = _kept_types_of(reader, source) if options.keep and spans else None
    if max_rows is None:
        return Cut(tuple(spans), None, types)
    limited: list[Span] = []
    left = max_rows
    for span in spans:
        found, last = span.num_rows, left
        if found is None or options.is_choosy:
            found, last = _reach(reader, span, left, alive)
        if found >= left:
            share = 1.0 if options.is_choosy else left / found
            text_bytes = max(1, int(span.text_bytes * share))
            limited.append(dataclasses.replace(span, max_rows=last, text_bytes=text_bytes))
            return Cut(tuple(limited), max_rows, types)
        left -= found
        limited.append(span)
    return Cut(tuple(limited), max_rows - left, types)


def _reach(reader: Reader, span: Span, wanted: int, alive: Callable[[], None]) -> tuple[int, int]:
    """How many rows of the span go in, up to `wanted`, and after how many rows that is."""
    found = 0
    for batch in reader.batches(span):
        alive()
        if found + len(batch.texts) >= wanted:
            return wanted, batch.first_row + int(batch.rows[wanted - found - 1]) + 1
        found += len(batch.texts)
    return found, 0


def cut_here(
    inputs: Iterable[Input], options: ReadOptions, max_rows: int | None = None
) -> Iterator[Cut]:
    """The InputCutter that works in this process."""
    return (cut(source, options, max_rows) for source in with_structure_ahead(inputs))


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
        options = read_options(own)
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


# Imported late: they load pyarrow, which a process that only plans need not wait for.


def _kept_schema() -> KeptSchema:
    from tokenmill.corpus.readers.kept_columns import KeptSchema

    return KeptSchema()


def _kept_types_of(reader: Reader, source: Input) -> str:
    from tokenmill.corpus.readers.kept_columns import kept_types_of

    return kept_types_of(reader, source)


def read_options(config: Config, plan: Plan | None = None) -> ReadOptions:
    """With a plan, also the columns to keep are read."""
    return ReadOptions(
        keep=config.kept_columns,
        kept_types=None if plan is None else plan.kept_types,
        text_column=config.text_column,
        separator=config.separator,
        template=config.template,
        lists=config.lists,
        replace_bad_text=config.on_bad_document == "replace",
        span_bytes=config.slice_bytes,
        where=config.where,
        sample=config.sample,
        seed=config.seed if config.sample is not None else 0,
    )


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


def notes_on(plan: Plan, num_rows: int) -> tuple[str, ...]:
    """Notes on the corpus, given the number of rows found in it."""
    options = plan.identity["options"]
    separator, limit = options["separator"], options["limit_docs"]
    if separator is None or (limit is not None and num_rows >= limit):
        return plan.notes
    texts = [source for source in plan.inputs if source.kind == "text"]
    if not texts:  # it joins the strings of lists
        return plan.notes
    other_rows = 0 if len(texts) == len(plan.inputs) else _num_rows_of_tables(plan)
    if other_rows is None or num_rows - other_rows > len(texts):
        return plan.notes
    if len(texts) == 1:
        return (*plan.notes, f"--separator {separator!r} divides nothing: the file is one document")
    note = f"--separator {separator!r} divides none of {len(texts):,} files: each is one document"
    return (*plan.notes, note)


def _num_rows_of_tables(plan: Plan) -> int | None:
    """The rows of inputs that are not plain text; None if one of them does not state its rows."""
    found = 0
    for slice_ in plan.slices:
        for span in slice_.spans:
            if span.input.kind != "text":
                if span.num_rows is None:
                    return None
                found += span.num_rows
    return found


def differences(old: Plan, identity: dict[str, Any], inputs: Iterable[Input]) -> list[str]:
    """The changes since the plan was made, one readable line each."""
    before = {source.label: _facts(source) for source in old.inputs}
    after = {source.label: _facts(source) for source in inputs}
    return identity_differences(old.identity, identity) + input_differences(before, after)


def _facts(source: Input) -> tuple[Any, ...]:
    """The facts that show whether an input has changed."""
    rest = (source.kind, source.compression, source.mtime_ns, source.origin)
    return source.num_bytes, source.digest, *rest


def identity_differences(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> list[str]:
    lines = []
    for key in sorted(old.keys() | new.keys()):
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            found = identity_differences(before, after, f"{prefix}{key}.")
            renamed = [line for line in found if line.startswith("encoding.name: ")]
            lines += renamed or found  # of another tokenizer, its name says it all
        elif before != after:
            lines.append(f"{prefix}{key}: was {before!r}, now {after!r}")
    return lines


def input_differences(
    before: Mapping[str, tuple[Any, ...]], after: Mapping[str, tuple[Any, ...]]
) -> list[str]:
    """The changes between two sets of inputs, by name: size, digest and other known facts."""
    lines = [f"input removed: {path}" for path in before if path not in after]
    lines += [f"input added: {path}" for path in after if path not in before]
    for path, then in before.items():
        now = after.get(path, then)
        if now != then:
            if now[0] != then[0]:
                what = f"was {then[0]:,} bytes, now {now[0]:,}"
            elif now[1] != then[1]:
                what = "same size, other content"
            else:
                what = "modified since (same size; its modification time changed)"
            lines.append(f"input changed: {path}: {what}")
    return lines
