"""The output folder: whether a run is finished there, who may write, and how a new dataset gets in.

    OUT/tokenmill.json                the manifest of a finished dataset
    OUT/.tokenmill/plan.json          a run is under way
    OUT/.tokenmill/ID/                what it has done so far; ID begins its plan's hash
    OUT/.tokenmill/publish.json       its dataset is complete, and is being moved to its place

A dataset that is replaced stays whole until the new one is. `publish.json` is the moment at which
they change places: before it, the old one is there; from then on whoever comes (the run itself, the
same command after a crash, or any command that opens the dataset) completes the move, which can be
repeated. The old manifest goes first and the new one comes last, so no manifest ever describes a
mixture of the two.

Nothing of somebody else's is removed or mixed with ours: a folder that holds other shards, another
run or another configuration's result is a conflict, until the user says which one wins. An input of
the command is never replaced, whatever the user says.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from tokenmill.assemble.task import SHARDS_NAME
from tokenmill.corpus.plan import identity_differences
from tokenmill.corpus.spans import Input
from tokenmill.dataset.manifest import MANIFEST_NAME, QUARANTINE_NAME, Manifest, require_inside
from tokenmill.encode.record import SPLITS
from tokenmill.errors import (
    ConfigError,
    ConflictError,
    DamagedWorkError,
    InputError,
    IntegrityError,
    OutputError,
)
from tokenmill.formats import Format
from tokenmill.storage import disk, files, objects
from tokenmill.storage.checked_json import SEAL_BYTES, seal_of, sealed, unsealed
from tokenmill.storage.lock import lock, require_lock, shared_lock
from tokenmill.storage.objects import is_url, place_of

WORK_NAME = ".tokenmill"
PLAN_NAME = "plan.json"
_PUBLISH_NAME = "publish.json"
# What stands for a manifest in a store while the dataset is replaced.
_NO_MANIFEST_NAME = "replaced.json"
_NO_MANIFEST = b'{"tokenmill_manifest": "this dataset is being replaced by a new one"}\n'


def plan_path(out: str) -> str:
    return os.path.join(out, WORK_NAME, PLAN_NAME)


def work_of(out: str, plan_id: str) -> str:
    """Where a run keeps what it does. Each plan has a place of its own, so that a late worker of a
    run that was given up cannot touch what the next one does."""
    return os.path.join(out, WORK_NAME, plan_id[:16])


def finished(out: str, identity: dict[str, Any], inputs: list[Input] | None) -> Manifest | None:
    """The manifest, if this very run is finished. Another run's result is a conflict.

    `inputs` of None are not compared.
    """
    settle(out)
    if not files.exists(os.path.join(out, MANIFEST_NAME)):
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
    sizes = files.sizes([os.path.join(out, file.name) for file in manifest.files])
    for file, num_bytes in zip(manifest.files, sizes, strict=True):
        if num_bytes != file.num_bytes:
            raise ConflictError(
                f"{os.path.join(out, file.name)} is missing or has changed since the run finished",
                hint="start again with --overwrite",
            )
    return manifest


def remove_leftovers(out: str, identity: dict[str, Any]) -> None:
    """Remove the work folder of a run that was killed after its manifest was written. One that was
    going to replace the dataset by another stays: the user may want to continue it."""
    work = os.path.join(out, WORK_NAME)
    if files.exists(plan_path(out)):
        with contextlib.suppress(IntegrityError):
            if identity_differences(_planned_identity(out), identity):
                return
    if is_url(out):
        files.remove_folder(work)
    elif os.path.isdir(work):
        with lock(os.path.join(work, "lock")):
            files.remove_folder(work)


def _planned_identity(out: str) -> dict[str, Any]:
    try:
        identity = unsealed(files.read_file(plan_path(out)))["identity"]
    except (FileNotFoundError, ValueError, KeyError, TypeError) as error:
        raise IntegrityError(f"{plan_path(out)} is damaged: {error}") from error
    return dict(identity)


def conflict(what: str, changes: list[str]) -> ConflictError:
    shown = changes[:10] + ([f"and {len(changes) - 10} more"] if len(changes) > 10 else [])
    return ConflictError(
        "\n  ".join([f"{what}:", *shown]),
        hint="use the same options and inputs, another output folder, or start again: --overwrite",
    )


# Who may write


@contextlib.contextmanager
def work_folder(
    out: str, format_: Format, name: str | None, overwrite: bool = False
) -> Iterator[str]:
    """Hold the work folder and its lock; afterwards, remove it if there is nothing to resume.

    An object store has no lock. It needs none: two runs of one plan write the same bytes.
    """
    if is_url(out):
        with _store_folder(out, format_, name, overwrite) as work:
            yield work
        return
    is_new = not os.path.exists(out)
    work = _made_work_folder(out, format_, name, overwrite)
    with lock(os.path.join(work, "lock")):
        try:
            with _removal_explained(work), _takeover_explained(work):
                yield work
        finally:
            if not os.path.exists(os.path.join(work, PLAN_NAME)):
                files.remove_folder(work)
                if is_new:
                    files.remove_empty_folder(out)


@contextlib.contextmanager
def shared_work_folder(out: str, format_: Format, name: str | None) -> Iterator[str]:
    """Hold the work folder together with other tasks of the same run; it stays."""
    if is_url(out):
        if not files.exists(plan_path(out)):
            _require_room(out, format_, name, False)
        yield os.path.join(out, WORK_NAME)
        return
    work = _made_work_folder(out, format_, name, False)
    with shared_lock(os.path.join(work, "lock")), _removal_explained(work):
        yield work


def _made_work_folder(out: str, format_: Format, name: str | None, overwrite: bool) -> str:
    work = os.path.join(out, WORK_NAME)
    if os.path.exists(out) and not os.path.isdir(out):
        raise ConflictError(f"{out} is a file, not a folder", hint="choose another with -o")
    if os.path.islink(work):
        raise ConflictError(
            f"{work} is a link: a dataset is put together where it will be", hint="remove the link"
        )
    _require_places(out, format_, name)
    if not os.path.exists(os.path.join(work, PLAN_NAME)):
        _require_room(out, format_, name, overwrite)
    files.make_folder(work)
    return work


def _require_places(out: str, format_: Format, name: str | None) -> None:
    """Refuse folders where files of ours will be, and files where folders of ours will be."""
    folders = {os.path.dirname(format_.shard_name(name or "", split, 0)) for split in SPLITS}
    for other in disk.names_in(out) if os.path.isdir(out) else ():
        path = os.path.join(out, other)
        is_folder = os.path.isdir(path)
        is_file_of_ours = other == MANIFEST_NAME or _is_ours(other, format_, name)
        if is_folder and is_file_of_ours:
            raise _in_the_way(path, "folder")
        if not is_folder and other in folders:
            raise _in_the_way(path, "file")


def _in_the_way(path: str, kind: str) -> ConflictError:
    return ConflictError(
        f"{path} is a {kind}, and stands where the dataset has something else",
        hint="move it away, or choose another output folder",
    )


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
            require_lock(os.path.join(work, "lock"))
        except ConflictError as conflict_error:
            raise conflict_error from error
        raise


@contextlib.contextmanager
def _store_folder(out: str, format_: Format, name: str | None, overwrite: bool) -> Iterator[str]:
    """As `work_folder`, but after an error that is not about the corpus nothing more is asked of
    the store: it may be what failed."""
    work = os.path.join(out, WORK_NAME)
    if not files.exists(plan_path(out)):
        _require_room(out, format_, name, overwrite)
    try:
        yield work
    except InputError:
        if not files.exists(plan_path(out)):
            files.remove_folder(work)
        raise
    except FileNotFoundError as error:
        raise ConflictError(
            f"something was removed while the run was under way: {error}",
            hint="by another run? Once that has ended, run the same command again: it resumes",
        ) from error


def _require_room(out: str, format_: Format, name: str | None, overwrite: bool) -> None:
    """Refuse a folder in which a trainer would find other shards beside ours."""
    suffix = os.path.splitext(format_.shard_name(name or "", "train", 0))[1]
    going = replaced_names(out, format_, name) if overwrite else set()
    others = [
        other
        for other in files.names_below(out)
        if _is_ours(other, format_, name)
        or (not format_.traits.one_file and other.endswith(suffix))
    ]
    if others := [other for other in others if other not in going]:
        raise ConflictError(
            f"{out} holds something else: {', '.join(others[:5])}",
            hint="choose another folder with -o, or remove them",
        )


def discard_work(out: str) -> None:
    """Give up the unfinished run in the work folder; the dataset beside it stays."""
    work = os.path.join(out, WORK_NAME)
    if is_url(out):
        files.remove(plan_path(out))
        files.remove_folder(work)
        return
    if os.path.isdir(work):
        with lock(os.path.join(work, "lock")):
            files.remove(plan_path(out))
            files.remove_folder(work)


# What must not be lost


def replaced_names(out: str, format_: Format, name: str | None) -> set[str]:
    """The files in the folder that a new dataset takes the place of: those of the finished one, and
    those that are called like ours."""
    return _listed_names(out) | _names_like_ours(out, format_, name)


def unlisted_names(out: str, format_: Format, name: str | None) -> list[str]:
    """Those that no manifest lists: perhaps somebody else's."""
    return sorted(_names_like_ours(out, format_, name) - _listed_names(out))


