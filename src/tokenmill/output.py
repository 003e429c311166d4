"""The output folder: whether a run is finished there, who may write, and making way for a new one.

Nothing of somebody else's is removed or mixed with ours: a folder that holds other shards, another
run or another configuration's result is a conflict, until the user says which one wins.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from typing import Any

from tokenmill import storage
from tokenmill.config import Config
from tokenmill.corpus import Input
from tokenmill.errors import ConflictError, IntegrityError
from tokenmill.formats import Format, get_format
from tokenmill.manifest import MANIFEST_NAME, Manifest
from tokenmill.plan import identity_differences
from tokenmill.record import SPLITS

WORK_NAME = ".tokenmill"


def finished(out: str, identity: dict[str, Any], inputs: list[Input] | None) -> Manifest | None:
    """The manifest, if this very run is finished. Another run's result is a conflict.

    `inputs` of None are not compared.
    """
    if not os.path.exists(os.path.join(out, MANIFEST_NAME)):
        return None
    manifest = Manifest.load(out)
    # A finished dataset does not become another one because an engine was upgraded since.
    changes = identity_differences(
        {**manifest.identity, "versions": None}, {**identity, "versions": None}
    )
    before = {source.path: (source.num_bytes, source.digest) for source in manifest.inputs}
    after = before
    if inputs is not None:
        after = {source.name: (source.num_bytes, source.digest) for source in inputs}
    changes += [f"input removed: {path}" for path in before if path not in after]
    changes += [f"input added: {path}" for path in after if path not in before]
    changes += [
        f"input changed: {path}" for path in before if after.get(path, before[path]) != before[path]
    ]
    if changes:
        raise conflict(f"{out} holds a finished dataset that was made differently", changes)
    for file in manifest.files:
        if storage.size(os.path.join(out, file.name)) != file.num_bytes:
            raise ConflictError(
                f"{os.path.join(out, file.name)} is missing or has changed since the run finished",
                hint="start anew with --overwrite",
            )
    return manifest


def remove_leftovers(out: str) -> None:
    """Remove the work folder of a run that was killed after its manifest was written."""
    work = os.path.join(out, WORK_NAME)
    if os.path.isdir(work):
        with storage.lock(os.path.join(work, "lock")):
            storage.remove_folder(work)


def conflict(what: str, changes: list[str]) -> ConflictError:
    shown = changes[:10] + ([f"and {len(changes) - 10} more"] if len(changes) > 10 else [])
    return ConflictError(
        "\n  ".join([f"{what}:", *shown]),
        hint="use the same options and inputs, another folder with -o, or start anew: --overwrite",
    )


@contextlib.contextmanager
def work_folder(config: Config) -> Iterator[str]:
    """Hold the work folder and its lock; afterwards, remove it if there is nothing to resume."""
    work = os.path.join(config.out, WORK_NAME)
    if os.path.exists(config.out) and not os.path.isdir(config.out):
        raise ConflictError(f"{config.out} is a file, not a folder", hint="choose another with -o")
    if not os.path.exists(os.path.join(work, "plan.json")):
        _require_room(config)
    is_new = not os.path.exists(config.out)
    storage.make_folder(work)
    with storage.lock(os.path.join(work, "lock")):
        try:
            yield work
        finally:
            is_finished = os.path.exists(os.path.join(config.out, MANIFEST_NAME))
            if is_finished or not os.path.exists(os.path.join(work, "plan.json")):
                storage.remove_folder(work)
                if is_new and not is_finished:
                    with contextlib.suppress(OSError):
                        os.rmdir(config.out)


def _require_room(config: Config) -> None:
    """Refuse a folder in which a trainer would find other shards beside ours."""
    if not os.path.isdir(config.out):
        return
    format_ = get_format(config.format)
    suffix = os.path.splitext(format_.shard_name(config.name or "", "train", 0))[1]
    others = [
        name
        for name in storage.names_in(config.out)
        if _is_shard_name(name, format_, config)
        or (format_.defaults.shard_tokens is not None and name.endswith(suffix))
    ]
    if others:
        raise ConflictError(
            f"{config.out} holds something else: {', '.join(others[:5])}",
            hint="choose another folder with -o, or remove them",
        )


def remove_output(config: Config) -> None:
    """Remove an earlier run's files; the manifest first, so that it never outlives them."""
    work = os.path.join(config.out, WORK_NAME)
    storage.make_folder(work)
    with storage.lock(os.path.join(work, "lock")):
        names = {
            n
            for n in storage.names_in(config.out)
            if _is_shard_name(n, get_format(config.format), config)
        }
        if os.path.exists(os.path.join(config.out, MANIFEST_NAME)):
            with contextlib.suppress(IntegrityError):  # a broken manifest lists nothing
                names |= {file.name for file in Manifest.load(config.out).files}
            storage.remove(os.path.join(config.out, MANIFEST_NAME))
        for name in sorted(names):
            storage.remove(os.path.join(config.out, name))
        storage.remove_folder(work)


def _is_shard_name(name: str, format_: Format, config: Config) -> bool:
    number = re.search(r"(\d+)\.\w+$", name)
    index = int(number[1]) if number else 0
    return name in {format_.shard_name(config.name or "", split, index) for split in SPLITS}
