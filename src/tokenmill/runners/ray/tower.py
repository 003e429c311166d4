"""The driver's end of the scout: asks it now and then what it has heard of the workers.

The scout is a process of its own, which takes most of a second to start, and workers wait for it
when they begin: so it is started as early as can be, while the plan is made.
"""

from __future__ import annotations

import itertools
import time
from typing import Any

from tokenmill.runners.ray.cluster import Cluster
from tokenmill.runners.ray.remote import Scout

ASK_SECONDS = 0.25
WAIT_SECONDS = 10.0  # for the scout's answer, when it is needed now

# Of each task that was heard of: its whereabouts, and its last step if there was one.
Heard = dict[int, tuple[list[Any], tuple[int, ...] | None]]


class Tower:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._answer: Any = None  # under way
        self._asked_at = 0.0
        self._keys = itertools.count()
        self.scout = cluster.actor_here(Scout)

    def new_key(self) -> int:
        """What a task is called when it is heard of."""
        return next(self._keys)

    def heard(self, is_urgent: bool = False) -> Heard | None:
        """What is new, without waiting for it unless it is urgent; None: the scout has died.

        A new scout takes its place, but tasks under way go on speaking to the dead one.
        """
        found = self._answered(WAIT_SECONDS if is_urgent else 0.0)
        is_time = is_urgent or time.monotonic() - self._asked_at > ASK_SECONDS
        if found is not None and self._answer is None and is_time:
            self._asked_at = time.monotonic()
            self._answer = self.scout.take.remote()
            if is_urgent:
                later = self._answered(WAIT_SECONDS)
                return None if later is None else {**found, **later}
        return found

    def close(self) -> None:
        import ray

        ray.kill(self.scout)

    def _answered(self, seconds: float) -> Heard | None:
        """The answer under way, if it comes in time; else nothing new."""
        import ray

        if self._answer is None or not ray.wait([self._answer], timeout=seconds)[0]:
            return {}
        answer, self._answer = self._answer, None
        try:
            found: Heard = ray.get(answer)
            return found
        except ray.exceptions.RayError:
            self.scout = self._cluster.actor_here(Scout)
            return None
