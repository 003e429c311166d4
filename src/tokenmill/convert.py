"""Convert: a finished dataset in another format, without tokenizing again.

Each split's token stream stays what it is, EOT ids and all; it is only cut and dressed differently.
What the target cannot hold is refused before work begins, or left out if the user says so. Shards
of the source are checked against their sha256 as they are opened: damage is not passed on under a
fresh manifest.

Like a run, a conversion keeps what it did in OUT/.tokenmill and goes on from there: `plan.json`
says what is asked for, `cursor.json` how far it got.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokenmill import mirror, storage
from tokenmill.config import Config
from tokenmill.dataset import Dataset, path_inside
from tokenmill.documents import EOTS_PER_DOCUMENT
from tokenmill.encodings import EncodingId
from tokenmill.errors import ConfigError, IntegrityError
from tokenmill.formats import Layout, ShardReader, chosen_dtype, get_format
from tokenmill.manifest import (
    MANIFEST_NAME,
    Manifest,
    OutputFile,
    SplitTotals,
    output_files,
    split_totals,
)
from tokenmill.objectstore import is_url
from tokenmill.output import (
    conflict,
    finished,
    remove_leftovers,
    remove_output,
    work_folder,
)
from tokenmill.plan import identity_differences
from tokenmill.record import SPLITS, Counts
from tokenmill.seal import sealed, unsealed
from tokenmill.settings import whole_samples
from tokenmill.shards import Batch, Output, ShardSet, publish
from tokenmill.stream import Documents, Stream, StreamShard

READ_TOKENS = 4 << 20
CHECKPOINT_TOKENS = 128 << 20
DROPPABLE = ("boundaries", "tail")


@dataclass(frozen=True, kw_only=True)
class Target:
    """What to convert to. Options left at None follow the format."""

    out: str
    format: str
    name: str | None = None
    shard_tokens: int | None = None
    seq_len: int | None = None
    dtype: str = "auto"
    drop: tuple[str, ...] = ()  # of DROPPABLE: what may be left out
    overwrite: bool = False


# Told after every batch how many tokens are done; returns whether to stop.
Watcher = Callable[[int], bool]


class Stopped(Exception):
    """The watcher asked to stop; what was done is kept."""


def convert(
    source: Dataset,
    target: Target,
    encoding: EncodingId | None = None,
    watch: Watcher = lambda num_tokens: False,
) -> Manifest:
    """Write `source` in the target's format, or go on with that, and return the proof.

    `encoding` is needed where the source has no manifest to say it.
    """
    if is_url(target.out):
        raise ConfigError(
            f"{target.out}: convert writes to a local folder",
            hint="convert to one, then copy its files, tokenmill.json last",
        )
    if os.path.realpath(source.folder) == os.path.realpath(target.out):
        raise ConfigError("the output folder is the input folder", hint="choose another")
    origin = source.manifest or _manifest_of_strangers(source, encoding)
    layout = _layout(source, origin, target)
    identity = _identity(origin, layout)
    came_from = {"format": source.format.name, "manifest_sha256": _sha256_of(origin)}
    format_ = get_format(target.format)
    if target.overwrite and os.path.isdir(target.out):
        remove_output(target.out, format_, layout.name)
    elif (manifest := finished(target.out, identity, None)) is not None:
        if manifest.converted_from != came_from:
            raise conflict(f"{target.out} was made of another dataset", [source.name])
        remove_leftovers(target.out)
        return manifest

    with work_folder(target.out, format_, layout.name) as work:
        _begin_or_continue(work, target.out, {"identity": identity, "converted_from": came_from})
        conversion = _Conversion(source, origin, layout, work)
        with contextlib.closing(conversion):
            output = conversion.run(watch)
        manifest = _manifest(origin, identity, came_from, output)
        publish(work, target.out, {file.name: file.num_bytes for file in manifest.files})
        storage.write_file(os.path.join(target.out, MANIFEST_NAME), manifest.to_json())
    return manifest


class _Conversion:
    """The copying, from wherever an earlier attempt got to."""

    def __init__(self, source: Dataset, origin: Manifest, layout: Layout, work: str) -> None:
        _require_side_files(source, origin)
        self._held = contextlib.ExitStack()
        self._streams = {
            split: _checked_stream(source, origin, stream, self._held)
            for split, stream in source.streams.items()
        }
        self._layout = layout
        self._dtype = np.dtype(layout.dtype).newbyteorder("<")
        self._cursor_path = os.path.join(work, "cursor.json")
        self._lock_path = os.path.join(work, "lock")
        cursor = _loaded(self._cursor_path) or {"done": {}, "streams": {}}
        # Documents and tokens of each split that are in the shards.
        self._done = {s: tuple(cursor["done"].get(s, (0, 0))) for s in SPLITS}
        self._shards = ShardSet(os.path.join(work, "shards"), layout, cursor["streams"])
        self._unsynced_tokens = 0

    def run(self, watch: Watcher) -> Output:
        for position, split in enumerate(SPLITS):
            if split not in self._streams:
                continue
            documents, tokens = self._done[split]
            for batch in self._streams[split].documents(READ_TOKENS, documents, tokens):
                self._shards.put(position, self._as_batch(batch, split))
                documents += 0 if batch.lengths is None else len(batch.lengths)
                tokens += len(batch.tokens)
                self._done[split] = documents, tokens
                self._unsynced_tokens += len(batch.tokens)
                if self._unsynced_tokens >= CHECKPOINT_TOKENS:
                    self._checkpoint()
                if watch(sum(done[1] for done in self._done.values())):
                    self._checkpoint()
                    raise Stopped
        output = self._shards.finish()
        self._checkpoint()
        return output

    def close(self) -> None:
        self._held.close()
        self._shards.close()

    def _as_batch(self, documents: Documents, split: str) -> Batch:
        tokens = documents.tokens
        if len(tokens) and tokens.dtype != self._dtype:
            low, high = int(tokens.min()), int(tokens.max())
            if low < 0 or high > np.iinfo(self._dtype).max:
                raise IntegrityError(
                    f"{split}: token id {low if low < 0 else high} does not fit into "
                    f"{self._layout.dtype}",
                    hint="is --tokenizer the one that made these tokens?",
                )
            tokens = tokens.astype(self._dtype)
        data: Any = np.ascontiguousarray(tokens).view(np.uint8)
        width = self._dtype.itemsize
        return Batch(
            len(tokens),
            lambda start, stop: [data[start * width : stop * width]],
            documents.lengths,
        )

    def _checkpoint(self) -> None:
        self._shards.sync()
        storage.require_lock(self._lock_path)
        cursor = {"done": self._done, "streams": self._shards.state()}
        storage.write_file(self._cursor_path, sealed(json.dumps(cursor, sort_keys=True).encode()))
        self._shards.retire()
        self._unsynced_tokens = 0


def _layout(source: Dataset, origin: Manifest, target: Target) -> Layout:
    """How the target's shards will be. Raises ConfigError for what they cannot hold."""
    format_ = get_format(target.format)
    defaults, traits = format_.defaults, format_.traits
    encoding = origin.identity["encoding"]
    if target.shard_tokens is not None and traits.one_file:
        raise ConfigError(f"--shard-tokens does not apply to {target.format}: one file per split")
    if target.name is not None and defaults.name is None:
        raise ConfigError(f"--name does not apply to {target.format}, whose file names are fixed")
    if target.seq_len and not traits.samples:
        raise ConfigError(f"--seq-len does not apply to {target.format}")
    seq_len = defaults.seq_len if target.seq_len is None else target.seq_len
    has_boundaries = traits.boundaries and not seq_len
    _require_holdable(source, target, seq_len if traits.boundaries else 0, has_boundaries)
    layout = Layout(
        format=target.format,
        name=target.name or defaults.name or "",
        dtype=chosen_dtype(target.dtype, encoding["max_token_value"], encoding["name"], format_),
        shard_tokens=whole_samples(target.shard_tokens or defaults.shard_tokens, seq_len),
        seq_len=seq_len,
        first_shard_is_val=False,
        eot_id=encoding["eot_token"],
        encoding=encoding["name"],
        has_boundaries=has_boundaries,
    )
    format_.check(layout)
    return layout


