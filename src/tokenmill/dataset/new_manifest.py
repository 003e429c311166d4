"""Makes the manifest of a run or a conversion, after checking that nothing was lost or added."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from tokenmill.assemble.books import Output
from tokenmill.assemble.task import Tail
from tokenmill.config import Config
from tokenmill.corpus.plan import Plan
from tokenmill.dataset.manifest import (
    QUARANTINE_NAME,
    Manifest,
    ManifestInput,
    OutputFile,
    SplitTotals,
)
from tokenmill.dataset.source_totals import source_totals
from tokenmill.encode.documents import EOTS_PER_DOCUMENT, separator_of
from tokenmill.encode.ledger import Ledger
from tokenmill.encode.record import SPLITS, Counts, Quarantined
from tokenmill.encodings import EncodingId
from tokenmill.encodings.bos import with_bos
from tokenmill.errors import ConfigError, InputError, IntegrityError
from tokenmill.formats import Shard
from tokenmill.formats.index_json import INDEX_NAME
from tokenmill.runners.machine import available_cpus
from tokenmill.runners.threads import in_threads
from tokenmill.storage.hashing import sha256_at
from tokenmill.storage.store import new_file

if TYPE_CHECKING:
    from tokenmill.dataset.dataset import Dataset


def make_manifest(
    plan: Plan,
    records: Ledger,
    output: Output,
    quarantine: OutputFile | None,
) -> Manifest:
    """The manifest of a run, after checking that nothing was lost or added between rows and
    shards."""
    identity, counts = plan.identity, records.counts
    slice_documents = {split: records.num_documents(i) for i, split in enumerate(SPLITS)}
    per_document = _eots_per_document(identity)
    _require_conserved(counts, records.num_tokens, output, per_document)
    _require_tokens(output, counts.num_written, identity["options"].get("seq_len"))
    documents = {split: sum(slice_documents[split]) for split in SPLITS}
    # Only then does the shuffle depend on chunks: keys are numbered chunk by chunk, train first.
    is_mixed = identity["options"].get("shuffle") and any(slice_documents["val"])
    is_by_document = output.split_rule == "documents"
    if not is_by_document and output.shards:
        num_val = _num_documents(output, "val", per_document)
        documents = {"train": counts.num_written - num_val, "val": num_val}
    return Manifest(
        identity,
        tuple(ManifestInput(s.name, s.num_bytes, s.digest, s.source) for s in plan.inputs),
        _output_files(output, per_document) + ((quarantine,) if quarantine else ()),
        _split_totals(output, documents),
        counts,
        slice_documents,
        records.chunk_documents if is_mixed else {},
        split_rule="none"
        if is_by_document and identity["options"]["val"] != "fraction"
        else output.split_rule,
        revisions=dict(plan.revisions),
        sources=source_totals(plan, records, is_by_document),
        content=records.content,
        last_document=records.last_place,
    )


def converted_manifest(
    origin: Manifest, identity: dict[str, Any], converted_from: dict[str, Any], output: Output
) -> Manifest:
    """Check that every token of the source arrived, and make the manifest of a conversion."""
    tails = output.tails.values()
    num_written = sum(shard.num_tokens for shard in output.shards)
    num_written += sum(tail.num_tokens for tail in tails)
    num_read = origin.num_tokens or sum(file.num_tokens for file in origin.files)
    if num_written != num_read:
        raise IntegrityError(f"{num_read:,} tokens were read, {num_written:,} written")
    per_document = _eots_per_document(identity)
    counts = origin.counts
    documents = dict.fromkeys(SPLITS, 0)
    documents |= {split: totals.num_documents for split, totals in origin.splits.items()}
    if not origin.splits:
        documents = {split: _num_documents(output, split, per_document) for split in SPLITS}
        total = sum(documents.values())
        counts = Counts(num_rows=total, num_written=total)
    _require_tokens(output, counts.num_written, identity["options"]["seq_len"])
    return replace(
        origin,
        identity=identity,
        files=_output_files(output, per_document),
        splits=_with_tails(origin, _split_totals(output, documents), documents),
        counts=counts,
        converted_from=converted_from,
    )


def _with_tails(
    origin: Manifest, written: dict[str, SplitTotals], documents: dict[str, int]
) -> dict[str, SplitTotals]:
    """The totals of the written splits, and of splits that fill no sample: their documents and
    tails still count. A tail includes tokens left out by this and by earlier conversions."""
    found = {}
    for split in SPLITS:
        now, before = written.get(split), origin.splits.get(split)
        if now is None and before is None:
            continue
        totals = now or SplitTotals(0, documents[split])
        if before is not None:
            totals = replace(
                totals,
                num_tail_tokens=totals.num_tail_tokens + before.num_tail_tokens,
                num_tail_eot=totals.num_tail_eot + before.num_tail_eot,
            )
        found[split] = totals
    return found


def _num_documents(output: Output, split: str, per_document: int) -> int:
    """The number of documents of a split, which may begin or end inside one: by boundaries, else
    by EOT ids, else 0 (unknown)."""
    shards = [shard for shard in output.shards if shard.split == split]
    if shards and all(shard.num_documents is not None for shard in shards):
        return sum(shard.num_documents or 0 for shard in shards)
    return sum(shard.num_eot for shard in shards) // per_document if per_document else 0


def foreign_manifest(source: Dataset, encoding: EncodingId | None) -> Manifest:
    """A manifest for a foreign folder, as far as its content is known. Its files are read once, so
    that the same folder with other content has another manifest."""
    if encoding is None:
        raise ConfigError(
            f"{source.name} does not state its tokenizer",
            hint="name it: --tokenizer gpt2",
        )
    if source.eot is None:
        raise ConfigError(
            f"{source.name} does not state where its EOT ids are, and it cannot be inferred: "
            f"{source.inferred['eot'].why}",
            hint="--eot append if documents end with one, prepend if they begin with one, "
            f"both or none; {source.format.name} usually has {source.format.defaults.eot}",
        )
    eot, bos = source.eot, None
    if source.bos_id is not None:  # only BOS ids separate its documents
        eot, bos, encoding = "none", "prepend", with_bos(encoding)
    config = Config(sources=(source.name,), format=source.format.name, eot=eot, bos=bos)
    identity = {
        "options": {**config.identity(), "val": "none", "empty": "keep", "dtype": source.dtype},
        "encoding": {k: v for k, v in encoding.to_plain().items() if k != "source"},
        "versions": {},
    }
    return Manifest(identity, (), _foreign_files(source), {}, Counts(), split_rule="none")


def _foreign_files(source: Dataset) -> tuple[OutputFile, ...]:
    """The shards, and the files beside them that say where documents end."""
    shards = {shard.name: shard for stream in source.streams.values() for shard in stream.shards}
    stems = tuple(os.path.splitext(name)[0] for name in shards)
    beside = [
        name
        for name in source.files.names()
        if name not in shards and (name.startswith(stems) or os.path.basename(name) == INDEX_NAME)
    ]

    def described(name: str) -> OutputFile:
        num_bytes, path = source.files.size(name) or 0, source.files.local_path(name)
        num_tokens = shards[name].num_tokens if name in shards else 0
        if path is None:
            digest = source.files.stamp(name)  # an object's tag changes with its content
        else:
            digest = "".join(sha256_at(path, 0, num_bytes, in_pieces=False) or ())
        return OutputFile(name, None, num_tokens, None, num_bytes, digest)

    return tuple(in_threads(described, (*shards, *beside), available_cpus()))


def _eots_per_document(identity: dict[str, Any]) -> int:
    return EOTS_PER_DOCUMENT[separator_of(identity["options"], identity["encoding"])[0]]


def _output_files(output: Output, eots_per_document: int) -> tuple[OutputFile, ...]:
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


def _split_totals(output: Output, documents: dict[str, int]) -> dict[str, SplitTotals]:
    """Totals of the splits that hold anything."""
    totals = {}
    for split in SPLITS:
        num_tokens = sum(shard.num_tokens for shard in output.shards if shard.split == split)
        tail = output.tails[split]
        if num_tokens or tail.num_tokens:
            totals[split] = SplitTotals(num_tokens, documents[split], tail.num_tokens, tail.num_eot)
    return totals


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


def _require_tokens(output: Output, num_documents: int, seq_len: int | None) -> None:
    """Raise InputError for a dataset without tokens: nobody can train on it, and its manifest would
    look like that of a lost dataset."""
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
    with new_file(f"{folder}/{QUARANTINE_NAME}") as file:
        file.write("".join(lines).encode())
        file.commit()
        return OutputFile(QUARANTINE_NAME, None, 0, None, file.num_bytes, file.digest)
