"""The ray runner: the caller's side.

It connects only when the first input is cut or the first slice encoded: a finished run, or one with
wrong options, needs no cluster. All nodes then report their facts in parallel (facts.py), and their
workers load engines while the plan is made.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from tokenmill import __version__
from tokenmill.config import Config
from tokenmill.corpus.input_spans import Cut
from tokenmill.corpus.readers import ReadOptions
from tokenmill.corpus.spans import Input, Slice
from tokenmill.encode.job import Job
from tokenmill.encode.record import PartRecord
from tokenmill.encodings import EncodingId
from tokenmill.encodings.verdict import remember, verdict_of
from tokenmill.errors import ConfigError
from tokenmill.runners import Stopped, Watch
from tokenmill.runners.ray.cluster import Cluster, require_ray, signals_heard
from tokenmill.runners.ray.facts import (
    STORAGE,
    VERDICT,
    Nonce,
    facts_here,
    mismatch,
    removal_noticed,
    require_nonce,
)
from tokenmill.runners.ray.heartbeats import Heartbeats
from tokenmill.runners.ray.in_flight import TICK_SECONDS, InFlight
from tokenmill.runners.ray.input_cutting import Cuts
from tokenmill.runners.ray.remote import node_facts
from tokenmill.storage.address import absolute

if TYPE_CHECKING:
    from tokenmill.assemble.task import ShardRecord, ShardTask

ANSWER_SECONDS = 120.0  # how long a node may take to report its facts


class RayRunner:
    """Runs slices and shard tasks on a Ray cluster; leaving it ends the cluster if it is our
    own."""

    def __init__(self, config: Config, encoding: EncodingId) -> None:
        require_ray()
        self._config = config
        self._encoding = encoding
        self._cluster: Cluster | None = None
        self._heartbeats: Heartbeats | None = None
        self._nonces: dict[str, Nonce] = {}  # by work folder
        self._warming: list[Any] = []

    def __enter__(self) -> RayRunner:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.ExitStack() as stack:
            if self._cluster is not None:
                stack.callback(self._cluster.close)
            if self._heartbeats is not None:
                stack.callback(self._heartbeats.close)  # the last is called first
            self._cluster = self._heartbeats = None

    def cut(
        self, inputs: Iterable[Input], options: ReadOptions, max_rows: int | None, watch: Watch
    ) -> Iterator[Cut]:
        """Cut inputs on the nodes, once these are known to match: a command that cannot run must
        not remove the output of an earlier one."""
        with signals_heard():
            common = self._require_alike(None, watch)
            cuts = Cuts(self._connected(), common, options, max_rows, watch)
            yield from cuts.of(inputs)

    def run(
        self, job: Job, work: Iterable[Slice | ShardTask | None], watch: Watch
    ) -> Iterator[PartRecord | ShardRecord]:
        """Encode slices and write shards; yield each record once. No task is left when it ends,
        with or without an error."""
        with signals_heard():
            try:
                common = self._require_alike(job.work, watch)
            except Stopped:  # a stop ends the records, without an error
                return
            cluster, stall_timeout = self._connected(), self._config.stall_timeout
            assert self._heartbeats is not None
            in_flight = InFlight(cluster, self._heartbeats, job, common, watch, stall_timeout)
            with removal_noticed(common["nonce_path"]):
                yield from in_flight.records(work)

    def _connected(self) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster(self._config)
            self._heartbeats = Heartbeats()
        return self._cluster

    def _require_alike(self, work: str | None, watch: Watch) -> dict[str, Any]:
        """Compare the facts of every node, and raise an error if they differ. Returns the common
        part of all orders."""
        cluster = self._connected()
        nonce = None if work is None else self._nonce(absolute(work))
        facts = facts_here(self._encoding, None if nonce is None else nonce.value)
        common: dict[str, Any] = {
            "facts": facts,
            "nonce_path": None if nonce is None else nonce.path,
            "encoding": self._encoding.to_plain(),
            "verdict": verdict_of(self._encoding),
            "cwd": os.getcwd(),
        }
        asked = {
            node.id: cluster.on(node.id, node_facts).remote(common) for node in cluster.workable
        }
        if work is None:
            # These make more workers load an engine while the plan is made; nobody waits for them.
            num_more = max(0, cluster.num_slots - len(asked))
            self._warming = [cluster.anywhere(node_facts).remote(common) for _ in range(num_more)]
        for node_id, answer in asked.items():
            found = _answered(cluster, node_id, answer, watch)
            if found is not None and found.get(STORAGE) != facts.get(STORAGE):
                # The store may have failed for a while. Once it answers us, it must answer the
                # node.
                require_nonce(common["nonce_path"])
                again = cluster.on(node_id, node_facts).remote(common)
                found = _answered(cluster, node_id, again, watch)
            remember(self._encoding, (found or {}).pop(VERDICT, None))
            if found is not None and found != facts:
                require_nonce(common["nonce_path"])
                raise mismatch(cluster.name(node_id), facts, found)
        return {**common, "verdict": verdict_of(self._encoding)}

    def _nonce(self, work: str) -> Nonce:
        """This run's nonce in that folder. It is written only once: if it is gone, other files are
        gone too, and that must be noticed."""
        if work in self._nonces:
            require_nonce(self._nonces[work].path)
        else:
            self._nonces[work] = Nonce.left_in(work)
        return self._nonces[work]


def _answered(cluster: Cluster, node_id: str, answer: Any, watch: Watch) -> dict[str, Any] | None:
    """A node's answer; None if it gives none now. That does no harm: every worker process compares
    its own facts before it starts."""
    import ray

    name, deadline = cluster.name(node_id), time.monotonic() + ANSWER_SECONDS
    while True:
        if watch.should_stop():
            raise Stopped
        try:
            found: dict[str, str] = ray.get(answer, timeout=TICK_SECONDS)
            return found
        except ray.exceptions.GetTimeoutError:
            if time.monotonic() < deadline:
                continue
            why = f"no answer for {ANSWER_SECONDS:.0f} s"
        except ray.exceptions.RayTaskError as error:
            raise ConfigError(
                f"node {name} cannot run tokenmill: {str(error).strip().splitlines()[-1]}",
                hint=f"install the same there as here: pip install tokenmill=={__version__}",
            ) from error
        except ray.exceptions.RayError as error:
            why = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200]}"
        watch.notice(f"node {name} did not report its facts: {why}\nits workers are checked later")
        return None
