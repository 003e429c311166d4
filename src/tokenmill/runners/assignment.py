"""A worker's task: a slice to encode (Attempts), a shard to write (ShardWriting), or inputs to cut
(InputCutting)."""

from __future__ import annotations

from typing import Any, Protocol

from tokenmill.runners.exit_diagnosis import Death


class Assignment(Protocol):
    is_exclusive: bool  # run it while nothing else runs

    @property
    def is_alone(self) -> bool:
        """Whether to run it in a worker that does nothing else, because a worker died of it, or of
        what else it did."""

    def order(self) -> dict[str, Any]:
        """The message to a worker."""

    def failed(self, death: Death) -> str:
        """Record that its worker died of it and return what happens next; or raise WorkerError."""

    @property
    def doing(self) -> str:
        """What the worker is doing, for a person: 'encoding slice 3 (...)'."""
