"""What a worker answers, by pipe or as the result of a Ray task: a kind, then plain values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokenmill.encode.record import PartRecord
from tokenmill.errors import TokenmillError, error_from_plain

if TYPE_CHECKING:
    from tokenmill.assemble.task import ShardRecord


def record_in(kind: str, plain: dict[str, Any]) -> PartRecord | ShardRecord:
    """The record of a slice ("record") or of a shard task ("shard")."""
    from tokenmill.assemble.task import ShardRecord

    return (PartRecord if kind == "record" else ShardRecord).from_plain(plain)


def error_in(kind: str, content: list[Any]) -> TokenmillError:
    """What ends the run: an error of the user's world ("error", "uncut"), or our bug ("bug")."""
    if kind in ("error", "uncut"):
        return error_from_plain(content[0])
    what, trace = content
    return TokenmillError(f"a worker failed in a way that is our bug: {what}\n{trace}")
