"""Which files are the corpus: sources (files, folders, globs) become inputs with an identity.

A folder stands for the corpus files below it, all of one kind; what else lies there does not
count, but two kinds are a question to the user, not a guess. The same goes for objects in a store
and for a prefix there; an object's identity is what the store says of it, and nothing is read.
"""

from __future__ import annotations

import collections
import glob
import hashlib
import os
import shlex
from collections.abc import Iterable

from tokenmill import objectstore
from tokenmill.corpus import Input
from tokenmill.errors import ConfigError, InputError, unknown_name
from tokenmill.readers import KINDS, kind_of, kinds

_EDGE_BYTES = 64 << 10
# An output folder may lie in the folder it was made from.
OUR_FILES = ("tokenmill.json", "tokenmill-quarantine.jsonl")


def inputs_of(sources: Iterable[str], input_format: str | None) -> list[Input]:
    """Every file and object that the sources name, once, however many ways they name it."""
    sources = list(sources)
    here = [source for source in sources if not objectstore.is_url(source)]
    there = [source for source in sources if objectstore.is_url(source)]
    return [*local_inputs(here, input_format), *_object_inputs(there, input_format)]


def local_inputs(sources: Iterable[str], input_format: str | None) -> list[Input]:
    """Every file that the sources name, once, however many ways they name it."""
    if input_format is not None and input_format not in kinds():
        raise unknown_name("input format", input_format, kinds())
    paths: dict[str, str] = {}
    for source in sources:
        for path in _paths_of(source, input_format):
            paths.setdefault(os.path.realpath(path), os.path.normpath(path))
    return [_input(path, input_format) for path in sorted(paths.values())]


def object_digest(found: objectstore.ObjectInfo) -> str:
    """What stands for an object's content; like the Hub's digests, it says what it is."""
    return f"tag:{found.tag}"


def in_order(inputs: Iterable[Input]) -> list[Input]:
    """The order of the corpus: by the bytes of the inputs' names, whatever the locale."""
    return sorted(inputs, key=lambda source: os.fsencode(source.name))


def _paths_of(source: str, input_format: str | None) -> list[str]:
    if os.path.isdir(source):
        return _folder_paths(source, input_format)
    if os.path.exists(source):
        return [source]
    if glob.has_magic(source):
        found = [path for path in glob.glob(source, recursive=True) if not os.path.isdir(path)]
        if not found:
            raise InputError(
                f"no file matches {source}", hint="quote the pattern, and use ** for any depth"
            )
        return found
    raise InputError(
        f"no such file or folder: {source}", hint=f"is it in {os.path.abspath('.')}? see: ls"
    )


def _folder_paths(folder: str, input_format: str | None) -> list[str]:
    """The corpus files below a folder, of one kind; hidden files and folders do not count."""
    paths = []
    for root, folders, names in os.walk(folder, followlinks=True):
        if root != folder and ("tokenmill.json" in names or ".tokenmill" in folders):
            folders.clear()  # a dataset of ours: shards are not text
            continue
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        paths += [os.path.join(root, name) for name in names]
    return _of_one_kind(folder, paths, input_format)


def _of_one_kind(folder: str, paths: Iterable[str], input_format: str | None) -> list[str]:
    by_kind: dict[str, list[str]] = collections.defaultdict(list)
    others: collections.Counter[str] = collections.Counter()
    for path in paths:
        name = os.path.basename(path)
        if name.startswith(".") or name in OUR_FILES:
            continue
        kind = kind_of(name)
        if kind is None:
            others[os.path.splitext(name)[1] or name] += 1
        else:
            by_kind["json" if name.endswith(".json") else kind[0]].append(path)
    # Beside real data, plain .json is metadata (dataset_info.json, state.json).
    metadata = by_kind.pop("json", [])
    if metadata and not by_kind:
        by_kind["jsonl"] = metadata
    if input_format is not None:
        by_kind = {kind: paths for kind, paths in by_kind.items() if kind == input_format}
    if not by_kind:
        seen = ", ".join(f"{count} {end}" for end, count in others.most_common(5))
        raise InputError(
            f"no {input_format or 'corpus'} files in {folder}"
            + (f" (there are: {seen})" if seen else ""),
            hint="tokenmill reads .parquet .arrow .jsonl .txt (.gz .zst); "
            f"for other text files: '{os.path.join(folder, '**/*.ext')}' --input-format text",
        )
    if len(by_kind) > 1:
        seen = ", ".join(f"{len(paths)} {kind}" for kind, paths in sorted(by_kind.items()))
        raise InputError(
            f"{folder} holds more than one kind of input: {seen}",
            hint=f"say which: --input-format {max(by_kind, key=lambda kind: len(by_kind[kind]))}",
        )
    return next(iter(by_kind.values()))


def _object_inputs(urls: Iterable[str], input_format: str | None) -> list[Input]:
    found: dict[str, objectstore.ObjectInfo] = {}
    for url in urls:
        try:
            found |= _objects_of(url, input_format)
        except PermissionError as error:
            raise InputError(
                f"{url} may not be read with the credentials that were found: {error}",
                hint="can your own client list it? For S3: aws s3 ls, with AWS_PROFILE as here",
            ) from None
    inputs = []
    for url, info in found.items():
        kind, compression = _kind(url, input_format)
        if kind not in KINDS:
            raise ConfigError(
                f"{url}: the reader of {kind} files, an outside package's, reads local files only",
                hint="copy them to a disk first",
            )
        inputs.append(Input(url, kind, compression, info.num_bytes, 0, object_digest(info)))
    return inputs


def _objects_of(url: str, input_format: str | None) -> dict[str, objectstore.ObjectInfo]:
    """An object, or those that match a glob, or those below a prefix as in a folder."""
    if not url.endswith("/"):
        info = objectstore.look(url)
        if info is not None:
            return {url: info}
        if glob.has_magic(url):
            if not (matching := dict(objectstore.find(url))):
                raise InputError(
                    f"no object matches {url}", hint="quote the pattern, and use ** for any depth"
                )
            return matching
    prefix = url.rstrip("/") + "/"
    below = dict(objectstore.find(prefix))
    if not below:
        raise InputError(
            f"there is no object {url}, and nothing below it",
            hint="is the bucket right, and the prefix? For S3: aws s3 ls "
            f"{shlex.quote(url.rpartition('/')[0])}/"
            if objectstore.has_buckets(url)
            else "is the path right?",
        )
    paths = _of_one_kind(prefix, _visible(below, prefix), input_format)
    return {path: below[path] for path in paths}


def _visible(urls: Iterable[str], prefix: str) -> list[str]:
    """Without what is hidden, and without datasets of ours."""
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


def _kind(path: str, input_format: str | None) -> tuple[str, str | None]:
    """(kind, compression) of a file, by its name or as the user says."""
    kind, compression = kind_of(path) or (None, None)
    kind = input_format or kind
    if kind is None:
        raise ConfigError(
            f"cannot tell from its name how to read {path}",
            hint=f"say how: --input-format {'|'.join(kinds())}",
        )
    return kind, compression if kind in ("jsonl", "text") else None


def _input(path: str, input_format: str | None) -> Input:
    kind, compression = _kind(path, input_format)
    try:
        path.encode()
    except UnicodeEncodeError:
        raise InputError(
            f"the name of {path!r} is not UTF-8, and cannot be handed to the readers",
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
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    return Input(path, kind, compression, found.st_size, found.st_mtime_ns, edges.hexdigest())