def _require_holdable(source: Dataset, target: Target, seq_len: int, boundaries: bool) -> None:
    for split, stream in source.streams.items():
        if boundaries and not stream.knows_documents:
            raise ConfigError(
                f"{target.format} keeps documents apart, but {source.name} does not say where "
                "they end",
                hint="choose a format that does not: nanogpt, npy, llmc, litdata",
            )
        tail = stream.num_tokens % seq_len if seq_len else 0
        if tail and "tail" not in target.drop:
            raise ConfigError(
                f"the last {tail:,} tokens of {split} do not fill a sample of {seq_len:,}",
                hint="--drop tail leaves them out; --seq-len document makes a sample of each "
                "document",
            )
        is_lost = stream.has_boundaries and not boundaries and source.eot in (None, "none")
        if is_lost and "boundaries" not in target.drop:
            raise ConfigError(
                f"{target.format} cannot tell where documents end: these have no EOT ids",
                hint="--drop boundaries gives them up; megatron, olmo, datatrove and parquet keep "
                "them",
            )


def _identity(origin: Manifest, layout: Layout) -> dict[str, Any]:
    changed = {
        "format": layout.format,
        "name": layout.name or None,
        "dtype": layout.dtype,
        "shard_tokens": layout.shard_tokens,
        "seq_len": layout.seq_len,
    }
    return {**origin.identity, "options": {**origin.identity["options"], **changed}}