def _names_like_ours(out: str, format_: Format, name: str | None) -> set[str]:
    return {
        other
        for other in files.names_below(out)
        if _is_ours(other, format_, name) or other == QUARANTINE_NAME
    }


def _listed_names(out: str) -> set[str]:
    if not files.exists(os.path.join(out, MANIFEST_NAME)):
        return set()
    try:
        return {file.name for file in Manifest.load(out).files}
    except IntegrityError:
        return set()  # a broken manifest lists nothing


def require_inputs_apart(
    out: str, format_: Format, name: str | None, inputs: Iterable[str]
) -> None:
    """Raise ConfigError if an input, by whatever name or link, is a file that a run into `out`
    would replace or remove."""
    names = replaced_names(out, format_, name) | {MANIFEST_NAME, QUARANTINE_NAME}
    ours = {_file_of(os.path.join(out, one)) for one in names} - {None}
    work = _canonical_folder(os.path.join(out, WORK_NAME))
    for path in inputs:
        folder = _canonical_folder(os.path.dirname(path))
        is_work = folder == work or folder.startswith(f"{work}/")
        if is_work or (ours and _file_of(path) in ours):
            raise ConfigError(
                f"{path} is an input of this command, and its output in {out} would replace it",
                hint="choose another folder with -o",
            )


