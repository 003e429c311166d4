"""The state of a run: one counter, and what determines the rows, so that changes are noticed.

May change: world size, batch size, workers, prefetch, skips, stages that have not begun, `epochs`,
and the path of the data. Any other change would give other rows, and is refused by name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from tokenmill.errors import ConfigError, ConflictError
from tokenmill.loader.mixing import Stage

VERSION = 1
# Sources are listed one by one if the state stays under 1 kB.
MAX_DATA_BYTES = 600

MAX_ROWS = 1 << 48  # no run has more; places are computed in 64 bits

_MEANINGS = {
    "seq_len": "tokens a row",
    "seed": "the seed",
    "shuffle": "the kind of shuffle",
    "split": "the split",
    "mix": "the weights up to here",
}


def state_of(rows: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    return {"tokenmill_loader": VERSION, "rows": rows, **settings}


def data_of(contents: Mapping[str, str]) -> dict[str, str]:
    """The content of each source by name; one hash for all if they are many."""
    plain = dict(contents)
    if len(json.dumps(plain)) <= MAX_DATA_BYTES:
        return plain
    return {f"all {len(plain)}": hash_of(sorted(plain.items()))}


def mix_of(stages: Sequence[Stage], rows: int) -> str:
    """Identifies the weights that affect the first `rows` rows."""
    begun = [stage for stage in stages if stage.start < rows] or stages[:1]
    return hash_of([[stage.start, stage.weights] for stage in begun])


def checked_rows(state: Mapping[str, Any]) -> int:
    """The counter of a state. Raises ConfigError if it is not one of ours."""
    rows = state.get("rows") if isinstance(state, Mapping) else None
    is_ours = (
        isinstance(rows, int)
        and 0 <= rows < MAX_ROWS
        and state.get("tokenmill_loader") == VERSION
        and isinstance(state.get("data"), Mapping)
        and _is_plain(state)
    )
    if not is_ours:
        raise not_a_state(state)
    return int(rows or 0)


def not_a_state(state: object) -> ConfigError:
    try:
        shown = str(state)[:100]
    except (ValueError, RecursionError):  # a number of many thousand digits
        shown = type(state).__name__
    return ConfigError(
        f"this is not the state of a Loader: {shown}",
        hint="load what loader.state_dict() returned",
    )


def _is_plain(state: Mapping[str, Any]) -> bool:
    """Whether it could be JSON, so that values can be compared and shown."""
    try:
        json.dumps(dict(state))
        return all(isinstance(name, str) for name in state["data"])
    except (TypeError, ValueError, RecursionError):
        return False


def require_same(state: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Raise ConflictError, with every field that differs, unless the state is from the same run."""
    lines = []
    for name, meaning in _MEANINGS.items():
        if state.get(name) != own[name]:
            lines.append(f"{name} ({meaning}) was {state.get(name)!r}, is {own[name]!r}")
    was, now = state.get("data", {}), own["data"]
    for name in sorted({*was, *now}):
        if name not in now:
            lines.append(f"data: the source {name} is gone")
        elif name not in was:
            lines.append(f"data: the source {name} is new")
        elif was[name] != now[name]:
            lines.append(f"data: the content of {name} was {was[name]}, is {now[name]}")
    # A state that was saved without extras does not say which documents there were.
    documents = state.get("documents", own.get("documents"))
    if "documents" in own and documents != own["documents"]:
        lines.append(f"data: the documents were {documents}, are {own['documents']}")
    if lines:
        raise ConflictError(
            "\n  ".join(["the state is from another run:", *lines]),
            hint="use the same data and options; batch_size, world_size, skip, epochs and stages "
            "that have not begun may differ",
        )


def hash_of(plain: Any) -> str:
    return hashlib.sha256(json.dumps(plain).encode()).hexdigest()[:16]
