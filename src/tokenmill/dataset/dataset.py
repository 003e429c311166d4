"""An open dataset: one that tokenmill wrote, or foreign shards, as far as they describe themselves.

The manifest says everything. Without one, the format is recognised from the files, the dtype from
their headers, and documents from EOT ids if the tokenizer is named. What neither the files nor the
user say is inferred from the tokens (inference.py). Nothing outside the folder is read: names come
from a listing or from a manifest that was checked, and `Files` refuses a link that leads
elsewhere.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tokenmill.config.options import OPTIONS
from tokenmill.dataset.files import files_at
from tokenmill.dataset.inference import Inference, inferred_dtype, inferred_eot
from tokenmill.dataset.manifest import MANIFEST_NAME, Manifest, manifest_data, not_a_manifest
from tokenmill.dataset.stream import Stream, StreamShard
from tokenmill.encode.documents import separator_of
from tokenmill.encode.record import SPLITS
from tokenmill.encodings import EncodingId
from tokenmill.encodings.bos import bos_id_of
from tokenmill.errors import ConfigError, unknown_name
from tokenmill.formats import Files, Format, FoundShard, format_names, get_format
from tokenmill.formats.format import DTYPE_BYTES
from tokenmill.formats.mapped import by_number, said_split
from tokenmill.wording.plural import counted

_MAX_NAMES = 8


@dataclass(frozen=True)
class Dataset:
    files: Files
    format: Format
    manifest: Manifest | None  # None: tokenmill did not write it
    streams: dict[str, Stream]  # by split
    # Where the ids are that separate documents: EOT ids, or BOS ids if there are only these. None:
    # unknown.
    eot: str | None
    eot_id: int | None
    # What is not stated: "dtype", "eot", and "order" if it is not that of sorted names.
    inferred: dict[str, Inference] = field(default_factory=dict)
    bos_id: int | None = None  # of a BOS token that every document begins with

    @property
    def name(self) -> str:
        """The folder or URL, as the user named it."""
        return self.files.label

    @property
    def num_tokens(self) -> int:
        return sum(stream.num_tokens for stream in self.streams.values())

    @property
    def dtype(self) -> str:
        """NumPy's name for the stored dtype; opens a shard."""
        shards = [shard for stream in self.streams.values() for shard in stream.shards]
        return shards[0].open().dtype if shards else "uint16"


def open_dataset(
    source: str | Files,
    *,
    format_name: str | None = None,
    dtype: str | None = None,
    encoding: EncodingId | None = None,
    eot: str | None = None,
) -> Dataset:
    """Open a folder, a URL or the files there. The manifest wins over the arguments, which are for
    folders without a manifest.

    Raises IntegrityError for an unfinished or broken dataset, ConfigError if the content of the
    folder cannot be recognised.
    """
    require_token_dtype(dtype)
    files = files_at(source) if isinstance(source, str) else source
    if files.has(MANIFEST_NAME):
        path = files.path_of(MANIFEST_NAME)
        return dataset_of(files, Manifest.checked(manifest_data(files), path))
    return _foreign_dataset(files, format_name, dtype, encoding, eot)


def require_token_dtype(dtype: str | None) -> None:
    if dtype is not None and dtype not in DTYPE_BYTES:
        raise unknown_name("dtype", dtype, tuple(DTYPE_BYTES))


def dataset_of(files: Files, manifest: Manifest) -> Dataset:
    """The dataset that the manifest describes; opens no shard. Raises IntegrityError for an
    impossible manifest."""
    options, encoding = manifest.identity["options"], manifest.identity["encoding"]
    try:
        format_ = get_format(options["format"])
        dtype, (eot, eot_id) = options["dtype"], separator_of(options, encoding)
        bos_id = encoding["bos_token"] if options.get("bos") else None
        has_boundaries = format_.traits.boundaries and not options.get("seq_len")
        known = isinstance(eot_id, int) and isinstance(bos_id, int | None)
        known = known and dtype in ("uint16", "uint32")
        known = known and eot in OPTIONS["eot"].kind.choices
        if not known or options["val"] not in OPTIONS["val"].kind.choices:
            said = f"eot_token {eot_id!r}, val {options['val']!r}"
            raise ValueError(f"dtype {dtype!r}, eot {eot!r}, {said}")
    except (KeyError, TypeError, ValueError) as error:
        raise not_a_manifest(files.path_of(MANIFEST_NAME), error) from error
    streams = {}
    for split in SPLITS:
        shards = [
            StreamShard(
                file.name,
                functools.partial(format_.open, files, file.name, dtype),
                file.num_tokens,
                file.num_documents,
                file.marks,
            )
            for file in manifest.shards
            if file.split == split
        ]
        if shards:
            streams[split] = Stream(split, shards, has_boundaries, eot, eot_id)
    return Dataset(files, format_, manifest, streams, eot, eot_id, bos_id=bos_id)


def require_agreement(manifest: Manifest, asked: Mapping[str, str | None]) -> None:
    """Raise ConfigError for an option that contradicts the manifest."""
    for option, value in asked.items():
        said = manifest.identity["options"][option]
        if value not in (None, said):
            raise ConfigError(
                f"--{option} {value}, but the manifest says {said}",
                hint=f"leave --{option} out: it is for folders without {MANIFEST_NAME}",
            )


