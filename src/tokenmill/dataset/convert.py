"""`convert`: writes a finished dataset in another format, without tokenizing again.

Each split's token stream stays the same, including EOT ids; only cuts and file layout change.
Whatever the target cannot hold is refused before work begins, or left out if the user says so.

Like a run, a conversion keeps its work in OUT/.tokenmill and resumes from there: `plan.json` holds
the request, and each finished shard task has a record (assemble/). The source is scanned once
before that (convert_source.py). Threads of this process do all of it: most of the time goes into
hashing, reading and writing, which release the GIL.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import json
import os
import secrets
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tokenmill.assemble.books import Books
from tokenmill.assemble.sidecars import Sidecar
from tokenmill.assemble.writing import carry_out, created
from tokenmill.corpus.plan import identity_differences
from tokenmill.dataset.convert_source import DatasetTokens
from tokenmill.dataset.dataset import Dataset
from tokenmill.dataset.kept_rows import sidecars_of
from tokenmill.dataset.manifest import Manifest, OutputFile
from tokenmill.dataset.new_manifest import converted_manifest, foreign_manifest
from tokenmill.dataset.output_names import OutputNames
from tokenmill.dataset.places import dataset_folder
from tokenmill.dataset.publication import publish
from tokenmill.dataset.workspace import Workspace
from tokenmill.encode.documents import separator_of
from tokenmill.encode.record import SPLITS
from tokenmill.encodings import EncodingId
from tokenmill.errors import (
    ConfigError,
    ConflictError,
    DamagedWorkError,
    InputError,
    IntegrityError,
)
from tokenmill.formats import Layout, chosen_dtype, get_format
from tokenmill.runners import Stopped
from tokenmill.runners.machine import available_cpus
from tokenmill.runners.threads import in_threads
from tokenmill.settings import require_applicable, whole_samples
from tokenmill.storage import disk
from tokenmill.storage.address import place_of, require_output
from tokenmill.storage.checked_json import checked_object, checksum_of, checksummed
from tokenmill.storage.store import staging_folder, store_of

# Called after every shard task with the tokens done; returns whether to stop.
Watcher = Callable[[int], bool]


@dataclass(frozen=True, kw_only=True)
class Target:
    """The target of a conversion. Options left at None follow the format."""

    out: str
    format: str
    name: str | None = None
    shard_tokens: int | None = None
    seq_len: int | None = None
    dtype: str = "auto"
    drop: tuple[str, ...] = ()  # "boundaries", "tail": what the user gives up
    overwrite: bool = False
    num_proc: int | None = None  # threads; None: one per CPU


def convert(
    source: Dataset,
    target: Target,
    encoding: EncodingId | None = None,
    watch: Watcher = lambda num_tokens: False,
) -> Manifest:
    """Write `source` in the target's format, or resume that, and return the manifest.

    `encoding` is needed if the source has no manifest that names it.
    """
    require_another_place(source, target)
    if not source.num_tokens:
        raise InputError(
            f"{source.name} holds no tokens: there is nothing to convert",
            hint=f"is it the right folder? tokenmill inspect {source.name}",
        )
    if other := next((split for split in source.streams if split not in SPLITS), None):
        raise ConfigError(
            f"{source.name} has a split {other}, which would become training data: what convert "
            f"writes has {' and '.join(SPLITS)}",
            hint=f"move it out of the folder: {source.streams[other].shards[0].name}",
        )
    origin = source.manifest or foreign_manifest(source, encoding)
    layout = _layout(source, origin, target)
    came_from = {"format": source.format.name, "manifest_sha256": _sha256_of(origin)}
    request = ConvertRequest(_identity(origin, layout), came_from, source.name)
    conversion = _Conversion(source, origin, layout, target, request, watch)
    _require_source_apart(source, target, conversion.names)
    _require_files(source)
    try:
        manifest = conversion.dataset() or conversion.dataset()
    except FileNotFoundError as error:
        if not _is_below(str(error.filename), source.name):
            raise
        raise ConflictError(
            f"{source.name} was changed while it was converted: {error.filename} is gone",
            hint="run the same command again with --overwrite: it reads the source again",
        ) from error
    assert manifest is not None  # a new conversion is never discarded as damaged
    return manifest


@dataclass(frozen=True, slots=True)
class ConvertRequest:
    """The request to `convert`. It is its own plan: it names everything that determines the
    bytes."""

    identity: dict[str, Any]
    converted_from: dict[str, Any]
    source: str = ""
    run: str = ""  # makes the id one that no other plan has
    what = "conversion"

    @property
    def plan_id(self) -> str:
        return checksum_of(self._checksummed())

    def with_own_id(self) -> ConvertRequest:
        return dataclasses.replace(self, run=secrets.token_hex(8))

    def create(self, path: str) -> bool:
        return store_of(path).create(path, self._checksummed())

    def load(self, path: str) -> ConvertRequest:
        try:
            plain = checked_object(store_of(path).read(path))
            if "converted_from" in plain:
                run = str(plain.get("run", ""))
                return ConvertRequest(plain["identity"], plain["converted_from"], run=run)
        except (ValueError, KeyError) as error:
            raise DamagedWorkError(
                f"{path} is damaged: {error}", hint="start again with --overwrite"
            ) from error
        raise ConflictError(
            f"{path} is from an unfinished `tokenmill prepare`",
            hint="run the same `tokenmill prepare` again: it resumes; or use --overwrite",
        )

    def changes_since(self, plan: ConvertRequest) -> list[str]:
        return identity_differences(plan._to_plain(), self._to_plain())

    def changes_from(self, manifest: Manifest) -> list[str]:
        is_same = manifest.converted_from == self.converted_from
        return [] if is_same else [f"it was made from a dataset other than {self.source}"]

    def changes_in_content(self, manifest: Manifest) -> list[str]:
        return []  # `converted_from` has the hash of the source's content

    def _to_plain(self) -> dict[str, Any]:
        return {"identity": self.identity, "converted_from": self.converted_from}

    def _checksummed(self) -> bytes:
        plain = self._to_plain() | ({"run": self.run} if self.run else {})
        return checksummed(json.dumps(plain, sort_keys=True).encode())


@dataclass(frozen=True, slots=True)
class _Conversion:
    source: Dataset
    origin: Manifest  # of the source
    layout: Layout
    target: Target
    request: ConvertRequest
    watch: Watcher

    @property
    def names(self) -> OutputNames:
        return OutputNames(get_format(self.layout.format), self.layout.name)

    def dataset(self) -> Manifest | None:
        """The dataset; None: call again (see Workspace.dataset)."""
        workspace, overwrite = Workspace(self.target.out), self.target.overwrite
        return workspace.dataset(self.request, self._attempt, overwrite, lambda message: None)

    def _attempt(self) -> Manifest:
        out, overwrite = self.target.out, self.target.overwrite
        workspace = Workspace(out)
        with contextlib.ExitStack() as stack:
            stack.enter_context(workspace.held(self.names, overwrite))
            plan_id = workspace.begin_or_continue(self.request, lambda: self.request).plan_id
            stack.enter_context(workspace.cleared_if_discarded(plan_id))
            work = workspace.work_of(plan_id)
            staging = stack.enter_context(staging_folder(work))
            books = Books(work, plan_id)
            may_cut = "boundaries" in self.target.drop
            tokens = DatasetTokens(self.source, self.origin, self.layout, staging, may_cut)
            stack.enter_context(tokens.held)
            num_threads = self.target.num_proc or available_cpus()
            _write_shards(tokens, books, self.layout, num_threads, self.watch)
            output = books.output(self.layout)
            sidecars = carried_sidecars(self.source, books.folder)
            output = dataclasses.replace(output, sidecars=sidecars)
            request = self.request
            manifest = converted_manifest(
                self.origin, request.identity, request.converted_from, output
            )
            publish(out, plan_id, manifest, self.names.replaced_in(out) if overwrite else None)
        return manifest


def _write_shards(
    tokens: DatasetTokens, books: Books, layout: Layout, num_threads: int, watch: Watcher
) -> None:
    """Scan the source, then carry out all shard tasks."""
    segments = {split: tokens.segments(split) for split in SPLITS}
    for _ in in_threads(lambda check: check(), tokens.checks(), num_threads):
        pass
    scanned = in_threads(tokens.scan, itertools.chain(*segments.values()), num_threads)
    for number, split in enumerate(SPLITS):
        stream = books.add_stream(layout, number, tokens)
        if segments[split]:
            found = itertools.islice(scanned, len(segments[split]))
            for block in tokens.blocks(split, found):
                books.due.extend(stream.feed(block))
            for _ in found:  # finish the hashing
                pass
        books.due.extend(stream.finish())
    num_done = 0
    for record in in_threads(carry_out, books.tasks(), num_threads):
        books.done(record)
        num_done += record.num_tokens
        if watch(num_done):
            raise Stopped


def _require_files(source: Dataset) -> None:
    """Raise IntegrityError, before work begins, for a file of the manifest that is missing or has
    another size."""
    for file in source.manifest.files if source.manifest is not None else ():
        if source.files.size(file.name) != file.num_bytes:
            raise IntegrityError(
                f"{source.files.path_of(file.name)} is missing, or its size is not the manifest's",
                hint=f"what else is wrong? tokenmill verify {shlex.quote(source.name)}",
            )


def _require_source_apart(source: Dataset, target: Target, names: OutputNames) -> None:
    """Raise ConfigError if the conversion would replace a file of its source."""
    found = [shard.name for stream in source.streams.values() for shard in stream.shards]
    if source.manifest is not None:
        found += [file.name for file in source.manifest.files]
    names.require_apart(target.out, [os.path.join(source.name, name) for name in found])


def require_another_place(source: Dataset, target: Target) -> None:
    given, out = (place_of(place) for place in (source.name, target.out))
    if given in (out, dataset_folder(out)):
        raise ConfigError("the output folder is the input folder", hint="choose another")
    require_output(target.out)
    if target.overwrite and given.startswith(f"{out}/"):
        raise ConfigError(
            f"{source.name} is inside {target.out}, whose content --overwrite replaces",
            hint="choose another output folder",
        )


def _is_below(path: str, folder: str) -> bool:
    return os.path.realpath(path).startswith(os.path.join(os.path.realpath(folder), ""))


def _layout(source: Dataset, origin: Manifest, target: Target) -> Layout:
    """The layout of the target's shards. Raises ConfigError for content that they cannot hold."""
    format_ = get_format(target.format)
    defaults, traits = format_.defaults, format_.traits
    encoding = origin.identity["encoding"]
    require_applicable(format_, target.shard_tokens, target.name, target.seq_len)
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
        eot_id=separator_of(origin.identity["options"], encoding)[1],
        encoding=encoding["name"],
        has_boundaries=has_boundaries,
    )
    format_.check(layout)
    return layout


