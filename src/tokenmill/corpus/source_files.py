"""The files and objects that sources name: paths, folders, globs, URLs.

A folder means the corpus files below it, all of one kind. Other files are skipped and reported; if
there are two kinds of corpus files, the user must choose. With --input-format a folder means the
files of that kind; `text` takes every file that no reader claims and that may be text. The same
holds for objects and prefixes in a store. An object's identity comes from the store, so that no
object is read.
"""

from __future__ import annotations

import collections
import contextlib
import glob
import hashlib
import os
import re
import shlex
from collections.abc import Iterable
from dataclasses import replace

from tokenmill.corpus.readers import BYTE_KINDS, KINDS, kind_of, kinds
from tokenmill.corpus.readers.naming import advice, ending, kind_named, may_be_text
from tokenmill.corpus.skipped import Skipped, shown_endings
from tokenmill.corpus.spans import EDGE_BYTES, TAG, Input, known_ns
from tokenmill.corpus.standard_input import STDIN, kept_file, unkept
from tokenmill.errors import ConfigError, InputError, unknown_name
from tokenmill.storage import address, listing
from tokenmill.storage.local import Stat
from tokenmill.storage.objects import bucket
from tokenmill.storage.store import store_of

# An output folder may be inside its own source folder.
OUR_FILES = ("tokenmill.json", "tokenmill-quarantine.jsonl")
# Files that `datasets` writes beside its data.
_DATASETS_FILES = ("dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json")


def inputs_of(
    sources: Iterable[str], input_format: str | None, unread: Skipped | None = None
) -> list[Input]:
    """Every file and object that the sources name, each once, even if several sources name it.
    What is skipped is added to `unread`."""
    unread = Skipped(input_format) if unread is None else unread
    if input_format is not None and input_format not in kinds():
        raise unknown_name("input format", input_format, kinds())
    sources = list(sources)
    if STDIN in sources:
        raise unkept()
    sources = [address.local_path(source) or source for source in sources]
    here = [source for source in sources if not address.is_url(source)]
    there = [source for source in sources if address.is_url(source)]
    found = _local_inputs(here, input_format, unread)
    return [*found, *_object_inputs(there, input_format, unread)]


def _local_inputs(sources: Iterable[str], input_format: str | None, unread: Skipped) -> list[Input]:
    """Every file that the sources name, each once, even if several sources name it."""
    paths: dict[str, str] = {}
    inputs: list[Input] = []
    for source in sources:
        if kept := kept_file(source):
            path, digest = kept
            found = _input(path, input_format)
            inputs.append(replace(found, origin=STDIN, mtime_ns=0, digest=digest))
            continue
        for path in _paths_of(source, input_format, unread):
            name, place = os.path.normpath(path), os.path.realpath(path)
            if place in paths:
                unread.add_again(name, paths[place])
            paths.setdefault(place, name)
    return [*inputs, *(_input(path, input_format) for path in sorted(paths.values()))]


def object_digest(found: Stat) -> str:
    """The digest of an object's content; like the Hub's digests, it begins with its kind."""
    return f"{TAG}{found.tag}"


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
    # Folders with tokenmill's own datasets are skipped: shards are not text.
    found = listing.files_below(
        folder, lambda names: "tokenmill.json" in names or ".tokenmill" in names
    )
    for path, first in found.again:
        unread.add_again(path, first)
    unread.add_ours(path for path in found.left_out if _is_input(path) and not _is_shard(path))
    return _of_one_kind(folder, found.files, input_format, unread)


def _is_input(path: str) -> bool:
    name = os.path.basename(path)
    return kind_of(name) is not None and not name.endswith(".json") and name not in OUR_FILES


def _is_shard(path: str) -> bool:
    """Whether the manifest beside a file names it."""
    folder, name = os.path.split(path)
    with contextlib.suppress(FileNotFoundError):
        return f'"{name}"'.encode() in store_of(folder).read(os.path.join(folder, OUR_FILES[0]))
    return False


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
            hint=f"choose one: --input-format {max(by_kind, key=lambda kind: len(by_kind[kind]))}",
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
        kind, _ = kind_of(example) or (None, None)
        if {kind, input_format} <= set(BYTE_KINDS):  # a folder's files are chosen by their names
            files = shlex.quote(os.path.join(glob.escape(folder), "**", f"*{most}"))
            hint = f"to read its {most} files as {input_format}, give {files} as SOURCE"
        elif may_be_text(example):
            hint += "; if these are plain text: --input-format text"
        elif said := advice(example):
            hint += f"; {example}: {said}"
    return InputError(f"no {input_format or 'corpus'} files in {folder}{seen}", hint=hint)


def _object_inputs(urls: Iterable[str], input_format: str | None, unread: Skipped) -> list[Input]:
    found: dict[str, Stat] = {}
    first_urls: dict[str, str] = {}
    for url in urls:
        try:
            for name, info in _objects_of(url, input_format, unread).items():
                first = first_urls.setdefault(address.place_of(name), name)
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


def _objects_of(url: str, input_format: str | None, unread: Skipped) -> dict[str, Stat]:
    """The object of that URL, or those that match a glob, or those below a prefix."""
    if hub := re.fullmatch(
        r"https?://huggingface\.co/datasets/([\w.-]+/[\w.-]+)(/tree/.*)?/?", url
    ):
        raise ConfigError(
            f"{url} is a dataset's page, not a file",
            hint=f"for the dataset: {hub_command(hub[1])}",
        )
    if not url.endswith("/"):
        info = bucket(url).look(url)
        if info is not None:
            return {url: info}
        if glob.has_magic(url):
            if not (matching := dict(bucket(url).find(url))):
                raise InputError(
                    f"no object matches {url}", hint="quote the pattern, and use ** for any depth"
                )
            return matching
    prefix = url.rstrip("/") + "/"
    below = dict(bucket(url).find(prefix))
    if not below:
        raise InputError(
            f"there is no object {url}, and nothing below it",
            hint=_where_to_look(url),
        )
    visible, left_out = _visible(below, prefix)
    unread.add_ours(filter(_is_input, left_out))
    paths = _of_one_kind(prefix, visible, input_format, unread)
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


def _visible(urls: Iterable[str], prefix: str) -> tuple[list[str], list[str]]:
    """The URLs without hidden objects; apart, those beside tokenmill's own datasets."""
    names = {url: url.removeprefix(prefix).split("/") for url in urls}
    ours = {
        tuple(parts[:depth])
        for parts in names.values()
        for depth, part in enumerate(parts)
        if depth and part in ("tokenmill.json", ".tokenmill")
    }
    found: tuple[list[str], list[str]] = ([], [])
    for url, parts in names.items():
        if not any(part.startswith(".") for part in parts[:-1]):
            depths = [depth for depth in range(1, len(parts)) if tuple(parts[:depth]) in ours]
            if not depths or depths == [len(parts) - 1]:  # deeper are a dataset's own files
                found[bool(depths)].append(url)
    return found


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
            edges = hashlib.sha256(file.read(EDGE_BYTES))
            file.seek(max(0, found.st_size - EDGE_BYTES))
            edges.update(file.read(EDGE_BYTES))
    except OSError as error:
        raise listing.unreadable(path, error) from error
    return Input(path, kind, compression, found.st_size, known_ns(found), edges.hexdigest())
