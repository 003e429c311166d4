"""The inputs of the corpus: the files of all sources, in order.

Refuses options that would have no effect on them, and notes text files that are one document each,
but were probably meant to be many.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import os
import shlex
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass

from tokenmill.config import Config, of_source
from tokenmill.corpus.hub_names import hub_source, local_note
from tokenmill.corpus.opening import opened
from tokenmill.corpus.readers import KINDS
from tokenmill.corpus.skipped import Skipped
from tokenmill.corpus.source_files import inputs_of
from tokenmill.corpus.spans import HUB_SCHEME, Input
from tokenmill.errors import ConfigError, TokenmillError
from tokenmill.storage.store import store_of
from tokenmill.wording.quantities import shown_bytes


@dataclass(frozen=True, slots=True)
class FoundInputs:
    """The corpus in order, and notes on how it was found."""

    inputs: tuple[Input, ...]
    notes: tuple[str, ...] = ()


def found_inputs(
    config: Config, hub_inputs: Iterable[Input] = (), hub_again: Iterable[str] = ()
) -> FoundInputs:
    """Every input of a run. `hub_inputs` are those on the Hub; `hub_again` names the ones that
    several sources named.

    Raises ConfigError for an option that applies to no input.
    """
    if config.named:
        return _found_by_source(config, list(hub_inputs), set(hub_again))
    found = _found(config, hub_inputs, hub_again)
    _require_applicable(config, {source.kind for source in found.inputs})
    return found


def _found(config: Config, hub_inputs: Iterable[Input], hub_again: Iterable[str]) -> FoundInputs:
    others = [source for source in config.sources if hub_source(source) is None]
    unread = Skipped(config.input_format)
    inputs = in_order([*inputs_of(others, config.input_format, unread), *hub_inputs])
    for name in hub_again:
        unread.add_again(name, name)
    notes = [*filter(None, map(local_note, others)), *unread.notes()]
    if config.separator is None:
        notes += notes_on_undivided(inputs)
    return FoundInputs(tuple(inputs), tuple(notes))


def _found_by_source(config: Config, hub_inputs: list[Input], hub_again: set[str]) -> FoundInputs:
    """The inputs of all named sources, in the order of the sources."""
    inputs: list[Input] = []
    notes: list[str] = []
    own_options = {source.name: dict(source.options) for source in config.named}
    for name, own in config.by_source().items():
        on_hub = [source for source in hub_inputs if source.source == name]
        with of_source(name):
            found = _found(own, on_hub, hub_again & {source.name for source in on_hub})
            _require_applicable(own, {source.kind for source in found.inputs}, own_options[name])
        inputs += [dataclasses.replace(source, source=name) for source in found.inputs]
        notes += [f"source {name}: {note}" for note in found.notes]
    _require_applicable(config, {source.kind for source in inputs})
    _require_val_apart(config, inputs)
    return FoundInputs(tuple(inputs), (*notes, *_notes_on_shared(inputs)))


def in_order(inputs: Iterable[Input]) -> list[Input]:
    """The order of the corpus: by the bytes of the inputs' names, independent of the locale."""
    return sorted(inputs, key=lambda source: os.fsencode(source.name))


def shared_inputs(inputs: Iterable[Input]) -> dict[str, list[str]]:
    """Files that several named sources have, and the names of these sources."""
    sources: dict[str, list[str]] = collections.defaultdict(list)
    for one in inputs:
        sources[one.name].append(one.source)
    return {name: names for name, names in sources.items() if len(names) > 1}


def _require_val_apart(config: Config, inputs: Iterable[Input]) -> None:
    """Refuse to hold out the first shard if another source has the same documents. Sources that
    read different columns, or have different --where, are taken to have different documents."""
    if config.val != "first-shard" or config.dedup is not None:
        return
    by_source = config.by_source()
    for path, names in shared_inputs(inputs).items():
        for one, other in itertools.combinations(map(by_source.__getitem__, names), 2):
            has_same_texts = (one.text_column, one.template) == (other.text_column, other.template)
            may_have_same_rows = None in (one.where, other.where) or one.where == other.where
            if has_same_texts and may_have_same_rows:
                raise ConfigError(
                    f"{path} belongs to the sources {' and '.join(names)}, so documents of the "
                    "first shard, the validation split, would also be in the training split",
                    hint="--val-fraction 0.0005 keeps all copies of a document in one split; "
                    "--dedup exact keeps one copy; or --no-val",
                )