@functools.lru_cache(maxsize=1024)  # a hundred thousand inputs are in a few folders
def _canonical_folder(path: str) -> str:
    return place_of(path) if is_url(path) else os.path.realpath(path)


def _file_of(path: str) -> Any:
    """What two names of one file or object have in common; None if there is none."""
    if is_url(path) and "://" in (path := place_of(path)):
        return path
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _is_ours(name: str, format_: Format, stem: str | None) -> bool:
    """Whether a run in this format would write a file of that name."""
    return re.fullmatch(format_.pattern.replace("{name}", re.escape(stem or "")), name) is not None


# The change of places


def publish(out: str, plan_id: str, manifest: Manifest, replaced: Collection[str] | None) -> None:
    """Make `out` the finished dataset, of the shards that the run of this plan has made. `replaced`
    are the files that go, unless the new dataset has files of the same names; None: there is no
    dataset to replace, and if one was published meanwhile, it stays."""
    if replaced is None and files.exists(os.path.join(out, MANIFEST_NAME)):
        raise _taken_over(out)
    names, written = {file.name for file in manifest.files}, manifest.to_json()
    if is_url(out):
        work = work_of(out, plan_id)
        files.write_file(os.path.join(work, MANIFEST_NAME), written)
        files.write_file(os.path.join(work, _NO_MANIFEST_NAME), _NO_MANIFEST)
    data = {
        "plan": _plan_seal(out),
        "staged": f"{WORK_NAME}/{plan_id[:16]}/{SHARDS_NAME}",
        "remove": sorted(set(replaced or ()) - names),
        "manifest": written.decode(),
    }
    path = os.path.join(out, WORK_NAME, _PUBLISH_NAME)
    _require_own_plan(out, plan_id)
    if not is_url(out):  # where another run of the same plan may be at it
        _require_names_free(out, names - set(replaced or ()))
        _require_whole(os.path.join(work_of(out, plan_id), SHARDS_NAME), out, manifest)
    files.write_record(path, sealed(json.dumps(data, sort_keys=True).encode()))
    try:
        # Where no lock keeps others out: whoever came in between has another plan now.
        _require_own_plan(out, plan_id)
    except ConflictError:
        files.remove(path)
        raise
    _complete(out)
    if is_url(out) and not _is_manifest(out, written):
        raise _taken_over(out)


