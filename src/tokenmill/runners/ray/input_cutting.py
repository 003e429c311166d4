"""Cuts inputs into spans on the nodes of a cluster, for the plan.

Inputs are cut where they will be encoded: a node that cannot read them fails before a token is
written, and all nodes read the footers of a million files in parallel. A dead task's partial
results are lost, so its inputs are then handed out one by one. An input that kills its reader twice
is an error, as in the processes runner.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from tokenmill.corpus.input_spans import Cut
from tokenmill.corpus.readers import ReadOptions
from tokenmill.corpus.spans import Input
from tokenmill.runners import Stopped, Watch
from tokenmill.runners.exit_diagnosis import Death
from tokenmill.runners.input_cutting import CUT_INPUTS, InputCutting
from tokenmill.runners.ray.cluster import IDLE_SECONDS, Cluster
from tokenmill.runners.ray.facts import mismatch
from tokenmill.runners.ray.remote import cut_on_node
from tokenmill.runners.worker import error_in

TICK_SECONDS = 0.25
CUTS_PER_SLOT = 2


class Cuts:
    """One plan's inputs. `common` is the part of every order besides the inputs."""

    def __init__(
        self,
        cluster: Cluster,
        common: dict[str, Any],
        options: ReadOptions,
        max_rows: int | None,
        watch: Watch,
    ) -> None:
        self._cluster = cluster
        self._common = common
        self._options = options
        self._max_rows = max_rows
        self._watch = watch
        self._idle_from = time.monotonic()

    def of(self, inputs: Iterable[Input]) -> Iterator[Cut]:
        """The cuts, in order. Inputs are drawn as the cluster has room, because each may have to be
        fetched first. Of several errors, that of the first input is raised."""
        import ray

        sources = iter(inputs)
        waiting: deque[tuple[list[Input], Any]] = deque()
        try:
            while some := list(islice(sources, CUT_INPUTS)):
                waiting.append((some, self._launched(self._cutting(some))))
                while len(waiting) > max(1, CUTS_PER_SLOT * self._cluster.num_slots):
                    yield from self._finished(*waiting.popleft())
            while waiting:
                yield from self._finished(*waiting.popleft())
        finally:
            for _, task in waiting:
                ray.cancel(task, force=True)

    def _cutting(self, sources: list[Input]) -> InputCutting:
        return InputCutting(sources, self._options, self._max_rows)

    def _launched(self, cutting: InputCutting) -> Any:
        return self._cluster.anywhere(cut_on_node).remote({**self._common, **cutting.order()})

    def _finished(self, sources: list[Input], task: Any) -> Iterator[Cut]:
        cutting = self._cutting(sources)
        death = self._answered(cutting, task)
        if death is not None and len(sources) > 1:
            for source in sources:
                single = self._cutting([source])
                yield from self._finished([source], self._launched(single))
            return
        while death is not None:
            cutting.is_begun = True
            doing = cutting.doing
            outcome = cutting.failed(death)
            self._watch.notice(f"a worker died while {doing}: {death.explained}\n{outcome}")
            if cutting.is_done:
                break
            death = self._answered(cutting, self._launched(cutting))
        yield from cutting.found
        if cutting.error is not None:
            raise cutting.error

    def _answered(self, cutting: InputCutting, task: Any) -> Death | None:
        """Wait for the task and pass its result to the cutting; returns its death, if it died."""
        import ray

        while not ray.wait([task], timeout=TICK_SECONDS)[0]:
            if self._watch.should_stop():
                ray.cancel(task, force=True)
                raise Stopped
            if time.monotonic() - self._idle_from > IDLE_SECONDS and not self._cluster.num_slots:
                self._watch.notice(self._cluster.idle_words)
                self._idle_from = float("inf")
        try:
            said = ray.get(task)
        except ray.exceptions.RayError as error:
            return Death(0, type(error).__name__, str(error).strip().splitlines()[0][:200])
        for kind, *content in said:
            if kind in ("cutting", "cut", "uncut"):
                cutting.on_message(kind, content)
            elif kind == "memory":
                return Death(0, "MemoryError", "it asked for more memory than it may have")
            elif kind == "refused":
                found, node = content
                raise mismatch(self._cluster.name(node), self._common["facts"], found)
            else:
                raise error_in(kind, content)
        return None
