"""Turns sources (files, folders, globs) into the inputs of the corpus, each with an identity.

A folder means the corpus files below it, all of one kind. Other files are skipped and reported;
with two kinds of corpus files, the user must choose. With --input-format a folder means the files
of that kind; `text` takes every file that no reader claims and that may be text. The same holds for
objects and prefixes in a store. An object's identity is what the store says about it, so no object
is read.
"""

from __future__ import annotations

import collections
import dataclasses
import glob
import hashlib
import itertools
import os
import re
import shlex
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, replace

from tokenmill.config import Config, of_source
from tokenmill.corpus.hub_names import hub_source, local_note
from tokenmill.corpus.readers import KINDS, kind_of, kinds
from tokenmill.corpus.readers.naming import ending, kind_named, may_be_text, way_out
from tokenmill.corpus.skipped import Skipped, shown_endings
from tokenmill.corpus.spans import TAG, Input
from tokenmill.corpus.standard_input import STDIN, kept_file, unkept
from tokenmill.corpus.undivided import notes_on_undivided
from tokenmill.errors import ConfigError, InputError, unknown_name
from tokenmill.storage import listing, objects

_EDGE_BYTES = 64 << 10
# An output folder may be inside its own source folder.
OUR_FILES = ("tokenmill.json", "tokenmill-quarantine.jsonl")
# Files that `datasets` writes beside its data.
_DATASETS_FILES = ("dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json")


@dataclass(frozen=True, slots=True)
class FoundInputs:
    """The corpus in order, and notes on how it was found."""

    inputs: tuple[Input, ...]
    notes: tuple[str, ...] = ()


def found_inputs(
    config: Config, hub_inputs: Iterable[Input] = (), hub_again: Iterable[str] = ()
) -> FoundInputs:
    """Every input of a run. `hub_inputs` come from its sources on the Hub; `hub_again` are the
    names of files that several of these sources named.

    Raises ConfigError for an option that applies to no input.
    """
    if config.named:
        return _found_by_source(config, list(hub_inputs), set(hub_again))
    found = _found(config, hub_inputs, hub_again)
    _require_heeded(config, {source.kind for source in found.inputs})
    return found


def _found(config: Config, hub_inputs: Iterable[Input], hub_again: Iterable[str]) -> FoundInputs:
    others = [source for source in config.sources if hub_source(source) is None]
    unread = Skipped(config.input_format)
    inputs = in_order([*_inputs_of(others, config.input_format, unread), *hub_inputs])
    for name in hub_again:
        unread.add_again(name, name)
    notes = [*filter(None, map(local_note, others)), *unread.notes()]
    if config.separator is None:
        notes += notes_on_undivided(inputs)
    return FoundInputs(tuple(inputs), tuple(notes))


def _found_by_source(config: Config, hub_inputs: list[Input], hub_again: set[str]) -> FoundInputs:
    """The inputs of all named sources, in the order of the sources."""
    inputs: list[Input] = []
    notes: list[str] = []
    own_options = {source.name: dict(source.options) for source in config.named}
    for name, own in config.by_source().items():
        on_hub = [source for source in hub_inputs if source.source == name]
        with of_source(name):
            found = _found(own, on_hub, hub_again & {source.name for source in on_hub})
            _require_heeded(own, {source.kind for source in found.inputs}, own_options[name])
        inputs += [dataclasses.replace(source, source=name) for source in found.inputs]
        notes += [f"source {name}: {note}" for note in found.notes]
    _require_heeded(config, {source.kind for source in inputs})
    _require_val_apart(config, inputs)
    return FoundInputs(tuple(inputs), (*notes, *_notes_on_shared(inputs)))


def shared_inputs(inputs: Iterable[Input]) -> dict[str, list[str]]:
    """Files that several named sources have, and the names of these sources."""
    sources: dict[str, list[str]] = collections.defaultdict(list)
    for one in inputs:
        sources[one.name].append(one.source)
    return {name: names for name, names in sources.items() if len(names) > 1}


def _require_val_apart(config: Config, inputs: Iterable[Input]) -> None:
    """Refuse to hold out the first shard if its documents are in another source, too. Sources that
    read other columns, or that have each a --where of its own, are taken to have other ones."""
    if config.val != "first-shard" or config.dedup is not None:
        return
    by_source = config.by_source()
    for path, names in shared_inputs(inputs).items():
        for one, other in itertools.combinations(map(by_source.__getitem__, names), 2):
            has_same_texts = (one.text_column, one.template) == (other.text_column, other.template)
            may_have_same_rows = None in (one.where, other.where) or one.where == other.where
            if has_same_texts and may_have_same_rows:
                raise ConfigError(
                    f"{path} belongs to the sources {' and '.join(names)}, so documents of the "
                    "first shard, which is the validation split, would be in the training split, "
                    "too",
                    hint="--val-fraction 0.0005 has all copies of a document in one split; "
                    "--dedup exact has it once; --no-val",
                )