def _notes_on_shared(inputs: Iterable[Input]) -> Iterator[str]:
    """A note on files of several sources, which may be a mistake: one folder within another."""
    shared = shared_inputs(inputs)
    for name, names in list(shared.items())[:1]:
        more = f", and {len(shared) - 1:,} more like it," if len(shared) > 1 else ""
        yield f"{name}{more} belongs to the sources {' and '.join(names)}: it is read for each"


# Options that apply to some kinds of input only.
_BY_KIND = ("separator", "text_column", "template", "lists")


def _require_applicable(config: Config, found: set[str], given: Container[str] = _BY_KIND) -> None:
    """Raise ConfigError for a given option that applies to none of the kinds of input found."""
    if found - set(KINDS) or not found:  # a plugin's reader may use any option
        return
    shown = " and ".join(sorted(found))
    is_separated = config.separator is not None and "separator" in given
    if is_separated and "text" not in found and config.lists != "join":
        raise ConfigError(
            f"--separator separates documents in text files, and these are {shown}",
            hint="leave out --separator: every row or line is a document",
        )
    for option, value in (("template", config.template), ("lists", config.lists)):
        if value is not None and option in given and found == {"text"}:
            raise ConfigError(
                f"--{option} is for columns and JSON fields, and these files are plain text",
                hint=f"leave out --{option}; for JSON lines: --input-format jsonl",
            )
    is_named = config.text_column != Config.text_column and "text_column" in given
    if is_named and found == {"text"}:
        raise ConfigError(
            f"--text-column {config.text_column} names a column or JSON field, and these files "
            "are plain text",
            hint="leave out --text-column; for JSON lines: --input-format jsonl",
        )


MARKERS = ("<|endoftext|>", "<|end_of_text|>")  # common separators of documents
LARGE_BYTES = 4_000_000  # more than nearly all books
_HEAD_BYTES = 1 << 16


def notes_on_undivided(inputs: Iterable[Input]) -> Iterator[str]:
    """At most one note on the text files of a source without --separator."""
    texts = [source for source in inputs if source.kind == "text"]
    plain = [source for source in texts if not source.compression and _is_near(source)]
    if plain:
        source = max(plain, key=_size)
        if marker := _marker_in(_head(source)):
            yield (
                f"{source.name} has {marker} in it, as text; without --separator the file is one "
                f"document: --separator {shlex.quote(marker)} makes a document of each piece"
            )
            return
    large = [source for source in texts if source.num_bytes >= LARGE_BYTES]
    if large:
        largest = max(large, key=_size)
        more = f", and so are {len(large) - 1:,} other large files" if len(large) > 1 else ""
        yield (
            f"{largest.name}, {shown_bytes(largest.num_bytes)}, is one document{more}: "
            r"--separator '\n\n' would make a document of each paragraph"
        )


def _is_near(source: Input) -> bool:
    """Whether reading its head costs nothing, or is worth a request."""
    if source.name.startswith(HUB_SCHEME):
        return False
    return store_of(source.path).is_local or source.num_bytes >= LARGE_BYTES


def _size(source: Input) -> int:
    return source.num_bytes


def _head(source: Input) -> bytes:
    head = b""
    with contextlib.suppress(OSError, TokenmillError), opened(source, [(0, _HEAD_BYTES)]) as file:
        head = file.read(min(_HEAD_BYTES, source.num_bytes))
    return head


def _marker_in(head: bytes) -> str | None:
    """The marker between the documents of a file, if it occurs more than once."""
    return next((marker for marker in MARKERS if head.count(marker.encode()) > 1), None)
