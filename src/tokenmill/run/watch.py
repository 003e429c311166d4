"""Looking on at a run: what `tokenmill.prepare` tells its `watch`."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from tokenmill.corpus.download.progress import DownloadProgress
from tokenmill.corpus.plan import Plan
from tokenmill.corpus.spans import Slice
from tokenmill.encode.job import Step
from tokenmill.encode.record import PartRecord
from tokenmill.runners import Watch


class RunWatch(Watch, Protocol):
    """A Watch that also sees the run begin and end."""

    def planned(self, plan: Plan, done: Collection[int]) -> None:
        """The slices are known; those of the indices `done` were encoded by earlier attempts."""

    def downloading(self, progress: Callable[[], DownloadProgress | None]) -> None:
        """Files are being downloaded; `progress` says how far that is, at any time."""

    def recorded(self, record: PartRecord) -> None:
        """A slice is done."""


class SilentWatch:
    """Looks on and says nothing: what `tokenmill.prepare` uses unless told otherwise."""

    def planned(self, plan: Plan, done: Collection[int]) -> None: ...

    def downloading(self, progress: Callable[[], DownloadProgress | None]) -> None: ...

    def recorded(self, record: PartRecord) -> None: ...

    def step(self, slice_: Slice, step: Step) -> None: ...

    def notice(self, message: str) -> None: ...

    def should_stop(self) -> bool:
        return False