def _notes_on_shared(inputs: Iterable[Input]) -> Iterator[str]:
    """On files of several sources: perhaps on purpose, perhaps a folder in another's folder."""
    shared = shared_inputs(inputs)
    for name, names in list(shared.items())[:1]:
        more = f", and {len(shared) - 1:,} more like it," if len(shared) > 1 else ""
        yield f"{name}{more} belongs to the sources {' and '.join(names)}: it is read for each"


def inputs_of(sources: Iterable[str], input_format: str | None) -> list[Input]:
    """Every file and object that the sources name, each once, even if several sources name it."""
    return _inputs_of(sources, input_format, Skipped(input_format))


def _inputs_of(sources: Iterable[str], input_format: str | None, unread: Skipped) -> list[Input]:
    if input_format is not None and input_format not in kinds():
        raise unknown_name("input format", input_format, kinds())
    sources = list(sources)
    if STDIN in sources:
        raise unkept()
    sources = [objects.local_path(source) or source for source in sources]
    here = [source for source in sources if not objects.is_url(source)]
    there = [source for source in sources if objects.is_url(source)]
    found = _local_inputs(here, input_format, unread)
    return [*found, *_object_inputs(there, input_format, unread)]


def _local_inputs(sources: Iterable[str], input_format: str | None, unread: Skipped) -> list[Input]:
    """Every file that the sources name, each once, even if several sources name it."""
    paths: dict[str, str] = {}
    inputs: list[Input] = []
    for source in sources:
        if kept := kept_file(source):
            inputs.append(_standard_input(*kept, input_format))
            continue
        for path in _paths_of(source, input_format, unread):
            name, place = os.path.normpath(path), os.path.realpath(path)
            if place in paths:
                unread.add_again(name, paths[place])
            paths.setdefault(place, name)
    return [*inputs, *(_input(path, input_format) for path in sorted(paths.values()))]


def _standard_input(path: str, digest: str, input_format: str | None) -> Input:
    found = _input(path, input_format)
    return replace(found, origin=STDIN, mtime_ns=0, digest=digest)


HEEDED = ("separator", "text_column", "template", "lists")  # by some kinds of input only


def _require_heeded(config: Config, found: set[str], given: Container[str] = HEEDED) -> None:
    """Raise ConfigError for an option given that applies to none of the kinds of input found."""
    if found - set(KINDS) or not found:  # a plugin's reader may use any option
        return
    shown = " and ".join(sorted(found))
    is_separated = config.separator is not None and "separator" in given
    if is_separated and "text" not in found and config.lists != "join":
        raise ConfigError(
            f"--separator separates documents in text files, and these are {shown}",
            hint="leave out --separator: every row or line is a document",
        )
    for option, value in (("template", config.template), ("lists", config.lists)):
        if value is not None and option in given and found == {"text"}:
            raise ConfigError(
                f"--{option} is for columns and JSON fields, and these files are plain text",
                hint=f"leave out --{option}; for JSON lines: --input-format jsonl",
            )
    is_named = config.text_column != Config.text_column and "text_column" in given
    if is_named and found == {"text"}:
        raise ConfigError(
            f"--text-column {config.text_column} names a column or JSON field, and these files "
            "are plain text",
            hint="leave out --text-column; for JSON lines: --input-format jsonl",
        )


def object_digest(found: objects.ObjectInfo) -> str:
    """The digest of an object's content; like the Hub's digests, it begins with its kind."""
    return f"{TAG}{found.tag}"


def in_order(inputs: Iterable[Input]) -> list[Input]:
    """The order of the corpus: by the bytes of the inputs' names, independent of the locale."""
    return sorted(inputs, key=lambda source: os.fsencode(source.name))


def _paths_of(source: str, input_format: str | None, unread: Skipped) -> list[str]:
    is_folder = listing.is_folder(source)
    if is_folder:
        return _folder_paths(source, input_format, unread)
    if is_folder is not None:
        return [source]
    if glob.has_magic(source):
        return _glob_paths(source, unread)
    raise _no_such_source(source)


