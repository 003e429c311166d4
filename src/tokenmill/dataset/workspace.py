"""The output folder of a run: finished or not, who may write, begin or continue.

A run is a function of the user's request. So every attempt looks at the folder in this order:

    a manifest          of the same request: finished. Of another request: a conflict
    a plan              of the same request: continue. Of another request: a conflict
    neither             begin

With --overwrite, a conflict means "begin". The old dataset stays until the new one is whole
(publication.py), and an unfinished run of the same request is still continued.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar

from tokenmill.config import Config
from tokenmill.corpus.hub_inputs import most_bytes_ahead
from tokenmill.corpus.plan import Plan, identity_differences
from tokenmill.corpus.spans import HUB_SCHEME, Input
from tokenmill.dataset import bucket_runs, publication
from tokenmill.dataset.manifest import MANIFEST_NAME, Manifest
from tokenmill.dataset.output_names import OutputNames
from tokenmill.dataset.places import (
    WORK_NAME,
    LatestRun,
    dataset_folder,
    latest_run,
    lock_path,
    plan_of,
    plan_path,
    work_of,
)
from tokenmill.encode.buckets import TEXT_BYTES_PER_TOKEN
from tokenmill.errors import (
    ConflictError,
    DamagedWorkError,
    IntegrityError,
    OutputError,
)
from tokenmill.formats import DTYPE_BYTES
from tokenmill.storage import disk, disk_space
from tokenmill.storage.lock import require_lock
from tokenmill.storage.store import Store, each, exists, store_of
from tokenmill.wording.quantities import shown_bytes


class SavedPlan(Protocol):
    @property
    def plan_id(self) -> str: ...

    def with_own_id(self) -> Self:
        """The same plan, with an id that no other has."""

    def create(self, path: str) -> bool:
        """Save the plan unless one exists; whether this plan was saved."""


P = TypeVar("P", bound=SavedPlan)


class Request(Protocol[P]):
    """What the user asks for. It determines every byte of the dataset."""

    @property
    def what(self) -> str:
        """The noun for messages: run, conversion."""

    @property
    def identity(self) -> dict[str, Any]: ...

    def load(self, path: str) -> P:
        """The plan of an unfinished run."""

    def changes_since(self, plan: P) -> list[str]:
        """The differences from that plan's request, one readable line each."""

    def changes_from(self, manifest: Manifest) -> list[str]:
        """The differences from a finished dataset's request, besides the identity."""

    def changes_in_content(self, manifest: Manifest) -> list[str]:
        """The same, where inputs have to be read again to find them."""


