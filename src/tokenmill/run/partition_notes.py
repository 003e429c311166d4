"""partitions.json: the number of partitions and the vocabulary's path, which tasks leave for
`finish`; and its error for slices that are missing."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence
from typing import Any

from tokenmill.config import Partition
from tokenmill.dataset.workspace import Workspace
from tokenmill.encodings import EncodingId
from tokenmill.errors import ConflictError
from tokenmill.storage.store import store_of
from tokenmill.wording.plural import noun_for

_SHOWN_RANGES = 5


def note(workspace: Workspace, partition: Partition, encoding: EncodingId) -> None:
    fresh = {"num_partitions": partition.count, "vocabulary": encoding.source}
    if noted(workspace) != fresh:
        store_of(workspace.out).write(_path(workspace), json.dumps(fresh).encode())


def noted(workspace: Workspace) -> dict[str, Any]:
    try:
        found = json.loads(store_of(workspace.out).read(_path(workspace)))
        source, count = found["vocabulary"], found["num_partitions"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    is_known = isinstance(source, str | None) and isinstance(count, int) and count > 0
    return {"num_partitions": count, "vocabulary": source} if is_known else {}


def _path(workspace: Workspace) -> str:
    return os.path.join(os.path.dirname(workspace.plan_path), "partitions.json")


def incomplete(
    workspace: Workspace, num_slices: int, lacking: list[int], how: str
) -> ConflictError:
    """The error for missing or damaged slices: which ones, and which partitions to run again."""
    out = workspace.out
    lines = [f"{out} lacks slices"]
    again = "the `tokenmill prepare` command of the tasks that failed"
    count = noted(workspace).get("num_partitions")
    if count is not None:
        owners = _owners(lacking, num_slices, count)
        lines[0] += f" of --partition {', '.join(map(str, owners[:10]))}"
        if len(owners) > 10:
            lines[0] += f" and {len(owners) - 10:,} more of {count:,}"
        again = f"the same `tokenmill prepare` command with --partition {owners[0]}"
        if len(owners) > 1:
            again += " and so on"
    lines.append(
        f"{len(lacking):,} of {num_slices:,} slices {noun_for(len(lacking), 'is', 'are')} "
        f"{how}: {_shown_ranges(lacking)}"
    )
    return ConflictError(
        "\n  ".join(lines), hint=f"run {again}, then: tokenmill finish {shlex.quote(out)}"
    )


def _owners(indices: Sequence[int], num_slices: int, count: int) -> list[Partition]:
    """The partitions that these slices belong to."""
    numbers = {((index + 1) * count - 1) // num_slices + 1 for index in indices}
    return [Partition(number, count) for number in sorted(numbers)]


def _shown_ranges(numbers: list[int]) -> str:
    """Sorted numbers as ranges: 1, 4-7, 9."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    shown = [f"{a}" if a == b else f"{a}-{b}" for a, b in ranges[:_SHOWN_RANGES]]
    return ", ".join(shown) + (", ..." if len(ranges) > _SHOWN_RANGES else "")