def _glob_paths(pattern: str, unread: Skipped) -> list[str]:
    found = listing.matching(pattern)
    if not found.files and found.folders:
        below = shlex.quote(f"{pattern.rstrip('/')}/**")
        raise InputError(
            f"no file matches {pattern}; {len(found.folders):,} folders do",
            hint=f"for the files in them, at any depth: {below}",
        )
    if not found.files:
        raise InputError(
            f"no file matches {pattern}", hint="quote the pattern, and use ** for any depth"
        )
    if "**" not in pattern:
        unread.add_folders(found.folders)
    return found.files


def hub_command(dataset: str) -> str:
    """What to type for a dataset of that name on the Hugging Face Hub."""
    owner, name = dataset.split("/")
    if owner.lower() == "huggingfacefw" and name.lower() in ("fineweb", "fineweb-edu"):
        edu = "--edu" if name.lower() == "fineweb-edu" else "--no-edu"
        return f"tokenmill fineweb --version 10B {edu} -o OUT"
    return f"tokenmill prepare {dataset} -o OUT"


def _no_such_source(source: str) -> InputError:
    folder = os.path.dirname(os.path.abspath(source))
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    hint = f"see: ls {shlex.quote(folder)}"
    dataset = re.fullmatch(r"(?:datasets/)?([\w.-]+/[\w.-]+)", source)
    if (
        dataset is not None
        and kind_of(source) is None
        and not os.path.exists(dataset[1].split("/")[0])
    ):
        hint = f"for a dataset on the Hugging Face Hub: {hub_command(dataset[1])}"
    return InputError(f"no such file or folder: {source}", hint=hint)


def _folder_paths(folder: str, input_format: str | None, unread: Skipped) -> list[str]:
    """The corpus files below a folder, of one kind, without hidden files and folders."""
    # A dataset of ours: shards are not text.
    found = listing.files_below(
        folder, lambda names: "tokenmill.json" in names or ".tokenmill" in names
    )
    for path, first in found.again:
        unread.add_again(path, first)
    return _of_one_kind(folder, found.files, input_format, unread)


def _of_one_kind(
    folder: str, paths: Iterable[str], input_format: str | None, unread: Skipped
) -> list[str]:
    by_kind = _by_kind(paths, input_format)
    others = by_kind.pop("", [])
    if input_format is not None:
        others += [path for kind in by_kind.keys() - {input_format} for path in by_kind[kind]]
        by_kind = {kind: paths for kind, paths in by_kind.items() if kind == input_format}
    if not by_kind:
        raise _nothing_to_read(folder, others, input_format)
    if len(by_kind) > 1:
        seen = ", ".join(f"{len(paths)} {kind}" for kind, paths in sorted(by_kind.items()))
        raise InputError(
            f"{folder} holds more than one kind of input: {seen}",
            hint=f"say which: --input-format {max(by_kind, key=lambda kind: len(by_kind[kind]))}",
        )
    unread.add_files(sorted(others))
    return next(iter(by_kind.values()))


def _by_kind(paths: Iterable[str], input_format: str | None) -> dict[str, list[str]]:
    """Paths by the kind of reader that takes them; those that no reader takes are under ""."""
    found: dict[str, list[str]] = collections.defaultdict(list)
    metadata: list[str] = []
    tables: list[tuple[str, str]] = []
    for path in paths:
        name = os.path.basename(path)
        if name.startswith(".") or name in OUR_FILES:
            continue
        kind = kind_of(name)
        if name.endswith(".json"):
            metadata.append(path)
        elif kind is not None and kind[0] in ("csv", "tsv"):
            tables.append((kind[0], path))
        elif kind is not None:
            found[kind[0]].append(path)
        elif input_format == "text" and may_be_text(name):
            found["text"].append(path)
        else:
            found[""].append(path)
    # Beside real data, tables of text and plain .json are metadata.
    for kind_name, path in tables:
        is_data = input_format == kind_name or not found.keys() - {"", "csv", "tsv"}
        found[kind_name if is_data else ""].append(path)
    if metadata and not found.keys() - {""}:
        found["jsonl"] = metadata
    else:
        found[""] += [p for p in metadata if os.path.basename(p) not in _DATASETS_FILES]
    return found


def _nothing_to_read(folder: str, others: list[str], input_format: str | None) -> InputError:
    endings = collections.Counter(ending(path) or os.path.basename(path) for path in others)
    seen = f" (there are: {shown_endings(endings)})" if others else ""
    hint = "tokenmill reads .parquet .arrow .jsonl .csv .tsv .txt (.gz .zst .bz2 .xz .lz4)"
    if others:
        most = endings.most_common(1)[0][0]
        example = next(path for path in others if most in (ending(path), os.path.basename(path)))
        if may_be_text(example):
            hint += "; if these are plain text: --input-format text"
        elif way := way_out(example):
            hint += f"; for {example}: {way}"
    return InputError(f"no {input_format or 'corpus'} files in {folder}{seen}", hint=hint)


