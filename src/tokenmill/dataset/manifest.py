"""The manifest: the proof of a finished run, `tokenmill.json`, written last.

It names every file with size, sha256, tokens and documents, accounts for every input row, and holds
nothing that depends on time, machine or worker count: the same run has the same manifest. A folder
without one is not a dataset. A manifest may come from anyone, so no name in it is trusted. Its own
sha256 protects against accidents and edits by hand, not against attackers. new_manifest.py makes
one.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

from tokenmill.dataset.notes import notes_on
from tokenmill.dataset.places import POINTER_NAME, dataset_folder
from tokenmill.dataset.source_totals import SourceSplit, SourceTotals
from tokenmill.encode.record import SPLITS, Counts
from tokenmill.errors import IntegrityError, TokenmillError
from tokenmill.formats import Files
from tokenmill.storage.store import store_of
from tokenmill.wording.plural import counted

MANIFEST_NAME = POINTER_NAME
QUARANTINE_NAME = "tokenmill-quarantine.jsonl"
MANIFEST_VERSION = 1
SPLIT_RULES = ("documents", "tokens", "first-shard", "none")
MAX_QUOTED = 200  # characters of what a broken manifest holds
_RESTORE = "restore the original, or prepare the dataset again"
MAX_MANIFEST_BYTES = 1 << 30  # parsed whole; 10 million slices take a tenth of it


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A file of the dataset; a shard if it has a split. `num_documents` counts its documents, or
    its EOT ids where documents may be cut; None if neither is known."""

    name: str
    split: str | None
    num_tokens: int
    num_documents: int | None
    num_bytes: int
    sha256: str | tuple[str, ...]  # one per piece (hashing.PIECE_BYTES) of a larger file
    marks: tuple[tuple[int, int], ...] = ()  # (EOT ids before, token), every 16M tokens

    @property
    def first_sha256(self) -> str:
        """The sha256 of the file or of its first piece: enough to identify the file."""
        return self.sha256 if isinstance(self.sha256, str) else self.sha256[0]


@dataclass(frozen=True, slots=True)
class ManifestInput:
    path: str
    num_bytes: int
    digest: str
    source: str = ""  # the named source that it belongs to

    @property
    def label(self) -> str:
        return f"{self.source}={self.path}" if self.source else self.path

    def to_plain(self) -> dict[str, Any]:
        plain = asdict(self)
        if not self.source:
            del plain["source"]
        return plain


