"""Convert: a finished dataset in another format, without tokenizing again.

Each split's token stream stays what it is, EOT ids and all; it is only cut and dressed differently.
What the target cannot hold is refused before work begins, or left out if the user says so.

Like a run, a conversion keeps what it did in OUT/.tokenmill and goes on from there: `plan.json`
says what is asked for; how far it got is copying.py's.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
from dataclasses import dataclass
from typing import Any

from tokenmill.batches import CheckedSource
from tokenmill.config import Config
from tokenmill.copying import CopyPlan, FolderCopy, StoreCopy, Watcher
from tokenmill.dataset import Dataset, path_inside
from tokenmill.documents import EOTS_PER_DOCUMENT
from tokenmill.encodings import EncodingId
from tokenmill.errors import ConfigError, ConflictError, IntegrityError
from tokenmill.formats import Layout, chosen_dtype, get_format
from tokenmill.manifest import (
    Manifest,
    OutputFile,
    SplitTotals,
    output_files,
    split_totals,
)
from tokenmill.objectstore import is_url, place_of, require_output
from tokenmill.output import (
    conflict,
    finished,
    publish,
    remove_leftovers,
    remove_output,
    work_folder,
)
from tokenmill.record import SPLITS, Counts
from tokenmill.settings import whole_samples
from tokenmill.shards import Output

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


def convert(
    source: Dataset,
    target: Target,
    encoding: EncodingId | None = None,
    watch: Watcher = lambda num_tokens: False,
) -> Manifest:
    """Write `source` in the target's format, or go on with that, and return the proof.

    `encoding` is needed where the source has no manifest to say it.
    """
    _require_another_place(source, target.out)
    origin = source.manifest or _manifest_of_strangers(source, encoding)
    layout = _layout(source, origin, target)
    came_from = {"format": source.format.name, "manifest_sha256": _sha256_of(origin)}
    asked = {"identity": _identity(origin, layout), "converted_from": came_from}
    if target.overwrite and (is_url(target.out) or os.path.isdir(target.out)):
        remove_output(target.out, get_format(target.format), layout.name)
    elif (manifest := _finished(source, target.out, asked)) is not None:
        return manifest
    try:
        return _converted(source, origin, layout, target.out, asked, watch)
    except ConflictError:
        # There is no lock in an object store: another conversion may have been faster.
        manifest = _finished(source, target.out, asked) if is_url(target.out) else None
        if manifest is None:
            raise
        return manifest


def _converted(
    source: Dataset,
    origin: Manifest,
    layout: Layout,
    out: str,
    asked: dict[str, Any],
    watch: Watcher,
) -> Manifest:
    with work_folder(out, get_format(layout.format), layout.name) as work:
        plan = CopyPlan(os.path.join(work, "plan.json"), asked)
        plan.begin_or_continue()
        with contextlib.closing(CheckedSource(source, origin, layout)) as checked:
            copy = (
                StoreCopy(checked, layout, out, plan)
                if is_url(out)
                else FolderCopy(checked, layout, work)
            )
            with contextlib.closing(copy):
                output = copy.run(watch)
        manifest = _manifest(origin, asked, output)
        publish(copy.folder, out, manifest)
    return manifest


def _finished(source: Dataset, out: str, asked: dict[str, Any]) -> Manifest | None:
    """The manifest, if this very conversion is finished, and nothing else is left of it. Another's
    result is a conflict."""
    manifest = finished(out, asked["identity"], None)
    if manifest is None:
        return None
    if manifest.converted_from != asked["converted_from"]:
        raise conflict(f"{out} was made of another dataset", [source.name])
    remove_leftovers(out)
    return manifest


def _require_another_place(source: Dataset, out: str) -> None:
    if _place(source.name) == _place(out):
        raise ConfigError("the output folder is the input folder", hint="choose another")
    require_output(out)


def _place(folder: str) -> str:
    return place_of(folder) if is_url(folder) else os.path.realpath(folder)


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


def _manifest(origin: Manifest, asked: dict[str, Any], output: Output) -> Manifest:
    """Check that every token arrived, and say so."""
    tails = output.tails.values()
    num_written = sum(shard.num_tokens for shard in output.shards)
    num_written += sum(tail.num_tokens for tail in tails)
    num_read = origin.num_tokens or sum(file.num_tokens for file in origin.files)
    if num_written != num_read:
        raise IntegrityError(f"{num_read:,} tokens were read, {num_written:,} written")
    per_document = EOTS_PER_DOCUMENT[asked["identity"]["options"]["eot"]]
    counts = origin.counts
    documents = dict.fromkeys(SPLITS, 0)
    documents |= {split: totals.num_documents for split, totals in origin.splits.items()}
    if not origin.splits:
        documents = {split: _num_documents(output, split, per_document) for split in SPLITS}
        total = sum(documents.values())
        counts = Counts(num_rows=total, num_written=total)
    return dataclasses.replace(
        origin,
        identity=asked["identity"],
        files=output_files(output, per_document),
        splits={
            split: _with_tail_of(totals, origin.splits.get(split))
            for split, totals in split_totals(output, documents).items()
        },
        counts=counts,
        converted_from=asked["converted_from"],
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


def _sha256_of(manifest: Manifest) -> str:
    return hashlib.sha256(manifest.to_json()).hexdigest()
