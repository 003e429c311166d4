"""Finds the inputs that a dataset was made from, by their contents.

Names only help: they choose between files of the same contents, and distinguish a changed input
from a missing one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tokenmill.corpus.hub_inputs import input_of
from tokenmill.corpus.hub_names import SCHEME, HubSource
from tokenmill.corpus.source_files import inputs_of
from tokenmill.corpus.spans import Input
from tokenmill.dataset.manifest import ManifestInput
from tokenmill.errors import ConfigError, InputError
from tokenmill.storage.store import store_of

_MOVED = "--source DIR: a folder that holds the inputs now"
CHANGED = (
    "--source DIR: a folder that holds the inputs as they were; "
    "to make the dataset from what they are now: `tokenmill prepare` with --overwrite"
)


class NotAtHand(Exception):
    """An input or the tokenizer is missing, so documents cannot be encoded again. The message says
    what is missing, the hint what to type."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class _Lost:
    """An input that is missing or changed."""

    what: str
    hint: str


def located_inputs(
    entries: Iterable[ManifestInput],
    sources: Sequence[str],
    input_formats: Mapping[str, str | None],
) -> list[Input]:
    """Every input, in order, at its old path or among `sources`. `input_formats` are those of the
    named sources, or of "". Raises NotAtHand, which describes the first missing or changed
    input."""
    entries = list(entries)
    formats = [input_formats.get(entry.source) for entry in entries]
    found: dict[str, Input] = {}
    for input_format in dict.fromkeys(formats):
        own = [one for one, its in zip(entries, formats, strict=True) if its == input_format]
        if sources:
            here = _among(own, sources, input_format, len(set(formats)) > 1)
        else:
            here = _kept(own, input_format)
        found |= {one.label: one for one in here}
    return [found[entry.label] for entry in entries]


def _not_at_hand(first: _Lost, num_lost: int, num_inputs: int) -> NotAtHand:
    more = f", and {num_lost - 1:,} more of {num_inputs:,} inputs are not as they were"
    return NotAtHand(first.what + (more if num_lost > 1 else ""), first.hint)


# At their old paths


def _kept(entries: list[ManifestInput], input_format: str | None) -> list[Input]:
    here = [_where_it_was(entry, input_format) for entry in entries]
    if lost := [one for one in here if isinstance(one, _Lost)]:
        raise _not_at_hand(lost[0], len(lost), len(entries))
    return [one for one in here if isinstance(one, Input)]


def _where_it_was(entry: ManifestInput, input_format: str | None) -> Input | _Lost:
    if entry.path.startswith(SCHEME):
        return _in_cache(entry, input_format)
    if store_of(entry.path).has_quick_calls and not os.path.lexists(entry.path):
        return _Lost(f"{entry.path} was not found where it was", _MOVED)
    try:
        [here] = inputs_of([entry.path], input_format)
    except (InputError, ConfigError) as error:
        return _Lost(error.message, _MOVED)
    except ValueError:  # now a folder
        return _Lost(f"{entry.path} is no longer a file", _MOVED)
    return _unchanged(here, entry) or _changed(here, entry)


def _in_cache(entry: ManifestInput, input_format: str | None) -> Input | _Lost:
    """A file from the Hub, if the cache still has it. Fetches nothing."""
    from tokenmill.storage.hub import Hub, HubFile

    try:
        source = HubSource.parsed(entry.path)
        hub = Hub(lambda message: None)
        file = HubFile(source.repo, source.revision, source.pattern, entry.num_bytes, entry.digest)
        if hub.path(file) is None:
            fetch = f"{source.download_command}, then --source DIR"
            return _Lost(f"{entry.path} was not found in the cache of the Hub", fetch)
        here = input_of(hub, file, input_format)
    except ConfigError as error:
        return _Lost(error.message, error.hint or _MOVED)
    return _unchanged(here, entry) or _changed(here, entry)


# Among the sources that the user names


def _listed(
    sources: Sequence[str], input_format: str | None, is_one_of_several: bool
) -> list[Input]:
    """The files in `sources`. If inputs have several formats, each need not be in every source."""
    if not is_one_of_several:
        return inputs_of(sources, input_format)
    found: dict[str, Input] = {}
    for source in sources:
        with contextlib.suppress(InputError, ConfigError):
            found |= {one.path: one for one in inputs_of([source], input_format)}
    return list(found.values())


