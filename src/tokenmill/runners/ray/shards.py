"""Shard orders on their way through the cluster: assembly by all nodes.

An order names bytes of parts and where the shard goes; the bytes themselves pass through the node
that carries it out and nowhere else. A shard has its record when it is in its place, so an order
that was lost is given out again, up to three times: no document is to blame any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tokenmill.errors import TokenmillError, WorkerError, error_from_plain
from tokenmill.fulfil import WrittenShard
from tokenmill.orders import ShardOrder
from tokenmill.runners import Watch
from tokenmill.runners.attempts import MAX_ATTEMPTS
from tokenmill.runners.ray.cluster import Cluster
from tokenmill.runners.ray.facts import mismatch, require_nonce
from tokenmill.runners.ray.remote import write_shard_here

TICK_SECONDS = 0.25
ORDERS_PER_SLOT = 2


@dataclass(slots=True)
class _Errand:
    order: ShardOrder
    num_failed: int = 0


class Shards:
    """One run's orders. `common` is what every order says besides the shard."""

    def __init__(self, cluster: Cluster, common: dict[str, Any], watch: Watch) -> None:
        self._cluster = cluster
        self._common = common
        self._watch = watch
        self._errands: dict[Any, _Errand] = {}  # by Ray's reference
        self._retries: list[_Errand] = []

    def written(self, orders: Iterable[ShardOrder]) -> Iterator[WrittenShard]:
        """Each order's shard, in any order. However it ends, no task is left."""
        import ray

        waiting = map(_Errand, orders)
        try:
            while not self._watch.should_stop():
                while len(self._errands) < max(1, ORDERS_PER_SLOT * self._cluster.num_slots):
                    errand = self._retries.pop() if self._retries else next(waiting, None)
                    if errand is None:
                        break
                    order = {**self._common, "order": errand.order.to_plain()}
                    task = self._cluster.anywhere(write_shard_here).remote(order)
                    self._errands[task] = errand
                if not self._errands:
                    return
                ended, _ = ray.wait(list(self._errands), timeout=TICK_SECONDS, fetch_local=False)
                for task in ended:
                    shard = self._settled(task)
                    if shard is not None:
                        yield shard
        finally:
            for task in self._errands:
                ray.cancel(task, force=True)

    def _settled(self, task: Any) -> WrittenShard | None:
        import ray

        errand = self._errands.pop(task)
        try:
            kind, *content = ray.get(task)
        except ray.exceptions.RayError as error:
            self._lost(errand, str(error).strip().splitlines()[0][:200])
            return None
        if kind == "shard":
            return WrittenShard.from_plain(content[0])
        if kind == "refused":
            found, node = content
            require_nonce(self._common["nonce_path"])
            self._retries.append(errand)
            if self._cluster.refuse(node):
                unlike = mismatch(self._cluster.name(node), self._common["facts"], found)
                self._watch.notice(f"{unlike.message}\nit gets no work; {unlike.hint}")
        elif kind == "memory":
            self._lost(errand, "its memory ran out")
        elif kind == "error":
            raise error_from_plain(content[0])
        else:
            what, trace = content
            raise TokenmillError(f"a worker failed in a way that is our bug: {what}\n{trace}")
        return None

    def _lost(self, errand: _Errand, why: str) -> None:
        errand.num_failed += 1
        what = f"a worker died while it wrote shard {errand.order.place.index:,}: {why}"
        if errand.num_failed >= MAX_ATTEMPTS:
            raise WorkerError(
                what, hint="give workers more memory (--worker-memory); the same command resumes"
            )
        self._retries.append(errand)
        self._watch.notice(f"{what}\nit is tried again")
