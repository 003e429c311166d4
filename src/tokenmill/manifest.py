"""The manifest: the proof of a finished run, `tokenmill.json`, written last.

It names every file with size, sha256, tokens and documents, says what became of every input row,
and holds nothing that depends on time, machine or worker count: the same run has the same
manifest. A folder without one is not a dataset. A manifest may come from anyone, so reading one
trusts no name in it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from tokenmill import storage
from tokenmill.assemble import Shard
from tokenmill.corpus import Input
from tokenmill.documents import EOTS_PER_DOCUMENT
from tokenmill.errors import IntegrityError
from tokenmill.record import SPLITS, Counts, PartRecord, Quarantined

MANIFEST_NAME = "tokenmill.json"
QUARANTINE_NAME = "tokenmill-quarantine.jsonl"
MANIFEST_VERSION = 1


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A file of the dataset. `num_documents` counts its EOT ids; None where there are none."""

    name: str
    split: str | None
    num_tokens: int
    num_documents: int | None
    num_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class InputFile:
    path: str
    num_bytes: int
    digest: str


@dataclass(frozen=True, slots=True)
class SplitTotals:
    num_tokens: int
    num_documents: int


@dataclass(frozen=True, slots=True)
class Manifest:
    identity: dict[str, Any]  # options, encoding and versions: what decided the bytes
    inputs: tuple[InputFile, ...]
    files: tuple[OutputFile, ...]
    splits: dict[str, SplitTotals]
    counts: Counts

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
        return {"tokenmill_manifest": MANIFEST_VERSION, **asdict(self)}

    def to_json(self) -> bytes:
        return json.dumps(self.to_plain(), indent=1, sort_keys=True).encode() + b"\n"

    @staticmethod
    def load(folder: str) -> Manifest:
        """The manifest of a finished run. Raises IntegrityError if it is missing or broken."""
        path = os.path.join(folder, MANIFEST_NAME)
        try:
            with open(path, "rb") as file:
                return Manifest.from_plain(json.loads(file.read()))
        except FileNotFoundError:
            raise IntegrityError(
                f"{folder} is not a finished dataset: it has no {MANIFEST_NAME}",
                hint="run the `tokenmill prepare` command again: it resumes",
            ) from None
        except (ValueError, KeyError, TypeError) as error:
            raise IntegrityError(f"{path} is not a manifest: {error!r}") from error

    @staticmethod
    def from_plain(plain: dict[str, Any]) -> Manifest:
        if plain.get("tokenmill_manifest") != MANIFEST_VERSION:
            raise ValueError(f"manifest version {plain.get('tokenmill_manifest')!r}")
        for file in plain["files"]:
            name = file["name"]
            if (
                name != os.path.basename(name)
                or name in ("", ".", "..")
                or "\0" in name
                or "\\" in name
            ):
                raise ValueError(f"file name {name!r} leads out of the folder")
        return Manifest(
            plain["identity"],
            tuple(InputFile(**source) for source in plain["inputs"]),
            tuple(OutputFile(**file) for file in plain["files"]),
            {split: SplitTotals(**totals) for split, totals in plain["splits"].items()},
            Counts(**plain["counts"]),
        )


def make_manifest(
    identity: dict[str, Any],
    inputs: Iterable[Input],
    records: Iterable[PartRecord],
    shards: list[Shard],
    quarantine: OutputFile | None,
) -> Manifest:
    """Check that nothing was lost or added between rows and shards, and say so."""
    counts = Counts()
    tokens_encoded = 0
    documents = dict.fromkeys(SPLITS, 0)
    for record in records:
        counts += record.counts
        tokens_encoded += record.num_tokens
        for run in record.runs:
            for split, number in zip(SPLITS, run.num_documents, strict=True):
                documents[split] += number
    eot = identity["options"]["eot"]
    per_document = EOTS_PER_DOCUMENT[eot]
    if per_document and shards and identity["options"]["val"] == "first-shard":
        documents = {
            split: sum(s.num_eot for s in shards if s.split == split) // per_document
            for split in SPLITS
        }
    files = tuple(
        OutputFile(
            s.name,
            s.split,
            s.num_tokens,
            s.num_eot if per_document == 1 else None,
            s.num_bytes,
            s.sha256,
        )
        for s in shards
    )
    splits = {
        split: SplitTotals(sum(s.num_tokens for s in shards if s.split == split), documents[split])
        for split in SPLITS
        if any(s.split == split for s in shards)
    }
    _require_conserved(counts, tokens_encoded, shards, per_document)
    return Manifest(
        identity,
        tuple(InputFile(source.name, source.num_bytes, source.digest) for source in inputs),
        files + ((quarantine,) if quarantine else ()),
        splits,
        counts,
    )


def _require_conserved(
    counts: Counts, tokens_encoded: int, shards: list[Shard], eots_per_document: int
) -> None:
    tokens_written = sum(shard.num_tokens for shard in shards)
    num_eot = sum(shard.num_eot for shard in shards)
    if not counts.is_conserved:
        raise IntegrityError(f"rows were lost or counted twice: {counts}")
    if tokens_written != tokens_encoded:
        raise IntegrityError(f"{tokens_encoded:,} tokens were encoded, {tokens_written:,} written")
    if eots_per_document and num_eot != counts.num_written * eots_per_document:
        raise IntegrityError(
            f"{counts.num_written:,} documents were written, but shards hold {num_eot:,} EOT ids"
        )


def quarantine_file(work: str, rows: Iterable[Quarantined]) -> OutputFile | None:
    """List the rows that were left out, in a file among the shards; None if there are none."""
    lines = [json.dumps(asdict(row), sort_keys=True) + "\n" for row in rows]
    if not lines:
        return None
    with storage.NewFile(os.path.join(work, "shards"), QUARANTINE_NAME) as file:
        file.write("".join(lines).encode())
        file.commit()
        return OutputFile(QUARANTINE_NAME, None, 0, None, file.num_bytes, file.digest)