def _require_names_free(out: str, names: Iterable[str]) -> None:
    """Raise ConflictError for a file that was put into the folder while the run was under way."""
    others = sorted(name for name in names if os.path.lexists(os.path.join(out, name)))
    if others:
        raise ConflictError(
            f"{out} holds files now that this run would replace: {', '.join(others[:5])}",
            hint="move them away and run the same command again: it resumes",
        )


def _require_whole(staged: str, out: str, manifest: Manifest) -> None:
    """Raise an error, before the old dataset is touched, if the new one cannot be moved to its
    place: a file of it is not there whole, or its folder is a file."""
    for below in {os.path.dirname(file.name) for file in manifest.files} - {""}:
        path = os.path.join(out, below)
        if os.path.lexists(path) and not os.path.isdir(path):
            raise _in_the_way(path, "file")
    for file in manifest.files:
        places = (os.path.join(folder, file.name) for folder in (staged, out))
        found = next((size for size in map(files.size, places) if size is not None), None)
        if found != file.num_bytes:
            raise DamagedWorkError(
                f"{os.path.join(staged, file.name)} is missing or has changed size since it was "
                "written",
                hint="what changed it? Start again with --overwrite",
            )


def _require_own_plan(out: str, plan_id: str) -> None:
    """Raise ConflictError if another run, with another plan, is under way or finished here."""
    try:
        data = files.read_file(plan_path(out))
        # A plan with notes has a seal of its own, and names its id.
        is_own = seal_of(data) == plan_id or unsealed(data).get("plan_id") == plan_id
    except (FileNotFoundError, ValueError):
        is_own = False
        if not is_url(out):
            require_lock(os.path.join(out, WORK_NAME, "lock"))
    if not is_own:
        raise _taken_over(out)


def _taken_over(out: str) -> ConflictError:
    error = ConflictError(f"another run has taken over {out}", hint="choose another folder with -o")
    error.__cause__ = FileNotFoundError(plan_path(out))  # it may have been a run of the same plan
    return error


def _plan_seal(out: str) -> str | None:
    """What tells the plan that is there from any other; of a large one, only its head is read."""
    try:
        return seal_of(files.read_ranges(plan_path(out), [(0, SEAL_BYTES)])[0])
    except (FileNotFoundError, IntegrityError, ValueError):
        return None


def settle(out: str) -> None:
    """Complete a publication that was interrupted; if its run is at it, ConflictError."""
    work = os.path.join(out, WORK_NAME)
    if not files.exists(os.path.join(work, _PUBLISH_NAME)):
        return
    if is_url(out):
        _complete(out)
        return
    with lock(os.path.join(work, "lock")):
        _complete(out)


def is_settled(out: str) -> bool:
    """As `settle`, for a command that may start again: False if what was to be published is
    damaged, and can only be given up."""
    try:
        settle(out)
    except IntegrityError:
        return False
    return True


def settle_to_read(out: str) -> None:
    """As `settle`, for a command that only reads: what it cannot do matters to it only while the
    dataset is between its old and its new place."""
    try:
        settle(out)
    except (ConflictError, OutputError) as error:
        if _is_published(out):
            return
        what = "is being replaced by a new dataset"
        hint = "wait until that run has ended, then try again"
        if isinstance(error, OutputError):
            what = "holds a new dataset that was not moved to its place completely"
            hint = "run `tokenmill inspect` on it as a user who may write there: it completes this"
        raise type(error)(f"{out} {what}: {error.message}", hint=hint) from error


