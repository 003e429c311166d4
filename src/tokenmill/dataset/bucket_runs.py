"""Runs that share a place in a bucket: who began last, and whose dataset is the finished one.

Nobody can be locked out there, and a request may arrive long after it was sent, when another run is
at work or has finished. So a run writes and removes below names of its own only, which are never
used again (places.py has the layout). Two small objects are shared: `run.json` and the pointer
`tokenmill.json`. They are never removed, and each is replaced only by a request on condition that
it still is what this run has seen; of two runs, one learns that the other was faster.

    begin       plan at its own place, then `run.json`
    publish     the manifest beside the shards, then the pointer; then the replaced runs are removed

A run that was discarded (--overwrite) may still be at work and publish. It is whole then, and
becomes the dataset that is replaced. A store that ignores conditions lets the last pointer win.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from tokenmill.assemble.task import shards_folder
from tokenmill.dataset.manifest import Manifest, OutputFile
from tokenmill.dataset.places import (
    POINTER_NAME,
    WORK_NAME,
    LatestRun,
    latest_run,
    plan_of,
    pointed_run,
    pointer_to,
    run_of,
    run_path,
    work_of,
)
from tokenmill.errors import ConflictError, DamagedWorkError
from tokenmill.storage.store import each, exists, save_record, store_of

MAX_REPLACED = 20


def begin(out: str, seen: LatestRun, plan_id: str, create_plan: Callable[[str], bool]) -> bool:
    """Make this the latest run, after `seen`; False: another run began meanwhile. `create_plan`
    saves the plan at a path."""
    run = run_of(plan_id)
    create_plan(plan_of(out, run))
    if store_of(out).swap(run_path(out), seen.data, LatestRun(run, _before(seen)).to_json()):
        return True
    store_of(out).remove_folder(work_of(out, plan_id))
    return False


def discard(out: str) -> None:
    """Forget the unfinished run, if there is one. Its shards stay until another run has published:
    it may be at work, and publish before that."""
    seen = latest_run(out)
    if not seen.run:
        return
    if store_of(out).swap(run_path(out), seen.data, LatestRun("", _before(seen)).to_json()):
        store_of(out).remove_folder(os.path.join(out, WORK_NAME, seen.run))


def publish(out: str, plan_id: str, manifest: Manifest, overwrite: bool) -> None:
    """Make the run's dataset the finished one. Raises ConflictError if another run has taken
    over."""
    run, path = run_of(plan_id), os.path.join(out, POINTER_NAME)
    folder = shards_folder(work_of(out, plan_id))
    try:
        for _ in each(store_of(out), lambda file: _require_whole(folder, file), manifest.files):
            pass
    except DamagedWorkError:
        if latest_run(out).run != run:
            raise taken_over(out) from None
        raise
    save_record(os.path.join(folder, POINTER_NAME), manifest.to_json())
    old = _content(path)
    if old != pointer_to(run):
        if old is not None and not overwrite:
            raise taken_over(out)
        _note_replaced(out, run, old)  # after the pointer was read: see `_note_replaced`
        if not store_of(out).swap(path, old, pointer_to(run)):
            raise taken_over(out)
    clean_up(out)


def remove_if_discarded(out: str, plan_id: str) -> None:
    """Remove what a run has written since another one discarded it, or replaced its dataset."""
    run, work = run_of(plan_id), work_of(out, plan_id)
    if run not in (latest_run(out).run, _pointed(out)):
        store_of(out).remove_folder(work)
        store_of(out).remove_folder(shards_folder(work))


def _note_replaced(out: str, run: str, pointer: bytes | None) -> None:
    """Add the dataset that is about to be replaced to those that go afterwards. Raises
    ConflictError unless this is the latest run. One that begins later reads the pointer later, so
    only one of the two can replace what `pointer` names."""
    seen = latest_run(out)
    if seen.run != run:
        raise taken_over(out)
    pointed = None if pointer is None else pointed_run(pointer)
    if pointed is not None and pointed not in seen.replaced:
        latest = LatestRun(run, (*seen.replaced, pointed))
        if not store_of(out).swap(run_path(out), seen.data, latest.to_json()):
            raise taken_over(out)


def _before(latest: LatestRun) -> tuple[str, ...]:
    """The runs that a new run replaces, the last ones last. Those that are gone stay for a while: a
    late upload may have come after their removal."""
    return tuple(dict.fromkeys((*latest.replaced, *filter(None, [latest.run]))))[-MAX_REPLACED:]


def is_published(out: str) -> bool:
    """Whether the latest run's dataset is the finished one."""
    run = latest_run(out).run
    return run != "" and run == _pointed(out)


def clean_up(out: str) -> bool:
    """Remove what the published run has replaced, and its own work; whether there was any. Does
    nothing if the latest run is unfinished."""
    seen = latest_run(out)
    work = os.path.join(out, WORK_NAME, seen.run)
    if not seen.run or seen.run != _pointed(out):
        return False
    has_plan = exists(plan_of(out, seen.run))
    for run in seen.replaced if has_plan else ():
        store_of(out).remove_folder(os.path.join(out, WORK_NAME, run))
        store_of(out).remove_folder(os.path.join(out, run))
    store_of(out).remove_folder(work)  # also what another attempt at it wrote after it was removed
    return has_plan


def require_replaceable(out: str) -> None:
    """Raise ConflictError for a dataset that was copied here: its files are not a run's."""
    data = _content(os.path.join(out, POINTER_NAME))
    if data is not None and pointed_run(data) is None:
        raise ConflictError(
            f"{out} holds a dataset that was copied there, or another {POINTER_NAME}; in a bucket, "
            "only what tokenmill wrote there is replaced",
            hint="remove it, or choose another folder with -o",
        )


def taken_over(out: str) -> ConflictError:
    return ConflictError(f"another run has taken over {out}", hint="choose another folder with -o")


def _pointed(out: str) -> str | None:
    data = _content(os.path.join(out, POINTER_NAME))
    return None if data is None else pointed_run(data)


def _content(path: str) -> bytes | None:
    try:
        return store_of(path).read(path)
    except FileNotFoundError:
        return None


def _require_whole(folder: str, file: OutputFile) -> None:
    path = os.path.join(folder, file.name)
    if store_of(path).size(path) != file.num_bytes:
        raise DamagedWorkError(
            f"{path} is missing or has changed size since it was written",
            hint="find out what changed it, then start again with --overwrite",
        )
