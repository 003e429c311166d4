"""The manifest: the proof of a finished run, `tokenmill.json`, written last.

It names every file with size, sha256, tokens and documents, accounts for every input row, and holds
nothing that depends on time, machine or worker count: the same run has the same manifest. A folder
without one is not a dataset. A manifest may come from anyone, so no name in it is trusted. Its own
sha256 (`manifest_sha256_of`) protects against accidents and edits by hand,
not against attackers.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

from tokenmill.assemble.books import Output
from tokenmill.assemble.task import Tail
from tokenmill.corpus.spans import Input
from tokenmill.dataset.notes import notes_of, split_rule_of
from tokenmill.dataset.source_totals import SourceSplit, SourceTotals
from tokenmill.encode.documents import EOTS_PER_DOCUMENT, separator_of
from tokenmill.encode.ledger import Ledger
from tokenmill.encode.record import SPLITS, Counts, Quarantined
from tokenmill.errors import InputError, IntegrityError, TokenmillError
from tokenmill.formats import DatasetFiles, Shard
from tokenmill.storage import files
from tokenmill.words.plural import counted

MANIFEST_NAME = "tokenmill.json"
QUARANTINE_NAME = "tokenmill-quarantine.jsonl"
MANIFEST_VERSION = 1
SPLIT_RULES = ("documents", "tokens", "first-shard", "none")
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
    """What `tokenmill.json` says: what was made, of what, how, and the sums of it."""

    identity: dict[str, Any]  # options, encoding and versions: what determines the bytes
    inputs: tuple[ManifestInput, ...]
    files: tuple[OutputFile, ...]
    splits: dict[str, SplitTotals]
    counts: Counts
    # The number of documents from each slice in each split: it tells where a document came from.
    slice_documents: dict[str, list[int]] = field(default_factory=dict)
    converted_from: dict[str, Any] | None = None  # the format and the sha256 of its manifest
    notes: tuple[str, ...] = ()  # what a person should know before training on this
    # How validation data was chosen: documents, tokens (the last ones), first-shard, or none.
    split_rule: str = ""
    # The commits that branches and tags of the Hub stood for, by OWNER/NAME@REVISION.
    revisions: dict[str, str] = field(default_factory=dict)
    sources: dict[str, SourceTotals] = field(default_factory=dict)  # by name, if they have names

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

    def to_plain(self) -> dict[str, Any]:
        plain = asdict(replace(self, slice_documents={}))  # it may hold millions of numbers
        plain["counts"] = self.counts.to_plain()
        plain["slice_documents"] = {name: list(n) for name, n in self.slice_documents.items()}
        plain["inputs"] = [source.to_plain() for source in self.inputs]
        plain["sources"] = {name: totals.to_plain() for name, totals in self.sources.items()}
        for name in ("notes", "revisions", "sources"):
            if not plain[name]:
                del plain[name]  # keeps the sha256 that older conversions recorded
        return {"tokenmill_manifest": MANIFEST_VERSION, **plain}

    def to_json(self) -> bytes:
        plain = self.to_plain()
        return laid_out({**plain, "sha256": manifest_sha256_of(plain)})

    @staticmethod
    def load(folder: str) -> Manifest:
        """The manifest of a finished run. Raises IntegrityError if it is missing, broken or was
        changed since it was written."""
        path = os.path.join(folder, MANIFEST_NAME)
        try:
            # Opening a pipe would wait for its other end.
            if files.is_irregular(path):
                raise IntegrityError(f"{path} is not a manifest: not a regular file")
            _require_small(files.size(path) or 0, path)
            data = files.read_file(path)
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
                hint="restore the original, or prepare the dataset again",
            )
        return manifest

    @staticmethod
    def parsed(data: bytes, path: str) -> tuple[dict[str, Any], Manifest]:
        """The manifest as plain data and as parsed, without the check of its sha256."""
        try:
            plain = json.loads(data)
            return plain, Manifest.from_plain(plain)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise IntegrityError(f"{path} is not a manifest: {error!r}") from error

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
                for name, numbers in plain.get("slice_documents", {}).items()
            },
            origin,
            tuple(_string(note) for note in plain.get("notes", ())),
            _split_rule(plain.get("split_rule", split_rule_of(identity["options"]))),
            {_string(name): _string(c) for name, c in plain.get("revisions", {}).items()},
            _sources(plain.get("sources", {}), identity["options"]),
        )


def manifest_data(dataset: DatasetFiles) -> bytes:
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


_NUMBER_LIST = re.compile(r"\[\s+[\d,\s]+\]")
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
    """In the order of the run."""
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


def make_manifest(
    identity: dict[str, Any],
    inputs: Iterable[Input],
    records: Ledger,
    output: Output,
    quarantine: OutputFile | None,
    notes: Iterable[str] = (),
    revisions: Mapping[str, str] | None = None,
) -> Manifest:
    """Check that nothing was lost or added between rows and shards, and make the manifest.

    `notes` come before the notes that follow from the manifest itself.
    """
    counts = records.counts
    slice_documents = {split: records.num_documents(i) for i, split in enumerate(SPLITS)}
    per_document = EOTS_PER_DOCUMENT[separator_of(identity["options"], identity["encoding"])[0]]
    _require_conserved(counts, records.num_tokens, output, per_document)
    require_tokens(output, counts.num_written, identity["options"].get("seq_len"))
    documents = {split: sum(slice_documents[split]) for split in SPLITS}
    if output.split_rule != "documents" and output.shards:
        documents = _documents_by_shard(output, per_document, counts.num_written)
    manifest = Manifest(
        identity,
        tuple(ManifestInput(s.name, s.num_bytes, s.digest, s.source) for s in inputs),
        output_files(output, per_document) + ((quarantine,) if quarantine else ()),
        split_totals(output, documents),
        counts,
        slice_documents,
        split_rule="none" if identity["options"]["val"] == "none" else output.split_rule,
        revisions=dict(revisions or {}),
    )
    return replace(manifest, notes=(*notes, *own_notes(manifest)))


def own_notes(manifest: Manifest) -> tuple[str, ...]:
    """The notes that follow from what the manifest says."""
    return tuple(notes_of(manifest))


def output_files(output: Output, eots_per_document: int) -> tuple[OutputFile, ...]:
    shards = []
    for s in output.shards:
        num_documents = s.num_documents
        if num_documents is None and eots_per_document == 1:
            num_documents = s.num_eot
        shards.append(
            OutputFile(s.name, s.split, s.num_tokens, num_documents, s.num_bytes, s.sha256, s.marks)
        )
    side_files = [side_file for shard in output.shards for side_file in shard.side_files]
    return (
        *shards,
        *(
            OutputFile(f.name, None, 0, None, f.num_bytes, f.sha256)
            for f in (*side_files, *output.index_files)
        ),
        *(
            OutputFile(f.name, None, 0, f.num_documents, f.num_bytes, f.sha256)
            for f in output.sidecars
        ),
    )


def split_totals(output: Output, documents: dict[str, int]) -> dict[str, SplitTotals]:
    """Totals of the splits that hold anything."""
    totals = {}
    for split in SPLITS:
        num_tokens = sum(shard.num_tokens for shard in output.shards if shard.split == split)
        tail = output.tails[split]
        if num_tokens or tail.num_tokens:
            totals[split] = SplitTotals(num_tokens, documents[split], tail.num_tokens, tail.num_eot)
    return totals


def _documents_by_shard(output: Output, per_document: int, num_written: int) -> dict[str, int]:
    """Documents by shard, where the validation split may begin or end inside a document."""
    val = [shard for shard in output.shards if shard.split == "val"]
    if all(shard.num_documents is not None for shard in val):
        num_val = sum(shard.num_documents or 0 for shard in val)
    elif per_document:
        num_val = sum(shard.num_eot for shard in val) // per_document
    else:
        num_val = 0
    return {"train": num_written - num_val, "val": num_val}


def _require_conserved(
    counts: Counts, tokens_encoded: int, output: Output, eots_per_document: int
) -> None:
    parts: list[Shard | Tail] = [*output.shards, *output.tails.values()]
    tokens_written = sum(part.num_tokens for part in parts)
    num_eot = sum(part.num_eot for part in parts)
    if not counts.is_conserved:
        raise IntegrityError(f"rows were lost or counted twice: {counts}")
    if tokens_written != tokens_encoded:
        raise IntegrityError(f"{tokens_encoded:,} tokens were encoded, {tokens_written:,} written")
    if eots_per_document and num_eot != counts.num_written * eots_per_document:
        raise IntegrityError(
            f"{counts.num_written:,} documents were written, but shards hold {num_eot:,} EOT ids"
        )


def require_tokens(output: Output, num_documents: int, seq_len: int | None) -> None:
    """Raise InputError for a dataset without a token: nobody can train on it, and its manifest
    would look like that of a lost dataset."""
    if any(shard.num_tokens for shard in output.shards):
        return
    num_left_out = sum(tail.num_tokens for tail in output.tails.values())
    if not num_left_out:
        raise InputError(
            f"nothing to write: no document has a token (documents: {num_documents:,})",
            hint="are these the right files, and is --text-column the right column?",
        )
    raise InputError(
        f"nothing to write: the tokens of all documents, {num_left_out:,}, fill no sample of "
        f"{seq_len:,}",
        hint="--overwrite --seq-len document makes a sample of each document; or a smaller number",
    )


def quarantine_file(folder: str, rows: Iterable[Quarantined]) -> OutputFile | None:
    """Write the list of rows that were left out, beside the shards; None if there are none."""
    lines = [json.dumps(asdict(row), sort_keys=True) + "\n" for row in rows]
    if not lines:
        return None
    with files.new_file(folder, QUARANTINE_NAME) as file:
        file.write("".join(lines).encode())
        file.commit()
        return OutputFile(QUARANTINE_NAME, None, 0, None, file.num_bytes, file.digest)
