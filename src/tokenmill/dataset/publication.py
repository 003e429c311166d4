"""How a new dataset takes its place in the output folder, on a disk (bucket_runs.py: in a bucket).

The old dataset stays whole until the new one is. Writing `publish.json` is the switch: before it,
the folder holds the old dataset. After it, any command (the run itself, the same command after a
crash, or a command that opens the dataset) completes the move, which is idempotent. The old
manifest is removed first and the new one is written last, so no manifest ever describes a mixture.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable

from tokenmill.assemble.task import SHARDS_NAME
from tokenmill.dataset import bucket_runs
from tokenmill.dataset.bucket_runs import taken_over
from tokenmill.dataset.manifest import MANIFEST_NAME, Manifest, OutputFile, require_inside
from tokenmill.dataset.output_names import in_the_way
from tokenmill.dataset.places import (
    WORK_NAME,
    lock_path,
    plan_path,
    publish_path,
    run_of,
    work_of,
)
from tokenmill.errors import ConflictError, DamagedWorkError, IntegrityError, OutputError
from tokenmill.runners.machine import available_cpus
from tokenmill.runners.threads import in_threads
from tokenmill.storage import disk
from tokenmill.storage.checked_json import CHECKSUM_BYTES, checked_object, checksum_of, checksummed
from tokenmill.storage.hashing import sha256_at
from tokenmill.storage.lock import require_lock
from tokenmill.storage.store import exists, read_ranges, save_record, store_of


def publish(out: str, plan_id: str, manifest: Manifest, replaced: Collection[str] | None) -> None:
    """Make `out` the finished dataset, from the staged shards of this plan. `replaced` are files to
    remove, unless the new dataset has files of the same names. None: there is no dataset to
    replace, and one that was published meanwhile stays."""
    if not store_of(out).is_local:
        bucket_runs.publish(out, plan_id, manifest, overwrite=replaced is not None)
        return
    if replaced is None and os.path.exists(os.path.join(out, MANIFEST_NAME)):
        raise taken_over(out)
    names = {file.name for file in manifest.files}
    data = {
        "plan": _plan_checksum(out),
        "staged": f"{WORK_NAME}/{run_of(plan_id)}/{SHARDS_NAME}",
        "remove": sorted(set(replaced or ()) - names),
        "manifest": manifest.to_json().decode(),
    }
    path = publish_path(out)
    _require_own_plan(out, plan_id)
    _require_names_free(out, names - set(replaced or ()))
    staged = os.path.join(work_of(out, plan_id), SHARDS_NAME)
    _require_whole(staged, out, manifest, is_hashed=False)
    save_record(path, checksummed(json.dumps(data, sort_keys=True).encode()))
    try:
        # Locks do not work everywhere: a run that came in between has another plan.
        _require_own_plan(out, plan_id)
    except ConflictError:
        disk.remove(path)
        raise
    _complete(out, is_interrupted=False)


def _require_names_free(out: str, names: Iterable[str]) -> None:
    """Raise ConflictError for a file that appeared in the folder during the run."""
    others = sorted(name for name in names if os.path.lexists(os.path.join(out, name)))
    if others:
        raise ConflictError(
            f"{out} now holds files that this run would replace: {', '.join(others[:5])}",
            hint="move them away and run the same command again: it resumes",
        )


def _require_whole(staged: str, out: str, manifest: Manifest, is_hashed: bool) -> None:
    """Raise an error, before the old dataset is touched, if the new one cannot be moved into place:
    one of its files is missing or changed, or a file has the name of its folder."""
    for below in {os.path.dirname(file.name) for file in manifest.files} - {""}:
        path = os.path.join(out, below)
        if os.path.lexists(path) and not os.path.isdir(path):
            raise in_the_way(path, "file")

    def check(file: OutputFile) -> None:
        _require_file(staged, out, file, is_hashed)

    for _ in in_threads(check, manifest.files, available_cpus()):
        pass


def _require_file(staged: str, out: str, file: OutputFile, is_hashed: bool) -> None:
    """Raise DamagedWorkError unless the file is staged, or in its place already. An old file there
    may have its name and its size, so its sha256 is compared; that of a staged one if `is_hashed`:
    then it was made by an attempt that died."""
    path = os.path.join(staged, file.name)
    if not os.path.lexists(path):
        path, is_hashed = os.path.join(out, file.name), True
    pieces = (file.sha256,) if isinstance(file.sha256, str) else file.sha256
    is_candidate = os.path.isfile(path) and os.path.getsize(path) == file.num_bytes
    if is_candidate and (
        not is_hashed or sha256_at(path, 0, file.num_bytes, len(pieces) > 1) == pieces
    ):
        return
    raise DamagedWorkError(
        f"{os.path.join(staged, file.name)} is missing or has changed since it was written",
        hint="find out what changed it, then start again with --overwrite",
    )


def _require_own_plan(out: str, plan_id: str) -> None:
    """Raise ConflictError if a run with another plan is unfinished or finished here."""
    try:
        data = store_of(out).read(plan_path(out))
        # A plan with notes has another checksum than its id, and names its id.
        is_own = checksum_of(data) == plan_id or checked_object(data).get("plan_id") == plan_id
    except (FileNotFoundError, ValueError):
        is_own = False
        require_lock(lock_path(out))
    if not is_own:
        raise taken_over(out)


def _plan_checksum(out: str) -> str | None:
    """A value that identifies the current plan; only the head of the file is read."""
    try:
        return checksum_of(read_ranges(plan_path(out), [(0, CHECKSUM_BYTES)])[0])
    except (FileNotFoundError, IntegrityError, ValueError):
        return None


def settle(out: str) -> bool:
    """Complete an interrupted publication. ConflictError if its run is still working on it."""
    if not store_of(out).is_local or not os.path.exists(publish_path(out)):
        return False
    require_no_link(os.path.join(out, WORK_NAME))
    with store_of(out).lock(lock_path(out)):
        _complete(out, is_interrupted=True)
    return True


def abandon(out: str) -> None:
    """Remove what an interrupted publication has moved, if the old dataset is not whole any more.
    The publication itself cannot be completed, and is to be forgotten."""
    if os.path.exists(os.path.join(out, MANIFEST_NAME)):
        return
    try:
        plain = checked_object(store_of(out).read(publish_path(out)))
        manifest = Manifest.from_plain(json.loads(plain["manifest"]))
        names = [*(file.name for file in manifest.files), *plain["remove"]]
        for name in names:
            require_inside(name)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return  # there is none, or nothing can be known of it
    _remove_files(out, names)


def settle_to_read(out: str) -> None:
    """Like `settle`, for a command that only reads: a failure matters only while the dataset is
    partly moved."""
    if exists(publish_path(out)):
        require_no_link(os.path.join(out, WORK_NAME))
    try:
        settle(out)
    except (ConflictError, OutputError) as error:
        if _is_published(out):
            return
        what = "is being replaced by a new dataset"
        hint = "wait until that run has finished, then try again"
        if isinstance(error, OutputError):
            what = "holds a new dataset that was not completely moved into place"
            hint = "run `tokenmill inspect` on it as a user who may write there: it completes this"
        raise type(error)(f"{out} {what}: {error.message}", hint=hint) from error


def _is_published(out: str) -> bool:
    """Whether the move is complete and only the work folder remains."""
    try:
        plain = checked_object(store_of(out).read(publish_path(out)))
        return _is_manifest(out, plain["manifest"].encode())
    except FileNotFoundError:
        return True
    except (OutputError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _complete(out: str, is_interrupted: bool) -> None:
    """Move the new dataset into place, continuing where an earlier attempt stopped.

    Without a lock, this call may run arbitrarily late. The plan exists until the move is complete,
    so every step that could harm another run's dataset checks for the plan first. If the plan is
    gone, either the move is complete, or a discarded run left `publish.json` behind.
    """
    path = publish_path(out)
    try:
        plain = checked_object(store_of(path).read(path))
        data = plain["manifest"].encode()
        manifest, plan = Manifest.from_plain(json.loads(data)), plain["plan"]
        staged, removed = os.path.join(out, _staged(plain["staged"])), plain["remove"]
        for name in removed:
            require_inside(name)
    except FileNotFoundError:
        return  # another process has completed it
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedWorkError(
            f"{path} is damaged: {error}", hint="start again with --overwrite"
        ) from error
    _require_real(staged)
    # An existing manifest says nothing about the shards: the same dataset may be prepared again
    # because its shards were damaged.
    is_in_place = _is_manifest(out, data)
    if not is_in_place and _plan_checksum(out) != plan:
        disk.remove(path)
        return
    try:
        if not is_in_place:
            _require_whole(staged, out, manifest, is_interrupted)
            manifest_path = os.path.join(out, MANIFEST_NAME)
            disk.remove_for_good(manifest_path)
            disk.remove_temporaries_of(manifest_path)
        _move_files(staged, out, manifest)
        _require_plan(out, plan, is_in_place)
        _remove_files(out, removed)
        if not is_in_place:
            _require_plan(out, plan)
            store_of(out).write(os.path.join(out, MANIFEST_NAME), data)
    except (ConflictError, IntegrityError):
        if _plan_checksum(out) == plan:
            raise
        if _is_manifest(out, data):
            return  # another process has completed it
        raise taken_over(out) from None
    if _plan_checksum(out) in (plan, None):
        disk.remove(plan_path(out))
        disk.remove_folder(os.path.join(out, WORK_NAME))


def _require_plan(out: str, checksum: str, is_in_place: bool = False) -> None:
    """Raise ConflictError if the plan is gone, which is allowed once the manifest is in place."""
    if _plan_checksum(out) != checksum and not is_in_place:
        raise taken_over(out)


def _staged(name: str) -> str:
    """The name, checked to be inside a run's staging folder: the folder may come from anyone."""
    if not re.fullmatch(rf"{re.escape(WORK_NAME)}/[0-9a-f]{{16}}/{SHARDS_NAME}", name):
        raise ValueError(f"staged {name!r}")
    return name


