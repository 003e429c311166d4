"""Which files are the corpus: sources (files, folders, globs) become inputs with an identity.

A folder stands for the corpus files below it, all of one kind; what else lies there does not
count, but two kinds are a question to the user, not a guess.
"""

from __future__ import annotations

import collections
import glob
import hashlib
import os
from collections.abc import Iterable

from tokenmill.corpus import Input
from tokenmill.errors import ConfigError, InputError, unknown_name
from tokenmill.readers import kind_of, kinds

_EDGE_BYTES = 64 << 10
# An output folder may lie in the folder it was made from.
OUR_FILES = ("tokenmill.json", "tokenmill-quarantine.jsonl")


def local_inputs(sources: Iterable[str], input_format: str | None) -> list[Input]:
    """Every file that the sources name, once, however many ways they name it."""
    if input_format is not None and input_format not in kinds():
        raise unknown_name("input format", input_format, kinds())
    paths: dict[str, str] = {}
    for source in sources:
        for path in _paths_of(source, input_format):
            paths.setdefault(os.path.realpath(path), os.path.normpath(path))
    return [_input(path, input_format) for path in sorted(paths.values())]


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
    by_kind: dict[str, list[str]] = collections.defaultdict(list)
    others: collections.Counter[str] = collections.Counter()
    for root, folders, names in os.walk(folder, followlinks=True):
        if root != folder and ("tokenmill.json" in names or ".tokenmill" in folders):
            folders.clear()  # a dataset of ours: shards are not text
            continue
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in names:
            if name.startswith(".") or name in OUR_FILES:
                continue
            kind = kind_of(name)
            if kind is None:
                others[os.path.splitext(name)[1] or name] += 1
            else:
                by_kind["json" if name.endswith(".json") else kind[0]].append(
                    os.path.join(root, name)
                )
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


def _input(path: str, input_format: str | None) -> Input:
    kind, compression = kind_of(path) or (None, None)
    kind = input_format or kind
    if kind is None:
        raise ConfigError(
            f"cannot tell from its name how to read {path}",
            hint=f"say how: --input-format {'|'.join(kinds())}",
        )
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
    if kind not in ("jsonl", "text"):
        compression = None
    return Input(path, kind, compression, found.st_size, found.st_mtime_ns, edges.hexdigest())