def _is_published(out: str) -> bool:
    """Whether only the work folder is left to remove."""
    try:
        plain = unsealed(files.read_file(os.path.join(out, WORK_NAME, _PUBLISH_NAME)))
        return _is_manifest(out, plain["manifest"].encode())
    except FileNotFoundError:
        return True
    except (OutputError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _complete(out: str) -> None:
    """Move the new dataset to its place, from wherever an earlier attempt got to.

    Where no lock keeps others out, this may be late by any time: the plan is there until the move
    is complete, so every step that could harm another's dataset looks for it first. Without it,
    either all is done, or `publish.json` was left by a run that had been given up.
    """
    work = os.path.join(out, WORK_NAME)
    path = os.path.join(work, _PUBLISH_NAME)
    try:
        plain = unsealed(files.read_file(path))
        data = plain["manifest"].encode()
        manifest, plan = Manifest.from_plain(json.loads(data)), plain["plan"]
        staged, removed = os.path.join(out, _staged(plain["staged"])), plain["remove"]
        for name in removed:
            require_inside(name)
    except FileNotFoundError:
        return  # another has completed it
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedWorkError(
            f"{path} is damaged: {error}", hint="start again with --overwrite"
        ) from error
    # A manifest that is there already says nothing of the shards: the same dataset may be made
    # again because they were damaged.
    is_in_place = _is_manifest(out, data)
    if not is_in_place and _plan_seal(out) != plan:
        files.remove(path)
        return
    try:
        if not is_in_place:
            if not is_url(out):
                _require_whole(staged, out, manifest)
            _withdraw_manifest(out, staged)
        _move_files(staged, out, manifest)
        _require_plan(out, plan, is_in_place)
        _remove_files(out, removed)
        if not is_in_place:
            _require_plan(out, plan)
            _write_manifest(out, staged, data)
    except (ConflictError, IntegrityError):
        if _plan_seal(out) == plan:
            raise
        if _is_manifest(out, data):
            return  # another has completed it
        lost = _taken_over(out)
        raise lost from lost.__cause__
    if _plan_seal(out) in (plan, None):
        files.remove(plan_path(out))
        files.remove_folder(work)


# In a store both are copies of what this run has staged, as shards are: a run that is late, even
# with a request that was sent long ago, finds nothing to copy any more, and does no harm.


def _withdraw_manifest(out: str, staged: str) -> None:
    path = os.path.join(out, MANIFEST_NAME)
    if not is_url(out):
        disk.remove_for_good(path)
        disk.remove_temporaries_of(path)
    elif files.exists(path):
        _copy_beside(staged, _NO_MANIFEST_NAME, out)


def _write_manifest(out: str, staged: str, data: bytes) -> None:
    if not is_url(out):
        files.write_file(os.path.join(out, MANIFEST_NAME), data)
    else:
        _copy_beside(staged, MANIFEST_NAME, out)


def _copy_beside(staged: str, name: str, out: str) -> None:
    if not files.move(
        os.path.join(os.path.dirname(staged), name), os.path.join(out, MANIFEST_NAME)
    ):
        raise _taken_over(out)


def _require_plan(out: str, seal: str, is_in_place: bool = False) -> None:
    """Raise ConflictError if the plan is gone; once the manifest is in its place, it may be."""
    if _plan_seal(out) != seal and not is_in_place:
        raise _taken_over(out)


def _staged(name: str) -> str:
    """The same, if it is where a run keeps its shards: the folder may come from anyone."""
    if not re.fullmatch(rf"{re.escape(WORK_NAME)}/[0-9a-f]{{16}}/{SHARDS_NAME}", name):
        raise ValueError(f"staged {name!r}")
    return name


def _is_manifest(out: str, data: bytes) -> bool:
    try:
        return files.read_file(os.path.join(out, MANIFEST_NAME)) == data
    except FileNotFoundError:
        return False


def _move_files(staged: str, out: str, manifest: Manifest) -> None:
    for below in sorted({os.path.dirname(file.name) for file in manifest.files} - {""}):
        files.make_folder(os.path.join(out, below))
        _require_no_link(os.path.join(out, below))

    def move(file: Any) -> None:
        target = os.path.join(out, file.name)
        if files.move(os.path.join(staged, file.name), target):
            return
        if files.size(target) != file.num_bytes:
            raise DamagedWorkError(
                f"{target} is missing or has changed size since it was written",
                hint="start again with --overwrite",
            )

    for _ in (objects.in_parallel if is_url(out) else map)(move, manifest.files):
        pass


def _remove_files(out: str, names: Collection[str]) -> None:
    below = [
        os.path.join(out, folder) for folder in {os.path.dirname(name) for name in names} - {""}
    ]
    for folder in below:
        _require_no_link(folder)
    files.remove_all([os.path.join(out, name) for name in names])
    for folder in below:
        files.remove_empty_folder(folder)


def _require_no_link(folder: str) -> None:
    if not is_url(folder) and os.path.islink(folder):
        raise ConflictError(
            f"{folder} is a link: what is behind it is not touched", hint="remove the link"
        )
