"""What is on this machine already: local inputs, and the disk space of an unfinished run."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from tokenmill.config import Config
from tokenmill.corpus.hub_inputs import most_bytes_ahead
from tokenmill.corpus.spans import HUB_SCHEME, Input
from tokenmill.dataset.places import WORK_NAME
from tokenmill.storage import disk_space, files
from tokenmill.storage.store import store_of


def local_and_remote(inputs: Iterable[Input]) -> tuple[list[Input], list[Input]]:
    """The inputs that can be read now, and those on the Hub that are not downloaded yet."""
    here: list[Input] = []
    elsewhere: list[Input] = []
    for source in inputs:
        is_of_hub = source.name.startswith(HUB_SCHEME)
        is_here = not is_of_hub or files.size(source.path) == source.num_bytes
        (here if is_here else elsewhere).append(source)
    return here, elsewhere


def needed_for_downloads(absent: Sequence[Input], config: Config) -> int:
    """The space that files from the Hub take on the output's disk: some at a time, or all, if they
    are kept and their cache is on that disk."""
    sizes = [source.num_bytes for source in absent]
    if not config.keep_downloads:  # the files of a repeated source stay until its last copy
        return sum(sizes) if config.has_repeats else most_bytes_ahead(sizes)
    if not sizes or not config.out:
        return sum(sizes)
    return sum(sizes) if disk_space.on_one_disk(absent[0].path, config.out) else 0


def held_bytes(out: str) -> int:
    """The disk space that an unfinished run in this folder already takes."""
    if not out or not store_of(out).takes_disk_space:
        return 0
    total = 0
    for folder, below, names in os.walk(os.path.join(out, WORK_NAME)):
        # Skipped: there may be a million records of a few hundred bytes.
        below[:] = [name for name in below if name not in ("records", "tasks")]
        total += sum(files.size(os.path.join(folder, name)) or 0 for name in names)
    return total
