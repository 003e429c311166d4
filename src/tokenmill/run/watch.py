"""The events of a run, which `tokenmill.prepare` reports to its `watch`."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from tokenmill.corpus.plan import Plan
from tokenmill.corpus.spans import Slice
from tokenmill.encode.job import Step
from tokenmill.encode.record import PartRecord
from tokenmill.runners import Watch

if TYPE_CHECKING:
    from tokenmill.corpus.downloads import DownloadProgress


class RunWatch(Watch, Protocol):
    """A Watch that is also told of the plan, of downloads and of finished slices."""

    def planned(self, plan: Plan, done: Collection[int]) -> None:
        """The slices are known; earlier attempts have encoded those with the indices `done`."""

    def downloading(self, progress: Callable[[], DownloadProgress | None]) -> None:
        """Files are being downloaded; `progress` may be called at any time."""

    def recorded(self, record: PartRecord) -> None:
        """A slice is done."""


@runtime_checkable
class LimitWatch(Protocol):
    """What a RunWatch may have besides."""

    def limited(self, num_tokens: int, max_tokens: int) -> None:
        """The run ends with `max_tokens` (--limit-tokens); the slices that are done have
        `num_tokens`, without duplicates."""


def tell_limit(watch: RunWatch, num_tokens: int, max_tokens: int) -> None:
    if isinstance(watch, LimitWatch):
        watch.limited(num_tokens, max_tokens)


class SilentWatch:
    """Ignores every event: the default of `tokenmill.prepare`."""

    def planned(self, plan: Plan, done: Collection[int]) -> None: ...

    def downloading(self, progress: Callable[[], DownloadProgress | None]) -> None: ...

    def recorded(self, record: PartRecord) -> None: ...

    def step(self, slice_: Slice, step: Step) -> None: ...

    def notice(self, message: str) -> None: ...

    def should_stop(self) -> bool:
        return False