def found_shards(files: Files, format_name: str | None) -> tuple[Format, list[FoundShard]]:
    """The format of foreign files, and its shards. Raises ConfigError if the format is not
    recognised."""
    names = [
        name
        for name in sorted(files.names(), key=by_number)
        if not os.path.basename(name).startswith(".") and files.size(name) is not None
    ]
    for known in format_names() if format_name is None else (format_name,):
        format_ = get_format(known)
        found = format_.find(files, names)
        if format_name is None and known == "nanogpt":  # any .bin may be, so that its name decides
            found = [one for one in found if said_split(one.name)]
        if found:
            return format_, found
    why = "no file here looks like one of its shards" if format_name else "no known format"
    raise ConfigError(
        f"{files.label} is not a dataset that can be read: {why}",
        hint="tokenmill formats lists what can be read; name one with --format",
    )


def _foreign_dataset(
    files: Files,
    format_name: str | None,
    dtype: str | None,
    encoding: EncodingId | None,
    eot: str | None,
) -> Dataset:
    require_no_datasets_inside(files)
    format_, found = found_shards(files, format_name)
    inferred = _order([one.name for one in found])
    if dtype is None and (width := foreign_dtype(files, format_, found, encoding)):
        dtype, inferred["dtype"] = _sure_dtype(width, files), width
    shards, has_boundaries = _foreign_shards(files, format_, found, dtype)
    eot_id = None if encoding is None else encoding.eot_token

    def streams(policy: str | None, id_: int | None) -> dict[str, Stream]:
        return {
            split: Stream(split, of_split, has_boundaries, policy, id_)
            for split, of_split in shards.items()
            if of_split
        }

    if eot is not None or eot_id is None:
        return Dataset(files, format_, None, streams(eot, eot_id), eot, eot_id, inferred)
    unread = list(streams(None, eot_id).values())
    inferred["eot"] = inferred_eot(unread, format_, eot_id)
    eot = inferred["eot"].value
    bos_id = bos_id_of(encoding) if encoding is not None and eot == "none" else None
    if bos_id is not None:
        by_bos = inferred_eot(unread, format_, bos_id, "BOS")
        if by_bos.value == "prepend":
            inferred["eot"] = by_bos
            documents = streams("prepend", bos_id)
            return Dataset(files, format_, None, documents, "prepend", bos_id, inferred, bos_id)
    return Dataset(files, format_, None, streams(eot, eot_id), eot, eot_id, inferred)


def _order(names: list[str]) -> dict[str, Inference]:
    """The order of shards, where a loader that sorts their names has another."""
    for second, first in itertools.pairwise(sorted(names)):
        if by_number(first) < by_number(second) and names == sorted(names, key=by_number):
            why = f"{first} is before {second}; a loader that sorts names reads them otherwise"
            return {"order": Inference("by number", why)}
    return {}


def _sure_dtype(width: Inference, files: Files) -> str:
    if width.value is None or not width.is_sure:
        raise ConfigError(
            f"{files.label} does not state how wide its tokens are, and it cannot be inferred: "
            f"{width.why}",
            hint="name it: --dtype uint16 or uint32 (convert: --from-dtype), or the tokenizer "
            "that made them",
        )
    return width.value


def _foreign_shards(
    files: Files, format_: Format, found: Sequence[FoundShard], dtype: str | None
) -> tuple[dict[str, list[StreamShard]], bool]:
    """Shards by split, and whether all of them store document boundaries."""
    shards: dict[str, list[StreamShard]] = {split: [] for split in (*SPLITS, "test")}
    has_boundaries = True
    for one in found:  # one at a time: a map keeps its file open, and open files are limited
        reader = format_.open(files, one.name, dtype)
        has_boundaries = has_boundaries and reader.has_boundaries
        opened = functools.partial(format_.open, files, one.name, dtype)
        shards[one.split].append(StreamShard(one.name, opened, reader.num_tokens))
    return shards, has_boundaries


def require_no_datasets_inside(files: Files) -> None:
    """Raise ConfigError for a folder of datasets, whose shards must not be taken for one
    dataset."""
    inside = [name for name in files.names() if name.endswith(f"/{MANIFEST_NAME}")]
    if inside:
        names = [os.path.dirname(name) for name in inside]
        more = f" and {len(names) - _MAX_NAMES:,} more" if len(names) > _MAX_NAMES else ""
        raise ConfigError(
            f"{files.label} is not a dataset, but holds {counted(len(names), 'dataset')}: "
            f"{', '.join(names[:_MAX_NAMES])}{more}",
            hint=f"name one of them: {files.path_of(names[0])}",
        )


def foreign_dtype(
    files: Files, format_: Format, found: Sequence[FoundShard], encoding: EncodingId | None
) -> Inference | None:
    """The inferred width of foreign tokens; None if the files state it."""
    # The largest shard of each split is the best evidence.
    by_size = sorted(found, key=lambda one: files.size(one.name) or 0)
    largest = {one.split: one for one in by_size}
    opens = [functools.partial(format_.open, files, one.name) for one in largest.values()]
    return inferred_dtype(opens, None if encoding is None else encoding.max_token_value)