def _require_holdable(source: Dataset, target: Target, seq_len: int, boundaries: bool) -> None:
    if seq_len and all(stream.num_tokens < seq_len for stream in source.streams.values()):
        longest = max(stream.num_tokens for stream in source.streams.values())
        raise ConfigError(
            f"no split fills a sample of {seq_len:,}: the longest has {longest:,} tokens",
            hint=f"--seq-len {1 << (longest.bit_length() - 1)}, or --seq-len document for a sample "
            "of each document",
        )
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
                hint="--drop boundaries omits them; megatron, olmo, datatrove and parquet keep "
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


def _sha256_of(manifest: Manifest) -> str:
    return hashlib.sha256(manifest.to_json()).hexdigest()


_COPY_BYTES = 1 << 20


def carried_sidecars(source: Dataset, folder: str) -> tuple[Sidecar, ...]:
    """Copy the sidecars of `source` into a folder. Raises IntegrityError if one has changed."""
    if source.manifest is None:
        return ()
    listed = [file for split in SPLITS for file in sidecars_of(source.manifest, split)]
    return tuple(_copied(source, file, folder) for file in listed)


def _copied(source: Dataset, listed: OutputFile, folder: str) -> Sidecar:
    disk.make_folder(os.path.dirname(os.path.join(folder, listed.name)))
    with source.files.in_order(listed.name) as data, created(folder, listed.name) as file:
        while piece := data.read(_COPY_BYTES):
            file.write(piece)
    if file.digest != listed.sha256:
        raise IntegrityError(
            f"{source.files.path_of(listed.name)} has changed since it was written",
            hint=f"what else is wrong? tokenmill verify {source.name}",
        )
    return Sidecar(listed.name, listed.num_documents or 0, file.num_bytes, file.digest)
