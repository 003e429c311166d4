"""The connection to Ray: the cluster, its nodes, and how many workers each node can hold.

Ray is set up to be quiet and private: no worker logs on our streams, no dashboard, no usage
statistics. Connecting takes about 0.5 s, starting a cluster of our own 2 to 5 s.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tokenmill.config import Config
from tokenmill.errors import ConfigError
from tokenmill.runners.machine import available_cpus
from tokenmill.wording.plural import counted

OBJECT_STORE_BYTES = 128 << 20  # of our own cluster: only records pass through it
CONNECT_SECONDS = 5.0
IDLE_SECONDS = 30.0  # without any worker, before a notice
NODES_SECONDS = 1.0  # between two updates of the list of nodes


@dataclass(frozen=True, slots=True)
class Node:
    id: str
    name: str
    num_slots: int  # workers that fit, in use or not; 0: none, or the node is gone
    is_alive: bool


def require_ray() -> None:
    if importlib.util.find_spec("ray") is None:
        raise ConfigError("--runner ray needs Ray", hint="pip install 'tokenmill[ray]'")


class Cluster:
    """Connected from its creation until `close`, which also ends a cluster of our own."""

    def __init__(self, config: Config) -> None:
        self._worker_cpus = config.worker_cpus or 1.0
        self._worker_memory = config.worker_memory
        self._refused: set[str] = set()  # ids of nodes that get no work
        self._nodes: dict[str, Node] = {}
        self._looked_at = 0.0
        self._remotes: dict[Callable[..., Any], Any] = {}
        self._is_ours = _connect(config.ray_address, config.num_proc or available_cpus())
        # The limit on workers, if it is not the cluster's size.
        self._max_workers = None if self._is_ours else config.num_proc

    def close(self) -> None:
        import ray

        if self._is_ours is not None:
            with _own_signals():
                ray.shutdown()

    @property
    def nodes(self) -> dict[str, Node]:
        """All nodes by id, dead ones too; at most a second old."""
        import ray

        if time.monotonic() - self._looked_at > NODES_SECONDS:
            self._looked_at = time.monotonic()
            look: Any = ray.nodes
            self._nodes = {node["NodeID"]: self._node(node) for node in look()}
        return self._nodes

    def look_again(self) -> None:
        """Make the next call of `nodes` fetch a new list."""
        self._looked_at = 0.0

    def name(self, node_id: str) -> str:
        if node_id not in self.nodes:
            self.look_again()  # it may have joined since
        node = self.nodes.get(node_id)
        return node.name if node else node_id[:8] or "unknown"

    @property
    def workable(self) -> list[Node]:
        """The nodes that can hold a worker."""
        return [n for n in self.nodes.values() if n.num_slots and n.id not in self._refused]

    @property
    def num_slots(self) -> int:
        slots = sum(node.num_slots for node in self.workable)
        return slots if self._max_workers is None else min(slots, self._max_workers)

    @property
    def max_workers(self) -> int | None:
        return self._max_workers

    @property
    def idle_words(self) -> str:
        """The notice for a user who waits for a worker."""
        memory = f" and {counted(self._worker_memory, 'byte')}" if self._worker_memory else ""
        return (
            f"no worker has started for {IDLE_SECONDS:.0f} s: the cluster has "
            f"{counted(len(self.workable), 'node')} with {self._worker_cpus:g} CPU{memory} or "
            f"more, for {counted(self.num_slots, 'worker')}. "
            "If it cannot grow, ask for less (--worker-cpus, --worker-memory); still waiting"
        )

    def refuse(self, node_id: str) -> bool:
        """Give a node no more work; False if it was refused before."""
        is_new = node_id not in self._refused
        self._refused.add(node_id)
        return is_new

    def anywhere(self, function: Callable[..., Any]) -> Any:
        """The function as a task on any node that was not refused, with a worker's resources.

        Ray must not retry: when memory runs out it would retry forever, without a reason.
        """
        options: dict[str, Any] = {"num_cpus": self._worker_cpus}
        if self._worker_memory is not None:
            options["memory"] = self._worker_memory
        if self._refused:
            options["label_selector"] = {"ray.io/node-id": f"!in({','.join(self._refused)})"}
        remote = self._remote(function)
        return remote.options(max_retries=0, **options)

    def on(self, node_id: str, function: Callable[..., Any]) -> Any:
        """The function as a task on that node, beside the tasks that run there."""
        return self._remote(function).options(
            num_cpus=0, max_retries=0, scheduling_strategy=_at(node_id)
        )

    def _remote(self, function: Callable[..., Any]) -> Any:
        """The function's remote handle; made once, because making it informs the whole cluster."""
        import ray

        if function not in self._remotes:
            self._remotes[function] = ray.remote(function)
        return self._remotes[function]

    def _node(self, plain: dict[str, Any]) -> Node:
        resources = plain["Resources"]
        num_slots = int(resources.get("CPU", 0) / self._worker_cpus)
        if self._worker_memory is not None:
            num_slots = min(num_slots, int(resources.get("memory", 0) / self._worker_memory))
        name = f"{plain['NodeName']} ({plain['NodeID'][:8]})"
        return Node(plain["NodeID"], name, num_slots if plain["Alive"] else 0, plain["Alive"])


