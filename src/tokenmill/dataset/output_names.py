"""Which names a dataset takes in its folder, and which files already have them.

Other people's files are never removed or mixed with ours: a folder that holds other shards is a
conflict, unless the user gives --overwrite. An input of the command is never replaced, even with
--overwrite.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass

from tokenmill.assemble.sidecars import FOLDER as SIDECAR_FOLDER
from tokenmill.assemble.sidecars import PATTERN as SIDECAR_PATTERN
from tokenmill.dataset.manifest import MANIFEST_NAME, QUARANTINE_NAME, Manifest
from tokenmill.dataset.places import WORK_NAME, is_row_plan
from tokenmill.encode.record import SPLITS
from tokenmill.errors import ConfigError, ConflictError, IntegrityError
from tokenmill.formats import Format
from tokenmill.storage.address import file_id, place_of
from tokenmill.storage.output_errors import as_output_error
from tokenmill.storage.store import exists, store_of

_NANOGPT_META = "meta.pkl"  # of nanoGPT's recipes for characters; we write none


@dataclass(frozen=True, slots=True)
class OutputNames:
    """The file names of a dataset in this format; `stem` is the common start of its shard names, if
    any."""

    format: Format
    stem: str | None

    def __contains__(self, name: str) -> bool:
        """Whether a run would write a shard, or a file beside one, of that name."""
        pattern = self.format.pattern.replace("{name}", re.escape(self.stem or ""))
        return re.fullmatch(f"{pattern}|{SIDECAR_PATTERN}", name) is not None

    def replaced_in(self, out: str) -> set[str]:
        """The files that a new dataset replaces: those of the finished dataset, with the plans of
        its rows, and those whose names it would use. In a bucket none: it gets its own folder."""
        return self._replaced_in(out) if store_of(out).is_local else set()

    def _replaced_in(self, folder: str) -> set[str]:
        names = store_of(folder).names(folder)
        return _listed_names(folder) | self._alike(names) | set(filter(is_row_plan, names))

    def unlisted_in(self, out: str) -> list[str]:
        """Those of the replaced files that no manifest lists; they may be somebody else's."""
        if not store_of(out).is_local:
            return []
        return sorted(self._alike(store_of(out).names(out)) - _listed_names(out))

    def _alike(self, names: Iterable[str]) -> set[str]:
        return {name for name in names if name in self or name == QUARANTINE_NAME}

    def require_free(self, out: str, overwrite: bool) -> None:
        """Raise ConflictError for a folder in which a trainer would find other shards beside
        ours, or another vocabulary."""
        names = store_of(out).names(out)
        if self.format.name == "nanogpt" and _NANOGPT_META in names:
            raise ConflictError(
                f"{out} holds a {_NANOGPT_META} of other tokens: nanoGPT's train.py takes the size "
                "of its vocabulary from it",
                hint="remove it, or choose another folder with -o",
            )
        suffix = os.path.splitext(self._shard_name("train"))[1]
        going = self.replaced_in(out) if overwrite else set()
        others = [
            name
            for name in names
            if name in self or (not self.format.traits.one_file and name.endswith(suffix))
        ]
        if others := [name for name in others if name not in going]:
            raise ConflictError(
                f"{out} holds other files: {', '.join(others[:5])}",
                hint="choose another folder with -o, or remove them",
            )

    def require_kinds(self, out: str) -> None:
        """Raise ConflictError if a folder has the name of one of our files, or a file that of a
        folder."""
        folders = {os.path.dirname(self._shard_name(split)) for split in SPLITS} | {SIDECAR_FOLDER}
        if not os.path.exists(out):
            return
        if not os.path.isdir(out):
            raise ConflictError(f"{out} is a file, not a folder", hint="choose another with -o")
        with as_output_error("list", out), os.scandir(out) as entries:
            found = {entry.name: entry.is_dir() for entry in entries}
        for name, is_folder in found.items():
            if is_folder and (name == MANIFEST_NAME or name in self):
                raise in_the_way(os.path.join(out, name), "folder")
            if not is_folder and name in folders:
                raise in_the_way(os.path.join(out, name), "file")

    def require_apart(self, out: str, inputs: Iterable[str]) -> None:
        """Raise ConfigError if an input, under any name or link, is a file that a run into `out`
        would replace or remove."""
        names = self._replaced_in(out) | {MANIFEST_NAME, QUARANTINE_NAME}
        ours = {file_id(os.path.join(out, name)) for name in names} - {None}
        work = _canonical(os.path.join(out, WORK_NAME))
        for path in inputs:
            folder = _canonical(os.path.dirname(path))
            is_work = folder == work or folder.startswith(f"{work}/")
            if is_work or (ours and file_id(path) in ours):
                raise ConfigError(
                    f"{path} is an input of this command, and its output in {out} would replace it",
                    hint="choose another folder with -o",
                )

    def _shard_name(self, split: str) -> str:
        return self.format.shard_name(self.stem or "", split, 0)


def in_the_way(path: str, kind: str) -> ConflictError:
    return ConflictError(
        f"{path} is a {kind}, but the dataset needs that name for something else",
        hint="move it away, or choose another output folder",
    )


def _listed_names(out: str) -> set[str]:
    if not exists(os.path.join(out, MANIFEST_NAME)):
        return set()
    try:
        return {file.name for file in Manifest.load(out).files}
    except IntegrityError:
        return set()  # a broken manifest lists nothing


@functools.lru_cache(maxsize=1024)  # many inputs share a few folders
def _canonical(folder: str) -> str:
    return place_of(folder)
