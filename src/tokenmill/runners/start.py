"""Which runner a configuration means, started.

Light to import: the command line starts its workers first and loads the rest while they load
too, and it must not have loaded anything with threads if it is to fork them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tokenmill.config import Config
from tokenmill.encodings import EncodingId, get_encoding
from tokenmill.machine import available_cpus
from tokenmill.plural import counted
from tokenmill.runners import Runner
from tokenmill.runners.inline import InlineRunner
from tokenmill.runners.processes import ProcessesRunner


def encoding_of(config: Config) -> EncodingId:
    return get_encoding(config.tokenizer, pattern=config.pattern, eot=config.eot_token).identity


def num_proc_of(config: Config) -> int:
    if config.runner == "inline":
        return 1
    return config.num_proc or available_cpus()


def workers_of(config: Config) -> str:
    """Who does the work, for a person; how many a cluster has may change at any time."""
    if config.runner == "ray":
        return "ray"
    num_proc = num_proc_of(config)
    return counted(num_proc, "worker")


@contextlib.contextmanager
def started_runner(config: Config, may_fork: bool = False) -> Iterator[Runner]:
    if config.runner == "ray":
        from tokenmill.runners.ray.runner import RayRunner

        with RayRunner(config, encoding_of(config)) as runner:
            yield runner
    elif _is_inline(config):
        yield InlineRunner()
    else:
        encoding = encoding_of(config)
        num_proc = num_proc_of(config)
        with ProcessesRunner(num_proc, encoding, config.stall_timeout, may_fork) as processes:
            yield processes


@contextlib.contextmanager
def cutting_runner(config: Config) -> Iterator[Runner]:
    """A runner for a plan that nothing is encoded from: its worker, if any, loads no engine."""
    if _is_inline(config):
        yield InlineRunner()
    else:
        with ProcessesRunner(1, None, config.stall_timeout) as runner:
            yield runner


def _is_inline(config: Config) -> bool:
    return config.runner == "inline" or (config.runner is None and num_proc_of(config) == 1)
