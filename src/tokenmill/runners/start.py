"""Chooses and starts the runner of a configuration.

Light to import: the command line starts its workers first and imports the rest while they load. To
fork them, it must not have imported anything that starts threads.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tokenmill.config import Config
from tokenmill.encodings import awkward_shim
from tokenmill.encodings.lookup import encoding_of
from tokenmill.runners import Runner
from tokenmill.runners.inline import InlineRunner
from tokenmill.runners.machine import available_cpus
from tokenmill.runners.processes import ProcessesRunner
from tokenmill.runners.worker import configure_process
from tokenmill.wording.plural import counted


def num_proc_of(config: Config, num_slices: int | None = None) -> int:
    """The number of workers; at most the number of slices, if that is known."""
    if config.runner == "inline":
        return 1
    num_proc = config.num_proc or available_cpus()
    return num_proc if num_slices is None else max(1, min(num_proc, num_slices))


def workers_of(config: Config, num_slices: int | None = None) -> str:
    """The number of workers, for the user. For Ray only its name: a cluster may grow and shrink."""
    if config.runner == "ray":
        return "ray"
    return counted(num_proc_of(config, num_slices), "worker")


@contextlib.contextmanager
def started_runner(config: Config, owns_process: bool = False) -> Iterator[Runner]:
    """The runner of a configuration. `owns_process`: it may fork and configure this process."""
    if config.runner == "ray":
        from tokenmill.runners.ray.runner import RayRunner

        with RayRunner(config, encoding_of(config)) as runner:
            yield runner
    elif _is_inline(config):
        if owns_process:
            configure_process()  # this process works as a worker
            awkward_shim.enable()
        yield InlineRunner()
    else:
        encoding = encoding_of(config)
        num_proc = num_proc_of(config)
        with ProcessesRunner(num_proc, encoding, config.stall_timeout, owns_process) as processes:
            yield processes


@contextlib.contextmanager
def cutting_runner(config: Config) -> Iterator[Runner]:
    """A runner for a plan that is not encoded: its worker, if any, loads no engine."""
    if _is_inline(config):
        yield InlineRunner()
    else:
        with ProcessesRunner(1, None, config.stall_timeout) as runner:
            yield runner


@contextlib.contextmanager
def writing_runner(num_proc: int | None) -> Iterator[Runner]:
    """A runner only for shard tasks: its workers load no engine."""
    num_proc = num_proc or available_cpus()
    if num_proc == 1:
        yield InlineRunner()
    else:
        with ProcessesRunner(num_proc, None) as runner:
            yield runner


def _is_inline(config: Config) -> bool:
    return config.runner == "inline" or (config.runner is None and num_proc_of(config) == 1)
