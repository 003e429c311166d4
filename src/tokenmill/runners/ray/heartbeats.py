"""Heartbeats: workers report their progress, and the driver polls it.

Each task has one value in the key-value store of Ray's head node, which its worker overwrites, so
the last report outlives the worker. An actor instead would be one more process that can die, and
0.6 CPU seconds in every run.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass
from typing import Any

from tokenmill.encode.job import Step
from tokenmill.runners import machine
from tokenmill.runners.outbox import merged

NAMESPACE = "tokenmill"
ASK_SECONDS = 0.25
MAX_ASKED = 100  # tasks per read, 0.3 ms each


@dataclass(frozen=True, slots=True)
class Heartbeat:
    location: tuple[str, int, str, int]  # node, pid, log, OOM kills at its start
    step: Step | None  # counted from the task's beginning


class HeartbeatSender:
    """A worker's end."""

    def __init__(self, key: str, node: str, pid: int, log: str) -> None:
        self._key = key
        self.location = [node, pid, log, machine.oom_kill_count()]
        self._numbers = itertools.count()  # makes repeated reports differ: the worker is alive
        self._step: Step | None = None

    def send(self, step: Step | None = None) -> None:
        """Returns once the report is stored, because the next document may kill this process."""
        import ray
        from ray.experimental.internal_kv import _internal_kv_put

        if step is not None:
            self._step = merged(self._step, step)
        plain = [next(self._numbers), self.location, self._step and astuple(self._step)]
        with contextlib.suppress(ray.exceptions.RayError):
            _internal_kv_put(self._key, json.dumps(plain), namespace=NAMESPACE)


class Heartbeats:
    """The driver's end."""

    def __init__(self) -> None:
        self._prefix = f"{uuid.uuid4().hex}/"
        self._numbers = itertools.count()
        self._read: dict[str, bytes] = {}
        self._looked_at = 0.0
        self._at = 0  # where the next read starts, if there are more than MAX_ASKED tasks

    def new_key(self) -> str:
        """A new task's key."""
        return f"{self._prefix}{next(self._numbers)}"

    def new_heartbeats(self, keys: Mapping[str, Any]) -> Iterator[tuple[str, Heartbeat]]:
        """New heartbeats of these tasks; at most MAX_ASKED of them, every ASK_SECONDS."""
        if time.monotonic() - self._looked_at < ASK_SECONDS or not keys:
            return
        self._looked_at = time.monotonic()
        asked = list(itertools.islice(itertools.cycle(keys), self._at, self._at + len(keys)))
        self._at = (self._at + MAX_ASKED) % len(keys)
        for key in asked[:MAX_ASKED]:
            heartbeat = self.new_heartbeat(key)
            if heartbeat is not None:
                yield key, heartbeat

    def new_heartbeat(self, key: str) -> Heartbeat | None:
        """A task's heartbeat, if it was not read before."""
        import ray
        from ray.experimental.internal_kv import _internal_kv_get

        value = None
        with contextlib.suppress(ray.exceptions.RayError):
            value = _internal_kv_get(key, namespace=NAMESPACE)
        if value is None or value == self._read.get(key):
            return None
        self._read[key] = value
        _, location, step = json.loads(value)
        return Heartbeat(tuple(location), Step(*step) if step else None)

    def forget(self, key: str) -> None:
        self._read.pop(key, None)
        self._remove(key)

    def close(self) -> None:
        self._remove(self._prefix, del_by_prefix=True)

    def _remove(self, key: str, **how: Any) -> None:
        import ray
        from ray.experimental.internal_kv import _internal_kv_del

        with contextlib.suppress(ray.exceptions.RayError):
            _internal_kv_del(key, namespace=NAMESPACE, **how)
