"""A dataset opened for inspection, with the encoding that turns its tokens into text.

A manifest identifies its encoding by sha256. Builtin encodings are found by name; a vocabulary file
must be named again, because the manifest has no path, and is compared. Without an encoding, a
dataset can still be inspected as ids.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import Any

from tokenmill.dataset.dataset import Dataset, open_dataset, require_agreement
from tokenmill.dataset.files import files_at
from tokenmill.dataset.inspect.lengths import FAR_INDEX_TOKENS, INDEX_TOKENS, UNPACKED_INDEX_TOKENS
from tokenmill.dataset.inspect.token_bytes import TokenBytes
from tokenmill.dataset.kept_rows import KeptRows, jsonable, kept_rows_of
from tokenmill.dataset.made_with import (
    NamedTokenizer,
    is_same,
    made_with_of,
    model_in_cache,
    require_same,
    vocabulary_file,
)
from tokenmill.dataset.manifest import MANIFEST_NAME, Manifest
from tokenmill.dataset.stream import Stream
from tokenmill.encodings import ENCODING_NAMES, Encoding, EncodingId, get_encoding
from tokenmill.errors import ConfigError, IntegrityError, unknown_name
from tokenmill.formats import Files
from tokenmill.wording.plural import counted


@dataclass(frozen=True)
class LookedInto:
    dataset: Dataset
    made_with: EncodingId | None  # what made the tokens, if known
    encoding: Encoding | None  # the same, ready to decode
    missing: str | None  # why there is no encoding, and what to type

    @functools.cached_property
    def token_bytes(self) -> TokenBytes | None:
        return None if self.encoding is None else TokenBytes.of(self.encoding)

    def stream(self, split: str | None) -> Stream:
        """The split of that name; without a name, `train` or the first one."""
        streams = self.dataset.streams
        if split is None:
            split = "train" if "train" in streams or not streams else next(iter(streams))
        if split not in streams:
            raise unknown_name("split", split, tuple(streams))
        return streams[split]

    def kept(self, split: str, document: int | None) -> dict[str, Any] | None:
        """What --keep kept of a document, as JSON values; None if nothing."""
        rows = self._kept_rows.get(split)
        row = None if rows is None or document is None else rows.row(document)
        return None if row is None else {name: jsonable(value) for name, value in row.items()}

    @functools.cached_property
    def _kept_rows(self) -> dict[str, KeptRows | None]:
        files, manifest = self.dataset.files, self.dataset.manifest
        return {split: kept_rows_of(files, manifest, split) for split in self.dataset.streams}

    def num_documents(self, split: str) -> int | None:
        """The number of documents of a split, if it is known without a search."""
        stream, manifest = self.dataset.streams[split], self.dataset.manifest
        if manifest is None and stream.has_boundaries and not self.is_indexed_quickly(split):
            return None
        counted = stream.num_documents()
        if counted is not None or manifest is None:
            return counted
        options = manifest.identity["options"]
        if options["eot"] == "both" and options["val"] == "first-shard":
            return None  # val and train each hold a piece of the cut document
        totals = manifest.splits.get(split)
        return totals.num_documents if totals is not None and totals.num_documents else None

    def is_indexed_quickly(self, split: str) -> bool:
        """Whether the format gives the ends of all documents quickly."""
        most = INDEX_TOKENS if self.dataset.format.traits.is_raw else UNPACKED_INDEX_TOKENS
        if not self.dataset.files.is_local:
            most = min(most, FAR_INDEX_TOKENS)
        return self.dataset.streams[split].num_tokens <= most


def look_into(
    folder: str,
    *,
    format_name: str | None = None,
    dtype: str | None = None,
    tokenizer: str | Encoding | None = None,
    pattern: str | None = None,
    eot_token: str | None = None,
    eot: str | None = None,
) -> LookedInto:
    """Open a folder or a URL. Options must not contradict its manifest.

    Raises IntegrityError for a dataset that is unfinished, or damaged as far as file sizes show.
    """
    files, named = files_at(folder), None
    if not files.has(MANIFEST_NAME) and tokenizer is not None:
        named = _named(tokenizer, pattern, eot_token)
    dataset = open_dataset(
        files,
        format_name=format_name,
        dtype=dtype,
        encoding=None if named is None else named.identity,
        eot=eot,
    )
    if dataset.manifest is None:
        missing = None if named else "no tokenizer is known: name it with --tokenizer gpt2"
        return LookedInto(dataset, named.identity if named else None, named, missing)
    require_agreement(dataset.manifest, {"format": format_name, "dtype": dtype, "eot": eot})
    _require_sizes(files, dataset.manifest)
    made_with = _identity(files, dataset.manifest)
    if tokenizer is None:
        encoding, missing = _found_encoding(made_with)
    elif isinstance(tokenizer, Encoding):
        require_same(tokenizer.identity, made_with)
        encoding, missing = tokenizer, None
    else:
        asked = NamedTokenizer(tokenizer, pattern, eot_token)
        encoding, missing = asked.encoding_of(made_with), None
    return LookedInto(_by_eot(dataset), made_with, encoding, missing)


def _named(tokenizer: str | Encoding, pattern: str | None, eot_token: str | None) -> Encoding:
    if isinstance(tokenizer, Encoding):
        return tokenizer
    return get_encoding(tokenizer, pattern=pattern, eot=eot_token)


def _by_eot(dataset: Dataset) -> Dataset:
    """The dataset with documents separated by EOT ids, if the format must be unpacked to find their
    ends. EOT ids are faster, and its marks lead close to a document, but only a run places one in
    each document: those of a converted foreign folder may be cut, empty, or hold EOT ids, and those
    of a run are cut where a split is cut at a token."""
    manifest = dataset.manifest
    is_converted = (
        manifest is not None
        and manifest.converted_from is not None
        and (not manifest.inputs or manifest.one_stream is not None)
    )
    if dataset.format.traits.is_raw or is_converted or dataset.eot not in ("append", "prepend"):
        return dataset
    streams = {
        split: Stream(split, stream.shards, False, dataset.eot, dataset.eot_id)
        for split, stream in dataset.streams.items()
    }
    return dataclasses.replace(dataset, streams=streams)


def _require_sizes(files: Files, manifest: Manifest) -> None:
    """Raise IntegrityError unless every file exists inside the folder with the manifest's size."""
    sizes = files.sizes([file.name for file in manifest.files])
    for file, found in zip(manifest.files, sizes, strict=True):
        if found != file.num_bytes:
            seen = "is missing" if found is None else f"has {counted(found, 'byte')}"
            raise IntegrityError(
                f"{files.path_of(file.name)} {seen}, but the manifest says {file.num_bytes:,}",
                hint=f"tokenmill verify {files.label}",
            )
    files.size(MANIFEST_NAME)  # replaced before the others were looked at: an error


def _identity(files: Files, manifest: Manifest) -> EncodingId:
    try:
        return made_with_of(manifest.identity["encoding"])
    except IntegrityError as error:
        path = files.path_of(MANIFEST_NAME)
        raise IntegrityError(f"{path} is not a manifest: {error.message}") from error


def _found_encoding(made_with: EncodingId) -> tuple[Encoding | None, str | None]:
    """The encoding that made the tokens, if it is builtin or cached; else why not."""
    if made_with.name in ENCODING_NAMES and made_with.kind == "tiktoken":
        try:
            encoding = get_encoding(made_with.name, eot=made_with.eot, bos=made_with.bos_option)
        except ConfigError:  # it has no such EOT
            encoding = None
        if encoding is not None and is_same(encoding.identity, made_with):
            return encoding, None
    elif (model := model_in_cache(made_with)) is not None:
        return model, None
    return None, f"made with {vocabulary_file(made_with)}: name it with --tokenizer FILE"