def _among(
    entries: list[ManifestInput],
    sources: Sequence[str],
    input_format: str | None,
    is_one_of_several: bool,
) -> list[Input]:
    try:
        listing = _Listing(_listed(sources, input_format, is_one_of_several))
    except (InputError, ConfigError) as error:
        raise NotAtHand(error.message, error.hint or _MOVED) from None
    pairs = [(entry, listing.same(entry)) for entry in entries]
    found = [_as_it_was(here, entry) for entry, here in pairs if here is not None]
    if lost := [entry for entry, here in pairs if here is None]:
        taken = {one.path for one in found}
        first = listing.lost(lost[0], taken, ", ".join(sources))
        raise _not_at_hand(first, len(lost), len(entries))
    return found


class _Listing:
    """Files by their contents and by their names."""

    def __init__(self, inputs: list[Input]) -> None:
        self._by_size: dict[int, list[Input]] = defaultdict(list)
        self._by_name: dict[str, list[Input]] = defaultdict(list)
        self._by_digest: dict[tuple[int, str], dict[str, list[Input]]] = {}
        for one in inputs:
            self._by_size[one.num_bytes].append(one)
            self._by_name[_name(one.path)].append(one)

    def same(self, entry: ManifestInput) -> Input | None:
        """The file with these contents; of several, the one with the most similar path."""
        key = entry.num_bytes, _algorithm(entry.digest)
        if key not in self._by_digest:
            self._by_digest[key] = defaultdict(list)
            for one in self._by_size.get(entry.num_bytes, ()):
                self._by_digest[key][_digest(one, key[1])].append(one)
        return _most_like(entry, self._by_digest[key].get(entry.digest, ()))

    def lost(self, entry: ManifestInput, taken: set[str], where: str) -> _Lost:
        """What happened to an input whose contents were not found."""
        named = [one for one in self._by_name.get(_name(entry.path), ()) if one.path not in taken]
        namesake = _most_like(entry, named)
        if namesake is None:
            return _Lost(f"{entry.path} was not found at {where}", _MOVED)
        return _changed(namesake, entry)


# Contents


def _unchanged(here: Input, entry: ManifestInput) -> Input | None:
    is_same = here.num_bytes == entry.num_bytes
    if not is_same or _digest(here, _algorithm(entry.digest)) != entry.digest:
        return None
    return _as_it_was(here, entry)


def _as_it_was(here: Input, entry: ManifestInput) -> Input:
    return dataclasses.replace(here, digest=entry.digest, origin=entry.path, source=entry.source)


def _changed(here: Input, entry: ManifestInput) -> _Lost:
    """What happened to an input whose name this file has."""
    name = entry.path if here.path == entry.path else f"{here.path} (then {entry.path})"
    if here.num_bytes != entry.num_bytes:
        sizes = f"it has {here.num_bytes:,} bytes, and had {entry.num_bytes:,}"
        return _Lost(f"{name} has changed since it was read: {sizes}", CHANGED)
    if _digest(here, algorithm := _algorithm(entry.digest)):
        how = "it has another tag" if algorithm == "tag" else "the same size, but other bytes"
        return _Lost(f"{name} has changed since it was read: {how}", CHANGED)
    if algorithm == "tag":
        what = f"{here.path} cannot be compared with {entry.path}, known by its store's tag alone"
        return _Lost(what, f"--source {entry.path.rpartition('/')[0]}")
    what = f"{here.path}, known by its store's tag alone, cannot be compared with {entry.path}"
    return _Lost(what, "--source DIR: a folder with copies of the objects")


def _algorithm(digest: str) -> str:
    """The kind of a digest: "" for the ends of a file, else the hash or tag that it names."""
    name, colon, _ = digest.partition(":")
    return name if colon else ""


def _digest(here: Input, algorithm: str) -> str:
    """A file's digest of that kind; "" if it has none."""
    if _algorithm(here.digest) == algorithm and here.origin is None:
        return here.digest
    if here.has_tag or algorithm in ("", "tag"):
        return ""
    from tokenmill.storage.hub import digest_of

    return digest_of(here.path, algorithm)


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _most_like(entry: ManifestInput, candidates: Iterable[Input]) -> Input | None:
    return max(candidates, key=lambda one: _likeness(one.path, entry.path), default=None)


def _likeness(path: str, other: str) -> int:
    """How many names two paths have in common at their ends."""
    pairs = zip(reversed(path.split("/")), reversed(other.split("/")), strict=False)
    return len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))