def _at(node_id: str) -> Any:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node_id, soft=False)


def _connect(address: str | None, num_cpus: int) -> bool | None:
    """Connect. True: to a new cluster of our own; False: to a running one; None: was connected
    before."""
    require_ray()
    import ray

    if ray.is_initialized():
        return None
    if address in (None, "auto"):
        address = os.environ.get("RAY_ADDRESS") or address
    found = None
    if address in (None, "auto"):
        found = _running_address()
        if found is None and address == "auto":
            raise ConfigError("no Ray cluster runs here", hint="ray start --head")
    elif address != "local":
        _require_answer(str(address))
        if os.environ.get("RAY_AUTH_MODE", "disabled") == "disabled":
            _require_token(str(address))
        found = address
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    with _own_signals(), _environment(RAY_USAGE_STATS_ENABLED="0"):
        if found is None:
            ray.init(
                address="local",
                num_cpus=num_cpus,
                include_dashboard=False,
                object_store_memory=OBJECT_STORE_BYTES,
                **quiet,
            )
        else:
            # Ray finds the token only for a cluster that it finds itself.
            _join(found, "auto" if address in (None, "auto") else found, quiet)
    _silence_raylet()
    return found is None


def _join(address: str, spelled: str, quiet: dict[str, Any]) -> None:
    import ray

    try:
        ray.init(address=spelled, **quiet)
    except ray.exceptions.AuthenticationError as error:
        raise _no_token(address) from error
    except (ConnectionError, RuntimeError, ValueError) as error:
        _require_token(address)
        raise _no_cluster(address, str(error)) from error


def _running_address() -> str | None:
    """The cluster that `ray start` started here, if it still answers. Ray leaves its address in a
    file that ray.init's documentation names, in the folder that these variables name."""
    folder = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
    try:
        with open(
            os.path.join(folder, "ray/ray_current_cluster"), encoding="ascii", errors="replace"
        ) as file:
            address = file.read().strip()
        _require_answer(address)
    except (OSError, ConfigError):
        return None
    return address


def _require_answer(address: str) -> None:
    """Raise ConfigError unless the address answers. Ray itself would retry and print for over two
    minutes."""
    host, _, port = address.rpartition(":")
    if "://" in address:
        raise ConfigError(
            f"--ray-address {address}: tokenmill cannot run through a Ray client",
            hint="run it on a node of the cluster: ray job submit -- tokenmill prepare ...",
        )
    if not host or not port.isdigit():
        raise ConfigError(f"--ray-address {address} is not HOST:PORT", hint="see: ray status")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise _no_cluster(address, str(error)) from error


def _require_token(address: str) -> None:
    """Raise ConfigError if the cluster requires another token than ours. `ray.init` only says,
    after 20 s, that it cannot connect; its internal client says why, at once.

    Not if this machine needs a token and may have none: then that client ends the process.
    """
    import ray

    client: Any = getattr(ray._raylet, "GcsClient", None)
    if client is None:
        return
    try:
        client(address=address)
    except ray.exceptions.AuthenticationError as error:
        raise _no_token(address) from error
    except (ray.exceptions.RayError, OSError, RuntimeError, TypeError, ValueError):
        pass  # ray.init will report it


def _no_token(address: str) -> ConfigError:
    mode = os.environ.get("RAY_AUTH_MODE")
    return ConfigError(
        f"the Ray cluster at {address} requires a token, and the one here is missing or wrong "
        f"(RAY_AUTH_MODE is {mode or 'not set'})",
        hint="export RAY_AUTH_MODE=token RAY_AUTH_TOKEN=..., with what `ray get-auth-token` prints "
        "on the cluster's head node",
    )


def _no_cluster(address: str, why: str) -> ConfigError:
    return ConfigError(
        f"no Ray cluster at {address}: {why}",
        hint=f"is it up? ray status --address {address}. Without --ray-address, one is started",
    )


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Keep our signal handlers: Ray replaces them by its own, which raise SystemExit."""
    kept = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # not the main thread: Ray left them alone
            for signum, handler in kept.items():
                signal.signal(signum, handler)


@contextlib.contextmanager
def signals_heard() -> Iterator[None]:
    """Restore the exception that our signal handlers raised. If a signal arrives while Ray waits,
    Ray 2.60 raises SystemError, "returned a result with an exception set", instead."""
    try:
        yield
    except SystemError as error:
        if error.__cause__ is not None:
            raise error.__cause__ from None
        raise


@contextlib.contextmanager
def _environment(**variables: str) -> Iterator[None]:
    """Set variables that Ray reads at its start, unless the user has set them."""
    added = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


def _silence_raylet() -> None:
    """Ray prints the deaths of workers on stdout, `log_to_driver` or not; stdout is data, and we
    explain these deaths ourselves."""
    from ray._private import worker

    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = lambda *_, **__: None