def _object_inputs(urls: Iterable[str], input_format: str | None, unread: Skipped) -> list[Input]:
    found: dict[str, objects.ObjectInfo] = {}
    first_urls: dict[str, str] = {}
    for url in urls:
        try:
            for name, info in _objects_of(url, input_format, unread).items():
                first = first_urls.setdefault(objects.place_of(name), name)
                if name in found or first != name:
                    unread.add_again(name, first)
                else:
                    found[name] = info
        except PermissionError as error:
            raise InputError(
                f"{url} cannot be read with the credentials found: {error}",
                hint="can your own client list it? For S3: aws s3 ls, with AWS_PROFILE as here",
            ) from None
    inputs = []
    for url, info in found.items():
        kind, compression = kind_named(url, input_format)
        if kind not in KINDS:
            raise ConfigError(
                f"{url}: the reader of {kind} files comes from a plugin and reads only local files",
                hint="copy them to a disk first",
            )
        inputs.append(Input(url, kind, compression, info.num_bytes, 0, object_digest(info)))
    return inputs


def _objects_of(
    url: str, input_format: str | None, unread: Skipped
) -> dict[str, objects.ObjectInfo]:
    """The object of that URL, or those that match a glob, or those below a prefix, as in a
    folder."""
    if hub := re.fullmatch(
        r"https?://huggingface\.co/datasets/([\w.-]+/[\w.-]+)(/tree/.*)?/?", url
    ):
        raise ConfigError(
            f"{url} is a dataset's page, not a file",
            hint=f"for the dataset: {hub_command(hub[1])}",
        )
    if not url.endswith("/"):
        info = objects.look(url)
        if info is not None:
            return {url: info}
        if glob.has_magic(url):
            if not (matching := dict(objects.find(url))):
                raise InputError(
                    f"no object matches {url}", hint="quote the pattern, and use ** for any depth"
                )
            return matching
    prefix = url.rstrip("/") + "/"
    below = dict(objects.find(prefix))
    if not below:
        raise InputError(
            f"there is no object {url}, and nothing below it",
            hint=_where_to_look(url),
        )
    paths = _of_one_kind(prefix, _visible(below, prefix), input_format, unread)
    return {path: below[path] for path in paths}


def _where_to_look(url: str) -> str:
    scheme = url.partition("://")[0]
    folder = shlex.quote(f"{url.rpartition('/')[0]}/")
    if scheme in ("http", "https"):
        return f"is the address right? curl -I {shlex.quote(url)}"
    if scheme in ("gs", "gcs"):
        return f"is the bucket right, and the prefix? gcloud storage ls {folder}"
    if scheme in ("s3", "s3a"):
        return f"is the bucket right, and the prefix? aws s3 ls {folder.replace('s3a:', 's3:')}"
    return "is the address right? Check with that store's own client"


def _visible(urls: Iterable[str], prefix: str) -> list[str]:
    """The URLs without hidden ones and without our own datasets."""
    names = {url: url.removeprefix(prefix).split("/") for url in urls}
    ours = {
        tuple(parts[:depth])
        for parts in names.values()
        for depth, part in enumerate(parts)
        if depth and part in ("tokenmill.json", ".tokenmill")
    }
    return [
        url
        for url, parts in names.items()
        if not any(part.startswith(".") for part in parts[:-1])
        and not any(tuple(parts[:depth]) in ours for depth in range(1, len(parts)))
    ]


def _input(path: str, input_format: str | None) -> Input:
    kind, compression = kind_named(path, input_format)
    try:
        path.encode()
    except UnicodeEncodeError:
        raise InputError(
            f"the name of {path!r} is not UTF-8, which the readers cannot open",
            hint="rename the file",
        ) from None
    try:
        found = os.stat(path)
        if not os.path.isfile(path):
            raise InputError(f"{path} is not a regular file")
        with open(path, "rb") as file:
            edges = hashlib.sha256(file.read(_EDGE_BYTES))
            file.seek(max(0, found.st_size - _EDGE_BYTES))
            edges.update(file.read(_EDGE_BYTES))
    except OSError as error:
        raise listing.unreadable(path, error) from error
    return Input(path, kind, compression, found.st_size, found.st_mtime_ns, edges.hexdigest())