def _manifest_of_strangers(source: Dataset, encoding: EncodingId | None) -> Manifest:
    """What a manifest of someone else's folder would say, as far as it can be known."""
    if encoding is None:
        raise ConfigError(
            f"{source.name} does not say which tokenizer made it",
            hint="name it: --tokenizer gpt2",
        )
    config = Config(sources=(source.name,), format=source.format.name, eot=source.eot or "none")
    identity = {
        "options": {**config.identity(), "val": "none", "empty": "keep", "dtype": source.dtype},
        "encoding": {k: v for k, v in encoding.to_plain().items() if k != "source"},
        "versions": {},
    }
    shards = [shard for stream in source.streams.values() for shard in stream.shards]
    files = tuple(
        OutputFile(
            shard.name,
            None,
            shard.num_tokens,
            None,
            os.path.getsize(path_inside(source.folder, shard.name)),
            "",
        )
        for shard in shards
    )
    return Manifest(identity, (), files, {}, Counts())


def _manifest(
    origin: Manifest,
    identity: dict[str, Any],
    came_from: dict[str, Any],
    output: Output,
) -> Manifest:
    """Check that every token arrived, and say so."""
    tails = output.tails.values()
    num_written = sum(shard.num_tokens for shard in output.shards)
    num_written += sum(tail.num_tokens for tail in tails)
    num_read = origin.num_tokens or sum(file.num_tokens for file in origin.files)
    if num_written != num_read:
        raise IntegrityError(f"{num_read:,} tokens were read, {num_written:,} written")
    per_document = EOTS_PER_DOCUMENT[identity["options"]["eot"]]
    counts = origin.counts
    documents = dict.fromkeys(SPLITS, 0)
    documents |= {split: totals.num_documents for split, totals in origin.splits.items()}
    if not origin.splits:
        documents = {split: _num_documents(output, split, per_document) for split in SPLITS}
        total = sum(documents.values())
        counts = Counts(num_rows=total, num_written=total)
    return dataclasses.replace(
        origin,
        identity=identity,
        files=output_files(output, per_document),
        splits={
            split: _with_tail_of(totals, origin.splits.get(split))
            for split, totals in split_totals(output, documents).items()
        },
        counts=counts,
        converted_from=came_from,
    )


def _with_tail_of(totals: SplitTotals, before: SplitTotals | None) -> SplitTotals:
    """What is left out now, and what an earlier conversion into samples left out already."""
    if before is None:
        return totals
    return dataclasses.replace(
        totals,
        num_tail_tokens=totals.num_tail_tokens + before.num_tail_tokens,
        num_tail_eot=totals.num_tail_eot + before.num_tail_eot,
    )


def _num_documents(output: Output, split: str, per_document: int) -> int:
    """Of someone else's tokens: by the boundaries, else by the EOT ids, else unknown: 0."""
    shards = [shard for shard in output.shards if shard.split == split]
    if shards and all(shard.num_documents is not None for shard in shards):
        return sum(shard.num_documents or 0 for shard in shards)
    return sum(shard.num_eot for shard in shards) // per_document if per_document else 0


def _require_side_files(source: Dataset, origin: Manifest) -> None:
    for file in origin.files if source.manifest is not None else ():
        if file.split is None:
            _require_sha256(source.folder, file.name, file.sha256)


def _checked_stream(
    source: Dataset, origin: Manifest, stream: Stream, held: contextlib.ExitStack
) -> Stream:
    """The stream, whose shards are compared with their sha256 when they are opened. The last one
    that was is kept at hand: it is read once more."""
    if source.manifest is None:
        return stream
    sha256 = {file.name: file.sha256 for file in origin.shards}

    def opened(shard: StreamShard) -> ShardReader:
        held.close()
        held.enter_context(mirror.held(path_inside(source.folder, shard.name)))
        _require_sha256(source.folder, shard.name, sha256[shard.name])
        reader = shard.open()
        if reader.num_tokens != shard.num_tokens:
            raise IntegrityError(
                f"{shard.name} holds {reader.num_tokens:,} tokens, but the manifest says "
                f"{shard.num_tokens:,}"
            )
        return reader

    return stream.with_shards(
        [dataclasses.replace(s, open=functools.partial(opened, s)) for s in stream.shards]
    )


def _require_sha256(folder: str, name: str, expected: str) -> None:
    path = path_inside(folder, name)
    with mirror.in_order(path) as file:
        found = storage.sha256_of(file)
    if found != expected:
        raise IntegrityError(
            f"{path} is not the file that the manifest describes: its sha256 differs",
            hint=f"tokenmill verify {folder}",
        )


def _begin_or_continue(work: str, out: str, asked: dict[str, Any]) -> None:
    path = os.path.join(work, "plan.json")
    begun = _loaded(path)
    if begun is not None:
        changes = identity_differences(begun, asked)
        if changes:
            raise conflict(f"the conversion in {out} was begun differently", changes)
    storage.make_folder(os.path.join(work, "shards"))
    storage.remove_temporaries(work)
    storage.remove_temporaries(os.path.join(work, "shards"))
    if begun is None:
        storage.write_file(path, sealed(json.dumps(asked, sort_keys=True).encode()))


def _loaded(path: str) -> dict[str, Any] | None:
    try:
        with open(path, "rb") as file:
            return unsealed(file.read())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise IntegrityError(
            f"{path} is damaged: {error}", hint="start anew with --overwrite"
        ) from error


def _sha256_of(manifest: Manifest) -> str:
    return hashlib.sha256(manifest.to_json()).hexdigest()
