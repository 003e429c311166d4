"""A dataset in a folder: one that tokenmill wrote, or someone else's shards, as far as they tell.

The manifest says all there is to know. Without one, the format is recognised by the files, their
dtype by their headers, and documents by their EOT ids if the tokenizer is named. What neither the
files nor the user say is inferred from the tokens (inference.py).
Nothing outside the folder is read: names come from a listing or from a manifest that was checked,
and a link that leads elsewhere is refused.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from tokenmill.config import EOT_POLICIES, VAL_POLICIES
from tokenmill.dataset.inference import Inference, inferred_dtype, inferred_eot
from tokenmill.dataset.manifest import MANIFEST_NAME, Manifest
from tokenmill.dataset.places import WORK_NAME
from tokenmill.dataset.publication import settle_to_read
from tokenmill.dataset.stream import Stream, StreamShard
from tokenmill.encode.record import SPLITS
from tokenmill.encodings import EncodingId
from tokenmill.errors import ConfigError, IntegrityError
from tokenmill.formats import (
    NAMES,
    Format,
    FoundShard,
    ShardReader,
    format_names,
    get_format,
)
from tokenmill.storage import mirror
from tokenmill.storage.files import names_below


@dataclass(frozen=True)
class Dataset:
    folder: str
    format: Format
    manifest: Manifest | None  # None: tokenmill did not write it
    streams: dict[str, Stream]  # by split
    eot: str | None  # where EOT ids stand; None: not known
    eot_id: int | None
    inferred: dict[str, Inference] = field(default_factory=dict)  # "dtype", "eot": nobody said so

    @property
    def name(self) -> str:
        """What to call it: the folder, or the URL that the folder stands for."""
        return mirror.name_of(self.folder)

    @property
    def is_far(self) -> bool:
        """Whether what is read comes over a network, so that it had better be little."""
        return mirror.is_mirror(self.folder)

    @property
    def num_tokens(self) -> int:
        return sum(stream.num_tokens for stream in self.streams.values())

    @property
    def dtype(self) -> str:
        """NumPy's name of what the tokens are stored as; opens a shard."""
        shards = [shard for stream in self.streams.values() for shard in stream.shards]
        return shards[0].open().dtype if shards else "uint16"


def open_dataset(
    folder: str,
    *,
    format_name: str | None = None,
    dtype: str | None = None,
    encoding: EncodingId | None = None,
    eot: str | None = None,
) -> Dataset:
    """Open a folder for reading. What the manifest says wins; the rest is for folders without one.

    Raises IntegrityError for an unfinished or broken dataset, ConfigError if it cannot be told
    what is in the folder.
    """
    if not os.path.isdir(folder):
        raise ConfigError(f"{folder} is not a folder", hint="name the folder that holds the shards")
    settle_to_read(folder)
    if os.path.exists(os.path.join(folder, MANIFEST_NAME)):
        return dataset_of(folder, Manifest.load(folder))
    if os.path.isdir(os.path.join(folder, WORK_NAME)):
        raise IntegrityError(
            f"{folder} is not finished: a run is under way or was interrupted",
            hint="run the command that makes it again: it resumes",
        )
    return _of_strangers(folder, format_name, dtype, encoding, eot)


def path_inside(folder: str, name: str) -> str:
    """The path of a file of the folder. Raises IntegrityError if a link leads out of it."""
    path = os.path.join(folder, name)
    if os.path.commonpath([os.path.realpath(folder), os.path.realpath(path)]) != os.path.realpath(
        folder
    ):
        raise IntegrityError(
            f"{path} is a link that leads out of the folder",
            hint="put the file itself there",
        )
    return path


def dataset_of(folder: str, manifest: Manifest) -> Dataset:
    """What the manifest says is in the folder; no shard is opened. Raises IntegrityError for what
    cannot be."""
    options, encoding = manifest.identity["options"], manifest.identity["encoding"]
    try:
        format_ = get_format(options["format"])
        dtype, eot, eot_id = options["dtype"], options["eot"], encoding["eot_token"]
        has_boundaries = format_.traits.boundaries and not options.get("seq_len")
        known = isinstance(eot_id, int) and dtype in ("uint16", "uint32")
        if not known or eot not in EOT_POLICIES or options["val"] not in VAL_POLICIES:
            said = f"eot_token {eot_id!r}, val {options['val']!r}"
            raise ValueError(f"dtype {dtype!r}, eot {eot!r}, {said}")
    except (KeyError, TypeError, ValueError) as error:
        path = os.path.join(folder, MANIFEST_NAME)
        raise IntegrityError(f"{path} is not a manifest: {error!r}") from error
    streams = {}
    for split in SPLITS:
        shards = [
            StreamShard(
                file.name,
                functools.partial(opened_shard, folder, file.name, format_, dtype),
                file.num_tokens,
                file.num_documents,
                file.marks,
            )
            for file in manifest.shards
            if file.split == split
        ]
        if shards:
            streams[split] = Stream(split, shards, has_boundaries, eot, eot_id)
    return Dataset(folder, format_, manifest, streams, eot, eot_id)