@dataclass(frozen=True, slots=True)
class SplitTotals:
    num_tokens: int
    num_documents: int
    num_tail_tokens: int = 0  # left out because they do not fill a sample
    num_tail_eot: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class Manifest:
    """The content of `tokenmill.json`: what was made, from what, how, and its totals."""

    identity: dict[str, Any]  # options, encoding and versions: what determines the bytes
    inputs: tuple[ManifestInput, ...]
    files: tuple[OutputFile, ...]
    splits: dict[str, SplitTotals]
    counts: Counts
    # The number of documents from each slice in each split: it tells where a document came from.
    slice_documents: dict[str, list[int]] = field(default_factory=dict)
    # The same by chunk of a part, of slices whose part has several (encode/part.py), if documents
    # were shuffled and some held out: the shuffle's keys depend on it.
    slice_chunks: dict[str, list[list[int]]] = field(default_factory=dict)
    converted_from: dict[str, Any] | None = None  # the format and the sha256 of its manifest
    # How validation data was chosen: documents, tokens (the last ones), first-shard, or none.
    split_rule: str = "none"
    # The commits that branches and tags of the Hub stood for, by OWNER/NAME@REVISION.
    revisions: dict[str, str] = field(default_factory=dict)
    sources: dict[str, SourceTotals] = field(default_factory=dict)  # by name, if they have names
    # A hash of the rows of each slice, CONTENT_DIGITS each, if it has local inputs whose digest
    # does not cover all bytes; "" if no slice has any (modified_inputs.py).
    content: str = ""
    last_document: str = ""  # where --limit-tokens ended the run; empty if it was not reached

    def __repr__(self) -> str:
        """One line for a prompt or a notebook: the full manifest may hold millions of numbers."""
        options = self.identity["options"]
        splits = ", ".join(f"{name} {split.num_tokens:,}" for name, split in self.splits.items())
        return (
            f"<Manifest: {self.num_tokens:,} tokens ({splits}) of {self.num_documents:,} documents "
            f"in {counted(len(self.shards), 'shard')}, {self.identity['encoding']['name']} "
            f"{options['dtype']}, format {options['format']}>"
        )

    @property
    def shards(self) -> tuple[OutputFile, ...]:
        """All shards, each split's in the order in which a trainer reads them."""
        return tuple(file for file in self.files if file.split is not None)

    @property
    def one_stream(self) -> tuple[str, str] | None:
        """The splits in order, if they are one stream that was cut at a token; None if every
        document belongs to one split as a whole."""
        return {"first-shard": ("val", "train"), "tokens": ("train", "val")}.get(self.split_rule)

    @property
    def num_tokens(self) -> int:
        return sum(split.num_tokens for split in self.splits.values())

    @property
    def num_documents(self) -> int:
        return self.counts.num_written

    @property
    def num_bytes(self) -> int:
        return sum(file.num_bytes for file in self.files)

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know before training on this. A note may have a second line: a command."""
        return tuple(notes_on(self))

    def to_plain(self) -> dict[str, Any]:
        plain = asdict(replace(self, slice_documents={}))  # it may hold millions of numbers
        plain["counts"] = self.counts.to_plain()
        plain["slice_documents"] = {name: list(n) for name, n in self.slice_documents.items()}
        plain["inputs"] = [source.to_plain() for source in self.inputs]
        plain["sources"] = {name: totals.to_plain() for name, totals in self.sources.items()}
        for name in ("slice_chunks", "revisions", "sources", "content", "last_document"):
            if not plain[name]:
                del plain[name]
        return {"tokenmill_manifest": MANIFEST_VERSION, **plain}

    def to_json(self) -> bytes:
        plain = self.to_plain()
        return laid_out({**plain, "sha256": manifest_sha256_of(plain)})

    @staticmethod
    def load(folder: str) -> Manifest:
        """The manifest of a finished run. Raises IntegrityError if it is missing, broken or was
        changed since it was written."""
        path = os.path.join(dataset_folder(folder), MANIFEST_NAME)
        try:
            # Opening a pipe would wait for its other end.
            found = store_of(path).stat(path)
            if found is not None and not found.is_file:
                raise IntegrityError(f"{path} is not a manifest: not a regular file")
            _require_small(found.num_bytes if found is not None else 0, path)
            data = store_of(path).read(path)
        except FileNotFoundError:
            raise IntegrityError(
                f"{folder} is not a finished dataset: it has no {MANIFEST_NAME}",
                hint="run the `tokenmill prepare` command again: it resumes",
            ) from None
        except TokenmillError:
            raise
        except OSError as error:
            raise IntegrityError(f"cannot read {path}: {error.strerror}") from error
        return Manifest.checked(data, path)

    @staticmethod
    def checked(data: bytes, path: str) -> Manifest:
        """The manifest in a file's bytes. Raises IntegrityError like `load`, naming `path`."""
        plain, manifest = Manifest.parsed(data, path)
        if "sha256" in plain and plain["sha256"] != manifest_sha256_of(plain):
            raise IntegrityError(
                f"{path} was changed since it was written: its own sha256 does not match",
                hint=_RESTORE,
            )
        return manifest

    @staticmethod
    def parsed(data: bytes, path: str) -> tuple[dict[str, Any], Manifest]:
        """The manifest as plain data and as parsed, without the check of its sha256."""
        try:
            plain = json.loads(data)
            return plain, Manifest.from_plain(plain)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise not_a_manifest(path, error) from error

    @staticmethod
    def from_plain(plain: dict[str, Any]) -> Manifest:
        """Raises ValueError, KeyError or TypeError for anything that is not a manifest."""
        if plain.get("tokenmill_manifest") != MANIFEST_VERSION:
            raise ValueError(f"manifest version {plain.get('tokenmill_manifest')!r}")
        # A field with a damaged name must not count as a missing field.
        if unknown := plain.keys() - Manifest.__slots__ - {"tokenmill_manifest", "sha256"}:
            raise ValueError(f"unknown field {min(unknown)!r}")
        identity = plain["identity"]
        if not all(isinstance(identity[k], dict) for k in ("options", "encoding", "versions")):
            raise TypeError("identity")
        origin = plain.get("converted_from")
        if origin is not None and not isinstance(origin, dict):
            raise TypeError("converted_from")
        return Manifest(
            identity,
            tuple(_checked(ManifestInput(**source)) for source in plain["inputs"]),
            tuple(_output_file(file) for file in plain["files"]),
            {_split(name): _checked(SplitTotals(**s)) for name, s in plain["splits"].items()},
            _checked(Counts(**plain["counts"])),
            {
                _split(name): [_checked_count(n, name) for n in numbers]
                for name, numbers in plain["slice_documents"].items()
            },
            _slice_chunks(plain.get("slice_chunks", {})),
            origin,
            _split_rule(plain["split_rule"]),
            {_string(name): _string(c) for name, c in plain.get("revisions", {}).items()},
            _sources(plain.get("sources", {}), identity["options"]),
            _string(plain.get("content", "")),
            _string(plain.get("last_document", "")),
        )


