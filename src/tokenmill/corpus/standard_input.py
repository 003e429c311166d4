"""`-` as a source: standard input, saved in a temporary file for the duration of a run.

A plan needs all of the input, and workers read it in any order, so a stream must become a file
first. It can be read only once: another attempt resumes the run only if it gets the same bytes.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from tokenmill.config import Config
from tokenmill.corpus.readers import KINDS
from tokenmill.errors import ConfigError, InputError
from tokenmill.storage.scratch import scratch_folder
from tokenmill.storage.store import new_file

STDIN = "-"
_KEPT = "stdin:"  # prefix of a source that is the saved file
_READ_BYTES = 1 << 20
_PIPE = "cat corpus.jsonl | tokenmill prepare - --input-format jsonl -o OUT"
_SAVE = "save it first: cat > corpus.jsonl, then give corpus.jsonl as SOURCE"


@contextlib.contextmanager
def kept_standard_input(
    config: Config, notice: Callable[[str], None], between_reads: Callable[[], None]
) -> Iterator[Config]:
    """The configuration with a temporary file in place of `-`."""
    if STDIN not in config.sources:
        yield config
        return
    _require_readable(config)
    notice(
        "reading standard input: it cannot be read twice, so if this run is interrupted, only the "
        "same command with the same bytes can resume it"
    )
    with scratch_folder() as folder:
        with new_file(f"{folder}/stdin", is_durable=False) as file:
            stream: Any = sys.stdin.buffer
            while chunk := stream.read1(_READ_BYTES):
                file.write(chunk)
                between_reads()
            if not file.num_bytes:
                raise InputError("standard input is empty", hint=_PIPE)
            kept = f"{_KEPT}{file.digest}:{os.path.join(folder, 'stdin')}"
            file.commit()

        def with_file(paths: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(dict.fromkeys(kept if one == STDIN else one for one in paths))

        named = tuple(replace(source, paths=with_file(source.paths)) for source in config.named)
        yield replace(config, sources=with_file(config.sources), named=named)


def _require_readable(config: Config) -> None:
    owns = [own for own in config.by_source().values() if STDIN in own.sources]
    if any(own.input_format is None for own in owns):
        raise ConfigError(
            "standard input has no file name that shows how to read it",
            hint=f"--input-format jsonl, or one of {', '.join(KINDS)}",
        )
    if config.runner == "ray":
        raise ConfigError("standard input is on this machine only, not on a cluster", hint=_SAVE)
    if sys.stdin is None or sys.stdin.closed:
        raise InputError("standard input is closed", hint=_PIPE)


def kept_file(source: str) -> tuple[str, str] | None:
    """(path, digest) of the saved file, if a source is standard input."""
    if not source.startswith(_KEPT):
        return None
    digest, _, path = source.removeprefix(_KEPT).partition(":")
    return path, f"sha256:{digest}"


def as_typed(source: str) -> str:
    return STDIN if source.startswith(_KEPT) else source


def unkept() -> ConfigError:
    """The error for `-` in a command that does not save it."""
    return ConfigError(
        "standard input can be read only once, so only a whole `prepare` reads it, not an "
        "estimate, --dry-run or --partition",
        hint=_SAVE,
    )
