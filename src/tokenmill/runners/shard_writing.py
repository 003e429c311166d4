"""A shard task in a worker. It reads no text, so a dead worker is not its fault: another one writes
the bytes again, or finds them whole.
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
        self._task = task
        self._num_failed = 0

    def order(self) -> dict[str, Any]:
        return {"shard": self._task.to_plain()}

    def failed(self, death: Death) -> str:
        self._num_failed += 1
        if self._num_failed >= MAX_ATTEMPTS:
            raise WorkerError(
                f"workers keep dying while {self.doing}\n{death.explained}",
                hint=_hint(death),
            )
        return f"it is tried again, attempt {self._num_failed + 1} of {MAX_ATTEMPTS}"

    @property
    def doing(self) -> str:
        from tokenmill.assemble.writing import shard_name

        task = self._task
        piece = f", piece {task.piece:,}" if task.piece > 0 else ""
        return f"writing {shard_name(task)}{piece}"


def _hint(death: Death) -> str:
    if death.is_stall:
        return "if the disk is only slow, allow more: --stall-timeout 3000; the run resumes"
    return "free memory or start fewer workers (--num-proc); the same command resumes"