def found_shards(folder: str, format_name: str | None) -> tuple[Format, list[FoundShard]]:
    """The format of someone's folder, and its shards. Raises ConfigError if it cannot be told."""
    # Not what is no file: to open a pipe would be to wait for its other end. Formats look into
    # files to tell whose they are, so a link out of the folder is refused before.
    names = [
        name
        for name in names_below(folder)
        if not os.path.basename(name).startswith(".")
        and os.path.isfile(os.path.join(folder, name))
        and path_inside(folder, name)
    ]
    # Formats of outside packages open paths, where a mirror has no bytes.
    all_names = NAMES if mirror.is_mirror(folder) else format_names()
    for known in all_names if format_name is None else (format_name,):
        format_ = get_format(known)
        if found := format_.find(folder, names):
            return format_, found
    why = "no file here looks like one of its shards" if format_name else "nothing known"
    raise ConfigError(
        f"{folder} is not a dataset that can be read: {why}",
        hint="tokenmill formats lists what can be read; name one with --format",
    )


def _of_strangers(
    folder: str,
    format_name: str | None,
    dtype: str | None,
    encoding: EncodingId | None,
    eot: str | None,
) -> Dataset:
    format_, found = found_shards(folder, format_name)
    inferred = {}
    if dtype is None and (width := dtype_of_strangers(folder, format_, found, encoding)):
        if width.value is None or not width.is_sure:
            raise ConfigError(
                f"{folder} does not say how wide its tokens are, and they do not tell: {width.why}",
                hint="name it: --dtype uint16 or uint32 (convert: --from-dtype), or the tokenizer "
                "that made them",
            )
        dtype, inferred["dtype"] = width.value, width
    sizes, has_boundaries = {}, True
    for one in found:  # one after the other: a map keeps its file open, and those are limited
        reader = opened_shard(folder, one.name, format_, dtype)
        sizes[one.name] = reader.num_tokens
        has_boundaries = has_boundaries and reader.has_boundaries
    shards = {
        split: [
            StreamShard(
                one.name,
                functools.partial(opened_shard, folder, one.name, format_, dtype),
                sizes[one.name],
            )
            for one in found
            if one.split == split
        ]
        for split in SPLITS
    }
    eot_id = None if encoding is None else encoding.eot_token

    def streams(policy: str | None) -> dict[str, Stream]:
        return {
            split: Stream(split, of_split, has_boundaries, policy, eot_id)
            for split, of_split in shards.items()
            if of_split
        }

    if eot is None and eot_id is not None:
        inferred["eot"] = inferred_eot(list(streams(None).values()), format_, eot_id)
        eot = inferred["eot"].value
    return Dataset(folder, format_, None, streams(eot), eot, eot_id, inferred)


def dtype_of_strangers(
    folder: str, format_: Format, found: Sequence[FoundShard], encoding: EncodingId | None
) -> Inference | None:
    """How wide the tokens of someone's shards are; None if the files say so."""
    # The largest of each split tells most.
    largest = {
        one.split: one
        for one in sorted(found, key=lambda one: os.path.getsize(path_inside(folder, one.name)))
    }
    opens = [functools.partial(opened_shard, folder, one.name, format_) for one in largest.values()]
    return inferred_dtype(opens, None if encoding is None else encoding.max_token_value)


def opened_shard(folder: str, name: str, format_: Format, dtype: str | None) -> ShardReader:
    if mirror.is_mirror(folder) and format_.name not in NAMES:
        raise ConfigError(
            f"{folder}: the format {format_.name} is an outside package's, which reads local files",
            hint="copy the dataset to a local folder first",
        )
    return format_.open(path_inside(folder, name), dtype)