def _require_real(staged: str) -> None:
    """Raise DamagedWorkError if the staged files are behind a link, which may lead anywhere in
    somebody else's folder."""
    for folder in (os.path.dirname(staged), staged):
        if os.path.islink(folder):
            raise DamagedWorkError(
                f"{folder} is a link, and its target is never touched",
                hint="remove the link; the dataset has to be made again: --overwrite",
            )


def _is_manifest(out: str, data: bytes) -> bool:
    try:
        return store_of(out).read(os.path.join(out, MANIFEST_NAME)) == data
    except FileNotFoundError:
        return False


def _move_files(staged: str, out: str, manifest: Manifest) -> None:
    for below in sorted({os.path.dirname(file.name) for file in manifest.files} - {""}):
        disk.make_folder(os.path.join(out, below))
        require_no_link(os.path.join(out, below))

    for file in manifest.files:
        target = os.path.join(out, file.name)
        # A file that is not staged is the right one: `_require_whole`.
        is_moved = disk.rename_if_there(os.path.join(staged, file.name), target)
        if not is_moved and store_of(out).size(target) != file.num_bytes:
            raise DamagedWorkError(
                f"{target} is missing or has changed size since it was written",
                hint="start again with --overwrite",
            )


def _remove_files(out: str, names: Collection[str]) -> None:
    below = [
        os.path.join(out, folder) for folder in {os.path.dirname(name) for name in names} - {""}
    ]
    for folder in below:
        require_no_link(folder)
    for name in names:
        disk.remove(os.path.join(out, name))
    for folder in below:
        disk.remove_empty_folder(folder)


def require_no_link(folder: str) -> None:
    if os.path.islink(folder):
        raise ConflictError(
            f"{folder} is a link, and its target is never touched", hint="remove the link"
        )
