"""The output folder as a run sees it: is it done, who may write, begin or continue (places.py).

A run is a function of what the user asks for. So every attempt looks at the folder, in this order:

    a manifest          of the same request: it is finished. Of another: a conflict
    a plan              of the same request: continue. Of another: a conflict
    neither             begin

--overwrite takes a conflict for a beginning; a dataset that is replaced stays until the new one is
whole (publication.py), and a run of the same request that is under way is continued all the same.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from tokenmill.corpus.plan import identity_differences
from tokenmill.dataset import publication
from tokenmill.dataset.manifest import MANIFEST_NAME, Manifest
from tokenmill.dataset.output_names import OutputNames
from tokenmill.dataset.places import WORK_NAME, lock_path, plan_path, work_of
from tokenmill.errors import (
    ConflictError,
    DamagedWorkError,
    InputError,
    IntegrityError,
    OutputError,
)
from tokenmill.storage import files
from tokenmill.storage.checked_json import checked_object
from tokenmill.storage.store import Store, store_of


class SavedPlan(Protocol):
    @property
    def plan_id(self) -> str: ...

    def create(self, path: str) -> bool:
        """Save it unless there is a plan already; whether this one was saved."""


P = TypeVar("P", bound=SavedPlan)


class Request(Protocol[P]):
    """What the user asks for: it decides every byte of the dataset."""

    @property
    def what(self) -> str:
        """What to call it in messages: a run, a conversion."""

    @property
    def identity(self) -> dict[str, Any]: ...

    def load(self, path: str) -> P:
        """The plan of a run that is under way."""

    def changes_since(self, plan: P) -> list[str]:
        """What was asked for differently then, one readable line each."""

    def changes_from(self, manifest: Manifest) -> list[str]:
        """The same of a finished dataset, besides the identity."""


@dataclass(frozen=True, slots=True)
class Workspace:
    out: str

    @property
    def _store(self) -> Store:
        return store_of(self.out)

    @property
    def folder(self) -> str:
        """Of all that runs keep while they are under way."""
        return os.path.join(self.out, WORK_NAME)

    @property
    def plan_path(self) -> str:
        return plan_path(self.out)

    @property
    def has_plan(self) -> bool:
        return files.exists(self.plan_path)

    def work_of(self, plan_id: str) -> str:
        return work_of(self.out, plan_id)

    # What is there

    def dataset(
        self,
        request: Request[P],
        attempt: Callable[[], Manifest],
        overwrite: bool,
        notice: Callable[[str], None],
        before_discard: Callable[[], None] = lambda: None,
    ) -> Manifest | None:
        """The dataset that was asked for: finished before, or by this attempt, which begins or
        continues it. None: what it was to continue is damaged and was discarded, as --overwrite
        says; try again."""
        is_continued = False
        if overwrite:
            is_continued = publication.is_settled(self.out) and self._is_continued(request)
            if not is_continued:
                before_discard()
                self.discard()
        elif (manifest := self.finished(request)) is not None:
            self.remove_leftovers(request.identity)
            return manifest
        try:
            return attempt()
        except ConflictError:
            if (manifest := self._finished_meanwhile(request)) is None:
                raise
            return manifest
        except DamagedWorkError as error:
            if not is_continued:
                raise
            notice(f"{error.message}\nstarting again, as --overwrite says")
        self.discard()
        return None

    def finished(self, request: Request[Any]) -> Manifest | None:
        """The manifest, if this very request is finished. Another's result is a conflict."""
        manifest = self.finished_dataset()
        if manifest is None:
            return None
        # A finished dataset does not become another one because an engine was upgraded since.
        changes = identity_differences(
            {**manifest.identity, "versions": None}, {**request.identity, "versions": None}
        )
        if changes := changes + request.changes_from(manifest):
            raise _conflict(
                f"{self.out} holds a finished dataset that was made differently", changes
            )
        self.require_files(manifest)
        return manifest

    def finished_dataset(self) -> Manifest | None:
        """The manifest of whatever dataset is finished here."""
        publication.settle(self.out)
        is_there = files.exists(os.path.join(self.out, MANIFEST_NAME))
        return Manifest.load(self.out) if is_there else None

    def require_files(self, manifest: Manifest) -> None:
        """Raise ConflictError if a file of the finished dataset is not there whole."""
        paths = [os.path.join(self.out, file.name) for file in manifest.files]
        for path, file, found in zip(paths, manifest.files, files.sizes(paths), strict=True):
            if found != file.num_bytes:
                raise ConflictError(
                    f"{path} is missing or has changed since the run finished",
                    hint="start again with --overwrite",
                )

    def _finished_meanwhile(self, request: Request[Any]) -> Manifest | None:
        """The manifest, where nobody could be kept out and another run of the same request was
        faster."""
        if self._store.has_locks:
            return None
        with contextlib.suppress(ConflictError):
            if (manifest := self.finished(request)) is not None:
                self.remove_leftovers(request.identity)
                return manifest
        return None

    # Begin or continue

    def begin_or_continue(self, request: Request[P], make: Callable[[], P | None]) -> P:
        """The plan of the run that is under way, which must be of this request; or a new one.
        `make` returns None if it has seen one."""
        if not self.has_plan:
            plan = make()
            if plan is not None and plan.create(self.plan_path):
                return plan
        return self._continued(request)

    def _continued(self, request: Request[P]) -> P:
        try:
            plan = request.load(self.plan_path)
        except FileNotFoundError:
            raise ConflictError(
                f"the {request.what} in {self.out} was removed while this one began",
                hint="run the same command again",
            ) from None
        if changes := request.changes_since(plan):
            raise _conflict(f"the {request.what} in {self.out} was begun differently", changes)
        return plan

    def _is_continued(self, request: Request[P]) -> bool:
        """Whether a run of this very request is under way, so that --overwrite continues it."""
        try:
            return self.has_plan and not request.changes_since(request.load(self.plan_path))
        except (FileNotFoundError, IntegrityError, ConflictError):
            return False

    # Who may write

    @contextlib.contextmanager
    def held(self, names: OutputNames, overwrite: bool = False) -> Iterator[None]:
        """Hold the folder; afterwards, remove what runs keep if there is nothing to resume.

        An object store has no lock. It needs none: two runs of one plan write the same bytes.
        """
        is_new = not os.path.exists(self.out)
        self._enter(names, overwrite)
        with (
            self._store.lock(lock_path(self.out)),
            self._tidied(is_new),
            self._removal_explained(),
            self._takeover_explained(),
        ):
            self._store.remove_temporaries(self.folder)
            yield

    @contextlib.contextmanager
    def shared(self, names: OutputNames) -> Iterator[None]:
        """Hold the folder together with other tasks of the same run."""
        self._enter(names, False)
        with self._store.shared_lock(lock_path(self.out)), self._removal_explained():
            yield

    def _enter(self, names: OutputNames, overwrite: bool) -> None:
        if self._store.is_link(self.folder):
            raise ConflictError(
                f"{self.folder} is a link: a dataset is put together where it will be",
                hint="remove the link",
            )
        names.require_kinds(self.out)
        if not self.has_plan:
            names.require_free(self.out, overwrite)
        files.make_folder(self.folder)

    @contextlib.contextmanager
    def _tidied(self, is_new: bool) -> Iterator[None]:
        """Leave no folder behind in which there is nothing to resume."""
        error: BaseException | None = None
        try:
            yield
        except BaseException as raised:
            error = raised
            raise
        finally:
            # A store may be what failed: then nothing more is asked of it.
            is_asked = self._store.has_quick_calls or isinstance(error, InputError)
            if is_asked and not self.has_plan:
                files.remove_folder(self.folder)
                if is_new:
                    files.remove_empty_folder(self.out)

    @contextlib.contextmanager
    def _removal_explained(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            if self._store.has_locks and not str(error.filename).startswith(self.folder):
                raise
            what, why = error.filename or "something", "" if error.filename else f": {error}"
            raise ConflictError(
                f"{what} was removed while the run was under way{why}",
                hint="by another run? Once that has ended, run the same command again: it resumes",
            ) from error

    @contextlib.contextmanager
    def _takeover_explained(self) -> Iterator[None]:
        """Where locks do nothing, another run may have taken the folder over: whatever we then fail
        to find, to read or to write is its doing."""
        try:
            yield
        except (OSError, OutputError, IntegrityError) as error:
            try:
                self._store.require_lock(lock_path(self.out))
            except ConflictError as conflict_error:
                raise conflict_error from error
            raise

    # What goes

    def forget_plan(self) -> None:
        """There is nothing to resume."""
        files.remove(self.plan_path)

    def discard(self) -> None:
        """Give up the unfinished run; the dataset beside it stays."""
        self._remove(self.forget_plan)

    def remove_leftovers(self, identity: dict[str, Any]) -> None:
        """Remove what is left of a run that was killed after its manifest was written. A run that
        was going to replace the dataset by another stays: the user may want to continue it."""
        if self.has_plan:
            with contextlib.suppress(IntegrityError):
                if identity_differences(self._planned_identity(), identity):
                    return
        self._remove()

    def _remove(self, first: Callable[[], None] = lambda: None) -> None:
        if self._store.has_locks and not os.path.isdir(self.folder):
            return
        with self._store.lock(lock_path(self.out)):
            first()
            files.remove_folder(self.folder)

    def _planned_identity(self) -> dict[str, Any]:
        try:
            return dict(checked_object(files.read_file(self.plan_path))["identity"])
        except (FileNotFoundError, ValueError, KeyError, TypeError) as error:
            raise IntegrityError(f"{self.plan_path} is damaged: {error}") from error


def _conflict(what: str, changes: list[str]) -> ConflictError:
    shown = changes[:10] + ([f"and {len(changes) - 10} more"] if len(changes) > 10 else [])
    return ConflictError(
        "\n  ".join([f"{what}:", *shown]),
        hint="use the same options and inputs, another output folder, or start again: --overwrite",
    )
