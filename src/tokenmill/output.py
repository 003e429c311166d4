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
from tokenmill.corpus import Input
from tokenmill.errors import ConflictError, InputError, IntegrityError, OutputError
from tokenmill.formats import Format
from tokenmill.manifest import MANIFEST_NAME, Manifest
from tokenmill.objectstore import is_url
from tokenmill.plan import identity_differences

WORK_NAME = ".tokenmill"


def finished(out: str, identity: dict[str, Any], inputs: list[Input] | None) -> Manifest | None:
    """The manifest, if this very run is finished. Another run's result is a conflict.

    `inputs` of None are not compared.
    """
    if not storage.exists(os.path.join(out, MANIFEST_NAME)):
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
    sizes = storage.sizes([os.path.join(out, file.name) for file in manifest.files])
    for file, num_bytes in zip(manifest.files, sizes, strict=True):
        if num_bytes != file.num_bytes:
            raise ConflictError(
                f"{os.path.join(out, file.name)} is missing or has changed since the run finished",
                hint="start anew with --overwrite",
            )
    return manifest


def remove_leftovers(out: str) -> None:
    """Remove the work folder of a run that was killed after its manifest was written."""
    work = os.path.join(out, WORK_NAME)
    if is_url(out):
        storage.remove_folder(work)
    elif os.path.isdir(work):
        with storage.lock(os.path.join(work, "lock")):
            storage.remove_folder(work)


def conflict(what: str, changes: list[str]) -> ConflictError:
    shown = changes[:10] + ([f"and {len(changes) - 10} more"] if len(changes) > 10 else [])
    return ConflictError(
        "\n  ".join([f"{what}:", *shown]),
        hint="use the same options and inputs, another folder with -o, or start anew: --overwrite",
    )


@contextlib.contextmanager
def work_folder(out: str, format_: Format, name: str | None) -> Iterator[str]:
    """Hold the work folder and its lock; afterwards, remove it if there is nothing to resume.

    An object store has no lock. It needs none: two runs of one plan write the same bytes.
    """
    if is_url(out):
        with _store_folder(out, format_, name) as work:
            yield work
        return
    is_new = not os.path.exists(out)
    work = _made_work_folder(out, format_, name)
    with storage.lock(os.path.join(work, "lock")):
        try:
            with _removal_explained(work), _takeover_explained(work):
                yield work
        finally:
            is_finished = os.path.exists(os.path.join(out, MANIFEST_NAME))
            if is_finished or not os.path.exists(os.path.join(work, "plan.json")):
                storage.remove_folder(work)
                if is_new and not is_finished:
                    storage.remove_empty_folder(out)


@contextlib.contextmanager
def shared_work_folder(out: str, format_: Format, name: str | None) -> Iterator[str]:
    """Hold the work folder together with other tasks of the same run; it stays."""
    if is_url(out):
        if not storage.exists(os.path.join(out, WORK_NAME, "plan.json")):
            _require_room(out, format_, name)
        yield os.path.join(out, WORK_NAME)
        return
    work = _made_work_folder(out, format_, name)
    with storage.shared_lock(os.path.join(work, "lock")), _removal_explained(work):
        yield work


def _made_work_folder(out: str, format_: Format, name: str | None) -> str:
    work = os.path.join(out, WORK_NAME)
    if os.path.exists(out) and not os.path.isdir(out):
        raise ConflictError(f"{out} is a file, not a folder", hint="choose another with -o")
    if not os.path.exists(os.path.join(work, "plan.json")):
        _require_room(out, format_, name)
    storage.make_folder(work)
    return work


@contextlib.contextmanager
def _removal_explained(work: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        if not str(error.filename).startswith(work):
            raise
        raise ConflictError(
            f"{error.filename} was removed while the run was under way",
            hint="by another run? Once that has ended, run the same command again: it resumes",
        ) from error


@contextlib.contextmanager
def _takeover_explained(work: str) -> Iterator[None]:
    """Where locks do nothing, another run may have taken the folder over: whatever we then fail to
    find, to read or to write is its doing."""
    try:
        yield
    except (OSError, OutputError, IntegrityError) as error:
        try:
            storage.require_lock(os.path.join(work, "lock"))
        except ConflictError as conflict_error:
            raise conflict_error from error
        raise


@contextlib.contextmanager
def _store_folder(out: str, format_: Format, name: str | None) -> Iterator[str]:
    """As `work_folder`, but after an error that is not about the corpus nothing more is asked of
    the store: it may be what failed."""
    work = os.path.join(out, WORK_NAME)
    plan_path = os.path.join(work, "plan.json")
    if not storage.exists(plan_path):
        _require_room(out, format_, name)
    try:
        yield work
    except InputError:
        if not storage.exists(plan_path):
            storage.remove_folder(work)
        raise
    except FileNotFoundError as error:
        raise ConflictError(
            f"something was removed while the run was under way: {error}",
            hint="by another run? Once that has ended, run the same command again: it resumes",
        ) from error
    storage.remove_folder(work)


def publish(folder: str, out: str, manifest: Manifest) -> None:
    """Make `out` the finished dataset: its files, if they are in another folder, and the manifest.
    May be repeated after a crash in the middle."""
    if folder != out:
        _move_files(folder, out, manifest)
    storage.write_file(os.path.join(out, MANIFEST_NAME), manifest.to_json())


def _move_files(folder: str, out: str, manifest: Manifest) -> None:
    for below in sorted({os.path.dirname(file.name) for file in manifest.files} - {""}):
        storage.make_folder(os.path.join(out, below))
    for file in manifest.files:
        source, target = os.path.join(folder, file.name), os.path.join(out, file.name)
        if storage.size(source) is not None:
            storage.rename(source, target)
        elif storage.size(target) != file.num_bytes:
            raise IntegrityError(
                f"{target} is missing or has changed size since it was written",
                hint="start anew with --overwrite",
            )


def _require_room(out: str, format_: Format, name: str | None) -> None:
    """Refuse a folder in which a trainer would find other shards beside ours."""
    suffix = os.path.splitext(format_.shard_name(name or "", "train", 0))[1]
    others = [
        other
        for other in storage.names_below(out)
        if _is_ours(other, format_, name)
        or (not format_.traits.one_file and other.endswith(suffix))
    ]
    if others:
        raise ConflictError(
            f"{out} holds something else: {', '.join(others[:5])}",
            hint="choose another folder with -o, or remove them",
        )


def remove_output(out: str, format_: Format, name: str | None) -> None:
    """Remove an earlier run's files; the manifest first, so that it never outlives them."""
    work = os.path.join(out, WORK_NAME)
    storage.make_folder(work)
    no_lock = contextlib.nullcontext()
    with no_lock if is_url(out) else storage.lock(os.path.join(work, "lock")):
        names = {other for other in storage.names_below(out) if _is_ours(other, format_, name)}
        if storage.exists(os.path.join(out, MANIFEST_NAME)):
            with contextlib.suppress(IntegrityError):  # a broken manifest lists nothing
                names |= {file.name for file in Manifest.load(out).files}
            storage.remove(os.path.join(out, MANIFEST_NAME))
        storage.remove_all([os.path.join(out, other) for other in sorted(names)])
        for folder in {os.path.dirname(other) for other in names} - {""}:
            storage.remove_empty_folder(os.path.join(out, folder))
        storage.remove_folder(work)


def _is_ours(name: str, format_: Format, stem: str | None) -> bool:
    """Whether a run in this format would write a file of that name."""
    return re.fullmatch(format_.pattern.replace("{name}", re.escape(stem or "")), name) is not None
