"""What a worker is given to do: a slice to encode (Attempts), a shard to write (ShardWriting), or
inputs to cut (Cutting)."""

from __future__ import annotations

from typing import Any, Protocol

from tokenmill.runners.death import Death


class Assignment(Protocol):
    is_alone: bool  # run it while nothing else runs

    def order(self) -> dict[str, Any]:
        """What to send to a worker."""

    def failed(self, death: Death) -> str:
        """Take note that its worker died of it and say what comes next; or raise WorkerError."""

    @property
    def doing(self) -> str:
        """What the worker is at, for a person: 'encoding slice 3 (...)'."""
