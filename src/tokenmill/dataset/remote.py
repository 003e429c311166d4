"""Datasets on object storage, opened as folders (storage/mirror.py).

What tokenmill wrote is found by name: the manifest, and from it every file, each looked at to see
whether it is there and how large it is. A listing is asked for where there is no manifest, and by
who wants to know what else lies there (`verify`).
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator

from tokenmill.dataset.manifest import MANIFEST_NAME, MAX_MANIFEST_BYTES, Manifest
from tokenmill.dataset.places import WORK_NAME
from tokenmill.dataset.publication import settle_to_read
from tokenmill.errors import ConfigError, IntegrityError, TokenmillError
from tokenmill.storage import disk, files, objects
from tokenmill.storage.mirror import Mirror, registered, unreadable
from tokenmill.storage.objects import ObjectInfo, is_url


@contextlib.contextmanager
def at_hand(folder: str, with_others: bool = False) -> Iterator[str]:
    """A folder to read the dataset from: the very one, or while it is used, one that stands for a
    URL. `with_others`: with the objects that are not of the dataset. A publication that was
    interrupted is completed before.

    Raises ConfigError if there is nothing at the URL.
    """
    if not is_url(folder):
        settle_to_read(folder)
        yield folder
        return
    url = folder.rstrip("/")
    with tempfile.TemporaryDirectory(prefix="tokenmill-") as here:
        mirror = Mirror(url, here)
        with registered(mirror):
            try:
                settle_to_read(url)
                _fill(mirror, with_others)
            except TokenmillError:
                raise
            except OSError as error:
                raise unreadable(url, error) from error
            yield here


def _fill(mirror: Mirror, with_others: bool) -> None:
    manifest = objects.look(f"{mirror.url}/{MANIFEST_NAME}")
    if manifest is not None:
        _add_files_of_manifest(mirror, manifest)
    elif objects.look(f"{mirror.url}/{WORK_NAME}/plan.json") is not None:
        files.make_folder(os.path.join(mirror.folder, WORK_NAME))  # says that it is not finished
        return
    if manifest is None or with_others:
        found = _listed(mirror.url)
        if not found:
            raise ConfigError(
                f"there is nothing at {mirror.url}/", hint="name the prefix that holds the shards"
            )
        for name, info in found.items():
            if name != MANIFEST_NAME and not mirror.holds(name):
                mirror.add(name, info)


def _add_files_of_manifest(mirror: Mirror, info: ObjectInfo) -> None:
    path = os.path.join(mirror.folder, MANIFEST_NAME)
    if info.num_bytes > MAX_MANIFEST_BYTES:  # not read; its size alone says that it is none
        disk.write_sparse_file(path, info.num_bytes, {})
        return
    url = f"{mirror.url}/{MANIFEST_NAME}"
    files.write_file(path, objects.read_range(url, 0, info.num_bytes), is_durable=False)
    try:
        names = [file.name for file in Manifest.parsed(mirror.folder)[1].files]
    except IntegrityError:
        return  # whoever opens the folder says what is wrong with it
    looks = objects.in_parallel(lambda name: objects.look(f"{mirror.url}/{name}"), names)
    for name, found in zip(names, looks, strict=True):
        if found is not None and name != MANIFEST_NAME and not mirror.holds(name):
            mirror.add(name, found)


def _listed(url: str) -> dict[str, ObjectInfo]:
    """Objects below the URL by name, as far down as a dataset reaches; no hidden ones."""
    found = {}
    for name, info in ((objects.key_of(name), info) for name, info in objects.find(f"{url}/")):
        below = name.removeprefix(f"{objects.key_of(url)}/")
        parts = below.split("/")
        is_plain = not any(part in ("", "..") or part.startswith(".") for part in parts)
        if below != name and len(parts) <= 2 and is_plain and "\0" not in below:
            found[below] = info
    # An object may be called like a folder of others. A file may not.
    return {name: info for name, info in found.items() if os.path.dirname(name) not in found}
