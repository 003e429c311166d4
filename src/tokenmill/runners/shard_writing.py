"""A shard task in a worker. It reads no text, so a dead worker is hardly its fault: another one
writes the bytes again, or finds them whole.

What ends the run is that nothing advances. One task has three attempts, and three more once one of
them has drafted it. And of all workers, each may die three times (a single one, six), as long as
none writes a shard: there may be no single task to blame, if each is finished by the worker that
dies of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokenmill.errors import WorkerError
from tokenmill.runners.attempts import MAX_ATTEMPTS
from tokenmill.runners.exit_diagnosis import Death

if TYPE_CHECKING:
    from tokenmill.assemble.task import ShardTask


class ShardWriting:
    is_exclusive = False

    def __init__(self, task: ShardTask) -> None:
        self.place = (task.stream, task.shard, task.piece)
        self.is_drafted = False  # by its current worker
        self._task = task
        self._num_failed = 0  # since an attempt got further than all before
        self._was_drafted = False  # by an earlier worker

    def order(self) -> dict[str, Any]:
        self.is_drafted = False
        return {"shard": self._task.to_plain()}

    def failed(self, death: Death) -> str:
        again = "it is tried again"
        if self.is_drafted and not self._was_drafted:
            self._was_drafted = True
            again = "it got further than before and " * (self._num_failed > 0) + again
            self._num_failed = 0
        self._num_failed += 1
        if self._num_failed >= MAX_ATTEMPTS:
            raise WorkerError(
                f"workers keep dying while {self.doing}\n{death.explained}", hint=_hint(death)
            )
        return f"{again}, attempt {self._num_failed + 1} of {MAX_ATTEMPTS}"

    @property
    def is_alone(self) -> bool:
        return self._num_failed > 0

    @property
    def doing(self) -> str:
        from tokenmill.assemble.writing import shard_name

        task = self._task
        piece = f", piece {task.piece:,}" if task.piece > 0 else ""
        return f"writing {shard_name(task)}{piece}"


class ShardDeaths:
    """The deaths of workers that were writing shards, since one has written a shard."""

    def __init__(self, num_workers: int) -> None:
        # Of one worker, too, it is more than the attempts at one task.
        self._limit = MAX_ATTEMPTS * max(2, num_workers)
        self._num_deaths = 0

    def on_shard_written(self) -> None:
        self._num_deaths = 0

    def on_death(self, death: Death) -> None:
        self._num_deaths += 1
        if self._num_deaths >= self._limit:
            raise WorkerError(
                f"workers keep dying while they write shards: {self._limit} in a row\n"
                f"{death.explained}",
                hint=_hint(death),
            )


def _hint(death: Death) -> str:
    if death.is_stall:
        return "if the disk is only slow, allow more: --stall-timeout 3000; the run resumes"
    return "free memory or start fewer workers (--num-proc); the same command resumes"