@dataclass(frozen=True, slots=True)
class Workspace:
    out: str

    @property
    def _store(self) -> Store:
        return store_of(self.out)

    @property
    def folder(self) -> str:
        """The folder of everything that unfinished runs keep."""
        return os.path.join(self.out, WORK_NAME)

    @property
    def plan_path(self) -> str:
        return plan_path(self.out)

    @property
    def has_plan(self) -> bool:
        return exists(self.plan_path)

    def work_of(self, plan_id: str) -> str:
        return work_of(self.out, plan_id)

    # Finished datasets

    def dataset(
        self,
        request: Request[P],
        attempt: Callable[[], Manifest],
        overwrite: bool,
        notice: Callable[[str], None],
        before_discard: Callable[[], None] = lambda: None,
    ) -> Manifest | None:
        """The requested dataset, finished earlier or by this attempt. None: the run to continue was
        damaged and, because of --overwrite, discarded; the caller tries again."""
        is_continued = False
        before = dataset_folder(self.out) if overwrite and not self._store.is_local else None
        if overwrite:
            publication.require_no_link(self.folder)
            if (manifest := self._just_published(request)) is not None:
                return manifest
            is_continued = self.is_continued(request)
            if not is_continued:
                before_discard()
                self.discard()
        elif (manifest := self.finished(request)) is not None:
            self.remove_leftovers()
            return manifest
        try:
            return attempt()
        except ConflictError:
            is_as_before = overwrite and dataset_folder(self.out) == before
            if is_as_before or (manifest := self._finished_meanwhile(request)) is None:
                raise
            return manifest
        except DamagedWorkError as error:
            if not is_continued:
                raise
            notice(f"{error.message}\nstarting again because of --overwrite")
        self.discard()
        return None

    def finished(self, request: Request[Any]) -> Manifest | None:
        """The manifest, if this request is finished. The dataset of another request is a
        conflict."""
        manifest = self.finished_dataset()
        if manifest is None:
            return None
        changes = changes_between(request, manifest) or request.changes_in_content(manifest)
        if changes:
            raise _conflict(
                f"{self.out} holds a finished dataset that was made differently", changes
            )
        self.require_files(manifest)
        return manifest

    def finished_dataset(self) -> Manifest | None:
        """The manifest of the finished dataset, of any request."""
        publication.settle(self.out)
        is_there = exists(os.path.join(self.out, MANIFEST_NAME))
        return Manifest.load(self.out) if is_there else None

    def require_files(self, manifest: Manifest) -> None:
        """Raise ConflictError if a file of the finished dataset is missing or has another size."""
        folder = dataset_folder(self.out)
        paths = [os.path.join(folder, file.name) for file in manifest.files]
        sizes = each(self._store, self._store.size, paths)
        for path, file, num_bytes in zip(paths, manifest.files, sizes, strict=True):
            if num_bytes != file.num_bytes:
                raise ConflictError(
                    f"{path} is missing or has changed since the run finished",
                    hint="start again with --overwrite",
                )

    def _finished_meanwhile(self, request: Request[Any]) -> Manifest | None:
        """The manifest of another run of the same request that was faster, in a store without
        locks."""
        if self._store.is_local:
            return None
        with contextlib.suppress(ConflictError):
            if (manifest := self.finished(request)) is not None:
                self.remove_leftovers()
                return manifest
        return None

    def _just_published(self, request: Request[Any]) -> Manifest | None:
        """The manifest, if an interrupted publication of this very request could be completed."""
        try:
            if not self._settled():
                return None
        except IntegrityError:
            return None  # it can only be discarded
        with contextlib.suppress(ConflictError, IntegrityError):
            return self.finished(request)
        return None

    def _settled(self) -> bool:
        """Complete an interrupted publication; whether there was one."""
        if self._store.is_local:
            return publication.settle(self.out)
        return bucket_runs.clean_up(self.out)

    # Begin or continue

    def begin_or_continue(self, request: Request[P], make: Callable[[], P | None]) -> P:
        """The plan of the unfinished run, which must be of this request; or a new plan. `make`
        returns None if it found an existing plan."""
        seen = LatestRun() if self._store.is_local else latest_run(self.out)
        has_plan = self.has_plan if self._store.is_local else bool(seen.run) and self._has(seen)
        if not has_plan:
            plan = make()  # which may take long
            if plan is not None and (begun := self._begun(plan, seen)) is not None:
                return begun
        return self._continued(request)

    def _has(self, run: LatestRun) -> bool:
        return exists(plan_of(self.out, run.run))

    def _begun(self, plan: P, seen: LatestRun) -> P | None:
        """The plan as it was saved; None: another run was faster, since `seen` was the latest."""
        if self._store.is_local:
            return plan if plan.create(self.plan_path) else None
        plan = plan.with_own_id()
        return plan if bucket_runs.begin(self.out, seen, plan.plan_id, plan.create) else None

    def _continued(self, request: Request[P]) -> P:
        try:
            plan = request.load(self.plan_path)
        except FileNotFoundError:
            raise ConflictError(
                f"the {request.what} in {self.out} was removed while this one started",
                hint="run the same command again",
            ) from None
        if changes := request.changes_since(plan):
            raise _conflict(f"the {request.what} in {self.out} was started differently", changes)
        return plan

    def is_continued(self, request: Request[P]) -> bool:
        """Whether there is an unfinished run of this request, which --overwrite continues."""
        try:
            return self.has_plan and not request.changes_since(request.load(self.plan_path))
        except (FileNotFoundError, IntegrityError, ConflictError):
            return False

    # Who may write

    @contextlib.contextmanager
    def held(self, names: OutputNames, overwrite: bool = False) -> Iterator[None]:
        """Hold the folder's lock; afterwards, remove the work folder if there is nothing to resume.

        An object store has no lock and needs none: two runs of one plan write the same bytes.
        """
        is_new = not os.path.exists(self.out)
        self._enter(names, overwrite)
        with (
            self._store.lock(lock_path(self.out)),
            self._tidied(is_new),
            self._removal_explained(),
            self._takeover_explained(),
        ):
            if self._store.is_local:
                disk.remove_temporaries(self.folder)
            yield

    @contextlib.contextmanager
    def cleared_if_discarded(self, plan_id: str) -> Iterator[None]:
        """In a bucket, a discarded run that ends in a conflict leaves nothing."""
        try:
            yield
        except ConflictError:
            if not self._store.is_local:
                bucket_runs.remove_if_discarded(self.out, plan_id)
            raise

    @contextlib.contextmanager
    def shared(self, names: OutputNames) -> Iterator[None]:
        """Share the folder's lock with other tasks of the same run."""
        self._enter(names, False)
        with self._store.lock(lock_path(self.out), is_shared=True), self._removal_explained():
            yield

    @contextlib.contextmanager
    def marked(self, task: str, others: Callable[[str], None]) -> Iterator[None]:
        """Mark a task as running; `others` is told which process already runs it. That process may
        hang on a machine that is lost, so this one works all the same."""
        path = os.path.join(self.folder, f"task-{task.replace('/', '-')}.lock")
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(self._store.lock(path))
            except ConflictError as error:
                others(error.message.rpartition(": ")[2])
            yield

    def _enter(self, names: OutputNames, overwrite: bool) -> None:
        if not self._store.is_local:
            bucket_runs.require_replaceable(self.out)
            return
        publication.require_no_link(self.folder)
        names.require_kinds(self.out)
        if not self.has_plan:
            names.require_free(self.out, overwrite)
        disk.make_folder(self.folder)

    @contextlib.contextmanager
    def _tidied(self, is_new: bool) -> Iterator[None]:
        """Remove the work folder on exit, unless there is something to resume."""
        try:
            yield
        finally:
            if self._store.is_local and not self.has_plan:
                disk.remove_folder(self.folder)
                if is_new:
                    disk.remove_empty_folder(self.out)

    @contextlib.contextmanager
    def _removal_explained(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            if self._store.is_local and not str(error.filename).startswith(self.folder):
                raise
            what, why = error.filename or "something", "" if error.filename else f": {error}"
            raise ConflictError(
                f"{what} was removed while the run was working{why}",
                hint="by another run? Wait for it, then run the same command again: it resumes",
            ) from error

    @contextlib.contextmanager
    def _takeover_explained(self) -> Iterator[None]:
        """Without working locks, another run may have taken over the folder. Then that run is the
        cause of any failure to find, read or write a file, and the error says so."""
        try:
            yield
        except (OSError, OutputError, IntegrityError) as error:
            try:
                if self._store.is_local:
                    require_lock(lock_path(self.out))
            except ConflictError as conflict_error:
                raise conflict_error from error
            raise

    # Removal

    def forget_plan(self) -> None:
        """Remove the plan: there is nothing to resume."""
        if self._store.is_local:
            disk.remove(self.plan_path)
        else:
            bucket_runs.discard(self.out)

    def discard(self) -> None:
        """Remove the unfinished run; the finished dataset beside it stays."""
        if self._store.is_local:
            publication.abandon(self.out)
            self._remove(self.forget_plan)
        elif not bucket_runs.is_published(self.out):
            bucket_runs.discard(self.out)

    def remove_leftovers(self) -> None:
        """Remove what is left of a run that was killed after it had written the manifest, and so
        has no plan any more. An unfinished run stays: it was to replace this dataset."""
        if not self._store.is_local:
            bucket_runs.clean_up(self.out)
            return
        if not os.path.islink(self.folder) and not self.has_plan:
            self._remove()

    def _remove(self, first: Callable[[], None] = lambda: None) -> None:
        publication.require_no_link(self.folder)
        if not os.path.isdir(self.folder):
            return
        with self._store.lock(lock_path(self.out)):
            first()
            disk.remove_folder(self.folder)


def changes_between(request: Request[Any], manifest: Manifest) -> list[str]:
    """How a finished dataset differs from what is requested now, one readable line each."""
    # A finished dataset is not different just because an engine was upgraded since.
    changes = identity_differences(
        {**manifest.identity, "versions": None}, {**request.identity, "versions": None}
    )
    return changes + request.changes_from(manifest)


def _conflict(what: str, changes: list[str]) -> ConflictError:
    shown = changes[:10] + ([f"and {len(changes) - 10} more"] if len(changes) > 10 else [])
    return ConflictError(
        "\n  ".join([f"{what}:", *shown]),
        hint="use the same options and inputs, another output folder, or start again: --overwrite",
    )


# Room on the disk

WORKING_BYTES = 1 << 30  # of parts and shards in the making, unless all parts are needed to the end


def space_warning(config: Config, plan: Plan) -> str | None:
    """The warning for a run whose output will probably not fit on its disk; None if it will.
    `config` is resolved. Nothing is read: the usual number of bytes per token is assumed."""
    text_bytes = plan.text_bytes * (config.sample or 1.0)
    num_tokens = min(text_bytes / TEXT_BYTES_PER_TOKEN, config.limit_tokens or text_bytes)
    needed = needed_bytes(config, absent_inputs(plan.inputs), num_tokens)
    free = disk_space.free_bytes(config.out)
    if needed <= free:
        return None
    return (
        f"the disk may be too small: {disk_space.disk_folder(config.out)} has "
        f"{shown_bytes(free)} free, and the run needs about {shown_bytes(needed)} there\n"
        "hint: make room, or choose another disk with -o; if it fills up, nothing is lost: the "
        "same command resumes"
    )


def needed_bytes(config: Config, absent: Sequence[Input], num_tokens: float) -> int:
    """The space that a run still needs on its disk, about: for tokens, for parts until they are
    shards, for downloads that go there. `absent` are the inputs that have yet to be downloaded."""
    if not config.out or not store_of(config.out).is_local:
        return 0
    output = num_tokens * DTYPE_BYTES[config.dtype]
    needs_all_parts = config.shuffle or config.runner == "ray"
    parts = output if needs_all_parts else min(output, WORKING_BYTES)
    sizes, downloads = [source.num_bytes for source in absent], 0
    if not config.keep_downloads and not config.has_repeats:
        downloads = most_bytes_ahead(sizes)
    elif sizes and disk_space.on_one_disk(absent[0].path, config.out):
        downloads = sum(sizes)
    return max(0, round(output + parts) + downloads - _held_bytes(config.out))


def absent_inputs(inputs: Iterable[Input]) -> list[Input]:
    """The inputs on the Hub that are not downloaded yet."""
    return [
        source
        for source in inputs
        if source.name.startswith(HUB_SCHEME)
        and store_of(source.path).size(source.path) != source.num_bytes
    ]


def _held_bytes(out: str) -> int:
    """The space that an unfinished run already takes."""
    total = 0
    for folder, below, names in os.walk(os.path.join(out, WORK_NAME)):
        # Skipped: there may be a million records of a few hundred bytes.
        below[:] = [name for name in below if name not in ("records", "tasks")]
        total += sum(store_of(out).size(os.path.join(folder, name)) or 0 for name in names)
    return total
