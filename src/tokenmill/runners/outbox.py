"""Messages from the supervisor's thread to the caller's: records, cuts, notices, steps of slices.

Unread steps are merged: a caller that was busy for a minute finds one step per slice, not a
million.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tokenmill.corpus.spans import Slice
from tokenmill.encode.job import Step
from tokenmill.encode.record import PartRecord
from tokenmill.runners.input_cutting import InputCutting

if TYPE_CHECKING:
    from tokenmill.assemble.task import ShardRecord


@dataclass(frozen=True, slots=True)
class Notice:
    """A message for the user."""

    message: str


@dataclass(frozen=True, slots=True)
class SliceStep:
    slice_: Slice
    step: Step


@dataclass(frozen=True, slots=True)
class SupervisorEnded:
    """The last event; `error` is None if all work is done."""

    error: BaseException | None


@dataclass(frozen=True, slots=True)
class ShardWritten:
    """A shard task is done."""

    record: ShardRecord


_Message = PartRecord | ShardWritten | InputCutting | Notice | SupervisorEnded
Event = _Message | SliceStep


class Outbox:
    def __init__(self) -> None:
        self._filled = threading.Condition()
        self._events: deque[_Message] = deque()
        self._steps: dict[int, SliceStep] = {}

    def put(self, event: _Message) -> None:
        with self._filled:
            self._events.append(event)
            self._filled.notify()

    def put_step(self, slice_: Slice, step: Step) -> None:
        with self._filled:
            before = self._steps.get(slice_.index)
            self._steps[slice_.index] = SliceStep(
                slice_, merged(before.step if before else None, step)
            )
            self._filled.notify()

    def take(self, timeout: float) -> list[Event]:
        """All events; waits up to `timeout` seconds for the first."""
        with self._filled:
            if not self._events and not self._steps:
                self._filled.wait(timeout)
            taken: list[Event] = [*self._steps.values(), *self._events]
            self._steps.clear()
            self._events.clear()
            return taken

    def __len__(self) -> int:
        return len(self._events)


def merged(earlier: Step | None, later: Step) -> Step:
    """The later step's position, with the work of both steps."""
    if earlier is None:
        return later
    return replace(
        later,
        done_rows=earlier.done_rows + later.done_rows,
        done_tokens=earlier.done_tokens + later.done_tokens,
        done_bytes=earlier.done_bytes + later.done_bytes,
    )
