"""Where the files of a dataset are: in a local folder, below a URL, or on the Hub.

A dataset that tokenmill wrote to a URL is found by name: the manifest names every file, and a
request per file tells whether it exists and how large it is. Objects are listed only if there is no
manifest, or if the caller needs to know about other files (`verify`).
"""

from __future__ import annotations

import os

from tokenmill.corpus.hub_names import is_hub_url
from tokenmill.dataset.manifest import MANIFEST_NAME, MAX_MANIFEST_BYTES, Manifest
from tokenmill.dataset.places import (
    MAX_POINTER_BYTES,
    WORK_NAME,
    dataset_folder,
    plan_path,
    pointed_run,
)
from tokenmill.dataset.publication import settle_to_read
from tokenmill.errors import ConfigError, IntegrityError, TokenmillError
from tokenmill.formats import Files
from tokenmill.storage.address import is_url, local_path
from tokenmill.storage.folder_files import FolderFiles
from tokenmill.storage.local import Stat
from tokenmill.storage.object_files import ObjectFiles, unreadable_object
from tokenmill.storage.objects import bucket, in_parallel


def files_at(folder: str, with_others: bool = False) -> Files:
    """The files of the dataset in a folder or at a URL; `with_others` adds files that are not part
    of it. Completes an interrupted publication first.

    Raises ConfigError if nothing is there, IntegrityError if the dataset is not finished.
    """
    folder = local_path(folder) or folder
    if is_hub_url(folder):
        from tokenmill.dataset.hub_snapshot import snapshot_files  # imports HTTP

        return snapshot_files(folder)
    if is_url(folder):
        return _below_url(folder.rstrip("/"), with_others)
    settle_to_read(folder)
    if not os.path.isdir(folder):
        raise ConfigError(f"{folder} is not a folder", hint="name the folder that holds the shards")
    found = FolderFiles(dataset_folder(folder))
    if not found.has(MANIFEST_NAME) and os.path.isdir(os.path.join(folder, WORK_NAME)):
        raise _unfinished(folder)
    return found


def _below_url(url: str, with_others: bool) -> Files:
    try:
        url, manifest = _followed(url)
        if manifest is None:
            if bucket(url).look(plan_path(url)) is not None:
                raise _unfinished(url)
            return ObjectFiles(url, _listed(url))
        whole = _manifest_data(url, manifest)
        listed = _listed(url) if with_others else {}
        found = {**listed, **_of_manifest(url, whole), MANIFEST_NAME: manifest}
        return ObjectFiles(url, found, whole)
    except TokenmillError:
        raise
    except OSError as error:
        raise unreadable_object(url, error) from error


def _followed(url: str) -> tuple[str, Stat | None]:
    """The folder of the dataset at a URL, and its manifest, if there is one."""
    found = bucket(url).look(f"{url}/{MANIFEST_NAME}")
    run = None if found is None else _pointed(url, found)
    while run is not None:
        folder = f"{url}/{run}"
        manifest = bucket(url).look(f"{folder}/{MANIFEST_NAME}")
        if manifest is not None:
            return folder, manifest
        found = bucket(url).look(f"{url}/{MANIFEST_NAME}")
        if found is None or (now := _pointed(url, found)) == run:
            raise IntegrityError(
                f"{url} points to {folder}, which holds no manifest",
                hint="was it removed? Prepare the dataset again: --overwrite",
            )
        run = now  # it was replaced at this moment
    return url, found


def _pointed(url: str, info: Stat) -> str | None:
    """The run that the object is a pointer to; None if it is none."""
    if info.num_bytes > MAX_POINTER_BYTES:
        return None
    return pointed_run(bucket(url).fetch(f"{url}/{MANIFEST_NAME}", [(0, info.num_bytes)])[0])


def _unfinished(folder: str) -> IntegrityError:
    return IntegrityError(
        f"{folder} is not finished: a run is under way or was interrupted",
        hint="run the command that makes it again: it resumes",
    )


def _manifest_data(url: str, info: Stat) -> dict[str, bytes]:
    if info.num_bytes > MAX_MANIFEST_BYTES:  # too large to be a manifest, so it is not read
        return {}
    return {MANIFEST_NAME: bucket(url).fetch(f"{url}/{MANIFEST_NAME}", [(0, info.num_bytes)])[0]}


def _of_manifest(url: str, whole: dict[str, bytes]) -> dict[str, Stat]:
    """The objects that the manifest names and that exist."""
    try:
        data, path = whole.get(MANIFEST_NAME, b""), f"{url}/{MANIFEST_NAME}"
        names = [file.name for file in Manifest.parsed(data, path)[1].files]
    except IntegrityError:
        return {}  # opening the dataset will report the fault
    looks = in_parallel(lambda name: bucket(url).look(f"{url}/{name}"), names)
    return {name: info for name, info in zip(names, looks, strict=True) if info is not None}


def _listed(url: str) -> dict[str, Stat]:
    """All objects below the URL."""
    found = bucket(url).below(url)
    if not found:
        raise ConfigError(
            f"there is nothing at {url}/", hint="name the prefix that holds the shards"
        )
    return found