def not_a_manifest(path: str, error: Exception) -> IntegrityError:
    """Shortened: errors quote what they found, a UnicodeDecodeError the whole file."""
    found = str(error) if isinstance(error, UnicodeDecodeError) else repr(error)
    found = found if len(found) <= MAX_QUOTED else f"{found[:MAX_QUOTED]}..."
    return IntegrityError(f"{path} is not a manifest: {found}", hint=_RESTORE)


def manifest_data(dataset: Files) -> bytes:
    """The bytes of a dataset's manifest. Raises IntegrityError if the file cannot be one."""
    path = dataset.path_of(MANIFEST_NAME)
    _require_small(dataset.size(MANIFEST_NAME) or 0, path)
    try:
        with dataset.open(MANIFEST_NAME) as file:
            return file.read()
    except TokenmillError:
        raise
    except OSError as error:
        raise IntegrityError(f"cannot read {path}: {error.strerror}") from error


def _require_small(num_bytes: int, path: str) -> None:
    if num_bytes > MAX_MANIFEST_BYTES:
        raise IntegrityError(f"{path} is not a manifest: over {MAX_MANIFEST_BYTES:,} bytes")


_Plain = TypeVar("_Plain", ManifestInput, OutputFile, SplitTotals, Counts, SourceSplit)


def _checked(found: _Plain) -> _Plain:
    """The argument, if every number in it is a count and every other value a string or None."""
    for name in found.__slots__:
        value = getattr(found, name)
        if name.startswith("num_") or name.endswith("_bytes"):
            if not (value is None and name == "num_documents"):
                _checked_count(value, name)
        elif name == "sha256" and isinstance(value, tuple):
            if len(value) < 2 or not all(isinstance(digest, str) for digest in value):
                raise TypeError(f"{name} {value!r}")
        elif name != "marks" and not isinstance(value, (str, type(None))):
            raise TypeError(f"{name} {value!r}")
    return found


def _checked_count(value: Any, name: str) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise ValueError(f"{name} {value!r}")
    return value


def _slice_chunks(plain: dict[str, Any]) -> dict[str, list[list[int]]]:
    found = {
        str(int(index)): [[_checked_count(n, "slice_chunks") for n in chunk] for chunk in chunks]
        for index, chunks in plain.items()
    }
    if any(len(chunk) != len(SPLITS) for chunks in found.values() for chunk in chunks):
        raise ValueError("slice_chunks")
    return found


def _output_file(plain: dict[str, Any]) -> OutputFile:
    marks = tuple(
        (_checked_count(eot, "marks"), _checked_count(token, "marks"))
        for eot, token in plain.get("marks", ())
    )
    sha256 = plain["sha256"]
    sha256 = tuple(sha256) if isinstance(sha256, list) else sha256
    file = _checked(OutputFile(**{**plain, "marks": marks, "sha256": sha256}))
    require_inside(file.name)
    if file.split is not None:
        _split(file.split)
    return file


def require_inside(name: str) -> None:
    """Raise ValueError for a file name that leads out of the dataset's folder."""
    parts = name.split("/")
    if len(parts) > 2 or set(parts) & {"", ".", ".."} or set(name) & set("\0\\"):
        raise ValueError(f"file name {name!r} leads out of the folder")


def _sources(plain: dict[str, Any], options: dict[str, Any]) -> dict[str, SourceTotals]:
    """The sources in the order of the run."""
    named = options.get("named", {})
    if not all(isinstance(own, dict) and type(own["place"]) is int for own in named.values()):
        raise TypeError("named")
    if set(plain) - set(named):
        raise ValueError("sources that the options do not name")
    return {
        name: SourceTotals(
            tuple(_string(path) for path in plain[name]["paths"]),
            _checked(Counts(**plain[name]["counts"])),
            _checked_count(plain[name]["num_tokens"], "num_tokens"),
            {_split(n): _checked(SourceSplit(**s)) for n, s in plain[name]["splits"].items()},
        )
        for name in sorted(plain, key=lambda name: int(named[name]["place"]))
    }


def _split_rule(rule: Any) -> str:
    if rule not in SPLIT_RULES:
        raise ValueError(f"split_rule {rule!r}")
    return str(rule)


def _string(text: Any) -> str:
    if not isinstance(text, str):
        raise TypeError(f"not a string: {text!r}")
    return text


def _split(name: str) -> str:
    if name not in SPLITS:
        raise ValueError(f"split {name!r}")
    return name


_NUMBER_LIST = re.compile(r"\[\s+[\d,\s]+\]")


def manifest_sha256_of(plain: dict[str, Any]) -> str:
    """The sha256 that a manifest carries: of its other fields, independent of their layout."""
    rest = {name: value for name, value in plain.items() if name != "sha256"}
    found = hashlib.sha256()
    for piece in _dumped(rest):
        found.update(piece.encode())
    return found.hexdigest()


def _dumped(plain: dict[str, Any]) -> Iterator[str]:
    """`json.dumps(plain, sort_keys=True)` in pieces: that of 10,000 files at once takes 25 MB."""
    for number, (name, value) in enumerate(sorted(plain.items())):
        yield f"{', ' if number else '{'}{json.dumps(name)}: "
        if isinstance(value, (list, tuple)) and value:
            for place, item in enumerate(value):
                yield f"{', ' if place else '['}{json.dumps(item, sort_keys=True)}"
            yield "]"
        else:
            yield json.dumps(value, sort_keys=True)
    yield "}" if plain else "{}"


def laid_out(plain: dict[str, Any]) -> bytes:
    """The JSON bytes of the file. The same data always gives the same bytes."""
    numbers = plain.get("slice_documents") or {}
    # There may be a million numbers; an indenting encoder would take seconds.
    places = {split: f"\0{split}" for split in numbers}
    rest = {**plain, "slice_documents": places} if places else plain
    text = json.dumps(rest, indent=1, sort_keys=True)
    # Put each list of numbers on one line. JSON escapes line breaks in strings, so none is touched.
    text = _NUMBER_LIST.sub(lambda match: "".join(match[0].split()), text)
    for split, place in places.items():
        text = text.replace(json.dumps(place), json.dumps(numbers[split], separators=(",", ":")))
    return text.encode() + b"\n"
